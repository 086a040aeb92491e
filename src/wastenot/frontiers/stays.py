"""The cheapest schedule at a price of time, by dynamic programming over the calls of a round.

With C[j, s] the cost of the calls before j at setting s, the cheapest schedule of these calls whose last stay, at s, has
lasted long enough costs

    V[j, s] = C[j, s] + min (W[i, s] − C[i, s])        over all i from which calls i to j at s last long enough
    W[j, s] = min V[j, r] + (cost of a switch from r to s before call j)        over all r

The minimum over i is a running one. Until a least stay has gone by, V depends on nothing after the stay's begin, so calls
are done in blocks that last so long; and several prices are done at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from wastenot.arrays import FloatArray, IndexArray
from wastenot.frontiers.switched_work import SwitchedWork

_BLOCK_CELLS = 1_000_000  # of prices × calls × settings × settings looked at in one step


class Start(NamedTuple):
    """A round begins within a stay at a setting.

    Attributes:
        setting: of the stay.
        after_s: least time that the stay goes on from the begin of the round.
        before_s: least time that it has lasted before, at the round's end.
    """

    setting: int
    after_s: float
    before_s: float


class Cheapest(NamedTuple):
    """Cheapest schedules at some prices.

    Attributes:
        cost: energy + price × weight of each, shape (prices,).
        setting: of each call, shape (prices, calls).
    """

    cost: FloatArray
    setting: IndexArray


@dataclass(frozen=True, eq=False)
class Stays:
    """Cheapest schedules of some work, whose rounds are looked at from a call on.

    Attributes:
        work: the work.
        first: the call that a round is cut before. Without a :class:`Start`, stays may be short where they touch the cut,
            and the switch at the cut is free: the cost is a lower bound.
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
        return self._latest_of(self.work.stay_s), self._latest_of(self.work.slow_stay_s)

    def _latest_of(self, stay_s: float) -> IndexArray:
        ends, most = self._ends_s, np.arange(len(self._ends_s))
        margin = 1e-12 * float(ends[-1].max())
        columns = [
            np.minimum(np.searchsorted(column, column - stay_s + margin, side="right"), most)
            for column in np.ascontiguousarray(ends.T)
        ]
        return np.ascontiguousarray(np.array(columns).T)

    def cheapest(self, prices: FloatArray, start: Start | None = None) -> Cheapest:  # noqa: PLR0915
        """The cheapest schedule at each price.

        Args:
            prices: of time, in J/s; shape (prices,).
            start: that schedules must keep to; ``None`` for the lower bound.
        """
        work, lanes = self.work, len(prices)
        calls, settings = work.calls, work.settings
        energy, weight = (np.roll(each, -self.first, axis=0) for each in (work.energy_j, work.weight_s))
        cost = np.zeros((lanes, calls + 1, settings))
        np.cumsum(energy + prices[:, None, None] * weight, axis=1, out=cost[:, 1:])
        switching = work.switch_j + prices[:, None, None] * work.switch_s
        quick, slow = self._latest
        opened = np.ones(calls + 1, dtype=bool) if start is None else self._ends_s[:, start.setting] >= start.after_s
        opened[0] = False
        quick, slow = (np.maximum(each, opened[:, None]) for each in (quick, slow))
        column = np.arange(settings)
        any_slow = bool(work.slow.any())

        begun = np.full((lanes, calls + 2, settings), np.inf)  # running minimum of W − C, one place further
        begin = np.zeros((lanes, calls + 2, settings), dtype=np.int32)
        came_from = np.zeros((lanes, calls + 1, settings), dtype=np.int16)
        begun[:, 1, :] = 0.0
        if start is not None:
            begun[:, 1, np.arange(settings) != start.setting] = np.inf
        latest = quick.max(axis=1)
        most = max(1, _BLOCK_CELLS // (lanes * settings * settings))
        done = 0
        while done < calls:
            end = min(int(np.searchsorted(latest, done + 1, side="right")), calls + 1, done + 1 + most)
            here = slice(done + 1, max(end, done + 2))
            value = cost[:, here] + begun[:, quick[here], column]
            if any_slow:
                late = cost[:, here] + begun[:, slow[here], column]
                through = np.where(work.slow, late[..., None], value[..., None])
            else:
                through = value[..., None]
            through = through + switching[:, None]
            self._add_lateness(through, prices, here)
            came = through.argmin(axis=2)
            came_from[:, here] = came
            fresh = np.take_along_axis(through, came[:, :, None], axis=2)[:, :, 0] - cost[:, here]
            both = np.concatenate([begun[:, done + 1 : done + 2], fresh], axis=1)
            lowest = np.minimum.accumulate(both, axis=1)
            begun[:, here.start + 1 : here.stop + 1] = lowest[:, 1:]
            newer = np.where(fresh < lowest[:, :-1], np.arange(here.start, here.stop)[None, :, None], 0)
            newer = np.concatenate([begin[:, done + 1 : done + 2], newer], axis=1)
            begin[:, here.start + 1 : here.stop + 1] = np.maximum.accumulate(newer, axis=1)[:, 1:]
            done = here.stop - 1

        if start is None:
            last = np.full(settings, calls)
            final = cost[:, calls] + begun[:, calls]
        else:
            last = np.zeros(settings, dtype=np.int64)
            last[start.setting] = self._latest_end(start)
            final = np.full((lanes, settings), np.inf)
            final[:, start.setting] = cost[:, calls, start.setting] + begun[:, last[start.setting], start.setting]
        best = final.argmin(axis=1)
        found = np.empty((lanes, calls), dtype=np.intp)
        for lane in range(lanes):
            place, setting, upto = int(last[best[lane]]), int(best[lane]), calls
            while True:
                since = int(begin[lane, place, setting])
                found[lane, since:upto] = setting
                if since == 0:
                    break
                before = int(came_from[lane, since, setting])
                place = int((slow if work.slow[before, setting] else quick)[since, before])
                upto, setting = since, before
        return Cheapest(final[np.arange(lanes), best], np.roll(found, self.first, axis=1))

    def _latest_end(self, start: Start) -> int:
        """1 + the latest begin of the last stay."""
        ends = self._ends_s[:, start.setting]
        if start.before_s <= 0.0:
            return self.work.calls + 1
        return int(np.searchsorted(ends, ends[-1] - start.before_s, side="right"))

    def _add_lateness(self, through: FloatArray, prices: FloatArray, here: slice) -> None:
        late = self.work.lateness
        if late is None:
            return
        call = (np.arange(here.start, here.stop) + self.first) % self.work.calls
        price = prices[:, None, None]
        after = late.after[2][call] + price * late.after[1][call]
        before = late.before[2][call] + price * late.before[1][call]
        with np.errstate(divide="ignore", invalid="ignore"):
            per_after = np.nan_to_num(1.0 / late.after[0][call])[None, :, :, None]
            per_before = np.nan_to_num(1.0 / late.before[0][call])[None, :, :, None]
        late_cost = (after[..., :, None] - after[..., None, :]) * per_after
        late_cost += (before[..., None, :] - before[..., :, None]) * per_before
        through += late_cost * late.off_s
