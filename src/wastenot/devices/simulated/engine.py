"""The event-driven core of a simulated device: time, temperature, energy, clocks that take effect late, a running task.

Between two events (a request takes effect, a task starts or ends, a temperature step) everything is constant or linear, so
time advances from event to event, however far apart they are.

    request(setting) ─┬─ latency ─┬─ in effect
    power  ───────────┘           └──────────────
    energy ___________/‾‾‾‾‾‾‾‾‾‾‾‾  piecewise linear: `energy_at` interpolates it at any recent moment

Several requests may be in flight. Core clock, memory clock and power limit change independently of each other; each is
changed in the order of requests: a request takes effect after its own latency, but not before earlier ones for the same part
have. None is cancelled by a later one. Where a change of clock makes kernels pause, they do so until it takes effect.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.protocol import Lap, Task
from wastenot.devices.simulated.hardware import Noise, Switching, Thermal
from wastenot.devices.simulated.physics import Course, OperatingPoint, Physics
from wastenot.devices.simulated.power_history import LAG_REACH, lag_of, mean_power_w

_STEP_S = 0.5  # longest time over which temperature counts as constant
_REMEMBERED_S = 4.0  # how far back sensors may look
_REMEMBERED = 4096  # moments, however short a time they span
_LAUNCH_S = 0.02  # of a real run, over which clocks are counted
_PARTS = tuple(each.name for each in fields(Setting))


@dataclass(slots=True)
class _Running:
    """A running task, with its progress in calls at the bounds of each period of constant speed, and the clocks in each."""

    task: Task
    time_factor: float
    power_factor: float
    moments_s: list[float]
    progress: list[float]
    core_mhz: list[float]


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """What a task went through; moments on the engine's clock, arrays of shape (moments,).

    Attributes:
        moment_s: when its speed may have changed.
        progress: calls completed until each.
        core_mhz: core clock between each and the next; shape (moments - 1,).
    """

    moment_s: FloatArray
    progress: FloatArray
    core_mhz: FloatArray


@dataclass(frozen=True, slots=True)
class _Change:
    """Parts of a setting that were requested and are not in effect yet.

    Attributes:
        parts: the new values by attribute.
        arrives_s: when they take effect.
        pauses_s: from when on kernels pause.
    """

    parts: dict[str, Any]
    arrives_s: float
    pauses_s: float


class Engine:
    """The state of a simulated device, advanced on demand.

    Args:
        physics: time and power of tasks at given clocks.
        thermal: how the GPU warms up and cools down.
        switching: how late requested clocks take effect.
        noise: how runs of the same task differ.
        seed: seed of the noise.
        now_s: a clock that advances the device by itself (wall time); ``None`` for virtual time.

    Attributes:
        advance_all: advances it to a moment together with the other GPUs of its job; ``None`` where there are none.
    """

    def __init__(
        self,
        physics: Physics,
        thermal: Thermal,
        switching: Switching,
        noise: Noise,
        seed: int,
        now_s: Callable[[], float] | None = None,
    ) -> None:
        self.physics = physics
        self.seed = seed
        self._thermal, self._switching, self._noise = thermal, switching, noise
        self._wall_s = now_s
        self.on_wall_time = now_s is not None
        self._began_s = 0.0 if now_s is None else now_s()
        self.now_s = 0.0
        self.temperature_c = thermal.ambient_c
        self.throttled_s = 0.0
        self.requested = self.setting = AUTO  # the one in effect follows the one requested
        self._in_flight: list[_Change] = []  # in the order in which they take effect
        self._pauses = False
        self._running: _Running | None = None
        self._course: Course | None = None
        self.advance_all: Callable[[float], None] | None = None
        self._point: OperatingPoint | None = None
        self._power_w = 0.0
        self._moments_s, self._energies_j = array("d", [0.0]), array("d", [0.0])
        self._runs: dict[object, int] = {}
        self._moved_bytes = 0.0  # by what has ended
        self._update()

    # ---- commands --------------------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Advance virtual time, that of all GPUs of its job; in wall time, catch up with it."""
        if self.advance_all is not None and seconds:
            self.advance_all(self.now_s + seconds)
        else:
            self.advance_alone(seconds)

    def advance_alone(self, seconds: float) -> None:
        """Advance this one."""
        if self._wall_s is None:
            if not seconds:
                return
            if self._running is not None and not self._in_flight and self._course is None:
                self._run_on(self._running, seconds)
                return
            target = self.now_s + seconds
        else:
            target = self._wall_s() - self._began_s
        while self.now_s < target:
            end = min(target, self.now_s + _STEP_S)
            for change in self._in_flight:
                end = next((moment for moment in (change.pauses_s, change.arrives_s) if self.now_s < moment < end), end)
            self._elapse(end - self.now_s)
            if self._in_flight:
                self._arrive()
            self._update()

    def request(self, setting: Setting) -> None:
        """Request a setting, which takes effect after the switching latency of its clocks."""
        self.physics.check(setting)
        self.advance(0.0)
        if setting == self.requested:
            return
        before, self.requested = self.requested, setting
        latency_s = self._switching.latency_s(before, setting)
        latency_s *= math.exp(self._switching.jitter * self._draw("switch", setting))
        if self._switching.late_chance and self._generator("late", setting).random() < self._switching.late_chance:
            latency_s *= self._switching.late_factor
        if math.isinf(latency_s):  # it never takes effect, and keeps nothing else from doing so
            return
        parts = {name: getattr(setting, name) for name in _PARTS if getattr(setting, name) != getattr(before, name)}
        earlier_s = [change.arrives_s for change in self._in_flight if change.parts.keys() & parts.keys()]
        arrives_s = max(self.now_s + latency_s, *earlier_s, self.now_s)
        pauses_s = max(arrives_s - self._switching.pause_s(before, setting), self.now_s)
        self._in_flight.append(_Change(parts, arrives_s, pauses_s))
        self._in_flight.sort(key=lambda change: change.arrives_s)
        self._arrive()
        self._update()

    def start(self, task: Task) -> None:
        """Start running a task back to back."""
        self.physics.operating_point(task, self.requested, self.temperature_c)
        self.advance(0.0)
        run = ("run", task.name, self.requested)
        time_factor = math.exp(self._noise.run_time * self._draw(*run, "time"))
        power_factor = math.exp(self._noise.run_power * self._draw(*run, "power"))
        self._running = _Running(task, time_factor, power_factor, [self.now_s], [0.0], [])
        self._update()

    def follow(self, course: Course | None) -> None:
        """Run a program from now on instead of a task; ``None`` ends it."""
        self._moved_bytes = self.moved_bytes()
        self._course = course
        self._moved_bytes -= 0.0 if course is None else course.moved_bytes()
        self._update()

    def play(self, moment_s: FloatArray, energy_j: FloatArray) -> None:
        """Advance time along a given history of energy.

        Args:
            moment_s: times from now, ascending from 0; shape (moments,).
            energy_j: energy used until each, from 0; shape (moments,).
        """
        self.advance(0.0)
        mean_w = float(energy_j[-1] / moment_s[-1])
        self._moments_s.frombytes((self.now_s + moment_s[1:]).tobytes())
        self._energies_j.frombytes((self._energies_j[-1] + energy_j[1:]).tobytes())
        self.now_s += float(moment_s[-1])
        self.temperature_c = self._thermal.after(self.temperature_c, mean_w, float(moment_s[-1]))
        self._forget()
        self._update()

    def progress(self) -> float:
        """Calls completed by the running task, including the fraction of the current one."""
        assert self._running is not None
        return self._running.progress[-1]

    def stop(self, marks: list[float]) -> tuple[Lap, ...]:
        """End the task.

        Args:
            marks: progress at which laps begin and end, ascending.

        Returns:
            The laps with at least one whole call.
        """
        run = self._end()
        ended = math.floor(run.progress[-1] + 1e-9)
        bounds = [min(math.ceil(mark - 1e-9), ended) for mark in marks]
        moments = np.interp(bounds, run.progress, run.moments_s).tolist()
        return tuple(
            Lap(last - first, end - begin, *_counted_mhz(run, begin, end))
            for first, last, begin, end in zip(bounds[:-1], bounds[1:], moments[:-1], moments[1:], strict=True)
            if last > first
        )

    def stop_with_history(self) -> History:
        """End the task; all that it went through."""
        run = self._end()
        return History(np.array(run.moments_s), np.array(run.progress), np.array(run.core_mhz))

    def _end(self) -> _Running:
        self._moved_bytes = self.moved_bytes()
        run, self._running = self._running, None
        assert run is not None
        self._update()
        return run

    # ---- what sensors read -----------------------------------------------------------------------------------

    def energy_at(self, moment_s: float) -> float:
        """True energy used until a recent moment."""
        if moment_s <= self._moments_s[0]:
            return self._energies_j[0]
        index = min(bisect_right(self._moments_s, moment_s), len(self._moments_s) - 1)
        t0, t1 = self._moments_s[index - 1], self._moments_s[index]
        e0, e1 = self._energies_j[index - 1], self._energies_j[index]
        return e0 if t1 == t0 else e0 + (e1 - e0) * (moment_s - t0) / (t1 - t0)

    def lagged_w(self, moment_s: float, lag_s: float) -> float:
        """First-order lag of true power at a recent moment; before the remembered history, power counts as constant."""
        first = max(bisect_right(self._moments_s, moment_s - LAG_REACH * lag_s) - 1, 0)
        bounds = np.array(self._moments_s[first : bisect_right(self._moments_s, moment_s) + 1])
        if len(bounds) < 2:
            return self._power_w
        power_w = mean_power_w(bounds, np.array(self._energies_j[first : first + len(bounds)]))
        return float(lag_of(bounds, power_w, moment_s, lag_s, power_w[0]))

    def moved_bytes(self) -> float:
        """Bytes that tasks and programs have moved through the memory until now."""
        self.advance(0.0)
        moved = self._moved_bytes + (0.0 if self._course is None else self._course.moved_bytes())
        if self._running is not None:
            each = math.fsum(calls * kernel.bytes_moved for kernel, calls in self._running.task.steps)
            moved += each * self._running.progress[-1]
        return moved

    def clocks_in_effect(self) -> tuple[float, float] | None:
        """Core and memory clock of the running task, in MHz."""
        return None if self._point is None else (self._point.core_mhz, self._point.memory_mhz)

    # ---- inside ----------------------------------------------------------------------------------------------

    def _arrive(self) -> None:
        """Put into effect what has arrived by now."""
        while self._in_flight and self._in_flight[0].arrives_s <= self.now_s:
            self.setting = replace(self.setting, **self._in_flight.pop(0).parts)

    def _update(self) -> None:
        """Update power and speed to what is in effect now."""
        self._pauses = any(change.pauses_s <= self.now_s for change in self._in_flight)
        if self._course is not None and not self._pauses:
            return  # it is asked as time passes
        running = self._running
        point = None if running is None else self.physics.operating_point(running.task, self.setting, self.temperature_c)
        self._point = point
        if point is None or running is None or self._pauses:
            self._power_w = self.physics.idle_power_w(self.setting, self.temperature_c)
        else:
            self._power_w = point.power_w * running.power_factor

    def _elapse(self, seconds: float) -> None:
        """Advance time while nothing but temperature changes; a program may do so for less."""
        if self._course is not None and self._pauses:
            self._course.pause(seconds)
        elif self._course is not None:
            seconds, self._point = self._course.run(self.setting, self.temperature_c, seconds)
            self._power_w = self._point.power_w
            self.throttled_s += seconds * self._point.throttled
        self.now_s = now_s = self.now_s + seconds
        power_w, point, run = self._power_w, self._point, self._running
        self._moments_s.append(now_s)
        self._energies_j.append(self._energies_j[-1] + power_w * seconds)
        if point is not None and run is not None:
            run.moments_s.append(now_s)
            calls = 0.0 if self._pauses else seconds / (point.time_s * run.time_factor)
            run.progress.append(run.progress[-1] + calls)
            run.core_mhz.append(point.core_mhz)
            if point.throttled:
                self.throttled_s += seconds
        self.temperature_c = self._thermal.after(self.temperature_c, power_w, seconds)
        if len(self._moments_s) > _REMEMBERED:
            self._forget()

    def _run_on(self, run: _Running, seconds: float) -> None:
        """Advance virtual time, step by step, while a task runs and no request is in flight.

        What :meth:`advance`, :meth:`_elapse` and :meth:`_update` do then, in one loop: a sweep spends its time here.
        """
        assert self._point is not None
        point, power_w, temperature_c = self._point, self._power_w, self.temperature_c
        moments_s, energies_j, progress = self._moments_s, self._energies_j, run.progress
        task, setting, time_factor, power_factor = run.task, self.setting, run.time_factor, run.power_factor
        operating_point, after = self.physics.operating_point, self._thermal.after
        now_s, energy_j, calls = self.now_s, energies_j[-1], progress[-1]
        target = now_s + seconds
        while now_s < target:
            end = now_s + _STEP_S
            elapsed_s = (target if target < end else end) - now_s
            now_s += elapsed_s
            energy_j += power_w * elapsed_s
            calls += elapsed_s / (point.time_s * time_factor)
            moments_s.append(now_s)
            energies_j.append(energy_j)
            run.moments_s.append(now_s)
            progress.append(calls)
            run.core_mhz.append(point.core_mhz)
            if point.throttled:
                self.throttled_s += elapsed_s
            temperature_c = after(temperature_c, power_w, elapsed_s)
            if len(moments_s) > _REMEMBERED:
                self.now_s = now_s
                self._forget()
            point = operating_point(task, setting, temperature_c)
            power_w = point.power_w * power_factor
        self.now_s, self.temperature_c, self._point, self._power_w = now_s, temperature_c, point, power_w

    def _forget(self) -> None:
        """Drop the history that no sensor looks back at."""
        if len(self._moments_s) > _REMEMBERED and self._moments_s[_REMEMBERED // 2] < self.now_s - _REMEMBERED_S:
            keep = bisect_right(self._moments_s, self.now_s - _REMEMBERED_S) - 1
            if keep > len(self._moments_s) // 8:  # as all that is kept has to move
                del self._moments_s[:keep], self._energies_j[:keep]

    def _draw(self, *subject: object) -> float:
        """A standard normal number that depends on the seed, the subject, and how often it was drawn for that subject.

        So a repeated measurement differs, while one that another process resumes does not.
        """
        return float(self._generator(*subject).standard_normal())

    def _generator(self, *subject: object) -> np.random.Generator:
        key = "/".join(map(str, subject))
        draws = self._runs.get(key, 0)
        self._runs[key] = draws + 1
        entropy = np.frombuffer(f"{self.seed}/{key}/{draws}".encode(), dtype=np.uint8)
        return np.random.default_rng(entropy.astype(np.uint32))  # NumPy converts other types one by one


def _counted_mhz(run: _Running, begin_s: float, end_s: float) -> tuple[float | None, float | None]:
    """Mean core clock between two moments, and the lowest mean over a launch's time; ``None`` where clocks are unknown."""
    first = max(bisect_right(run.moments_s, begin_s) - 1, 0)
    last = max(bisect_left(run.moments_s, end_s), first + 1)
    seen_mhz = run.core_mhz[first:last]
    if not end_s > begin_s or math.isnan(seen_mhz[0]):
        return None, None
    if seen_mhz.count(seen_mhz[0]) == len(seen_mhz):
        return seen_mhz[0], seen_mhz[0]
    if any(map(math.isnan, seen_mhz)):
        return None, None
    clocks_mhz = np.array(seen_mhz)
    bounds_s = np.array(run.moments_s[first : last + 1])
    bounds_s[0], bounds_s[-1] = max(bounds_s[0], begin_s), min(bounds_s[-1], end_s)  # the others lie between
    cycles = np.zeros(len(bounds_s))
    np.cumsum(clocks_mhz * (bounds_s[1:] - bounds_s[:-1]), out=cycles[1:])
    launches = max(round((end_s - begin_s) / _LAUNCH_S), 1)
    launches_s = np.arange(launches + 1) * ((end_s - begin_s) / launches) + begin_s
    launches_s[-1] = end_s
    launched = np.interp(launches_s, bounds_s, cycles)
    means_mhz = (launched[1:] - launched[:-1]) / (launches_s[1:] - launches_s[:-1])
    return float(cycles[-1] / (end_s - begin_s)), float(means_mhz.min())
