"""The clockwork of a simulated device: time, temperature, energy, clocks that arrive late, a task that runs.

Between two events (a request that takes effect, a task that starts or ends, a step of temperature) everything is constant
or linear, so that time advances from event to event however long they are apart.

    request(setting) ─┬─ latency ─┬─ in effect
    power  ───────────┘           └──────────────
    energy ___________/‾‾‾‾‾‾‾‾‾‾‾‾  piecewise linear: `energy_at` gives it at any recent moment
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wastenot.arrays import FloatArray
from wastenot.devices.protocol import Task
from wastenot.devices.simulated.hardware import Noise, Switching, Thermal
from wastenot.devices.simulated.physics import OperatingPoint, Physics
from wastenot.devices.simulated.power_history import LAG_REACH, lag_of, mean_power_w
from wastenot.setting import AUTO, Setting

_STEP_S = 0.5  # longest time for which the temperature is taken as constant
_REMEMBERED_S = 4.0  # how far back sensors may look


@dataclass(slots=True)
class _Running:
    """A task that runs: its progress in calls at the beginning of each stretch of constant speed."""

    task: Task
    time_factor: float
    power_factor: float
    moments_s: list[float]
    progress: list[float]


class Engine:
    """The state of a simulated device, advanced on demand.

    Args:
        physics: what tasks take at given clocks.
        thermal: how the GPU warms and cools.
        switching: how late requested clocks arrive.
        noise: how runs of the same task differ.
        seed: of the noise.
        now_s: a clock that moves the device along by itself (wall time); ``None`` for virtual time.
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
        self._began_s = 0.0 if now_s is None else now_s()
        self.now_s = 0.0
        self.temperature_c = thermal.ambient_c
        self.throttled_s = 0.0
        self.requested = AUTO
        self._in_effect = AUTO
        self._arrives_s: float | None = None
        self._running: _Running | None = None
        self._point: OperatingPoint | None = None
        self._power_w = 0.0
        self._moments_s, self._energies_j = array("d", [0.0]), array("d", [0.0])
        self._runs: dict[object, int] = {}
        self._look()

    # ---- what others do to it --------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Let virtual time pass; by wall time, catch up with it."""
        target = self.now_s + seconds if self._wall_s is None else self._wall_s() - self._began_s
        while self.now_s < target:
            end = min(target, self.now_s + _STEP_S)
            if self._arrives_s is not None and self.now_s < self._arrives_s < end:
                end = self._arrives_s
            self._pass(end - self.now_s)
            if self._arrives_s is not None and self.now_s >= self._arrives_s:
                self._in_effect, self._arrives_s = self.requested, None
            self._look()

    def request(self, setting: Setting) -> None:
        """Ask for a setting; it takes effect after the switching latency of its clocks."""
        self.physics.check(setting)
        self.advance(0.0)
        if setting == self.requested:
            return
        latency = self._switching.latency_s(self.requested, setting)
        self.requested = setting
        self._arrives_s = self.now_s + latency * math.exp(self._switching.jitter * self._draw("switch", setting))
        if latency == 0.0:
            self._in_effect, self._arrives_s = setting, None
            self._look()

    def start(self, task: Task) -> None:
        """Run a task back to back from now on."""
        self.physics.operating_point(task, self.requested, self.temperature_c)
        self.advance(0.0)
        run = ("run", task.name, self.requested)
        time_factor = math.exp(self._noise.run_time * self._draw(*run, "time"))
        power_factor = math.exp(self._noise.run_power * self._draw(*run, "power"))
        self._running = _Running(task, time_factor, power_factor, [self.now_s], [0.0])
        self._look()

    def play(self, moment_s: FloatArray, energy_j: FloatArray) -> None:
        """Let time pass in which power went as is told.

        Args:
            moment_s: from now, rising from 0; shape (moments,).
            energy_j: used up to each, from 0; shape (moments,).
        """
        self.advance(0.0)
        mean_w = float(energy_j[-1] / moment_s[-1])
        self._moments_s.frombytes((self.now_s + moment_s[1:]).tobytes())
        self._energies_j.frombytes((self._energies_j[-1] + energy_j[1:]).tobytes())
        self.now_s += float(moment_s[-1])
        self.temperature_c = self._thermal.after(self.temperature_c, mean_w, float(moment_s[-1]))
        self._forget()
        self._look()

    @property
    def setting(self) -> Setting:
        """In effect by now."""
        return self._in_effect

    @property
    def on_wall_time(self) -> bool:
        """Whether time passes by itself."""
        return self._wall_s is not None

    def progress(self) -> float:
        """Calls done so far by the running task, parts of one included."""
        assert self._running is not None
        return self._running.progress[-1]

    def stop(self, marks: list[float]) -> list[tuple[int, float]]:
        """End the task.

        Args:
            marks: progress at which laps begin and end, rising.

        Returns:
            Of each lap its whole calls, and the time from the first one's begin to the last one's end.
        """
        self.advance(0.0)
        run = self._running
        assert run is not None
        self._running = None
        self._look()
        ended = math.floor(run.progress[-1] + 1e-9)
        bounds = [min(math.ceil(mark - 1e-9), ended) for mark in marks]
        moments = np.interp(bounds, run.progress, run.moments_s).tolist()
        return [
            (last - first, end - begin)
            for first, last, begin, end in zip(bounds[:-1], bounds[1:], moments[:-1], moments[1:], strict=True)
        ]

    # ---- what sensors see ------------------------------------------------------------------------------------

    def energy_at(self, moment_s: float) -> float:
        """True energy used up to a recent moment."""
        if moment_s <= self._moments_s[0]:
            return self._energies_j[0]
        place = min(bisect_right(self._moments_s, moment_s), len(self._moments_s) - 1)
        t0, t1 = self._moments_s[place - 1], self._moments_s[place]
        e0, e1 = self._energies_j[place - 1], self._energies_j[place]
        return e0 if t1 == t0 else e0 + (e1 - e0) * (moment_s - t0) / (t1 - t0)

    def lagged_w(self, moment_s: float, lag_s: float) -> float:
        """A first-order lag of true power at a recent moment; before what is remembered, power was as at its begin."""
        first = max(bisect_right(self._moments_s, moment_s - LAG_REACH * lag_s) - 1, 0)
        bounds = np.array(self._moments_s[first : bisect_right(self._moments_s, moment_s) + 1])
        if len(bounds) < 2:
            return self._power_w
        power_w = mean_power_w(bounds, np.array(self._energies_j[first : first + len(bounds)]))
        return float(lag_of(bounds, power_w, moment_s, lag_s, power_w[0]))

    def clocks_in_effect(self) -> tuple[float, float] | None:
        """Core and memory clock of the running task, in MHz."""
        return None if self._point is None else (self._point.core_mhz, self._point.memory_mhz)

    # ---- inside ----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Work out power and speed from here on."""
        if self._running is None:
            self._point = None
            self._power_w = self.physics.idle_power_w(self._in_effect, self.temperature_c)
        else:
            point = self.physics.operating_point(self._running.task, self._in_effect, self.temperature_c)
            self._point = point
            self._power_w = point.power_w * self._running.power_factor

    def _pass(self, seconds: float) -> None:
        """Let time pass in which nothing changes but temperature."""
        self.now_s += seconds
        self._moments_s.append(self.now_s)
        self._energies_j.append(self._energies_j[-1] + self._power_w * seconds)
        if self._point is not None and self._running is not None:
            run = self._running
            run.moments_s.append(self.now_s)
            run.progress.append(run.progress[-1] + seconds / (self._point.time_s * run.time_factor))
            if self._point.throttled:
                self.throttled_s += seconds
        self.temperature_c = self._thermal.after(self.temperature_c, self._power_w, seconds)
        self._forget()

    def _forget(self) -> None:
        """Drop what no sensor looks back at."""
        if len(self._moments_s) > 4096 and self._moments_s[2048] < self.now_s - _REMEMBERED_S:
            keep = bisect_right(self._moments_s, self.now_s - _REMEMBERED_S) - 1
            if keep > len(self._moments_s) // 8:  # as all that is kept has to move
                del self._moments_s[:keep], self._energies_j[:keep]

    def _draw(self, *about: object) -> float:
        """A standard normal number that depends on the seed, on what it is about, and on how often that was drawn.

        So a measurement that is repeated differs, and one that is resumed in another process does not.
        """
        key = "/".join(map(str, about))
        turn = self._runs.get(key, 0)
        self._runs[key] = turn + 1
        words = np.frombuffer(f"{self.seed}/{key}/{turn}".encode(), dtype=np.uint8)
        return float(np.random.default_rng(words).standard_normal())
