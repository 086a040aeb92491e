"""Plans of ways as they are, from a solution of a graph's relaxation.

A pass over the graph gives each part the slowest way that ends by the latest time at which the rest could still go on as
before. It starts as early as its earlier parts let it, so that time that one of them could not use is handed on.
"""

from __future__ import annotations

import numpy as np

from wastenot.arrays import FloatArray, IndexArray
from wastenot.frontiers.graph_relaxation import GraphProblem

_MOST_PASSES = 20


def slowest_that_fit(problem: GraphProblem, latest_s: FloatArray, tolerance_s: float) -> IndexArray:
    """The slowest way of each part, in order, that ends by a time; its fastest where none does."""
    dag, table = problem.dag, problem.table
    chosen = np.zeros(len(dag), dtype=np.intp)
    limit = latest_s + tolerance_s
    end = np.zeros(len(dag))
    for parts, begin in dag.walk(end):
        rows = problem.klass[parts]
        fitting = (table.time_s[rows] <= (limit[parts] - begin)[:, None]).sum(axis=1)
        chosen[parts] = np.maximum(fitting - 1, 0)
        end[parts] = begin + table.time_s[rows, chosen[parts]]
    return chosen


def rounded(problem: GraphProblem, time_s: FloatArray, saved_s: float) -> IndexArray:
    """A way of each part that ends in time: positions in the rows of the table."""
    dag, table, klass = problem.dag, problem.table, problem.klass
    within_s = problem.within_s - saved_s
    tolerance = dag.doubt_s(problem.within_s)
    best, chosen = np.inf, np.zeros(len(dag), dtype=np.intp)
    for _ in range(_MOST_PASSES):
        taken = slowest_that_fit(problem, dag.latest_s(time_s, within_s), tolerance)
        time_s = table.time_s[klass, taken]
        cost = float(table.cost_j[klass, taken].sum())
        if cost >= best:
            break
        best, chosen = cost, taken
    return chosen
