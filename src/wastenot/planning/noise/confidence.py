"""Plans that keep a time budget with a stated confidence.

A plan's time over its budget is normal, with mean M and variance V that are sums over its units. It is at most 0 with
confidence C if M + z √V ≤ 0, z being the C-quantile. The root couples the units, but between two lines it is linear in V:

    √V ≤ (V / ρ + ρ) / 2                for every ρ > 0, and equal where ρ = √V;
    √V ≥ (V + ρ₁ ρ₂) / (ρ₁ + ρ₂)        where ρ₁ ≤ √V ≤ ρ₂.

Errors that all units have in common add a square of a sum, which is no sum over units. It is taken as fixed at what the
plan found last has, and the search repeated until that plan keeps the confidence with it; lower bounds leave it out.

With the first line the constraint is a budget on M + z V / 2ρ: plans within it keep the confidence for sure. With the second
it is a budget that no plan with √V in [ρ₁, ρ₂] which keeps the confidence goes over: a lower bound on its energy. Each is a
multiple-choice knapsack, solved exactly; intervals of √V are halved, the most promising first, until bounds and best plan
meet.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

import numpy as np

from wastenot.arrays import FloatArray
from wastenot.errors import BadInputError, InfeasibleError
from wastenot.frontiers.algebra import choice
from wastenot.frontiers.linear import cheapest_within
from wastenot.frontiers.nodes import Ways
from wastenot.planning.noise.expectation import Excess, excess
from wastenot.planning.noise.shrinkage import Posteriors
from wastenot.planning.objective import Objective, Scope
from wastenot.planning.units import PlanUnit

_MOST_INTERVALS = 64
_GAP = 1e-5
_MOST_TURNS = 6  # of fixing what common errors add
_DECADES = 3.0  # of standard deviations, below the largest possible, that are looked at by themselves
_ROUNDING = 1e-12
_MOST_LINES = 12


@dataclass(frozen=True, slots=True)
class ConfidentOptions:
    """Options of each unit that keep the confidence.

    Attributes:
        options: shape (units,).
        cost: sum of what was minimised.
        lower_bound: no options that keep the confidence cost less.
    """

    options: tuple[int, ...]
    cost: float
    lower_bound: float


def choose_confidently(
    units: Sequence[PlanUnit], posteriors: Posteriors | None, objective: Objective, scope: Scope
) -> tuple[tuple[int, ...], float]:
    """The options of least expected cost whose true time is within the slowdown with the objective's confidence.

    The confidence holds under the normal model of :mod:`wastenot.planning.noise.shrinkage`. For least energy the lower bound
    is valid under it too, and the options found mostly reach it to within a few parts in 10,000.

    Args:
        units: that get a setting each.
        posteriors: of true times and energies, ``None`` where nothing is known of the noise.
        objective: with a slowdown and a confidence.
        scope: ``local``: each unit keeps the slowdown with that confidence by itself.

    Returns:
        Option of each unit, and a lower bound on the expected energy of any that keep the confidence.

    Raises:
        BadInputError: nothing is known of the noise.
        InfeasibleError: nothing was found that keeps the slowdown with the confidence.
    """
    slowdown, confidence = objective.max_slowdown, objective.confidence
    assert slowdown is not None and confidence is not None
    if posteriors is None:
        raise BadInputError(
            "`confidence`: nothing says how noisy these measurements are; measure points several times, or give time_se_s "
            "and energy_se_j"
        )
    kept = []
    for part in [units] if scope == "global" else [[unit] for unit in units]:
        over = excess(part, posteriors, slowdown)
        choice = ConfidentChoice(over, confidence)
        try:
            found = (
                choice.least(np.concatenate(over.energy_j))
                if objective.kind == "waste"
                else choice.least_edp(objective.edp_exponent)
            )
        except InfeasibleError as error:
            whose = "" if scope == "global" else f" of '{part[0].name}' by itself"
            raise InfeasibleError(
                f"`max_slowdown` {slowdown:g}: no plan{whose} was found that keeps it with confidence {confidence:g}; allow "
                "more, or measure more"
            ) from error
        kept.append(found)
    return tuple(option for part in kept for option in part.options), math.fsum(part.lower_bound for part in kept)


class ConfidentChoice:
    """Choices of options within a budget that is kept with a confidence.

    Args:
        over: time over the budget of each option.
        confidence: between 0.5 and 1.
    """

    def __init__(self, over: Excess, confidence: float) -> None:
        self._over = over
        self._z = NormalDist().inv_cdf(confidence)
        sizes = [len(mean) for mean in over.mean_s]
        self._start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        self._mean = np.concatenate(over.mean_s)
        self._variance = np.concatenate(over.variance_s2)

    def keeps(self, options: tuple[int, ...]) -> bool:
        """Whether the budget is kept with the confidence."""
        mean, deviation = self._over.of_plan(options)
        return mean + self._z * deviation <= 0.0

    def least(self, cost: FloatArray) -> ConfidentOptions:
        """The options of least cost that keep the confidence.

        Args:
            cost: of every option of every unit laid end to end; positive.

        Raises:
            InfeasibleError: none were found that keep it.
        """
        largest = math.sqrt(float(np.maximum.reduceat(self._variance, self._start[:-1]).sum()))
        if largest == 0.0:
            return self._certain(cost)
        best, fixed, bound = self._first(cost), 0.0, 0.0
        for turn in range(_MOST_TURNS):
            found, least = self._search(cost, largest, fixed)
            bound = least if turn == 0 else bound
            if found is None:
                break
            if self.keeps(found.options):
                best = found if best is None or found.cost < best.cost else best
                break
            fixed = max(1.5 * fixed, self._over.common_variance(found.options))
        if best is None:
            raise InfeasibleError("no plan was found that keeps the time budget with that confidence")
        return ConfidentOptions(best.options, best.cost, min(bound, best.cost))

    def _search(self, cost: FloatArray, largest: float, fixed: float) -> tuple[ConfidentOptions | None, float]:
        """The best plan whose time keeps the confidence if common errors have a fixed variance; and a lower bound."""
        ends = [0.0, *(largest * np.logspace(-_DECADES, 0.0, 7))]
        best: ConfidentOptions | None = None
        waiting: list[tuple[float, float, float]] = []

        def look(low: float, high: float) -> None:
            nonlocal best
            # Both lines are drawn for the whole deviation, of which the fixed part is moved to the budget.
            under, over = math.hypot(low, math.sqrt(fixed)), math.hypot(high, math.sqrt(fixed))
            outer = self._line(cost, under + over, under * over / (under + over) + fixed / (under + over))
            if outer is None:
                return
            middle = math.sqrt(0.5 * (under**2 + over**2)) if under == 0.0 else math.sqrt(under * over)
            inner = self._line(cost, 2.0 * middle, 0.5 * middle + fixed / (2.0 * middle))
            for found in (outer, inner):
                if found and self._keeps_with(found.options, fixed) and (best is None or found.cost < best.cost):
                    best = found
            heapq.heappush(waiting, (outer.lower_bound, low, high))

        for low, high in pairwise(ends):
            look(low, high)
        for _ in range(_MOST_INTERVALS):
            if not waiting or (best and waiting[0][0] >= best.cost * (1.0 - _GAP)):
                break
            _, low, high = heapq.heappop(waiting)
            middle = math.sqrt(low * high) if low else 0.5 * high
            look(low, middle)
            look(middle, high)
        bounds = [waiting[0][0]] if waiting else []
        return best, min([*bounds, *([best.cost] if best else [])], default=0.0)

    def _line(self, cost: FloatArray, slope: float, least_s: float) -> ConfidentOptions | None:
        """Least cost with M + z (V / slope + least_s) ≤ 0."""
        return self._solve(cost, self._mean + self._z * self._variance / slope, -self._z * least_s)

    def _keeps_with(self, options: tuple[int, ...], fixed: float) -> bool:
        place = self._start[:-1] + np.array(options)
        deviation = math.sqrt(float(self._variance[place].sum()) + fixed)
        return float(self._mean[place].sum()) + self._z * deviation <= 0.0

    def least_edp(self, exponent: float) -> ConfidentOptions:
        """Options of low ``energy * time ** exponent`` that keep the confidence.

        The least of all where they keep it; else found by descent along tangents of the logarithm, which is concave in
        energy and time, so that every step is a knapsack and none goes up. ``lower_bound`` is of the energy.
        """
        energy, time = np.concatenate(self._over.energy_j), np.concatenate(self._over.time_s)
        strict = self.least(energy)
        free = choice(Ways(time, energy, start=self._start)).least_edp(exponent)
        options = tuple(free.options.tolist())
        if self.keeps(options):
            return ConfidentOptions(options, free.energy_j, min(strict.lower_bound, free.energy_j))

        def totals(chosen: tuple[int, ...]) -> tuple[float, float]:
            place = self._start[:-1] + np.array(chosen)
            return float(energy[place].sum()), float(time[place].sum())

        def log_edp(chosen: tuple[int, ...]) -> float:
            total_j, total_s = totals(chosen)
            return math.log(total_j) + exponent * math.log(total_s)

        best = strict.options
        for _ in range(_MOST_LINES):
            total_j, total_s = totals(best)
            tried = self.least(energy / total_j + exponent * time / total_s).options
            if log_edp(tried) >= log_edp(best) - _ROUNDING:
                break
            best = tried
        return ConfidentOptions(best, totals(best)[0], strict.lower_bound)

    def _first(self, cost: FloatArray) -> ConfidentOptions | None:
        """Auto everywhere, where that keeps the confidence."""
        options = (0,) * (len(self._start) - 1)
        return ConfidentOptions(options, float(cost[self._start[:-1]].sum()), 0.0) if self.keeps(options) else None

    def _certain(self, cost: FloatArray) -> ConfidentOptions:
        found = self._solve(cost, self._mean, 0.0)
        if found is None:
            raise InfeasibleError("no plan keeps the time budget")
        return found

    def _solve(self, cost: FloatArray, weight: FloatArray, budget: float) -> ConfidentOptions | None:
        """Least cost with the weights' sum within a budget."""
        try:
            best = cheapest_within(cost, weight, self._start, budget, _GAP / 10)
        except InfeasibleError:
            return None
        return ConfidentOptions(tuple(best.options.tolist()), best.cost, best.lower_bound)
