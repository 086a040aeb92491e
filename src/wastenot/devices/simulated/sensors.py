"""Sensors of a simulated device, with the faults of real ones: they sample at intervals, average, and have a gain error."""

from __future__ import annotations

import math

import numpy as np

from wastenot.devices.protocol import ClockReading
from wastenot.devices.simulated.engine import Engine
from wastenot.devices.simulated.hardware import CounterModel, GaugeModel, SensorModels

FULL_BYTES_PER_S = 8e12
"""Bandwidth by which simulated traffic is told: above that of any card, and only ratios count."""
_REFRESH_S = 0.1  # of the counter of traffic, as that of GPM


class SimulatedSensors:
    """Sensors of the device; every read takes as long as on the real one.

    Args:
        engine: the device.
        models: how each sensor behaves.
    """

    def __init__(self, engine: Engine, models: SensorModels) -> None:
        self._engine = engine
        self._models = models
        rng = np.random.default_rng([engine.seed, 77])
        self._counter = None if models.energy is None else _Counter(engine, models.energy, rng)
        self._power = None if models.power is None else _Gauge(engine, models.power, rng)
        self._traffic = _Traffic(engine)
        self._last_clocks: tuple[int, ClockReading] = (-1, ClockReading(None, None))

    def energy_j(self) -> float | None:
        """The energy counter."""
        return None if self._counter is None else self._counter.read()

    def skip_reads(self, gap_s: float) -> bool:
        """Let reads of the energy counter pass, each after a gap, while they see no step; says whether any passed."""
        return self._counter is not None and self._counter.skip(gap_s)

    def power_w(self) -> float | None:
        """The power gauge."""
        return None if self._power is None else self._power.read()

    def memory_power_w(self) -> float | None:
        """Not simulated."""
        return None

    def clocks(self) -> ClockReading:
        """Clocks as last sampled; an idle GPU reports none."""
        engine = self._engine
        engine.advance(self._models.clock_read_s)
        sample = math.floor(engine.now_s / self._models.clock_period_s) if self._models.clock_period_s else -1
        if sample != self._last_clocks[0] or sample < 0:
            current = engine.clocks_in_effect()
            self._last_clocks = (sample, ClockReading(None, None) if current is None else ClockReading(*current))
        return self._last_clocks[1]

    def temperature_c(self) -> float | None:
        """Temperature in whole degrees, as real GPUs report it."""
        self._engine.advance(0.0)
        return float(round(self._engine.temperature_c))

    def processes(self) -> int | None:
        """1: only the process that created a simulated device uses it."""
        return 1

    def throttled_s(self) -> float | None:
        """Time for which a limit held the clocks below those requested."""
        self._engine.advance(0.0)
        return self._engine.throttled_s

    def traffic_s(self, now_s: float) -> float | None:
        """Memory traffic by samples that are refreshed at intervals, as GPM has them."""
        return self._traffic.read(now_s)


class _Traffic:
    """Adds up the mean rate between two samples, times the time between the calls that took them.

    What had been moved at the moment of a sample is interpolated between calls.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._looked, self._sampled = (0.0, 0.0), (0.0, 0.0)  # moment and bytes
        self._called_s: float | None = None
        self._total_s = 0.0

    def read(self, now_s: float) -> float:
        moved, here_s = self._engine.moved_bytes(), self._engine.now_s
        sample_s = math.floor(here_s / _REFRESH_S) * _REFRESH_S
        if sample_s < self._looked[0]:
            return self._total_s
        before_s, before = self._looked
        share = (sample_s - before_s) / max(here_s - before_s, 1e-9)
        sampled = sample_s, before + share * (moved - before)
        if self._called_s is not None and sample_s > self._sampled[0]:
            rate = (sampled[1] - self._sampled[1]) / (sample_s - self._sampled[0])
            self._total_s += rate / FULL_BYTES_PER_S * (now_s - self._called_s)
        self._looked, self._sampled, self._called_s = (here_s, moved), sampled, now_s
        return self._total_s


class _Counter:
    """An energy counter that advances once per period by the energy used since, times a gain, plus noise."""

    def __init__(self, engine: Engine, model: CounterModel, rng: np.random.Generator) -> None:
        self._engine, self._model, self._rng = engine, model, rng
        self._phase_s = float(rng.uniform(0.0, model.period_s))
        self._steps = 0
        self._last_true_j = 0.0
        self._value_j = 0.0

    def read(self) -> float:
        model = self._model
        self._engine.advance(model.read_s)
        due = math.floor((self._engine.now_s - self._phase_s) / model.period_s) + 1
        if due > self._steps:
            # Steps that nobody read are taken as one, whose noise adds up as that of the single steps would.
            unread = due - self._steps
            true_j = self._engine.energy_at(self._phase_s + (due - 1) * model.period_s)
            noise_j = model.noise_w * model.period_s * math.sqrt(unread) * float(self._rng.standard_normal())
            self._value_j += max(0.0, model.gain * (true_j - self._last_true_j) + noise_j)
            self._last_true_j = true_j
            self._steps = due
        return math.floor(self._value_j / model.quantum_j) * model.quantum_j

    def skip(self, gap_s: float) -> bool:
        if self._engine.on_wall_time:
            return False
        each_s = gap_s + self._model.read_s
        step_s = self._phase_s + self._steps * self._model.period_s
        reads = math.floor((step_s - self._engine.now_s) / each_s - 1e-6)
        if reads < 1:
            return False
        self._engine.advance(reads * each_s)
        return True


class _Gauge:
    """A power gauge: a mean or a lag of power, sampled once per period and held until the next."""

    def __init__(self, engine: Engine, model: GaugeModel, rng: np.random.Generator) -> None:
        self._engine, self._model, self._rng = engine, model, rng
        self._phase_s, self._sample_phase_s = model.phases_s(rng)
        self._seen = -1
        self._value_w = 0.0

    def read(self) -> float:
        model = self._model
        self._engine.advance(model.read_s)
        look = math.floor((self._engine.now_s - self._phase_s) / model.period_s)
        if look != self._seen:
            self._seen = look
            came = np.array(self._phase_s + look * model.period_s)
            end = max(float(model.seen_until_s(came, self._sample_phase_s)), 0.0)
            seen_w = self._engine.lagged_w(end, model.lag_s) if model.lag_s else self._mean(end)
            self._value_w = model.gain * seen_w + model.noise_w * float(self._rng.standard_normal())
        return max(self._value_w, 0.0)

    def _mean(self, end_s: float) -> float:
        begin_s = max(end_s - self._model.window_s, 0.0)
        span = end_s - begin_s
        return (self._engine.energy_at(end_s) - self._engine.energy_at(begin_s)) / span if span else 0.0
