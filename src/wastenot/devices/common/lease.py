"""The exclusive right to change one GPU's clocks, which undoes what was changed however the process ends."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from wastenot.core.errors import DeviceError
from wastenot.core.processes import terminate
from wastenot.devices.common import journal
from wastenot.devices.common.gpu_driver import Kind
from wastenot.devices.common.journal import Holder, Restore


class Lease:
    """The exclusive right to change one GPU's clocks, from writing the journal until everything is undone.

    A signal that would end the process becomes an exception, so that contexts exit in order; an exit handler of the
    interpreter catches whatever remains.

    Args:
        uuid: of the GPU.
        restore: what it is restored to.
        undo: restores it, given the kinds that may have been changed and those that are known to have been.
        client: on whose behalf, where that is not this process.
        kept: kinds that it never changes.

    Attributes:
        restore: what the GPU is restored to.
        touched: kinds of a setting that are to be undone.
        changed: those of them that the driver has changed, or may have.
    """

    def __init__(
        self,
        uuid: str,
        restore: Restore,
        undo: Callable[[Restore, set[Kind], set[Kind]], None],
        client: Holder | None = None,
        kept: frozenset[Kind] = frozenset(),
    ) -> None:
        self.restore, self.touched, self.changed = restore, set[Kind](), set[Kind]()
        self._undo = undo
        self._process = os.getpid()
        self._path = journal.begin(uuid, restore, client, kept)
        self._before: dict[int, Any] = {}
        atexit.register(self.end)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is signal.SIG_DFL:
                    self._before[number] = signal.signal(number, terminate)

    def note_change(self, kind: Kind) -> None:
        """Note in the journal that the driver has changed something, or may have: it is to be undone without fail.

        Raises:
            DeviceError: the journal cannot be written.
        """
        if kind not in self.changed:
            self.changed.add(kind)
            journal.note(self._path, changed=sorted(self.changed))

    def keep(self, kinds: frozenset[Kind]) -> None:
        """Note in the journal which kinds are not changed from now on; those that have been are undone all the same.

        Raises:
            DeviceError: the journal cannot be written.
        """
        journal.note(self._path, kept=sorted(kinds - self.touched))

    def restore_clocks_to(self, restore: Restore) -> None:
        """Note in the journal which locks of clocks are restored from now on.

        Raises:
            DeviceError: the journal cannot be written; what it says then holds.
        """
        restore = replace(self.restore, core_mhz=restore.core_mhz, memory_mhz=restore.memory_mhz)
        if restore != self.restore:
            journal.note(self._path, restore=asdict(restore))
            self.restore = restore

    def undo(self) -> None:
        """Undo the changes and keep the lease. A forked child does nothing: the lease is its parent's.

        Raises:
            DriverError: something could not be undone, which the journal then says too.
        """
        if os.getpid() != self._process:
            return
        try:
            self._undo(self.restore, self.touched, self.changed)
        except Exception as error:
            with suppress(DeviceError):
                journal.note(self._path, failed=str(error))
            raise
        self.touched.clear()
        self.changed.clear()

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
