"""Faults on demand: calls of NVML that fail, or are slow."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from fnmatch import fnmatchcase

from testbed.stand_in.codes import Code


@dataclass(slots=True)
class Fault:
    """A fault.

    Attributes:
        pattern: name of a function in ``pynvml``, or a pattern such as ``nvmlDeviceSet*``.
        code: returned; ``None`` where the call succeeds after all.
        times: how many calls more; ``None`` for all.
        delay_s: before the call is served.
        after: calls that still go well.
        index: of the GPU; ``None`` for all.
        takes_effect: the call does what it does and yet returns the error.
        hangs: the call is not served until faults are cleared.
    """

    pattern: str
    code: Code | None = None
    times: int | None = None
    delay_s: float = 0.0
    after: int = 0
    index: int | None = None
    takes_effect: bool = False
    hangs: bool = False


class Faults:
    """Those in force.

    Attributes:
        hanging: calls that wait for faults to be cleared.
    """

    def __init__(self) -> None:
        self._all: list[Fault] = []
        self.hanging = 0
        self._cleared = threading.Event()
        self._turn = threading.Lock()

    def add(self, fault: Fault) -> None:
        """One more."""
        with self._turn:
            self._all.append(fault)

    def clear(self) -> None:
        """None any more: what hangs is served."""
        with self._turn:
            self._all.clear()
            self._cleared.set()
            self._cleared = threading.Event()

    def hang(self) -> None:
        """Wait until they are cleared."""
        with self._turn:
            self.hanging += 1
            cleared = self._cleared
        cleared.wait()
        with self._turn:
            self.hanging -= 1

    def take(self, name: str, index: int | None) -> Fault | None:
        """The fault of a call that is made now."""
        if not self._all:
            return None
        with self._turn:
            for fault in self._all:
                if not fnmatchcase(name, fault.pattern) or fault.index not in (None, index) or fault.times == 0:
                    continue
                if fault.after > 0:
                    fault.after -= 1
                    continue
                if fault.times is not None:
                    fault.times -= 1
                return fault
        return None
