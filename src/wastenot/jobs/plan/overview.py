"""What is known of a job, in one place: its runs and what they cost, its frontier, and what it would run next and why.

Regret is what its runs cost beyond as many runs of the cheapest pair as reached the target: what learning, failures and bad
luck took. It is counted in runs of that pair, by what is known of it now.
"""

from __future__ import annotations

import math
import os
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from wastenot.core.errors import BadInputError
from wastenot.core.origin import Origin
from wastenot.core.result import HasDocument, HasPage
from wastenot.core.setting import AUTO
from wastenot.core.suggest import suggestion
from wastenot.frontiers.algebra import Frontier
from wastenot.jobs.model.frontier import Pair, epochs_to_target, job_frontier, pairs_of, pareto_pairs, setup_of
from wastenot.jobs.model.objective import cost, objective_of
from wastenot.jobs.plan.decision import Decision, Outlook
from wastenot.jobs.plan.learner import Learner
from wastenot.jobs.plan.learning_cost import FIRST_RUNS, learning_forecast
from wastenot.jobs.plan.remembered import fitting_terms, in_vain, recall
from wastenot.jobs.tables.records import JobRun, JobTerms
from wastenot.jobs.tables.store import JobStore, StoredJob
from wastenot.study.store import Study, open_study

_SIMULATED = re.compile(r"(?:^|[×+] |\()sim:")  # GPUs of a label such as "4 × sim:h200", or "2 × (sim:h200)"


@dataclass(frozen=True, slots=True)
class RunInHistory:
    """A run and what it cost.

    Attributes:
        run: the run.
        why: its batch size was chosen.
        cost: of it so far; ``None`` where its energy is not known and counts.
        regret: of all runs up to this one, in runs of the cheapest pair; ``None`` before that is known.
    """

    run: JobRun
    why: str
    cost: float | None
    regret: float | None


@dataclass(frozen=True, slots=True)
class AgainstDefault:
    """What runs cost, beside what the default batch size at the default setting would have cost.

    Attributes:
        reached: how many runs that reached the target are compared: those of which it is known.
        cost: of a run of the default pair that reaches the target, with what its failures take.
        ratio: cost of all runs, as a fraction of the default pair's for as often as the target was reached.
        time_ratio: likewise of their time.
        energy_ratio: likewise of their energy; ``None`` where nothing measures it.
    """

    reached: int
    cost: float
    ratio: float
    time_ratio: float
    energy_ratio: float | None


@dataclass(frozen=True, slots=True)
class LearningPrice:
    """What learning costs beyond running the default each time, in runs of the default.

    Attributes:
        so_far: below 0 where cheaper batch sizes have saved more.
        expected: the most that it comes to at any time in the first ten runs, as expected; ``None`` after these.
        high: likewise, as it is not exceeded with 90 %.
    """

    so_far: float
    expected: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class JobOverview(HasDocument, HasPage):
    """What is known of a job on a device.

    Attributes:
        terms: of the job there.
        device: its label.
        origin: of the numbers.
        devices: that it has run on, the latest first.
        history: its runs on the device, in the order in which they began.
        elsewhere: how many runs it had on other devices.
        pairs: of a batch size and a setting, as far as they were measured.
        pareto: of those that have reached the target, the ones that no other beats in both time and energy, the fastest
            first.
        cheapest: of the pairs that have reached the target; ``None`` before.
        default: pair of the default batch size and the default setting; ``None`` where it was not measured.
        against_default: what was saved by not always running it; ``None`` before that is known.
        total_cost: of all runs that have ended.
        next: what would be decided for a run that began now; ``None`` where no batch size may be chosen.
        next_pair: the pair that this comes to; ``None`` where its speed is not known.
        changed_at: numbers of the runs with which the job's data turned out to have changed.
        no_memory: the least batch size that did not fit into the device's memory.
        learning: what learning costs; ``None`` before the default has reached the target.
        notes: what to know besides.
    """

    drawn_by: ClassVar[str] = "wastenot.jobs.page.page:job_page"
    told_by: ClassVar[str] = "wastenot.jobs.documents:job_document"

    terms: JobTerms
    device: str
    origin: Origin
    devices: tuple[str, ...]
    history: tuple[RunInHistory, ...]
    elsewhere: int
    pairs: tuple[Pair, ...]
    pareto: tuple[Pair, ...]
    cheapest: Pair | None
    default: Pair | None
    against_default: AgainstDefault | None
    total_cost: float
    next: Decision | None
    next_pair: Pair | None
    changed_at: tuple[int, ...]
    no_memory: int | None
    learning: LearningPrice | None = None
    notes: tuple[str, ...] = ()

    @property
    def reached(self) -> int:
        """How many runs have reached the target."""
        return sum(each.run.outcome == "reached" for each in self.history)

    @property
    def known(self) -> tuple[Pair, ...]:
        """Pairs of batch sizes that have reached the target, and fit into memory."""
        fits = math.inf if self.no_memory is None else self.no_memory
        return tuple(pair for pair in self.pairs if not pair.forecast and pair.batch_size < fits)

    def frontier(self) -> Frontier:
        """Every way of reaching the target that is known, labelled with its pair.

        Raises:
            BadInputError: no pair has reached the target yet, or nothing measures energy.
        """
        return job_frontier(self.known)

    @property
    def regret(self) -> float | None:
        """Of all runs that have ended, in runs of the cheapest pair; ``None`` before that is known."""
        return next((each.regret for each in reversed(self.history) if each.run.outcome != "running"), None)

    @property
    def outlook(self) -> tuple[Outlook, ...]:
        """What is expected of each batch size."""
        return () if self.next is None else self.next.outlook


def job_overview(study: str | os.PathLike[str] | Study, name: str, *, device: str | None = None) -> JobOverview:
    """What a study knows of a recurring training job.

        >>> overview = job_overview("jobs.db", "bert-nightly")  # doctest: +SKIP
        >>> overview.frontier().least_energy(within_s=7200.0).choices  # doctest: +SKIP

    Args:
        study: that its runs are kept in.
        name: of the job.
        device: label of the device; by default the one that it ran on last.

    Raises:
        BadInputError: there is no such job, or it has not run on the device.
        StudyError: the study cannot be read.
    """
    store = JobStore(open_study(study))
    stored = store.read(name, device)
    if device is not None and stored.device != device:
        raise BadInputError(f"`device` {device}: the job has not run there; {suggestion(device, stored.devices)}")
    return overview_of(stored)


def overview_of(stored: StoredJob, *, origin: Origin | None = None) -> JobOverview:
    """What is known of a job.

    Args:
        stored: as :meth:`wastenot.jobs.tables.store.JobStore.read` gives it.
        origin: of its numbers; by default as its device says.
    """
    terms, device = stored.terms, stored.device
    why = stored.why or ("",) * len(stored.runs)
    here = [(run, because) for run, because in zip(stored.runs, why, strict=True) if run.device == device]
    notes: list[str] = []
    decision: Decision | None = None
    changed_at: tuple[int, ...] = ()
    learning: LearningPrice | None = None
    try:
        decision, changed_at, learning = _next(stored)
    except BadInputError as error:
        notes.append(str(error).replace("`batch_sizes`: ", "batch sizes: "))
    hopeless = in_vain(terms, stored.runs)
    notes += [] if hopeless is None else [hopeless.replace("`", "")]
    stretches = _stretches(stored.runs, changed_at)
    forecast = {} if decision is None else {each.batch_size: each.epochs for each in decision.outlook}
    too_large = min((run.batch_size for run, _ in here if run.outcome == "no memory"), default=None)
    setup = setup_of((run for run, _ in here), stored.speeds, device)
    by_stretch = [pairs_of(stored.speeds, device, epochs_to_target(runs), setup=setup) for runs in stretches]
    pairs = pairs_of(stored.speeds, device, epochs_to_target(stretches[-1]), forecast, setup)
    known = [pair for pair in by_stretch[-1] if too_large is None or pair.batch_size < too_large]
    cheapest = min(known, key=lambda pair: pair.cost(terms), default=None)
    if changed_at:
        notes.append(
            f"the number of epochs needed has changed since run {changed_at[-1]:,}: runs before it say little about the "
            f"next ones"
        )
    costs = [_cost(terms, run) for run, _ in here]
    if any(each is None for each in costs):
        notes.append("the energy of some runs is unknown, and so is their cost")
    best = [min((pair.cost(terms) for pair in each), default=None) for each in by_stretch]
    since = [bisect_right(changed_at, run.number) for run, _ in here]
    regret = _regrets([run for run, _ in here], costs, [best[each] for each in since])
    history = tuple(RunInHistory(run, why, *rest) for (run, why), *rest in zip(here, costs, regret, strict=True))
    return JobOverview(
        terms=terms,
        device=device,
        origin=origin or ("simulated" if _SIMULATED.search(device) else "measured"),
        devices=stored.devices,
        history=history,
        elsewhere=len(stored.runs) - len(here),
        pairs=pairs,
        pareto=pareto_pairs(known),
        cheapest=cheapest,
        default=_usual_pair(pairs, terms),
        against_default=_against(terms, history, [_usual_pair(by_stretch[each], terms) for each in since]),
        changed_at=changed_at,
        total_cost=sum(each.cost for each in history if each.cost is not None and each.run.outcome != "running"),
        next=decision,
        next_pair=None if decision is None else _cheapest_of(pairs, terms, decision.batch_size),
        no_memory=too_large,
        learning=learning,
        notes=tuple(notes),
    )


