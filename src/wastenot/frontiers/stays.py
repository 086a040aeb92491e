"""The cheapest schedules at prices of time, by dynamic programming over the calls of a round.

With C[j, s] the cost of the calls before j at setting s, the cheapest schedule of these calls whose last stay, at s, has
lasted long enough costs

    V[j, s] = C[j, s] + min (W[i, s] − C[i, s])        over all i from which calls i to j at s last long enough
    W[j, s] = min V[j, r] + (cost of a switch from r to s before call j)        over all r

The minimum over i is a running one. Until a least stay has gone by, V depends on nothing after the stay's begin, so calls
are done in blocks that last so long; and several prices are done at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.frontiers.switched_work import ROUNDING, SwitchedWork

_BLOCK_CELLS = 400_000  # of prices × calls × settings (× settings, where changes differ) looked at in one step


class Start(NamedTuple):
    """A round begins within a stay at a setting.

    Attributes:
        setting: of the stay.
        after_s: least time that the stay continues from the begin of the round.
        before_s: least time that it has lasted before, at the round's end.
    """

    setting: int
    after_s: float
    before_s: float


class Cheapest(NamedTuple):
    """Cheapest schedules at some prices.

    Attributes:
        cost: energy + price × weight of each, shape (prices,); infinite where no schedule keeps to the start.
        setting: of each call, shape (prices, calls).
        bound: no schedule that ends a round with a setting costs less, shape (prices, settings).
    """

    cost: FloatArray
    setting: IndexArray
    bound: FloatArray


@dataclass(frozen=True, eq=False)
class Stays:
    """Cheapest schedules of some work, whose rounds are looked at from a call on.

    Attributes:
        work: the work.
        first: the call that a round is cut before. Without a :class:`Start`, stays may be short where they touch the cut,
            and the switch at the cut is left out. What it might save, by being late, is part of the bound.
    """

    work: SwitchedWork
    first: int = 0

    @cached_property
    def _ends_s(self) -> FloatArray:
        time_s = np.roll(self.work.time_s, -self.first, axis=0)
        return np.concatenate([np.zeros((1, self.work.settings)), np.cumsum(time_s, axis=0)])

    @cached_property
    def _latest(self) -> tuple[IndexArray, IndexArray]:
        """1 + the latest begin of a stay that may end before a call, 0 where there is none; (calls + 1, settings) each."""
        quick = self._latest_of(self.work.stay_s)
        return quick, self._latest_of(self.work.slow_stay_s) if self.work.any_slow else quick

    def _latest_of(self, stay_s: float) -> IndexArray:
        ends, most = self._ends_s, np.arange(len(self._ends_s))
        stay_s -= ROUNDING * float(ends[-1].max())
        columns = [
            np.minimum(np.searchsorted(column, column - stay_s, side="right"), most)
            for column in np.ascontiguousarray(ends.T)
        ]
        return np.ascontiguousarray(np.array(columns).T)

    def cheapest(self, prices: FloatArray, starts: Sequence[Start] | None = None) -> Cheapest:
        """The cheapest schedule at each price.

        Args:
            prices: of time, in J/s; shape (prices,).
            starts: that the schedules must keep to, one for each price; ``None`` for the lower bound.
        """
        return _Pass(self, prices, starts).cheapest()


class _Pass:
    """One way through the calls; arrays have shape (prices, calls + 1, settings)."""

    def __init__(self, stays: Stays, prices: FloatArray, starts: Sequence[Start] | None) -> None:
        work = self._work = stays.work
        self._first, self._prices, self._starts, self._ends_s = stays.first, prices, starts, stays._ends_s
        self._lanes = np.arange(len(prices))
        price = prices[:, None, None]
        weighed = np.roll(work.energy_j, -stays.first, axis=0) + price * np.roll(work.weight_s, -stays.first, axis=0)
        self._cost = np.zeros((len(prices), work.calls + 1, work.settings))
        np.cumsum(weighed, axis=1, out=self._cost[:, 1:])
        latest = stays._latest
        if starts is None:  # a stay may end anywhere that it began with the round
            opened = np.arange(work.calls + 1)[:, None] > 0
            latest = np.maximum(latest[0], opened), np.maximum(latest[1], opened)
        self._kinds = [_Kind.of(work, slow, latest[slow], price, stays.first) for slow in (False, True)[: 1 + work.any_slow]]
        # The running minimum of W − C up to each call, one place further, and where it was reached.
        self._begun = np.full((len(prices), work.calls + 2, work.settings), np.inf)
        self._begin = np.zeros(self._begun.shape, dtype=np.int32)
        # The same flat, and where in it a stay that ends before each call may have begun last, by kind: blocks are mostly of
        # one or two calls, where looking up by two indices takes longer than everything else.
        self._flat = self._begun.reshape(len(prices), -1)
        self._cells = [each.latest * work.settings + np.arange(work.settings) for each in self._kinds]
        if starts is None:
            self._begun[:, 1] = 0.0
        else:  # what the stay that a round begins in costs until it may end, shape (prices, calls + 1)
            self._opening = np.array([
                np.where(self._ends_s[:, each.setting] >= each.after_s, self._cost[lane, :, each.setting], np.inf)
                for lane, each in enumerate(starts)
            ])  # fmt: skip
            self._opening[:, 0] = np.inf
            self._opened = np.array([each.setting for each in starts])
            self._opening[:, -1] = [self._cost[lane, -1, each.setting] for lane, each in enumerate(starts)]  # and never ends

    def cheapest(self) -> Cheapest:
        self._forward()
        final, last = self._ends()
        best = final.argmin(axis=1)
        lanes = range(len(final))
        found = np.array([self._path(lane, int(best[lane]), int(last[lane])) for lane in lanes])
        return Cheapest(final[lanes, best], np.roll(found, self._first, axis=1), final + self._saved_at_cut())

    def _saved_at_cut(self) -> FloatArray:
        """The least that a switch at the cut costs by the setting before it, at most 0; shape (prices, settings).

        A switch that is late may save, where calls on either side would rather have the other's setting.
        """
        lanes, column = range(len(self._prices)), range(self._work.settings)
        saved = np.zeros((len(self._prices), self._work.settings))
        if self._starts is None:
            for kind in self._kinds:
                if kind.entered is not None:
                    costs = np.array([[kind.through(lane, 0, setting) for setting in column] for lane in lanes])
                    np.minimum(saved, costs.min(axis=1), out=saved)
        return saved

    def _value(self, kind: int, here: slice) -> FloatArray:
        """V of some calls, of stays that may be left by switches of one kind."""
        value: FloatArray = self._flat.take(self._cells[kind][here], axis=1)
        value += self._cost[:, here]
        if self._starts is not None:
            opened = self._lanes, slice(None), self._opened
            value[opened] = np.minimum(value[opened], self._opening[:, here])
        return value

    def _value_at(self, lane: int, kind: int, call: int) -> FloatArray:
        """:meth:`_value` of one call at one price."""
        value: FloatArray = self._flat[lane].take(self._cells[kind][call])
        value += self._cost[lane, call]
        if self._starts is not None:
            setting = self._starts[lane].setting
            value[setting] = min(value[setting], self._opening[lane, call])
        return value

    def _forward(self) -> None:
        work, cost, begun, begin = self._work, self._cost, self._begun, self._begin
        latest = self._kinds[0].latest.max(axis=1)
        cells = len(self._prices) * work.settings
        if any(each.same is None for each in self._kinds):
            cells *= work.settings
        most = max(1, _BLOCK_CELLS // cells)
        # Where the calls end that depend only on stays which begin with the first of them or before.
        ends = np.searchsorted(latest, np.arange(work.calls + 2), side="right").tolist()
        done, calls = 0, work.calls
        while done < calls:
            first = done + 1
            done = max(first, min(ends[first], calls + 1, first + most) - 1)
            here = slice(first, done + 1)
            found = [each.least(self._value(kind, here), here) for kind, each in enumerate(self._kinds)]
            lowest, begins = begun[:, first : done + 2], begin[:, first : done + 2]
            fresh = lowest[:, 1:]
            np.subtract(found[0] if len(found) == 1 else np.minimum(*found), cost[:, here], out=fresh)
            if done == first:
                before, after = lowest[:, 0], lowest[:, 1]
                begins[:, 1] = np.where(after < before, first, begins[:, 0])
                np.minimum(after, before, out=after)
            else:
                reached = np.minimum.accumulate(lowest, axis=1)
                begins[:, 1:] = np.where(fresh < reached[:, :-1], np.arange(first, done + 1)[:, None], 0)
                np.maximum.accumulate(begins, axis=1, out=begins)
                lowest[:] = reached

    def _ends(self) -> tuple[FloatArray, IndexArray]:
        """What a round costs by the setting that it ends with, and 1 + the latest begin of its last stay; by price."""
        calls, cost, lanes = self._work.calls, self._cost[:, -1], len(self._prices)
        if self._starts is None:
            return cost + self._begun[:, calls], np.full(lanes, calls)
        final, latest = np.full(cost.shape, np.inf), np.full(lanes, calls + 1)
        for lane, start in enumerate(self._starts):
            ends = self._ends_s[:, start.setting]
            if start.before_s > 0.0:
                latest[lane] = np.searchsorted(ends, ends[-1] - start.before_s, side="right")
            closed = cost[lane, start.setting] + self._begun[lane, latest[lane], start.setting]
            final[lane, start.setting] = min(closed, self._opening[lane, -1])
        return final, latest

    def _path(self, lane: int, setting: int, latest: int) -> IndexArray:
        found, upto = np.empty(self._work.calls, dtype=np.intp), self._work.calls
        kinds = list(enumerate(self._kinds))
        while True:
            opening = np.inf
            if self._starts is not None and setting == self._starts[lane].setting:
                opening = self._opening[lane, upto]
            if opening <= self._cost[lane, upto, setting] + self._begun[lane, latest, setting]:
                since = 0
            else:
                since = int(self._begin[lane, latest, setting])
            found[since:upto] = setting
            if since == 0:
                return found
            through = [self._value_at(lane, kind, since) + each.through(lane, since, setting) for kind, each in kinds]
            least = through[0] if len(through) == 1 else np.concatenate(through)
            which, left = divmod(int(least.argmin()), self._work.settings)
            latest = int(self._kinds[which].latest[since, left])
            upto, setting = since, left


@dataclass(frozen=True, eq=False)
class _Kind:
    """Switches that are quick, or those that take long.

    Attributes:
        latest: see :class:`Stays`.
        fixed: what each costs, from each setting (last) to each (but last), infinite where it is of the other kind; of a
            single price where none differ.
        same: what all cost, where they cost the same and nothing is late; settings then exchange by their minimum alone.
        entered: with ``left``, what those cost that are not on time, as products of three terms; (prices, calls + 1,
            settings, 3) and (prices, calls + 1, 3, settings); ``None`` where all are on time.
        left: see ``entered``.
    """

    latest: IndexArray
    fixed: FloatArray
    same: FloatArray | None
    entered: FloatArray | None
    left: FloatArray | None

    @classmethod
    def of(cls, work: SwitchedWork, slow: bool, latest: IndexArray, price: FloatArray, first: int) -> _Kind:
        """The switches of one kind, in a round that is cut before call ``first``."""
        allowed = (work.slow if slow else ~work.slow) | np.eye(work.settings, dtype=bool)
        fixed = np.where(allowed, work.switch_j + price * work.switch_s, np.inf).swapaxes(1, 2)
        late = work.slow_lateness if slow else work.lateness
        if late is None:
            apart = fixed[:, ~np.eye(work.settings, dtype=bool)]
            same = apart[:, :1] if apart.size and (apart == apart[:, :1]).all() and np.isfinite(apart).all() else None
            return cls(latest, fixed, same, None, None)
        call = (np.arange(work.calls + 1) + first) % work.calls
        sides = late.after, late.before, late.spared_after, late.spared_before
        after, before, spared_after, spared_before = (side[2][call] + price * side[1][call] for side in sides)
        per_after, per_before = late.per_after[call], late.per_before[call]
        off = 0.5 * late.off_s
        shape = after.shape
        left = np.stack(
            [after * per_after - spared_before * per_before, *(np.broadcast_to(p, shape) for p in (per_after, per_before))]
        )
        entered = np.stack([np.broadcast_to(off, shape), -off * spared_after, off * before])
        return cls(latest, fixed, None, np.moveaxis(entered, 0, -1).copy(), np.moveaxis(left, 0, -2).copy())

    def least(self, value: FloatArray, here: slice) -> FloatArray:
        """The cheapest way to each setting from one of them, for some calls; shape (prices, calls, settings)."""
        if self.same is not None:
            return np.asarray(np.minimum(value, np.minimum.reduce(value, axis=-1, keepdims=True) + self.same[:, :, None]))
        through = value[:, :, None, :] + self.fixed[:, None]
        if self.entered is not None and self.left is not None:
            through += self.entered[:, here] @ self.left[:, here]
        return np.asarray(through.min(axis=-1))

    def through(self, lane: int, call: int, setting: int) -> FloatArray:
        """What a switch to a setting costs from each, before a call."""
        fixed = self.fixed[lane, setting]
        if self.entered is None or self.left is None:
            return np.asarray(fixed)
        return np.asarray(fixed + self.entered[lane, call, setting] @ self.left[lane, call])
