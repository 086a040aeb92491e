"""Training jobs on simulated GPUs that are not as they were planned, from some iteration on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.simulated.course import Course
from wastenot.devices.simulated.physics import OperatingPoint


@dataclass(frozen=True, slots=True)
class Change:
    """How a job differs from what it was planned as, from one of its iterations on.

    Attributes:
        from_iteration: the first one that differs.
        slower: extra time relative to that at the default clocks, for a kernel whose core clock is lowered to 0; less in
            proportion for others. See :meth:`ChangedCourse.slower_by`.
        locked: extra time relative to that at the default clocks, wherever a clock or a limit is set.
        work: ratio of its work, as with another batch size.
    """

    from_iteration: int = 0
    slower: float = 0.0
    locked: float = 0.0
    work: float = 1.0


class ChangedCourse(Course):
    """A job that differs from some iteration on.

    Args:
        changes: how, by the iteration from which on they hold; the other arguments are those of :class:`Course`.
    """

    def __init__(self, *arguments: Any, changes: Sequence[Change] = (), **named: Any) -> None:
        self._changes, self._now = tuple(changes), Change()
        super().__init__(*arguments, **named)

    def slower_by(self, setting: Setting, slowdown: float, temperature_c: float) -> float:
        """The value of :attr:`Change.slower` with which an iteration at a setting takes longer by a fraction."""
        plain, self._now = self._tabulate(setting, temperature_c).until_s[-1], Change(slower=1.0)
        most, self._now = self._tabulate(setting, temperature_c).until_s[-1], Change()
        return slowdown * plain / (most - plain)

    def _begin(self, iteration: int) -> None:
        super()._begin(iteration)
        now = next((each for each in reversed(self._changes) if each.from_iteration <= iteration), Change())
        if now != self._now:
            self._now = now
            self._tables.clear()
        self._slower *= now.work

    def _times_s(self, points: Sequence[OperatingPoint], setting: Setting, temperature_c: float) -> FloatArray:
        time_s = super()._times_s(points, setting, temperature_c)
        if self._now.slower:
            core_mhz = np.array([point.core_mhz for point in points])
            auto_mhz = [self._physics.operating_point(task, AUTO, temperature_c).core_mhz for task in self._tasks]
            time_s = time_s * (1.0 + self._now.slower * np.maximum(1.0 - core_mhz / np.array(auto_mhz), 0.0))
        return time_s if setting.is_auto else time_s * (1.0 + self._now.locked)


def changed(*changes: Change) -> partial[ChangedCourse]:
    """What makes the courses of a job with such changes."""
    return partial(ChangedCourse, changes=changes)
