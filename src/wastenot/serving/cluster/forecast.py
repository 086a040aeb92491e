"""Arrivals to come, by class, from those of past weeks.

    past weeks ──→ template: the median of days alike, slot by slot              what published policies know
                      │
                      ├─ × the level seen lately, as far as levels last ──→ expected
                      └─ × errors of such forecasts of past days, by horizon ──→ upper, a quantile over the slots

Each past day is forecast from the other days, as if it were to come; these forecasts show how long a level lasts and how
large errors are. Arrivals are counts by slot and class, days of NaN where nothing is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from scipy.special import stdtrit

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray
from wastenot.core.errors import BadInputError
from wastenot.planning.tariff import DAY_S
from wastenot.serving.cluster.classes import COUNT

SLOT_S = 300.0
"""Of templates, as published."""
UPPER = 0.95
"""Share of the slots that are to stay below the upper quantile."""
WINDOWS_S = (900.0, 10_800.0)
"""Over which levels are seen: the moment, and the day so far."""
_FEWEST = 2
"""Days that a median is taken of; of days less alike where there are fewer."""
_HORIZONS = (0, 1, 2, 3, 4, 6, 9, 12, 18, 24, 36, 72, 144, 288)
"""Slots ahead for which levels and errors are fitted; straight between them."""
_LEAST = 0.5
"""Requests of a slot that are forecast, whatever little came."""
_UNKNOWN = 0.3
"""Standard deviation of a forecast's logarithm where no two past days can be compared."""
_FLOOR = 0.02
"""The same, at least."""
_SPANS = 36
"""Slots of the longest span whose greatest slot errors are fitted for."""
_RIDGE = 0.1
"""Days of evidence that levels do not last."""


@dataclass(frozen=True, slots=True, eq=False)
class Past:
    """Arrivals before the time to come.

    Attributes:
        counts: of requests by slot and class, up to what is to come; NaN where they are not known; shape (slots, 9).
        slot_s: length of a slot, which divides a day.
        since_monday_s: from Monday's first second to the first slot; ``None`` where weekdays are not known, and the first
            day begins with the first slot.

    Raises:
        BadInputError: counts or slots that are none, or nothing that is known.
    """

    counts: FloatArray
    slot_s: float = SLOT_S
    since_monday_s: float | None = None

    def __post_init__(self) -> None:
        if not (0 < self.slot_s <= DAY_S and math.isclose(DAY_S / self.slot_s, round(DAY_S / self.slot_s))):
            raise BadInputError(f"`slot_s` ({self.slot_s:g}) must divide a day")
        if self.counts.ndim != 2 or self.counts.shape[1] != COUNT or not np.isfinite(self.counts).any():
            raise BadInputError(f"`counts` must be of shape (slots, {COUNT}), some of them known")

    @property
    def slots_per_day(self) -> int:
        """Of any day."""
        return round(DAY_S / self.slot_s)

    @property
    def rate_per_s(self) -> FloatArray:
        """By slot and class; shape (slots, 9)."""
        return np.asarray(self.counts / self.slot_s)


