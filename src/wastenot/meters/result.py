"""What a window reports of the GPUs it measured, and how that follows from their logs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.origin import Origin
from wastenot.devices.protocol import Identity
from wastenot.meters.power_log import PowerLog, Samples
from wastenot.meters.window_energy import Steps, WindowEnergy, window_energy

NO_COUNTER = "no energy counter: energy from the power gauge"
NO_STEPS = "the energy counter did not step: energy from the power gauge"
SHARED = "another process used the GPU"
THROTTLED = "throttled"
MEMORY_SHORT = "too short for the memory's power, which is averaged over a second"

MEMORY_GAUGE_S = 1.0  # over which the gauge of the memory's power averages (Hopper; published sensor tables)
_GAUGE_SCATTER_FRACTION = 0.5  # gauge readings average a part of a step: this much of their scatter is that of whole steps
_MEANS = ("core_mhz", "memory_mhz", "temperature_c", "throttled_share")  # over a window
_NORMAL_MEDIAN = 0.6745  # median of |z| of a normal number


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowNumbers:
    """The numbers of a window, for one GPU or several together: sums of energy and power, means of the rest.

    Attributes:
        origin: of the numbers.
        time_s: of the window; for one GPU by its own events where these bracket it.
        energy_j: used; ``None`` where it cannot be read.
        energy_se_j: its standard error, including that of the window's edges.
        mean_power_w: energy divided by time.
        memory_energy_j: the memory's part, where the GPU reports its power and the window outlasts that gauge's average.
        core_mhz, memory_mhz, temperature_c: means over the window.
        counted_mhz: cycles that multiprocessors counted per microsecond, from when PyTorch's current stream got to the begin
            of the window until it got to the end: the mean core clock, however short its changes, less the cycles that the
            chip skips under load; ``None`` where they were not counted.
        throttled_share: fraction of the time in which power or heat held the clocks down.
        flags: caveats for the reader; for several GPUs each with the GPU's name.
    """

    origin: Origin
    time_s: float
    energy_j: float | None = None
    energy_se_j: float | None = None
    mean_power_w: float | None = None
    memory_energy_j: float | None = None
    core_mhz: float | None = None
    counted_mhz: float | None = None
    memory_mhz: float | None = None
    temperature_c: float | None = None
    throttled_share: float | None = None
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWindow(WindowNumbers):
    """One GPU over a window."""

    device: str
    unique_id: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowResult(WindowNumbers):
    """A window over all of its GPUs together, and each of them. What one of them cannot report is ``None`` for all."""

    name: str
    gpus: tuple[GpuWindow, ...]

    @classmethod
    def of(cls, name: str, time_s: float, gpus: tuple[GpuWindow, ...]) -> WindowResult:
        """Combine the results of single GPUs."""
        energy = _sum([gpu.energy_j for gpu in gpus])
        errors = _sum([None if gpu.energy_se_j is None else gpu.energy_se_j**2 for gpu in gpus])
        named = len(gpus) > 1
        flags = dict.fromkeys(f"{gpu.device}: {flag}" if named else flag for gpu in gpus for flag in gpu.flags)
        return cls(
            name=name,
            origin=gpus[0].origin,
            time_s=time_s,
            energy_j=energy,
            energy_se_j=None if errors is None else math.sqrt(errors),
            mean_power_w=None if energy is None or time_s <= 0.0 else energy / time_s,
            memory_energy_j=_sum([gpu.memory_energy_j for gpu in gpus]),
            gpus=gpus,
            flags=tuple(flags),
            **{each: _mean([getattr(gpu, each) for gpu in gpus]) for each in (*_MEANS, "counted_mhz")},
        )


def means_since(before: WindowNumbers | None, now: WindowNumbers) -> dict[str, float | None]:
    """Mean power, clocks, temperature and throttling between two ends of a window; from its begin without the first."""
    seconds = now.time_s - (0.0 if before is None else before.time_s)

    def mean(until: float | None, earlier: float | None) -> float | None:
        return None if until is None or earlier is None or seconds <= 0.0 else (until - earlier) / seconds

    def total(window: WindowNumbers | None, name: str) -> float | None:
        value = 0.0 if window is None else getattr(window, name)
        return None if value is None else value * (1.0 if window is None else window.time_s)

    power_w = mean(now.energy_j, 0.0 if before is None else before.energy_j)
    return {"power_w": power_w, **{name: mean(total(now, name), total(before, name)) for name in _MEANS}}


def gpu_window(
    identity: Identity, log: PowerLog, has_counter: bool, begin_s: float, end_s: float, flags: Sequence[str] = ()
) -> GpuWindow:
    """Evaluate a window on the log of one GPU.

    Args:
        identity: of the GPU.
        log: of it.
        has_counter: whether it has an energy counter.
        begin_s: of the window, on the log's clock.
        end_s: of it.
        flags: to begin with.
    """
    samples = log.samples(begin_s, end_s)
    all_flags = list(flags)
    energy = _energy(log.steps(begin_s, end_s), samples, has_counter, begin_s, end_s, all_flags)
    length = end_s - begin_s
    within = samples.between(begin_s, end_s)
    throttled = _throttled(samples, begin_s, end_s)
    if throttled:
        all_flags.append(THROTTLED)
    processes = samples.processes[within]
    if len(processes) and float(np.nanmax(processes, initial=0.0)) > 1.0:
        all_flags.append(SHARED)
    return GpuWindow(
        device=identity.name,
        unique_id=identity.unique_id,
        model=identity.model,
        origin=identity.origin,
        time_s=length,
        energy_j=None if energy is None else energy.energy_j,
        energy_se_j=None if energy is None else energy.error_j,
        mean_power_w=None if energy is None or length <= 0.0 else energy.energy_j / length,
        memory_energy_j=_memory_energy(samples, begin_s, end_s, all_flags),
        throttled_share=throttled,
        **{name: _mean_of_known(getattr(samples, name)[within]) for name in _MEANS[:3]},  # throttling is counted
        flags=tuple(all_flags),
    )


def _energy(
    steps: Steps, samples: Samples, has_counter: bool, begin_s: float, end_s: float, flags: list[str]
) -> WindowEnergy | None:
    left = right = None
    scatter = 0.0
    if has_counter and len(steps.moment_s) > 1:
        left = _power_near(samples, begin_s)
        right = _power_near(samples, end_s)
        scatter = _gauge_scatter(steps, samples)
    else:
        flags.append(NO_STEPS if has_counter else NO_COUNTER)
        steps = gauge_steps(samples)
    energy = window_energy(steps, begin_s, end_s, gauge_scatter_w=scatter, left_w=left, right_w=right)
    if energy is not None:
        flags.extend(energy.flags)
    return energy


def _power_near(samples: Samples, moment_s: float) -> float | None:
    known = ~np.isnan(samples.power_w)
    if not known.any():
        return None
    return float(samples.power_w[known][int(np.argmin(np.abs(samples.moment_s[known] - moment_s)))])


def _gauge_scatter(steps: Steps, samples: Samples) -> float:
    """How much power varies within steps, by the gauge: each reading compared with the step before it."""
    powers = np.diff(steps.energy_j) / np.diff(steps.moment_s)
    step = np.searchsorted(steps.moment_s, samples.moment_s, side="right") - 2
    valid = (step >= 0) & (step < len(powers)) & ~np.isnan(samples.power_w)
    if np.count_nonzero(valid) < 4:
        return 0.0
    differences = np.abs(samples.power_w[valid] - powers[step[valid]])
    return _GAUGE_SCATTER_FRACTION * float(np.median(differences)) / _NORMAL_MEDIAN


def gauge_steps(samples: Samples) -> Steps:
    """The gauge's readings integrated as a counter would: each holds from half way to its neighbours."""
    known = ~np.isnan(samples.power_w)
    moments, powers = samples.moment_s[known], samples.power_w[known]
    lengths = np.diff(moments)
    energies = np.concatenate([[0.0], np.cumsum(lengths * 0.5 * (powers[1:] + powers[:-1]))]) if len(moments) else moments
    widths = np.full(len(moments), float(np.median(lengths)) if len(lengths) else 0.0)
    return Steps(moments, widths, energies)


