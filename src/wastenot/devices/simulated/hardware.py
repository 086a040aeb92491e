"""The hardware around a simulated GPU's kernels, as presets describe it: heat, switching latency, noise, sensors."""

from __future__ import annotations

import math
from typing import Annotated, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from wastenot.core.arrays import FloatArray
from wastenot.core.documents import NotNegative, Positive
from wastenot.core.setting import Setting


class PresetPart(BaseModel):
    """A part of a preset file: frozen, with no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Thermal(PresetPart):
    """A GPU that warms up with a single time constant: dT/dt = (ambient + resistance · power − T) / time constant.

    Attributes:
        ambient_c: temperature with no power at all.
        resistance_c_per_w: temperature rise per watt in equilibrium.
        time_constant_s: time after which 63 % of a change is complete.
        leakage_per_c: relative growth of leakage per degree.
        reference_c: temperature at which the power model's parameters are stated.
        limit_c: temperature above which the clocks are lowered.
    """

    ambient_c: Annotated[float, Field(ge=-50, le=80)]
    resistance_c_per_w: NotNegative
    time_constant_s: Positive
    leakage_per_c: NotNegative
    reference_c: Annotated[float, Field(ge=-50, le=120)]
    limit_c: Annotated[float, Field(ge=30, le=130)]

    def after(self, temperature_c: float, power_w: float, seconds: float) -> float:
        """Temperature after some time at constant power."""
        end = self.ambient_c + self.resistance_c_per_w * power_w
        return end + (temperature_c - end) * math.exp(-seconds / self.time_constant_s)


class Switching(PresetPart):
    """How late requested clocks take effect; the target clock matters most (Velicka et al., IPDPSW 2025).

    Attributes:
        core_s: (core clock, latency) pairs by ascending clock, interpolated in between; auto counts as the highest.
        memory_s: latency of a change of memory clock, where that of the core clock is not longer.
        jitter: standard deviation of the logarithm of the latency.
        power_limit_s: latency of a change of power limit alone; ``None`` where it is as of a change of core clock.
        stall_s: for so long kernels pause until a change of core clock takes effect.
        memory_stall_s: the same of a change of memory clock.
        late_chance: fraction of requests that take much longer than others.
        late_factor: how much longer those take.
    """

    core_s: tuple[tuple[Positive, NotNegative], ...] = ()
    memory_s: NotNegative = 0.0
    jitter: NotNegative = 0.0
    power_limit_s: NotNegative | None = None
    stall_s: NotNegative = 0.0
    memory_stall_s: NotNegative = 0.0
    late_chance: Annotated[float, Field(ge=0, lt=1)] = 0.0
    late_factor: Positive = 5.0

    @classmethod
    def of(cls, seconds: float, jitter: float = 0.0, stall_s: float = 0.0) -> Self:
        """One latency for every change.

        Args:
            seconds: its median.
            jitter: standard deviation of its logarithm.
            stall_s: for so long kernels pause at each change of a clock.
        """
        return cls(core_s=((1.0, seconds),), memory_s=seconds, jitter=jitter, stall_s=stall_s, memory_stall_s=stall_s)

    def latency_s(self, before: Setting, after: Setting) -> float:
        """Median latency of a change."""
        if self.power_limit_s is not None and (before.core_mhz, before.memory_mhz) == (after.core_mhz, after.memory_mhz):
            return self.power_limit_s
        memory = self.memory_s if before.memory_mhz != after.memory_mhz else 0.0
        if not self.core_s:
            return memory
        clocks, latencies = zip(*self.core_s, strict=True)
        target = clocks[-1] if after.core_mhz is None else after.core_mhz
        return max(memory, float(np.interp(target, clocks, latencies)))

    def pause_s(self, before: Setting, after: Setting) -> float:
        """How long kernels pause until a change takes effect."""
        core = self.stall_s if before.core_mhz != after.core_mhz else 0.0
        memory = self.memory_stall_s if before.memory_mhz != after.memory_mhz else 0.0
        return max(core, memory)


class Noise(PresetPart):
    """How runs of the same task at the same setting differ: standard deviations of logarithms.

    Attributes:
        run_time: variation of a call's time between runs.
        run_power: variation of power between runs.
    """

    run_time: NotNegative = 0.0
    run_power: NotNegative = 0.0


class CounterModel(PresetPart):
    """An energy counter.

    Attributes:
        period_s: time between its updates.
        read_s: duration of a read.
        gain: ratio of readings to true energy.
        noise_w: standard deviation of the power behind each update.
        quantum_j: resolution of its readings.
    """

    period_s: Positive
    read_s: NotNegative = 0.0
    gain: Positive = 1.0
    noise_w: NotNegative = 0.0
    quantum_j: Positive = 0.001


class GaugeModel(PresetPart):
    """A power gauge.

        samples     ╵   ╵   ╵   ╵   ╵   ╵   ╵   ╵   ╵   ╵        each a mean, or a lag, of power up to it
        readings    │             ┊•│             ┊•│            the latest sample that is at least delay_s old

    Attributes:
        period_s: time between its readings.
        window_s: length of the window a reading averages over.
        lag_s: time constant where readings are a first-order lag of power rather than a mean; 0 for a mean.
        delay_s: time from the end of the window to the reading; with ``sample_s`` its minimum.
        read_s: duration of a read.
        gain: ratio of readings to true power.
        noise_w: standard deviation of a reading.
        sample_s: interval at which it samples by its own clock; 0 where it samples when a reading is due.
        sample_drift: relative speed by which that clock is fast: where the period is a multiple of ``sample_s``, readings
            are later by this much each second, until they take the next sample and are earlier by ``sample_s``.
    """

    period_s: Positive
    window_s: Positive
    lag_s: NotNegative = 0.0
    delay_s: NotNegative = 0.0
    read_s: NotNegative = 0.0
    gain: Positive = 1.0
    noise_w: NotNegative = 0.0
    sample_s: NotNegative = 0.0
    sample_drift: Annotated[float, Field(gt=-0.1, lt=0.1)] = 0.0

    def phases_s(self, rng: np.random.Generator) -> tuple[float, float]:
        """Random phases of its readings and of its samples."""
        phase_s = float(rng.uniform(0.0, self.period_s))
        return phase_s, float(rng.uniform(0.0, self.sample_s)) if self.sample_s else 0.0

    def seen_until_s(self, reading_s: FloatArray, sample_phase_s: float) -> FloatArray:
        """Times at which readings were sampled: power up to these affects them.

        Args:
            reading_s: times of the readings.
            sample_phase_s: time of one of its samples.
        """
        latest = np.asarray(reading_s, dtype=float) - self.delay_s
        if not self.sample_s:
            return latest
        between_s = self.sample_s / (1.0 + self.sample_drift)
        return np.asarray(sample_phase_s + np.floor((latest - sample_phase_s) / between_s) * between_s)


class SensorModels(PresetPart):
    """The sensors of a device; ``None`` for one that it lacks.

    Attributes:
        energy: the energy counter.
        power: the power gauge.
        clock_period_s: time between updates of the reported clocks; 0 for immediate ones.
        clock_read_s: duration of a read of the clocks.
    """

    energy: CounterModel | None = None
    power: GaugeModel | None = None
    clock_period_s: NotNegative = 0.0
    clock_read_s: NotNegative = 0.0
