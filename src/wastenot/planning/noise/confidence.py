"""Plans that keep a time budget with a stated confidence.

A plan's time over its budget is normal, with mean M, a variance V that is a sum over its units, and errors S common to all
units, vectors that are sums over units as well. It is at most 0 with confidence C if M + z √(V + |S|²) ≤ 0, where z is the
C-quantile. The root couples the units, but lies between lines. First, with any a² + |b|² = 1,

    √(V + |S|²) ≥ a √V + b · S, and equal where (a, b) has the direction of (√V, S);

then, of √V,

    √V ≤ (V / ρ + ρ) / 2                for every ρ > 0, and equal where ρ = √V;
    √V ≥ (V + ρ₁ ρ₂) / (ρ₁ + ρ₂)        where ρ₁ ≤ √V ≤ ρ₂.

With the third line the constraint is a budget that holds for every plan with √V in [ρ₁, ρ₂] that keeps the confidence, so
the least energy within it is a lower bound; with the second it is one that plans near ρ and the direction keep, and each is
checked by the constraint itself. Both budgets are linear and solved exactly.

With many units a plan at its own ρ is as good as optimal, and the price of time λ there proves it: no plan that keeps the
constraint costs less than the least of (cost + λ M) + λ z a √V, which is reached at a vertex of the lower hull of all plans
over V, since the root is concave. Where that bound leaves a gap, intervals of √V are halved, the most promising first, until
the bounds meet the best plan. The direction is that of the last plan; the search is repeated until it stays.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import NormalDist
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import InfeasibleError
from wastenot.frontiers.algebra import choice
from wastenot.frontiers.knapsack import Cheapest, cheapest_within
from wastenot.frontiers.nodes import Ways
from wastenot.frontiers.pareto import Groups
from wastenot.frontiers.relaxation import Relaxation
from wastenot.planning.noise.expectation import Excess, excess
from wastenot.planning.noise.posteriors import Posteriors
from wastenot.planning.objective import Objective, asked_for
from wastenot.planning.objective_kinds import Scope
from wastenot.planning.units import PlanUnit

# How far to search, by hand. Where a limit ends a search, its bound is below the best plan by more, and still a bound.
_MOST_INTERVALS = 24  # that are halved in one search
_GAP = 1e-5  # between a plan's cost and the bound, relative, at which it counts as proven; knapsacks are solved to a tenth
_MOST_TANGENTS = 6  # to the root, in one search, before intervals are halved
_SAME_ROOT = 1e-4  # relative change of √V after which another tangent would be the same line
_MOST_REPEATS = 6  # of the search, each with the direction of the last plan
_SAME_DIRECTION = 1e-3  # length of the difference of two unit vectors (a, b): the bound it costs is of second order
_FURTHER = 1.2  # times the time that a plan was over its budget, by which the next search stays below it
_ROUNDING = 1e-12
_MOST_LINES = 12  # linearisations of the energy-delay product, of which each can only improve it


def choose_confidently(
    units: Sequence[PlanUnit],
    posteriors: Posteriors,
    objective: Objective,
    confidence: float,
    scope: Scope,
    optimism_s: Callable[[int | None], float],
) -> tuple[tuple[int, ...], float, float]:
    """The options of least expected cost whose true time is within the slowdown with a confidence.

    The confidence holds under the normal model of :mod:`wastenot.planning.noise.shrinkage`, corrected for what that promises
    too much. For least energy the lower bound is valid under it too.

    Args:
        units: each gets a setting.
        posteriors: of true times and energies.
        objective: with a slowdown.
        confidence: above 0.5 and below 1.
        scope: ``local``: each unit stays within the slowdown limit with that confidence by itself.
        optimism_s: by how much the time of the best plan is expected too low, of all units (``None``) or of one.

    Returns:
        Option of each unit; a lower bound on the expected energy of any that keep a slowdown with the confidence; and that
        slowdown, which is the one allowed or less.

    Raises:
        InfeasibleError: nothing was found that stays within the slowdown limit with the confidence.
    """
    assert objective.max_slowdown is not None
    parts = []
    whole = scope == "global"
    for index, part in enumerate([units] if whole else [[unit] for unit in units]):
        try:
            parts.append(objective.least(SurePlans(part, posteriors, confidence, optimism_s(None if whole else index))))
        except InfeasibleError as error:
            unit = "" if whole else f" for '{part[0].name}' by itself"
            raise InfeasibleError(
                f"no plan{unit} was found that is that fast with {100.0 * confidence:g} % confidence; "
                "allow more time, measure more, or plan by the numbers as measured (`as_measured`)",
                asked=asked_for(objective.max_slowdown),
            ) from error
    options = tuple(option for part in parts for option in part.cheapest.options)
    return options, math.fsum(part.cheapest.lower_bound for part in parts), max(part.max_slowdown for part in parts)


class SurePlan(NamedTuple):
    """Options that keep a slowdown with the confidence."""

    cheapest: Cheapest
    max_slowdown: float


@dataclass(frozen=True, slots=True, eq=False)
class SurePlans:
    """Plans that keep a slowdown with a confidence; see :class:`wastenot.planning.objective_kinds.Plans`.

    Attributes:
        units: each gets a setting.
        posteriors: of true times and energies.
        confidence: between 0.5 and 1.
        optimism_s: by how much the time of the best plan is expected too low.
    """

    units: Sequence[PlanUnit]
    posteriors: Posteriors
    confidence: float
    optimism_s: float

    def _choice(self, max_slowdown: float) -> ConfidentChoice:
        return ConfidentChoice.of(excess(self.units, self.posteriors, max_slowdown), self.confidence, self.optimism_s)

    def least_energy(self, max_slowdown: float | None) -> SurePlan:
        """The options of least expected energy that keep a slowdown."""
        assert max_slowdown is not None
        search = self._choice(max_slowdown)
        return SurePlan(search.least(search.over.energy_j), max_slowdown)

    def least_edp(self, exponent: float, max_slowdown: float | None) -> SurePlan:
        """Options of low expected energy · time^exponent that keep a slowdown."""
        assert max_slowdown is not None
        return SurePlan(self._choice(max_slowdown).least_edp(exponent), max_slowdown)

    def least_time(self) -> SurePlan:
        """The options that are expected to be fastest, sure of no slowdown that they were not expected to have."""
        over = self._choice(0.0).over
        fastest = choice(Ways(over.time_s, over.energy_j, start=over.start)).least_time()
        found = Cheapest(tuple(fastest.options.tolist()), fastest.energy_j, 0.0, 0.0)
        return SurePlan(found, self.changes(SurePlan(found, 0.0))[0])

    def changes(self, found: SurePlan) -> tuple[float, float]:
        """Expected time and energy, as changes from auto."""
        over = self._choice(0.0).over
        auto = over.start[:-1]
        chosen = auto + np.array(found.cheapest.options)
        time_change, energy_change = (
            float(each[chosen].sum() / each[auto].sum() - 1.0) for each in (over.time_s, over.energy_j)
        )
        return time_change, energy_change


@dataclass(frozen=True, slots=True, eq=False)
class ConfidentChoice:
    """Choices of options within a budget that is kept with a confidence; get one with :meth:`of`.

    Attributes:
        over: time over the budget of each option.
        z: quantile of the confidence.
        doubted_s: half of the time by which any choice besides auto may be expected too low: as likely nothing as all of it.
    """

    over: Excess
    z: float
    doubted_s: float

    @classmethod
    def of(cls, over: Excess, confidence: float, optimism_s: float = 0.0) -> Self:
        """The choices of a plan.

        Args:
            over: time over the budget of each option.
            confidence: between 0.5 and 1.
            optimism_s: by how much the time of any choice besides auto may be expected too low.
        """
        return cls(over, NormalDist().inv_cdf(confidence), 0.5 * optimism_s)

    def keeps(self, options: tuple[int, ...]) -> bool:
        """Whether the budget is kept with the confidence."""
        return self._over_s(options) <= 0.0

    def _over_s(self, options: tuple[int, ...]) -> float:
        root, common = self._errors(options)
        doubted_s = self.doubted_s if any(options) else 0.0
        return self._mean_of(options) + doubted_s + self.z * math.hypot(root, *common[:-1], doubted_s)

    def least(self, cost: FloatArray) -> Cheapest:
        """The options of least cost that keep the confidence.

        Args:
            cost: of every option of every unit laid end to end; positive.

        Raises:
            InfeasibleError: none were found that keep it.
        """
        kept = self._worthwhile(cost)
        if kept.all():
            return self._least(cost)
        some = replace(self, over=self.over.only(kept))
        found = some._least(cost[kept])
        options = np.flatnonzero(kept)[some._points(found.options)] - self.over.start[:-1]
        return replace(found, options=tuple(options.tolist()))

    def _worthwhile(self, cost: FloatArray) -> NDArray[np.bool_]:
        """Options that no other of their unit, as cheap or cheaper, surely makes needless; auto always.

        Exchanging an option for another changes the deviation by at most the sum of their own deviations.
        """
        error = self.z * (np.sqrt(np.maximum(self.over.variance_s2, 0.0)) + np.sqrt((self.over.common_s**2).sum(axis=1)))
        unit = np.repeat(np.arange(len(self.over.start) - 1), np.diff(self.over.start))
        order = np.lexsort((cost, unit))
        # Units one below another, so that one running minimum serves them all.
        lowest, highest = self.over.mean_s - error, self.over.mean_s + error
        below = (highest.max() - lowest.min() + 1.0) * unit[order]
        reached = np.minimum.accumulate(highest[order] - below) + below
        before = np.concatenate([[np.inf], reached[:-1]])
        before[self.over.start[:-1]] = np.inf
        kept = np.empty(len(cost), dtype=np.bool_)
        kept[order] = before > lowest[order]
        kept[self.over.start[:-1]] = True
        return kept

    def _least(self, cost: FloatArray) -> Cheapest:
        along, across = 1.0, np.zeros(self.over.common_s.shape[1] + 1)
        best, bound, further_s = self._auto(cost), 0.0, 0.0
        for _ in range(_MOST_REPEATS):
            candidate, least = self._search(cost, along, across, further_s)
            bound = max(bound, least)
            if candidate is None:
                break
            over_s = self._over_s(candidate.options)
            if over_s <= 0.0 and (best is None or candidate.cost < best.cost):
                best = candidate
            further_s += _FURTHER * max(0.0, over_s)
            root, common = self._errors(candidate.options)
            length = math.hypot(root, *common)
            if length == 0.0:
                break
            turned = math.hypot(root / length - along, *(common / length - across))
            if over_s <= 0.0 and (turned <= _SAME_DIRECTION or bound >= candidate.cost * (1.0 - _GAP)):
                break
            along, across = root / length, common / length
        if best is None:
            raise InfeasibleError("no plan was found that stays within the time budget with that confidence")
        return replace(best, lower_bound=min(bound, best.cost))

    def _search(self, cost: FloatArray, along: float, across: FloatArray, further_s: float) -> tuple[Cheapest | None, float]:
        """The best plan within the budget with errors along one direction, and a lower bound on those that keep it.

        Plans stay ``further_s`` below the budget; the bound does not.
        """
        mean = self.over.mean_s + self.z * (self.over.common_s @ across[:-1])
        doubted_s = self.doubted_s * (1.0 + self.z * float(across[-1]))
        largest = math.sqrt(float(np.maximum.reduceat(self.over.variance_s2, self.over.start[:-1]).sum()))
        if along * largest == 0.0:
            found = self._within(cost, mean, -doubted_s - further_s)
            outer = self._within(cost, mean, -doubted_s)
            return found, math.inf if outer is None else outer.lower_bound
        best: Cheapest | None = None
        # Of each interval what plans cost at least that stay further below the budget, what any cost, and its ends.
        waiting: list[tuple[float, float, float, float]] = []
        stretch = self.z * along

        def keep(candidate: Cheapest) -> None:
            nonlocal best
            if best is None or candidate.cost < best.cost:
                root, common = self._errors(candidate.options)
                spent = self._mean_of(candidate.options) + self.z * (along * root + float(across @ common))
                if spent + self.doubted_s + further_s <= 0.0:
                    best = candidate

        def try_interval(low: float, high: float) -> None:
            known, slope = best.cost if best else np.inf, stretch / (low + high)
            outer, reached = self._outer(
                cost, mean + slope * self.over.variance_s2, -slope * low * high - doubted_s, further_s, known
            )
            if outer is None:
                return
            heapq.heappush(waiting, (reached, outer.lower_bound, low, high))
            if reached >= known * (1.0 - _GAP):
                return
            keep(outer)
            middle = math.sqrt(0.5) * high if low == 0.0 else math.sqrt(low * high)
            upper = mean + stretch * self.over.variance_s2 / (2.0 * middle)
            if inner := self._within(cost, upper, -0.5 * stretch * middle - doubted_s - further_s, known):
                keep(inner)

        first = self._within(cost, mean, -doubted_s)
        if first is None:
            return None, math.inf
        guess = min(max(self._errors(first.options)[0], 1e-3 * largest), 0.9 * largest)
        for _ in range(_MOST_TANGENTS):
            tangent, allowed_s = mean + stretch * self.over.variance_s2 / (2.0 * guess), -0.5 * stretch * guess - doubted_s
            found = self._within(cost, tangent, allowed_s - further_s)
            if found is None:
                break
            keep(found)
            least = self._relaxed(cost, mean, stretch, found.price) + found.price * (doubted_s + further_s)
            if best and least >= best.cost * (1.0 - _GAP):
                outer = (self._within(cost, tangent, allowed_s) if further_s else found) or found
                return best, self._relaxed(cost, mean, stretch, outer.price) + outer.price * doubted_s
            guess, before = min(max(self._errors(found.options)[0], 1e-3 * largest), 0.9 * largest), guess
            if abs(guess - before) <= _SAME_ROOT * before:
                break
        for low, high in pairwise((0.0, guess, largest)):
            try_interval(low, high)
        for _ in range(_MOST_INTERVALS):
            if not waiting or (best and waiting[0][0] >= best.cost * (1.0 - _GAP)):
                break
            *_, low, high = heapq.heappop(waiting)
            middle = math.sqrt(low * high) if low else 0.5 * high
            try_interval(low, middle)
            try_interval(middle, high)
        bounds = [least for _, least, *_ in waiting]
        return best, min([*bounds, *([best.cost] if best else [])], default=math.inf)

    def _relaxed(self, cost: FloatArray, mean: FloatArray, stretch: float, price: float) -> float:
        """The least of cost + price · (mean + stretch · √V) over all plans."""
        hull = Relaxation(Groups(self.over.variance_s2, cost + price * mean, self.over.start))
        return float((hull.reached_energy_j + price * stretch * np.sqrt(np.maximum(hull.reached_time_s, 0.0))).min())

    def _outer(
        self, cost: FloatArray, weight: FloatArray, budget: float, further_s: float, known: float
    ) -> tuple[Cheapest | None, float]:
        """The best plan within a budget, and what those cost at least that stay ``further_s`` below it.

        The latter ends a search for such plans: they may never come near the bound of all that are within the budget.
        """
        found = self._within(cost, weight, budget, known)
        if found is None or not further_s or found.lower_bound >= known * (1.0 - _GAP):
            return found, math.inf if found is None else found.lower_bound
        below = self._within(cost, weight, budget - further_s, known)
        return found, math.inf if below is None else below.lower_bound

    def _within(self, cost: FloatArray, weight: FloatArray, budget: float, known: float = np.inf) -> Cheapest | None:
        try:
            return cheapest_within(cost, weight, self.over.start, budget, _GAP / 10, known)
        except InfeasibleError:
            return None

    def _points(self, options: tuple[int, ...]) -> IndexArray:
        return np.asarray(self.over.start[:-1] + np.array(options))

    def _mean_of(self, options: tuple[int, ...]) -> float:
        return float(self.over.mean_s[self._points(options)].sum())

    def _errors(self, options: tuple[int, ...]) -> tuple[float, FloatArray]:
        """Root of the variance of a plan's time over the budget, and its common errors, the doubted optimism last."""
        points = self._points(options)
        common = np.append(self.over.common_s[points].sum(axis=0), self.doubted_s)
        return math.sqrt(max(0.0, float(self.over.variance_s2[points].sum()))), common

    def least_edp(self, exponent: float) -> Cheapest:
        """Options of low ``energy * time ** exponent`` that keep the confidence.

        The least of all options where they keep it; otherwise descent along tangents of the logarithm, which is concave in
        energy and time, so that every step has a linear cost and none goes up. ``lower_bound`` is of the energy.
        """
        energy, time = self.over.energy_j, self.over.time_s
        strict = self.least(energy)
        free = choice(Ways(time, energy, start=self.over.start)).least_edp(exponent)
        options = tuple(free.options.tolist())
        if self.keeps(options):
            return Cheapest(options, free.energy_j, min(strict.lower_bound, free.energy_j), 0.0)

        def totals(chosen: tuple[int, ...]) -> tuple[float, float]:
            point = self._points(chosen)
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
        return Cheapest(best, totals(best)[0], strict.lower_bound, 0.0)

    def _auto(self, cost: FloatArray) -> Cheapest | None:
        """Auto everywhere, where that keeps the confidence."""
        options = (0,) * (len(self.over.start) - 1)
        return Cheapest(options, float(cost[self.over.start[:-1]].sum()), 0.0, 0.0) if self.keeps(options) else None
