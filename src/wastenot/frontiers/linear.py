"""The cheapest way within a budget that is linear in what is chosen, such as a mean plus a multiple of a variance.

Unlike a time, a weight may be negative or zero. Each group takes exactly one option, so that adding a constant to all
weights of a group and to the budget changes nothing: that makes every weight positive.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.arrays import FloatArray, IndexArray
from wastenot.frontiers.knapsack import Knapsack
from wastenot.frontiers.pareto import Groups

_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Cheapest:
    """The options of least cost within a linear budget.

    Attributes:
        options: of each group, counted from its first; shape (groups,).
        cost: their sum.
        lower_bound: no options within the budget cost less.
    """

    options: IndexArray
    cost: float
    lower_bound: float


def cheapest_within(
    cost: FloatArray, weight: FloatArray, start: IndexArray, budget: float, gap_tolerance: float = 0.0
) -> Cheapest:
    """One option of each group, of least cost, whose weights sum to no more than a budget, to rounding.

    Args:
        cost: of each option, groups laid end to end; positive; shape (options,).
        weight: of each option, of any sign; shape (options,).
        start: group ``g`` is ``start[g]:start[g + 1]``; shape (groups + 1,).
        budget: for the sum of weights.
        gap_tolerance: stop once the cost is proven to be within this fraction of the least possible.

    Raises:
        InfeasibleError: no options are within the budget.
    """
    scale = max(float(np.abs(weight).max()), 1e-300)
    shift = np.minimum.reduceat(weight, start[:-1]) - scale
    allowed = budget - float(shift.sum())
    allowed += _ROUNDING * (abs(allowed) + len(shift) * scale)
    groups = Groups(weight - np.repeat(shift, np.diff(start)), cost, start)
    best = Knapsack(groups).least_energy(allowed, gap_tolerance)
    return Cheapest(best.options - start[:-1], best.energy_j, best.lower_bound_j)
