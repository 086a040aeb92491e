"""A plan applied in a Hugging Face ``Trainer``.

Trainer(..., callbacks=[ApplyPlan("plan.json")])
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback  # type: ignore[import-not-found,unused-ignore]

from wastenot.control.harmless import Harmless
from wastenot.programs.apply import Applied, apply


class ApplyPlan(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Applies a plan from the beginning of training to its end. What fails of it is reported, and training continues.

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
        self._open = self._watched = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin."""
        self._harmless.call(self._begin)

    def _begin(self) -> None:
        self.applied, self._open = self._apply.__enter__(), True

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Watch the model as it is trained, wrapped and prepared by then."""
        if self.applied is not None and not self._watched:
            self._watched = True
            self._harmless.call(self._watch, self.applied, kwargs.get("model"), kwargs.get("optimizer"))

    def _watch(self, applied: Applied, model: Any, optimizer: Any) -> None:
        applied.watch(model, _innermost(optimizer))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Give the clocks back."""
        self._harmless.call(self._close)

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._apply.__exit__(None, None, None)


def _innermost(optimizer: Any) -> Any:
    """PyTorch's optimizer inside the wrapper of Accelerate."""
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer
