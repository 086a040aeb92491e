"""Policies side by side on traces: what each costs beyond always running the best pair, with the same seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.processes import shared_out
from wastenot.core.progress import Progress
from wastenot.core.setting import Setting
from wastenot.jobs.judge.overlapping import arrivals, simulate_overlapping
from wastenot.jobs.judge.policies import Default, GridSearch, Oracle
from wastenot.jobs.judge.simulate import Recurrences, simulate
from wastenot.jobs.judge.trace import JobTrace
from wastenot.jobs.plan.decision import Policy
from wastenot.jobs.plan.learner import Learner

POLICIES: Mapping[str, Callable[[JobTrace], Policy]] = {
    "default": lambda trace: Default(trace.terms),
    "grid search": lambda trace: GridSearch(trace.terms),
    "wastenot": lambda trace: Learner(trace.terms, trace.device),
    "oracle": Oracle,
}
"""What can be compared, by name."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A batch size at a setting."""

    batch_size: int
    setting: Setting


@dataclass(frozen=True, slots=True, eq=False)
class PolicyResult:
    """What a policy made of a job.

    Attributes:
        policy: its name.
        regret: cumulative, in runs of the best pair, after each recurrence, by seed; shape (seeds, recurrences).
        choice: the pair that it ran most often in the last quarter of the recurrences, over all seeds.
        energy: of a mean run of that pair to the target, as a fraction of the default batch size's at the first setting.
        runs: that it took altogether, by seed.
    """

    policy: str
    regret: FloatArray
    choice: Choice
    energy: float
    runs: tuple[int, ...]

    @property
    def mean(self) -> float:
        """Regret at the end, mean over seeds."""
        return float(self.regret[:, -1].mean())

    @property
    def error(self) -> float:
        """Standard error of that mean; infinite for one seed."""
        last = self.regret[:, -1]
        return float(last.std(ddof=1) / np.sqrt(last.size)) if last.size > 1 else float("inf")


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Policies at one job.

    Attributes:
        trace: of the job.
        recurrences: how often it came.
        best: the pair of least mean cost.
        results: of each policy.
    """

    trace: JobTrace
    recurrences: int
    best: Choice
    results: tuple[PolicyResult, ...]


def usual_recurrences(trace: JobTrace) -> int:
    """Two for every pair of a batch size and a setting, as in the evaluation of Zeus (NSDI 2023, section 6.1)."""
    return 2 * len(trace.terms.batch_sizes) * len(trace.terms.settings)


def summarise(trace: JobTrace, policy: str, made: Sequence[Recurrences]) -> PolicyResult:
    """What a policy made of a job.

    Args:
        trace: of the job.
        policy: its name.
        made: for each seed.
    """
    late: Counter[Choice] = Counter()
    for each in made:
        last_quarter = each.recurrence >= 0.75 * each.best_cost.size
        late.update(
            Choice(run.batch_size, run.setting)
            for run, counts in zip(each.runs, last_quarter.tolist(), strict=True)
            if counts and run.outcome == "reached"
        )
    choice = late.most_common(1)[0][0] if late else Choice(trace.terms.default, trace.terms.settings[0])
    return PolicyResult(
        policy,
        np.array([each.regret for each in made]),
        choice,
        _energy(trace, choice) / _energy(trace, Choice(trace.terms.default, trace.terms.settings[0])),
        tuple(len(each.runs) for each in made),
    )


def best_pair(trace: JobTrace) -> Choice:
    """The pair of least mean cost."""
    row, column = trace.best()
    return Choice(trace.terms.batch_sizes[row], trace.terms.settings[column])


def compare(
    traces: Sequence[JobTrace],
    policies: Sequence[str],
    seeds: Sequence[int],
    *,
    recurrences: int | None = None,
    load: float | None = None,
    processes: int = 1,
    progress: Progress | None = None,
) -> Iterator[Comparison]:
    """Run policies on jobs; one comparison after the other, in the order of the jobs.

    Args:
        traces: of the jobs.
        policies: names of :data:`POLICIES`.
        seeds: each job is run with each.
        recurrences: of each job; by default two for every pair of a batch size and a setting.
        load: runs in flight at a time, on average; by default one run follows the other.
        processes: that share the work.
        progress: told of every simulated policy.
    """
    work = [(place, policy, seed) for place in range(len(traces)) for policy in policies for seed in seeds]
    if progress is not None:
        progress.begin(len(work))
    made: dict[tuple[int, str, int], Recurrences] = {}
    shown = 0
    for key, found in _simulated(traces, work, recurrences, load, processes):
        made[key] = found
        if progress is not None:
            progress.step(f"{traces[key[0]].terms.name}, {key[1]}")
        while shown < len(traces) and all((shown, policy, seed) in made for policy in policies for seed in seeds):
            trace = traces[shown]
            results = [summarise(trace, policy, [made.pop((shown, policy, seed)) for seed in seeds]) for policy in policies]
            yield Comparison(trace, recurrences or usual_recurrences(trace), best_pair(trace), tuple(results))
            shown += 1


def _simulated(
    traces: Sequence[JobTrace],
    work: Sequence[tuple[int, str, int]],
    recurrences: int | None,
    load: float | None,
    processes: int,
) -> Iterator[tuple[tuple[int, str, int], Recurrences]]:
    if processes == 1:
        for place, policy, seed in work:
            yield (place, policy, seed), _one(traces[place], policy, seed, recurrences, load)
        return
    tasks = ((each, (traces[each[0]], *each[1:], recurrences, load)) for each in work)
    yield from shared_out(processes, _one, tasks)


def _one(trace: JobTrace, policy: str, seed: int, recurrences: int | None, load: float | None) -> Recurrences:
    count = recurrences or usual_recurrences(trace)
    if load is None:
        return simulate(trace, POLICIES[policy], count, seed)
    when = arrivals(trace, count, seed, load=load)
    return simulate_overlapping(trace, POLICIES[policy], when, seed).recurrences


def _energy(trace: JobTrace, pair: Choice) -> float:
    row, column = trace.terms.batch_sizes.index(pair.batch_size), trace.terms.settings.index(pair.setting)
    return float(trace.mean_energy_j()[row, column])
