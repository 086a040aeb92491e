"""The physical model of a GPU under clock control: time and power of a kernel at any pair of clocks.

Time of one call is a smooth maximum (p-norm) of three limits that overlap, plus a part that no clock changes:

    time = fixed + || core / x,  memory * bandwidth(f_m, x),  latency_core / x + latency_memory * f_m,ref / f_m ||_p

with x = core clock / reference core clock (never below the device's actual minimum) and bandwidth() the time per byte
relative to the reference clocks, itself a smooth maximum of the DRAM limit of the memory state and the part of the chip
between SM and DRAM that runs at the core clock (L2, crossbar): || state_factor(f_m), core_bandwidth / x ||_s.

Average power while the kernel repeats, with v = V(f_c) / V(lowest):

    power = base(f_m) + leakage * (v**3 - 1) + clock_w * v**2 * x + (work_j * v**2 + memory_j * byte_factor(f_m)) / time

that is: board and idle power by memory state, leakage that grows with voltage, clock tree and stalled multiprocessors
(the floor), energy of the instructions and of the bytes. A power limit is a smooth minimum on top. The terms follow
Guerreiro et al. (HPCA 2018) and AccelWattch (MICRO 2021); the p-norm stands for imperfect overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from wastenot.core.documents import NotNegative, Positive

Array = NDArray[np.float64]
Exponent = Annotated[float, Field(ge=1, allow_inf_nan=False)]

LEAKAGE_VOLTAGE_EXPONENT = 3.0
"""Leakage power grows about with the cube of the voltage (subthreshold and DIBL); 3 and 6 fit our sweeps equally."""

POWER_LIMIT_SHARPNESS = 60.0
"""Exponent of the smooth minimum of demanded power and power limit: 1.2 % below the limit where both are equal."""

FLOOR_SHARPNESS = 16.0
"""Exponent of the smooth maximum of requested core clock and core floor."""


@dataclass(frozen=True, slots=True)
class DeviceParameters:
    """What all kernels on one GPU share. Tuples over memory states and voltage clocks are in ascending clock order.

    The bounds of fields hold where parameters are read from a file.

    Attributes:
        reference_core_mhz: core clock at which the kernels' parameters are stated.
        reference_memory_mhz: memory clock at which the kernels' parameters are stated (the highest).
        memory_states_mhz: the calibrated memory clocks; other clocks between them are interpolated.
        bandwidth_factor: time per byte in a state, relative to the reference and beyond reference_memory_mhz / clock.
        core_bandwidth: core-clocked time per byte at the reference core clock, relative to the DRAM's at its reference.
        core_bandwidth_sharpness: exponent of the smooth maximum of these two.
        overlap_exponent: exponent p of the smooth maximum of core, memory and latency time; 1 is no overlap.
        core_floor_mhz: the real core clock below which the GPU does not go, whatever it reports.
        voltage_clocks_mhz: core clocks at which the voltage is known; in between, interpolated monotonically.
        voltage_ratio: voltage there relative to that at the lowest of them; 1 or more and not falling.
        base_w: power by memory state that no core clock changes, leakage at the lowest voltage included, in watts.
        leakage_w: leakage that is added per unit of v**3 - 1, in watts.
        byte_energy_factor: energy per byte in a memory state, relative to the highest state.
        power_limit_w: the limit in force, in watts; None for none.
    """

    reference_core_mhz: Positive
    reference_memory_mhz: Positive
    memory_states_mhz: Annotated[tuple[Positive, ...], Field(min_length=1)]
    bandwidth_factor: tuple[Positive, ...]
    core_bandwidth: NotNegative
    core_bandwidth_sharpness: Exponent
    overlap_exponent: Exponent
    core_floor_mhz: NotNegative
    voltage_clocks_mhz: Annotated[tuple[Positive, ...], Field(min_length=1)]
    voltage_ratio: tuple[Positive, ...]
    base_w: tuple[NotNegative, ...]
    leakage_w: NotNegative
    byte_energy_factor: tuple[Positive, ...]
    power_limit_w: Positive | None = None


@dataclass(frozen=True, slots=True)
class KernelParameters:
    """What one kernel demands of the GPU. All are at the reference clocks and none is negative.

    Attributes may be floats (one kernel) or arrays of shape (kernels, 1), which broadcast over points.

    Attributes:
        core_s: time its arithmetic, issue and on-chip traffic need at the reference core clock, in seconds.
        memory_s: time its DRAM traffic needs at the reference memory clock, in seconds.
        latency_core_s: core-clocked part of its chain of dependent accesses, in seconds.
        latency_memory_s: memory-clocked part of that chain, in seconds.
        fixed_s: time that no clock changes (launch, host), in seconds.
        clock_w: power of clock tree and stalled units at the reference core clock and lowest voltage, in watts.
        work_j: energy of one call's instructions at the lowest voltage, in joules.
        memory_j: energy of one call's DRAM traffic in the highest memory state, in joules.
    """

    core_s: ArrayLike
    memory_s: ArrayLike
    latency_core_s: ArrayLike
    latency_memory_s: ArrayLike
    fixed_s: ArrayLike
    clock_w: ArrayLike
    work_j: ArrayLike
    memory_j: ArrayLike


def smooth_maximum(exponent: float, *terms: Array) -> Array:
    """The p-norm of non-negative terms: never below their maximum, never above their sum for exponents of 1 or more."""
    largest = reduce(np.maximum, terms)
    first, *others = terms
    scaled = (first / largest) ** exponent
    for term in others:
        scaled = scaled + (term / largest) ** exponent
    return np.asarray(largest * scaled ** (1.0 / exponent))


def core_ratio(device: DeviceParameters, core_mhz: ArrayLike) -> Array:
    """Real core clock over the reference core clock; the real clock stays at or above the device's floor."""
    requested = np.asarray(core_mhz, dtype=float)
    floor = np.asarray(device.core_floor_mhz, dtype=float)
    return smooth_maximum(FLOOR_SHARPNESS, requested, floor) / device.reference_core_mhz


