"""How often a sensor updates, and when exactly, from the timestamps of its readings as they were observed.

    updates     |    |    |    |    |    |        by a clock of the sensor's own
    observed     x     x       x  x    x          late by up to a polling interval; a repeated value goes unnoticed

A polled reading is observed some time after the update, never before. As long as the lateness is below half a period, the
number of updates between two observations is certain, so a straight line through all of them gives the period far more
precisely than any two neighbours do, and the update that each belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray

_MIN_UPDATES = 8
_SHORT_GAP_QUANTILE = 0.1  # even where half of the updates are missed, gaps this short are single periods
_SINGLE_PERIOD = 1.5  # gaps up to this many short ones are single periods too
_IRREGULAR = 2.5  # scatter about the line relative to that of neighbours, from which the sensor keeps no clock
_EARLIEST_QUANTILE = 0.02  # of the lateness, which is taken as none
_POLLED_GAP = 0.7  # of the period: readings closer than this are polls, not updates
_MAX_GRID_SCATTER = 0.03  # of the period, by which timestamps on a grid may scatter


@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """Readings of a sensor, each once.

    Attributes:
        period_s: between updates.
        period_se_s: its standard error.
        moment_s: of each update; on the sensor's grid where it has one; shape (updates,).
        power_w: readings; shape (updates,).
        index: of each in the readings given; shape (updates,).
        regular: whether the sensor keeps a grid.
    """

    period_s: float
    period_se_s: float
    moment_s: FloatArray
    power_w: FloatArray
    index: IndexArray
    regular: bool


def find_updates(observed_s: FloatArray, power_w: FloatArray, *, polled: bool) -> Updates | None:
    """Find the period and put the readings on the sensor's grid.

    Args:
        observed_s: timestamps, ascending; shape (readings,).
        power_w: the readings, shape (readings,).
        polled: whether timestamps are those of the observation rather than the sensor's own.

    Returns:
        ``None`` where too few readings differ.
    """
    new = np.flatnonzero(np.concatenate([[True], np.diff(power_w) != 0.0]))
    if len(new) < _MIN_UPDATES:
        return None
    period, number = _numbered(observed_s[new])
    repeated = float(np.median(np.diff(observed_s))) < _POLLED_GAP * period
    index = new if repeated else np.arange(len(observed_s))
    if not repeated:
        period, number = _numbered(observed_s)
    moment = observed_s[index]
    late = moment - period * number
    scatter = float(np.std(late))
    between_neighbours = float(np.std(np.diff(moment) - period * np.diff(number))) / np.sqrt(2.0)
    regular = scatter <= _IRREGULAR * between_neighbours + 1e-6 * period
    if regular:
        centred = number - number.mean()
        error = scatter / float(np.sqrt(centred @ centred))
        if polled:
            moment = _without_lateness(late, period, number)
    else:
        gaps = np.diff(moment)[np.diff(number) == 1]
        period, error = float(np.median(gaps)), float(np.std(gaps)) / np.sqrt(len(gaps))
    return Updates(period, float(error), np.asarray(moment), power_w[index], index, regular)


def on_grid(observed_s: FloatArray, period_s: float) -> FloatArray:
    """Timestamps moved to the grid that they lie on; unchanged where they lie on none.

    Args:
        observed_s: ascending; some updates may be missing; shape (readings,).
        period_s: approximate period of the grid.
    """
    if len(observed_s) < _MIN_UPDATES:
        return observed_s
    # Between neighbours the number of periods is certain; then it is over all of them.
    period = period_s
    for _ in range(3):
        number = np.concatenate([[0.0], np.cumsum(np.round(np.diff(observed_s) / period))])
        if number[-1] == 0.0:
            return observed_s
        period = _slope(number, observed_s)
    late = observed_s - period * number
    if np.quantile(late, 0.95) - np.quantile(late, 0.05) > _MAX_GRID_SCATTER * period:
        return observed_s
    return _without_lateness(late, period, number)


def _numbered(moment_s: FloatArray) -> tuple[float, FloatArray]:
    """The period, and by how many updates each moment comes after the first."""
    gap = np.diff(moment_s)
    short = float(np.quantile(gap, _SHORT_GAP_QUANTILE))
    period = float(np.median(gap[gap < _SINGLE_PERIOD * short]))
    # First from gaps of few periods, whose number is certain; then from all.
    for most in (3.0, 30.0, np.inf):
        periods = np.maximum(np.round(gap / period), 1.0)
        few = periods <= most
        period = float(gap[few].sum() / periods[few].sum())
    number = np.concatenate([[0.0], np.cumsum(np.maximum(np.round(gap / period), 1.0))])
    return _slope(number, moment_s), number


def _slope(number: FloatArray, moment_s: FloatArray) -> float:
    """The period, by a straight line."""
    centred = number - number.mean()
    return float(centred @ (moment_s - moment_s.mean()) / (centred @ centred))


def _without_lateness(late: FloatArray, period_s: float, number: FloatArray) -> FloatArray:
    return np.asarray(float(np.quantile(late, _EARLIEST_QUANTILE)) + period_s * number)
