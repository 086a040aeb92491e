"""Calibration: from a few measured points of several kernels to the parameters of the GPU and of every kernel.

Time first, then power given the time model: the two share only the modelled time. All parameters are fitted as
logarithms of dimensionless ratios (times over the kernel's fastest measured call, powers over the largest measured), so
they stay positive and one prior serves every kernel and every GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wastenot.devices.simulated import model
from wastenot.devices.simulated.model import DeviceParameters, KernelParameters
from wastenot.tuning.calibration.measured_points import FEWEST_KERNELS, Array, Points, check, core_levels
from wastenot.tuning.calibration.solver import Prior, Solution, fit_units, learn_population

TIME_SD = 0.01
"""Relative standard deviation that a time measurement is trusted to."""

POWER_SD = 0.015
"""Relative standard deviation that a power measurement is trusted to."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The fitted GPU.

    Attributes:
        device: what all kernels share.
        kernels: what each asks, parameters of shape (kernels, 1).
        time_solution: of the time fit, with the population of kernels that it learnt.
        power_solution: of the power fit, likewise.
        fastest_s: of each kernel, what its times are fitted relative to; shape (kernels,).
        scale_w: what powers are fitted relative to.
    """

    device: DeviceParameters
    kernels: KernelParameters
    time_solution: Solution
    power_solution: Solution
    fastest_s: Array
    scale_w: float

    def kernels_at(self, time_units: Array, power_units: Array) -> KernelParameters:
        """Kernels of other fitted values, each of shape (kernels, values)."""
        kernels = _time_kernels(time_units, self.fastest_s)
        return _power_kernels(kernels, power_units, self.scale_w, self.fastest_s)


def _starts(mean: Array, extremes: Array, count: int) -> list[Array]:
    """Starts for every kernel: the usual one, then each extreme kind of kernel."""
    return [np.tile(row, (count, 1)) for row in (mean, *np.log(extremes))]


def _rounds(points: Points) -> int:
    """Of learning the population: few kernels are none."""
    return 6 if len(points.mask) >= FEWEST_KERNELS else 1


# --- time ------------------------------------------------------------------------------------------------------------

_TIME_MEAN = np.log([0.35, 0.2, 0.15, 0.08, 0.05])
# Where L2 binds below the lowest core clock the slope is zero: one start is not enough.
_CORE_BANDWIDTH_STARTS = (0.15, 0.6)
_TIME_SD = np.array([1.5, 2.0, 1.5, 2.0, 2.0])

_TIME_STARTS = np.array(
    [
        [0.90, 0.10, 0.10, 0.03, 0.05],  # bound by the core
        [0.15, 0.90, 0.10, 0.05, 0.05],  # by bandwidth
        [0.10, 0.10, 0.40, 0.50, 0.05],  # by latency
        [0.20, 0.05, 0.10, 0.03, 0.80],  # by launch
    ]
)


def _time_prior(states: int) -> Prior:
    """Unit: core, memory, latency core, latency memory, fixed. Device: bandwidth factor by state, then four scalars."""
    device_mean = [*np.zeros(states - 1), np.log(0.3), np.log(8.0), np.log(4.0), np.log(0.95)]
    device_sd = [*np.full(states - 1, 0.15), 1.0, 0.7, 0.7, 0.15]
    return Prior(_TIME_MEAN, _TIME_SD, np.array(device_mean), np.array(device_sd))


def _with_time(device: DeviceParameters, values: Array, lowest_core_mhz: float) -> DeviceParameters:
    states = len(device.memory_states_mhz)
    core_bandwidth, sharpness, overlap, floor = values[states - 1 :]
    return replace(
        device,
        bandwidth_factor=(*np.exp(values[: states - 1]).tolist(), 1.0),
        core_bandwidth=float(np.exp(core_bandwidth)),
        core_bandwidth_sharpness=float(1.0 + np.exp(sharpness)),
        overlap_exponent=float(1.0 + np.exp(overlap)),
        core_floor_mhz=float(lowest_core_mhz * np.exp(floor)),
    )


def _time_kernels(units: Array, fastest_s: Array) -> KernelParameters:
    seconds = np.exp(units) * fastest_s[:, None]
    core, memory, latency_core, latency_memory, fixed = (seconds[:, [column]] for column in range(5))
    return KernelParameters(core, memory, latency_core, latency_memory, fixed, 0.0, 0.0, 0.0)


def _fastest_s(points: Points) -> Array:
    return np.asarray(np.where(points.mask > 0, points.time_s, np.inf).min(axis=1))


def _fit_time(
    points: Points, device: DeviceParameters, lowest_core_mhz: float, known: Solution | None
) -> tuple[Solution, DeviceParameters, KernelParameters]:
    fastest_s = _fastest_s(points)
    log_time = np.log(points.time_s)

    def residuals(units: Array, values: Array) -> Array:
        trial = _with_time(device, values, lowest_core_mhz)
        kernels = _time_kernels(units, fastest_s)
        return (np.log(model.time_s(trial, kernels, points.core_mhz, points.memory_mhz)) - log_time) / TIME_SD

    prior = known.prior if known else _time_prior(len(device.memory_states_mhz))
    starts = _starts(prior.unit_mean, _TIME_STARTS, len(fastest_s))
    if known:
        solution = fit_units(residuals, points.mask, starts, known.device, prior)
    else:
        devices = [prior.device_mean.copy() for _ in _CORE_BANDWIDTH_STARTS]
        for device_start, core_bandwidth in zip(devices, _CORE_BANDWIDTH_STARTS, strict=True):
            device_start[-4] = np.log(core_bandwidth)
        solution = learn_population(residuals, points.mask, starts, devices, prior, rounds=_rounds(points))
    return solution, _with_time(device, solution.device, lowest_core_mhz), _time_kernels(solution.units, fastest_s)


# --- power -----------------------------------------------------------------------------------------------------------

_POWER_MEAN = np.log([0.08, 0.13, 0.13])
_POWER_SD = np.array([1.0, 1.5, 1.5])

_POWER_STARTS = np.array([[0.05, 0.30, 0.02], [0.05, 0.05, 0.30], [0.20, 0.03, 0.02]])


def _power_prior(points: Points, device: DeviceParameters, scale_w: float) -> Prior:
    """Unit: clock, work, memory. Device: base and byte energy by state, leakage, steps of the voltage table."""
    base = []
    for state in device.memory_states_mhz:
        here = (points.mask > 0) & (points.memory_mhz == state)
        base.append(np.log(0.8 * points.power_w[here].min() / scale_w))
    states, steps = len(base), len(device.voltage_clocks_mhz) - 1
    device_mean = [*base, *np.zeros(states - 1), np.log(0.03), *np.full(steps, -3.0)]
    device_sd = [*np.full(states, 0.5), *np.full(states - 1, 0.3), 1.0, *np.full(steps, 1.5)]
    return Prior(_POWER_MEAN, _POWER_SD, np.array(device_mean), np.array(device_sd))


def _with_power(device: DeviceParameters, values: Array, scale_w: float) -> DeviceParameters:
    states = len(device.memory_states_mhz)
    steps = np.exp(values[2 * states :])
    return replace(
        device,
        base_w=tuple((scale_w * np.exp(values[:states])).tolist()),
        byte_energy_factor=(*np.exp(values[states : 2 * states - 1]).tolist(), 1.0),
        leakage_w=float(scale_w * np.exp(values[2 * states - 1])),
        voltage_ratio=(1.0, *(1.0 + np.cumsum(steps)).tolist()),
    )


def _power_kernels(kernels: KernelParameters, units: Array, scale_w: float, fastest_s: Array) -> KernelParameters:
    watts = np.exp(units) * scale_w
    joules = watts * fastest_s[:, None]
    return replace(kernels, clock_w=watts[:, [0]], work_j=joules[:, [1]], memory_j=joules[:, [2]])


def _fit_power(
    points: Points, device: DeviceParameters, kernels: KernelParameters, scale_w: float, known: Solution | None
) -> tuple[Solution, DeviceParameters, KernelParameters]:
    fastest_s = _fastest_s(points)
    log_power = np.log(points.power_w)
    call_s = model.time_s(device, kernels, points.core_mhz, points.memory_mhz)

    def residuals(units: Array, values: Array) -> Array:
        trial = _with_power(device, values, scale_w)
        asked = _power_kernels(kernels, units, scale_w, fastest_s)
        return (np.log(model.power_w(trial, asked, points.core_mhz, points.memory_mhz, call_s)) - log_power) / POWER_SD

    prior = known.prior if known else _power_prior(points, device, scale_w)
    starts = _starts(prior.unit_mean, _POWER_STARTS, len(fastest_s))
    if known:
        solution = fit_units(residuals, points.mask, starts, known.device, prior)
    else:
        devices = [prior.device_mean]
        solution = learn_population(residuals, points.mask, starts, devices, prior, rounds=_rounds(points))
    fitted = _with_power(device, solution.device, scale_w)
    return solution, fitted, _power_kernels(kernels, solution.units, scale_w, fastest_s)


# --- both ------------------------------------------------------------------------------------------------------------


def _blank(points: Points, power_limit_w: float | None) -> DeviceParameters:
    used = points.mask > 0
    states = tuple(float(state) for state in np.unique(points.memory_mhz[used]))
    ones = (1.0,) * len(states)
    clocks = tuple(core_levels(points.core_mhz[used]).tolist())
    return DeviceParameters(
        reference_core_mhz=float(points.core_mhz[used].max()),
        reference_memory_mhz=states[-1],
        memory_states_mhz=states,
        bandwidth_factor=ones,
        core_bandwidth=0.0,
        core_bandwidth_sharpness=1.0,
        overlap_exponent=1.0,
        core_floor_mhz=0.0,
        voltage_clocks_mhz=clocks,
        voltage_ratio=(1.0,) * len(clocks),
        base_w=ones,
        leakage_w=0.0,
        byte_energy_factor=ones,
        power_limit_w=power_limit_w,
    )


def calibrate(points: Points, *, power_limit_w: float | None = None, checked: bool = True) -> Calibration:
    """Fit the GPU and its kernels together.

    Args:
        points: measured points; those with mask 0 are not looked at.
        power_limit_w: power limit in force while measuring, watts.
        checked: refuse what does not determine the model; without, what is usual of GPUs fills the gaps. Every kernel
            must have a point at least.

    Returns:
        The calibration.

    Raises:
        CalibrationError: the points cannot determine the model.
    """
    if checked:
        check(points)
    used = points.mask > 0
    lowest_core_mhz = float(points.core_mhz[used].min())
    scale_w = float(points.power_w[used].max())
    device = _blank(points, power_limit_w)
    time_solution, device, kernels = _fit_time(points, device, lowest_core_mhz, None)
    power_solution, device, kernels = _fit_power(points, device, kernels, scale_w, None)
    return Calibration(device, kernels, time_solution, power_solution, _fastest_s(points), scale_w)


def fit_kernels(points: Points, calibration: Calibration) -> KernelParameters:
    """Fit new kernels on a calibrated GPU; its parameters and its population of kernels stay as they are.

    Args:
        points: measured points of the new kernels.
        calibration: of the same GPU.

    Returns:
        Their parameters, of shape (kernels, 1).
    """
    known = calibration.device
    lowest_core_mhz = known.core_floor_mhz / float(np.exp(calibration.time_solution.device[-1]))
    _, _, kernels = _fit_time(points, known, lowest_core_mhz, calibration.time_solution)
    _, _, kernels = _fit_power(points, known, kernels, calibration.scale_w, calibration.power_solution)
    return kernels
