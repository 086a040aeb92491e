"""Kernels on a drawn GPU: parameters that reproduce exactly what was observed, and the costs at other clocks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

from wastenot.core.arrays import FloatArray
from wastenot.core.setting import Setting
from wastenot.devices.simulated import model
from wastenot.devices.simulated.model import DeviceParameters, KernelParameters
from wastenot.devices.simulated.preset import Preset
from wastenot.kernels.forecast.observed import Observation
from wastenot.kernels.forecast.prior import GpuDraw
from wastenot.sweeping.grid import Grid

_SAME_OPERATION = 0.8  # correlation of the draws for kernels of one operation
_BISECTIONS = 32
_CLOCKS = 32  # about how many core clocks a plan may choose from
_KEPT_FOR_WORK = 0.03  # least fraction of power that instructions take: no kernel is pure memory traffic
_MOST_FIXED = 0.97  # largest fraction of a call's time that depends on no clock
_DOUBT_AT_KNOWN_CLOCK = 0.4  # of what default clocks cost over locked ones, where only the clock's swing is unknown
_UNSCALED_OF_LARGE = 0.2  # of the fixed fraction, for large kernels of LLMs whose FLOPs and bytes are known


@dataclass(frozen=True, slots=True, eq=False)
class CandidateSettings:
    """Settings that a plan may choose from, besides the default clocks.

    Attributes:
        settings: as requested, by ascending memory clock, then core clock.
        core_mhz: requested core clock, shape (settings,).
        memory_mhz: memory clock that takes effect, shape (settings,).
    """

    settings: tuple[Setting, ...]
    core_mhz: FloatArray
    memory_mhz: FloatArray


def candidate_settings(preset: Preset, core_step_mhz: float | None = None, *, core_only: bool = False) -> CandidateSettings:
    """A grid over the clocks of a GPU.

    Args:
        preset: the GPU.
        core_step_mhz: distance between core clocks, from the highest down; ``None`` for about :data:`_CLOCKS` of them.
        core_only: leave the memory clock at its highest.

    Raises:
        BadInputError: the step is not positive.
    """
    table = preset.clocks
    cores = [core for core in table.core_mhz if core <= table.boost_mhz]
    if core_step_mhz is None:
        steps = max(1, round((cores[-1] - cores[0]) / table.core_step_mhz / _CLOCKS))
        core_step_mhz = steps * table.core_step_mhz
    memories = table.memory_mhz[-1:] if core_only else table.memory_mhz
    requested = Grid(core_step_mhz).settings(dict.fromkeys(memories, tuple(cores)))
    settings = []
    for setting in sorted(requested, key=lambda each: (each.memory_mhz or 0.0, each.core_mhz or 0.0)):
        assert setting.core_mhz is not None and setting.memory_mhz is not None
        moved = any(setting.memory_mhz == pair.memory_mhz and setting.core_mhz > pair.core_above_mhz for pair in table.moved)
        if not moved:  # a setting that takes effect as another one is that other one
            settings.append(setting)
    core = np.array([setting.core_mhz for setting in settings], dtype=float)
    memory = np.array([setting.memory_mhz for setting in settings], dtype=float)
    return CandidateSettings(tuple(settings), core, memory)


@dataclass(frozen=True, slots=True, eq=False)
class DrawnKernels:
    """Kernels whose costs at the observed clocks are those observed, less what the driver's clock management costs.

    Attributes:
        parameters: arrays of shape (kernels, 1).
        core_mhz: clock in effect at the default clocks, shape (kernels,); drawn where it was not recorded.
        limit_w: power limit of each kernel, shape (kernels,).
        ceiling_mhz: highest clock of each kernel where power allows it, shape (kernels,).
    """

    parameters: KernelParameters
    core_mhz: FloatArray
    limit_w: FloatArray
    ceiling_mhz: FloatArray


def draw_kernels(observed: Observation, gpu: GpuDraw) -> DrawnKernels:
    """Draw what is unknown about the kernels, given a GPU and what was observed.

    First draws their costs at the same clocks, locked: the driver's clock management may cost time and power.
    """
    rng = np.random.default_rng(gpu.seed)
    device, numbers = gpu.device, gpu.numbers
    core_mhz = _clocks_at_auto(observed, device, rng)
    x = model.core_ratio(device, core_mhz)
    count = len(observed.time_s)
    doubt = np.where(np.isnan(observed.core_mhz), 1.0, _DOUBT_AT_KNOWN_CLOCK) * (numbers["auto_costs"] > 0.0)
    lost_time, lost_power = (
        1.0 - numbers[name] * doubt * 2.0 * _correlated(observed, rng) for name in ("auto_time", "auto_power")
    )
    locked = replace(observed, time_s=observed.time_s * lost_time, power_w=observed.power_w * lost_power)
    core, memory, latency, traffic = _limits(locked, gpu, rng)
    unscaled = numbers["unscaled"] * np.where(np.isfinite(observed.arithmetic), _UNSCALED_OF_LARGE, 1.0)
    unscaled = unscaled * _correlated(observed, rng) ** 1.5 + numbers["fixed_s"] / locked.time_s
    fixed_s = np.minimum(unscaled, _MOST_FIXED) * locked.time_s
    together = model.smooth_maximum(device.overlap_exponent, core, memory, latency)
    scale = (locked.time_s - fixed_s) / together
    slower = device.reference_memory_mhz / observed.memory_mhz
    dram = slower * model.by_memory_state(device, observed.memory_mhz, device.bandwidth_factor)
    byte_time = model.smooth_maximum(device.core_bandwidth_sharpness, dram, device.core_bandwidth / x)
    chain = np.clip(numbers["latency_core"] + 0.1 * rng.standard_normal(count), 0.02, 0.98)
    time_only = KernelParameters(
        core_s=core * scale * x,
        memory_s=memory * scale / byte_time,
        latency_core_s=latency * scale * chain * x,
        latency_memory_s=latency * scale * (1.0 - chain) / slower,
        fixed_s=fixed_s,
        clock_w=0.0,
        work_j=0.0,
        memory_j=0.0,
    )
    kernels = _with_power(locked, gpu, time_only, core_mhz, traffic, rng)
    columns = {name: np.asarray(getattr(kernels, name))[:, None] for name in KernelParameters.__slots__}
    limit = np.where(observed.power_limited, locked.power_w, np.maximum(observed.power_limit_w, observed.power_w))
    ceiling = np.where(observed.power_limited, device.reference_core_mhz, core_mhz)
    return DrawnKernels(KernelParameters(**columns), core_mhz, limit, ceiling)


def _clocks_at_auto(observed: Observation, device: DeviceParameters, rng: np.random.Generator) -> FloatArray:
    """Clocks in effect; drawn where not recorded: near the highest, or well below it for power-limited kernels."""
    highest = device.reference_core_mhz
    count = len(observed.core_mhz)
    free = highest * (1.0 - 0.03 * rng.random() * np.ones(count))
    limited = highest * rng.uniform(0.7, 1.0, count)
    drawn = np.where(observed.power_limited, limited, free)
    return np.minimum(np.where(np.isnan(observed.core_mhz), drawn, observed.core_mhz), highest)


def _limits(
    observed: Observation, gpu: GpuDraw, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Core, memory and latency time as fractions of the kernel's time, the largest of them 1; and the traffic's fraction."""
    numbers = gpu.numbers
    known = np.isfinite(observed.traffic)
    gemm = np.array([operation == "gemm" for operation in observed.operations])
    again = np.where(gemm, numbers["reread"] ** np.exp(0.15 * rng.standard_normal(len(gemm))), 1.0)
    traffic = np.clip(np.where(known, observed.traffic, 0.0) * again / numbers["reached_bandwidth"], 0.0, 1.0)
    arithmetic = np.clip(np.where(known, observed.arithmetic, 0.0) / numbers["reached_flops"], 0.0, 1.0)
    from_power = _traffic_from_power(observed)
    traffic = np.where(known | np.isnan(from_power), traffic, from_power * numbers["reached_bandwidth"])
    traffic_known = known | np.isfinite(from_power)
    beside = numbers["beside"]
    core = arithmetic + (1.0 - arithmetic) * _correlated(observed, rng) ** beside
    memory = np.where(traffic_known, traffic, _correlated(observed, rng) ** beside)
    latency = 0.5 * _correlated(observed, rng) ** beside
    # The bottleneck is most likely a limit that the kernel is close to; far from all, one that FLOPs and bytes do not show.
    near = np.stack([arithmetic, traffic, np.zeros_like(core)])
    odds = np.array([numbers["core_bound"], 1.0 - numbers["core_bound"], numbers["latency_bound"]])[:, None]
    odds = odds * np.where(traffic_known, (near + 0.02) ** np.array([[2.0], [4.0], [1.0]]) / (1.02 - near) ** 2, 1.0)
    hidden = np.array([0.3 * numbers["core_bound"], 0.0, 0.3 * numbers["latency_bound"]])[:, None]
    odds = odds + np.where(traffic_known, hidden, 0.0)
    cumulative = np.cumsum(odds / odds.sum(axis=0), axis=0)
    bottleneck = (cumulative < _correlated(observed, rng)).sum(axis=0)
    core, memory, latency = (np.where(bottleneck == index, 1.0, part) for index, part in enumerate((core, memory, latency)))
    traffic = np.where(traffic_known, traffic, memory * rng.uniform(0.5, 1.0, len(core)))
    return core, memory, latency, traffic


