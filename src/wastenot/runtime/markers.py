"""Markers recorded in a program: what is seen, and when, without keeping the program or its GPU waiting.

    program    iteration ─ forward ─ backward ─ optimizer ─ iteration ─ …        records an event in the current stream
    GPU              │           │          │           │                        gets there later
    thread           └─▶ sink    └─▶ sink   └─▶ sink    └─▶ sink                 looks until it does

While a marker is outstanding the thread looks every 0.1 ms: on an H200 it saw markers after 0.1 ms (median), where waiting
for an event's interrupt took 0.2 to 0.25 ms, and cost the step no more (data/h200/apply). Inside a CUDA graph events cannot
be seen from outside; there a marker is a counter that the graph copies to the host's memory.

Loaded into other people's programs, so it imports nothing but the standard library; PyTorch is handed in.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

Sink = Callable[[tuple[str, ...], float], None]
"""Takes the names of the markers at one place, and when it was seen to be reached, in seconds of ``time.monotonic``."""

Waiting = Literal["block", "poll"]

POLL_S = 1e-4  # between two looks, where the thread has to look
_SLOTS = 256  # markers inside CUDA graphs
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
_END_S = 2.0  # for which the end of a program waits for its last markers

_Pending = tuple[tuple[str, ...], Any, float]  # names, event or None, when they were recorded
_LOOK: _Pending = ((), None, 0.0)  # no marker, only wakes the thread


class Markers:
    """Markers of this process.

    Args:
        sink: is called for each, in order, in a thread of its own; once it raises, no more are recorded.
        torch: PyTorch, where markers are reached by a GPU; ``None`` where the program itself reaches them.
        waiting: how the thread waits for a GPU's events.
    """

    def __init__(self, sink: Sink, torch: Any = None, waiting: Waiting = "poll") -> None:
        self._sink, self._torch, self._waiting = sink, torch, waiting
        self._process = os.getpid()
        self._pending: queue.SimpleQueue[_Pending | None] = queue.SimpleQueue()
        self._free: dict[int, deque[Any]] = {}
        self._graphs = None if torch is None else _GraphCounts(torch)  # now, as memory of graphs is not to hold them
        self._open = True
        self._thread = threading.Thread(target=self._run, name="wastenot-markers", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def record(self, *names: str) -> None:
        """The program has come here, and its GPU will.

        Args:
            names: of the markers that stand here, outermost first.
        """
        if not self._open or os.getpid() != self._process:
            return
        if self._torch is None:
            self._pending.put((names, None, time.monotonic()))
            return
        cuda = self._torch.cuda
        if cuda.is_current_stream_capturing():
            if self._graphs is not None:
                self._graphs.capture(names)
                self._pending.put(_LOOK)
            return
        free = self._free.setdefault(cuda.current_device(), deque())
        try:
            event = free.popleft()
        except IndexError:
            event = cuda.Event(blocking=self._waiting == "block")
            event.home = free
        event.record()
        self._pending.put((names, event, 0.0))

    def close(self) -> None:
        """Hand over what the GPU still reaches, and end. Harmless when called again, and in a forked child."""
        if not self._open or os.getpid() != self._process:
            return
        self._open = False
        atexit.unregister(self.close)
        self._pending.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(_END_S)

    def _run(self) -> None:
        if self._torch is not None:
            _allow_captures_elsewhere()
        try:
            while self._deliver():
                pass
        except Exception:  # CUDA's or the receiver's: the program must not suffer, whatever it was
            self._open = False

    def _deliver(self) -> bool:
        """Deliver the next marker; false where none will come."""
        looking = self._graphs is not None and self._graphs.any
        try:
            pending = self._pending.get(timeout=POLL_S if looking else None)
        except queue.Empty:
            self._look_at_graphs()
            return True
        if pending is None:
            self._look_at_graphs()
            return False
        names, event, at_s = pending
        if event is not None:
            if self._waiting == "block" and not looking:
                event.synchronize()
            else:
                while not event.query():
                    self._look_at_graphs()
                    time.sleep(POLL_S)
            at_s = time.monotonic()
            event.home.append(event)
        if names:
            self._sink(names, at_s)
        return True

    def _look_at_graphs(self) -> None:
        if self._graphs is not None and self._graphs.any:
            now_s = time.monotonic()
            for names in self._graphs.reached():
                self._sink(names, now_s)


class _GraphCounts:
    """Markers inside CUDA graphs: how often each was reached, counted by the GPU and copied to the host's memory."""

    def __init__(self, torch: Any) -> None:
        self._on_gpu = torch.zeros(_SLOTS, dtype=torch.int64, device="cuda")
        self._on_host = torch.zeros(_SLOTS, dtype=torch.int64, pin_memory=True)
        self._counts = self._on_host.numpy()
        self._names: list[tuple[str, ...]] = []
        self._known = [0] * _SLOTS
        self._first = 0

    @property
    def any(self) -> bool:
        """Whether there are any."""
        return bool(self._names)

    def capture(self, names: tuple[str, ...]) -> None:
        """Make markers part of the graph that is being captured."""
        slot = len(self._names)
        if slot < _SLOTS:
            count = self._on_gpu[slot]
            count.add_(1)
            self._on_host[slot].copy_(count, non_blocking=True)
            self._names.append(names)

    def reached(self) -> list[tuple[str, ...]]:
        """Those reached since the last call, oldest first."""
        names = self._names
        found: list[tuple[str, ...]] = []
        for place in range(self._first, self._first + len(names)):
            slot = place % len(names)
            count = int(self._counts[slot])
            if count > self._known[slot]:
                self._known[slot] = count
                self._first = slot + 1
                found.append(names[slot])
        return found


def _allow_captures_elsewhere() -> None:
    """Let other threads capture CUDA graphs while this one waits for events, which by default invalidates a capture."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(_RELAXED)))
    except (OSError, AttributeError):
        pass
