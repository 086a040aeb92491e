"""The rungs of a schedule as a running job climbs them: towards speed at once, back towards saving after long evidence.

A step towards speed goes as far as what was measured asks for. A step back is one rung, and only where what is measured
leaves room for it; each one that has to be taken back makes the next wait twice as long, so that nothing flutters.
"""

from __future__ import annotations

from collections.abc import Sequence

from wastenot.planning.schedule import Rung

_FIRST_WAIT = 400  # iterations until a step back is considered
_ROOM = 0.002  # slowdown that has to remain allowed after a step back
_LEAST_PAIRS = 6
_SOON = 4  # a step towards speed within so many waits after one back takes that back


class Ladder:
    """The present rung, and when to leave it.

    Args:
        rungs: of the schedule.
        max_slowdown: to keep.
    """

    def __init__(self, rungs: Sequence[Rung], max_slowdown: float) -> None:
        self._rungs, self._max_slowdown = rungs, max_slowdown
        self.present = 0
        self._wait = _FIRST_WAIT
        self._since = 0  # iterations at the present rung
        self._came_back = False

    @property
    def last(self) -> int:
        """The default clocks."""
        return len(self._rungs) - 1

    @property
    def at_default(self) -> bool:
        """Whether nothing is left of the plan."""
        return self.present == self.last

    def ran(self, iterations: int) -> None:
        """Take note of iterations at the present rung."""
        self._since += iterations

    def step(self, slowdown: float) -> None:
        """Step towards speed, after a slowdown beyond what is allowed was measured at the present rung."""
        if self._came_back and self._since < _SOON * self._wait:
            self._wait *= 2
        self.present = self._faster(slowdown)
        self._since, self._came_back = 0, False

    def back(self, slowdown: float | None, pairs: int) -> bool:
        """Step back towards saving, if that is due; returns whether it was.

        Args:
            slowdown: at the present rung, as much as it may be; ``None`` where it is not known.
            pairs: by which it is known.
        """
        if self.present == 0 or self._since < self._wait:
            return False
        target = self.present - 1
        if not self.at_default:
            if slowdown is None or pairs < _LEAST_PAIRS:
                return False
            if self._expected(target, slowdown) > self._max_slowdown - _ROOM:
                return False
        self.present = target
        self._since, self._came_back = 0, True
        return True

    def _expected(self, rung: int, slowdown: float) -> float:
        """Slowdown of another rung: what is added to the predicted one grows with what a rung saves."""
        here, there = self._rungs[self.present], self._rungs[rung]
        extra = max(slowdown - here.time_change, 0.0)
        ratio = there.energy_change / here.energy_change if here.energy_change < 0.0 else 1.0
        return there.time_change + extra * max(ratio, 0.0)

    def _faster(self, slowdown: float) -> int:
        for rung in range(self.present + 1, self.last):
            if self._expected(rung, slowdown) <= self._max_slowdown:
                return rung
        return self.last
