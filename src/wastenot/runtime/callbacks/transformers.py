"""A plan at work, or a job that comes back, in a Hugging Face ``Trainer``.

Trainer(..., callbacks=[ApplyPlan("plan.json")])
Trainer(..., callbacks=[ReportEpochs(run, "eval_accuracy")])    # within: with wn.job(...) as run
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback  # type: ignore[import-not-found,unused-ignore]

from wastenot.errors import BadInputError
from wastenot.runtime.apply import Applied, apply
from wastenot.runtime.following_run import FollowingRun
from wastenot.runtime.training_run import TrainingRun


class ApplyPlan(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Puts a plan to work from the beginning of training to its end.

    Args:
        plan: its file, or the plan.
        options: of :class:`wastenot.apply`.

    Attributes:
        applied: the plan at work; ``None`` before training.
    """

    def __init__(self, plan: Any, **options: Any) -> None:
        self._apply = apply(plan, **options)
        self.applied: Applied | None = None
        self._watched = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Begin."""
        self.applied = self._apply.__enter__()

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Watch the model as it is trained, wrapped and prepared by then."""
        if self.applied is not None and not self._watched:
            self._watched = True
            self.applied.watch(kwargs["model"], _innermost(kwargs.get("optimizer")))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Give the clocks back."""
        if self.applied is not None:
            self._apply.__exit__(None, None, None)


class ReportEpochs(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Reports each evaluation of a training run to the job that it belongs to, and ends training once the job says so.

    Args:
        run: as ``with wn.job(...) as run`` gave it; its batch size and learning rate belong into ``TrainingArguments``.
        metric: name of what the job's target is of, as the Trainer reports it, such as ``eval_accuracy``; where the job has
            no target it may be left out, and the ends of epochs are reported.
    """

    def __init__(self, run: TrainingRun | FollowingRun, metric: str | None = None) -> None:
        self._run, self._metric = run, metric
        self._training, self._going_on = False, True

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluations count from here on.

        Raises:
            BadInputError: the Trainer will not evaluate while it trains.
        """
        self._training = True
        if self._metric is not None and getattr(args.eval_strategy, "value", args.eval_strategy) == "no":
            raise BadInputError(
                f"`metric` {self._metric}: the Trainer does not evaluate while it trains; set "
                "TrainingArguments(eval_strategy='epoch')"
            )

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report the metric.

        Raises:
            BadInputError: the Trainer does not report it.
        """
        if not self._training or self._metric is None:
            return
        metrics = kwargs.get("metrics") or {}
        if self._metric not in metrics:
            raise BadInputError(
                f"`metric` {self._metric}: is not among what the Trainer reports: {', '.join(sorted(metrics))}"
            )
        self._report(control, metrics[self._metric])

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report the epoch, where no metric is named."""
        if self._metric is None:
            self._report(control, None)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Evaluations count no more."""
        self._training = False

    def _report(self, control: Any, value: float | None) -> None:
        if self._going_on:  # the Trainer asks to stop before its own last epoch is reported
            self._going_on = self._run.epoch(value)
        if not self._going_on:
            control.should_training_stop = True


def _innermost(optimizer: Any) -> Any:
    """PyTorch's optimizer inside the wrapper of Accelerate."""
    while hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer
