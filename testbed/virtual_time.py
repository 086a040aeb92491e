"""Programs of asyncio in virtual time, which stands still while there is work and then jumps to what is due next."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch


class _Selector(selectors.DefaultSelector):  # type: ignore[misc, valid-type]  # which one it is depends on the system
    """Finds what is ready, and lets time pass where nothing is."""

    passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready; programs of this process alone talk over these sockets, so nothing else will be before a timer."""
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            return super().select(0.1)  # only another thread can have something to say
        self.passed_s += timeout
        return super().select(0)


class VirtualTime:
    """An event loop in virtual time, to run several things in, one after another or at once."""

    def __init__(self) -> None:
        self._selector = _Selector()
        self.loop = asyncio.SelectorEventLoop(self._selector)
        self.loop.time = self.now_s  # type: ignore[method-assign]

    def now_s(self) -> float:
        """Virtual seconds since the beginning."""
        return 1000.0 + self._selector.passed_s

    def run(self, program: Coroutine[Any, Any, Any]) -> Any:
        """Stands for ``asyncio.run``, in this loop."""
        return self.loop.run_until_complete(program)


@contextmanager
def virtual_time() -> Iterator[VirtualTime]:
    """``asyncio.run`` and ``time.perf_counter`` are those of virtual time."""
    virtual = VirtualTime()
    clock: Callable[[], float] = virtual.now_s
    with patch.object(asyncio, "run", virtual.run), patch.object(time, "perf_counter", clock):
        try:
            yield virtual
        finally:
            virtual.loop.close()
