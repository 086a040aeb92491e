"""From a few measured points of several kernels to the parameters of the GPU and of each kernel.

Time is fitted first, then power given the modelled time, which is all that the two share. All parameters are logarithms of
dimensionless ratios (times over the kernel's fastest measured call, powers over the largest measured), so that they stay
positive and one prior serves every kernel and every GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.devices.simulated import model
from wastenot.devices.simulated.model import DeviceParameters, KernelParameters
from wastenot.kernels.calibration.points import Points, core_levels, require_enough
from wastenot.kernels.calibration.solver import PosteriorMode, Prior, fit_kernels_to_device, learn_population

_TIME_SD = 0.01  # relative standard deviation assumed of a measured time
_POWER_SD = 0.015  # relative standard deviation assumed of a measured power


@dataclass(frozen=True, slots=True)
class Calibration:
    """The fitted GPU.

    Attributes:
        device: what all kernels share.
        kernels: parameters of the kernels, of shape (kernels, 1).
        time_fit: fit of the times, with the population of kernels that it learnt.
        power_fit: fit of the powers, with its population.
        scale_w: unit of power in the fit.
    """

    device: DeviceParameters
    kernels: KernelParameters
    time_fit: PosteriorMode
    power_fit: PosteriorMode
    scale_w: float


def calibrate(points: Points, *, power_limit_w: float | None = None) -> Calibration:
    """Fit the GPU and its kernels together.

    Args:
        points: measured points; those with mask 0 are ignored.
        power_limit_w: power limit in force while measuring, watts.

    Returns:
        The calibration.

    Raises:
        CalibrationError: the points cannot determine the model.
    """
    require_enough(points)
    used = points.mask > 0
    lowest_core_mhz = float(points.core_mhz[used].min())
    scale_w = float(points.power_w[used].max())
    device = _blank_device(points, power_limit_w)
    time_fit, device, kernels = _fit_time(points, device, lowest_core_mhz, None)
    power_fit, device, kernels = _fit_power(points, device, kernels, scale_w, None)
    return Calibration(device, kernels, time_fit, power_fit, scale_w)


def fit_kernels(points: Points, calibration: Calibration) -> KernelParameters:
    """Fit new kernels on a calibrated GPU, whose parameters and population of kernels stay fixed.

    Args:
        points: measured points of the new kernels.
        calibration: of the same GPU.

    Returns:
        Their parameters, of shape (kernels, 1).
    """
    device = calibration.device
    lowest_core_mhz = device.core_floor_mhz / float(np.exp(calibration.time_fit.device[-1]))
    _, _, kernels = _fit_time(points, device, lowest_core_mhz, calibration.time_fit)
    _, _, kernels = _fit_power(points, device, kernels, calibration.scale_w, calibration.power_fit)
    return kernels


def _blank_device(points: Points, power_limit_w: float | None) -> DeviceParameters:
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


def _starts(mean: FloatArray, extremes: FloatArray, kernels: int) -> list[FloatArray]:
    """Starting points for every kernel: the prior's mean, then each extreme kind of kernel."""
    return [np.tile(row, (kernels, 1)) for row in (mean, *np.log(extremes))]


def _fastest_s(points: Points) -> FloatArray:
    return np.asarray(np.where(points.mask > 0, points.time_s, np.inf).min(axis=1))


# --- time ------------------------------------------------------------------------------------------------------------

_TIME_MEAN = np.log([0.35, 0.2, 0.15, 0.08, 0.05])
_TIME_PRIOR_SD = np.array([1.5, 2.0, 1.5, 2.0, 2.0])
_TIME_STARTS = np.array(
    [
        [0.90, 0.10, 0.10, 0.03, 0.05],  # bound by the core
        [0.15, 0.90, 0.10, 0.05, 0.05],  # by bandwidth
        [0.10, 0.10, 0.40, 0.50, 0.05],  # by latency
        [0.20, 0.05, 0.10, 0.03, 0.80],  # by launch
    ]
)
# Where L2 is the bottleneck only below the lowest core clock the gradient is zero: one starting point is not enough.
_CORE_BANDWIDTH_STARTS = (0.15, 0.6)


def time_prior(states: int) -> Prior:
    """Kernel: core, memory, latency core, latency memory, fixed. Device: bandwidth factor by state, then four scalars."""
    device_mean = [*np.zeros(states - 1), np.log(0.3), np.log(8.0), np.log(4.0), np.log(0.95)]
    device_sd = [*np.full(states - 1, 0.15), 1.0, 0.7, 0.7, 0.15]
    return Prior(_TIME_MEAN, _TIME_PRIOR_SD, np.array(device_mean), np.array(device_sd))


def with_time(device: DeviceParameters, logs: FloatArray, lowest_core_mhz: float) -> DeviceParameters:
    """A device with other logarithms of what times depend on, in the order of :func:`time_prior`."""
    states = len(device.memory_states_mhz)
    core_bandwidth, sharpness, overlap, floor = np.exp(logs[states - 1 :]).tolist()
    return replace(
        device,
        bandwidth_factor=(*np.exp(logs[: states - 1]).tolist(), 1.0),
        core_bandwidth=core_bandwidth,
        core_bandwidth_sharpness=1.0 + sharpness,
        overlap_exponent=1.0 + overlap,
        core_floor_mhz=lowest_core_mhz * floor,
    )


