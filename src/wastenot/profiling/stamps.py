"""Stamps of readings that had to be polled, made as regular as the sensor is.

A polled reading is stamped when it was first seen, up to a look's interval after it came. A sensor that updates by a clock
of its own gives itself away over many readings: they lie on a grid, and none is seen before it came.
"""

from __future__ import annotations

import numpy as np

from wastenot.arrays import FloatArray

_LEAST = 8
_REGULAR = 0.03  # of the period, that stamps may scatter by on a grid
_EARLIEST = 0.02  # quantile of lateness that is taken as none


def on_grid(stamp_s: FloatArray, period_s: float) -> FloatArray:
    """The stamps on the grid that they lie on; as they are where they lie on none.

    Args:
        stamp_s: rising; some of the grid's may be missing; shape (readings,).
        period_s: of the grid, about.
    """
    if len(stamp_s) < _LEAST:
        return stamp_s
    # From neighbour to neighbour the number of steps is certain; over all of them it then is as well.
    period = period_s
    for _ in range(3):
        number = np.concatenate([[0.0], np.cumsum(np.round(np.diff(stamp_s) / period))])
        spread = number - number.mean()
        if not np.any(spread):
            return stamp_s
        period = float(spread @ (stamp_s - stamp_s.mean()) / (spread @ spread))
    late = stamp_s - period * number
    if np.quantile(late, 0.95) - np.quantile(late, 0.05) > _REGULAR * period:
        return stamp_s
    return np.asarray(float(np.quantile(late, _EARLIEST)) + period * number)
