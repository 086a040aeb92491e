"""One way for each of several decisions, of least energy within bounds on weighted means of their latencies.

Bounds are judged without rounding. :mod:`wastenot.frontiers.mix` says what the decisions are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from wastenot.arrays import FloatArray, IndexArray
from wastenot.errors import InfeasibleError
from wastenot.frontiers.algebra import Frontier
from wastenot.frontiers.exact import exact_sum
from wastenot.frontiers.nodes import Node, Sequenced, Ways, Weighted

_GAP = 1e-9  # relative, at which an integer program counts as solved
_ROUNDING = 1e-12  # relative, of a sum of weighted latencies; nearer to a bound than this it is summed without rounding
_TOLERANCE = 1e-6  # relative, to which HiGHS keeps bounds
_MOST_LEFT_OUT = 40  # combinations that break a bound by less than that


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound on a latency.

    Attributes:
        latency: its name.
        at_most: in seconds, or as a share.
        of: the class it is on; ``None`` is the weighted mean over all.
    """

    latency: str
    at_most: float
    of: str | None = None

    def __str__(self) -> str:
        return f"{self.latency} of {self.of or 'all'} at most {self.at_most:g}"


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """One way of several: for a class, or for all of them.

    Attributes:
        ways: that keep the bounds on classes, as indices into those of the class.
        energy_j: its share in the mean; shape (ways,).
        latency: its share in each mean that is bounded; shape (bounds, ways).
        of: the share and the latencies, by name, of each class that it is for.
    """

    ways: IndexArray
    energy_j: FloatArray
    latency: FloatArray
    of: list[tuple[Fraction, Mapping[str, FloatArray]]]


def shares_of(weights: Sequence[float]) -> tuple[Fraction, ...]:
    """Weights as parts of their sum, without rounding."""
    exact = [Fraction(weight) for weight in weights]
    whole = sum(exact, Fraction(0))
    return tuple(weight / whole for weight in exact)


def keeps(decisions: list[Decision], taken: Sequence[int], bound: Bound, row: int) -> bool:
    """Whether what is taken keeps a bound on all; without rounding where that could hide the answer."""
    rounded = math.fsum(float(each.latency[row, way]) for each, way in zip(decisions, taken, strict=True))
    if not abs(rounded - bound.at_most) <= _ROUNDING * max(rounded, abs(bound.at_most)):
        return rounded < bound.at_most
    terms = (
        (share, float(latency_s[bound.latency][each.ways[way]]))
        for each, way in zip(decisions, taken, strict=True)
        for share, latency_s in each.of
    )
    return exact_sum(terms) <= Fraction(bound.at_most)


def relaxed(decisions: list[Decision], on_all: tuple[Bound, ...]) -> tuple[float, tuple[float, ...]]:
    """The least energy where classes may be split, and the price of each bound.

    The energy is the Lagrangian's at these prices, which bounds it from below whatever tolerance they were found with.
    """
    from scipy.optimize import linprog

    if not on_all:
        return math.fsum(float(each.energy_j.min()) for each in decisions), ()
    finite = [np.isfinite(each.latency).all(axis=0) for each in decisions]
    if not all(usable.any() for usable in finite):
        raise InfeasibleError("no way of a class keeps all bounds at once; loosen one", asked=str(on_all[0]))
    energy = np.concatenate([each.energy_j[usable] for each, usable in zip(decisions, finite, strict=True)])
    latency = np.concatenate([each.latency[:, usable] for each, usable in zip(decisions, finite, strict=True)], axis=1)
    one_each, limits, scale = _matrices([int(usable.sum()) for usable in finite], on_all)
    solved = linprog(
        energy,
        A_ub=latency / scale[:, None],
        b_ub=limits / scale,
        A_eq=one_each,
        b_eq=np.ones(len(decisions)),
        method="highs",
    )
    if solved.status != 0:
        raise InfeasibleError("no mixture of ways keeps all bounds at once; loosen one")
    prices = np.maximum(-np.asarray(solved.ineqlin.marginals) / scale, 0.0)
    paid = [
        float((each.energy_j[usable] + prices @ each.latency[:, usable]).min())
        for each, usable in zip(decisions, finite, strict=True)
    ]
    return math.fsum([*paid, -float(prices @ limits)]), tuple(prices.tolist())


