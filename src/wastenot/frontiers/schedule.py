"""Schedules of least energy within a time, where settings take time to change: a price of time, a bound and a gap.

At a price of time the cheapest schedule is found by dynamic programming (:mod:`wastenot.frontiers.stays`), without what
couples the end of a round to its beginning, so that its cost is a lower bound; the price is that at which the budget is
just kept (Lagrangian relaxation of the budget):

    energy                               At price p (J/s) the cheapest schedule has the least energy + p · weight: none lies
      │ fast ●                           below the line of slope −p through it. So none within the budget takes less energy
      │       ╲   ○ combined             than where this line crosses the budget, cost(p) − p · budget.
      │        ╲
      │  bound  ╳                        At the best p two schedules are cheapest, `fast` within the budget and `slow` over
      │         ┊╲                       it, and −p is the slope of the line through both.
      │         ┊  ● slow
      └─────────┴─────────── weight      `_price` and `_bracket` look for p, `combined` and `moved` then close the gap.
              budget

Schedules on either side of the budget are then combined: where two differ between calls on which they agree,
each such stretch is exchanged by itself (:mod:`wastenot.frontiers.exchange`), and what time is left is spent on moving
changes from call to call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import InfeasibleError
from wastenot.frontiers.exchange import combined, moved
from wastenot.frontiers.knapsack import Knapsack
from wastenot.frontiers.nodes import Node, Ways
from wastenot.frontiers.pareto import Groups, pareto_points
from wastenot.frontiers.stays import Start, Stays
from wastenot.frontiers.switched_work import ROUNDING, SwitchedWork, Totals

# Chosen by hand so that a schedule takes about a second. They decide how near schedules come to the bound, never whether it
# holds.

_FIRST_PRICES = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Of about the mean power of the work, E / T: the price of time where energy goes as 1 / T. A decade on either side, and
0."""
_HIGHEST_PRICE = 1e5
"""Of the same power: a schedule that saves 1e-5 of the time may cost as much energy again, so that only time decides."""
_MOST_STEPS = 6
"""Each looks at four prices between `slow` and `fast`, which leaves at most 0.3 of their interval: after six, 0.0007."""
_MOST_ROUNDS = 4
"""Of a search among a few settings that is then checked against all of them."""
_SAME = 1e-9
"""Relative, of costs that differ by rounding alone."""
_PARTNERS = 3
"""Schedules on either side of a budget that are combined: nine pairs."""
_ANCHOR_BINS = 4
"""Parts of the least stay in which the stay across the cut may end: the bound lets that stay be short by one of them."""
_ANCHOR_CELLS = 40_000_000
"""Of calls × settings² × anchors, at most."""
_FEW_STAYS = 32
"""In a round, up to which its ends matter: leaving one of more stays free is a small part of the whole."""
_ANCHOR_GAP = 0.001
"""Fraction of the energy within which a schedule is good enough for the dearer methods to stop."""


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


class _Open(NamedTuple):
    """A cheapest schedule at a price, of those looked at, with its round left open."""

    price: float
    cost: float
    weight_s: float
    energy_j: float
    setting: IndexArray


class _Line(NamedTuple):
    """Every schedule costs at least ``cost`` at a price, if its weight is within ``upto_s``."""

    price: float
    cost: float
    upto_s: float

    def least_j(self, budget_s: float) -> float:
        """A lower bound on the energy within a budget."""
        if budget_s > self.upto_s:
            return 0.0
        return self.cost - self.price * budget_s if self.price else self.cost


