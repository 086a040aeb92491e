"""Recurrences that overlap: the job comes again before its last run has ended, as on shared clusters.

    arrivals   ↓      ↓ ↓              ↓
    run 1      ━━━━━━━━━━━┥ stopped
    run 2             ━━━━━━━━━━━━━┥
    run 3               ━━━━━━━━┥
    run 4                 ━━━━━━━━━━━━━┥   again for the first recurrence, as soon as its first run had failed
    run 5                              ━━━━━━━━━━┥

What a run teaches is known when it ends. Gaps between arrivals and the sizes of runs have heavy tails, as in the traces of
Alibaba's GPU clusters (Weng et al., "MLaaS in the Wild", NSDI 2022): both are lognormal, drawn from a seed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.jobs.judge.one_run import SimulatedRun
from wastenot.jobs.judge.simulate import MOST_TRIES, Recurrences, pace_of
from wastenot.jobs.judge.trace import JobTrace
from wastenot.jobs.model.objective import cost
from wastenot.jobs.plan.decision import Policy
from wastenot.jobs.tables.records import JobRun

_GAP_SPREAD = 1.5  # standard deviation of logarithms: one gap in twenty is over ten times the median
_SIZE_SPREAD = 0.5


@dataclass(frozen=True, slots=True)
class Arrival:
    """The job comes.

    Attributes:
        at_s: when.
        slower: times as long as in the trace that each epoch lasts this time, such as on a busy machine; it delays what
            runs teach and is not counted as cost.
    """

    at_s: float
    slower: float


def arrivals(trace: JobTrace, count: int, seed: int, *, load: float = 2.0) -> tuple[Arrival, ...]:
    """When a job comes.

    Args:
        trace: of the job.
        count: how often it comes.
        seed: of what is drawn.
        load: runs that would be in flight on average, were all of them runs of the best pair.
    """
    rng = np.random.default_rng((seed, 3))
    gaps = np.exp(_GAP_SPREAD * rng.standard_normal(count) - _GAP_SPREAD**2 / 2.0) * best_run_s(trace) / load
    slower = np.exp(_SIZE_SPREAD * rng.standard_normal(count) - _SIZE_SPREAD**2 / 2.0)
    at_s = np.cumsum(gaps) - gaps[0]
    return tuple(Arrival(float(at), float(each)) for at, each in zip(at_s, slower, strict=True))


def best_run_s(trace: JobTrace) -> float:
    """How long a mean run of the best pair lasts, including those that fail before it."""
    at = trace.best()
    return float(trace.mean_cost()[at] / trace.epoch_cost()[at] * trace.epoch_time_s[at])


@dataclass(frozen=True, slots=True, eq=False)
class Overlapping:
    """What a policy made of a job whose runs overlap.

    Attributes:
        recurrences: as in :func:`wastenot.jobs.judge.simulate.simulate`; runs in the order in which they ended.
        in_flight: other runs in flight when one began, on average.
    """

    recurrences: Recurrences
    in_flight: float


def simulate_overlapping(
    trace: JobTrace, policy_of: Callable[[JobTrace], Policy], when: Sequence[Arrival], seed: int
) -> Overlapping:
    """Run a job whenever it comes.

    Args:
        trace: that runs are drawn from.
        policy_of: makes the policy of the job.
        when: it comes, in order.
        seed: of what is drawn.
    """
    policy = policy_of(trace)
    drawn = np.random.default_rng((seed, 0))
    pace = pace_of(trace, policy, seed)
    events: list[tuple[float, int, int, SimulatedRun | None]] = []  # time, order, recurrence, run whose epoch ends
    for recurrence, arrival in enumerate(when):
        heapq.heappush(events, (arrival.at_s, len(events), recurrence, None))
    order, flying, others = len(events), 0, []
    tries = [0] * len(when)
    runs: list[JobRun] = []
    index: list[int] = []
    while events:
        now_s, _, recurrence, flown = heapq.heappop(events)
        if flown is not None and not flown.end_epoch():
            flying -= 1
            runs.append(flown.run)
            index.append(recurrence)
            if flown.run.outcome == "reached" or tries[recurrence] >= MOST_TRIES:
                continue
            flown = None
        if flown is None:
            tries[recurrence] += 1
            others.append(flying)
            flying += 1
            size = policy.choose().batch_size
            flown = SimulatedRun(trace, policy, len(others), size, drawn, pace.beside(), started_unix_s=now_s)
        order += 1
        heapq.heappush(events, (now_s + flown.begin_epoch() * when[recurrence].slower, order, recurrence, flown))
    costs = np.array([float(cost(trace.terms, run.time_s, run.energy_j or 0.0)) for run in runs])
    best = np.full(len(when), trace.best_cost())
    made = Recurrences(tuple(runs), np.array(index, dtype=np.float64), costs, best)
    return Overlapping(made, float(np.mean(others)))
