"""The other way to see markers, to compare with: a function of the host that the GPU calls.

A host function holds up its stream until it has returned, and ours needs Python's lock. So it is queued on a stream of its
own, which waits for the marker in the program's.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from typing import Any

from wastenot.control.markers import Sink

_Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class CallbackMarkers:
    """Records like :class:`wastenot.control.markers.Markers`.

    Args:
        sink: is called for each in CUDA's thread.
        torch: PyTorch.
    """

    def __init__(self, sink: Sink, torch: Any) -> None:
        self._sink, self._torch = sink, torch
        self._stream = torch.cuda.Stream()
        self._names: deque[tuple[str, ...]] = deque()
        self._events = [torch.cuda.Event() for _ in range(256)]
        self._next = 0
        self._called = _Function(self._call)
        self._driver = ctypes.CDLL("libcuda.so.1")

    def record(self, *names: str) -> None:
        """The program has come here, and its GPU will."""
        event = self._events[self._next % len(self._events)]
        self._next += 1
        event.record()
        self._stream.wait_event(event)
        self._names.append(names)
        code = self._driver.cuLaunchHostFunc(ctypes.c_void_p(self._stream.cuda_stream), self._called, None)
        if code:
            raise RuntimeError(f"cuLaunchHostFunc: {code}")

    def close(self) -> None:
        """Wait for the last."""
        self._stream.synchronize()

    def _call(self, _: Any) -> None:
        self._sink(self._names.popleft(), time.monotonic())