@dataclass(eq=False)
class Scheduler:
    """Answers questions about the schedules of some work; what it has found serves further ones.

    Attributes:
        work: the work.
    """

    work: SwitchedWork
    _found: dict[bytes, _Found] = field(default_factory=dict)  # schedules that keep their stays
    _lines: list[_Line] = field(default_factory=list)
    _open: list[_Open] = field(default_factory=list)
    _cut: int = 0

    def __post_init__(self) -> None:
        for setting in range(self.work.settings):
            self._consider(np.full(self.work.calls, setting))

    # ---- questions -------------------------------------------------------------------------------------------

    def least_energy(self, budget_s: float, gap_tolerance: float = 1e-4) -> Schedule:
        """The schedule of least energy within a budget.

        Args:
            budget_s: for the weight of a round.
            gap_tolerance: stop once the energy is proven to be within this fraction of the least.

        Raises:
            InfeasibleError: none was found that is within it.
        """
        within = budget_s * (1.0 + ROUNDING)
        if self.work.is_free and np.isfinite(budget_s):
            return self._free(within, gap_tolerance)
        if 2.0 * self.work.stay_s <= self._longest_s(budget_s):
            self._price(budget_s, gap_tolerance)
        elif (best := self._best(within)) is not None:  # there is no time for two stays
            return Schedule(best.setting, best.totals, best.totals.energy_j)
        best = self._best(within)
        if best is None:
            raise InfeasibleError("no schedule is that fast")
        if not self._proven(best, budget_s, gap_tolerance):
            best = self._improved(best, within)
        if self._longest_s(budget_s) < _FEW_STAYS * self.work.stay_s:
            for _ in range(2):
                if not self._proven(best, budget_s, max(gap_tolerance, _ANCHOR_GAP)):
                    self._anchor(best, budget_s, max(gap_tolerance, _ANCHOR_GAP))
                    best = self._best(within) or best
        return Schedule(best.setting, best.totals, min(self.lower_bound_j(budget_s), best.totals.energy_j))

    def least_time(self) -> Schedule:
        """The fastest schedule found, of little energy."""
        self._solve(self._scale * np.array([0.0, 1e3, 1e4]), np.inf)  # 0 for the bound: at high prices it says nothing
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

        best = min(self._found.values(), key=product)
        for _ in range(_MOST_STEPS):
            self._solve(exponent * best.totals.energy_j / best.totals.weight_s * np.array([0.9, 1.0, 1.1]), np.inf)
            found = min(self._found.values(), key=product)
            better = product(found) < product(best) - _SAME
            best = found
            if not better:
                break
        if best.totals.weight_s > budget_s * (1.0 + ROUNDING):
            return self.least_energy(budget_s)
        return self._stated(best)

    def lower_bound_j(self, budget_s: float) -> float:
        """No schedule within the budget uses less energy, as far as prices were looked at."""
        return max((line.least_j(budget_s) for line in self._lines), default=0.0)

    def _stated(self, found: _Found) -> Schedule:
        bound = self.lower_bound_j(found.totals.weight_s)
        return Schedule(found.setting, found.totals, min(bound, found.totals.energy_j))

    def _free(self, budget_s: float, gap_tolerance: float) -> Schedule:
        """Where nothing couples the calls, each takes its own setting: a multiple-choice knapsack."""
        work = self.work
        groups = Groups(work.weight_s.ravel(), work.energy_j.ravel(), np.arange(work.calls + 1) * work.settings)
        chosen = Knapsack(groups).least_energy(budget_s, gap_tolerance)
        setting = chosen.options - groups.start[:-1]
        return Schedule(setting, work.totals(setting), chosen.lower_bound_j or 0.0)

    # ---- the price of time -----------------------------------------------------------------------------------

    @property
    def _scale(self) -> float:
        """A power of the work, in watts."""
        return float(self.work.energy_j.min(axis=1).sum() / self.work.weight_s.min(axis=1).sum())

    def _longest_s(self, budget_s: float) -> float:
        """No schedule within a budget takes longer."""
        time_s, weight_s = self.work.time_s, self.work.weight_s
        some = time_s > 0.0
        most_s = float(time_s.max(axis=1).sum() + self.work.switch_s.max() * self.work.calls)
        if not np.isfinite(budget_s) or (weight_s[some] <= 0.0).any():
            return most_s
        return min(most_s, 1.05 * budget_s * float((time_s[some] / weight_s[some]).max()))

    def _work(self, budget_s: float) -> tuple[SwitchedWork, float]:
        """The work without changes that there is no time for, and the budget up to which that holds."""
        work, longest_s = self.work, self._longest_s(budget_s)
        if 2.0 * work.stay_s > longest_s:
            return work.without_changes(), budget_s
        if work.any_slow and 2.0 * work.slow_stay_s > longest_s:
            return work.without_slow(), budget_s
        return work, np.inf

    def _price(self, budget_s: float, gap_tolerance: float) -> None:
        """Look at prices until the schedules on either side of the budget are best at one and the same.

        Between bounds only settings are looked at that were best at a price near the one wanted; the bounds themselves are
        of all of them, and may bring in others.
        """
        if not any(line.upto_s >= budget_s for line in self._lines):
            self._solve(np.array(_FIRST_PRICES) * self._scale, budget_s)
            self._recut(self._open, budget_s)
        for _ in range(_MOST_ROUNDS):
            if self._is_proven(budget_s, gap_tolerance):
                return
            slow, fast = _sides(self._open, budget_s)
            if slow is None:  # nothing needs to be paid for
                return
            if fast is None:
                if slow.price >= _HIGHEST_PRICE * self._scale:
                    return
                self._solve(np.array([10.0, 1e3]) * max(slow.price, self._scale), budget_s)
                continue
            near = [each.setting for each in self._open if slow.price <= each.price <= fast.price]
            kept = np.unique(np.concatenate([np.unique(each) for each in near]))
            found = self._bracket([slow, fast], kept, budget_s)
            expected = found.cost - found.price * budget_s
            [whole] = self._solve(np.array([found.price]), budget_s)
            if whole.cost - whole.price * budget_s >= expected * (1.0 - 0.2 * gap_tolerance):
                return

    def _bracket(self, near: list[_Open], kept: IndexArray, budget_s: float) -> _Open:
        """A schedule at the price at which those on both sides of the budget are best, among the settings kept."""
        at_price = near[0]
        for _ in range(_MOST_STEPS):
            slow, fast = _sides(near, budget_s)
            if slow is None or fast is None:
                break
            # Where both cost the same. If nothing is cheaper there, that is the price wanted, else what is cheaper takes the
            # place of one of them: the cutting-plane method on the dual, which is concave and piecewise linear in p.
            price = (fast.energy_j - slow.energy_j) / (slow.weight_s - fast.weight_s)
            if not slow.price < price < fast.price:
                price = 0.5 * (slow.price + fast.price)
            line = slow.energy_j + price * slow.weight_s
            between = [slow.price + part * (fast.price - slow.price) for part in (0.2, 0.5, 0.8)]
            new = self._solve(np.array(sorted({price, *between})), budget_s, kept)
            near += new
            at_price = min(new, key=lambda each: abs(each.price - price))
            if at_price.cost >= line - _SAME * abs(line) or fast.price - slow.price <= 1e-6 * fast.price:
                break
            self._recut(near, budget_s)
        return at_price

    def _is_proven(self, budget_s: float, gap_tolerance: float) -> bool:
        best = self._best(budget_s * (1.0 + ROUNDING))
        return best is not None and self._proven(best, budget_s, gap_tolerance)

    def _recut(self, near: list[_Open], budget_s: float) -> None:
        """Cut rounds in the middle of the longest stay of a schedule near the budget, where that changes least."""
        longest = self.work.longest(min(near, key=lambda each: abs(each.weight_s - budget_s)).setting)
        if longest.end - longest.first < self.work.calls:
            self._cut = ((longest.first + longest.end) // 2) % self.work.calls

    def _solve(self, prices: FloatArray, budget_s: float, kept: IndexArray | None = None) -> list[_Open]:
        """The cheapest open rounds at some prices, and closed ones near them.

        Args:
            prices: in J/s.
            budget_s: only schedules within it are asked for.
            kept: settings to look at; ``None`` for all, which gives lower bounds.
        """
        work, upto_s = self._work(budget_s)
        if kept is None:
            cheapest = Stays(work, self._cut).cheapest(prices)
            self._lines += [
                _Line(price, cost, upto_s)
                for price, cost in zip(prices.tolist(), cheapest.bound.min(axis=1).tolist(), strict=True)
            ]
            rounds = cheapest.setting
        else:
            cheapest = Stays(work.only(kept), self._cut).cheapest(prices)
            rounds = kept[cheapest.setting]
        new, opened = [], []
        for price, cost, setting in zip(prices.tolist(), cheapest.cost.tolist(), rounds, strict=True):
            totals = self.work.totals(setting, cut=self._cut)
            new.append(_Open(price, cost, totals.weight_s, totals.energy_j, setting))
            if self._consider(setting) is None:
                opened.append(new[-1])
        if kept is None:
            self._open += new
        if opened:
            self._close(work, opened)
        return new

    def _close(self, work: SwitchedWork, opened: list[_Open]) -> None:
        """Cheapest closed rounds that have the longest stay of an open one, where they begin."""
        kept = np.unique(np.concatenate([np.unique(each.setting) for each in opened]))
        fewer = work.only(kept)
        longest = work.longest(opened[-1].setting)
        following = int(opened[-1].setting[longest.end % work.calls])
        least_s = work.slow_stay_s if work.any_slow and work.slow[longest.setting, following] else work.stay_s
        start = Start(int(np.searchsorted(kept, longest.setting)), least_s, 0.0)
        prices = np.array([each.price for each in opened])
        closed = Stays(fewer, longest.first % work.calls).cheapest(prices, [start] * len(prices))
        for cost, setting in zip(closed.cost.tolist(), closed.setting, strict=True):
            if np.isfinite(cost):
                self._consider(kept[setting])

    def _anchor(self, best: _Found, budget_s: float, gap_tolerance: float) -> None:
        """A better bound where a round has few stays: the stay at the cut has one setting, and lasts long enough in all.

        That stay ends some time after the cut; for each setting, and for each range of that time, the round is solved:

            ──── before ────┤ cut ├─ after ──┤         after in [k, k + 1) quarters of the least stay, thus
                                                       before at least the least stay − (k + 1) quarters

        The least of all these is a bound, and settings whose open round already costs too much need not be looked at.
        """
        work, upto_s = self._work(budget_s)
        line = max(self._lines, key=lambda each: each.least_j(budget_s))
        stays = Stays(work, self._cut)
        paid = line.price * budget_s if line.price else 0.0
        # By the setting of the first call after the cut, which is the last one of rounds that are cut after it.
        by_first = Stays(work, (self._cut + 1) % work.calls).cheapest(np.array([line.price])).bound[0]
        open_j = best.totals.energy_j * (1.0 - gap_tolerance)
        anchors = np.flatnonzero(by_first - paid < open_j)
        others = by_first[by_first - paid >= open_j]
        if len(anchors) * _ANCHOR_BINS * work.calls * work.settings**2 > _ANCHOR_CELLS:
            return
        part_s = work.stay_s / _ANCHOR_BINS
        starts = [
            Start(int(setting), part * part_s, work.stay_s - (part + 1) * part_s if part < _ANCHOR_BINS else 0.0)
            for setting in anchors
            for part in range(_ANCHOR_BINS + 1)
        ]
        costs = others.tolist()
        if starts:
            found = stays.cheapest(np.full(len(starts), line.price), starts)
            costs += found.cost.tolist()
            for setting in found.setting:
                self._consider(setting)
        self._lines.append(_Line(line.price, min(costs), upto_s))

    # ---- schedules that keep their stays ---------------------------------------------------------------------

    def _consider(self, setting: IndexArray) -> _Found | None:
        """Remember a schedule, if it keeps its stays."""
        key = setting.astype(np.int16).tobytes()
        if key not in self._found and self.work.keeps(setting):
            self._found[key] = _Found(setting, self.work.totals(setting))
        return self._found.get(key)

    def _best(self, within: float) -> _Found | None:
        fits = [each for each in self._found.values() if each.totals.weight_s <= within]
        return min(fits, key=lambda each: (each.totals.energy_j, each.totals.weight_s), default=None)

    def _proven(self, best: _Found, budget_s: float, gap_tolerance: float) -> bool:
        return best.totals.energy_j - self.lower_bound_j(budget_s) <= gap_tolerance * best.totals.energy_j

    def _improved(self, best: _Found, within: float) -> _Found:
        """The best schedule within the budget after exchanging stretches and moving changes."""
        price = max((each.price for each in self._open if each.weight_s > within), default=0.0)

        def cost(each: _Found) -> float:
            return each.totals.energy_j + price * each.totals.weight_s

        near = sorted(self._found.values(), key=cost)
        fast = [each for each in near if each.totals.weight_s <= within][:_PARTNERS]
        slow = [each for each in near if each.totals.weight_s > within][:_PARTNERS]
        for base in fast:
            for other in slow:
                mixed = self._consider(combined(self.work, base.setting, other.setting, within))
                if mixed is not None and mixed.totals.weight_s <= within and mixed.totals.energy_j < best.totals.energy_j:
                    best = mixed
        for insert in (False, True):
            for base in [best, *fast, *slow] if not insert else [best]:
                found = self._consider(moved(self.work, base.setting, within, price, insert))
                if found is not None and found.totals.weight_s <= within and found.totals.energy_j < best.totals.energy_j:
                    best = found
            if self._proven(best, within, _ANCHOR_GAP) or len(self.work.stays(best.setting)) > _FEW_STAYS:
                break
        return best


def _sides(near: Sequence[_Open], budget_s: float) -> tuple[_Open | None, _Open | None]:
    """The dearest price at which the budget is exceeded, and the cheapest above it at which it is kept."""
    over = [each for each in near if each.weight_s > budget_s]
    slow = max(over, key=lambda each: each.price, default=None)
    within = [each for each in near if each.weight_s <= budget_s and (slow is None or each.price > slow.price)]
    return slow, min(within, key=lambda each: each.price, default=None)


def scheduled_ways(nodes: Sequence[Node], stay_s: float, switch_s: float, switch_j: float, points: int) -> Ways:
    """The schedules of some calls as ways of one piece of work, from the fastest to that of least energy.

    Args:
        nodes: the calls in order of execution, each one decision.
        stay_s: least time between two switches.
        switch_s: that a switch takes.
        switch_j: that it uses.
        points: how many schedules to look for.
    """
    keys = [next(iter(node.tie_keys())) for node in nodes]
    settings = list(dict.fromkeys(key for each in keys for key in each))
    place = {key: index for index, key in enumerate(settings)}
    time_s, energy_j = np.full((2, len(nodes), len(settings)), np.inf)
    for call, (node, each) in enumerate(zip(nodes, keys, strict=True)):
        columns = [place[key] for key in each]
        time_s[call, columns], energy_j[call, columns] = node.groups.time_s, node.groups.energy_j
    work = SwitchedWork.of(time_s, energy_j, stay_s=stay_s, switch_s=switch_s, switch_j=switch_j)
    scheduler = Scheduler(work)
    fastest, least = scheduler.least_time(), scheduler.least_energy(np.inf)
    budgets = np.linspace(fastest.totals.weight_s, least.totals.weight_s, max(2, points))
    found = [fastest, *(scheduler.least_energy(budget) for budget in budgets.tolist()), least]
    found = [each for each in found if np.isfinite(time_s[np.arange(len(nodes)), each.setting]).all()]
    if not found:
        raise InfeasibleError("the calls have no schedule: no setting is possible for all of them for long enough")
    times, energies = (np.array([getattr(each.totals, name) for each in found]) for name in ("time_s", "energy_j"))
    kept = pareto_points(Groups.of_one(times, energies)).tolist()
    labels = [tuple(settings[index] for index in found[each].setting.tolist()) for each in kept]
    return Ways(times[kept], energies[kept], labels)
