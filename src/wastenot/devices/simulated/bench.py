"""What bursts and timelines run on: the clocks of host and GPU, and logs of power as the GPU's sensors would keep them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.devices.instrument import TOTAL, Channel, Readings, RoundTrip
from wastenot.devices.protocol import Identity
from wastenot.devices.simulated.dynamics import GpuClockModel
from wastenot.devices.simulated.engine import Engine
from wastenot.devices.simulated.hardware import GaugeModel
from wastenot.devices.simulated.model_physics import ModelPhysics
from wastenot.devices.simulated.power_history import LAG_REACH, PowerHistory
from wastenot.devices.simulated.regulator import RegulatedClock
from wastenot.devices.simulated.trace import Parts

MEMORY = "memory"
_POLL_S = 0.5e-3  # interval at which a gauge without a log of its own is polled
_DELAY_SD = 0.3  # standard deviation of a delay that is uniform within a sampling interval, as a fraction of it


@dataclass(frozen=True, slots=True, eq=False)
class PowerLog:
    """A channel: its weights of base, core and memory power, its sensor, and the phases of its readings and samples."""

    name: str
    weights: FloatArray
    model: GaugeModel
    phase_s: float
    sample_phase_s: float

    @property
    def channel(self) -> Channel:
        """What a user can know about it, which excludes the phase of its samples."""
        model = self.model
        return Channel(
            self.name,
            model.period_s,
            model.window_s,
            model.delay_s + 0.5 * model.sample_s,
            model.gain,
            model.noise_w,
            "preset",
            model.lag_s,
            delay_error_s=_DELAY_SD * model.sample_s,
            sample_s=model.sample_s,
        )

    @property
    def reach_after_s(self) -> float:
        """Time after a moment by which a reading reflects nearly all of it."""
        model = self.model
        return model.period_s + max(model.window_s, 4.0 * model.lag_s) + model.delay_s + model.sample_s

    @property
    def reach_s(self) -> float:
        """How far back before its timestamp power affects a reading."""
        return self.model.delay_s + self.model.sample_s + max(self.model.window_s, LAG_REACH * self.model.lag_s)


class Bench:
    """Runs known histories of power on a simulated GPU, and logs them.

    Args:
        identity: which device it is.
        engine: the device's event-driven core.
        physics: time and power of kernels.

    Raises:
        BadInputError: the device has no power sensor, or runs in wall time.
    """

    def __init__(self, identity: Identity, engine: Engine, physics: ModelPhysics) -> None:
        preset = physics.preset
        gauge = preset.sensors.power if preset.dynamics.logger is None else preset.dynamics.logger
        if gauge is None:
            raise BadInputError(f"{identity.name}: it has no power sensor; power inside kernels cannot be observed on it")
        if engine.on_wall_time:
            raise BadInputError(f"{identity.name}: individual executions are only simulated in virtual time")
        self.identity, self.engine, self.physics = identity, engine, physics
        self.rng = np.random.default_rng([engine.seed, 78])
        # A GPU with a power log of its own stamps readings by its own clock.
        self.has_log = preset.dynamics.logger is not None
        self._before: PowerHistory | None = None  # of earlier runs, as far back as they affect readings
        phases = gauge.phases_s(self.rng)
        self.logs = [PowerLog(TOTAL, np.ones(3), gauge, *phases)]
        if (memory := preset.dynamics.memory) is not None:
            self.logs.append(PowerLog(MEMORY, np.array([0.0, 0.0, 1.0]), memory, *memory.phases_s(self.rng)))
        for name, part in preset.dynamics.components.items():
            self.logs.append(PowerLog(name, np.array([part.base, part.core, part.memory]), gauge, *phases))
        self.channels = tuple(log.channel for log in self.logs)
        self._regulated = self.new_clock(81)
        self._ended_s = 0.0  # when the last run did

    def new_clock(self, seed: int) -> RegulatedClock | None:
        """A clock under the preset's regulator after a long rest; ``None`` where it has none."""
        physics = self.physics
        if physics.preset.regulator is None:
            return None
        low_mhz, high_mhz = float(physics.core_mhz[0]), float(physics.core_mhz[-1])
        return RegulatedClock(physics.preset.regulator, low_mhz, high_mhz, self.idle().total, (self.engine.seed, seed))

    def rested_clock(self) -> RegulatedClock | None:
        """The clock under the regulator after the rest since the last run."""
        if self._regulated is not None:
            self._regulated.rest(self.engine.now_s - self._ended_s, self.idle().total)
        return self._regulated

    def now_s(self) -> float:
        """Virtual time."""
        self.engine.advance(0.0)
        return self.engine.now_s

    def round_trips(self, times: int, clock: GpuClockModel) -> tuple[RoundTrip, ...]:
        """Read a clock of the GPU."""
        return tuple(round_trip(self.engine, clock, self.rng) for _ in range(times))

    def play(self, history: PowerHistory, end_s: float, from_s: float) -> Mapping[str, Readings]:
        """Run a history of power, and wait for the readings that cover its end.

        Args:
            history: power from now on; its moments begin at 0.
            end_s: when the last execution in it ends.
            from_s: virtual time from which readings are wanted.
        """
        began_s = self.engine.now_s
        self._ended_s = began_s + end_s
        self.engine.play(history.moment_s, history.energy_j.sum(axis=0))
        reach_s = max(log.reach_after_s for log in self.logs if log.name != MEMORY)
        self.engine.advance(max(end_s + reach_s - float(history.moment_s[-1]), 0.0))
        until_s = self.engine.now_s
        history = PowerHistory(history.moment_s + began_s, history.energy_j)
        if self._before is not None:
            history = history.after(self._before, self.idle().as_array())
        readings = {log.name: self._readings(log, history, from_s, until_s) for log in self.logs}
        self._before = history.since(until_s - max(log.reach_s for log in self.logs))
        return readings

    def idle(self) -> Parts:
        """Power at rest."""
        return Parts(self.physics.idle_power_w(self.engine.setting, self.engine.temperature_c), 0.0, 0.0)

    def _readings(self, log: PowerLog, history: PowerHistory, from_s: float, until_s: float) -> Readings:
        model = log.model
        first = math.ceil((from_s - log.phase_s) / model.period_s)
        last = math.floor((until_s - log.phase_s) / model.period_s)
        stamp_s: FloatArray = np.asarray(log.phase_s + np.arange(first, last + 1) * model.period_s, dtype=float)
        end_s: FloatArray = model.seen_until_s(stamp_s, log.sample_phase_s)
        idle_w = self.idle().as_array()
        if model.lag_s:
            parts_w = history.lagged_w(end_s, model.lag_s, idle_w)
        else:
            parts_w = history.mean_w(end_s - model.window_s, end_s, idle_w)
        power = model.gain * (parts_w @ log.weights) + model.noise_w * self.rng.standard_normal(len(parts_w))
        if self.has_log:
            return Readings(self.physics.preset.dynamics.gpu_clock.at(stamp_s), power)
        return Readings(stamp_s + self.rng.uniform(0.0, _POLL_S, len(stamp_s)), power)


def round_trip(engine: Engine, clock: GpuClockModel, rng: np.random.Generator) -> RoundTrip:
    """Read a clock of the GPU; in wall time that takes as long as it takes."""
    ways_s = 0.5 * clock.read_s + rng.exponential(0.5 * clock.read_jitter_s, 2) if clock.read_s else (0.0, 0.0)
    engine.advance(0.0)
    before_s = engine.now_s
    engine.advance(float(ways_s[0]))
    gpu_s = float(clock.at(engine.now_s))
    engine.advance(float(ways_s[1]))
    return RoundTrip(before_s, gpu_s, engine.now_s)
