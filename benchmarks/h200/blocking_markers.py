"""Another way to see markers, to compare with: a thread that sleeps in CUDA until an interrupt tells of an event."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from typing import Any

from wastenot.control.markers import Sink


class BlockingMarkers:
    """Records like :class:`wastenot.control.markers.Markers`.

    Args:
        sink: is called for each in a thread.
        torch: PyTorch.
    """

    def __init__(self, sink: Sink, torch: Any) -> None:
        self._sink, self._torch = sink, torch
        self._pending: queue.SimpleQueue[tuple[tuple[str, ...], Any] | None] = queue.SimpleQueue()
        self._free: deque[Any] = deque()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def record(self, *names: str) -> None:
        """The program has come here, and its GPU will."""
        event = self._free.popleft() if self._free else self._torch.cuda.Event(blocking=True)
        event.record()
        self._pending.put((names, event))

    def close(self) -> None:
        """Wait for the last."""
        self._pending.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (pending := self._pending.get()) is not None:
            names, event = pending
            event.synchronize()
            self._sink(names, time.monotonic())
            self._free.append(event)
