"""Parts of a preset besides its time and power: heat, switching latency, noise, sensors."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from wastenot.arrays import FloatArray
from wastenot.setting import Setting

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Part(BaseModel):
    """A part of a preset file: frozen, and no field that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Thermal(Part):
    """A GPU that warms with a single time constant: dT/dt = (ambient + resistance · power − T) / time constant.

    Attributes:
        ambient_c: temperature with no power at all.
        resistance_c_per_w: degrees above that for each watt, in the end.
        time_constant_s: after which 63 % of a change is done.
        leakage_per_c: share by which leakage grows with each degree.
        reference_c: temperature at which the power model is stated.
        limit_c: temperature above which the clocks are lowered to hold it.
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


class Switching(Part):
    """How late requested clocks arrive; the target matters most (Velicka et al., IPDPSW 2025).

    Attributes:
        core_s: (core clock, latency) pairs by rising clock; between them it is interpolated; auto is the highest.
        memory_s: latency of a change of memory clock.
        jitter: standard deviation of the logarithm of the latency.
    """

    core_s: tuple[tuple[Positive, NotNegative], ...] = ()
    memory_s: NotNegative = 0.0
    jitter: NotNegative = 0.0

    def latency_s(self, before: Setting, after: Setting) -> float:
        """Mean latency of a change."""
        memory = self.memory_s if before.memory_mhz != after.memory_mhz else 0.0
        if not self.core_s:
            return memory
        clocks, latencies = zip(*self.core_s, strict=True)
        target = clocks[-1] if after.core_mhz is None else after.core_mhz
        return max(memory, float(np.interp(target, clocks, latencies)))


class Noise(Part):
    """How runs of the same task at the same setting differ: standard deviations of logarithms.

    Attributes:
        run_time: of the time of a call, from run to run.
        run_power: of the power, from run to run.
    """

    run_time: NotNegative = 0.0
    run_power: NotNegative = 0.0


class CounterModel(Part):
    """An energy counter.

    Attributes:
        period_s: between its steps.
        read_s: what a read costs.
        gain: it reads this times the truth.
        noise_w: standard deviation of the power that each step stands for.
        quantum_j: of its readings.
    """

    period_s: Positive
    read_s: NotNegative = 0.0
    gain: Positive = 1.0
    noise_w: NotNegative = 0.0
    quantum_j: Positive = 0.001


class GaugeModel(Part):
    """A power gauge.

        samples     ╵   ╵   ╵   ╵   ╵   ╵   ╵   ╵   ╵   ╵        each a mean, or a lag, of power up to it
        readings    │             ┊•│             ┊•│            the latest sample that is delay_s old

    Attributes:
        period_s: between its readings.
        window_s: that a reading averages.
        delay_s: between the window's end and the reading; with ``sample_s`` the least that it is.
        read_s: what a read costs.
        gain: it reads this times the truth.
        noise_w: standard deviation of a reading.
        lag_s: time constant of the first-order lag that a reading is, in place of a mean over a window; 0 for a mean.
        sample_s: between the moments at which it looks by a clock of its own; 0 where it looks when it is due.
        sample_drift: by which that clock is fast, as a share: with a period of whole ``sample_s``, readings come later by
            this each second, until they take the next sample and are ``sample_s`` less late.
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
        """Where its readings and its samples lie in their periods, by chance."""
        phase_s = float(rng.uniform(0.0, self.period_s))
        return phase_s, float(rng.uniform(0.0, self.sample_s)) if self.sample_s else 0.0

    def seen_until_s(self, reading_s: FloatArray, sample_phase_s: float) -> FloatArray:
        """Moments up to which readings tell of power: when each looked.

        Args:
            reading_s: when they came.
            sample_phase_s: moment of one of its samples.
        """
        latest = np.asarray(reading_s, dtype=float) - self.delay_s
        if not self.sample_s:
            return latest
        between_s = self.sample_s / (1.0 + self.sample_drift)
        return np.asarray(sample_phase_s + np.floor((latest - sample_phase_s) / between_s) * between_s)


class SensorModels(Part):
    """The sensors of a device; a missing one cannot be read.

    Attributes:
        energy: the counter.
        power: the gauge.
        clock_period_s: between samples of the clocks that it tells; 0 for at once.
        clock_read_s: what reading them costs.
    """

    energy: CounterModel | None = None
    power: GaugeModel | None = None
    clock_period_s: NotNegative = 0.0
    clock_read_s: NotNegative = 0.0
