"""A simulated GPU as it runs phases of kernels: its clock under the regulator, its temperature, and the power it draws.

regulator │ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷    acts at regular intervals; the clock is constant in between
stream    ▮▮▮│▮▮▮│▮▮▮│▯▯▯▯▯▯│▯▯▯▯▯▯│▯▯▯▯▯▯│       groups of calls with stamps in between
pieces    └┘└┘└┘└┘└┘└┘└─┘└─┘└┘└─┘└─┘└┘└─┘└┘       of one kernel at one clock: each has one speed and one power
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wastenot.devices.simulated.bench import Bench
from wastenot.devices.simulated.model_physics import ModelPhysics, Response
from wastenot.devices.simulated.power_history import PowerHistory
from wastenot.devices.simulated.regulator import RegulatedClock
from wastenot.devices.simulated.trace import history_of, respond
from wastenot.devices.timeline import REST, Phase, Subject
from wastenot.setting import Setting

_ON_TENSOR_CORES = ("gemm", "attention", "attention_backward")
_STILL_S = 0.02  # without a regulator, the longest time over which temperature counts as constant


class Speed(NamedTuple):
    """What a subject does at a clock: base, core and memory power, and how core power grows with temperature."""

    call_s: float
    core_mhz: float
    counted_mhz: float
    base_w: float
    core_w: float
    memory_w: float
    leaks_w_per_c: float


def _speeds(physics: ModelPhysics, response: Response, skips: bool) -> tuple[Speed, ...]:
    """What a subject does at each core clock, at the reference temperature."""
    core_mhz = physics.core_mhz
    counted_mhz = core_mhz * physics.preset.dynamics.cycle_clock.counted(core_mhz) if skips else core_mhz
    table = np.vstack([response.time_s, core_mhz, counted_mhz, response.power_w, physics.leakage_w_per_c(core_mhz)])
    return tuple(Speed(*column) for column in table.T.tolist())


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """A subject that is ready to run.

    Attributes:
        response: what it does at each clock.
        speeds: the same.
        ceiling_mhz: its highest clock, whatever the power limit allows.
        call_s: time of a call when it was tried.
        calls: number of calls in a group.
        heavy: whether firmware responds to it.
        skips: whether the chip skips cycles while it runs.
    """

    response: Response
    speeds: tuple[Speed, ...]
    ceiling_mhz: float
    call_s: float
    calls: int
    heavy: bool
    skips: bool


def load_of(physics: ModelPhysics, subject: Subject, setting: Setting, temperature_c: float, group_s: float) -> Load:
    """A subject at a setting, in groups of about ``group_s``.

    Raises:
        CannotRunError: the kernel is unknown.
    """
    preset = physics.preset
    response = physics.response(subject.kernel, physics.core_mhz, setting, subject.data)
    ceiling_mhz = physics.ceiling_mhz(subject.kernel, setting, subject.data)
    point = physics.steady_point(response, setting, ceiling_mhz, temperature_c)
    skips = subject.kernel.op in _ON_TENSOR_CORES
    firmware = preset.dynamics.firmware
    return Load(
        response,
        _speeds(physics, response, skips),
        ceiling_mhz,
        point.time_s,
        max(round(group_s / point.time_s), 1),
        firmware is not None and point.power_w >= firmware.heavy_w,
        skips,
    )


@dataclass(frozen=True, slots=True)
class Group:
    """Calls between two stamps, exactly; cycles of the clock in effect, and those that are counted, in millions."""

    phase: int
    subject: int
    calls: int
    begin_s: float
    end_s: float
    megacycles: float
    counted: float


class Stream:
    """The GPU as it runs phases of kernels.

    Args:
        bench: what it runs on.
        loads: the kernels.
        regulated: the clock under the regulator; ``None`` where it is always where mean power meets the limit.
    """

    def __init__(self, bench: Bench, loads: Sequence[Load], regulated: RegulatedClock | None) -> None:
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
        self._speed_of: dict[int, Speed] = {}  # until the next step
        self._executed = 0  # since the last rest
        self._stretch = -1  # of one kernel, or of rest
        self._pieces: list[tuple[float, int, bool, float, float, float]] = []  # seconds, stretch, stamp, power above idle
        self._heavy: list[bool] = []  # by stretch
        self.now_s = 0.0
        self.groups: list[Group] = []

    def run(self, index: int, phase: Phase) -> None:
        """Run a phase."""
        self._stretch += 1
        self._heavy.append(phase.subject != REST and self._loads[phase.subject].heavy)
        if phase.subject == REST:
            self._ceiling_mhz, self._executed = self._top_mhz, 0
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
            cycles = self._execute(phase.subject, (load.calls + extra) * (1.0 + jitter))
            self.groups.append(Group(index, phase.subject, load.calls, begin_s, self.now_s, *cycles))

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

    def _execute(self, subject: int, calls: float) -> tuple[float, float]:
        """Run calls of a subject; returns how many millions of cycles that took, and how many of them are counted."""
        slower, more = self._time_factor[subject], self._power_factor[subject]
        idle_w, megacycles, counted = self._idle.base, 0.0, 0.0
        while calls > 0.0:
            speed = self._at(subject)
            call_s = speed.call_s * slower
            needed_s = calls * call_s
            taken_s = min(needed_s, self._left_s)
            calls = calls - taken_s / call_s if taken_s < needed_s else 0.0
            megacycles += taken_s * speed.core_mhz
            counted += taken_s * speed.counted_mhz
            self._pass(taken_s, more * speed.base_w - idle_w, more * speed.core_w, more * speed.memory_w)
        return megacycles, counted

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

    def _at(self, subject: int) -> Speed:
        """What a subject does at the clock in effect."""
        speed = self._speed_of.get(subject)
        if speed is None:
            speed = self._speed_of[subject] = self._find(subject)
        return speed

    def _find(self, subject: int) -> Speed:
        load, physics = self._loads[subject], self._physics
        if self._regulated is not None:
            at = load.speeds[self._clock_index]
            warmer_c = self._temperature_c - self._thermal.reference_c
            return at._replace(core_w=at.core_w + at.leaks_w_per_c * warmer_c)
        point = physics.steady_point(load.response, self._setting, load.ceiling_mhz, self._temperature_c)
        memory_w = float(load.response.power_w[2, -1] * load.response.time_s[-1]) / point.time_s  # the bytes of a call
        base_w = float(load.response.power_w[0, -1])
        counted = float(self._dynamics.cycle_clock.counted(np.array(point.core_mhz))) if load.skips else 1.0
        core_w = point.power_w - base_w - memory_w
        return Speed(point.time_s, point.core_mhz, counted * point.core_mhz, base_w, core_w, memory_w, 0.0)
