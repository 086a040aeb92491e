"""Relaxations of one graph at many deadlines: the least cost is a convex function of the deadline.

Each solution bounds the cost at every deadline from below by a line, and two solutions mixed are one for a deadline between
theirs, so that few need to be solved.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.frontiers.graph_interior import InteriorPoint
from wastenot.frontiers.graph_laplacian import Laplacian
from wastenot.frontiers.graph_relaxation import GraphProblem, Relaxed, fastest_ways, relaxed_by_highs

_MOST_CELLS = 60_000_000  # of a band matrix, 480 MB; wider graphs go to HiGHS


@dataclass(eq=False)
class CostCurve:
    """Solutions found so far, all without anything saved by ending early.

    Attributes:
        problem: the graph; its deadline is not looked at.
    """

    problem: GraphProblem
    _solved: dict[float, Relaxed] = field(default_factory=dict)
    _laplacian: dict[bool, Laplacian] = field(default_factory=dict)

    def solved(self, problem: GraphProblem) -> Relaxed:
        """The relaxation of a problem of this graph."""
        fastest = fastest_ways(problem)
        if not (np.diff(problem.table.hull_start)[problem.klass] > 1).any():
            return fastest
        early = problem.ends_early
        if early not in self._laplacian:
            self._laplacian[early] = Laplacian(problem.dag, early)
        if self._laplacian[early].cells > _MOST_CELLS:
            return relaxed_by_highs(problem)
        found = InteriorPoint(self._laplacian[early], problem).solve()
        if found.bound >= fastest.bound:
            return found
        # No part on the critical path has a choice: prices grow without end, and their bound is lost in rounding.
        return max(relaxed_by_highs(problem), fastest, key=lambda each: each.bound)

    def at(self, within_s: float) -> Relaxed:
        """The relaxation at a deadline, where ending early saves nothing."""
        if within_s not in self._solved:
            self._solved[within_s] = self.solved(replace(self.problem, within_s=within_s, end_s=0.0))
        return self._solved[within_s]

    def lower_bound(self, within_s: FloatArray) -> FloatArray:
        """No plan costs less within each of some deadlines, as far as lines are known."""
        best = np.full(len(within_s), -np.inf)
        for at_s, relaxed in self._solved.items():
            np.maximum(best, relaxed.bound - relaxed.price_w(self.problem.dag) * (within_s - at_s), out=best)
        return best

    def floor(self, first_s: float, last_s: float) -> tuple[FloatArray, FloatArray]:
        """Times and costs of the vertices of the convex curve below which, by the lines known, no cost is."""
        lines = sorted(
            ((each.price_w(self.problem.dag), each.bound, at_s) for at_s, each in self._solved.items()), reverse=True
        )
        kept: list[tuple[float, float]] = []  # price and cost at time 0, of lines that are highest somewhere
        since: list[float] = []  # and from when
        for price, bound, at_s in lines:
            cost = bound + price * at_s
            while kept:
                if kept[-1][0] == price:
                    crossing = -np.inf if cost > kept[-1][1] else np.inf
                else:
                    crossing = (kept[-1][1] - cost) / (kept[-1][0] - price)
                if crossing > since[-1]:
                    break
                kept.pop()
                since.pop()
            begin = crossing if kept else -np.inf
            if begin < np.inf:
                kept.append((price, cost))
                since.append(begin)
        times = np.unique([first_s, *(each for each in since if first_s < each < last_s), last_s])
        return times, np.max([cost - price * times for price, cost in kept], axis=0)

    def over(self, within_s: FloatArray, tolerance: float) -> list[Relaxed]:
        """Relaxations at rising deadlines, each within a fraction of the cost of the best.

        Deadlines between two that are solved get a mixture of these, until the line through both is near the bound.
        """
        open_intervals = [(0, len(within_s) - 1)]
        self.at(float(within_s[0]))
        self.at(float(within_s[-1]))
        while open_intervals:
            first, last = open_intervals.pop()
            between = within_s[first + 1 : last]
            if not len(between):
                continue
            ends = [self.at(float(within_s[end])).bound for end in (first, last)]
            chord = np.interp(between, within_s[[first, last]], ends)
            off = (chord - self.lower_bound(between)) / np.abs(chord)
            if off.max() > tolerance:
                middle = first + 1 + int(np.argmax(off))
                self.at(float(within_s[middle]))
                open_intervals += [(first, middle), (middle, last)]
        known = [index for index, each in enumerate(within_s.tolist()) if each in self._solved]
        bounds = self.lower_bound(within_s)
        found = []
        for index, each in enumerate(within_s.tolist()):
            if each in self._solved:
                found.append(replace(self.at(each), bound=float(bounds[index])))
                continue
            after = int(np.searchsorted(known, index))
            low, high = float(within_s[known[after - 1]]), float(within_s[known[after]])
            found.append(self.at(low).mixed(self.at(high), (each - low) / (high - low), float(bounds[index])))
        return found
