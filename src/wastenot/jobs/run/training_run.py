"""A run of a job, as the program sees it that trains: what it trains with, and whether it continues."""

from __future__ import annotations

import math
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from wastenot.control.harmless import Harmless
from wastenot.core.errors import BadInputError, StudyError, StudyUnreachableError
from wastenot.core.setting import Setting
from wastenot.jobs.plan.decision import Decision, Verdict
from wastenot.jobs.plan.learner import Learner
from wastenot.jobs.plan.remembered import catch_up, recall
from wastenot.jobs.run.control import JobControl
from wastenot.jobs.run.meter import JobMeter
from wastenot.jobs.tables.records import JobRun, JobTerms, LearningRateScaling, Outcome, Speed
from wastenot.jobs.tables.run_in_flight import RunInFlight
from wastenot.jobs.tables.store import JobStore, StoredJob

_HEAR_OTHERS_S = 60.0
_OUT_OF_MEMORY = ("out of memory", "alloc_failed")  # the latter of cuBLAS and cuDNN


class TrainingRun:
    """A run at work; made by :class:`job`.

    Attributes:
        number: of the run in its job, from 1.
        batch_size: to train with.
        why: this batch size, in a clause for people; after the run was stopped, why it was.
        default: the batch size of the job's user.
        device: label of the device that it counts as run on.
    """

    def __init__(
        self,
        store: JobStore,
        flight: RunInFlight,
        learner: Learner,
        meter: JobMeter,
        control: JobControl | None,
        scaling: LearningRateScaling,
    ) -> None:
        terms = learner.terms
        self._store, self._flight, self._learner, self._terms = store, flight, learner, terms
        self._meter, self._control, self._scaling = meter, control, scaling
        self._learned_s, self._known = time.monotonic(), (*flight.stored.runs, flight.run)
        self.number, self.batch_size, self.why = flight.run.number, flight.run.batch_size, flight.decision.why
        self.default, self.device = terms.default, flight.run.device
        self._outcome: Outcome = "running"
        self._reported, self._kept, self._unreachable = 0, False, False
        self._speeds: tuple[Speed, ...] = ()
        self._first_metric: float | None = None
        self._said: set[str] = set()
        self._harmless = Harmless(self._give_back, "training continues, and the job learns nothing more from this run")
        self._clocks = Harmless(self._give_back, "training continues at the default settings")

    @property
    def outcome(self) -> Outcome:
        """What has become of the run: ``running``, until it is known."""
        return self._outcome

    @property
    def epochs(self) -> int:
        """Completed so far."""
        return self._flight.run.epochs

    @property
    def decision(self) -> Decision:
        """What was decided for it, with what was expected of every batch size."""
        return self._flight.decision

    def learning_rate(self, base: float) -> float:
        """The learning rate for the batch size, scaled from that of the default batch size as the job was told to."""
        ratio = self.batch_size / self.default
        return base * {"square root": math.sqrt(ratio), "linear": ratio, "none": 1.0}[self._scaling]

    def iteration(self) -> None:
        """Mark the beginning of an iteration, in programs whose iterations no PyTorch optimizer tells.

        Power limits or clocks are then measured in slices of seconds; without iterations, by whole epochs.
        """
        if self._control is not None and not self._harmless.broken:
            self._clocks.call(self._control.iteration)

    def epoch(self, metric: float | None = None) -> bool:
        """Report an epoch. A fault of ours is reported once, and training continues.

        Args:
            metric: after it, which the target is of; may be left out where the job has none.

        Returns:
            Whether to continue: not once the target is reached, or the run is given up. After a fault the target and
            ``max_epochs`` still end it.

        Raises:
            BadInputError: the job has a target, and no metric is given.
        """
        if self._outcome in ("running", "stopped"):
            value = self._value_of(metric)
            self._reported += 1
            self._harmless.call(self._count, value)
            if self._harmless.broken:
                self._count_alone(value)
        else:
            self._say_once("an epoch was reported after the end of the run and does not count")
        self._harmless.call(self._meter.resume)
        return self._outcome == "running"

    def _value_of(self, metric: float | None) -> float | None:
        terms = self._terms
        if metric is None and terms.target is not None:
            raise BadInputError(f"`metric`: job '{terms.name}' has a target; report the metric: run.epoch(metric)")
        try:
            return None if metric is None else float(metric)
        except (TypeError, ValueError) as error:
            raise BadInputError(f"`metric` {metric!r}: is not a number") from error

    def _count(self, value: float | None) -> None:
        terms = self._terms
        self._meter.epoch()
        run = self._flight.count(value, self._clocks.call(self._setting_of_epoch))
        if value is not None and not math.isfinite(value):
            self._end("diverged", f"its metric is {value}")
        elif value is not None and terms.target is not None and reached(value, terms):
            if run.epochs == 1 and not self._flight.stored.runs:
                other = not terms.higher_is_better
                self._say(
                    f"the first epoch already reached the target ({value:g}, target {terms.target:g}); if that is "
                    f"wrong, start a new job with higher_is_better={other}"
                )
            self._end("reached", "")
        elif self._outcome == "running":
            self._go_on(run, value)
            if self._outcome == "running":
                later = not self._meter.save_due()
                speeds = () if later else self._new_speeds()
                self._try(lambda: self._flight.save(later=later, speeds=speeds))

    def _count_alone(self, value: float | None) -> None:
        """Count without what has failed: the other ranks wait for the epochs, and the run is to end as its terms say."""
        flight = self._flight
        with suppress(Exception):
            if flight.run.epochs < self._reported:
                flight.count(value)
        if self._outcome == "running" and self._is_over(value):
            self._outcome, self._kept = "failed", False  # what was measured is not the whole run
        with suppress(Exception):
            if self._outcome == "running":
                self._try(lambda: flight.save(later=not self._meter.every_epoch))
            elif not self._kept:
                self._try(self._keep)

    def _is_over(self, value: float | None) -> bool:
        """Whether the terms alone end the run after the epoch that was reported last."""
        terms = self._terms
        if value is not None and (not math.isfinite(value) or (terms.target is not None and reached(value, terms))):
            return True
        return terms.max_epochs is not None and self._reported >= terms.max_epochs

    def _setting_of_epoch(self) -> Setting | None:
        """Mark the end of an epoch; returns what is held, ``None`` where nothing is set."""
        if self._control is None:
            return None
        self._control.epoch()
        return self._control.held

    def _go_on(self, run: JobRun, value: float | None) -> None:
        terms = self._terms
        self._first_metric = value if self._first_metric is None else self._first_metric
        if terms.max_epochs is not None and run.epochs >= terms.max_epochs:
            self._end("missed", f"the target was not reached within {terms.max_epochs} epochs")
        elif terms.target is not None:
            verdict = self._verdict(run)
            if not verdict.go_on:
                self.why = verdict.why
                self._say(f"run {self.number} is stopped after {run.epochs} epochs: {verdict.why}")
                self._settle("stopped")

    def _verdict(self, run: JobRun) -> Verdict:
        try:
            self._learn()
            return self._learner.goes_on(run)
        except Exception as error:  # whatever it is, hours of training are not to end by it
            self._say_once(f"whether to continue could not be decided ({type(error).__name__}: {error}); training continues")
            return Verdict(True)

    def _learn(self) -> None:
        """Take in what is new: how fast this run is, and now and then what others have seen."""
        if time.monotonic() - self._learned_s > _HEAR_OTHERS_S:
            self._learned_s = time.monotonic()
            self._try(self._hear_others)
        if self._control is not None or self._meter.settled:
            for speed in self._speeds_now():
                self._learner.measured(speed)

    def _hear_others(self) -> None:
        stored = self._store.read(self._terms.name, self.device)
        if not catch_up(self._learner, self._terms, self._known, stored.speeds, stored.runs):
            self._learner = learned(self._terms, stored, self.device)
        self._known = stored.runs

    def _speeds_now(self) -> tuple[Speed, ...]:
        if self._control is not None:
            return self._control.speeds
        speed = self._meter.speed(self._flight.run, self._flight.stored.speeds)
        return () if speed is None else (speed,)

    def _end(self, outcome: Outcome, why: str) -> None:
        """What has become of the run is known, whatever fails now; nothing more of what the program does counts."""
        self._clocks.call(self._give_back)
        self._harmless.call(self._meter.end)
        if why:
            self.why = why
            self._say(f"run {self.number}: {why}{self._direction(outcome)}")
        self._settle(outcome)

    def _settle(self, outcome: Outcome) -> None:
        """Keep what has become of the run, and how fast it ran."""
        self._outcome, self._kept = outcome, False
        self._try(self._keep)

    def _new_speeds(self) -> tuple[Speed, ...]:
        """How fast it ran, where that was not kept before."""
        before, self._speeds = self._speeds, self._speeds_now()
        return self._speeds if self._speeds != before else ()

    def _give_back(self) -> None:
        """Give the clocks back."""
        problem = None if self._control is None else self._control.end()
        if problem is not None:
            self._say_once(f"settings were reset early: {problem}")

    def _keep(self) -> None:
        self._flight.end(self._outcome, speeds=() if self._harmless.broken else self._speeds_now())
        self._kept = True

    def _direction(self, outcome: Outcome) -> str:
        """Doubts about the direction of the metric."""
        first, last, terms = self._first_metric, self._flight.run.metric, self._terms
        if outcome != "missed" or first is None or last is None or first == last:
            return ""
        if (last > first) == terms.higher_is_better:
            return ""
        went = "rose" if last > first else "fell"
        return (
            f"; its metric {went}, from {first:g} to {last:g}: if that is better, start a new job with "
            f"higher_is_better={not terms.higher_is_better}"
        )

    def _try(self, do: Callable[[], object]) -> None:
        try:
            do()
        except StudyError as error:
            self._unreachable = isinstance(error, StudyUnreachableError)
            self._say_once(f"{error}; training continues")

    def _say(self, line: str) -> None:
        say(self._terms.name, line)

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._say(line)

    def leave(self, error: BaseException | None) -> None:
        """The program leaves the context, with an error or none."""
        for do in (partial(self._conclude, error), self._give_back, self._meter.end, self._flight.abandon):
            try:
                do()
            except Exception as fault:  # the rest is done all the same
                self._harmless.fail(fault)

    def _conclude(self, error: BaseException | None) -> None:
        fits = error is None or not out_of_memory(error)
        if self._outcome == "running" and self._harmless.broken and fits:
            self._end("failed", "")  # what was counted is not the whole run
        elif self._outcome == "running":
            self._close(error)
        elif not self._kept:
            self._try(self._keep)  # once more
        if not self._kept and self._unreachable:
            self._post()

    def _post(self) -> None:
        """Keep the end on this machine: the study's server does not answer."""
        study = str(self._store.study)
        try:
            path = self._flight.post(study, speeds=() if self._harmless.broken else self._speeds_now())
        except BadInputError as error:
            self._say(f"what became of the run is lost: {error}")
            return
        self._say(
            f"what became of the run is kept in {path}; the next run of a job of this study on this machine stores it, or "
            "wastenot job list --study ..."
        )

    def _close(self, error: BaseException | None) -> None:
        """The program leaves before it is known what becomes of the run."""
        terms, run = self._terms, self._flight.run
        if error is None and terms.target is None:
            if run.epochs == 0:
                self._meter.epoch()
                self._flight.count()  # the whole run stands for one epoch
            self._end("reached", "")
        elif error is None and run.epochs == 0:
            self._end("failed", "it reported no epochs, so nothing is learned from it: call run.epoch(metric) after each")
        elif error is None:
            self._end("missed", f"the program ended after {run.epochs} epochs without reaching the target")
        elif out_of_memory(error):
            size, device = self.batch_size, self.device
            why = f"batch size {size} does not fit into the memory of {device}; it and larger ones are not tried there again"
            why += f", unless you say so: wastenot job show {shlex.quote(terms.name)} --study ... --retry-memory"
            error.add_note(f"wastenot: job '{terms.name}': {why}")
            self._end("no memory", why)
        else:
            self._end("failed" if isinstance(error, Exception) else "lost", "")


def learned(terms: JobTerms, stored: StoredJob, device: str) -> Learner:
    """What decides for a device, with all that is known."""
    learner = Learner(terms, device)
    recall(learner, terms, stored.speeds, stored.runs)
    return learner


def reached(metric: float, terms: JobTerms) -> bool:
    """Whether a metric is at the target or beyond."""
    assert terms.target is not None
    return metric >= terms.target if terms.higher_is_better else metric <= terms.target


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that something did not fit into memory."""
    kinds = {each.__name__ for each in type(error).__mro__}
    return bool(kinds & {"OutOfMemoryError", "MemoryError"}) or (
        isinstance(error, Exception) and any(words in str(error).lower() for words in _OUT_OF_MEMORY)
    )


def say(name: str, line: str) -> None:
    """A line for whoever reads the program's output."""
    print(f"wastenot: job '{name}': {line}", file=sys.stderr, flush=True)
