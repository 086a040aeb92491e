"""What a kilowatt-hour costs over time, in money or in grams of CO2e, and files that say so."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError

HOUR_S = 3600.0
J_PER_KWH = 3.6e6
DAY_S = 24 * HOUR_S
WEEK_S = 7 * DAY_S
_MOST_BYTES = 16_000_000  # a year of five minutes takes 4 MB


@dataclass(frozen=True, slots=True, eq=False)
class Tariff:
    """What a kilowatt-hour costs over time, in money or in grams of CO2e; constant between its times.

    Attributes:
        at_s: when each value begins, ascending from 0; shape (steps,).
        per_kwh: shape (steps,).
        period_s: after which it repeats; inf where the last value holds on.
        begin_s: what time of the tariff it is when a run begins.
    """

    at_s: FloatArray
    per_kwh: FloatArray
    period_s: float = math.inf
    begin_s: float = 0.0

    def __post_init__(self) -> None:
        at_s, values = self.at_s, self.per_kwh
        if not (len(at_s) and len(at_s) == len(values) and np.isfinite(at_s).all() and np.isfinite(values).all()):
            raise BadInputError("a tariff needs as many finite values as times, at least one")
        if at_s[0] != 0 or (np.diff(at_s) <= 0).any() or not self.period_s > at_s[-1]:
            raise BadInputError("the times of a tariff must be ascending, from 0, and lie within its period")

    @classmethod
    def hourly(cls, values: float | tuple[float, ...]) -> Tariff:
        """One value for all times, 24 by hour of the day, or 168 by hour of the week."""
        if not isinstance(values, tuple):
            return cls(np.zeros(1), np.array([values]))
        if len(values) not in (24, 168):
            raise BadInputError(f"{len(values)} values; give one, 24 by hour of the day, or 168 by hour of the week")
        return cls(
            HOUR_S * np.arange(len(values), dtype=np.float64), np.array(values, dtype=np.float64), HOUR_S * len(values)
        )

    def later(self, by_s: float) -> Tariff:
        """The same for a run that begins so much later."""
        return replace(self, begin_s=self.begin_s + by_s)

    def mean(self, from_s: FloatArray, until_s: FloatArray) -> FloatArray:
        """Mean over spans of a run's time that are not empty, per kilowatt-hour; shape of ``from_s``."""
        return np.asarray((self.integral(until_s) - self.integral(from_s)) / (until_s - from_s))

    def cost(self, energy_j: FloatArray, bin_s: float, end_s: float) -> float:
        """What the energy of a run costs, taken to be drawn evenly within each bin.

        Args:
            energy_j: by bins of its time; shape (bins,).
            bin_s: their width.
            end_s: of the run, within the last bin.
        """
        from_s = bin_s * np.arange(len(energy_j), dtype=np.float64)
        until_s = np.maximum(np.minimum(from_s + bin_s, end_s), from_s + 1e-9)
        return float(np.dot(energy_j, self.mean(from_s, until_s))) / J_PER_KWH

    def integral(self, time_s: FloatArray) -> FloatArray:
        """Integral of what a kilowatt-hour costs over time, until times of the run, in seconds times that."""
        at_s = time_s + self.begin_s
        whole = np.floor(at_s / self.period_s) if math.isfinite(self.period_s) else np.zeros_like(at_s)
        within_s = at_s - (whole * self.period_s if math.isfinite(self.period_s) else 0.0)
        ended = np.concatenate([[0.0], np.cumsum(self.per_kwh[:-1] * np.diff(self.at_s))])
        step = np.clip(np.searchsorted(self.at_s, within_s, side="right") - 1, 0, None)
        found = ended[step] + self.per_kwh[step] * (within_s - self.at_s[step])
        if math.isfinite(self.period_s):
            found = found + whole * (ended[-1] + self.per_kwh[-1] * (self.period_s - self.at_s[-1]))
        return np.asarray(found)

    def turns(self, from_s: float, until_s: float) -> FloatArray:
        """Times of the run at which a value begins, within a span."""
        at_s = self.at_s - self.begin_s
        if math.isfinite(self.period_s):
            first = math.floor((from_s + self.begin_s) / self.period_s)
            last = math.floor((until_s + self.begin_s) / self.period_s)
            at_s = (at_s + self.period_s * np.arange(first, last + 1)[:, None]).ravel()
        return np.asarray(at_s[(at_s >= from_s) & (at_s <= until_s)])


def csv_rows(path: str | os.PathLike[str], remedy: str) -> Iterator[tuple[str, list[str]]]:
    """Rows of a CSV that are not empty, each after where it is, as errors name it (``FILE:LINE``).

    Raises:
        BadInputError: the file cannot be read or is too large; ends with the remedy.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise BadInputError(f"{path}: is larger than {_MOST_BYTES // 1_000_000} MB; {remedy}")
        rows = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""))
        for row in rows:
            if any(map(str.strip, row)):
                yield f"{path}:{rows.line_num}", row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInputError(f"{path}: cannot be read ({error}); {remedy}") from error
