"""A recurring job, in Lightning; with either name of the library.

Trainer(..., callbacks=[ReportEpochs(run, "val_accuracy")])    # within: with wn.job(...) as run
"""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch.callbacks import Callback  # type: ignore[import-not-found,unused-ignore]
except ImportError:
    from pytorch_lightning.callbacks import Callback  # type: ignore[import-not-found,no-redef,unused-ignore]

from wastenot.control.harmless import Harmless
from wastenot.core.errors import BadInputError
from wastenot.jobs.run.following_run import FollowingRun
from wastenot.jobs.run.training_run import TrainingRun


class ReportEpochs(Callback):  # type: ignore[misc,unused-ignore]
    """Reports each validation of a training run to the job that it belongs to, and ends training once the job says so.

    What fails of that is told, and training continues.

    Args:
        run: as ``with wn.job(...) as run`` gave it; its batch size and learning rate belong into the data and the module.
        metric: name under which the module logs what the job's target is of; where the job has no target it may be left
            out, and the ends of epochs are reported.
    """

    def __init__(self, run: TrainingRun | FollowingRun, metric: str | None = None) -> None:
        self._run, self._metric = run, metric
        self._harmless = Harmless(consequence="training continues, and the job learns nothing more from this run")
        self._going_on = True

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the metric."""
        self._harmless.call(self._report_metric, trainer)

    def _report_metric(self, trainer: Any) -> None:
        if self._metric is None or trainer.sanity_checking or trainer.state.fn != "fit":
            return
        if self._metric not in trainer.callback_metrics:
            logged = ", ".join(sorted(trainer.callback_metrics)) or "nothing"
            raise BadInputError(f"`metric` {self._metric}: is not among what the module logs: {logged}")
        self._report(trainer, float(trainer.callback_metrics[self._metric]))

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the epoch, where no metric is named."""
        if self._metric is None:
            self._harmless.call(self._report, trainer, None)

    def _report(self, trainer: Any, value: float | None) -> None:
        if self._going_on and not self._run.epoch(value):
            self._going_on = False
            trainer.should_stop = True
