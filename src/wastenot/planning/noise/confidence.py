"""Plans that keep a time budget with a stated confidence.

A plan's time over its budget is normal, with mean M and variance V that are sums over its units. It is at most 0 with
confidence C if M + z √V ≤ 0, where z is the C-quantile. The root couples the units, but lies between two lines in V:

    √V ≤ (V / ρ + ρ) / 2                for every ρ > 0, and equal where ρ = √V;
    √V ≥ (V + ρ₁ ρ₂) / (ρ₁ + ρ₂)        where ρ₁ ≤ √V ≤ ρ₂.

Errors common to all units add the square of a sum, which is not a sum over units. It is held at its value for the last plan,
and the search is repeated until the plan keeps the confidence with its own value; lower bounds leave it out.

With the first line the constraint is a budget on M + z V / 2ρ: every plan within it keeps the confidence. With the second it
is a budget that holds for every plan with √V in [ρ₁, ρ₂] that keeps the confidence, so the least energy within it is a lower
bound. Both budgets are linear and solved exactly; intervals of √V are halved, the most promising first, until the bounds
meet the best plan.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist

import numpy as np

from wastenot.arrays import FloatArray
from wastenot.errors import BadInputError, InfeasibleError
from wastenot.frontiers.algebra import choice
from wastenot.frontiers.knapsack import Cheapest, cheapest_within
from wastenot.frontiers.nodes import Ways
from wastenot.planning.noise.expectation import Excess, excess
from wastenot.planning.noise.shrinkage import Posteriors
from wastenot.planning.objective import Objective, Scope
from wastenot.planning.units import PlanUnit

_MOST_INTERVALS = 64
_GAP = 1e-5
_MOST_REPEATS = 6  # of the search, each with another fixed variance of common errors
_DECADES = 3.0  # of standard deviations below the largest possible that get intervals of their own
_ROUNDING = 1e-12
_MOST_LINES = 12


def choose_confidently(
    units: Sequence[PlanUnit], posteriors: Posteriors | None, objective: Objective, scope: Scope
) -> tuple[tuple[int, ...], float]:
    """The options of least expected cost whose true time is within the slowdown with the objective's confidence.

    The confidence holds under the normal model of :mod:`wastenot.planning.noise.shrinkage`. For least energy the lower bound
    is valid under it too, and the options mostly reach it to within a few parts in 10,000.

    Args:
        units: each gets a setting.
        posteriors: of true times and energies, ``None`` where the noise is unknown.
        objective: with a slowdown and a confidence.
        scope: ``local``: each unit keeps the slowdown with that confidence by itself.

    Returns:
        Option of each unit, and a lower bound on the expected energy of any that keep the confidence.

    Raises:
        BadInputError: the noise is unknown.
        InfeasibleError: nothing was found that keeps the slowdown with the confidence.
    """
    slowdown, confidence = objective.max_slowdown, objective.confidence
    assert slowdown is not None and confidence is not None
    if posteriors is None:
        raise BadInputError(
            "`confidence`: nothing says how noisy these measurements are; measure points several times, or give time_se_s "
            "and energy_se_j"
        )
    parts = []
    for part in [units] if scope == "global" else [[unit] for unit in units]:
        over = excess(part, posteriors, slowdown)
        search = ConfidentChoice(over, confidence)
        try:
            if objective.kind == "waste":
                parts.append(search.least(np.concatenate(over.energy_j)))
            else:
                parts.append(search.least_edp(objective.edp_exponent))
        except InfeasibleError as error:
            unit = "" if scope == "global" else f" of '{part[0].name}' by itself"
            raise InfeasibleError(
                f"`max_slowdown` {slowdown:g}: no plan{unit} was found that keeps it with confidence {confidence:g}; allow "
                "more, or measure more"
            ) from error
    return tuple(option for part in parts for option in part.options), math.fsum(part.lower_bound for part in parts)


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

    def least(self, cost: FloatArray) -> Cheapest:
        """The options of least cost that keep the confidence.

        Args:
            cost: of every option of every unit laid end to end; positive.

        Raises:
            InfeasibleError: none were found that keep it.
        """
        largest = math.sqrt(float(np.maximum.reduceat(self._variance, self._start[:-1]).sum()))
        if largest == 0.0:
            return cheapest_within(cost, self._mean, self._start, 0.0, _GAP / 10)
        best, fixed, bound = self._auto(cost), 0.0, 0.0
        for repeat in range(_MOST_REPEATS):
            candidate, least = self._search(cost, largest, fixed)
            bound = least if repeat == 0 else bound
            if candidate is None:
                break
            if self.keeps(candidate.options):
                best = candidate if best is None or candidate.cost < best.cost else best
                break
            fixed = max(1.5 * fixed, self._over.common_variance(candidate.options))
        if best is None:
            raise InfeasibleError("no plan was found that keeps the time budget with that confidence")
        return Cheapest(best.options, best.cost, min(bound, best.cost))

    def _search(self, cost: FloatArray, largest: float, fixed: float) -> tuple[Cheapest | None, float]:
        """The best plan that keeps the confidence if common errors have a fixed variance, and a lower bound."""
        ends = [0.0, *(largest * np.logspace(-_DECADES, 0.0, 7))]
        best: Cheapest | None = None
        waiting: list[tuple[float, float, float]] = []

        def try_interval(low: float, high: float) -> None:
            nonlocal best
            # Both lines bound the whole deviation; its fixed part is moved to the budget.
            under, over = math.hypot(low, math.sqrt(fixed)), math.hypot(high, math.sqrt(fixed))
            outer = self._line(cost, under + over, under * over / (under + over) + fixed / (under + over))
            if outer is None:
                return
            middle = math.sqrt(0.5 * (under**2 + over**2)) if under == 0.0 else math.sqrt(under * over)
            inner = self._line(cost, 2.0 * middle, 0.5 * middle + fixed / (2.0 * middle))
            for candidate in (outer, inner):
                if candidate and self._keeps_with(candidate.options, fixed) and (best is None or candidate.cost < best.cost):
                    best = candidate
            heapq.heappush(waiting, (outer.lower_bound, low, high))

        for low, high in pairwise(ends):
            try_interval(low, high)
        for _ in range(_MOST_INTERVALS):
            if not waiting or (best and waiting[0][0] >= best.cost * (1.0 - _GAP)):
                break
            _, low, high = heapq.heappop(waiting)
            middle = math.sqrt(low * high) if low else 0.5 * high
            try_interval(low, middle)
            try_interval(middle, high)
        bounds = [waiting[0][0]] if waiting else []
        return best, min([*bounds, *([best.cost] if best else [])], default=0.0)

    def _line(self, cost: FloatArray, slope: float, least_s: float) -> Cheapest | None:
        """Least cost with M + z (V / slope + least_s) ≤ 0."""
        weight = self._mean + self._z * self._variance / slope
        try:
            return cheapest_within(cost, weight, self._start, -self._z * least_s, _GAP / 10)
        except InfeasibleError:
            return None

    def _keeps_with(self, options: tuple[int, ...], fixed: float) -> bool:
        point = self._start[:-1] + np.array(options)
        deviation = math.sqrt(float(self._variance[point].sum()) + fixed)
        return float(self._mean[point].sum()) + self._z * deviation <= 0.0

    def least_edp(self, exponent: float) -> Cheapest:
        """Options of low ``energy * time ** exponent`` that keep the confidence.

        The least of all options where they keep it; otherwise descent along tangents of the logarithm, which is concave in
        energy and time, so that every step has a linear cost and none goes up. ``lower_bound`` is of the energy.
        """
        energy, time = np.concatenate(self._over.energy_j), np.concatenate(self._over.time_s)
        strict = self.least(energy)
        free = choice(Ways(time, energy, start=self._start)).least_edp(exponent)
        options = tuple(free.options.tolist())
        if self.keeps(options):
            return Cheapest(options, free.energy_j, min(strict.lower_bound, free.energy_j))

        def totals(chosen: tuple[int, ...]) -> tuple[float, float]:
            point = self._start[:-1] + np.array(chosen)
            return float(energy[point].sum()), float(time[point].sum())

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
        return Cheapest(best, totals(best)[0], strict.lower_bound)

    def _auto(self, cost: FloatArray) -> Cheapest | None:
        """Auto everywhere, where that keeps the confidence."""
        options = (0,) * (len(self._start) - 1)
        return Cheapest(options, float(cost[self._start[:-1]].sum()), 0.0) if self.keeps(options) else None
