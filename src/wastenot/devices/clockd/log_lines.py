"""Logging that never makes the daemon wait, and that no user can fill.

    log(event, **fields) ──▶ a share of lines a minute for each user ──▶ a queue ──▶ a thread ──▶ standard error
                                            │ used up                     │ full
                                            ▼                             ▼
                                    counted, said later           counted, said later

Whoever reads standard error may stop reading it, and then a write to it blocks for as long as that takes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Full, Queue
from typing import Protocol

_QUEUED = 1000  # lines that wait to be written; the rest is dropped
_A_MINUTE = 300  # lines of one user; a sweep has a hundred settings
_MINUTE_S = 60.0


class Log(Protocol):
    """Logs what happened."""

    def __call__(self, event: str, **fields: object) -> None:
        """Log an event and its fields."""


class Lines:
    """Lines that a thread writes.

    Args:
        write: writes a line, and may block.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write, self._queue, self._turn = write, Queue[str | None](_QUEUED), threading.Lock()
        self._dropped = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wastenotd-log", daemon=True)
        self._thread.start()

    def put(self, line: str) -> None:
        """Have a line written, or count it where too many wait."""
        try:
            self._queue.put_nowait(line)
        except Full:
            with self._turn:
                self._dropped += 1

    def close(self, longest_s: float) -> None:
        """Write what waits, as far as that is possible in this time."""
        self._over.set()
        with suppress(Full):  # then the thread sees it after the last line
            self._queue.put_nowait(None)
        self._thread.join(longest_s)

    def _run(self) -> None:
        while (line := self._queue.get()) is not None:
            self._write(line)
            with self._turn:
                dropped, self._dropped = self._dropped, 0
            if dropped:
                self._write(f'log lines={dropped} dropped="nobody read them"')
            if self._over.is_set() and self._queue.empty():
                return


class Shares:
    """Passes on what is logged, a limited number of lines of each user a minute.

    Args:
        log: takes what is passed on.
        now_s: the clock.
    """

    def __init__(self, log: Log, now_s: Callable[[], float]) -> None:
        self._log, self._now_s = log, now_s
        self._since_s = now_s()
        self._lines: dict[object, int] = {}

    def __call__(self, event: str, **fields: object) -> None:
        """Log an event, unless the user of its fields has used up the minute's lines."""
        if self._now_s() - self._since_s >= _MINUTE_S:
            self._next_minute()
        user = fields.get("user")
        if user is not None:
            self._lines[user] = self._lines.get(user, 0) + 1
            if self._lines[user] > _A_MINUTE:
                return
        self._log(event, **fields)

    def _next_minute(self) -> None:
        lines, self._lines, self._since_s = self._lines, {}, self._now_s()
        for user, count in lines.items():
            if count > _A_MINUTE:
                self._log("log", user=user, lines=count - _A_MINUTE, dropped=f"more than {_A_MINUTE} a minute")
