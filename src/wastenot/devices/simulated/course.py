r"""A training job on a simulated GPU: its kernels in order, iteration after iteration, at whatever clocks are in effect.

    iteration   ▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮│▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮│
    markers     iteration, forward      loss backward          iteration, forward
    clock       ‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾‾\____________________/‾‾‾‾    changes wherever a request takes effect

Each kernel takes its own time and power at the clocks in effect; where clocks change within a call, what is left of it takes
the rest of its time at the new ones.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.protocol import Task
from wastenot.devices.simulated.physics import OperatingPoint, Physics

_BIN_C = 0.5  # temperatures that count as one
_LEAST_S = 1e-9  # shorter times are not worth running, and could not be added to a moment


@dataclass(frozen=True, slots=True)
class Spread:
    """How iterations of a job differ from each other.

    Attributes:
        time: standard deviation of the logarithm of an iteration's time.
        power: likewise, of its power.
        memory: correlation of one iteration with the next.
        pause_every: iterations after which the job does something else, such as to write a checkpoint; 0 for never.
        pause_s: for how long.
    """

    time: float = 0.003
    power: float = 0.003
    memory: float = 0.3
    pause_every: int = 0
    pause_s: float = 0.0


STEADY = Spread(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Reached:
    """A marker that was reached: index of the place, iteration, and when by the job's own time."""

    place: int
    iteration: int
    after_s: float


@dataclass(frozen=True, slots=True)
class Ran:
    """An iteration that ended: what it took, and would have taken at the default clocks and the same temperature."""

    time_s: float
    energy_j: float
    auto_time_s: float
    auto_energy_j: float


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """An iteration at one setting and temperature: what was used until each call, and how each kernel runs."""

    until_s: list[float]
    until_j: list[float]
    until_mhz: list[float]
    memory_mhz: float
    throttled: bool

    def at(self, call: int, part: float) -> tuple[float, float, float]:
        """What was used until a point in a call: time, energy, and time by core clock."""
        return _at(self.until_s, call, part), _at(self.until_j, call, part), _at(self.until_mhz, call, part)


