"""One option per group, exactly: the multiple-choice knapsack of time and energy, and its certificate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import InfeasibleError
from wastenot.frontiers.core_search import ROUNDING, Budget, CoreSearch
from wastenot.frontiers.exact import exact_sum
from wastenot.frontiers.pareto import Groups
from wastenot.frontiers.relaxation import Relaxation

ExactTime = Callable[[IndexArray], Fraction]
"""Exact total time of a plan, given the chosen option of each group as an index into the points."""

_ROUNDING_OF_WEIGHTS = 1e-12  # relative
_INSTANT = Fraction(1, 2**1200)  # shorter than any difference between sums of doubles
_SLACK_TERMS = 1024  # rounding errors allowed for inside single points, besides one for each sum over them


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """A plan and the proof of how good it is.

    Attributes:
        options: the chosen point of each group, as indices into the points; shape (groups,).
        time_s: its time, to rounding.
        energy_j: its energy, to rounding.
        lower_bound_j: no plan within the budget (of a plan asked for without one: within its own time) needs less.
    """

    options: IndexArray
    time_s: float
    energy_j: float
    lower_bound_j: float

    @property
    def gap(self) -> float:
        """How far the energy can be above the least possible, as a fraction of it."""
        return (self.energy_j - self.lower_bound_j) / self.energy_j


class Knapsack:
    """Groups of time-energy points; a plan takes one point of each.

    Args:
        groups: the points; times and energies positive, already multiplied by how often each group runs.
        exact_time: exact time of a plan; by default the exact sum of the times in ``groups``.
    """

    def __init__(self, groups: Groups, exact_time: ExactTime | None = None) -> None:
        self.groups = groups
        self.relaxation = Relaxation(groups)
        self._exact_time = exact_time or (lambda options: exact_sum((1, time) for time in groups.time_s[options].tolist()))

    def _selection(self, chosen: IndexArray, lower_bound_j: float | None = None) -> Selection:
        energy = float(self.relaxation.energy_j[chosen].sum())
        if lower_bound_j is None or energy - lower_bound_j <= ROUNDING * energy:
            lower_bound_j = energy
        time = float(self.relaxation.time_s[chosen].sum())
        return Selection(self.relaxation.source[chosen], time, energy, lower_bound_j)

    def hull(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Vertices of the lower hull of all plans by rising time: time, energy, and J/s saved on the edge to the next."""
        r, vertex = self.relaxation, self.relaxation.vertices()
        return r.reached_time_s[vertex], r.reached_energy_j[vertex], r.segment_rate[vertex[:-1]]

    def hull_plan(self, vertex: int) -> Selection:
        """The plan at a vertex of :meth:`hull`: no plan that is as fast needs less energy."""
        return self._selection(self.relaxation.prefix(int(self.relaxation.vertices()[vertex])))

    def least_time(self) -> Selection:
        """The fastest plan, and of the fastest the one of least energy."""
        return self._selection(self.relaxation.prefix(0))

    def least_energy(
        self, budget_s: Fraction | float | None = None, gap_tolerance: float = 0.0, known_j: float = np.inf
    ) -> Selection:
        """The plan of least energy whose time, summed exactly, is within a budget.

        Args:
            budget_s: the budget; ``None`` for no limit.
            gap_tolerance: stop once the energy is proven to be within this fraction of the least possible.
            known_j: only plans that need less than this are looked for; where there are none, any plan within the budget.

        Raises:
            InfeasibleError: even the fastest plan is over the budget.
        """
        relaxation = self.relaxation
        if budget_s is None:
            return self._selection(relaxation.prefix(relaxation.segments))
        exact_s = Fraction(budget_s)
        largest = max(float(exact_s), float(relaxation.reached_time_s[0]))
        doubt_s = float((len(relaxation.time_s) + _SLACK_TERMS) * np.finfo(float).eps * largest)
        budget = Budget(exact_s, doubt_s, lambda chosen: self._exact_time(relaxation.source[chosen]))
        taken = int(np.searchsorted(relaxation.reached_time_s, budget.most_s, side="right")) - 1
        while taken >= 0 and not budget.fits(relaxation.prefix(taken), float(relaxation.reached_time_s[taken])):
            taken -= 1
        if taken < 0:
            raise InfeasibleError("even the fastest plan is over the time budget")
        if taken == relaxation.segments:
            return self._selection(relaxation.prefix(taken))
        return self._selection(*CoreSearch(relaxation, budget, taken, gap_tolerance, known_j).run())

    def least_edp(self, exponent: float = 1.0, budget_s: Fraction | float | None = None) -> Selection:
        """The plan of least ``energy * time ** exponent``, exact, over all plans or those within a time budget.

        For an exponent ≥ 0 the product is quasi-concave where both are positive, so its least value over all plans is
        at a vertex of their hull. With a budget, plans between the last vertex within it and the budget can be better
        than any vertex; they are visited by falling time until the relaxation shows that none to come is better.

        Raises:
            InfeasibleError: even the fastest plan is over the budget.
        """
        relaxation = self.relaxation
        log_edp = np.log(relaxation.reached_energy_j) + exponent * np.log(relaxation.reached_time_s)
        best = self._selection(relaxation.prefix(int(np.argmin(log_edp))))
        if budget_s is None:
            return best
        if exponent == 0.0:
            return self.least_energy(budget_s)
        budget = Fraction(budget_s)
        if self._exact_time(best.options) <= budget:
            return best
        return self._least_edp_within(exponent, budget, np.argsort(log_edp, kind="stable"))

    def _least_edp_within(self, exponent: float, budget: Fraction, vertices: IndexArray) -> Selection:
        """:meth:`least_edp` where the best of all ``vertices`` (numbers of segments, best first) is too slow."""

        def log_edp(plan: Selection) -> float:
            return float(np.log(plan.energy_j) + exponent * np.log(plan.time_s))

        relaxation = self.relaxation
        best = cheapest = self.least_energy(budget)
        for taken in vertices.tolist():
            vertex = self._selection(relaxation.prefix(taken))
            if self._exact_time(vertex.options) <= budget:
                best = min(best, vertex, key=log_edp)
                break
        while True:
            least = log_edp(best)
            # Plans still to come need at least the energy of the last, so a better one must be this much faster.
            fast_enough = Fraction(float(np.exp((least - np.log(cheapest.energy_j)) / exponent)))
            limit = min(self._exact_time(cheapest.options) - _INSTANT, fast_enough)
            floor_j = relaxation.least_energy_j(float(limit))
            if limit <= 0 or np.log(floor_j) + exponent * np.log(float(limit)) >= least - ROUNDING:
                return best
            try:
                cheapest = self.least_energy(limit)
            except InfeasibleError:
                return best
            best = min(best, cheapest, key=log_edp)


