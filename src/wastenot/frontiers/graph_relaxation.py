"""The linear relaxation of a graph: parts mix neighbouring ways of their lower hull (the linear time-cost trade-off).

Its dual is a flow: what a second is worth along each dependency. Whatever flow is given, the least that parts could cost if
time were bought and sold at its prices is a lower bound, so that bounds do not depend on how well a solver did.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.frontiers.graph_times import Dag
from wastenot.frontiers.graph_ways import CostTable


@dataclass(frozen=True, slots=True, eq=False)
class GraphProblem:
    """Parts with costs and a deadline; arrays by part are in the order of the graph's levels.

    Attributes:
        dag: the dependencies.
        table: ways by class.
        klass: class of each part; shape (parts,).
        end_w: saved for each second that the end comes before ``within_s``, ...
        end_s: ... for at most this many seconds.
        within_s: the deadline.
    """

    dag: Dag
    table: CostTable
    klass: IndexArray
    end_w: float
    end_s: float
    within_s: float

    @property
    def ends_early(self) -> bool:
        """Whether ending before the deadline saves anything."""
        return self.end_w > 0.0 and self.end_s > 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Relaxed:
    """A solution of the relaxation.

    Attributes:
        time_s: of each part.
        saved_s: how long before the deadline the end is, as far as that counts.
        bound: lower bound on the cost.
        edge_w: what a second is worth along each edge: a flow that is conserved.
        through_w: and in each part.
    """

    time_s: FloatArray
    saved_s: float
    bound: float
    edge_w: FloatArray
    through_w: FloatArray

    def price_w(self, dag: Dag) -> float:
        """What one more second until the deadline saves."""
        return float(self.through_w[dag.without_later].sum())

    def mixed(self, other: Relaxed, share: float, bound: float) -> Relaxed:
        """Part of the way to another solution: one of a deadline between theirs, whose bound is given."""

        def between(one: FloatArray, two: FloatArray) -> FloatArray:
            return (1.0 - share) * one + share * two

        return Relaxed(
            between(self.time_s, other.time_s),
            (1.0 - share) * self.saved_s + share * other.saved_s,
            bound,
            between(self.edge_w, other.edge_w),
            between(self.through_w, other.through_w),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """The segments of all parts' lower hulls.

    Attributes:
        owner: the part of each segment, not falling.
        length: in seconds.
        rate: what a second costs along it, negative and rising along a hull, in watts.
        count: segments of each part.
    """

    owner: IndexArray
    length: FloatArray
    rate: FloatArray
    count: IndexArray

    @classmethod
    def of(cls, problem: GraphProblem) -> Segments:
        """Those of a graph's parts."""
        table, klass = problem.table, problem.klass
        vertices = np.diff(table.hull_start)
        row = np.repeat(np.arange(len(vertices)), vertices)
        hull_time, hull_cost = table.time_s[row, table.hull], table.cost_j[row, table.hull]
        count = vertices[klass] - 1
        owner = np.repeat(np.arange(len(klass)), count)
        first = table.hull_start[klass][owner] + np.arange(len(owner)) - (np.cumsum(count) - count)[owner]
        length = hull_time[first + 1] - hull_time[first]
        return cls(owner, length, (hull_cost[first + 1] - hull_cost[first]) / length, count)