class Course:
    """Iterations of a job, run by the engine of a simulated device.

    Args:
        physics: of the device.
        tasks: kernels.
        order: indices of the tasks, in the order in which an iteration runs their calls.
        places: indices into ``order`` at which there are markers, ascending, the first 0.
        spread: how iterations differ.
        seed: of what differs.
        meets: where it waits for the other GPUs of the job: by index of the place, how many such places it may be ahead of
            them when it continues there.

    Attributes:
        met: how often it has been at such a place and has continued.
        all_arrived: how often all GPUs have come to such a place; whoever runs them says so.
    """

    def __init__(
        self,
        physics: Physics,
        tasks: Sequence[Task],
        order: Sequence[int],
        places: Sequence[int],
        *,
        spread: Spread = STEADY,
        seed: tuple[int, ...] = (0,),
        meets: Mapping[int, int] | None = None,
    ) -> None:
        self._physics, self._tasks = physics, tuple(tasks)
        self._order = np.asarray(order, dtype=np.intp)
        self._places = [*places, len(self._order)]
        self._spread = spread
        self._rng = np.random.default_rng([*seed, 83])
        self._tables: dict[tuple[Setting, int], _Table] = {}
        self._wander = [float(self._rng.standard_normal()), float(self._rng.standard_normal())]
        self._place, self._call, self._part = 0, 0, 0.0  # the next marker; the call that runs, and how much of it has run
        self._ran_s = 0.0
        self._pause_s = 0.0
        self._meets, self.met, self.all_arrived = meets or {}, 0, 0
        self.iteration = 0
        each = [math.fsum(calls * kernel.bytes_moved for kernel, calls in task.steps) for task in self._tasks]
        self._until_bytes = self._until(np.array(each))
        self.reached: list[Reached] = []
        self.ran: list[Ran] = []
        self._began_s = self._used_j = 0.0
        self._temperature_c = 0.0
        self._begin(0)

    def run(self, setting: Setting, temperature_c: float, seconds: float) -> tuple[float, OperatingPoint]:
        """Run on, at most to the next marker."""
        self._temperature_c = temperature_c
        if self._pause_s > 0.0:
            return self._idle(setting, temperature_c, seconds)
        if self.waits:
            return self._wait(setting, temperature_c, seconds)
        if self._part == 0.0 and self._place < len(self._places) and self._call == self._places[self._place]:
            self._mark()
        table = self._table(setting, temperature_c)
        if seconds < _LEAST_S:
            core_mhz = table.until_mhz[-1] / table.until_s[-1]
            power_w = table.until_j[-1] / table.until_s[-1]
            return seconds, OperatingPoint(seconds, power_w, core_mhz, table.memory_mhz, table.throttled)
        begin_s, begin_j, begin_mhz = table.at(self._call, self._part)
        call = self._places[self._place]
        end_s = begin_s + seconds / self._slower
        part = 0.0
        if end_s < table.until_s[call] - 1e-12:
            call = min(bisect_right(table.until_s, end_s) - 1, call - 1)
            part = (end_s - table.until_s[call]) / (table.until_s[call + 1] - table.until_s[call])
        end_s, end_j, end_mhz = table.at(call, part)
        took_s = max(end_s - begin_s, 1e-12)
        self._call, self._part = call, part
        power_w, core_mhz = (end_j - begin_j) / took_s * self._hotter, (end_mhz - begin_mhz) / took_s
        point = OperatingPoint(took_s, power_w, core_mhz, table.memory_mhz, table.throttled)
        took_s *= self._slower
        self._ran_s += took_s
        self._used_j += took_s * power_w
        if part == 0.0 and call == len(self._order):
            self._end()
        return took_s, point

    def pause(self, seconds: float) -> None:
        """Let time pass in which nothing comes along."""
        self._ran_s += seconds

    def moved_bytes(self) -> float:
        """Bytes moved through the memory so far, which are the same at any clocks."""
        return self.iteration * self._until_bytes[-1] + _at(self._until_bytes, self._call, self._part)

    def next_marker_in_s(self, setting: Setting, temperature_c: float) -> float:
        """Time until the next marker, if nothing changes."""
        if self._pause_s > 0.0:
            return self._pause_s
        until_s = self._table(setting, temperature_c).until_s
        if self.waits:
            return math.inf
        here = self._places[self._place]
        if self._part == 0.0 and self._call == here and here < len(self._order):
            return 0.0
        return (until_s[here] - _at(until_s, self._call, self._part)) * self._slower

    @property
    def meets_next(self) -> bool:
        """Whether the next marker is where GPUs wait for each other."""
        return self._place in self._meets or self._place == len(self._places) - 1

    @property
    def arrived(self) -> int:
        """How often it has come to a place where GPUs wait for each other."""
        here = self._place in self._meets and self._part == 0.0 and self._call == self._places[self._place]
        return self.met + (here and not self._pause_s)

    @property
    def waits(self) -> bool:
        """Whether it waits for another GPU."""
        return self.arrived > max(self.met, self.all_arrived + self._meets.get(self._place, 0))

    def until(self, setting: Setting, temperature_c: float) -> tuple[list[float], list[float]]:
        """Time and energy until each call of an iteration at one setting, without what differs from one to the next."""
        table = self._tabulate(setting, temperature_c)
        return table.until_s, table.until_j

    # ---- inside ----------------------------------------------------------------------------------------------

    def _end(self) -> None:
        auto = self._table(AUTO, self._temperature_c)
        auto_s = auto.until_s[-1] * self._slower
        auto_j = auto.until_j[-1] * self._slower * self._hotter
        self.ran.append(Ran(self._ran_s - self._began_s, self._used_j, auto_s, auto_j))
        self._begin(self.iteration + 1)

    def _begin(self, iteration: int) -> None:
        spread = self._spread
        self.iteration, self._place, self._call, self._part = iteration, 0, 0, 0.0
        self._began_s, self._used_j = self._ran_s, 0.0
        kept, new = spread.memory, math.sqrt(1.0 - spread.memory**2)
        for index in range(2):
            self._wander[index] = kept * self._wander[index] + new * float(self._rng.standard_normal())
        self._slower = math.exp(spread.time * self._wander[0])
        self._hotter = math.exp(spread.power * self._wander[1])
        if spread.pause_every and iteration and iteration % spread.pause_every == 0:
            self._pause_s = spread.pause_s

    def _mark(self) -> None:
        while self._places[self._place] == self._call:
            self.met += self._place in self._meets
            self.reached.append(Reached(self._place, self.iteration, self._ran_s))
            self._place += 1

    def _idle(self, setting: Setting, temperature_c: float, seconds: float) -> tuple[float, OperatingPoint]:
        took_s = min(seconds, self._pause_s)
        self._pause_s -= took_s
        self._pause_s = 0.0 if self._pause_s < _LEAST_S else self._pause_s
        self._ran_s += took_s
        self._began_s += took_s
        table = self._table(setting, temperature_c)
        core_mhz = table.until_mhz[-1] / table.until_s[-1]
        return took_s, OperatingPoint(
            1.0, self._physics.idle_power_w(setting, temperature_c), core_mhz, table.memory_mhz, False
        )

    def _wait(self, setting: Setting, temperature_c: float, seconds: float) -> tuple[float, OperatingPoint]:
        self._ran_s += seconds
        power_w = self._physics.waiting_power_w(setting, temperature_c)
        self._used_j += seconds * power_w
        table = self._table(setting, temperature_c)
        return seconds, OperatingPoint(1.0, power_w, table.until_mhz[-1] / table.until_s[-1], table.memory_mhz, False)

    def _table(self, setting: Setting, temperature_c: float) -> _Table:
        key = (setting, round(temperature_c / _BIN_C))
        if key not in self._tables:
            self._tables[key] = self._tabulate(setting, key[1] * _BIN_C)
        return self._tables[key]

    def _tabulate(self, setting: Setting, temperature_c: float) -> _Table:
        points = [self._physics.operating_point(task, setting, temperature_c) for task in self._tasks]
        core_mhz = np.array([point.core_mhz for point in points])
        time_s = self._times_s(points, setting, temperature_c)
        energy_j = time_s * np.array([point.power_w for point in points])
        throttled = any(point.throttled for point in points)
        until_s, until_j, until_mhz = (self._until(each) for each in (time_s, energy_j, time_s * core_mhz))
        return _Table(until_s, until_j, until_mhz, points[0].memory_mhz, throttled)

    def _times_s(self, points: Sequence[OperatingPoint], setting: Setting, temperature_c: float) -> FloatArray:
        """Time of a call of each kernel at its operating point."""
        return np.array([point.time_s for point in points])

    def _until(self, each: FloatArray) -> list[float]:
        """Sums over the calls before each call of an iteration, of what each kernel has."""
        return [0.0, *np.cumsum(each[self._order]).tolist()]


def _at(until: list[float], call: int, part: float) -> float:
    """What was used until a point in a call."""
    before = until[call]
    return before if part == 0.0 else before + part * (until[call + 1] - before)