def template(past: Past, ahead: int) -> FloatArray:
    """Rates of the slots to come: the median of past days of the same weekday, slot by slot and class by class.

    Where fewer than two days of the weekday are known, it is the median of all weekdays or of all days of weekends, and of
    all days where weekdays are not known (DynamoLLM, HPCA'25, section IV; SmartOClock, ISCA'24).

    Args:
        past: arrivals that were counted.
        ahead: slots to forecast.

    Returns:
        Rates in requests/s, shape (ahead, 9); half a request a slot at least, as one may come where none ever did.
    """
    days = _Days.of(past, ahead)
    found = np.concatenate([days.median(day)[0] for day in range(days.first_ahead, len(days.grid))])
    begin = days.begin + len(past.counts) - days.first_ahead * past.slots_per_day
    found = found[begin : begin + ahead]
    usual = np.nansum(past.counts, axis=0) + 1e-9
    none = found.sum(axis=1, keepdims=True) < _LEAST
    return np.asarray(np.where(none, _LEAST * usual / usual.sum(), found) / past.slot_s)


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """What is expected before the first request, how levels seen later change it, and how wrong it may be.

    Attributes:
        expected_per_s: rate by slot and class; shape (slots, 9).
        slot_s: length of a slot; the first begins at 0.
        weights: of the logarithms of the levels seen over :data:`WINDOWS_S`, by horizon in slots; shape (horizons, 2).
        slot_error: logarithm of a slot's rate over its expected one, which ``share`` of the slots do not exceed, by horizon;
            shape (horizons,).
        span_error: the same of the greatest slot of a span over the greatest expected one, by the horizon of its last slot.
        unseen_error: the same of a slot where nothing was seen of its day.
        share: of the slots that are to stay below the upper quantile.
    """

    expected_per_s: FloatArray
    slot_s: float
    weights: FloatArray
    slot_error: FloatArray
    span_error: FloatArray
    unseen_error: float
    share: float = UPPER

    @property
    def upper_per_s(self) -> FloatArray:
        """What ``share`` of the slots stay below, as known before the first request, of each class; shape (slots, 9)."""
        return self.above(self.expected_per_s, self.unseen_error)

    def given(self, levels: FloatArray, seen: int, first: int, last: int) -> FloatArray:
        """Rates expected in slots, given the levels seen.

        Args:
            levels: logarithms of what came over what was expected, over :data:`WINDOWS_S`; shape (2,).
            seen: slot up to which they were seen.
            first: slot to look at, from this one on.
            last: likewise, included.

        Returns:
            Shape (last - first + 1, 9).
        """
        expected = self.expected_per_s[first : last + 1]
        factor = np.exp(self.weights[first - seen : last + 1 - seen] @ levels)
        if len(factor) < len(expected):  # beyond the horizons that levels last for
            factor = np.concatenate([factor, np.ones(len(expected) - len(factor))])
        return np.asarray(expected * factor[:, None])

    def error(self, seen: int, first: int, last: int) -> float:
        """Of the greatest of these slots, as :attr:`span_error`; likewise, of a span that begins later, of its last slot."""
        errors = self.span_error if first == seen else self.slot_error
        return float(errors[min(last - seen, len(errors) - 1)])

    def above(self, rate_per_s: FloatArray, error: float | FloatArray) -> FloatArray:
        """Rates that counts of a slot stay below, by the error of the forecast and that of counting few requests."""
        deviate = NormalDist().inv_cdf(self.share)
        count = rate_per_s * self.slot_s
        few = (deviate**2 + 2) / 6 * (count > 0)  # of whole requests, whose distribution is skewed (Cornish and Fisher)
        aside = np.hypot(count * np.expm1(error), deviate * np.sqrt(count)) + few
        return np.asarray((count + aside) / self.slot_s)


def forecast(past: Past, ahead: int, *, share: float = UPPER) -> Forecast:
    """A calibrated forecast of the slots to come.

    Args:
        past: arrivals that were counted, of a week at least for it to be worth much.
        ahead: slots to forecast.
        share: of the slots that are to stay below the upper quantile.
    """
    days = _Days.of(past, ahead)
    earlier, used = days.of_past()
    usual = _with_shares(template(past, ahead), past.slot_s)
    errors, horizons, knots = _Errors.of(past, earlier), np.arange(_HORIZONS[-1] + 1), np.array(_HORIZONS, dtype=np.float64)
    if errors is None:
        error = np.full(len(horizons), _UNKNOWN * NormalDist().inv_cdf(share))
        return Forecast(usual, past.slot_s, np.zeros((len(horizons), 2)), error, error, float(error[0]), share)
    fewer = math.sqrt((1 + 1 / days.used_ahead()) / (1 + 1 / used))  # a median of more days errs less
    fitted = fewer * math.sqrt((errors.independent + 2) / (errors.independent - 2))  # two weights err more than they seem to
    at_knots = np.stack([errors.weights(each) for each in _HORIZONS])
    weights = np.stack([np.interp(horizons, knots, each) for each in at_knots.T], axis=1)
    slot = [errors.slot_error(each, weights[each], share) for each in _HORIZONS]
    spans = [each for each in _HORIZONS if each <= _SPANS]
    span = [errors.span_error(each, weights, share) for each in spans]
    span += [max(span[-1], each) for each in slot[len(spans) :]]
    return Forecast(
        usual,
        past.slot_s,
        weights,
        fitted * np.interp(horizons, knots, slot),
        fitted * np.interp(horizons, knots, np.maximum.accumulate(span)),
        fewer * errors.slot_error(0, np.zeros(2), share),
        share,
    )


