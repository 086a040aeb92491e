"""The load that controllers expect: forecast by slots of time where there is a forecast, and what was seen lately.

DynamoLLM's is a template, the median of past weeks slot by slot, whatever is seen (``follows=False``). Ours is calibrated:
corrected by the levels seen so far, with an upper quantile (:meth:`Demand.of`). Where no time is known to be like another,
there is one rate for all, scaled by what came lately.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.serving.cluster.classes import COUNT
from wastenot.serving.cluster.forecast import UPPER, WINDOWS_S, Forecast
from wastenot.serving.cluster.model import ClusterView

KEPT_S = 900.0
"""Over which the load of the moment is told."""
MINUTE_S = 60.0
LEAST = 0.8
"""Of a forecast, whatever little came."""
MOST = 2.0
"""The same, whatever much came."""
_LEVELS = (math.log(0.5), math.log(3.0))
"""Bounds of the levels that a calibrated forecast is corrected by."""
_DEVIATE = NormalDist().inv_cdf(UPPER)
_SEEN_S = max(KEPT_S, *WINDOWS_S)
_FEW = 500.0
"""Requests seen lately that say half as much about the shares of classes as any number can."""


@dataclass(slots=True, eq=False)
class Demand:
    """Rates by class: what was seen, and what is expected.

    Attributes:
        forecast_per_s: by slot and class; one slot alone holds for all times; shape (slots, 9).
        slot_s: length of a slot; the first begins at 0, the last holds on.
        follows: whether the forecast is changed by what came of it lately.
        forecast: of which ``forecast_per_s`` is what is expected, with its errors; ``None`` where they are not known.
    """

    forecast_per_s: FloatArray
    slot_s: float = math.inf
    follows: bool = True
    forecast: Forecast | None = None
    _seen: _Seen = field(init=False, repr=False)
    _told: list[float] = field(init=False, repr=False)
    _levels: tuple[float, FloatArray] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._seen = _Seen()
        self._told = [0.0, *np.cumsum(self.forecast_per_s.sum(axis=1)).tolist()]  # by slot
        self._levels = (0.0, np.zeros(len(WINDOWS_S)))

    @classmethod
    def of(cls, forecast: Forecast) -> Demand:
        """By a calibrated forecast."""
        return cls(forecast.expected_per_s, forecast.slot_s, forecast=forecast)

    @property
    def one_rate(self) -> bool:
        """Whether no time is known to be like another."""
        return len(self.forecast_per_s) == 1

    def see(self, view: ClusterView) -> None:
        """Take in the arrivals since the last visit."""
        self._seen.add(view.now_s, np.asarray(view.arrivals, dtype=np.float64))

    def recent(self, window_s: float) -> FloatArray:
        """Mean rate of each class over the last seconds, three hours at most; shape (9,).

        It is the forecast before anything was seen.
        """
        now_s = self._seen.now_s
        if not now_s > 0:
            return np.asarray(self.forecast_per_s[0])
        count, window_s = self._seen.over(min(window_s, now_s))
        rate = count / window_s
        if window_s < 10.0:  # too short to say much
            known = window_s / 10.0
            rate = known * rate + (1 - known) * self.forecast_per_s[0]
        return np.asarray(rate)

    def expected(self, now_s: float, until_s: float) -> FloatArray:
        """The mean rate of each class that is expected from then, now or later, until then; shape (9,)."""
        first, last = self._slots(now_s, until_s)
        if self.forecast is not None:
            rate = self.forecast.given(self._levels_at(now_s), self._slot_seen(first), first, last).mean(axis=0)
            return np.asarray(self._shares(rate, now_s) * rate.sum())
        rate = self.forecast_per_s[first : last + 1].mean(axis=0)
        if not self.follows or now_s < MINUTE_S:
            return np.asarray(rate)
        return np.asarray(self._shares(rate, now_s) * rate.sum() * self._ratio())

    def peak(self, now_s: float, until_s: float) -> FloatArray:
        """The greatest rate of each class that is expected of a slot from now on until then; shape (9,).

        Of a calibrated forecast, the sum of classes is what the greatest slot's sum will most likely stay below, at the
        forecast's share. One rate is scaled by what came of it in the last quarter of an hour, down a little and up to
        twice. In both, what was the load of a minute in this time may be so again. Of a template, it is the greatest slot.
        """
        first, last = self._slots(now_s, until_s)
        if self.forecast is not None:
            return self._upper(self.forecast, now_s, first, last)
        rate = self.forecast_per_s[first : last + 1].max(axis=0)
        if not self.follows or now_s < MINUTE_S:
            return np.asarray(rate)
        total = max(float(rate.sum()) * self._ratio(), self._seen.busiest_minute())
        return np.asarray(self._shares(rate, now_s) * total)

    def _upper(self, forecast: Forecast, now_s: float, first: int, last: int) -> FloatArray:
        """What the greatest slot of a span most likely stays below."""
        seen = self._slot_seen(first)
        rate = forecast.given(self._levels_at(now_s), seen, first, last).max(axis=0)
        span = forecast.error(seen, first, last)
        known = min(now_s / KEPT_S, 1.0)
        error = known * span + (1 - known) * max(span, forecast.unseen_error)
        busiest = self._seen.busiest_minute()
        surely = busiest - _DEVIATE * math.sqrt(busiest / MINUTE_S)  # few requests a minute are often many
        total = max(float(forecast.above(rate.sum(), error)), surely)
        return np.asarray(self._shares(rate, now_s) * total)

    def _slot_seen(self, first: int) -> int:
        """In which the last visit was, or a later one that is asked about."""
        return min(int(self._seen.now_s / self.slot_s), first)

    def _slots(self, now_s: float, until_s: float) -> tuple[int, int]:
        """The first and the last that lie in a span of time."""
        most = len(self.forecast_per_s) - 1
        return min(int(now_s / self.slot_s), most), min(int(max(until_s - 1e-9, now_s) / self.slot_s), most)

    def _ratio(self) -> float:
        """What came lately over what was forecast for the same time, within bounds."""
        now_s = self._seen.now_s
        came, begin_s = self._seen.total(min(KEPT_S, now_s))
        foreseen = max(self._told_until(now_s) - self._told_until(begin_s), 1e-9)
        return min(max(came / foreseen, LEAST), MOST)

    def _shares(self, rate_per_s: FloatArray, now_s: float) -> FloatArray:
        """Of classes: half as they are forecast, half as they came lately, once enough have come; they sum to 1."""
        share = rate_per_s / max(rate_per_s.sum(), 1e-9)
        if now_s < MINUTE_S:
            return np.asarray(share)
        came, _ = self._seen.over(KEPT_S)
        count = float(came.sum())
        weight = 0.5 * count / (count + _FEW)
        return np.asarray((1 - weight) * share + weight / max(count, 1e-9) * came)

    def _levels_at(self, now_s: float) -> FloatArray:
        """Logarithms of what came over what was expected, over windows that end with the last visit; 0 at the beginning."""
        seen_s = self._seen.now_s
        if self._levels[0] != seen_s and now_s >= MINUTE_S:
            known, levels = min(seen_s / KEPT_S, 1.0), []
            for window_s in WINDOWS_S:
                begin_s = max(seen_s - window_s, 0.0)
                came, begin_s = self._seen.total(seen_s - begin_s)
                level = math.log((came + 0.5) / (self._told_until(seen_s) - self._told_until(begin_s) + 0.5))
                levels.append(known * min(max(level, _LEVELS[0]), _LEVELS[1]))
            self._levels = (seen_s, np.array(levels))
        return self._levels[1]

    def _told_until(self, at_s: float) -> float:
        """Requests that were expected before a time."""
        slot = min(int(at_s / self.slot_s), len(self._told) - 2)
        begin_s = slot * self.slot_s if slot else 0.0  # one slot may hold for all times
        before = self._told[slot] * self.slot_s if slot else 0.0
        return before + (self._told[slot + 1] - self._told[slot]) * (at_s - begin_s)


class SlidingMaximum:
    """The greatest of the values added in the last ``window`` seconds.

    A value is dropped once a later one is as great, so that those kept fall from the oldest to the latest.
    """

    __slots__ = ("_kept", "_lasts_s")

    def __init__(self, lasts_s: float) -> None:
        self._kept, self._lasts_s = deque[tuple[float, float]](), lasts_s

    @property
    def greatest(self) -> float:
        """Of the values that are kept; 0 where there are none."""
        return self._kept[0][1] if self._kept else 0.0

    def add(self, now_s: float, value: float) -> None:
        """A value of now, which is kept whatever ``lasts_s`` is."""
        self.forget(now_s)
        while self._kept and self._kept[-1][1] <= value:
            self._kept.pop()
        self._kept.append((now_s, value))

    def forget(self, now_s: float) -> None:
        """Drop what is too old."""
        while self._kept and self._kept[0][0] <= now_s - self._lasts_s:
            self._kept.popleft()


class _Seen:
    """Arrivals of the last hours as running sums, by visit: what came over any time is a difference of two."""

    __slots__ = ("_busiest", "_sums", "_times_s", "_totals")

    def __init__(self) -> None:
        self._times_s, self._totals = [0.0], [0.0]
        self._sums = np.zeros((64, COUNT))
        self._busiest = SlidingMaximum(KEPT_S)

    @property
    def now_s(self) -> float:
        """Of the last visit; 0 before it."""
        return self._times_s[-1]

    def add(self, now_s: float, arrivals: FloatArray) -> None:
        """Those of a visit."""
        count = len(self._times_s)
        if count == len(self._sums):
            count = self._forget(now_s)
        np.add(self._sums[count - 1], arrivals, out=self._sums[count])
        self._times_s.append(now_s)
        self._totals.append(float(self._sums[count].sum()))
        self._busiest.forget(now_s)
        if now_s >= MINUTE_S:
            came, begin_s = self.total(MINUTE_S)
            self._busiest.add(now_s, came / (now_s - begin_s))

    def over(self, window_s: float) -> tuple[FloatArray, float]:
        """Arrivals by class since the last visit that is so long ago, and how long it is; shape (9,)."""
        before = self._before(window_s)
        return np.asarray(self._sums[len(self._times_s) - 1] - self._sums[before]), self.now_s - self._times_s[before]

    def total(self, window_s: float) -> tuple[float, float]:
        """The same of all classes, and when this visit was."""
        before = self._before(window_s)
        return self._totals[-1] - self._totals[before], self._times_s[before]

    def busiest_minute(self) -> float:
        """The greatest rate of all classes over a minute that ended in the last quarter of an hour."""
        return self._busiest.greatest

    def _before(self, window_s: float) -> int:
        """The last visit that is so long ago, or the first that is kept."""
        return max(bisect_right(self._times_s, self._times_s[-1] - window_s + 1e-9) - 1, 0)

    def _forget(self, now_s: float) -> int:
        """Make room: what is too long ago goes, in twice the space where most is still needed; returns what is left."""
        first = max(bisect_right(self._times_s, now_s - _SEEN_S) - 1, 0)
        left = len(self._times_s) - first
        kept = self._sums[first:].copy()
        if 2 * left > len(self._sums):
            self._sums = np.zeros((2 * len(self._sums), COUNT))
        self._sums[:left] = kept
        del self._times_s[:first], self._totals[:first]
        return left
