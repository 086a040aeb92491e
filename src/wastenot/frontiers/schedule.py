"""Schedules of least energy within a time, where settings take time to change: a price of time, a bound and a gap.

At a price of time the cheapest schedule is found by dynamic programming (:mod:`wastenot.frontiers.stays`), without what
couples the end of a round to its beginning, so that its cost is a lower bound; the price is that at which the budget is
just kept. Schedules on either side of the budget are then combined: where two differ between calls on which they agree,
each such stretch is exchanged by itself, the most energy for the time first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from wastenot.arrays import FloatArray, IndexArray
from wastenot.errors import InfeasibleError
from wastenot.frontiers.stays import Start, Stays
from wastenot.frontiers.switched_work import Stay, SwitchedWork, Totals

_LANES = 6  # prices looked at at once
_ROUNDS = 6
_SAME = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A way to run a round of some work.

    Attributes:
        setting: of each call, shape (calls,).
        totals: what it takes, with its switches.
        lower_bound_j: no schedule within the budget uses less energy.
    """

    setting: IndexArray
    totals: Totals
    lower_bound_j: float

    @property
    def gap(self) -> float:
        """(energy − lower bound) / energy."""
        return max(0.0, 1.0 - self.lower_bound_j / self.totals.energy_j)


class _Found(NamedTuple):
    setting: IndexArray
    totals: Totals


