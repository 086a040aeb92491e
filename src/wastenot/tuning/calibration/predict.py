"""Costs of kernels predicted where they were not measured: the physical model, corrected by its residuals elsewhere.

For planning from few measurements; the simulator itself uses the physical model alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.arrays import FloatArray, IndexArray
from wastenot.blas import single_threaded
from wastenot.devices.simulated import model
from wastenot.tuning.calibration.fit import Calibration, calibrate
from wastenot.tuning.calibration.points import FEWEST_KERNELS, Points

_DIFFERENCE = 1e-5
_LEAST_ERROR = 0.003  # relative; no prediction is better than this
_FEW_KERNELS_ERROR = 0.15  # relative; where there are too few kernels to separate the GPU's parameters from theirs
_FREEDOM = 4.0  # parameters of a kernel that its own points determine, roughly; the prior determines the others
_CORRELATION_LENGTH = 0.5  # of residuals, as a fraction of the range of core clock and of log memory clock
_SIGNAL_TO_NOISE = 4.0  # variance of the model's smooth error over that of the measurements


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """Predicted costs of one call, arrays of shape (kernels, settings).

    Attributes:
        time_error, energy_error: standard deviations of the relative errors, where nothing was measured.
    """

    time_s: FloatArray
    energy_j: FloatArray
    time_error: FloatArray
    energy_error: FloatArray


@single_threaded()
def predict_costs(
    core_mhz: FloatArray,
    memory_mhz: FloatArray,
    time_s: FloatArray,
    energy_j: FloatArray,
    *,
    power_limit_w: float | None = None,
) -> Predicted:
    """Predict the costs of every kernel at every setting from the points that were measured.

    All kernels share one GPU, so each profits from what the others show. Few kernels or points are not refused: the prior
    fills the gaps, and the errors grow. Where several memory clocks were measured, the model's residuals at a kernel's
    measured points are interpolated by kriging.

    Args:
        core_mhz: core clock of each setting (in effect where that is known, else expected), shape (settings,), or
            (kernels, settings) where kernels differ because of a power limit.
        memory_mhz: memory clock of each setting, same shape.
        time_s: time of one call, NaN where not measured; shape (kernels, settings).
        energy_j: energy of one call, same shape.
        power_limit_w: in force; kernels that would exceed it are predicted at the core clock that it leaves them.

    Returns:
        Predictions; NaN for a kernel that was not measured at all.
    """
    measured = np.isfinite(time_s) & np.isfinite(energy_j)
    core = np.broadcast_to(np.asarray(core_mhz, dtype=float), time_s.shape)
    memory = np.broadcast_to(np.asarray(memory_mhz, dtype=float), time_s.shape)
    result = Predicted(*(np.full(time_s.shape, np.nan) for _ in range(4)))
    rows = np.flatnonzero(measured.any(axis=1))
    if not len(rows):
        return result
    mask, time, energy = measured[rows], time_s[rows], energy_j[rows]
    core, memory = core[rows], memory[rows]
    points = Points.of_rows(np.nonzero(mask)[0], core[mask], memory[mask], time[mask], energy[mask])
    fit = calibrate(points, power_limit_w=power_limit_w, enough=False)
    reached = np.where(mask, core, model.throttled_core_mhz(fit.device, fit.kernels, core, memory))
    log_costs, variances = _log_costs_and_variances(fit, reached, memory)
    least_error = _FEW_KERNELS_ERROR if len(rows) < FEWEST_KERNELS else _LEAST_ERROR
    several = len(np.unique(memory[mask])) > 1
    for costs, variance, known, out, error in (
        (log_costs[0], variances[0], np.log(np.where(mask, time, 1.0)), result.time_s, result.time_error),
        (log_costs[1], variances[1], np.log(np.where(mask, energy, 1.0)), result.energy_j, result.energy_error),
    ):
        residuals = np.where(mask, known - costs, 0.0)
        # The fit absorbs part of the error at its own points, so that the residuals understate it.
        signal = float((residuals**2).sum() / max(mask.sum() - _FREEDOM * len(mask), 0.25 * mask.sum()))
        correction, unexplained = np.zeros_like(costs), np.ones_like(costs)
        if several:
            for row in range(len(rows)):
                at = np.flatnonzero(mask[row])
                correction[row], unexplained[row] = _krige(_rescale(reached[row], memory[row]), at, residuals[row, at])
        out[rows] = np.exp(costs + correction)
        error[rows] = np.sqrt((variance + signal) * unexplained + least_error**2)
    return result


def _log_costs_and_variances(
    fit: Calibration, core_mhz: FloatArray, memory_mhz: FloatArray
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Logarithms of time and energy, and their variances, propagated from the kernels' parameters given the GPU."""

    def log_costs(time_logs: FloatArray, power_logs: FloatArray) -> tuple[FloatArray, FloatArray]:
        kernels = fit.kernels_at(time_logs, power_logs)
        time = model.time_s(fit.device, kernels, core_mhz, memory_mhz)
        power = model.power_w(fit.device, kernels, core_mhz, memory_mhz, time)
        return np.log(time), np.log(time * power)

    modes = [fit.time_fit.kernels, fit.power_fit.kernels]
    costs = log_costs(*modes)
    variances = [np.zeros_like(costs[0]), np.zeros_like(costs[1])]
    for which, posterior in enumerate((fit.time_fit, fit.power_fit)):
        derivatives: tuple[list[FloatArray], list[FloatArray]] = ([], [])
        for column in range(modes[which].shape[1]):
            moved = [logs.copy() for logs in modes]
            moved[which][:, column] += _DIFFERENCE
            for derivative, there, here in zip(derivatives, log_costs(*moved), costs, strict=True):
                derivative.append((there - here) / _DIFFERENCE)
        for index, derivative in enumerate(derivatives):
            gradient = np.stack(derivative, axis=-1)
            variances[index] += np.einsum("kpi,kij,kpj->kp", gradient, posterior.covariance, gradient)
    return list(costs), variances


def _rescale(core_mhz: FloatArray, memory_mhz: FloatArray) -> FloatArray:
    """Clocks on the unit square of core clock and log memory clock; shape (points, 2)."""
    memory = np.log(memory_mhz)
    core_extent, memory_extent = float(np.ptp(core_mhz)) or 1.0, float(np.ptp(memory)) or 1.0
    return np.stack([(core_mhz - core_mhz.min()) / core_extent, (memory - memory.min()) / memory_extent], axis=-1)


def _krige(clocks: FloatArray, measured: IndexArray, log_residuals: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Simple kriging (zero mean, exponential covariance) of one kernel's log residuals, measured over modelled.

    Args:
        clocks: all points, shape (points, 2), from :func:`_rescale`.
        measured: indices of the measured ones.
        log_residuals: their log residuals.

    Returns:
        Expected log residuals, and their variance as a fraction of the model's error variance; both of shape (points,).
    """
    distance = np.linalg.norm(clocks[:, None] - clocks[measured][None], axis=2)
    covariance = np.exp(-distance / _CORRELATION_LENGTH)
    noisy = covariance[measured] + np.eye(len(measured)) / _SIGNAL_TO_NOISE
    weights = np.linalg.solve(noisy, covariance.T)
    variance = 1.0 - np.einsum("pm,mp->p", covariance, weights)
    return np.asarray(weights.T @ log_residuals), np.clip(variance, 0.0, 1.0)
