"""Cycles of the core clock in a window: a stamp of the cycle counters on the current stream at its begin and end.

    host     ├ begin ────────── end ┤
    stream        ▯▯│▯▯▯▯▯▯▯▯▯▯▯▯▯▯▯│▯▯      cycles while the stream runs what is in between

Only on the GPU that PyTorch has as the current one in the thread, and only where the program itself uses it already: nothing
here initialises CUDA, takes memory of the GPU, or waits for it. A stamp takes some microseconds of the stream.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from wastenot.core.errors import WastenotError
from wastenot.core.vendors import bare_unique_id

if TYPE_CHECKING:
    from wastenot.devices.torch.host_stamps import HostStamp, HostStamps, Place

_PLACES = 4096  # of stamps: 2,048 windows that are open or have not been evaluated
_PATIENCE_S = 1e-3  # for a stamp that follows work which has just ended


class CycleMark:
    """A stamp at the edge of a window, given up with it.

    Args:
        stamps: of the GPU.
        place: of the stamp.
        unique_id: of the GPU.
    """

    __slots__ = ("_place", "stamps", "unique_id")

    def __init__(self, stamps: HostStamps, place: Place, unique_id: str) -> None:
        self.stamps, self.unique_id = stamps, unique_id
        self._place: Place | None = place

    def take(self) -> HostStamp | None:
        """The stamp, once; ``None`` if the GPU has not counted it yet."""
        place, self._place = self._place, None
        if place is None:
            return None
        found = self.stamps.take(place)
        if found is None:
            time.sleep(_PATIENCE_S)
            found = self.stamps.take(place)
        if found is None:
            self.stamps.drop(place)
        return found

    def __del__(self) -> None:
        if self._place is not None:
            self.stamps.drop(self._place)


class CycleMarks:
    """Makes marks on the GPUs of this process, as far as it uses any.

    Attributes:
        problem: why cycles cannot be counted; empty where they can, or nothing is known yet.
    """

    def __init__(self) -> None:
        self.problem = ""
        self._counters: dict[int, tuple[HostStamps, str]] = {}
        self._lock = threading.Lock()

    def mark(self) -> CycleMark | None:
        """Queue a stamp on the current stream, without waiting; ``None`` where that is impossible."""
        torch = sys.modules.get("torch")
        if torch is None or self.problem:
            return None
        try:
            if not torch.cuda.is_initialized():
                return None
            gpu = torch._C._cuda_getDevice()
            counters = self._counters.get(gpu) or self._made(torch, gpu)
            # A stamp in a captured graph would be counted each time that the graph runs.
            if counters is None or torch._C._cuda_isCurrentStreamCapturing():
                return None
            stamps, unique_id = counters
            place = _recorded(torch, stamps, gpu)
            return None if place is None else CycleMark(stamps, place, unique_id)
        except WastenotError as error:
            self.problem = str(error)
        except Exception as error:  # never an error of the program that is measured
            self.problem = f"cycles cannot be counted: {type(error).__name__}: {error}"
        return None

    def _made(self, torch: Any, gpu: int) -> tuple[HostStamps, str] | None:
        if torch._C._cuda_isCurrentStreamCapturing() or not torch._C._cuda_hasPrimaryContext(gpu):
            return None
        from wastenot.devices.torch.host_stamps import HostStamps

        with self._lock:
            if gpu not in self._counters:
                unique_id = bare_unique_id(str(torch.cuda.get_device_properties(gpu).uuid))
                self._counters[gpu] = HostStamps(torch.device("cuda", gpu), _PLACES), unique_id
            return self._counters[gpu]


def _recorded(torch: Any, stamps: HostStamps, gpu: int) -> Place | None:
    stream = torch._C._cuda_getCurrentRawStream(gpu)
    try:
        return stamps.record(stream)
    except RuntimeError:
        torch.cuda.set_device(gpu)  # a thread that has not used CUDA lacks what its driver calls context; it is current
        return stamps.record(stream)


def counted_clocks(begin: CycleMark | None, end: CycleMark | None) -> dict[str, float]:
    """Mean core clock between two marks in MHz, by the GPU's bare unique id; empty where it is not known."""
    if begin is None or end is None or begin.stamps is not end.stamps:
        return {}
    last, first = end.take(), begin.take()
    clock = None if first is None or last is None else last.clock_since(first)
    return {} if clock is None else {begin.unique_id: clock[0]}
