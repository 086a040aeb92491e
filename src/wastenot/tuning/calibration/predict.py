"""What kernels would cost where they were not measured: the model, and what its error at the nearest points suggests.

For planning from few measurements; the simulator itself uses the physical model alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.devices.simulated import model
from wastenot.tuning.calibration.fit import Calibration, calibrate
from wastenot.tuning.calibration.measured_points import FEWEST_KERNELS, Array, Points
from wastenot.tuning.calibration.residual import krige, places

_STEP = 1e-5
_LEAST_ERROR = 0.003
"""Relative; no prediction is better than this."""

_FEW_KERNELS_ERROR = 0.15
"""Relative; of too few kernels to tell what is the GPU's."""

_FREEDOM = 4.0
"""Parameters of a kernel that its own points determine, about; what is usual determines the others."""


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """Predicted costs of one call, arrays of shape (kernels, settings).

    Attributes:
        time_s: time.
        energy_j: energy.
        time_error: standard deviation of the time's relative error, where it was not measured.
        energy_error: the same of the energy.
    """

    time_s: Array
    energy_j: Array
    time_error: Array
    energy_error: Array


def predict_costs(
    core_mhz: Array, memory_mhz: Array, time_s: Array, energy_j: Array, *, power_limit_w: float | None = None
) -> Predicted:
    """Predict every kernel at every setting from those that were measured.

    All kernels share one GPU, so each profits from what the others show. Few kernels or points are not refused: what is
    usual of GPUs fills the gaps, and the errors grow. With several memory clocks what the model leaves of a kernel's
    measured points is spread to those near them.

    Args:
        core_mhz: core clock of each setting: in effect where that is known, else expected; shape (settings,), or
            (kernels, settings) where kernels differ (power limit).
        memory_mhz: likewise.
        time_s: of one call, NaN where not measured; shape (kernels, settings).
        energy_j: the same.
        power_limit_w: in force; kernels that would pass it are predicted at the core clock that it leaves them.

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
    kernel, place = np.nonzero(mask)
    at = (kernel, place)
    points = Points.of_rows(kernel, core[at], memory[at], time[at], energy[at])
    found = calibrate(points, power_limit_w=power_limit_w, checked=False)
    reached = np.where(mask, core, model.throttled_core_mhz(found.device, found.kernels, core, memory))
    log_costs, variances = _log_costs_and_variances(found, reached, memory)
    unsure = _FEW_KERNELS_ERROR if len(rows) < FEWEST_KERNELS else _LEAST_ERROR
    several = len(np.unique(memory[mask])) > 1
    for costs, variance, known, out, error in (
        (log_costs[0], variances[0], np.log(np.where(mask, time, 1.0)), result.time_s, result.time_error),
        (log_costs[1], variances[1], np.log(np.where(mask, energy, 1.0)), result.energy_j, result.energy_error),
    ):
        left = np.where(mask, known - costs, 0.0)
        # The fit itself takes up part of the error at its own points: what is left understates it.
        signal = float((left**2).sum() / max(mask.sum() - _FREEDOM * len(mask), 0.25 * mask.sum()))
        shift, share = np.zeros_like(costs), np.ones_like(costs)
        if several:
            for row in range(len(rows)):
                there = np.flatnonzero(mask[row])
                shift[row], share[row] = krige(places(reached[row], memory[row]), there, left[row, there])
        out[rows] = np.exp(costs + shift)
        error[rows] = np.sqrt((variance + signal) * share + unsure**2)
    return result


def _log_costs_and_variances(found: Calibration, core_mhz: Array, memory_mhz: Array) -> tuple[list[Array], list[Array]]:
    """Logarithms of time and energy, and their variances from that of the kernels' parameters given the GPU."""

    def log_costs(time_units: Array, power_units: Array) -> tuple[Array, Array]:
        kernels = found.kernels_at(time_units, power_units)
        time = model.time_s(found.device, kernels, core_mhz, memory_mhz)
        power = model.power_w(found.device, kernels, core_mhz, memory_mhz, time)
        return np.log(time), np.log(time * power)

    own = [found.time_solution.units, found.power_solution.units]
    at = log_costs(*own)
    variances = [np.zeros_like(at[0]), np.zeros_like(at[1])]
    for which, solution in enumerate((found.time_solution, found.power_solution)):
        slopes: tuple[list[Array], list[Array]] = ([], [])
        for column in range(own[which].shape[1]):
            moved = [units.copy() for units in own]
            moved[which][:, column] += _STEP
            for slope, there, here in zip(slopes, log_costs(*moved), at, strict=True):
                slope.append((there - here) / _STEP)
        for index, slope in enumerate(slopes):
            gradient = np.stack(slope, axis=-1)
            variances[index] += np.einsum("kpi,kij,kpj->kp", gradient, solution.covariance, gradient)
    return list(at), variances
