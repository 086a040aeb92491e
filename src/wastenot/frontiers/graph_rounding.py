"""Plans of ways as they are, from a solution of a graph's relaxation.

A beam search follows the relaxation (:mod:`wastenot.frontiers.graph_beam`). A pass over the graph then gives each part the
slowest way that ends by the latest time at which the rest could still go on as before: it starts as early as its earlier
parts let it, so that time that one of them could not use is handed on. Last, stretches of the plan are searched again.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from wastenot.arrays import FloatArray, IndexArray
from wastenot.frontiers.graph_beam import Guide, Target, searched
from wastenot.frontiers.graph_relaxation import GraphProblem, Relaxed

_MOST_PASSES = 20
_STRETCH = 64  # parts of a stretch
_BETTER = 1e-12
_STALE = 10  # sweeps that gain nothing, after which the search stops
_WORTHWHILE = 1e-3  # of the gap


def planned(problem: GraphProblem, relaxed: Relaxed, seconds: float, tolerance: float) -> IndexArray:
    """A way of each part, in time: positions in the rows of the table.

    Args:
        problem: the graph and its deadline.
        relaxed: the solution of its relaxation.
        seconds: stop improving after so long.
        tolerance: stop improving when the cost is above the bound by no more than this.
    """
    began = time.monotonic()
    aimed = replace(problem, within_s=problem.within_s - relaxed.saved_s)
    chosen, cost = _carried(aimed, relaxed.time_s)
    target = _target(aimed, relaxed.time_s, relaxed)
    order = _order(aimed, target)
    guide = Guide(width=64)
    if (
        cost - relaxed.bound > tolerance
        and (found := searched(aimed, target, order, np.zeros(len(order)), guide)) is not None
    ):
        taken = np.empty(len(order), dtype=np.intp)
        taken[order] = found[0]
        taken, its_cost = _carried(aimed, problem.table.time_s[problem.klass, taken])
        if its_cost < cost:
            chosen, cost = taken, its_cost
    rng = np.random.default_rng(0)
    stale = 0
    while stale < _STALE and cost - relaxed.bound > tolerance and time.monotonic() - began < seconds:
        before = cost
        chosen, cost = _improved(aimed, chosen, cost, relaxed, rng, began + seconds)
        stale = 0 if before - cost > _WORTHWHILE * (before - relaxed.bound) else stale + 1
    return chosen


def _improved(
    problem: GraphProblem, chosen: IndexArray, cost: float, relaxed: Relaxed, rng: np.random.Generator, until: float
) -> tuple[IndexArray, float]:
    """One sweep over the plan, stretch by stretch."""
    dag, table, klass = problem.dag, problem.table, problem.klass
    stretch = int(_STRETCH * rng.uniform(0.5, 2.0))
    first = -int(rng.integers(stretch))
    chosen = chosen.copy()
    while first < len(dag) and time.monotonic() < until:
        time_s = table.time_s[klass, chosen]
        target = _target(problem, time_s, relaxed)
        ends = dag.earliest_s(time_s) + time_s
        order = _order(problem, target)
        parts = order[max(first, 0) : first + stretch]
        guide = Guide(
            width=64,
            early=float(rng.uniform(0.1, 0.7)),
            late=float(rng.uniform(0.1, 0.7)),
            late_s=float(rng.choice([0.0, 0.02, 0.1])) * float(time_s.mean()),
        )
        found = searched(problem, target, parts, ends, guide)
        if found is not None:
            saved = float(table.cost_j[klass[parts], chosen[parts]].sum()) - found[1]
            if saved >= 0.0:
                chosen[parts] = found[0]
        first += stretch
    taken, its_cost = _carried(problem, table.time_s[klass, chosen])
    return (taken, its_cost) if its_cost <= cost else (chosen, cost)


def _target(problem: GraphProblem, time_s: FloatArray, relaxed: Relaxed) -> Target:
    return Target(time_s, problem.dag.latest_s(time_s, problem.within_s), relaxed.edge_w, relaxed.through_w)


def _order(problem: GraphProblem, target: Target) -> IndexArray:
    """Parts by targeted start; none comes before one that it waits for, since times are positive."""
    return np.lexsort((np.arange(len(problem.dag)), target.end_s - target.time_s))


def _carried(problem: GraphProblem, time_s: FloatArray) -> tuple[IndexArray, float]:
    """Passes that hand on unused time, until they save nothing more; and the cost of their plan."""
    dag, table, klass = problem.dag, problem.table, problem.klass
    tolerance = dag.doubt_s(problem.within_s)
    best, chosen = np.inf, np.zeros(len(dag), dtype=np.intp)
    for _ in range(_MOST_PASSES):
        taken = _slowest_that_fit(problem, dag.latest_s(time_s, problem.within_s) + tolerance)
        time_s = table.time_s[klass, taken]
        cost = float(table.cost_j[klass, taken].sum())
        if cost >= best - _BETTER * abs(best):
            break
        best, chosen = cost, taken
    return chosen, best


def _slowest_that_fit(problem: GraphProblem, latest_s: FloatArray) -> IndexArray:
    """The slowest way of each part, in order, that ends by a time; its fastest where none does."""
    dag, table = problem.dag, problem.table
    chosen = np.zeros(len(dag), dtype=np.intp)
    end = np.zeros(len(dag))
    for parts, begin in dag.walk(end):
        rows = problem.klass[parts]
        fitting = (table.time_s[rows] <= (latest_s[parts] - begin)[:, None]).sum(axis=1)
        chosen[parts] = np.maximum(fitting - 1, 0)
        end[parts] = begin + table.time_s[rows, chosen[parts]]
    return chosen
