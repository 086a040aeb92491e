"""The linear relaxation of the multiple-choice knapsack: the lower hull of all plans, vertex by vertex."""

from __future__ import annotations

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.frontiers.pareto import Groups, hull_points, pareto_points


class Relaxation:
    """Pareto points and hull segments of groups; a plan takes one point of each.

    Taking the segments of all groups' lower hulls in order of energy saved per second leads along the vertices of the
    hull of all plans (Minkowski sum of convex curves), and between two of them along the optimum of the linear
    relaxation (Sinha and Zoltners, Operations Research 27, 1979).

    Args:
        groups: the points; times and energies already multiplied by how often each group runs.

    Attributes:
        source: for each Pareto point its index in ``groups``, by group and rising time; shape (points,).
        time_s: of each Pareto point.
        energy_j: of each Pareto point.
        group: of each Pareto point.
        first: where each group's Pareto points begin, shape (groups + 1,); the first is its fastest.
        segment_group: the group of each hull segment, most energy saved per second first; shape (segments,).
        segment_end: the Pareto point that each segment leads to.
        segment_rate: energy saved per second, in watts.
        segment_time_s: time each segment adds.
        segment_saved_j: energy each segment saves.
        reached_time_s: time of the plan after the first 0, 1, 2, ... segments; shape (segments + 1,).
        reached_energy_j: energy of the same plans.
    """

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.source = pareto_points(groups)
        self.time_s = groups.time_s[self.source]
        self.energy_j = groups.energy_j[self.source]
        self.group = np.searchsorted(groups.start, self.source, side="right") - 1
        self.first = np.searchsorted(self.group, np.arange(len(groups) + 1))
        hull = hull_points(self.time_s, self.energy_j, self.group)
        hull_group = self.group[hull]
        joined = np.flatnonzero(hull_group[1:] == hull_group[:-1])
        begin, end = hull[joined], hull[joined + 1]
        added = self.time_s[end] - self.time_s[begin]
        saved = self.energy_j[begin] - self.energy_j[end]
        rate = saved / added
        order = np.argsort(-rate, kind="stable")
        self.segment_group = hull_group[joined][order]
        self.segment_end = end[order]
        self.segment_rate = rate[order]
        self.segment_time_s = added[order]
        self.segment_saved_j = saved[order]
        self.reached_time_s = running_sum(self.time_s[self.first[:-1]].sum(), self.segment_time_s)
        self.reached_energy_j = running_sum(self.energy_j[self.first[:-1]].sum(), -self.segment_saved_j)

    @property
    def segments(self) -> int:
        """How many segments there are."""
        return len(self.segment_rate)

    def prefix(self, segments: int) -> IndexArray:
        """The Pareto point of each group after the first ``segments`` segments; shape (groups,)."""
        chosen = self.first[:-1].copy()
        chosen[self.segment_group[:segments]] = self.segment_end[:segments]
        return chosen

    def vertices(self) -> IndexArray:
        """How many segments lead to each vertex of the hull of all plans; equal rates are one straight edge."""
        if not self.segments:
            return np.zeros(1, dtype=np.intp)
        corner = np.flatnonzero(self.segment_rate[1:] != self.segment_rate[:-1]) + 1
        return np.concatenate([[0], corner, [self.segments]])

    def least_energy_j(self, time_s: float) -> float:
        """Energy of the relaxation at a time: no plan that is as fast needs less.

        Args:
            time_s: not less than that of the fastest plan.
        """
        return float(np.interp(time_s, self.reached_time_s, self.reached_energy_j))


def running_sum(first: float, steps: FloatArray) -> FloatArray:
    """``first``, then ``first`` plus the sum of the first one, two, ... steps."""
    total = np.empty(len(steps) + 1)
    total[0] = 0.0
    steps.cumsum(out=total[1:])
    total += first
    return total
