"""How often a sensor updates, from stamps of its readings as they were seen.

    updates     |    |    |    |    |    |        a clock of the sensor's own
    seen         x     x       x  x    x          late by up to a look's interval; one that says the same again is missed

A polled reading is seen some time after it came, never before; the number of updates between two that were seen is
certain as long as the lateness is below half a period, so that a straight line through all of them tells the period far
better than any two neighbours do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.arrays import FloatArray

_LEAST = 8
_SHORT_QUANTILE = 0.1  # of gaps: even where half of the updates is missed, these are single periods
_SINGLE = 1.5  # gaps up to so many of the short ones are single periods as well
_WANDERS = 2.5  # scatter about the line over that of neighbours, from which the sensor keeps no clock
_EARLIEST = 0.02  # quantile of lateness that is taken as none
_DENSE = 0.7  # of the period: readings closer than this are looks, not updates


@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """Readings of a sensor, each once.

    Attributes:
        period_s: between updates.
        period_se_s: its standard error.
        moment_s: when each came; on the sensor's grid where it keeps one; shape (updates,).
        power_w: what it said; shape (updates,).
        place: of each in what was given; shape (updates,).
        regular: whether the sensor keeps a grid.
    """

    period_s: float
    period_se_s: float
    moment_s: FloatArray
    power_w: FloatArray
    place: np.ndarray[tuple[int, ...], np.dtype[np.intp]]
    regular: bool


def find_updates(seen_s: FloatArray, power_w: FloatArray, *, polled: bool) -> Updates | None:
    """Find the period and put the readings on the sensor's grid.

    Args:
        seen_s: stamps, rising; shape (readings,).
        power_w: the readings, shape (readings,).
        polled: whether stamps say when a reading was first seen; if not, when the sensor itself made it.

    Returns:
        ``None`` where too few readings differ to tell.
    """
    new = np.flatnonzero(np.concatenate([[True], np.diff(power_w) != 0.0]))
    if len(new) < _LEAST:
        return None
    period, number = _numbered(seen_s[new])
    dense = float(np.median(np.diff(seen_s))) < _DENSE * period
    place = new if dense else np.arange(len(seen_s))
    if not dense:
        period, number = _numbered(seen_s)
    moment = seen_s[place]
    spread = number - number.mean()
    late = moment - period * number
    scatter = float(np.std(late))
    neighbours = float(np.std(np.diff(moment) - period * np.diff(number))) / np.sqrt(2.0)
    regular = scatter <= _WANDERS * neighbours + 1e-6 * period
    if regular:
        error = scatter / float(np.sqrt(spread @ spread))
        if polled:
            moment = float(np.quantile(late, _EARLIEST)) + period * number
    else:
        gaps = np.diff(moment)[np.diff(number) == 1]
        period, error = float(np.median(gaps)), float(np.std(gaps)) / np.sqrt(len(gaps))
    return Updates(period, float(error), np.asarray(moment), power_w[place], place, regular)


def _numbered(moment_s: FloatArray) -> tuple[float, FloatArray]:
    """The period, and of each moment how many updates it is after the first."""
    gap = np.diff(moment_s)
    short = float(np.quantile(gap, _SHORT_QUANTILE))
    period = float(np.median(gap[gap < _SINGLE * short]))
    # First from gaps of few periods, where the number is certain; then over all.
    for most in (3.0, 30.0, np.inf):
        steps = np.maximum(np.round(gap / period), 1.0)
        few = steps <= most
        period = float(gap[few].sum() / steps[few].sum())
    number = np.concatenate([[0.0], np.cumsum(np.maximum(np.round(gap / period), 1.0))])
    spread = number - number.mean()
    return float(spread @ (moment_s - moment_s.mean()) / (spread @ spread)), number
