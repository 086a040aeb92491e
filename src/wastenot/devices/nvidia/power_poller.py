"""Power readings as they come, by polling: the driver keeps the sensors' latest values, which are cheap to read.

    sensor   ───v1─────────────────v2─────────────────v3────     a new value each 20 or 100 ms
    looks    . . . .│. . . . . . . . .│. . . . . . . . .│. .     each about 0.15 ms
    log             v1                v2                v3       when a value was first seen to have changed

A new value that equals the one before cannot be told from an old one, and is left out. So is one of which nobody knows when
it came: what was there at the first look, or came while the driver kept a look waiting.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from wastenot.devices.instrument import Readings

_PAUSE_S = 1e-4  # between looks; what the system makes of it is about half as much again
_BLIND_S = 2e-3  # since the look before, after which a new value may have come long ago
_SWITCH_S = 1e-4  # that another thread may keep Python to itself while this one wants to look; 5 ms usually


class PowerPoller:
    """Follows some readings from a thread of its own.

    Args:
        read: gives the latest value of each in watts, ``None`` for one that cannot be read just now.
        now_s: clock that readings are stamped by.
        pause_s: between looks.
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
        """Follow until the context is left; what was logged before is forgotten.

        Raises:
            DeviceError: the sensors could not be read.
        """
        self._last, self._log, self._error, self.looks = [], [], None, 0
        self._stopped.clear()
        thread = threading.Thread(target=self._follow, name="wastenot-power-poller", daemon=True)
        usual_s = sys.getswitchinterval()
        sys.setswitchinterval(min(usual_s, _SWITCH_S))
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()
            sys.setswitchinterval(usual_s)
        if self._error is not None:
            raise self._error

    def look(self) -> None:
        """Read once, and log what has changed."""
        before_s = self._now_s()
        values = self._read()
        after_s = self._now_s()
        known = before_s - self._looked_s < _BLIND_S and after_s - before_s < _BLIND_S
        self._looked_s = before_s
        self.looks += 1
        if not self._last:
            self._last, self._log = list(values), [[] for _ in values]
            return
        for place, value in enumerate(values):
            if value is None or value == self._last[place]:
                continue
            if known and self._last[place] is not None:
                self._log[place].append((0.5 * (before_s + after_s), value))
            self._last[place] = value

    def readings(self) -> tuple[Readings, ...]:
        """What was logged of each."""
        tables = [np.array(log, dtype=np.float64).reshape(-1, 2) for log in self._log]
        return tuple(Readings(table[:, 0].copy(), table[:, 1].copy()) for table in tables)

    def _follow(self) -> None:
        try:
            while not self._stopped.is_set():
                self.look()
                time.sleep(self._pause_s)
        except Exception as error:  # raised again where the log is wanted
            self._error = error
