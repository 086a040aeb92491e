"""Standard errors of totals and of their changes from the baseline, from those of single measurements."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from wastenot.arrays import FloatArray, IndexArray


def total_error(count: NDArray[np.int64], error: FloatArray) -> float | None:
    """Standard error of a sum of ``count`` times each value; ``None`` where an error is unknown.

    Args:
        count: shape (kernels,).
        error: standard error of each value, NaN where unknown; shape (kernels,).
    """
    return _known(np.sqrt(np.sum((count * error) ** 2)))


def change_error(
    count: NDArray[np.int64],
    value: FloatArray,
    error: FloatArray,
    rows: IndexArray,
    base: IndexArray,
) -> float | None:
    """Standard error of (sum over ``rows``) / (sum over ``base``) − 1, to first order.

    A kernel that a plan leaves at auto enters both sums with one and the same measurement.

    Args:
        count: shape (kernels,).
        value: value of each row, shape (rows,).
        error: its standard error, NaN where unknown; shape (rows,).
        rows: chosen row of each kernel, shape (kernels,).
        base: baseline row of each kernel, shape (kernels,).
    """
    whole = float(count @ value[base])
    ratio = float(count @ value[rows]) / whole
    same = rows == base
    moved = np.where(same, 0.0, (count * error[rows]) ** 2 + (ratio * count * error[base]) ** 2)
    stayed = np.where(same, ((1.0 - ratio) * count * error[base]) ** 2, 0.0)
    return _known(np.sqrt(np.sum(moved + stayed)) / whole)


def _known(error: np.floating) -> float | None:
    return None if np.isnan(error) else float(error)
