"""What a kilowatt-hour costs over time, in money or in carbon, and which decisions of a controller that changes.

Deadlines leave no request to be put off, so at each moment the least energy is the least cost. Only trades between now and
later differ: an instance that is kept parked draws power now, one that is stopped takes a start later.

    kept parked    ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁   parked power, at the costs of all this time
    stopped        ················▄▄▄▄   power of a start, at the costs of its end
                   now                  when it serves again
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.serving.cluster.traffic import time_of_s

HOUR_S = 3600.0
J_PER_KWH = 3.6e6
AHEAD_S = 7 * 24 * HOUR_S
"""How far a trade between now and later looks ahead."""


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
            raise BadInputError("the times of a tariff must ascend from 0 and lie within its period")

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
        return np.asarray((self._total(until_s) - self._total(from_s)) / (until_s - from_s))

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

    def start_outweighed_s(self, now_s: float, kept_w: float, start_w: float, start_s: float) -> float:
        """For how long something must not be needed for it to be worth stopping.

        Kept, it draws power from now on; stopped, it takes a start that ends, or nearly so, when it is needed again.
        Energy that is paid for being drawn counts as free: nothing is to be drawn for its own sake.

        Args:
            now_s: time of the run.
            kept_w: power while it is kept; above 0.
            start_w: power of a start.
            start_s: that a start takes.

        Returns:
            The time from which on keeping it costs more than a start does; at most :data:`AHEAD_S`.
        """
        known = replace(self, per_kwh=np.maximum(self.per_kwh, 0.0))
        turns = known._turns(now_s, now_s + AHEAD_S + start_s) - now_s
        turns = np.unique(np.concatenate([[0.0, AHEAD_S], turns, turns - start_s]))
        ends = turns[(turns >= 0) & (turns <= AHEAD_S)]
        now, end = known._total(np.array([now_s])), known._total(now_s + ends)
        # What keeping it costs beyond a start: linear between the turns.
        beyond = kept_w * (end - now) - start_w * (known._total(now_s + ends + start_s) - end)
        last = int(np.flatnonzero(beyond <= 0)[-1]) if (beyond <= 0).any() else 0
        if last == len(ends) - 1:
            return AHEAD_S
        share = max(-beyond[last], 0.0) / (beyond[last + 1] - min(beyond[last], 0.0))
        return float(ends[last] + share * (ends[last + 1] - ends[last]))

    def _total(self, time_s: FloatArray) -> FloatArray:
        """Integral over the tariff until times of the run."""
        at_s = time_s + self.begin_s
        whole = np.floor(at_s / self.period_s) if math.isfinite(self.period_s) else np.zeros_like(at_s)
        within_s = at_s - (whole * self.period_s if math.isfinite(self.period_s) else 0.0)
        ended = np.concatenate([[0.0], np.cumsum(self.per_kwh[:-1] * np.diff(self.at_s))])
        step = np.clip(np.searchsorted(self.at_s, within_s, side="right") - 1, 0, None)
        found = ended[step] + self.per_kwh[step] * (within_s - self.at_s[step])
        if math.isfinite(self.period_s):
            found = found + whole * (ended[-1] + self.per_kwh[-1] * (self.period_s - self.at_s[-1]))
        return np.asarray(found)

    def _turns(self, from_s: float, until_s: float) -> FloatArray:
        """Times of the run at which a value begins, within a span."""
        at_s = self.at_s - self.begin_s
        if math.isfinite(self.period_s):
            first = math.floor((from_s + self.begin_s) / self.period_s)
            last = math.floor((until_s + self.begin_s) / self.period_s)
            at_s = (at_s + self.period_s * np.arange(first, last + 1)[:, None]).ravel()
        return np.asarray(at_s[(at_s >= from_s) & (at_s <= until_s)])


def read_tariff(path: Path) -> Tariff:
    """A tariff from a CSV: times (dates or seconds, ascending), then what a kilowatt-hour costs from then on.

    Times count from the first; the last value holds on.

    Raises:
        BadInputError: the file cannot be read, or is not like this.
    """
    try:
        rows = list(csv.reader(path.read_text().splitlines()))[1:]
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path}: cannot be read ({error}); give a CSV of times and costs of a kWh") from error
    times, values = [], []
    for line, row in enumerate(rows, 2):
        try:
            times.append(time_of_s(row[0]))
            values.append(float(row[1]))
        except (ValueError, IndexError) as error:
            raise BadInputError(f"{path}:{line}: must be a time and what a kWh costs from then on") from error
    try:
        return Tariff(np.array(times) - (times[0] if times else 0.0), np.array(values))
    except BadInputError as error:
        raise BadInputError(f"{path}: {error}") from error