def _correlated(observed: Observation, rng: np.random.Generator) -> FloatArray:
    """A uniform number from 0 to 1 for each kernel, correlated among kernels of the same known operation."""
    own = rng.standard_normal(len(observed.operations))
    names = [name if name != "other" else f"other {index}" for index, name in enumerate(observed.operations)]
    common = {name: rng.standard_normal() for name in dict.fromkeys(names)}
    shared = np.array([common[name] for name in names])
    return np.asarray(ndtr(np.sqrt(_SAME_OPERATION) * shared + np.sqrt(1.0 - _SAME_OPERATION) * own))


def _traffic_from_power(observed: Observation) -> FloatArray:
    """Traffic as a fraction of the largest, from memory power; NaN where that is not recorded or hardly varies."""
    power = observed.memory_power_w
    if np.isfinite(power).sum() < 3:
        return np.full(len(power), np.nan)
    least, most = float(np.nanmin(power)), float(np.nanmax(power))
    if most < 1.3 * least:
        return np.full(len(power), np.nan)
    return np.asarray((power - least) / (most - least))


def _with_power(
    observed: Observation,
    gpu: GpuDraw,
    kernels: KernelParameters,
    core_mhz: FloatArray,
    traffic: FloatArray,
    rng: np.random.Generator,
) -> KernelParameters:
    """Split each kernel's power into board, leakage, clock, memory and instructions."""
    device, numbers = gpu.device, gpu.numbers
    limit = observed.power_limit_w
    x, v = model.core_ratio(device, core_mhz), model.voltage(device, core_mhz)
    base = model.by_memory_state(device, observed.memory_mhz, device.base_w)
    leakage = device.leakage_w * (v**model.LEAKAGE_VOLTAGE_EXPONENT - 1.0)
    left = np.maximum(observed.power_w - base - leakage, 0.0)
    byte_factor = model.by_memory_state(device, observed.memory_mhz, device.byte_energy_factor)
    memory = numbers["memory_full"] * limit * traffic
    if np.isfinite(observed.memory_power_w).any():
        idle = numbers["memory_idle"] * float(np.nanmin(observed.memory_power_w))
        memory = np.where(np.isnan(observed.memory_power_w), memory, observed.memory_power_w - idle)
    clock = numbers["clock"] * limit * np.exp(0.3 * rng.standard_normal(len(x))) * v**2 * x
    # Where they exceed what is left, both shrink by the same factor, and something is kept for instructions.
    shrink = np.minimum(1.0, (1.0 - _KEPT_FOR_WORK) * left / np.maximum(memory + clock, 1e-12))
    memory, clock = memory * shrink, clock * shrink
    return replace(
        kernels,
        clock_w=clock / (v**2 * x),
        memory_j=memory * observed.time_s / byte_factor,
        work_j=(left - memory - clock) * observed.time_s / v**2,
    )