def by_memory_state(device: DeviceParameters, memory_mhz: ArrayLike, values: tuple[float, ...]) -> Array:
    """Values of the memory states at any memory clock, interpolated over the logarithm of the clock."""
    return np.asarray(np.interp(np.log(memory_mhz), _logs(device.memory_states_mhz), values))


@lru_cache(maxsize=64)
def _logs(values: tuple[float, ...]) -> Array:
    return np.log(values)


def voltage(device: DeviceParameters, core_mhz: ArrayLike) -> Array:
    """Core voltage relative to that at the lowest known clock: monotone, smooth, constant outside the known clocks."""
    clocks = device.voltage_clocks_mhz
    if len(clocks) == 1:
        return np.ones_like(np.asarray(core_mhz, dtype=float))
    begin, inner, coefficients = _voltage_curve(clocks, device.voltage_ratio)
    at = np.minimum(np.maximum(core_mhz, clocks[0]), clocks[-1])
    segment = np.searchsorted(inner, at, side="right")
    cubic, square, slope, value = coefficients[:, segment]
    since = at - begin[segment]
    squared = since * since
    return np.asarray(value + slope * since + square * squared + cubic * (squared * since))


@lru_cache(maxsize=64)
def _voltage_curve(clocks_mhz: tuple[float, ...], ratio: tuple[float, ...]) -> tuple[Array, Array, Array]:
    """Cubics between the known clocks: where each begins, the clocks between two, and coefficients by descending power.

    They are monotone, by the slopes of Fritsch and Butland (SIAM J. Sci. Comput. 5, 1984), as SciPy's PchipInterpolator,
    which takes half a second to import.
    """
    x, y = np.asarray(clocks_mhz, dtype=float), np.asarray(ratio, dtype=float)
    step = np.diff(x)
    rise = np.diff(y) / step
    slope = np.full(len(x), rise[0])
    if len(x) > 2:
        before, after = 2 * step[1:] + step[:-1], step[1:] + 2 * step[:-1]
        rises = (rise[:-1] > 0.0) & (rise[1:] > 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = 1.0 / ((before / rise[:-1] + after / rise[1:]) / (before + after))
        slope[1:-1] = np.where(rises, mean, 0.0)
        slope[0] = _slope_at_the_end(step[0], step[1], rise[0], rise[1])
        slope[-1] = _slope_at_the_end(step[-1], step[-2], rise[-1], rise[-2])
    bend = (slope[:-1] + slope[1:] - 2 * rise) / step
    return x[:-1], x[1:-1], np.stack([bend / step, (rise - slope[:-1]) / step - bend, slope[:-1], y[:-1]])


def _slope_at_the_end(step: float, next_step: float, rise: float, next_rise: float) -> float:
    """That of the parabola through the last three points, unless it falls there."""
    return max(((2 * step + next_step) * rise - step * next_rise) / (step + next_step), 0.0)


def time_s(device: DeviceParameters, kernel: KernelParameters, core_mhz: ArrayLike, memory_mhz: ArrayLike) -> Array:
    """Time of one call.

    Args:
        device: the GPU.
        kernel: the kernel (or kernels, see KernelParameters).
        core_mhz: core clocks in effect, MHz, shape (points,) or (kernels, points).
        memory_mhz: memory clocks in effect, MHz, same shape.

    Returns:
        Seconds, in the broadcast shape.
    """
    x = core_ratio(device, core_mhz)
    slower = device.reference_memory_mhz / np.asarray(memory_mhz, dtype=float)
    dram = slower * by_memory_state(device, memory_mhz, device.bandwidth_factor)
    byte_time = smooth_maximum(device.core_bandwidth_sharpness, dram, device.core_bandwidth / x)
    limits = (
        np.asarray(kernel.core_s) / x,
        np.asarray(kernel.memory_s) * byte_time,
        np.asarray(kernel.latency_core_s) / x + np.asarray(kernel.latency_memory_s) * slower,
    )
    return np.asarray(kernel.fixed_s) + smooth_maximum(device.overlap_exponent, *limits)


def demanded_power_w(
    device: DeviceParameters,
    kernel: KernelParameters,
    core_mhz: ArrayLike,
    memory_mhz: ArrayLike,
    call_s: Array | None = None,
) -> Array:
    """Average power that the kernel would draw, run back to back, if there were no power limit.

    Args:
        device: the GPU.
        kernel: the kernel (or kernels).
        core_mhz: core clocks in effect, MHz.
        memory_mhz: memory clocks in effect, MHz.
        call_s: time of one call at these clocks, where already known.

    Returns:
        Watts, in the broadcast shape.
    """
    v = voltage(device, core_mhz)
    base = by_memory_state(device, memory_mhz, device.base_w)
    leakage = device.leakage_w * (v**LEAKAGE_VOLTAGE_EXPONENT - 1.0)
    clock = np.asarray(kernel.clock_w) * v**2 * core_ratio(device, core_mhz)
    per_call = np.asarray(kernel.work_j) * v**2
    per_call = per_call + np.asarray(kernel.memory_j) * by_memory_state(device, memory_mhz, device.byte_energy_factor)
    taken = time_s(device, kernel, core_mhz, memory_mhz) if call_s is None else call_s
    return base + leakage + clock + per_call / taken


def power_w(
    device: DeviceParameters,
    kernel: KernelParameters,
    core_mhz: ArrayLike,
    memory_mhz: ArrayLike,
    call_s: Array | None = None,
) -> Array:
    """Average power at clocks that are in effect: the demanded power, kept smoothly below the power limit, in watts."""
    demanded = demanded_power_w(device, kernel, core_mhz, memory_mhz, call_s)
    if device.power_limit_w is None:
        return demanded
    limit = np.asarray(device.power_limit_w)
    return 1.0 / smooth_maximum(POWER_LIMIT_SHARPNESS, 1.0 / demanded, 1.0 / limit)
