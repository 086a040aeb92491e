"""What a sweep says of one quantity: means over repeats, and how noisy they are.

The noise of readings is estimated from repeats, pooled over the sweep. Where there are too few of them it is known only as
far as standard errors state it, which often is not all of it: they may be half of the truth (``_STATED_SHORT``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray

LEAST_FREEDOM = 8  # degrees of freedom of repeats from which their scatter is trusted
_MOST_CORRELATED = 0.95  # of time and power, so that energy is never without error
_STATED_SHORT = 2.0  # times the stated error, that the true one is at most


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """Means over repeats of one quantity; arrays by the rows of :class:`wastenot.planning.costs.Costs`.

    Attributes:
        value: the mean.
        noise: variance of the value as far as it is known.
        noise_error: relative standard error of ``noise``.
        rest_scale: factor by which the variance that nothing explains is multiplied.
        more_noise: how much of that variance may be noise, at most; inf where nothing is known.
        known: whether repeats or standard errors say how noisy the values are.
        offset: what kernels have in common at each setting beside their shapes, and ``offset_error``, its standard error.
    """

    value: FloatArray
    noise: FloatArray
    noise_error: float
    rest_scale: FloatArray
    more_noise: FloatArray
    known: bool
    offset: FloatArray
    offset_error: FloatArray

    def with_offset(self, offset: FloatArray, error: FloatArray) -> Measured:
        """The same with what kernels have in common at each setting."""
        return replace(self, offset=offset, offset_error=error)

    def exponential(self) -> Measured:
        """Values of whose logarithms these are."""
        value = np.exp(self.value)
        square = value**2
        scaled = {name: square * getattr(self, name) for name in ("noise", "rest_scale", "more_noise")}
        return replace(self, value=value, **scaled)


def mean_logarithms(
    value: FloatArray, stated: FloatArray, most_stated: FloatArray, row: IndexArray, repeats: IndexArray
) -> Measured:
    """Means of logarithms, and what is known of their noise.

    Args:
        value: logarithms of the readings, shape (readings,).
        stated: their variance as stated, NaN where it is not; shape (readings,).
        most_stated: the same, read as large as the statement allows.
        row: that each reading belongs to.
        repeats: readings of each row, shape (rows,).
    """
    mean = np.bincount(row, value) / repeats
    variance = np.bincount(row, np.nan_to_num(stated)) / repeats
    freedom = len(value) - len(repeats)
    none = np.zeros(len(mean))
    if freedom < LEAST_FREEDOM:
        known = not bool(np.isnan(stated).any())
        more = np.full(len(mean), np.inf)
        if known:
            more = (_STATED_SHORT**2 * np.bincount(row, most_stated) / repeats - variance) / repeats
        return Measured(mean, variance / repeats, 0.0, 1.0 / repeats, more, known, none, none)
    scatter = float(((value - mean[row]) ** 2).sum())
    expected = float(variance @ (repeats - 1))
    noise = (variance + max(0.0, scatter - expected) / freedom) / repeats
    return Measured(mean, noise, math.sqrt(2.0 / freedom), np.ones(len(mean)), none, True, none, none)


def correlation(first: FloatArray, second: FloatArray, row: IndexArray, repeats: IndexArray, left: FloatArray) -> float:
    """Correlation of the noises of two quantities, from repeats or else from what shapes leave unexplained.

    Energies that were measured as power times time have noises of time and power that are independent; of energies measured
    by themselves they are not.

    Args:
        first: readings of one quantity, shape (readings,).
        second: of the other.
        row: that each reading belongs to.
        repeats: readings of each row.
        left: what shapes leave of both, shape (2, rows).
    """
    if len(row) - len(repeats) >= LEAST_FREEDOM:
        left = np.stack([each - (np.bincount(row, each) / repeats)[row] for each in (first, second)])
    norm = np.sqrt((left**2).sum(axis=1))
    if not norm.all():
        return 0.0
    return float(np.clip(left[0] @ left[1] / norm.prod(), -_MOST_CORRELATED, _MOST_CORRELATED))