def relaxed_by_highs(problem: GraphProblem) -> Relaxed:
    """The relaxation, solved by HiGHS."""
    dag, parts = problem.dag, len(problem.dag)
    segment_of = Segments.of(problem)
    owner, length, rate, count = segment_of.owner, segment_of.length, segment_of.rate, segment_of.count
    before = np.cumsum(count) - count
    base = problem.table.time_s[problem.klass, 0]
    segments, last = len(owner), dag.without_later
    edges = len(dag.earlier)

    # Rows: earlier's end + delay <= later's start; last parts' end + saved <= deadline.
    ends = np.concatenate([dag.earlier, last])
    rows = np.arange(len(ends))
    by_owner = np.concatenate([before, [segments]])
    many = count[ends]
    segment = np.repeat(by_owner[ends] - (np.cumsum(many) - many), many) + np.arange(int(many.sum()))
    saved = [segments + parts] if problem.ends_early else []
    row_index = np.concatenate([rows, rows[:edges], np.repeat(rows, many), np.repeat(rows[edges:], len(saved))])
    column = np.concatenate([segments + ends, segments + dag.later, segment, np.tile(saved, len(last)).astype(np.intp)])
    value = np.ones(len(column))
    value[len(rows) : len(rows) + edges] = -1.0
    limit = -base[ends]
    limit[:edges] -= dag.delay_s
    limit[edges:] += problem.within_s
    unlimited = np.full(parts, np.inf)
    solved = linprog(
        np.concatenate([rate, np.zeros(parts), np.full(len(saved), -problem.end_w)]),
        A_ub=csr_array((value, (row_index, column)), shape=(len(rows), segments + parts + len(saved))),  # type: ignore[call-overload]  # scipy-stubs know no sparse matrix here
        b_ub=limit,
        bounds=np.stack(
            [
                np.zeros(segments + parts + len(saved)),
                np.concatenate([length, unlimited, np.full(len(saved), problem.end_s)]),
            ],
            axis=1,
        ),
        method="highs",
    )
    added = np.bincount(owner, solved.x[:segments], minlength=parts).astype(np.float64)
    flow = -solved.ineqlin.marginals
    through, edge_w = dag.conserved(np.maximum(flow[:edges], 0.0), np.maximum(flow[edges:], 0.0))
    bound = flow_bound(problem, through, edge_w)
    return Relaxed(base + added, float(solved.x[-1]) if saved else 0.0, bound, edge_w, through)


def fastest_ways(problem: GraphProblem) -> Relaxed:
    """Every part at its fastest, and its bound: exact where no part has a choice.

    A second is worth what ending early saves, along the longest path.
    """
    dag = problem.dag
    time_s = problem.table.time_s[problem.klass, 0]
    start_s = dag.earliest_s(time_s)
    end_s = start_s + time_s
    through, edge_w = np.zeros(len(dag)), np.zeros(len(dag.earlier))
    part, worth = int(np.argmax(end_s)), problem.end_w if problem.ends_early else 0.0
    through[part] = worth
    while worth and dag.into[part] < dag.into[part + 1]:
        into = np.arange(dag.into[part], dag.into[part + 1])
        edge = int(into[np.argmax(end_s[dag.earlier[into]] + dag.delay_s[into])])
        edge_w[edge] = worth
        part = int(dag.earlier[edge])
        through[part] = worth
    saved_s = float(np.clip(problem.within_s - end_s.max(), 0.0, problem.end_s)) if worth else 0.0
    return Relaxed(time_s, saved_s, flow_bound(problem, through, edge_w), edge_w, through)


def flow_bound(problem: GraphProblem, through: FloatArray, edge_w: FloatArray) -> float:
    """No plan costs less, whatever the flow, if it is not negative and as much enters each part as leaves it.

    Starts and ends of parts then drop out of the sum.

    Args:
        problem: the graph and its deadline.
        through: flow through each part.
        edge_w: flow along each edge.
    """
    dag, table, klass = problem.dag, problem.table, problem.klass
    best = np.empty(len(dag))
    for each in range(len(table.size)):
        mine = np.flatnonzero(klass == each)
        times, costs = table.vertices(each)
        rate = -np.diff(costs) / np.diff(times)
        taken = np.searchsorted(-rate, -through[mine])
        # Rounding may take a neighbour's vertex, which costs as much.
        best[mine] = np.minimum.reduce([
            costs[near] + through[mine] * times[near]
            for near in (np.maximum(taken - 1, 0), taken, np.minimum(taken + 1, len(times) - 1))
        ])  # fmt: skip
    out = float(through[dag.without_later].sum())
    terms = [best.sum(), (edge_w * dag.delay_s).sum(), -out * problem.within_s]
    if problem.ends_early:
        terms.append(min(0.0, (out - problem.end_w) * problem.end_s))
    size = 64.0 * float(np.abs(best).sum() + sum(map(abs, terms))) + 16.0 * float(through.sum()) * problem.within_s
    return float(sum(terms)) - float(np.finfo(np.float64).eps) * size