def costs(device: DeviceParameters, kernels: DrawnKernels, candidates: CandidateSettings) -> tuple[FloatArray, FloatArray]:
    """Time and energy of a call of each kernel at each candidate setting, both of shape (kernels, settings).

    A core clock is a ceiling: no kernel runs faster than at the default clocks with the same memory clock, unless a lower
    memory clock leaves it more of the power limit.
    """
    states = np.unique(candidates.memory_mhz)
    ceiling = _highest_clock(device, kernels, states)
    core = np.minimum(candidates.core_mhz, ceiling[:, np.searchsorted(states, candidates.memory_mhz)])
    time = model.time_s(device, kernels.parameters, core, candidates.memory_mhz)
    power = model.demanded_power_w(device, kernels.parameters, core, candidates.memory_mhz, time)
    return time, time * power


def _highest_clock(device: DeviceParameters, kernels: DrawnKernels, states_mhz: FloatArray) -> FloatArray:
    """The highest core clock within each kernel's power limit at each memory clock, shape (kernels, states)."""
    limit = kernels.limit_w[:, None]

    def within_limit(core_mhz: FloatArray) -> FloatArray:
        power = model.demanded_power_w(device, kernels.parameters, core_mhz, states_mhz)
        return np.asarray(power <= limit * (1.0 + 1e-9))

    ceiling = np.repeat(kernels.ceiling_mhz[:, None], len(states_mhz), axis=1)
    high, free = ceiling, within_limit(ceiling)
    low = np.full_like(high, device.core_floor_mhz)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        within = within_limit(middle)
        low, high = np.where(within, middle, low), np.where(within, high, middle)
    return np.where(free, ceiling, low)
