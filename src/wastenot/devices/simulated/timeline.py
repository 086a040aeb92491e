"""Timelines of a simulated GPU: kernels in phases at the clocks that its regulator goes through, and its sensors' log.

regulator │ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷    acts at regular intervals; the clock is constant in between
stream    ▮▮▮│▮▮▮│▮▮▮│▯▯▯▯▯▯│▯▯▯▯▯▯│▯▯▯▯▯▯│       groups of calls with stamps in between
pieces    └┘└┘└┘└┘└┘└┘└─┘└─┘└┘└─┘└─┘└┘└─┘└┘       of one kernel at one clock: each has one speed and one power
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from wastenot.devices.clock_fit import fit_clocks
from wastenot.devices.instrument import Readings
from wastenot.devices.simulated.bench import Bench
from wastenot.devices.simulated.model_physics import ModelPhysics, Response
from wastenot.devices.simulated.power_history import PowerHistory
from wastenot.devices.simulated.regulator import RegulatedClock
from wastenot.devices.simulated.trace import history_of, respond
from wastenot.devices.timeline import REST, ClockStamps, Phase, PreparedTimeline, Subject, Timeline
from wastenot.setting import Setting

_STILL_S = 0.02  # without a regulator, the longest time over which temperature counts as constant


class SimulatedTimelines:
    """Runs phases of kernels on a simulated GPU.

    Args:
        bench: what they run on.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        preset = bench.physics.preset
        self.identity = bench.identity
        self.channels = bench.channels
        model = preset.dynamics.cycle_clock
        self.stamps = ClockStamps(model.cost_s, model.resolution_s, model.multiprocessors)
        self._timer = preset.dynamics.gpu_clock.model_copy(update={"resolution_s": model.resolution_s})
        self._ended_s = 0.0  # when the last run did
        self._regulated: RegulatedClock | None = None
        if preset.regulator is not None:
            clocks_mhz, seed = bench.physics.core_mhz, (bench.engine.seed, 79)
            idle_w = bench.idle().total
            self._regulated = RegulatedClock(preset.regulator, float(clocks_mhz[0]), float(clocks_mhz[-1]), idle_w, seed)

    @contextmanager
    def prepare(self, subjects: Sequence[Subject], *, group_s: float = 1e-3) -> Iterator[PreparedTimeline]:
        """Check that every kernel is known; nothing else needs preparing."""
        physics, engine = self._bench.physics, self._bench.engine
        firmware = physics.preset.dynamics.firmware
        loads = []
        for subject in subjects:
            response = physics.response(subject.kernel, physics.core_mhz, engine.setting, subject.data)
            ceiling_mhz = physics.ceiling_mhz(subject.kernel, engine.setting, subject.data)
            point = physics.steady_point(response, engine.setting, ceiling_mhz, engine.temperature_c)
            heavy = firmware is not None and point.power_w >= firmware.heavy_w
            speeds = _speeds(physics, response)
            calls = max(round(group_s / point.time_s), 1)
            loads.append(_Load(response, speeds, ceiling_mhz, point.time_s, calls, heavy))
        yield PreparedTimeline(tuple(load.call_s for load in loads), partial(self._run, tuple(loads)))

    def _run(self, loads: Sequence[_Load], phases: Sequence[Phase]) -> Timeline:
        bench, engine = self._bench, self._bench.engine
        before = bench.round_trips(5, self._timer)
        began_s, began_c = engine.now_s, engine.temperature_c
        if self._regulated is not None:
            self._regulated.rest(began_s - self._ended_s, bench.idle().total)
        stream = _Stream(bench, loads, self._regulated)
        for index, phase in enumerate(phases):
            stream.run(index, phase)
        self._ended_s = began_s + stream.now_s
        groups = stream.groups
        readings = bench.play(stream.history(), stream.now_s, max(began_s - bench.channels[0].period_s, 0.0))
        after = bench.round_trips(5, self._timer)
        if bench.has_log:
            host = fit_clocks((*before, *after)).host
            readings = {name: Readings(host(log.moment_s), log.power_w) for name, log in readings.items()}
        begin_s = self._timer.at(began_s + np.array([group.begin_s for group in groups]))
        end_s = self._timer.at(began_s + np.array([group.end_s for group in groups]))
        return Timeline(
            phase=np.array([group.phase for group in groups], dtype=np.intp),
            subject=np.array([group.subject for group in groups], dtype=np.intp),
            calls=np.array([group.calls for group in groups], dtype=np.intp),
            begin_s=begin_s,
            end_s=end_s,
            core_mhz=np.array([group.megacycles for group in groups]) / (end_s - begin_s),
            readings=readings,
            round_trips=before + after,
            temperature_c=(float(round(began_c)), float(round(engine.temperature_c))),
        )


