"""A job known on one GPU and moved to another: its regret there beside that of a job which nothing is known of.

The other GPU has other times, powers and limits, none of which is known; the epochs that batch sizes need carry over. Jobs
are made up, from seeds that shaped nothing, and the real ones of Zeus' artifact where these are at hand.
"""

from __future__ import annotations

import numpy as np

from benchmarks.bench_jobs_drift import zeus_traces
from benchmarks.verdict import Verdict
from wastenot.jobs.judge.changes import on_another_device
from wastenot.jobs.judge.made import made_jobs
from wastenot.jobs.judge.simulate import simulate
from wastenot.jobs.judge.trace import JobTrace
from wastenot.jobs.plan.decision import Policy, replay
from wastenot.jobs.plan.learner import Learner
from wastenot.jobs.tables.records import JobRun, Speed

JUDGES = range(8_000, 8_002)
"""Seeds of made-up jobs that shaped nothing."""


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
        return replay(Learner(there.terms, there.device), known.speeds, known.runs)

    def cold(there: JobTrace) -> Policy:
        return Learner(there.terms, there.device)

    return tuple(float(simulate(moved, each, recurrences(moved), seed + 1).regret[-1]) for each in (warm, cold))  # type: ignore[return-value]


def main(verdict: Verdict) -> None:
    """Judge on jobs and seeds that shaped nothing."""
    for name, traces, seeds in (("made-up jobs", made_jobs(JUDGES), range(1)), ("V100 traces", zeus_traces(), range(10))):
        table = np.array([[regrets(trace, 9_000 + seed) for seed in seeds] for trace in traces])
        if table.size == 0:
            continue
        warm, cold = table.mean(axis=(0, 1))
        for trace, (mine, theirs) in zip(traces, table.mean(axis=1), strict=True):
            print(f"         {trace.terms.name}: {mine:.2f} warm, {theirs:.2f} cold")
        verdict.at_most(f"regret of a warm start by that of a cold one, {name}", float(warm / cold), 0.25)
