"""A plan at work, or a job that comes back, in Lightning; with either name of the library.

Trainer(callbacks=[ApplyPlan("plan.json")])
Trainer(callbacks=[ReportEpochs(run, "val_accuracy")])    # within: with wn.job(...) as run
"""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch.callbacks import Callback  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    from pytorch_lightning.callbacks import Callback  # type: ignore[import-not-found,no-redef,unused-ignore]

from wastenot.errors import BadInputError
from wastenot.runtime.apply import Applied, apply
from wastenot.runtime.following_run import FollowingRun
from wastenot.runtime.training_run import TrainingRun


class ApplyPlan(Callback):  # type: ignore[misc,unused-ignore]
    """Puts a plan to work from the beginning of fitting to its end, also where that ends by an exception.

    Args:
        plan: its file, or the plan.
        options: of :class:`wastenot.apply`.

    Attributes:
        applied: the plan at work; ``None`` before training.
    """

    def __init__(self, plan: Any, **options: Any) -> None:
        self._apply = apply(plan, **options)
        self.applied: Applied | None = None
        self._open = False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin, and watch what the strategy has made of the model."""
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
            self.applied.phase("optimizer")

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Give the clocks back."""
        self._close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Give the clocks back."""
        self._close()

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._apply.__exit__(None, None, None)


class ReportEpochs(Callback):  # type: ignore[misc,unused-ignore]
    """Reports each validation of a training run to the job that it belongs to, and ends training once the job says so.

    Args:
        run: as ``with wn.job(...) as run`` gave it; its batch size and learning rate belong into the data and the module.
        metric: name under which the module logs what the job's target is of; where the job has no target it may be left
            out, and the ends of epochs are reported.
    """

    def __init__(self, run: TrainingRun | FollowingRun, metric: str | None = None) -> None:
        self._run, self._metric = run, metric
        self._going_on = True

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the metric.

        Raises:
            BadInputError: the module does not log it.
        """
        if self._metric is None or trainer.sanity_checking or trainer.state.fn != "fit":
            return
        if self._metric not in trainer.callback_metrics:
            logged = ", ".join(sorted(trainer.callback_metrics)) or "nothing"
            raise BadInputError(f"`metric` {self._metric}: is not among what the module logs: {logged}")
        self._report(trainer, float(trainer.callback_metrics[self._metric]))

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the epoch, where no metric is named."""
        if self._metric is None:
            self._report(trainer, None)

    def _report(self, trainer: Any, value: float | None) -> None:
        if self._going_on and not self._run.epoch(value):
            self._going_on = False
            trainer.should_stop = True


def _size(module: Any) -> int:
    return sum(int(parameter.numel()) for parameter in module.parameters())