class _Speed(NamedTuple):
    """What a subject does at a clock: base, core and memory power, and how core power grows with temperature."""

    call_s: float
    core_mhz: float
    base_w: float
    core_w: float
    memory_w: float
    leaks_w_per_c: float


def _speeds(physics: ModelPhysics, response: Response) -> tuple[_Speed, ...]:
    """What a subject does at each core clock, at the reference temperature."""
    leaks = physics.leakage_w_per_c(physics.core_mhz)
    table = np.vstack([response.time_s, physics.core_mhz, response.power_w, leaks])
    return tuple(_Speed(*column) for column in table.T.tolist())


@dataclass(frozen=True, slots=True, eq=False)
class _Load:
    """A subject that is ready to run.

    Attributes:
        response: what it does at each clock.
        speeds: the same.
        ceiling_mhz: its highest clock, whatever the power limit allows.
        call_s: time of a call when it was tried.
        calls: number of calls in a group.
        heavy: whether firmware responds to it.
    """

    response: Response
    speeds: tuple[_Speed, ...]
    ceiling_mhz: float
    call_s: float
    calls: int
    heavy: bool


@dataclass(frozen=True, slots=True)
class _Group:
    """Calls between two stamps, exactly."""

    phase: int
    subject: int
    calls: int
    begin_s: float
    end_s: float
    megacycles: float


