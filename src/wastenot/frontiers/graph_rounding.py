"""Plans of ways as they are, from a solution of a graph's relaxation.

    relaxation   |~~~~~ 1.37 ~~~~~|~~ 0.90 ~~|      parts mix two ways: no plan costs less
    searched     |===== 1.40 =====|= 0.85 =|..      one way each; .. time that the next part could not use
    carried      |===== 1.40 =====|== 0.87 ==|      handed on to whoever can
    improved     [  stretch  ][ stretch ][ ...      searched again, with other stretches each sweep

A beam search follows the relaxation (:mod:`wastenot.frontiers.graph_beam`). A pass over the graph then gives each part the
slowest way that ends by the latest time at which the rest could still continue as before: it starts as early as its earlier
parts let it, so that time that one of them could not use is handed on. Last, stretches of the plan are searched again, and
once that gains nothing more, those of the first plan again with other stretches: the best plan counts.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.frontiers.graph_beam import Found, Guide, Target, searched
from wastenot.frontiers.graph_relaxation import GraphProblem, Relaxed

# How far to search was chosen by hand, and trades time for energy: whatever these numbers are, a plan's cost is added up
# from its ways, and the bound beside it comes from the relaxation.
_MOST_PASSES = 20  # that hand on unused time; each must save something
_STRETCH = 120  # parts of a stretch, times 0.5 to 2 at random, so that its ends fall elsewhere in each sweep
_WIDTH = 1000  # states kept in the search of a stretch
_BETTER = _ROUNDING = 1e-12  # relative; sums of thousands of doubles agree to some 1e-13
_MOST_STATES = 5_000  # kept where all plans below a cost are looked for
_MOST_SUMS = 200_000  # of states and ways there, which bounds its memory
_CANDIDATES = 20  # of them that are returned, the cheapest
_ALL = 1 << 20  # ways to either side of the target: more than any part has
_STALE = 8  # sweeps that gain nothing, after which the search starts anew, ...
_STARTS = 6  # ... until it did so often
_MOST_STEPS = 25_000  # by default; about 0.15 ms each
_MANY_SWEEPS = 4  # over a large graph
_STEPS_TIMES_PARTS = 4e6  # over a small one
_WORTHWHILE = 1e-3  # of the gap that is left: a sweep that gains less counts as one that gains nothing


@dataclass(frozen=True, slots=True)
class Effort:
    """When to stop improving a plan.

    Attributes:
        steps: after this many parts were looked at again, so that the same question has the same answer.
        seconds: after so long, where that is asked for: what is found then depends on the machine.
    """

    steps: float = math.inf
    seconds: float = math.inf

    @classmethod
    def of_parts(cls, parts: int) -> Effort:
        """For one plan of a graph, of a second or a few: more for a small graph, in which losses do not average out."""
        return cls(min(max(_MANY_SWEEPS * parts, _STEPS_TIMES_PARTS / parts), _MOST_STEPS))


def planned(problem: GraphProblem, relaxed: Relaxed, effort: Effort, tolerance: float) -> tuple[IndexArray, float]:
    """A way of each part, in time, as positions in the rows of the table; and their cost, less what ending early saves.

    Args:
        problem: the graph and its deadline.
        relaxed: the solution of its relaxation.
        effort: when to stop improving.
        tolerance: stop improving when the cost is above the bound by no more than this.
    """
    until = time.monotonic() + effort.seconds
    fastest = problem.table.time_s[problem.klass, 0]
    room_s = problem.within_s - float((problem.dag.earliest_s(fastest) + fastest).max())
    saved_s = min(relaxed.saved_s, max(room_s, 0.0))
    aimed = replace(problem, within_s=problem.within_s - saved_s, end_s=0.0)
    enough = relaxed.bound + tolerance + problem.end_w * saved_s
    chosen, cost = _carried(aimed, relaxed.time_s)
    target = _target(aimed, relaxed.time_s, relaxed)
    order = _order(aimed, target)
    if cost > enough and len((found := searched(aimed, target, order, np.zeros(len(order)), Guide())).ways):
        taken = np.empty(len(order), dtype=np.intp)
        taken[order] = found.ways[0]
        taken, its_cost = _carried(aimed, problem.table.time_s[problem.klass, taken])
        if its_cost < cost:
            chosen, cost = taken, its_cost
    rng = np.random.default_rng(0)
    first = best = (chosen, cost)
    starts, stale, steps = 1, 0, 0
    while best[1] > enough and steps < effort.steps and time.monotonic() < until:
        if stale == _STALE:
            if starts == _STARTS:
                break
            starts, stale = starts + 1, 0
            chosen, cost = first
        before = cost
        chosen, cost = _improved(aimed, chosen, cost, relaxed, rng, effort.steps - steps, until)
        best = min(best, (chosen, cost), key=lambda each: each[1])
        steps += len(chosen)
        stale = 0 if before - cost > _WORTHWHILE * (before - enough) else stale + 1
    return best[0], total_cost(problem, best[0])


def total_cost(problem: GraphProblem, chosen: IndexArray) -> float:
    """The cost of a way for each part, less what is saved by ending early."""
    time_s = problem.table.time_s[problem.klass, chosen]
    over_s = float((problem.dag.earliest_s(time_s) + time_s).max())
    saved_s = min(max(problem.within_s - over_s, 0.0), problem.end_s)
    return float(problem.table.cost_j[problem.klass, chosen].sum()) - problem.end_w * saved_s


def cheaper_than(problem: GraphProblem, relaxed: Relaxed, cost: float) -> Found:
    """The plans that cost less than a given one, cheapest first; or some of them, where there are too many to look at.

    What a plan loses against the bound only grows from part to part, so that all that lose less are found.
    """
    target = _target(problem, relaxed.time_s, relaxed)
    limit = cost - relaxed.bound + _ROUNDING * (abs(cost) + abs(relaxed.bound))
    doubt = 64.0 * float(np.finfo(np.float64).eps * relaxed.through_w.sum()) * problem.within_s
    limit += doubt
    sure = doubt <= _ROUNDING * abs(cost) + 1e-3 * (cost - relaxed.bound)  # prices without end make sums of losses inexact
    width = max(1, min(_MOST_STATES, _MOST_SUMS // int(problem.table.size.max())))
    guide = Guide(width, early=0.0, late=0.0, late_s=np.inf, faster=_ALL, slower=_ALL, limit=limit, same=0.0)
    order = _order(problem, target)
    found = searched(problem, target, order, np.zeros(len(order)), guide, best=_CANDIDATES)
    ways = np.empty_like(found.ways)
    ways[:, order] = found.ways
    return replace(found, ways=ways, complete=found.complete and sure)


def _improved(
    problem: GraphProblem,
    chosen: IndexArray,
    cost: float,
    relaxed: Relaxed,
    rng: np.random.Generator,
    steps: float,
    until: float,
) -> tuple[IndexArray, float]:
    """One sweep over the plan, stretch by stretch, of a limited number of parts."""
    dag, table, klass = problem.dag, problem.table, problem.klass
    stretch = int(_STRETCH * rng.uniform(0.5, 2.0))
    first = -int(rng.integers(stretch))
    chosen = chosen.copy()
    while first < min(len(dag), steps) and time.monotonic() < until:
        time_s = table.time_s[klass, chosen]
        target = _target(problem, time_s, relaxed)
        ends = dag.earliest_s(time_s) + time_s
        order = _order(problem, target)
        parts = order[max(first, 0) : first + stretch]
        guide = Guide(
            width=_WIDTH,
            early=float(rng.uniform(0.05, 0.3)),
            late=float(rng.uniform(0.05, 0.3)),
            late_s=float(rng.choice([0.0, 0.02, 0.1])) * float(time_s.mean()),
        )
        found = searched(problem, target, parts, ends, guide)
        if len(found.ways):
            saved = float(table.cost_j[klass[parts], chosen[parts]].sum()) - float(found.cost[0])
            if saved >= 0.0:
                chosen[parts] = found.ways[0]
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