def _throttled(samples: Samples, begin_s: float, end_s: float) -> float | None:
    known = ~np.isnan(samples.throttled_s)
    if np.count_nonzero(known) < 2 or end_s <= begin_s:
        return None
    begin, end = np.interp([begin_s, end_s], samples.moment_s[known], samples.throttled_s[known])
    return min(max(float(end - begin) / (end_s - begin_s), 0.0), 1.0)


def _memory_energy(samples: Samples, begin_s: float, end_s: float, flags: list[str]) -> float | None:
    """A reading is the mean of the second before it, so it is dated half a second earlier."""
    known = ~np.isnan(samples.memory_power_w)
    if np.count_nonzero(known) < 2:
        return None
    if end_s - begin_s < MEMORY_GAUGE_S:
        flags.append(MEMORY_SHORT)
        return None
    moments = samples.moment_s[known] - 0.5 * MEMORY_GAUGE_S
    powers = samples.memory_power_w[known]
    inside = (moments > begin_s) & (moments < end_s)
    moment: FloatArray = np.concatenate([[begin_s], moments[inside], [end_s]])
    return float(np.trapezoid(np.interp(moment, moments, powers), moment))


def _mean_of_known(values: FloatArray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _mean(values: list[float | None]) -> float | None:
    total = _sum(values)
    return None if total is None else total / len(values)


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
