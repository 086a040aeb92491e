"""Standard error of the mean of readings that follow each other in time.

They are not independent: a power limit makes power swing about a mean with a period of about a second, so that high laps
follow low ones and the mean is known far better than the scatter suggests; a GPU that warms drifts, and the mean is known
less well. An autoregressive model takes both in: its spectral density at frequency zero, over the number of readings, is the
variance of the mean (Heidelberger and Welch, Communications of the ACM 24, 1981).
"""

from __future__ import annotations

import math

import numpy as np

from wastenot.arrays import FloatArray

_HIGHEST_ORDER = 6
_READINGS_AN_ORDER = 5
_LEAST_SHARE = 0.05  # of the variance of independent readings: no model from so few readings knows it better


def error_of_mean(values: FloatArray) -> float:
    """The standard error of the mean of readings at equal distances.

    Order by Akaike's criterion, coefficients by Yule and Walker's equations (Levinson and Durbin's recursion).

    Args:
        values: shape (readings,), at least 2.
    """
    number = len(values)
    apart = values - values.mean()
    highest = min(_HIGHEST_ORDER, number // _READINGS_AN_ORDER)
    covariance = [float(apart[lag:] @ apart[: number - lag]) / number for lag in range(highest + 1)]
    if covariance[0] <= 0.0:
        return 0.0
    left = density = covariance[0]
    order, best = 0, number * math.log(left)
    weights = np.zeros(0)
    for tried in range(1, highest + 1):
        partial = (covariance[tried] - float(weights @ covariance[1:tried][::-1])) / left
        weights = np.append(weights - partial * weights[::-1], partial)
        left *= 1.0 - partial**2
        if left <= 0.0:
            break
        criterion = number * math.log(left) + 2.0 * tried
        if criterion < best:
            order, best, density = tried, criterion, left / (1.0 - float(weights.sum())) ** 2
    density = max(density, _LEAST_SHARE * covariance[0])
    # What few readings tell of a variance is little: as Student's t would widen it.
    return math.sqrt(density / max(1, number - order - 3))
