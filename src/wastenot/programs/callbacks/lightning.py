"""A plan applied in Lightning; with either name of the library.

Trainer(callbacks=[ApplyPlan("plan.json")])
"""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch.callbacks import Callback  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    from pytorch_lightning.callbacks import Callback  # type: ignore[import-not-found,no-redef,unused-ignore]

from wastenot.control.harmless import Harmless
from wastenot.programs.apply import Applied, apply


class ApplyPlan(Callback):  # type: ignore[misc,unused-ignore]
    """Applies a plan from the beginning of fitting to its end, also where that ends by an exception.

    What fails of it is reported, and fitting continues.

    Args:
        plan: its file, or the plan.
        options: of :class:`wastenot.apply`.

    Attributes:
        applied: the plan at work; ``None`` before training.
    """

    def __init__(self, plan: Any, **options: Any) -> None:
        self._apply = apply(plan, **options)
        self.applied: Applied | None = None
        self._harmless = Harmless(self._close)
        self._open = False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin, and watch what the strategy has made of the model."""
        self._harmless.call(self._begin, trainer, pl_module)

    def _begin(self, trainer: Any, pl_module: Any) -> None:
        self.applied, self._open = self._apply.__enter__(), True
        optimizers = [getattr(one, "optimizer", one) for one in trainer.optimizers]
        self.applied.watch(pl_module, optimizers)
        # Its training step may call what is inside, rather than itself.
        children = [child for child in pl_module.children() if any(True for _ in child.parameters())]
        if children:
            self.applied.watch(max(children, key=_size), ())

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Mark the optimizer's pass: Lightning runs the passes before it inside of the optimizer's step."""
        if self.applied is not None:
            self._harmless.call(self.applied.phase, "optimizer")

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Give the clocks back."""
        self._harmless.call(self._close)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Give the clocks back."""
        self._harmless.call(self._close)

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._apply.__exit__(None, None, None)


def _size(module: Any) -> int:
    return sum(int(parameter.numel()) for parameter in module.parameters())
