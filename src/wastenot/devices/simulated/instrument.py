"""The instrument of a simulated GPU: runs bursts along their true trace, and logs power as its sensors would."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np

from wastenot.arrays import FloatArray
from wastenot.devices.instrument import TOTAL, Burst, BurstRun, Channel, Clock, PreparedBurst, Readings, RoundTrip
from wastenot.devices.protocol import Identity
from wastenot.devices.simulated.engine import Engine
from wastenot.devices.simulated.hardware import GaugeModel
from wastenot.devices.simulated.model_physics import ModelPhysics
from wastenot.devices.simulated.power_history import LAG_REACH, PowerHistory
from wastenot.devices.simulated.trace import Parts, Steady, Trace, trace
from wastenot.errors import BadInputError
from wastenot.workloads.kernel import KernelSpec

MEMORY = "memory"
_POLL_S = 0.5e-3  # interval at which a gauge without a log of its own is polled
_DELAY_SD = 0.3  # standard deviation of a delay that is uniform within a sampling interval, as a fraction of it


@dataclass(frozen=True, slots=True, eq=False)
class Execution:
    """One execution, exactly.

    Attributes:
        time_s: its time.
        mean_w: mean power by channel.
        power_w: power by channel over equal parts of it; shape (parts,).
    """

    time_s: float
    mean_w: Mapping[str, float]
    power_w: Mapping[str, FloatArray]


@dataclass(frozen=True, slots=True, eq=False)
class _Log:
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


class SimulatedInstrument:
    """Runs bursts on a simulated GPU.

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
            raise BadInputError(f"{identity.name}: it has no power sensor; power inside kernels cannot be seen on it")
        if engine.on_wall_time:
            raise BadInputError(f"{identity.name}: executions one by one are simulated in virtual time only")
        self.identity = identity
        self._engine, self._physics, self._dynamics = engine, physics, preset.dynamics
        self._rng = np.random.default_rng([engine.seed, 78])
        self._before: PowerHistory | None = None  # of earlier bursts, as far back as they affect readings
        phases = gauge.phases_s(self._rng)
        self._logs = [_Log(TOTAL, np.ones(3), gauge, *phases)]
        if (memory := preset.dynamics.memory) is not None:
            self._logs.append(_Log(MEMORY, np.array([0.0, 0.0, 1.0]), memory, *memory.phases_s(self._rng)))
        for name, part in preset.dynamics.components.items():
            self._logs.append(_Log(name, np.array([part.base, part.core, part.memory]), gauge, *phases))
        self.channels = tuple(log.channel for log in self._logs)
        # A GPU with a power log of its own stamps readings by its own clock, and executions are stamped by the host's.
        has_log = preset.dynamics.logger is not None
        self.executions_by: Clock = "host" if has_log else "gpu"
        self.readings_by: Clock = "gpu" if has_log else "host"
        self.resolution_s = preset.dynamics.gpu_clock.resolution_s

    def now_s(self) -> float:
        """Virtual time."""
        self._engine.advance(0.0)
        return self._engine.now_s

    def round_trips(self, times: int) -> tuple[RoundTrip, ...]:
        """Read the GPU's clock."""
        model, trips = self._dynamics.gpu_clock, []
        for _ in range(times):
            ways_s = 0.5 * model.read_s + self._rng.exponential(0.5 * model.read_jitter_s, 2) if model.read_s else (0, 0)
            before = self.now_s()
            self._engine.advance(float(ways_s[0]))
            gpu_s = float(model.at(self._engine.now_s))
            self._engine.advance(float(ways_s[1]))
            trips.append(RoundTrip(before, gpu_s, self._engine.now_s))
        return tuple(trips)

    @contextmanager
    def prepare(self, burst: Burst) -> Iterator[PreparedBurst]:
        """Check that every kernel of a burst is known; nothing else needs preparing."""
        for kernel in burst.kernels:
            self._steady(kernel)
        yield PreparedBurst(partial(self._run, burst))

    def truth(self, burst: Burst) -> tuple[Execution, ...]:
        """Every execution of a burst without randomness, at the current temperature and clocks, for tests."""
        exact = self._trace(burst, None)
        names, weights = [log.name for log in self._logs], np.stack([log.weights for log in self._logs])
        executions = []
        for begin, end in zip(exact.begin_s.tolist(), exact.end_s.tolist(), strict=True):
            bounds = np.linspace(begin, end, 33)
            power_w = weights @ exact.history.mean_w(bounds[:-1], bounds[1:], self._idle().as_array()).T
            mean_w = dict(zip(names, power_w.mean(axis=1).tolist(), strict=True))
            executions.append(Execution(end - begin, mean_w, dict(zip(names, power_w, strict=True))))
        return tuple(executions)

    def _run(self, burst: Burst, rest_s: float) -> BurstRun:
        before = self.round_trips(5)
        self._engine.advance(rest_s)
        actual = self._trace(burst, self._rng)
        began_s = self._engine.now_s
        self._engine.play(actual.history.moment_s, actual.history.energy_j.sum(axis=0))
        reach_s = max(log.reach_after_s for log in self._logs if log.name != MEMORY)
        self._engine.advance(max(float(actual.end_s[-1]) + reach_s - float(actual.history.moment_s[-1]), 0.0))
        until_s = self._engine.now_s
        history = actual.history.from_moment(began_s)
        if self._before is not None:
            history = history.after(self._before, self._idle().as_array())
        readings = {log.name: self._readings(log, history, began_s - rest_s, until_s) for log in self._logs}
        self._before = history.since(until_s - max(log.reach_s for log in self._logs))
        begin_s, end_s = began_s + actual.begin_s, began_s + actual.end_s
        if self.executions_by == "gpu":
            begin_s, end_s = self._dynamics.gpu_clock.at(begin_s), self._dynamics.gpu_clock.at(end_s)
        return BurstRun(actual.kernel, begin_s, end_s, readings, before + self.round_trips(5))

    def _readings(self, log: _Log, history: PowerHistory, from_s: float, until_s: float) -> Readings:
        model = log.model
        first = math.ceil((from_s - log.phase_s) / model.period_s)
        last = math.floor((until_s - log.phase_s) / model.period_s)
        stamp_s: FloatArray = np.asarray(log.phase_s + np.arange(first, last + 1) * model.period_s, dtype=float)
        end_s: FloatArray = model.seen_until_s(stamp_s, log.sample_phase_s)
        idle_w = self._idle().as_array()
        if model.lag_s:
            parts_w = history.lagged_w(end_s, model.lag_s, idle_w)
        else:
            parts_w = history.mean_w(end_s - model.window_s, end_s, idle_w)
        power = model.gain * (parts_w @ log.weights) + model.noise_w * self._rng.standard_normal(len(parts_w))
        if self.readings_by == "gpu":
            return Readings(self._dynamics.gpu_clock.at(stamp_s), power)
        return Readings(stamp_s + self._rng.uniform(0.0, _POLL_S, len(stamp_s)), power)

    def _trace(self, burst: Burst, rng: np.random.Generator | None) -> Trace:
        return trace(self._dynamics, [self._steady(kernel) for kernel in burst.kernels], burst.order, self._idle(), rng)

    def _steady(self, kernel: KernelSpec) -> Steady:
        return self._physics.steady(kernel, self._engine.setting, self._engine.temperature_c)

    def _idle(self) -> Parts:
        return Parts(self._physics.idle_power_w(self._engine.setting, self._engine.temperature_c), 0.0, 0.0)