def _with_shares(rate_per_s: FloatArray, slot_s: float) -> FloatArray:
    """The same totals, each class with its share of the hour: rare classes are few in a slot."""
    half = round(1800.0 / slot_s)
    sums = np.concatenate([np.zeros((1, COUNT)), np.cumsum(rate_per_s, axis=0)])
    slots = np.arange(len(rate_per_s))
    hourly = sums[np.minimum(slots + half + 1, len(slots))] - sums[np.maximum(slots - half, 0)]
    return np.asarray(rate_per_s.sum(axis=1, keepdims=True) * hourly / np.maximum(hourly.sum(axis=1, keepdims=True), 1e-12))


@dataclass(frozen=True, slots=True, eq=False)
class _Days:
    """Past and coming slots by day; shape of the grid (days, slots of a day, 9), NaN where unknown or to come."""

    grid: FloatArray
    weekday: IndexArray
    calendar: bool
    begin: int
    past: int
    first_ahead: int

    @classmethod
    def of(cls, past: Past, ahead: int) -> _Days:
        """From the day of the first slot to that of the last one to come."""
        since_s, a_day, count = past.since_monday_s or 0.0, past.slots_per_day, len(past.counts)
        begin = int(since_s % DAY_S / past.slot_s)
        days = math.ceil((begin + count + ahead) / a_day)
        grid = np.full((days * a_day, COUNT), np.nan)
        grid[begin : begin + count] = past.counts
        weekday = (int(since_s // DAY_S) + np.arange(days)) % 7
        first = (begin + count) // a_day
        return cls(grid.reshape(days, a_day, COUNT), weekday, past.since_monday_s is not None, begin, count, first)

    def median(self, day: int, fewest: int = _FEWEST) -> tuple[FloatArray, float]:
        """Of days like this one, and of how many on average; NaN where none is known; shape (slots of a day, 9)."""
        others = np.arange(len(self.grid)) != day
        alike = [others & (self.weekday == self.weekday[day])]
        alike += [others & (self.weekday // 5 == self.weekday[day] // 5)] if self.calendar else []
        found, used = np.full(self.grid.shape[1:], np.nan), np.zeros(self.grid.shape[1:], dtype=np.intp)
        for some in (*alike, others):
            found, used = _replaced(found, used, _median(self.grid[some]), fewest)
            if (used >= fewest).all():
                break
        return found, float(used[used > 0].mean()) if used.any() else 0.0

    def of_past(self) -> tuple[FloatArray, float]:
        """Each past slot as foreseen from the other days, and from how many on average; shape (past slots, 9)."""
        last = -(-(self.begin + self.past) // self.grid.shape[1])
        medians = [self.median(day, _FEWEST - 1) for day in range(last)]  # one of the days alike is left out
        used = [each for _, each in medians if each]
        flat = np.concatenate([each for each, _ in medians])
        return flat[self.begin : self.begin + self.past], float(np.mean(used)) if used else 1.0

    def used_ahead(self) -> float:
        """Days that a slot to come is forecast from, on average."""
        return max(float(np.mean([self.median(day)[1] for day in range(self.first_ahead, len(self.grid))])), 1.0)


def _median(days: FloatArray) -> tuple[FloatArray, IndexArray]:
    """Over days, of what is known, and how many of them are."""
    used = np.isfinite(days).sum(axis=0)
    if not len(days):
        return np.full(days.shape[1:], np.nan), used
    ordered = np.sort(days, axis=0)  # NaN come last
    middle = np.maximum(used - 1, 0) // 2, used // 2
    low, high = (np.take_along_axis(ordered, np.minimum(place, len(days) - 1)[None], axis=0)[0] for place in middle)
    return np.asarray((low + high) / 2), used


def _replaced(
    found: FloatArray, used: IndexArray, other: tuple[FloatArray, IndexArray], fewest: int
) -> tuple[FloatArray, IndexArray]:
    """The median of more days where there were too few."""
    few: BoolArray = (used < fewest) & (other[1] > used)
    return np.where(few, other[0], found), np.where(few, other[1], used)


@dataclass(frozen=True, slots=True, eq=False)
class _Errors:
    """How wrong past totals were foreseen."""

    total: FloatArray  # that came, by slot
    foreseen: FloatArray  # of it, from the other days
    error: FloatArray  # logarithm of one over the other; NaN where one is not known
    # logarithms of what came over what was foreseen, over :data:`WINDOWS_S` before each slot; shape (slots, 2)
    levels: FloatArray
    day_slots: int  # slots of a day

    @classmethod
    def of(cls, past: Past, earlier: FloatArray) -> _Errors | None:
        """From past counts and what the other days say of them; ``None`` where both are known of less than an hour."""
        total, foreseen = past.counts.sum(axis=1), earlier.sum(axis=1)
        both = np.isfinite(total) & np.isfinite(foreseen)
        if both.sum() * past.slot_s < 3600.0:
            return None
        with np.errstate(invalid="ignore"):
            error = np.where(both, np.log((total + 0.5) / (foreseen + 0.5)), np.nan)
        came, told = (np.concatenate([[0.0], np.cumsum(np.where(both, each, 0.0))]) for each in (total, foreseen))
        slots, levels = np.arange(len(total)), []
        for window_s in WINDOWS_S:
            begin = np.maximum(slots - round(window_s / past.slot_s), 0)
            there = told[slots] - told[begin]
            levels.append(np.where(there > 0, np.log((came[slots] - came[begin] + 0.5) / (there + 0.5)), np.nan))
        return cls(total, foreseen, error, np.stack(levels, axis=1), past.slots_per_day)

    @property
    def independent(self) -> float:
        """About how many errors are independent of one another: levels last for about three hours."""
        return max(float(np.isfinite(self.error).sum()) * 8 / self.day_slots, 4.0)

    def weights(self, horizon: int) -> FloatArray:
        """By which levels last for a number of slots: least squares, drawn to 0 a little; shape (2,)."""
        slots, error, levels = self._pairs(horizon)
        square = levels.T @ levels
        less = _RIDGE * self.day_slots / max(len(slots), 1) * np.diag(square.diagonal()) + 1e-9 * np.eye(2)
        return np.asarray(np.linalg.solve(square + less, levels.T @ error))

    def slot_error(self, horizon: int, weights: FloatArray, share: float) -> float:
        """Which ``share`` of the slots do not exceed, a number of slots ahead."""
        slots, error, levels = self._pairs(horizon)
        return self._quantile(slots, error - levels @ weights, share)

    def span_error(self, horizon: int, weights: FloatArray, share: float) -> float:
        """The same of the greatest slot from now to ``horizon`` ahead over the greatest expected; weights by horizon."""
        count = max(len(self.total) - horizon, 0)
        ahead = np.arange(horizon + 1)[:, None] + np.arange(count)
        expected = self.foreseen[ahead] * np.exp(weights[: horizon + 1] @ self.levels[:count].T)
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.log((self.total[ahead].max(axis=0) + 0.5) / (expected.max(axis=0) + 0.5))
        known = np.flatnonzero(np.isfinite(error))
        return self._quantile(known, error[known], share)

    def _pairs(self, horizon: int) -> tuple[IndexArray, FloatArray, FloatArray]:
        """Slots with their errors, and the levels seen a number of slots before."""
        error, levels = self.error[horizon:], self.levels[: max(len(self.error) - horizon, 0)]
        known = np.flatnonzero(np.isfinite(error) & np.isfinite(levels).all(axis=1))
        return known + horizon, error[known], levels[known]

    def _quantile(self, slots: IndexArray, error: FloatArray, share: float) -> float:
        """Of errors less those of counting, with what few days may hide: slots of a day err together."""
        if len(slots) < 12:
            return _UNKNOWN * NormalDist().inv_cdf(share)
        day = slots // self.day_slots
        count = np.bincount(day)
        mean = (np.bincount(day, error) / np.maximum(count, 1))[count > 0]
        variance, counting = float(np.mean(error**2)), float(np.mean(1 / (self.total[slots] + 1)))
        less = math.sqrt(max(variance - counting, _FLOOR**2) / max(variance, _FLOOR**2))
        variance = max(variance, _FLOOR**2)
        of_days = float(mean.var(ddof=1)) if len(mean) > 1 else variance
        free = variance**2 / (of_days**2 / max(len(mean) - 1, 1) + max(variance - of_days, 0.0) ** 2 / (12 * len(mean)))
        spread = math.sqrt(variance) * float(stdtrit(max(free, 1.0), share))
        return less * max(spread, float(np.quantile(error, share)))
