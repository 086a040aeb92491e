"""A job that changes: its best batch size by a factor of four, or the GPU that it runs on.

    recurrence   1 …            change          + 10 … + 14
                 learned        │ followed?     │ most of these run what costs within 10 % of the new best

The other GPU has other times, powers and limits, none of which is known; the epochs that batch sizes need carry over. Regret
there is beside that of a job which nothing is known of.

Jobs are made up, from seeds that shaped nothing, and the real ones of Zeus' artifact where these are at hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.verdict import Verdict
from benchmarks.zeus_jobs import TRACES, read_jobs
from testbed.job_changes import best_moved, on_another_device
from wastenot.core.arrays import BoolArray
from wastenot.jobs.judge.made import made_jobs
from wastenot.jobs.judge.simulate import Recurrences, simulate
from wastenot.jobs.judge.trace import JobTrace
from wastenot.jobs.plan.decision import Policy
from wastenot.jobs.plan.learner import Learner
from wastenot.jobs.plan.remembered import recall
from wastenot.jobs.tables.records import JobRun, Speed

JUDGES, MOVED = range(8_300, 8_302), range(8_100, 8_102)
"""Seeds of made-up jobs that shaped nothing: whose best batch size changes, and that come to another GPU."""

_WITHIN = 10  # recurrences after the change
_SEEN = 5  # recurrences after these, most of which are to have the new choice
_MANY = 1_000_000  # epochs, where no bound is given
_CLOSE, _WORSE = 1.1, 1.25  # times the cost of the new best: counts as having followed, and what was best costs at least


@dataclass(frozen=True, slots=True)
class Change:
    """A job, and what it becomes."""

    before: JobTrace
    after: JobTrace


def changes(traces: tuple[JobTrace, ...]) -> list[Change]:
    """Of the best batch size by a factor of four, up and down, with as many epochs and with more, where jobs have room."""
    found = []
    for trace in traces:
        for factor in (4.0, 0.25):
            for harder in (1.0, 1.5):
                after = best_moved(trace, factor, worse=_WORSE, harder=harder)
                if after is not None:
                    found.append(Change(trace, after))
    return found


def followed(made: Recurrences, after: JobTrace, at: int) -> bool:
    """Whether most recurrences from ten after the change begin with a batch size that costs close to the best."""
    costs = after.mean_cost().min(axis=1)
    first: dict[int, int] = {}
    for run, recurrence in zip(made.runs, made.recurrence, strict=True):
        first.setdefault(int(recurrence), run.batch_size)
    chosen = Counter(first[each] for each in range(at + _WITHIN, at + _WITHIN + _SEEN))
    usual = after.terms.batch_sizes.index(chosen.most_common(1)[0][0])
    return bool(costs[usual] <= _CLOSE * costs.min())


def shows(change: Change) -> bool:
    """Whether runs of the batch size that was best need other epochs than before, by a standard deviation or more."""
    place, _ = change.before.best()
    size, most = change.before.terms.batch_sizes[place], 2.0 * (change.before.terms.max_epochs or _MANY)
    before, after = (np.log(np.minimum(each.epochs[size], most)) for each in (change.before, change.after))
    rounding = 0.29 / np.exp(before.mean())
    return bool(abs(after.mean() - before.mean()) >= max(before.std(), rounding))


def follows(
    found: list[Change], seeds: range, at: int, policy_of: Callable[[JobTrace], Policy]
) -> tuple[BoolArray, float, float]:
    """Which followed, shape (changes, seeds); mean regret of the twenty recurrences before the change, and after it."""
    good, before, after = [], [], []
    for each in found:
        for seed in seeds:
            made = simulate(each.before, policy_of, at + 20, seed, later=(at, each.after))
            good.append(followed(made, each.after, at))
            before.append(made.regret[at - 1] - made.regret[max(at - 21, 0)])
            after.append(made.regret[-1] - made.regret[at - 1])
    return np.reshape(good, (len(found), len(seeds))), float(np.mean(before)), float(np.mean(after))


def learner(trace: JobTrace) -> Policy:
    """The policy that users get."""
    return Learner(trace.terms, trace.device)


def zeus_traces() -> tuple[JobTrace, ...]:
    """Of the jobs of Zeus' artifact, where they are at hand."""
    return tuple(each.trace for each in read_jobs()) if TRACES.is_dir() else ()


def drift(verdict: Verdict) -> None:
    """Whether the choice follows."""
    for name, traces, seeds in (("made-up jobs", made_jobs(JUDGES), range(1)), ("V100 traces", zeus_traces(), range(5))):
        found = changes(traces)
        if not found:
            continue
        seen = np.array([shows(each) for each in found])
        for at in (20, 60):
            good, before, after = follows(found, seeds, at, learner)
            share = float(good.mean())
            verdict.at_least(f"followed a change after {at} recurrences, {name} ({len(found)} changes)", share, 0.9)
            print(f"         {good[seen].mean():.3f} of the {seen.sum()} that show in the epochs of the best before them")
            print(f"         regret of 20 recurrences: {before:.2f} before the change, {after:.2f} after it")


class Recorded(Learner):
    """The policy that users get, with what it was told."""

    def __init__(self, trace: JobTrace) -> None:
        super().__init__(trace.terms, trace.device)
        self.speeds: list[Speed] = []
        self.runs: list[JobRun] = []

    def measured(self, speed: Speed) -> None:
        """Take note of how fast the job runs at a batch size and setting."""
        self.speeds.append(speed)
        super().measured(speed)

    def ended(self, run: JobRun) -> None:
        """Take note of what became of a run."""
        self.runs.append(run)
        super().ended(run)


def recurrences(trace: JobTrace) -> int:
    """Twice the pairs of batch size and setting, as Zeus' simulation has it, but not so many that only time is lost."""
    return min(2 * trace.epoch_time_s.size, 120)


def regrets(trace: JobTrace, seed: int) -> tuple[float, float]:
    """Regret on another GPU of a job that was known on a first, and of one that was not."""
    known = Recorded(trace)
    simulate(trace, lambda _: known, recurrences(trace), seed)
    moved = on_another_device(trace, seed)

    def warm(there: JobTrace) -> Policy:
        return recall(Learner(there.terms, there.device), there.terms, known.speeds, known.runs)

    def cold(there: JobTrace) -> Policy:
        return Learner(there.terms, there.device)

    return tuple(float(simulate(moved, each, recurrences(moved), seed + 1).regret[-1]) for each in (warm, cold))  # type: ignore[return-value]


def moves(verdict: Verdict) -> None:
    """What knowing a job on one GPU is worth on another."""
    for name, traces, seeds in (("made-up jobs", made_jobs(MOVED), range(1)), ("V100 traces", zeus_traces(), range(10))):
        table = np.array([[regrets(trace, 9_000 + seed) for seed in seeds] for trace in traces])
        if table.size == 0:
            continue
        warm, cold = table.mean(axis=(0, 1))
        for trace, (mine, theirs) in zip(traces, table.mean(axis=1), strict=True):
            print(f"         {trace.terms.name}: {mine:.2f} warm, {theirs:.2f} cold")
        verdict.at_most(f"regret of a warm start by that of a cold one, {name}", float(warm / cold), 0.25)


def main(verdict: Verdict) -> None:
    """Judge both on jobs and seeds that shaped nothing."""
    drift(verdict)
    moves(verdict)
