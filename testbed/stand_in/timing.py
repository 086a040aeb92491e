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
    """Time of the wall: to let it pass is to wait. While programs hold it, it passes only as all of them let it.

        nobody holds it   ──────▶ as on the wall
        A and B hold it   A lets 2 ms pass, and waits for B;  B lets 3 ms pass: 2 ms have passed, and B waits for A

    So what a program does takes as long as it says, however long a busy machine keeps it waiting.
    """

    def __init__(self) -> None:
        self._behind_s = 0.0  # the wall
        self._until_s: dict[object, float] = {}  # by holder, the moment until which it lets time pass
        self._turn = threading.Condition()

    def now_s(self) -> float:
        """Seconds since some moment."""
        with self._turn:
            return self._now_s()

    def spend(self, seconds: float) -> None:
        """Wait; what a request takes anyhow is not waited for again."""
        if seconds >= _SHORTEST_SLEEP_S:
            time.sleep(seconds)

    def hold(self, holder: object) -> float:
        """Let no time pass from now on but what the holder lets; now."""
        with self._turn:
            now_s = self._now_s()
            self._until_s[holder] = now_s
            return now_s

    def let_pass(self, holder: object, seconds: float) -> float:
        """Let time pass that a holder held, and wait until the others have let it pass too; now."""
        with self._turn:
            until_s = self._until_s[holder] + seconds
            self._until_s[holder] = until_s
            self._turn.notify_all()
            self._turn.wait_for(lambda: self._now_s() >= until_s)
            return until_s

    def leave(self, holder: object) -> None:
        """Hold it no longer."""
        with self._turn:
            if holder in self._until_s:
                now_s = self._now_s()
                del self._until_s[holder]
                if not self._until_s:
                    self._behind_s = time.monotonic() - now_s
                self._turn.notify_all()

    def _now_s(self) -> float:
        return min(self._until_s.values(), default=time.monotonic() - self._behind_s)


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
