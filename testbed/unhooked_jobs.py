"""Jobs on simulated GPUs that report no iterations, so that only their memory traffic shows how they come along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wastenot.control.controller import Controller
from wastenot.control.marker import Marker
from wastenot.control.simulated_job import Programme
from wastenot.control.tuner import Tuner
from wastenot.core.setting import Setting
from wastenot.devices.simulated.course import Course
from wastenot.devices.simulated.physics import OperatingPoint


class _Unheard:
    """A driver that hears no markers, and is told at once that none will come."""

    _told = False

    def mark(self, marker: Marker) -> None:
        """Not heard."""

    def act(self, now_s: float) -> None:
        """What is due."""
        super().act(now_s)  # type: ignore[misc]
        if not self._told:
            self._told = True
            self.hold(now_s)  # type: ignore[attr-defined]


class UnheardTuner(_Unheard, Tuner):
    """A tuner of a job without hooks."""


class UnheardController(_Unheard, Controller):
    """A controller of a job without hooks."""


class LeakyCourse(Course):
    """A job whose kernels move other amounts at other core clocks, as caches may hit more or less often.

    Args:
        leak: standard deviation, over kernels, of the exponent by which bytes grow with the core clock.
        common: what all of them have of it.
        leak_seed: of the exponents.
        others: as of :class:`Course`.
    """

    def __init__(self, *others: Any, leak: float, common: float = 0.0, leak_seed: int = 0, **named: Any) -> None:
        super().__init__(*others, **named)
        rng = np.random.default_rng([leak_seed, 71])
        self._exponents = common + leak * rng.standard_normal(len(self._tasks))
        self._each = np.diff(self._until_bytes)
        self._leaky: dict[float, list[float]] = {}
        self._moved = 0.0
        self._reference_mhz = 0.0

    def run(self, setting: Setting, temperature_c: float, seconds: float) -> tuple[float, OperatingPoint]:
        """As without leaks; takes note of what was moved."""
        iteration, call, part = self.iteration, self._call, self._part
        took_s, point = super().run(setting, temperature_c, seconds)
        self._reference_mhz = self._reference_mhz or point.core_mhz
        until = self._until_at(round(point.core_mhz / self._reference_mhz, 3))
        end = until[-1] if self.iteration > iteration else self._at(until, self._call, self._part)
        self._moved += end - self._at(until, call, part)
        return took_s, point

    def moved_bytes(self) -> float:
        """Bytes moved so far."""
        return self._moved

    def _until_at(self, ratio: float) -> list[float]:
        if ratio not in self._leaky:
            factors = ratio ** self._exponents[self._order]
            self._leaky[ratio] = [0.0, *np.cumsum(self._each * factors).tolist()]
        return self._leaky[ratio]

    @staticmethod
    def _at(until: Sequence[float], call: int, part: float) -> float:
        return until[call] + (part * (until[call + 1] - until[call]) if part else 0.0)


def in_turn(*parts: tuple[Programme, int]) -> Programme:
    """Programmes one after another, each so often, as one iteration: a job with phases."""
    tasks, order = [], []
    for programme, times in parts:
        order += [len(tasks) + index for index in programme.order] * times
        tasks += programme.tasks
    return Programme(tuple(tasks), tuple(order), (("iteration", 0),))
