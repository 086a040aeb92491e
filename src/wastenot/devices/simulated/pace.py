"""How fast and with what power kernels run on a simulated GPU, moment by moment: the clock under its regulator, and heat.

regulator │ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷ ╷    acts at regular intervals; the clock is constant in between
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.setting import Setting
from wastenot.devices.simulated.bench import Bench
from wastenot.devices.simulated.model_physics import ModelPhysics, Response
from wastenot.devices.simulated.regulator import RegulatedClock
from wastenot.devices.simulated.trace import Paced
from wastenot.devices.timeline import Subject

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


def _speeds(physics: ModelPhysics, response: Response) -> tuple[Speed, ...]:
    """What a subject does at each core clock, at the reference temperature."""
    core_mhz = physics.core_mhz
    leaks = physics.leakage_w_per_c(core_mhz)
    table = np.vstack([response.time_s, core_mhz, response.counted * core_mhz, response.power_w, leaks])
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
    """

    response: Response
    speeds: tuple[Speed, ...]
    ceiling_mhz: float
    call_s: float
    calls: int
    heavy: bool

    @property
    def skips(self) -> bool:
        """Whether the chip skips cycles while it runs."""
        return bool((self.response.counted < 1.0).any())


def load_of(physics: ModelPhysics, subject: Subject, setting: Setting, temperature_c: float, group_s: float) -> Load:
    """A subject at a setting, in groups of about ``group_s``.

    Raises:
        CannotRunError: the kernel is unknown.
    """
    preset = physics.preset
    response = physics.response(subject.kernel, physics.core_mhz, setting, subject.data)
    ceiling_mhz = physics.ceiling_mhz(subject.kernel, setting, subject.data)
    point = physics.steady_point(response, setting, ceiling_mhz, temperature_c)
    firmware = preset.dynamics.firmware
    return Load(
        response,
        _speeds(physics, response),
        ceiling_mhz,
        point.time_s,
        max(round(group_s / point.time_s), 1),
        firmware is not None and point.power_w >= firmware.heavy_w,
    )


class Pace:
    """The GPU as time passes.

    Args:
        bench: what it runs on.
        loads: the kernels.
        regulated: the clock under the regulator; ``None`` where it is always where mean power meets the limit.
    """

    def __init__(self, bench: Bench, loads: Sequence[Load], regulated: RegulatedClock | None) -> None:
        preset = bench.physics.preset
        self.idle_w = bench.idle().base
        self._physics: ModelPhysics = bench.physics
        self._setting: Setting = bench.engine.setting
        self._thermal = preset.thermal
        self._loads, self._regulated = loads, regulated
        self._top_mhz = self._ceiling_mhz = float(bench.physics.core_mhz[-1])
        self._asked_mhz = self._setting.core_mhz or self._top_mhz
        self._between_mhz = (0.5 * (bench.physics.core_mhz[:-1] + bench.physics.core_mhz[1:])).tolist()
        self._step_s = _STILL_S if preset.regulator is None else preset.regulator.step_s
        self._used_j = 0.0  # above idle, since the last step
        self._temperature_c = bench.engine.temperature_c
        self._clock_index = self._index()
        self._speed_of: dict[int, Speed] = {}  # until the next step
        self.left_s = self._step_s  # until the next step
        self.now_s = 0.0

    def begin(self, load: int | None) -> None:
        """Turn to another kernel, or to rest."""
        self._ceiling_mhz = self._top_mhz if load is None else self._loads[load].ceiling_mhz

    def at(self, load: int) -> Speed:
        """What a kernel does at the clock in effect, which lasts until the next step."""
        speed = self._speed_of.get(load)
        if speed is None:
            speed = self._speed_of[load] = self._find(load)
        return speed

    def elapse(self, seconds: float, above_w: float) -> None:
        """Let time pass at one power above idle; not beyond the next step."""
        self._used_j += seconds * above_w
        self.now_s += seconds
        self.left_s -= seconds
        if self.left_s <= 0.0:
            self._step()

    def _step(self) -> None:
        power_w = self.idle_w + self._used_j / self._step_s
        self._temperature_c = self._thermal.after(self._temperature_c, power_w, self._step_s)
        if self._regulated is not None:
            limit_w = self._physics.limit_w(self._setting, self._temperature_c)
            self._regulated.step(power_w, limit_w, self._ceiling_mhz)
            self._clock_index = self._index()
        self.left_s, self._used_j = self._step_s, 0.0
        self._speed_of.clear()

    def _index(self) -> int:
        """Of the clock in effect among those that the card has: the nearest to what regulator and setting allow."""
        if self._regulated is None:
            return len(self._between_mhz)
        return bisect_right(self._between_mhz, min(self._regulated.core_mhz, self._asked_mhz))

    def _find(self, index: int) -> Speed:
        load, physics = self._loads[index], self._physics
        if self._regulated is not None:
            at = load.speeds[self._clock_index]
            warmer_c = self._temperature_c - self._thermal.reference_c
            return at._replace(core_w=at.core_w + at.leaks_w_per_c * warmer_c)
        point = physics.steady_point(load.response, self._setting, load.ceiling_mhz, self._temperature_c)
        memory_w = float(load.response.power_w[2, -1] * load.response.time_s[-1]) / point.time_s  # the bytes of a call
        base_w = float(load.response.power_w[0, -1])
        counted = float(np.interp(point.core_mhz, physics.core_mhz, load.response.counted))
        core_w = point.power_w - base_w - memory_w
        return Speed(point.time_s, point.core_mhz, counted * point.core_mhz, base_w, core_w, memory_w, 0.0)


def paced(pace: Pace, kernel_of: IndexArray, factor: FloatArray) -> Paced:
    """Run executions one after another.

    Args:
        pace: of the GPU.
        kernel_of: index of each execution's kernel.
        factor: by which each is slower than its kernel in steady state, with the same energy.
    """
    idle_w = pace.idle_w
    found: list[tuple[float, float, float, float, float]] = []
    last = -1
    for kernel, slower in zip(kernel_of.tolist(), factor.tolist(), strict=True):
        if kernel != last:
            pace.begin(last := kernel)
        calls, begin_s, base_j, core_j, memory_j, megacycles = 1.0, pace.now_s, 0.0, 0.0, 0.0, 0.0
        while calls > 0.0:
            speed = pace.at(kernel)
            call_s = speed.call_s * slower
            needed_s = calls * call_s
            taken_s = min(needed_s, pace.left_s)
            calls = calls - taken_s / call_s if taken_s < needed_s else 0.0
            base_j += taken_s * (speed.base_w - idle_w) / slower
            core_j += taken_s * speed.core_w / slower
            memory_j += taken_s * speed.memory_w / slower
            megacycles += taken_s * speed.core_mhz
            pace.elapse(taken_s, (speed.base_w - idle_w + speed.core_w + speed.memory_w) / slower)
        took_s = pace.now_s - begin_s
        found.append((took_s, base_j / took_s, core_j / took_s, memory_j / took_s, megacycles / took_s))
    table = np.array(found).T
    return Paced(table[0], table[1:4], table[4])