@dataclass(eq=False)
class Scheduler:
    """Answers questions about the schedules of some work; what it has found serves further ones.

    Attributes:
        work: the work.
    """

    work: SwitchedWork
    _found: dict[bytes, _Found] = field(default_factory=dict)  # schedules that keep their stays
    _bounds: list[tuple[float, float]] = field(default_factory=list)  # (price, least cost at it)

    def __post_init__(self) -> None:
        for setting in range(self.work.settings):
            self._consider(np.full(self.work.calls, setting))

    def _consider(self, setting: IndexArray) -> _Found | None:
        """Remember a schedule, if it keeps its stays."""
        setting = setting.astype(np.int16)
        key = setting.tobytes()
        if key not in self._found and self.work.keeps(setting):
            self._found[key] = _Found(setting, self.work.totals(setting))
        return self._found.get(key)

    def least_energy(self, budget_s: float, gap_tolerance: float = 1e-4) -> Schedule:
        """The schedule of least energy within a budget.

        Args:
            budget_s: for the weight of a round.
            gap_tolerance: stop once the energy is proven to be within this fraction of the least.

        Raises:
            InfeasibleError: none was found that is within it.
        """
        within = budget_s * (1.0 + 1e-12)
        base = min(self._found.values(), key=lambda each: each.totals.weight_s)
        scale = base.totals.energy_j / max(base.totals.weight_s, 1e-300)
        low, high = 0.0, 4.0 * scale
        prices = np.concatenate([[0.0], np.geomspace(0.05, 4.0, _LANES - 1) * scale])
        cut = 0
        for step in range(_ROUNDS):
            paths = self._solve(prices, cut)
            over = [totals.weight_s > within for _, totals in paths]
            if not over[0] and prices[0] == 0.0:
                break
            if over[-1] and step < 3 and prices[-1] == high:
                low, high = high, 16.0 * high
                prices = np.geomspace(low, high, _LANES)
                continue
            last = max((index for index, each in enumerate(over) if each), default=-1)
            low = prices[last] if last >= 0 else low
            high = prices[last + 1] if last + 1 < len(prices) else high
            best = self._best(within)
            bound = self.lower_bound_j(budget_s)
            if best is not None and best.totals.energy_j - bound <= gap_tolerance * best.totals.energy_j:
                break
            near = paths[max(last, 0)][0]
            cut = self._middle(near, cut)
            prices = np.linspace(low, high, _LANES + 2)[1:-1]
        best = self._best(within)
        if best is None:
            raise InfeasibleError("no schedule is that fast")
        best = self._exchanged(best, within)
        bound = min(self.lower_bound_j(budget_s), best.totals.energy_j)
        return Schedule(best.setting.astype(np.intp), best.totals, bound)

    def least_time(self) -> Schedule:
        """The fastest schedule found, of little energy."""
        scale = max(each.totals.energy_j / max(each.totals.weight_s, 1e-300) for each in self._found.values())
        self._solve(np.array([1e3 * scale, 1e4 * scale]), 0)
        best = min(self._found.values(), key=lambda each: (each.totals.weight_s, each.totals.energy_j))
        return self._stated(best)

    def least_edp(self, exponent: float, budget_s: float = np.inf) -> Schedule:
        """A schedule of low ``energy * weight ** exponent`` within a budget, the least at some price of time.

        The logarithm is concave in energy and weight, so that a schedule which is cheapest at the price where its tangent
        lies has the least product, or one near to it; prices are followed until they stay.

        Raises:
            InfeasibleError: none was found that is within the budget.
        """

        def product(each: _Found) -> float:
            return float(np.log(each.totals.energy_j) + exponent * np.log(each.totals.weight_s))

        within, cut = budget_s * (1.0 + 1e-12), 0
        best = min(self._found.values(), key=product)
        for _ in range(_ROUNDS):
            price = exponent * best.totals.energy_j / best.totals.weight_s
            paths = self._solve(price * np.array([0.9, 1.0, 1.1]), cut)
            cut = self._middle(paths[1][0], cut)
            found = min(self._found.values(), key=product)
            if product(found) >= product(best) - _SAME:
                best = found
                break
            best = found
        if best.totals.weight_s > within:
            return self.least_energy(budget_s)
        return self._stated(best)

    def _stated(self, found: _Found) -> Schedule:
        bound = self.lower_bound_j(found.totals.weight_s)
        return Schedule(found.setting.astype(np.intp), found.totals, min(bound, found.totals.energy_j))

    def lower_bound_j(self, budget_s: float) -> float:
        """No schedule within the budget uses less energy, as far as prices were looked at."""
        return max((cost - (price * budget_s if price else 0.0) for price, cost in self._bounds), default=0.0)

    def _solve(self, prices: FloatArray, cut: int) -> list[tuple[IndexArray, Totals]]:
        """The cheapest schedules at some prices, ends of a round left free, and those near them that keep their stays."""
        stays = Stays(self.work, cut)
        cheapest = stays.cheapest(prices)
        self._bounds += zip(prices.tolist(), cheapest.cost.tolist(), strict=True)
        paths = []
        for price, setting in zip(prices, cheapest.setting, strict=True):
            found = self._consider(setting)
            if found is None:
                found = self._closed(setting, float(price))
            paths.append((setting, self.work.totals(setting) if found is None else found.totals))
        return paths

    def _closed(self, setting: IndexArray, price: float) -> _Found | None:
        """The cheapest schedule that keeps all of its stays and one of those of a schedule that does not."""
        stays = self.work.stays(setting)
        longest = max(stays, key=self.work.lasts_s)
        least_s = self.work.slow_stay_s if self.work.slow[longest.setting].any() else self.work.stay_s
        first = longest.first % self.work.calls
        cheapest = Stays(self.work, first).cheapest(np.array([price]), Start(longest.setting, least_s, 0.0))
        return self._consider(cheapest.setting[0])

    def _middle(self, setting: IndexArray, cut: int) -> int:
        """The call in the middle of the longest stay of a schedule."""
        stays = self.work.stays(setting)
        if len(stays) == 1:
            return cut
        longest = max(stays, key=self.work.lasts_s)
        return ((longest.first + longest.end) // 2) % self.work.calls

    def _best(self, within: float) -> _Found | None:
        fits = [each for each in self._found.values() if each.totals.weight_s <= within]
        return min(fits, key=lambda each: (each.totals.energy_j, each.totals.weight_s), default=None)

    # ---- combining -------------------------------------------------------------------------------------------

    def _exchanged(self, best: _Found, within: float) -> _Found:
        """The best schedule within the budget after exchanging stretches with those beyond it."""
        others = sorted(self._found.values(), key=lambda each: each.totals.energy_j)
        for other in others[:12]:
            if other.totals.energy_j < best.totals.energy_j:
                for start in sorted(self._found.values(), key=lambda each: each.totals.energy_j)[:12]:
                    if start.totals.weight_s <= within:
                        mixed = self._mixed(start, other, within)
                        if mixed is not None and mixed.totals.energy_j < best.totals.energy_j:
                            best = mixed
        return best

    def _mixed(self, base: _Found, other: _Found, within: float) -> _Found | None:
        """A schedule with the stretches of another that save most, while it stays within the budget."""
        differ = base.setting != other.setting
        if differ.all():
            return None
        changes = np.flatnonzero(differ != np.roll(differ, 1))
        if not len(changes):
            return None
        begins = [int(place) for place in changes if differ[place]]
        stretches = []
        for begin in begins:
            later = changes[changes > begin]
            end = int(later[0]) if len(later) else int(changes[0]) + self.work.calls
            stretches.append(np.arange(begin, end) % self.work.calls)
        gains = []
        for index, stretch in enumerate(stretches):
            tried = base.setting.copy()
            tried[stretch] = other.setting[stretch]
            totals = self.work.totals(tried)
            saved, longer = base.totals.energy_j - totals.energy_j, totals.weight_s - base.totals.weight_s
            if saved > 0.0:
                gains.append((saved / longer if longer > 0.0 else np.inf, index))
        now, best = base.setting, None
        weight = base.totals.weight_s
        for _, index in sorted(gains, reverse=True):
            tried = now.copy()
            tried[stretches[index]] = other.setting[stretches[index]]
            totals = self.work.totals(tried)
            if totals.weight_s <= within and self.work.keeps(tried):
                now, weight = tried, totals.weight_s
        del weight
        return self._consider(now) if now is not base.setting else best


__all__ = ["Schedule", "Scheduler", "Stay"]
