"""A log of power readings by polling: the driver keeps each sensor's latest value, which is cheap to read.

    sensor   ───v1─────────────────v2─────────────────v3────     a new value every 20 or 100 ms
    polls    . . . .│. . . . . . . . .│. . . . . . . . .│. .     every 0.15 ms or so
    log             v1                v2                v3       when a value was first seen to have changed

A new value equal to the previous one cannot be recognised and is left out. So is one whose time of arrival is unknown: the
value at the first poll, and any that arrives while the driver delays a poll.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from wastenot.devices.instrument import Readings

_PAUSE_S = 1e-4  # between polls; the system makes it about 50 % longer
_BLIND_S = 2e-3  # since the previous poll, beyond which a new value may have come much earlier
_SWITCH_S = 1e-4  # for which another thread may hold the GIL while this one wants to poll; 5 ms by default


class PowerPoller:
    """Polls power readings from a separate thread.

    Args:
        read: returns the latest value of each reading in watts, ``None`` for one that is not available.
        now_s: clock for the timestamps.
        pause_s: pause between polls.
    """

    def __init__(
        self,
        read: Callable[[], Sequence[float | None]],
        now_s: Callable[[], float] = time.perf_counter,
        pause_s: float = _PAUSE_S,
    ) -> None:
        self._read, self._now_s, self._pause_s = read, now_s, pause_s
        self._last: list[float | None] = []
        self._looked_s = 0.0
        self._log: list[list[tuple[float, float]]] = []
        self._stopped = threading.Event()
        self._error: Exception | None = None
        self.looks = 0

    @contextmanager
    def following(self) -> Iterator[None]:
        """Poll until the context exits; discards the previous log.

        Raises:
            DeviceError: the sensors could not be read.
        """
        self._last, self._log, self._error, self.looks = [], [], None, 0
        self._stopped.clear()
        thread = threading.Thread(target=self._follow, name="wastenot-power-poller", daemon=True)
        default_s = sys.getswitchinterval()
        sys.setswitchinterval(min(default_s, _SWITCH_S))
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()
            sys.setswitchinterval(default_s)
        if self._error is not None:
            raise self._error

    def look(self) -> None:
        """Read once and log what has changed."""
        before_s = self._now_s()
        values = self._read()
        after_s = self._now_s()
        known = before_s - self._looked_s < _BLIND_S and after_s - before_s < _BLIND_S
        self._looked_s = before_s
        self.looks += 1
        if not self._last:
            self._last, self._log = list(values), [[] for _ in values]
            return
        for index, value in enumerate(values):
            if value is None or value == self._last[index]:
                continue
            if known and self._last[index] is not None:
                self._log[index].append((0.5 * (before_s + after_s), value))
            self._last[index] = value

    def readings(self) -> tuple[Readings, ...]:
        """The log of each reading."""
        tables = [np.array(log, dtype=np.float64).reshape(-1, 2) for log in self._log]
        return tuple(Readings(table[:, 0].copy(), table[:, 1].copy()) for table in tables)

    def _follow(self) -> None:
        try:
            while not self._stopped.is_set():
                self.look()
                time.sleep(self._pause_s)
        except Exception as error:  # raised again where the log is wanted
            self._error = error