class _Stream:
    """The GPU as it runs phases of kernels.

    Args:
        bench: what it runs on.
        loads: the kernels.
        regulated: the clock under the regulator; ``None`` where it is always where mean power meets the limit.
    """

    def __init__(self, bench: Bench, loads: Sequence[_Load], regulated: RegulatedClock | None) -> None:
        preset = bench.physics.preset
        self._physics: ModelPhysics = bench.physics
        self._setting: Setting = bench.engine.setting
        self._thermal, self._dynamics, self._rng = preset.thermal, preset.dynamics, bench.rng
        self._loads, self._regulated, self._idle = loads, regulated, bench.idle()
        self._time_factor = np.exp(preset.noise.run_time * bench.rng.standard_normal(len(loads))).tolist()
        self._power_factor = np.exp(preset.noise.run_power * bench.rng.standard_normal(len(loads))).tolist()
        self._top_mhz = self._ceiling_mhz = float(bench.physics.core_mhz[-1])
        self._between_mhz = (0.5 * (bench.physics.core_mhz[:-1] + bench.physics.core_mhz[1:])).tolist()
        self._step_s = _STILL_S if preset.regulator is None else preset.regulator.step_s
        self._left_s, self._used_j = self._step_s, 0.0  # until the next step, and since the last
        self._temperature_c = bench.engine.temperature_c
        self._clock_index = self._index()
        self._speed_of: dict[int, _Speed] = {}  # until the next step
        self._executed = 0  # since the last rest
        self._stretch = -1  # of one kernel, or of rest
        self._pieces: list[tuple[float, int, bool, float, float, float]] = []  # seconds, stretch, stamp, power above idle
        self._heavy: list[bool] = []  # by stretch
        self.now_s = 0.0
        self.groups: list[_Group] = []

    def run(self, index: int, phase: Phase) -> None:
        """Run a phase."""
        self._stretch += 1
        self._heavy.append(phase.subject != REST and self._loads[phase.subject].heavy)
        if phase.subject == REST:
            self._ceiling_mhz = self._top_mhz
            self._rest(phase.seconds)
            return
        self._ceiling_mhz = self._loads[phase.subject].ceiling_mhz
        load, warm_up = self._loads[phase.subject], self._dynamics.warm_up
        groups = max(round(phase.seconds / (load.calls * load.call_s)), 1)
        slower = self._dynamics.jitter / math.sqrt(load.calls) * self._rng.standard_normal(groups)
        for jitter in slower.tolist():
            self._stamp(phase.subject)
            extra = sum(warm_up[self._executed : self._executed + load.calls])
            self._executed += load.calls
            begin_s = self.now_s
            megacycles = self._execute(phase.subject, (load.calls + extra) * (1.0 + jitter))
            self.groups.append(_Group(index, phase.subject, load.calls, begin_s, self.now_s, megacycles))

    def history(self) -> PowerHistory:
        """Power along what has run."""
        pieces = np.array(self._pieces)
        step_s, stretch, above_w = pieces[:, 0], pieces[:, 1].astype(np.intp), np.ascontiguousarray(pieces[:, 3:].T)
        begin_s = np.cumsum(step_s) - step_s
        # A stamp counts as part of the kernel that follows it.
        index = np.where(pieces[:, 2] > 0.0, len(pieces) - 1, np.arange(len(pieces)))
        following = np.minimum.accumulate(index[::-1])[::-1]
        heavy = np.array(self._heavy)[stretch]
        middle_s = begin_s + 0.5 * step_s
        demand = respond(self._dynamics, above_w, above_w[:, following], stretch, begin_s, middle_s, heavy)
        return history_of(self._dynamics, demand, step_s, self._idle)

    def _rest(self, seconds: float) -> None:
        while seconds > 0.0:
            taken_s = min(seconds, self._left_s)
            seconds -= taken_s
            self._pass(taken_s, 0.0, 0.0, 0.0)

    def _stamp(self, subject: int) -> None:
        """One warp reads the counters; the chip stays awake."""
        base_w = self._at(subject).base_w - self._idle.base
        seconds = self._dynamics.cycle_clock.cost_s
        while seconds > 0.0:
            taken_s = min(seconds, self._left_s)
            seconds -= taken_s
            self._pass(taken_s, base_w, 0.0, 0.0, stamp=True)

    def _execute(self, subject: int, calls: float) -> float:
        """Run calls of a subject; returns how many millions of cycles that took."""
        slower, more = self._time_factor[subject], self._power_factor[subject]
        idle_w, megacycles = self._idle.base, 0.0
        while calls > 0.0:
            speed = self._at(subject)
            call_s = speed.call_s * slower
            needed_s = calls * call_s
            taken_s = min(needed_s, self._left_s)
            calls = calls - taken_s / call_s if taken_s < needed_s else 0.0
            megacycles += taken_s * speed.core_mhz
            self._pass(taken_s, more * speed.base_w - idle_w, more * speed.core_w, more * speed.memory_w)
        return megacycles

    def _pass(self, seconds: float, base_w: float, core_w: float, memory_w: float, stamp: bool = False) -> None:
        """Let time pass at one power above idle; not beyond the next step."""
        self._pieces.append((seconds, self._stretch, stamp, base_w, core_w, memory_w))
        self._used_j += seconds * (base_w + core_w + memory_w)
        self.now_s += seconds
        self._left_s -= seconds
        if self._left_s <= 0.0:
            self._step()

    def _step(self) -> None:
        power_w = self._idle.base + self._used_j / self._step_s
        self._temperature_c = self._thermal.after(self._temperature_c, power_w, self._step_s)
        if self._regulated is not None:
            limit_w = self._physics.limit_w(self._setting, self._temperature_c)
            self._regulated.step(power_w, limit_w, self._ceiling_mhz)
            self._clock_index = self._index()
        self._left_s, self._used_j = self._step_s, 0.0
        self._speed_of.clear()

    def _index(self) -> int:
        """Of the clock in effect among those that the card has: the nearest to what the regulator allows."""
        if self._regulated is None:
            return len(self._between_mhz)
        return bisect_right(self._between_mhz, self._regulated.core_mhz)

    def _at(self, subject: int) -> _Speed:
        """What a subject does at the clock in effect."""
        speed = self._speed_of.get(subject)
        if speed is None:
            speed = self._speed_of[subject] = self._find(subject)
        return speed

    def _find(self, subject: int) -> _Speed:
        load, physics = self._loads[subject], self._physics
        if self._regulated is not None:
            at = load.speeds[self._clock_index]
            warmer_c = self._temperature_c - self._thermal.reference_c
            return at._replace(core_w=at.core_w + at.leaks_w_per_c * warmer_c)
        point = physics.steady_point(load.response, self._setting, load.ceiling_mhz, self._temperature_c)
        memory_w = float(load.response.power_w[2, -1] * load.response.time_s[-1]) / point.time_s  # the bytes of a call
        base_w = float(load.response.power_w[0, -1])
        return _Speed(point.time_s, point.core_mhz, base_w, point.power_w - base_w - memory_w, memory_w, 0.0)