@dataclass(frozen=True, slots=True)
class Cheapest:
    """One option of each group, counted from the group's first, and the sum of their costs.

    Attributes:
        options: shape (groups,).
        cost: their sum.
        lower_bound: no options that were allowed cost less.
        price: what one more unit of weight would save, by the linear relaxation.
    """

    options: tuple[int, ...]
    cost: float
    lower_bound: float
    price: float


def cheapest_within(
    cost: FloatArray, weight: FloatArray, start: IndexArray, budget: float, gap_tolerance: float = 0.0, known: float = np.inf
) -> Cheapest:
    """One option of each group, of least cost, whose weights sum to no more than a budget, to rounding.

    Unlike a time, a weight may be negative or zero. Adding a constant to all weights of a group and to the budget changes
    nothing, which makes every weight positive.

    Args:
        cost: of each option, groups laid end to end; positive; shape (options,).
        weight: of each option, of any sign; shape (options,).
        start: group ``g`` is ``start[g]:start[g + 1]``; shape (groups + 1,).
        budget: for the sum of weights.
        gap_tolerance: stop once the cost is proven to be within this fraction of the least possible.
        known: only options that cost less than this are looked for; where there are none, any that are within the budget.

    Raises:
        InfeasibleError: no options are within the budget.
    """
    scale = max(float(np.abs(weight).max()), 1e-300)
    shift = np.minimum.reduceat(weight, start[:-1]) - scale
    allowed = budget - float(shift.sum())
    allowed += _ROUNDING_OF_WEIGHTS * (abs(allowed) + len(shift) * scale)
    groups = Groups(weight - np.repeat(shift, np.diff(start)), cost, start)
    knapsack = Knapsack(groups)
    best, relaxation = knapsack.least_energy(allowed, gap_tolerance, known), knapsack.relaxation
    taken = int(np.searchsorted(relaxation.reached_time_s[1:], allowed, side="right"))
    price = float(relaxation.segment_rate[taken]) if taken < relaxation.segments else 0.0
    return Cheapest(tuple((best.options - start[:-1]).tolist()), best.energy_j, best.lower_bound_j, price)
