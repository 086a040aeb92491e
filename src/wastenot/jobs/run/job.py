"""``with wn.job("bert-nightly", ...) as run:`` — a training run whose batch size was learned from those before it.

    with wn.job("bert-nightly", study="jobs.db", batch_sizes=[32, 64, 128], default=64, target=0.84) as run:
        train = loader(batch_size=run.batch_size)
        for _ in range(100):
            train_epoch(train)
            if not run.epoch(accuracy()):
                break

What each run cost is kept in the study, where the next one finds it, on whatever machine it runs. Nothing that fails here
after the beginning ends the program: a study that cannot be written costs a line on standard error, and a server that does
not answer for some minutes delays a run and loses none.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import index
from pathlib import Path
from types import TracebackType
from typing import Any

from wastenot.core.errors import BadInputError, DeviceError, StudyError, StudyUnreachableError
from wastenot.jobs.plan.decision import Decision
from wastenot.jobs.plan.remembered import catch_up, fitting_terms, in_vain
from wastenot.jobs.run.control import JobControl, Knobs, Settings, knobs_of
from wastenot.jobs.run.following_run import FollowingRun
from wastenot.jobs.run.meter import JobMeter
from wastenot.jobs.run.outages import through_outage
from wastenot.jobs.run.place import no_energy, place_of, terms_at
from wastenot.jobs.run.seats import Seats, seats_of_this_process
from wastenot.jobs.run.training_run import TrainingRun, learned, say
from wastenot.jobs.tables.records import JobTerms, LearningRateScaling
from wastenot.jobs.tables.run_in_flight import RunInFlight
from wastenot.jobs.tables.store import JobStore, StoredJob
from wastenot.jobs.tables.terms import check_terms
from wastenot.study.store import Study, open_study

_PATIENCE_S = 60.0
"""How long a run waits for others who are writing to the study."""
_SCALINGS = ("square root", "linear", "none")


@dataclass(frozen=True, slots=True)
class JobGoal:
    """What is minimised, over the runs of a job.

    Attributes:
        eta: weight of energy against time, from 0 (time alone) to 1 (energy alone); by default 0.5, or 0 where no energy is
            measured; a weight below 1 is then 0 as well, and a line says so.
        within_s: least energy of runs that take at most so long, in place of the weighted cost.
        power_budget_w: least time of runs whose mean power is at most this, in place of the weighted cost.
    """

    eta: float | None = None
    within_s: float | None = None
    power_budget_w: float | None = None


class job:  # noqa: N801 - reads as a verb, as apply does
    """Run a recurring training job, with a batch size learned from its runs so far.

        >>> import wastenot as wn
        >>> with wn.job("bert-nightly", study="jobs.db", batch_sizes=[32, 64, 128], default=64) as run:  # doctest: +SKIP
        ...     train(batch_size=run.batch_size)

    Args:
        name: of the job; the same each time it comes back.
        study: where its runs are kept: a file, made where there is none, or a database URL, which several machines may use.
        batch_sizes: to choose among.
        default: the one that it runs with today, which is tried first.
        target: value of the metric that a run is to reach; by default the program decides, and leaving the context says so.
        higher_is_better: whether the metric rises towards the target.
        max_epochs: after which a run has missed the target.
        goal: the weight of energy against time, or a bound on one of them; by default both count alike.
        device: ``cpu``, or GPUs such as ``nvidia:0`` or ``("nvidia:0", "nvidia:1")``; by default what PyTorch uses, if the
            program has imported it, else the CPU.
        settings: what may be set besides: the GPU's power limits, its clocks, none, or these.
        learning_budget: what learning may cost beyond always running the default, in runs of it; by default as given
            before, at first without a bound, to which ``math.inf`` returns.
        learning_rate_scaling: how :meth:`TrainingRun.learning_rate` follows the batch size.

    Raises:
        BadInputError: the terms make no sense, are another job's, or no batch size fits into memory.
        StudyError: the study cannot be written.
        DeviceError: a GPU does not respond.
    """

    def __init__(
        self,
        name: str,
        *,
        study: str | os.PathLike[str] | Study,
        batch_sizes: Sequence[int],
        default: int,
        target: float | None = None,
        higher_is_better: bool = True,
        max_epochs: int | None = None,
        goal: JobGoal | None = None,
        device: str | Sequence[str] | None = None,
        settings: Settings = "limits",
        learning_budget: float | None = None,
        learning_rate_scaling: LearningRateScaling = "none",
    ) -> None:
        if learning_rate_scaling not in _SCALINGS:
            raise BadInputError(
                f"`learning_rate_scaling` {learning_rate_scaling!r}: must be {', '.join(map(repr, _SCALINGS[:-1]))} or "
                f"{_SCALINGS[-1]!r}"
            )
        if isinstance(batch_sizes, str) or not isinstance(batch_sizes, Iterable):
            raise BadInputError(f"`batch_sizes` {batch_sizes!r}: must be a list of whole numbers, such as [32, 64, 128]")
        sizes = tuple(sorted(map(_plain, batch_sizes), key=lambda size: (isinstance(size, int), size)))
        goal = goal or JobGoal()
        if not isinstance(goal, JobGoal):
            raise BadInputError(f"`goal` {goal!r}: give wn.JobGoal(eta=...), or with within_s or power_budget_w")
        self._terms = JobTerms(
            name=name,
            batch_sizes=sizes,
            default=_plain(default),
            target=_number(target),
            higher_is_better=higher_is_better,
            max_epochs=max_epochs,
            eta=0.0 if goal.eta is None else goal.eta,
            within_s=goal.within_s,
            power_budget_w=goal.power_budget_w,
            learning_budget=learning_budget,
        )
        self._eta, self._device, self._settings = goal.eta, device, settings
        self._study, self._scaling = study, learning_rate_scaling
        self._run: TrainingRun | FollowingRun | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> TrainingRun | FollowingRun:
        """Begin a run."""
        check_terms(self._terms)
        study = open_study(self._study, create=True, look=False, busy_timeout_s=_PATIENCE_S)
        store, seats = JobStore(study), seats_of_this_process()
        if seats is not None and not seats.first:
            meter = JobMeter(place_of(self._device)) if seats.measures else None
            self._run = FollowingRun(self._terms, store, seats, self._scaling, meter)
            return self._run
        try:
            self._run = self._begin(store, seats)
        except StudyUnreachableError as error:
            if seats is not None:  # the other ranks would not find it elsewhere
                raise
            say(self._terms.name, f"{error}; training begins, and the job learns nothing of this run")
            self._run = self._begin(self._beside(), seats)
        return self._run

    def _beside(self) -> JobStore:
        """A study that nobody keeps, for a run whose own does not answer."""
        self._folder = tempfile.TemporaryDirectory(prefix="wastenot-job-")
        return JobStore(open_study(Path(self._folder.name) / "job.db", create=True))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Keep what became of the run."""
        assert self._run is not None
        self._run.leave(error)
        if self._folder is not None:
            self._folder.cleanup()

    def _begin(self, store: JobStore, seats: Seats | None) -> TrainingRun:
        place = place_of(self._device, machines=1 if seats is None else seats.machines)
        device = place.label
        knobs = knobs_of(place, self._settings)
        terms = terms_at(self._terms, place, self._eta, knobs.settings)
        if self._eta and not place.tells_energy:
            say(terms.name, f"eta={self._eta:g} is 0 here (shortest time): {no_energy(place)}")
        # Others wait while a run begins, so most of what is known is learned before.
        before = through_outage(terms.name, lambda: _known(store, terms.name, device))
        budget = terms.learning_budget
        if budget is None and before is not None:
            budget = before.terms.learning_budget
        terms = replace(terms, learning_budget=None if budget == math.inf else budget)
        made = [] if before is None else [learned(fitting_terms(terms, before.runs, device), before, device)]
        meter = JobMeter(place)

        def choose(stored: StoredJob) -> Decision:
            fitting = fitting_terms(terms, stored.runs, device)
            learner = made[0] if made and before is not None and made[0].terms == fitting else None
            if learner is None or not catch_up(learner, fitting, before.runs, stored.speeds, stored.runs):  # type: ignore[union-attr]
                learner = learned(fitting, stored, device)
            made.append(learner)
            return learner.choose()

        key = None if seats is None else seats.key
        flight = through_outage(terms.name, lambda: store.begin(terms, device, choose, used=meter.used, seats=key))
        learner = made[-1]
        learner.began(flight.run)
        meter.every_epoch = seats is not None
        say(terms.name, f"run {flight.run.number} on {device}: batch size {flight.run.batch_size}, {flight.decision.why}")
        for note in (knobs.note, in_vain(learner.terms, flight.stored.runs)):
            if note is not None:
                say(terms.name, note)
        try:
            control = _controlled(knobs, learner.terms, flight)
        except BaseException:
            flight.abandon()
            raise
        meter.resume()
        return TrainingRun(store, flight, learner, meter, control, self._scaling)


def _known(store: JobStore, name: str, device: str) -> StoredJob | None:
    """All that is known of a job; ``None`` where it has never run."""
    path = store.study.path
    if (path is not None and not path.exists()) or name not in store.names():
        return None
    with suppress(StudyError):
        store.deliver()
    return store.read(name, device)


def _controlled(knobs: Knobs, terms: JobTerms, flight: RunInFlight) -> JobControl | None:
    if not knobs.gpus:
        return None
    run = flight.run
    epochs = next((each.epochs for each in flight.decision.outlook if each.batch_size == run.batch_size), None)
    known = None if epochs is None or not math.isfinite(epochs) else epochs
    try:
        return JobControl(knobs, terms, run.device, run.batch_size, known, flight.stored)
    except DeviceError as error:
        say(terms.name, f"settings are left unchanged: {error}")
        return None


def _number(target: object) -> float | None:
    try:
        return None if target is None else float(target)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise BadInputError(f"`target` {target!r}: must be the value that the metric is to reach") from error


def _plain(size: Any) -> Any:
    """A whole number of whatever kind as Python's own; anything else as it is, to be refused."""
    try:
        return index(size)
    except TypeError:
        return size