def _next(stored: StoredJob) -> tuple[Decision, tuple[int, ...], LearningPrice | None]:
    """What the product decides, by what it knows; since which runs the job's data have changed; what learning costs.

    Raises:
        BadInputError: no batch size fits into the device's memory.
    """
    terms = fitting_terms(stored.terms, stored.runs, stored.device)
    learner = Learner(terms, stored.device)
    recall(learner, terms, stored.speeds, stored.runs)
    return learner.choose(), learner.changed_at, _learning(learner, len(stored.runs))


def _learning(learner: Learner, runs: int) -> LearningPrice | None:
    so_far = learner.learning.spent
    if not math.isfinite(learner.learning.of_default):
        return None
    bounded = learner.terms.within_s is not None or learner.terms.power_budget_w is not None
    if runs >= FIRST_RUNS or bounded or len(learner.terms.batch_sizes) == 1:
        return LearningPrice(so_far)
    return LearningPrice(so_far, *learning_forecast(learner, FIRST_RUNS - runs))


def _cost(terms: JobTerms, run: JobRun) -> float | None:
    if run.energy_j is None and objective_of(terms).needs_energy(terms):
        return None if run.time_s > 0.0 else 0.0
    return float(cost(terms, run.time_s, run.energy_j or 0.0)) if run.time_s > 0.0 else 0.0


def _stretches(runs: Sequence[JobRun], changed_at: Sequence[int]) -> list[list[JobRun]]:
    """Runs between changes of the job's data."""
    found: list[list[JobRun]] = [[] for _ in range(len(changed_at) + 1)]
    for run in runs:
        found[bisect_right(changed_at, run.number)].append(run)
    return found


def _regrets(runs: Sequence[JobRun], costs: Sequence[float | None], best: Sequence[float | None]) -> list[float | None]:
    """Cumulative regret, given the cost of the cheapest pair at each run; from the first run at which that is known."""
    if any(each is None for each in costs) or not any(best):
        return [None] * len(runs)
    first = next(each for each in best if each)
    total, found = 0.0, []
    for run, each, least in zip(runs, costs, best, strict=True):
        first = least or first  # until a run has reached the target after a change, what was known before stands for it
        if run.outcome != "running":
            total += (each or 0.0) / first - (run.outcome == "reached")
        found.append(total)
    return list(found)


def _usual_pair(pairs: Sequence[Pair], terms: JobTerms) -> Pair | None:
    """The default batch size at the setting that its user would run it at."""
    of_size = {pair.setting: pair for pair in pairs if pair.batch_size == terms.default}
    usual = (AUTO, *terms.settings[:1])
    return next((of_size[setting] for setting in usual if setting in of_size), None)


def _cheapest_of(pairs: Sequence[Pair], terms: JobTerms, batch_size: int) -> Pair | None:
    return min((pair for pair in pairs if pair.batch_size == batch_size), key=lambda pair: pair.cost(terms), default=None)


def _against(terms: JobTerms, history: Sequence[RunInHistory], defaults: Sequence[Pair | None]) -> AgainstDefault | None:
    """What the runs that have ended cost, beside the default pair as it was known at each."""
    ended = [
        (each, default)
        for each, default in zip(history, defaults, strict=True)
        if default is not None and each.run.outcome != "running"
    ]
    costs = [each.cost for each, _ in ended if each.cost is not None]
    reached = [default for each, default in ended if each.run.outcome == "reached"]
    if not reached or len(costs) < len(ended):
        return None
    energies = [each.run.energy_j for each, _ in ended if each.run.energy_j is not None]
    of_default = [default.energy_j for default in reached if default.energy_j is not None]
    known = len(energies) == len(ended) and len(of_default) == len(reached)
    return AgainstDefault(
        len(reached),
        sum(default.cost(terms) for default in reached) / len(reached),
        sum(costs) / sum(default.cost(terms) for default in reached),
        sum(each.run.time_s for each, _ in ended) / sum(default.time_s for default in reached),
        sum(energies) / sum(of_default) if known else None,
    )
