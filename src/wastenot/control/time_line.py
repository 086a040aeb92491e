"""What is kept of a run: moments at regular intervals, thinned out where they become too many, and its end in full."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict

from wastenot.control.status import Instant, Moment
from wastenot.core.setting import Setting

_MOST = 2000
_MOST_INSTANTS = 300


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


class CloseUp:
    """When passes began and clocks were requested on the first GPU, the latest ones; it forgets what is older."""

    def __init__(self) -> None:
        self._instants: deque[tuple[float, str | None, bool, Setting]] = deque(maxlen=_MOST_INSTANTS)

    def marker(self, at_s: float, name: str, target: Setting, *, at_default: bool) -> None:
        """Something began; a layer's turn is left out."""
        if ":" not in name:
            self._instants.append((at_s, name, at_default, target))

    def request(self, at_s: float, target: Setting, *, at_default: bool) -> None:
        """Clocks were requested."""
        self._instants.append((at_s, None, at_default, target))

    def instants(self) -> tuple[Instant, ...]:
        """Those kept, in order."""
        return tuple(
            Instant(
                at_s=max(at_s, 0.0),
                marker=name,
                at_default=at_default,
                **{f"target_{part}": value for part, value in asdict(target).items()},
            )
            for at_s, name, at_default, target in sorted(self._instants, key=lambda each: each[0])
        )
