"""The time line of a run: moments at regular intervals, thinned out where they become too many."""

from __future__ import annotations

from wastenot.control.status import Moment

_MOST = 2000


class TimeLine:
    """Moments of a run, at most 2,000.

    Attributes:
        due_s: when to add the next.
    """

    def __init__(self, begins_s: float, every_s: float = 0.1) -> None:
        self.due_s = begins_s
        self._every_s = every_s
        self._moments: list[Moment] = []

    def add(self, now_s: float, moment: Moment) -> None:
        """Add a moment; every other goes where there are too many."""
        self._moments.append(moment)
        if len(self._moments) >= _MOST:
            self._moments = self._moments[::2]
            self._every_s *= 2.0
        self.due_s = now_s + self._every_s

    def moments(self) -> tuple[Moment, ...]:
        """Those kept."""
        return tuple(self._moments)
