"""One job after another, as a policy decides, on a trace: what each recurrence costs until the target is reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.jobs.judge.one_run import Pace, SimulatedRun
from wastenot.jobs.judge.policies import HeldPace, HoldsSetting
from wastenot.jobs.judge.slices import SlicedRuns
from wastenot.jobs.judge.trace import JobTrace
from wastenot.jobs.model.objective import cost
from wastenot.jobs.plan.decision import Policy
from wastenot.jobs.tables.records import JobRun

MOST_TRIES = 20
"""Runs of one recurrence, after which its target counts as out of reach (as Zeus' simulator has it)."""


@dataclass(frozen=True, slots=True, eq=False)
class Recurrences:
    """What a policy made of a job.

    Attributes:
        runs: all of them, in order.
        recurrence: of each run, from 0; shape (runs,).
        costs: of each run; shape (runs,).
        best_cost: mean cost of a run of the best pair at each recurrence; shape (recurrences,).
    """

    runs: tuple[JobRun, ...]
    recurrence: FloatArray
    costs: FloatArray
    best_cost: FloatArray

    @property
    def regret(self) -> FloatArray:
        """Cumulative regret after each recurrence, in runs of the best pair; shape (recurrences,)."""
        spent = np.bincount(self.recurrence.astype(int), weights=self.costs)
        return np.cumsum(spent / self.best_cost - 1.0)


def simulate(
    trace: JobTrace,
    policy_of: Callable[[JobTrace], Policy],
    recurrences: int,
    seed: int,
    *,
    later: tuple[int, JobTrace] | None = None,
) -> Recurrences:
    """Run a job again and again, one run after another; a run that does not reach the target is followed by another.

    Args:
        trace: that runs are drawn from.
        policy_of: makes the policy of the job.
        recurrences: how often the job comes.
        seed: of what is drawn.
        later: a recurrence from which on the job needs the epochs of another trace, on the same device.
    """
    policy = policy_of(trace)
    changes, changed = (recurrences, trace) if later is None else later
    drawn = np.random.default_rng((seed, 0))
    runs: list[JobRun] = []
    index: list[int] = []
    costs: list[float] = []
    pace = pace_of(trace, policy, seed)
    for recurrence in range(recurrences):
        now = changed if recurrence >= changes else trace
        for _ in range(MOST_TRIES):
            size = policy.choose().batch_size
            run = SimulatedRun(now, policy, len(runs) + 1, size, drawn, pace).to_its_end()
            runs.append(run)
            index.append(recurrence)
            assert run.energy_j is not None
            costs.append(float(cost(trace.terms, run.time_s, run.energy_j)))
            if run.outcome == "reached":
                break
    best = np.where(np.arange(recurrences) < changes, trace.best_cost(), changed.best_cost())
    return Recurrences(tuple(runs), np.array(index, dtype=np.float64), np.array(costs), best)


def pace_of(trace: JobTrace, policy: Policy, seed: int) -> Pace:
    """How fast a policy's runs train: at the setting that it holds, or at those that slices of its runs tell."""
    if isinstance(policy, HoldsSetting):
        return HeldPace(trace, policy)
    return SlicedRuns(trace, policy.measured, np.random.default_rng((seed, 2)))