def _matrices(sizes: Sequence[int], on_all: tuple[Bound, ...]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Which variable belongs to which decision, the bounds, and what a row is divided by."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    limits = np.array([bound.at_most for bound in on_all])
    return (owner[None, :] == np.arange(len(sizes))[:, None]).astype(np.float64), limits, np.where(limits > 0, limits, 1.0)


def cheapest(decisions: list[Decision], on_all: tuple[Bound, ...]) -> tuple[list[int], float]:
    """What each decision takes, and a lower bound on the energy.

    Raises:
        InfeasibleError: nothing keeps all bounds on all at once.
    """
    taken = [int(np.argmin(each.energy_j)) for each in decisions]
    if all(keeps(decisions, taken, bound, row) for row, bound in enumerate(on_all)):
        return taken, math.fsum(float(each.energy_j.min()) for each in decisions)
    if len(decisions) == 1:
        for way in np.argsort(decisions[0].energy_j, kind="stable").tolist():
            if all(keeps(decisions, [way], bound, row) for row, bound in enumerate(on_all)):
                return [way], float(decisions[0].energy_j[way])
        raise InfeasibleError("no way keeps all bounds at once; loosen one")
    # a way whose own share is over a bound cannot be part of anything that keeps it
    usable = [
        np.flatnonzero((each.latency <= np.array([[bound.at_most * (1 + _ROUNDING)] for bound in on_all])).all(axis=0))
        for each in decisions
    ]
    if not all(len(ways) for ways in usable):
        raise InfeasibleError("no way of a class keeps all bounds at once; loosen one", asked=str(on_all[0]))
    positive = all((each.latency[0, ways] > 0).all() for each, ways in zip(decisions, usable, strict=True))
    if len(on_all) == 1 and positive:
        nodes: list[Node] = []
        for each, ways in zip(decisions, usable, strict=True):
            ((share, latency_s),) = each.of
            time_s = latency_s[on_all[0].latency][each.ways[ways]]
            nodes.append(Weighted(Ways(time_s, each.energy_j[ways] / float(share)), share))
        best = Frontier((Sequenced(tuple(nodes)),)).least_energy(within_s=on_all[0].at_most)
        chosen = [int(ways[option]) for ways, option in zip(usable, best.options.tolist(), strict=True)]
        return chosen, best.energy_j if best.lower_bound_j is None else best.lower_bound_j
    return _integer_program(decisions, usable, on_all)


def _integer_program(
    decisions: list[Decision], usable: list[IndexArray], on_all: tuple[Bound, ...]
) -> tuple[list[int], float]:
    """The same by HiGHS. It keeps bounds to a tolerance: what breaks one by less is left out, and the rest solved again."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    energy = np.concatenate([each.energy_j[ways] for each, ways in zip(decisions, usable, strict=True)])
    latency = np.concatenate([each.latency[:, ways] for each, ways in zip(decisions, usable, strict=True)], axis=1)
    sizes = list(map(len, usable))
    one_each, limits, scale = _matrices(sizes, on_all)
    first = np.cumsum([0, *sizes])
    left_out: list[FloatArray] = []
    lower_j = -math.inf
    for attempt in range(_MOST_LEFT_OUT + 1):
        last = attempt == _MOST_LEFT_OUT  # then bounds are kept with room to spare, and the gap says what that may cost
        constraints = [
            LinearConstraint(one_each, 1, 1),
            LinearConstraint(latency / scale[:, None], -np.inf, limits / scale * (1 - _TOLERANCE if last else 1 + _GAP)),
        ]
        if left_out:
            constraints.append(LinearConstraint(np.array(left_out), -np.inf, len(decisions) - 1))
        solved = milp(
            energy,
            constraints=constraints,
            integrality=np.ones(len(energy), dtype=np.intp),
            bounds=Bounds(0, 1),
            options={"mip_rel_gap": _GAP},
        )
        if solved.x is None:
            break
        if not last:
            lower_j = max(lower_j, float(solved.mip_dual_bound) * (1 - _GAP))
        picked = [int(np.argmax(solved.x[begin:end])) for begin, end in pairwise(first)]
        taken = [int(ways[option]) for ways, option in zip(usable, picked, strict=True)]
        if all(keeps(decisions, taken, bound, row) for row, bound in enumerate(on_all)):
            return taken, lower_j
        cut = np.zeros(len(energy))
        cut[first[:-1] + np.array(picked)] = 1.0
        left_out.append(cut)
    raise InfeasibleError("no choice keeps all bounds at once; loosen one, or serve a class in two ways")
