"""Synthetic traffic: requests drawn by a curve of rates, their lengths by distributions read off figures.

    rates over time       ─┐
    prompts and answers   ─┼─→ slot after slot, each with a seed of its own ─→ parts of any length
    their rank correlation─┘

Nothing drawn here was ever asked of a service: whatever is shown of it is to be called synthetic.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import Path

import numpy as np
from scipy.special import ndtr

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import BadInputError
from wastenot.planning.tariff import DAY_S, WEEK_S, csv_rows
from wastenot.serving.model.requests import Requests

_DEVIATES = 6.0
_BINS = 1 << 14
_LASTS_S = 3600.0
"""By which what varies from slot to slot has faded to a third."""


@dataclass(frozen=True, slots=True, eq=False)
class RateCurve:
    """A rate that is constant within each slot.

    Attributes:
        slot_s: length of a slot.
        rate_per_s: shape (slots,).
        since_monday_s: from Monday's first second, by the times' own clock, to the first slot; ``None`` where not known.
    """

    slot_s: float
    rate_per_s: FloatArray
    since_monday_s: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.slot_s < math.inf:
            raise BadInputError(f"`slot_s` ({self.slot_s:g}) must be above 0")
        rates = self.rate_per_s
        if not (len(rates) and np.isfinite(rates).all() and (rates >= 0).all() and rates.any()):
            raise BadInputError("`rate_per_s` must be rates of at least 0, one of them above 0")

    @property
    def duration_s(self) -> float:
        """From the beginning of the first slot to the end of the last."""
        return self.slot_s * len(self.rate_per_s)

    def with_mean(self, rate_per_s: float) -> RateCurve:
        """The same shape at another mean rate."""
        if not 0 < rate_per_s < math.inf:
            raise BadInputError(f"`rate_per_s` ({rate_per_s:g}) must be above 0")
        return replace(self, rate_per_s=self.rate_per_s * (rate_per_s / self.rate_per_s.mean()))

    def part(self, first: int, last: int) -> RateCurve:
        """Its slots from one on and before another."""
        since_s = None if self.since_monday_s is None else (self.since_monday_s + first * self.slot_s) % WEEK_S
        return RateCurve(self.slot_s, self.rate_per_s[first:last], since_s)

    def with_crowd(self, factor: float, begin_s: float, rise_s: float, length_s: float) -> RateCurve:
        """A flash crowd on top of it: the rate rises evenly to a multiple, stays there, and falls back at once.

        Slots are cut to the length of the rise's tenth part, and to at most their own.

        Args:
            factor: by which the rate is multiplied once all have come.
            begin_s: of the rise.
            rise_s: how long it takes.
            length_s: from the beginning of the rise to the end of the crowd.
        """
        if not (1 < factor < math.inf and 0 <= begin_s < self.duration_s and 0 < rise_s <= length_s < math.inf):
            raise BadInputError(
                f"a flash crowd needs `factor` ({factor:g}) above 1, `begin_s` ({begin_s:g}) within {self.duration_s:g} s, "
                f"and `rise_s` ({rise_s:g}) above 0, at most `length_s` ({length_s:g})"
            )
        finer = max(math.ceil(10 * self.slot_s / rise_s), 1)
        slot_s, rates = self.slot_s / finer, np.repeat(self.rate_per_s, finer)
        since_s = (np.arange(len(rates)) + 0.5) * slot_s - begin_s
        there = np.where((since_s >= 0) & (since_s < length_s), np.minimum(since_s / rise_s, 1.0), 0.0)
        return replace(self, slot_s=slot_s, rate_per_s=rates * (1 + (factor - 1) * there))


def varied(
    rate_per_s: FloatArray,
    slot_s: float,
    day: IndexArray,
    random: np.random.Generator,
    *,
    day_sigma: float = 0.1,
    slot_sigma: float = 0.05,
) -> FloatArray:
    """Rates as they might have been at another time: each day has a level of its own, and slots vary about it.

    Levels are log-normal and independent; what varies from slot to slot is log-normal and fades over about an hour. Both
    have a mean of 1.

    Args:
        rate_per_s: to vary; shape (slots,).
        slot_s: length of a slot.
        day: number of each slot's day, from 0; shape (slots,).
        random: draws.
        day_sigma: standard deviation of the logarithm of levels.
        slot_sigma: the same of slots.
    """
    from scipy.signal import lfilter  # takes half a second to import

    level = day_sigma * random.standard_normal(int(day.max()) + 1)[day]
    stays = math.exp(-slot_s / _LASTS_S)
    pushes = slot_sigma * math.sqrt(1 - stays**2) * random.standard_normal(len(rate_per_s))
    pushes[0] /= math.sqrt(1 - stays**2)
    wave = lfilter([1.0], [1.0, -stays], pushes)
    return np.asarray(rate_per_s * np.exp(level + wave - (day_sigma**2 + slot_sigma**2) / 2))


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """Of lengths: points of a cumulative distribution, straight between them.

    Attributes:
        probability: ascending from 0 to 1.
        tokens: at these probabilities, not falling.
    """

    probability: FloatArray
    tokens: FloatArray

    def __post_init__(self) -> None:
        points = (self.probability, self.tokens)
        if len(points[0]) != len(points[1]) or len(points[0]) < 2 or not all(np.isfinite(each).all() for each in points):
            raise BadInputError(
                "a distribution of lengths needs at least two probabilities, with a number of tokens for each"
            )
        if any((np.diff(each) < 0).any() for each in points) or points[0][0] < 0 or points[0][-1] > 1:
            raise BadInputError("a distribution of lengths must not decrease, with probabilities from 0 to 1")

    def of_deviates(self) -> IndexArray:
        """Lengths at evenly spaced standard normal deviates."""
        middle = (np.arange(_BINS) + 0.5) * (2 * _DEVIATES / _BINS) - _DEVIATES
        lengths: IndexArray = np.maximum(np.rint(np.interp(ndtr(middle), self.probability, self.tokens)), 1).astype(np.int32)
        return lengths


@dataclass(frozen=True, slots=True, eq=False)
class SyntheticTraffic:
    """A service's synthetic traffic.

    Attributes:
        curve: of its rate.
        prompt: lengths of prompts.
        output: lengths of answers.
        rank_correlation: Spearman's, of prompts' and answers' lengths.
        seed: of all that is drawn.
    """

    curve: RateCurve
    prompt: Distribution
    output: Distribution
    rank_correlation: float = 0.0
    seed: int = 0

    def parts(self, part_s: float = 3600.0) -> Iterator[Requests]:
        """The load part after part, arrivals counted from its beginning; however it is cut, the requests are the same."""
        if not 0 < part_s < math.inf:
            raise BadInputError(f"`part_s` ({part_s:g}) must be above 0")
        tables = self.prompt.of_deviates(), self.output.of_deviates()
        kept: tuple[FloatArray, IndexArray, IndexArray] = np.empty(0), np.empty(0, np.int32), np.empty(0, np.int32)
        slot = part = 0
        while part * part_s < self.curve.duration_s:
            end_s, pieces = (part + 1) * part_s, [kept]
            while slot < len(self.curve.rate_per_s) and slot * self.curve.slot_s < end_s:
                pieces.append(self._slot(slot, *tables))
                slot += 1
            arrival, prompt, output = (np.concatenate(each) for each in zip(*pieces, strict=True))
            cut = int(np.searchsorted(arrival, end_s))
            yield Requests(arrival[:cut], prompt[:cut], output[:cut])
            kept, part = (arrival[cut:], prompt[cut:], output[cut:]), part + 1

    def _slot(self, slot: int, prompts: IndexArray, outputs: IndexArray) -> tuple[FloatArray, IndexArray, IndexArray]:
        random = np.random.default_rng([self.seed, slot])
        count = int(random.poisson(self.curve.rate_per_s[slot] * self.curve.slot_s))
        waits = np.cumsum(random.standard_exponential(count + 1))
        arrival = (slot + waits[:-1] / waits[-1]) * self.curve.slot_s
        shared = 2 * math.sin(math.pi / 6 * self.rank_correlation)
        first, own = random.standard_normal((2, count), dtype=np.float32)
        second = np.float32(shared) * first + np.float32(math.sqrt(max(1 - shared**2, 0))) * own
        return arrival, prompts[_bin(first)], outputs[_bin(second)]


def read_curve(path: Path) -> RateCurve:
    """A curve of rates from a CSV: times (dates or seconds, evenly spaced), then requests a minute.

    Raises:
        BadInputError: the file cannot be read, or is not like this.
    """
    texts, times, per_minute = timed_values(path, "requests per minute")
    steps = np.diff(times)
    if not len(steps) or steps[0] <= 0 or not np.allclose(steps, steps[0]):
        raise BadInputError(f"{path}: it needs at least two evenly spaced times; fill the gaps")
    try:
        return RateCurve(float(steps[0]), np.array(per_minute) / 60, _since_monday_s(texts[0]))
    except BadInputError as error:
        raise BadInputError(f"{path}: {error}") from error


def read_distribution(path: Path, service: str, field: str) -> Distribution:
    """Lengths from a CSV with the columns ``service``, ``field``, ``cdf_percent`` and ``tokens``.

    Raises:
        BadInputError: the file cannot be read or has no such distribution.
    """
    try:
        with path.open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if (row["service"], row["field"]) == (service, field)]
        points = np.array([(float(row["cdf_percent"]) / 100, float(row["tokens"])) for row in rows]).reshape(-1, 2)
        return Distribution(points[:, 0], points[:, 1])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise BadInputError(f"{path}: has no {field} of {service} that is readable ({error!r})") from error
    except BadInputError as error:
        raise BadInputError(f"{path}: {field} of {service}: {error}") from error


def timed_values(path: Path, what: str) -> tuple[list[str], list[float], list[float]]:
    """The times of a CSV with a header as they are written and in seconds, and the number after each.

    Args:
        path: of the file.
        what: the numbers are.

    Raises:
        BadInputError: the file cannot be read, or is not like this.
    """
    texts, times, values = [], [], []
    for where, row in islice(csv_rows(path, f"give a CSV of times and {what}"), 1, None):
        try:
            times.append(time_of_s(row[0]))
            values.append(float(row[1]))
        except (ValueError, IndexError) as error:
            raise BadInputError(f"{where}: must be a time and {what}") from error
        texts.append(row[0])
    return texts, times, values


def time_of_s(text: str) -> float:
    """A time in seconds, or a date as seconds since 1970.

    Raises:
        ValueError: it is neither.
    """
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text.strip()).timestamp()


def _bin(deviates: FloatArray) -> IndexArray:
    return np.clip((deviates + _DEVIATES) * (_BINS / (2 * _DEVIATES)), 0, _BINS - 1).astype(np.int32)


def _since_monday_s(text: str) -> float | None:
    """Of a date, by its own clock; seconds say nothing of weekdays."""
    try:
        float(text)
    except ValueError:
        date = datetime.fromisoformat(text.strip())
        return DAY_S * date.weekday() + 3600.0 * date.hour + 60.0 * date.minute + date.second
    return None
