"""Markers recorded in a program: what is seen, and when, without keeping the program or its GPU waiting.

    program    iteration ─ forward ─ backward ─ optimizer ─ iteration ─ …        records an event in the current stream
    GPU              │           │          │           │                        gets there later
    thread     ······●····●······●·········●●···········●                        looks when it should, and tells the sink

Looking takes Python's lock from the program for a moment. So the thread sleeps until shortly before the next marker is
expected, going by the time that it took in the latest iterations, and only then looks every tenth of a millisecond. Nothing
wakes it, neither a marker that is recorded nor an interrupt when one is reached: on an H200 looking saw markers after 0.1 ms
(median), where waiting for an event's interrupt took 0.2 to 0.25 ms and cost the step no less (data/h200/apply). Inside a
CUDA graph events cannot be seen from outside; there a marker is a counter that the graph copies to the host's memory.

Loaded into other people's programs, so it imports nothing but the standard library; PyTorch is handed in.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Sink = Callable[[tuple[str, ...], float], None]
"""Takes the names of the markers at one place, and when it was seen to be reached, in seconds of ``time.monotonic``."""

POLL_S = 1e-4  # between two looks, where a marker is due
_SLOW_POLL_S = 2e-3  # where none is, as when a program waits for data
_SLOW_AFTER_S = 0.05  # that a marker is late by
_SLOTS = 256  # markers inside CUDA graphs
_REMEMBERED = 8  # times between two markers
_MARGIN_S = 5e-4  # to look earlier than the earliest of them
_LONGEST_SLEEP_S = 0.05  # so that the end of a program need not wait
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_PR_SET_TIMERSLACK, _SLACK_NS = 29, 1000
_END_S = 2.0  # for which the end of a program waits for its last markers

Names = tuple[str, ...]


class Markers:
    """Markers of this process.

    Args:
        sink: is called for each place, in order, in a thread of its own; once it raises, no more are recorded.
        torch: PyTorch, where markers are reached by a GPU; ``None`` where the program itself reaches them.
    """

    def __init__(self, sink: Sink, torch: Any = None) -> None:
        self._sink, self._torch = sink, torch
        self._process = os.getpid()
        self._pending: deque[tuple[Names, Any, float]] = deque()  # names, event or None, when they were recorded
        self._free: dict[int, deque[Any]] = {}
        self._graphs = None if torch is None else _GraphCounts(torch)  # now, as memory of graphs is not to hold them
        self._pace = _Pace()
        self._open = True
        self._thread = threading.Thread(target=self._run, name="wastenot-markers", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def record(self, *names: str) -> None:
        """The program has come to markers, outermost first, and its GPU will."""
        if not self._open or os.getpid() != self._process:
            return
        if self._torch is None:
            self._pending.append((names, None, time.monotonic()))
            return
        cuda = self._torch.cuda
        if cuda.is_current_stream_capturing():
            if self._graphs is not None:
                self._graphs.capture(names)
            return
        free = self._free.setdefault(cuda.current_device(), deque())
        try:
            event = free.popleft()
        except IndexError:
            event = cuda.Event()
            event.home = free
        event.record()
        self._pending.append((names, event, 0.0))

    def close(self) -> None:
        """Hand over what the GPU still reaches, and end. Harmless when called again, and in a forked child."""
        if not self._open or os.getpid() != self._process:
            return
        self._open = False
        atexit.unregister(self.close)
        if threading.current_thread() is not self._thread:
            self._thread.join(_END_S)

    def _run(self) -> None:
        _wake_up_in_time()
        if self._torch is not None:
            _allow_captures_elsewhere()
        try:
            while True:
                closing = not self._open
                while self._deliver():
                    pass
                if closing and not self._pending:
                    return
                time.sleep(POLL_S if closing else self._pace.sleep_s(time.monotonic()))
        except Exception:  # CUDA's or the receiver's: the program must not suffer, whatever it was
            self._open = False

    def _deliver(self) -> bool:
        """Deliver what has been reached; returns whether there may be more."""
        if self._graphs is not None and self._graphs.any:
            now_s = time.monotonic()
            for names in self._graphs.reached():
                self._tell(names, now_s)
        if not self._pending:
            return False
        names, event, at_s = self._pending[0]
        if event is not None:
            if not event.query():
                return False
            at_s = time.monotonic()
            event.home.append(event)
        self._pending.popleft()
        self._tell(names, at_s)
        return True

    def _tell(self, names: Names, at_s: float) -> None:
        self._pace.reached(names, at_s)
        self._sink(names, at_s)


class _Pace:
    """When the next marker is expected: the program is taken to do again what it did."""

    def __init__(self) -> None:
        self._latest: tuple[Names, float] | None = None
        self._took_s: dict[Names, deque[float]] = {}  # until the next marker, by the one before

    def reached(self, names: Names, at_s: float) -> None:
        """A marker was reached."""
        if self._latest is not None:
            before, before_s = self._latest
            self._took_s.setdefault(before, deque(maxlen=_REMEMBERED)).append(at_s - before_s)
        self._latest = names, at_s

    def sleep_s(self, now_s: float) -> float:
        """How long to sleep before looking again."""
        known = None if self._latest is None else self._took_s.get(self._latest[0])
        if self._latest is None or not known:
            return _SLOW_POLL_S
        spread_s = max(known) - min(known)
        from_s = self._latest[1] + min(known) - min(spread_s, 0.2 * min(known)) - _MARGIN_S
        if now_s < from_s:
            return min(from_s - now_s, _LONGEST_SLEEP_S)
        return POLL_S if now_s < self._latest[1] + max(known) + _SLOW_AFTER_S else _SLOW_POLL_S


class _GraphCounts:
    """Markers inside CUDA graphs: how often each was reached, counted by the GPU and copied to the host's memory."""

    def __init__(self, torch: Any) -> None:
        self._on_gpu = torch.zeros(_SLOTS, dtype=torch.int64, device="cuda")
        self._on_host = torch.zeros(_SLOTS, dtype=torch.int64, pin_memory=True)
        self._counts = self._on_host.numpy()
        self._names: list[Names] = []
        self._known = [0] * _SLOTS
        self._first = 0

    @property
    def any(self) -> bool:
        """Whether there are any."""
        return bool(self._names)

    def capture(self, names: Names) -> None:
        """Make markers part of the graph that is being captured."""
        slot = len(self._names)
        if slot < _SLOTS:
            count = self._on_gpu[slot]
            count.add_(1)
            self._on_host[slot].copy_(count, non_blocking=True)
            self._names.append(names)

    def reached(self) -> list[Names]:
        """Those reached since the last call, oldest first."""
        names = self._names
        found: list[Names] = []
        for place in range(self._first, self._first + len(names)):
            slot = place % len(names)
            count = int(self._counts[slot])
            if count > self._known[slot]:
                self._known[slot] = count
                self._first = slot + 1
                found.append(names[slot])
        return found


def _wake_up_in_time() -> None:
    """Have the system end this thread's sleeps to the microsecond, rather than 50 µs later."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(_SLACK_NS), 0, 0, 0)


def _allow_captures_elsewhere() -> None:
    """Let other threads capture CUDA graphs while this one asks for events, which by default invalidates a capture."""
    with suppress(OSError, AttributeError):
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(_RELAXED)))
