"""Logging that never makes the daemon wait, and that no user can fill; for its log and for its audit log.

    log(event, **fields) ──▶ a share of lines a minute for each user ──▶ a queue ──▶ a thread ──▶ standard error,
                                            │ used up                     │ full      a file or journald
                                            ▼                             ▼
                                    counted, said later           counted, said later

Whoever reads standard error may stop reading it, and then a write to it blocks for as long as that takes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from queue import Full, Queue
from typing import Generic, Protocol, TypeVar

_QUEUED = 1000  # lines that wait to be written; the rest is dropped
_A_MINUTE = 300  # lines of one user, unless told otherwise; a sweep has a hundred settings
_MINUTE_S = 60.0


class Log(Protocol):
    """Logs what happened."""

    def __call__(self, event: str, **fields: object) -> None:
        """Log an event and its fields."""


T = TypeVar("T")


class Lines(Generic[T]):
    """Lines that a thread writes.

    Args:
        write: writes a line, and may block; raises OSError where that is impossible.
        lost: the line that says how many were lost.

    Attributes:
        dropped: how many were lost.
    """

    def __init__(self, write: Callable[[T], None], lost: Callable[[int], T]) -> None:
        self._write, self._lost, self._queue, self._turn = write, lost, Queue[T | None](_QUEUED), threading.Lock()
        self.dropped = self._told = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="wastenotd-log", daemon=True)
        self._thread.start()

    def put(self, line: T) -> None:
        """Have a line written, or count it where too many wait."""
        try:
            self._queue.put_nowait(line)
        except Full:
            self._drop()

    def close(self, longest_s: float) -> None:
        """Write what waits, as far as that is possible in this time."""
        self._over.set()
        with suppress(Full):  # then the thread sees it after the last line
            self._queue.put_nowait(None)
        self._thread.join(longest_s)

    def _run(self) -> None:
        while (line := self._queue.get()) is not None:
            try:
                self._write(line)
            except OSError:
                self._drop()
            dropped = self.dropped
            if dropped > self._told:
                with suppress(OSError):
                    self._write(self._lost(dropped - self._told))
                    self._told = dropped
            if self._over.is_set() and self._queue.empty():
                return

    def _drop(self) -> None:
        with self._turn:
            self.dropped += 1


class Repeats:
    """What was said of what, so that the same is said once a minute only."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s, self._said = now_s, dict[str, tuple[str, float]]()

    def is_news(self, of: str, text: str) -> bool:
        """Whether to say something of something now."""
        before, at_s = self._said.get(of, ("", -inf))
        if text == before and self._now_s() - at_s < _MINUTE_S:
            return False
        self._said[of] = (text, self._now_s())
        return True


class Shares:
    """Passes on what is logged, a limited number of lines of each user a minute.

    Args:
        log: takes what is passed on.
        now_s: the clock.
        a_minute: lines of one user.

    Attributes:
        dropped: how many were not passed on.
    """

    def __init__(self, log: Log, now_s: Callable[[], float], a_minute: int = _A_MINUTE) -> None:
        self._log, self._now_s, self._a_minute, self._turn = log, now_s, a_minute, threading.Lock()
        self.dropped = 0
        self._since_s = now_s()
        self._lines: dict[object, int] = {}

    def __call__(self, event: str, **fields: object) -> None:
        """Log an event, unless the user of its fields has used up the minute's lines."""
        with self._turn:  # GPUs' threads log too
            if self._now_s() - self._since_s >= _MINUTE_S:
                self._next_minute()
            user = fields.get("user")
            if user is not None:
                self._lines[user] = self._lines.get(user, 0) + 1
                if self._lines[user] > self._a_minute:
                    self.dropped += 1
                    return
            self._log(event, **fields)

    def _next_minute(self) -> None:
        lines, self._lines, self._since_s = self._lines, {}, self._now_s()
        for user, count in lines.items():
            if count > self._a_minute:
                dropped = f"more than {self._a_minute} a minute"
                self._log("log", user=user, lines=count - self._a_minute, dropped=dropped)


def text_of(event: str, fields: Mapping[str, object]) -> str:
    """An event and its fields in one line, which nothing that others sent breaks."""
    return " ".join([event, *(f"{name}={_quoted(str(value))}" for name, value in fields.items())])


def _quoted(text: str) -> str:
    plain = text.encode("ascii", "backslashreplace").decode().replace('"', "'")
    plain = "".join(character if character.isprintable() else "?" for character in plain)[:500]
    return f'"{plain}"' if " " in plain or not plain else plain
