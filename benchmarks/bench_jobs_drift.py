"""A job whose best batch size changes by a factor of four: how soon the choice follows, and what watching for it costs.

    recurrence   1 …            change          + 10 … + 14
                 learned        │ followed?     │ most of these run what costs within 5 % of the new best

Jobs are made up, from seeds that shaped nothing, and the real ones of Zeus' artifact where these are at hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.verdict import Verdict
from benchmarks.zeus_jobs import TRACES, read_jobs
from wastenot.jobs.judge.changes import best_moved
from wastenot.jobs.judge.made import made_jobs
from wastenot.jobs.judge.simulate import Recurrences, simulate
from wastenot.jobs.judge.trace import JobTrace
from wastenot.jobs.plan.decision import Policy
from wastenot.jobs.plan.learner import Learner

JUDGES = range(7_000, 7_002)
"""Seeds of made-up jobs that shaped nothing."""

_WITHIN = 10  # recurrences after the change
_SEEN = 5  # recurrences after these, most of which are to have the new choice
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


def followed(made: Recurrences, after: JobTrace, at: int, *, close: float = _CLOSE) -> bool:
    """Whether most recurrences from ten after the change begin with a batch size that costs close to the best."""
    costs = after.mean_cost().min(axis=1)
    first: dict[int, int] = {}
    for run, recurrence in zip(made.runs, made.recurrence, strict=True):
        first.setdefault(int(recurrence), run.batch_size)
    chosen = Counter(first[each] for each in range(at + _WITHIN, at + _WITHIN + _SEEN))
    usual = after.terms.batch_sizes.index(chosen.most_common(1)[0][0])
    return bool(costs[usual] <= close * costs.min())


def follows(
    found: list[Change], seeds: range, at: int, policy_of: Callable[[JobTrace], Policy], *, close: float = _CLOSE
) -> tuple[float, float, float]:
    """Fraction that followed, and the mean regret of the twenty recurrences before the change and after it."""
    good, before, after = [], [], []
    for each in found:
        for seed in seeds:
            made = simulate(each.before, policy_of, at + 20, seed, later=(at, each.after))
            good.append(followed(made, each.after, at, close=close))
            before.append(made.regret[at - 1] - made.regret[max(at - 21, 0)])
            after.append(made.regret[-1] - made.regret[at - 1])
    return float(np.mean(good)), float(np.mean(before)), float(np.mean(after))


def learner(trace: JobTrace) -> Policy:
    """The policy that users get."""
    return Learner(trace.terms, trace.device)


def zeus_traces() -> tuple[JobTrace, ...]:
    """Of the jobs of Zeus' artifact, where they are at hand."""
    return tuple(each.trace for each in read_jobs()) if TRACES.is_dir() else ()


def main(verdict: Verdict) -> None:
    """Judge on jobs and seeds that shaped nothing."""
    for name, traces, seeds in (("made-up jobs", made_jobs(JUDGES), range(1)), ("V100 traces", zeus_traces(), range(5))):
        found = changes(traces)
        if not found:
            continue
        for at in (20, 60):
            share, before, after = follows(found, seeds, at, learner)
            verdict.at_least(f"followed a change after {at} recurrences, {name} ({len(found)} changes)", share, 0.9)
            print(f"         regret of 20 recurrences: {before:.2f} before the change, {after:.2f} after it")
