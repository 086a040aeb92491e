"""A recurring job, in a Hugging Face ``Trainer``.

Trainer(..., callbacks=[ReportEpochs(run, "eval_accuracy")])    # within: with wn.job(...) as run
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback  # type: ignore[import-not-found,unused-ignore]

from wastenot.control.harmless import Harmless
from wastenot.core.errors import BadInputError
from wastenot.jobs.run.following_run import FollowingRun
from wastenot.jobs.run.training_run import TrainingRun


class ReportEpochs(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Reports each evaluation of a training run to the job that it belongs to, and ends training once the job says so.

    What fails of that is told, and training continues.

    Args:
        run: as ``with wn.job(...) as run`` gave it; its batch size and learning rate belong into ``TrainingArguments``.
        metric: name of what the job's target is of, as the Trainer reports it, such as ``eval_accuracy``; where the job has
            no target it may be left out, and the ends of epochs are reported.
    """

    def __init__(self, run: TrainingRun | FollowingRun, metric: str | None = None) -> None:
        self._run, self._metric = run, metric
        self._harmless = Harmless(consequence="training continues, and the job learns nothing more from this run")
        self._training, self._going_on = False, True

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluations count from here on."""
        self._training = True
        self._harmless.call(self._check, args)

    def _check(self, args: Any) -> None:
        if self._metric is not None and getattr(args.eval_strategy, "value", args.eval_strategy) == "no":
            raise BadInputError(
                f"`metric` {self._metric}: the Trainer does not evaluate during training; set "
                "TrainingArguments(eval_strategy='epoch')"
            )

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report the metric."""
        self._harmless.call(self._report_metric, control, kwargs.get("metrics") or {})

    def _report_metric(self, control: Any, metrics: Any) -> None:
        if not self._training or self._metric is None:
            return
        if self._metric not in metrics:
            raise BadInputError(
                f"`metric` {self._metric}: is not among what the Trainer reports: {', '.join(sorted(metrics))}"
            )
        self._report(control, metrics[self._metric])

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report the epoch, where no metric is named."""
        if self._metric is None:
            self._harmless.call(self._report, control, None)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluations count no more."""
        self._training = False

    def _report(self, control: Any, value: float | None) -> None:
        if self._going_on:  # the Trainer asks to stop before its own last epoch is reported
            self._going_on = self._run.epoch(value)
        if not self._going_on:
            control.should_training_stop = True
