"""The exclusive right to change one GPU's clocks, which undoes what was changed however the process ends."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from wastenot.core.processes import Terminated
from wastenot.devices.common import journal
from wastenot.devices.common.gpu_driver import Kind
from wastenot.devices.common.journal import Holder, Restore


class Lease:
    """The exclusive right to change one GPU's clocks, from writing the journal until everything is undone.

    A signal that would end the process becomes an exception, so that contexts exit in order; an exit handler of the
    interpreter catches whatever remains.
    """

    def __init__(
        self, uuid: str, restore: Restore, undo: Callable[[Restore, set[Kind]], None], client: Holder | None = None
    ) -> None:
        self.restore, self.touched = restore, set[Kind]()
        self._undo = undo
        self._process = os.getpid()
        self._path = journal.begin(uuid, restore, client)
        self._before: dict[int, Any] = {}
        atexit.register(self.end)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is signal.SIG_DFL:
                    self._before[number] = signal.signal(number, _terminate)

    def undo(self) -> None:
        """Undo the changes and keep the lease. A forked child does nothing: the lease is its parent's."""
        if os.getpid() == self._process:
            self._undo(self.restore, self.touched)
            self.touched.clear()

    def end(self) -> None:
        """Undo the changes, then remove the journal; a forked child does neither."""
        if os.getpid() != self._process:
            return
        self.undo()
        journal.end(self._path)
        atexit.unregister(self.end)
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._before.items():
                signal.signal(number, handler)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated(128 + number)
