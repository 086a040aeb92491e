"""Time that all stand-in GPUs of a server share: that of the wall, or virtual."""

from __future__ import annotations

import threading
import time
from typing import Protocol

_SHORTEST_SLEEP_S = 2e-4  # a request through the socket takes as long


class Timing(Protocol):
    """Time."""

    def now_s(self) -> float:
        """Seconds since some moment."""
        ...

    def spend(self, seconds: float) -> None:
        """Let time pass."""
        ...


class WallTiming:
    """Time of the wall: to let it pass is to wait."""

    now_s = staticmethod(time.monotonic)

    def spend(self, seconds: float) -> None:
        """Wait; what a request takes anyhow is not waited for again."""
        if seconds >= _SHORTEST_SLEEP_S:
            time.sleep(seconds)


class VirtualTiming:
    """Time that passes only when someone lets it."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._turn = threading.Lock()

    def now_s(self) -> float:
        """Seconds since the server began."""
        return self._now_s

    def spend(self, seconds: float) -> None:
        """Let time pass, at once."""
        with self._turn:
            self._now_s += seconds
