"""Kriging of what the physical model leaves: the log residuals of a kernel's measured points, spread to its others.

For planning from few measurements only; the simulator uses the physical model alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LENGTH = 0.5
"""Correlation length, as a fraction of the range of core clock and of log memory clock."""

SIGNAL_TO_NOISE = 4.0
"""Variance of the model's smooth error over that of the measurements."""


def places(core_mhz: Array, memory_mhz: Array) -> Array:
    """Points on the unit square of core clock and log memory clock; shape (..., 2)."""
    memory = np.log(memory_mhz)
    core_extent, memory_extent = float(np.ptp(core_mhz)) or 1.0, float(np.ptp(memory)) or 1.0
    return np.stack([(core_mhz - core_mhz.min()) / core_extent, (memory - memory.min()) / memory_extent], axis=-1)


def krige(at: Array, measured: NDArray[np.intp], log_residuals: Array) -> tuple[Array, Array]:
    """Expected log residual (measured over modelled) of one kernel everywhere, and how uncertain it stays.

    Args:
        at: all points, shape (points, 2), of places().
        measured: indices of the measured ones.
        log_residuals: their log residuals.

    Returns:
        Expected log residuals, and their variance as a share of that of the model's error; both of shape (points,).
        Exponential (Matern 1/2) covariance, zero mean.
    """
    distance = np.linalg.norm(at[:, None] - at[measured][None], axis=2)
    covariance = np.exp(-distance / LENGTH)
    noisy = covariance[measured] + np.eye(len(measured)) / SIGNAL_TO_NOISE
    weights = np.linalg.solve(noisy, covariance.T)
    left = 1.0 - np.einsum("pm,mp->p", covariance, weights)
    return np.asarray(weights.T @ log_residuals), np.clip(left, 0.0, 1.0)