def time_kernels(logs: FloatArray, fastest_s: FloatArray) -> KernelParameters:
    """Kernels of these logarithms, in the order of :func:`time_prior`; they have no power yet."""
    seconds = np.exp(logs) * fastest_s[:, None]
    core, memory, latency_core, latency_memory, fixed = (seconds[..., [column]] for column in range(5))
    return KernelParameters(core, memory, latency_core, latency_memory, fixed, 0.0, 0.0, 0.0)


def _fit_time(
    points: Points, device: DeviceParameters, lowest_core_mhz: float, known: PosteriorMode | None
) -> tuple[PosteriorMode, DeviceParameters, KernelParameters]:
    """Fit times; with a known fit of the same GPU its device and population stay fixed."""
    fastest_s = _fastest_s(points)
    log_time = np.log(points.time_s)

    def residuals(kernel_logs: FloatArray, device_logs: FloatArray) -> FloatArray:
        trial = with_time(device, device_logs, lowest_core_mhz)
        kernels = time_kernels(kernel_logs, fastest_s)
        modelled = model.time_s(trial, kernels, points.core_mhz, points.memory_mhz)
        return np.asarray((np.log(modelled) - log_time) / _TIME_SD)

    prior = known.prior if known else time_prior(len(device.memory_states_mhz))
    starts = _starts(prior.kernel_mean, _TIME_STARTS, len(fastest_s))
    if known:
        fit = fit_kernels_to_device(residuals, points.mask, starts, known.device, prior)
    else:
        devices = [prior.device_mean.copy() for _ in _CORE_BANDWIDTH_STARTS]
        for device_start, core_bandwidth in zip(devices, _CORE_BANDWIDTH_STARTS, strict=True):
            device_start[-4] = np.log(core_bandwidth)
        fit = learn_population(residuals, points.mask, starts, devices, prior)
    return fit, with_time(device, fit.device, lowest_core_mhz), time_kernels(fit.kernels, fastest_s)


# --- power -----------------------------------------------------------------------------------------------------------

POWER_MEAN = np.log([0.08, 0.13, 0.13])
POWER_SD = np.array([1.0, 1.5, 1.5])
"""Prior of a kernel's power: logarithms of clock, work and memory, as fractions of the largest power."""

_POWER_STARTS = np.array([[0.05, 0.30, 0.02], [0.05, 0.05, 0.30], [0.20, 0.03, 0.02]])


def _power_prior(points: Points, device: DeviceParameters, scale_w: float) -> Prior:
    """Kernel: clock, work, memory. Device: base and byte energy by state, leakage, steps of the voltage table."""
    base = []
    for state in device.memory_states_mhz:
        here = (points.mask > 0) & (points.memory_mhz == state)
        base.append(np.log(0.8 * points.power_w[here].min() / scale_w))
    states, steps = len(base), len(device.voltage_clocks_mhz) - 1
    device_mean = [*base, *np.zeros(states - 1), np.log(0.03), *np.full(steps, -3.0)]
    device_sd = [*np.full(states, 0.5), *np.full(states - 1, 0.3), 1.0, *np.full(steps, 1.5)]
    return Prior(POWER_MEAN, POWER_SD, np.array(device_mean), np.array(device_sd))


def _with_power(device: DeviceParameters, logs: FloatArray, scale_w: float) -> DeviceParameters:
    states = len(device.memory_states_mhz)
    steps = np.exp(logs[2 * states :])
    return replace(
        device,
        base_w=tuple((scale_w * np.exp(logs[:states])).tolist()),
        byte_energy_factor=(*np.exp(logs[states : 2 * states - 1]).tolist(), 1.0),
        leakage_w=float(scale_w * np.exp(logs[2 * states - 1])),
        voltage_ratio=(1.0, *(1.0 + np.cumsum(steps)).tolist()),
    )


def power_kernels(kernels: KernelParameters, logs: FloatArray, scale_w: float, fastest_s: FloatArray) -> KernelParameters:
    """The kernels with power: logarithms of clock, work and memory, as fractions of ``scale_w`` at ``fastest_s``."""
    watts = np.exp(logs) * scale_w
    joules = watts * fastest_s[:, None]
    return replace(kernels, clock_w=watts[..., [0]], work_j=joules[..., [1]], memory_j=joules[..., [2]])


def _fit_power(
    points: Points, device: DeviceParameters, kernels: KernelParameters, scale_w: float, known: PosteriorMode | None
) -> tuple[PosteriorMode, DeviceParameters, KernelParameters]:
    """Fit powers given the time model; with a known fit of the same GPU its device and population stay fixed."""
    fastest_s = _fastest_s(points)
    log_power = np.log(points.power_w)
    call_s = model.time_s(device, kernels, points.core_mhz, points.memory_mhz)

    def residuals(kernel_logs: FloatArray, device_logs: FloatArray) -> FloatArray:
        trial = _with_power(device, device_logs, scale_w)
        trial_kernels = power_kernels(kernels, kernel_logs, scale_w, fastest_s)
        modelled = model.power_w(trial, trial_kernels, points.core_mhz, points.memory_mhz, call_s)
        return np.asarray((np.log(modelled) - log_power) / _POWER_SD)

    prior = known.prior if known else _power_prior(points, device, scale_w)
    starts = _starts(prior.kernel_mean, _POWER_STARTS, len(fastest_s))
    if known:
        fit = fit_kernels_to_device(residuals, points.mask, starts, known.device, prior)
    else:
        fit = learn_population(residuals, points.mask, starts, [prior.device_mean], prior)
    return fit, _with_power(device, fit.device, scale_w), power_kernels(kernels, fit.kernels, scale_w, fastest_s)
