"""Stamps of the cycle counters in the host's memory, which the host reads without asking the GPU anything.

    stream   ▯▯▯▯▯│▯▯▯▯▯▯▯▯▯▯▯▯▯▯│▯▯▯▯▯        kernels, with stamps between them
    places        └─▶ 0          └─▶ 1          pinned memory: zeros until the GPU gets there

:class:`~wastenot.devices.torch.cycle_clock.CycleStamps` reads all of its stamps at once and waits for the GPU to do so. Runs
without an end, and programs that must not be kept waiting, take a few at a time as they come.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from wastenot.core.errors import DeviceError, first_line
from wastenot.devices.torch.cycle_clock import StampLauncher

_MULTIPROCESSORS = 16  # whose counts are kept; numbers follow one another across the GPU's partitions
_MOST_MHZ = 10_000.0  # of any clock; counters that were reset give more, or less than nothing
_TICK_NS = 1024  # of the GPU's timer, where its numbers do not show that it ticks more slowly
_ERROR = 5e-3  # of a clock, relative, from that
_STORES_S = 1e-4  # by when all multiprocessors have stored theirs once one has

Place = int
"""Where a stamp is kept, until it is taken."""


@dataclass(frozen=True, slots=True, eq=False)
class HostStamp:
    """Counts of some multiprocessors; arrays of shape (multiprocessors,), zeros where one has none.

    Attributes:
        cycles: of each.
        nanoseconds: of the GPU's timer when each was counted.
    """

    cycles: NDArray[np.int64]
    nanoseconds: NDArray[np.int64]

    def clock_since(self, earlier: HostStamp, *, briefly: bool = False) -> tuple[float, float] | None:
        """Mean clock since an earlier stamp in MHz, the median over multiprocessors, and the time in seconds.

        ``None`` where the timer is too coarse for the time between them, or the counts make no sense.

        Args:
            earlier: stamp of the same GPU.
            briefly: only microseconds lie between them, so that the caller finds out from several how well they agree.
        """
        both = (self.nanoseconds > earlier.nanoseconds) & (earlier.nanoseconds > 0)
        if not both.any():
            return None
        bits = int(np.bitwise_or.reduce(self.nanoseconds) | np.bitwise_or.reduce(earlier.nanoseconds))
        tick_ns = max(_TICK_NS, bits & -bits)  # a timer of milliseconds has the same zeros at the end of all its numbers
        cycles = (self.cycles - earlier.cycles)[both]
        nanoseconds = (self.nanoseconds - earlier.nanoseconds)[both]
        clock_mhz = float(np.median(1e3 * cycles / nanoseconds))
        known = 0.0 < clock_mhz < _MOST_MHZ and (briefly or tick_ns <= _ERROR * float(np.median(nanoseconds)))
        return (clock_mhz, 1e-9 * float(np.median(nanoseconds))) if known else None


class HostStamps:
    """Places for stamps of one GPU. Making it compiles a kernel and pins memory of the host, a quarter of a MB per thousand.

    Args:
        device: the GPU.
        places: number of stamps kept at a time.

    Raises:
        MissingExtraError: this PyTorch cannot compile kernels.
        DeviceError: memory cannot be pinned.
    """

    def __init__(self, device: torch.device, places: int = 1024) -> None:
        self.device = device
        kept = min(_MULTIPROCESSORS, int(torch.cuda.get_device_properties(device).multi_processor_count))
        try:
            memory = torch.zeros((places, kept, 2), dtype=torch.int64, pin_memory=True)
        except RuntimeError as error:
            raise DeviceError(f"{device}: cycles cannot be counted without pinned memory: {first_line(error)}") from None
        self._raw: NDArray[np.int64] = memory.numpy()
        self._launch = StampLauncher(device, memory, kept)
        self._free = deque(range(places))
        self._dropped: deque[Place] = deque()  # that the GPU may yet write to
        self._lock = threading.Lock()

    def record(self, stream: int) -> Place | None:
        """Queue a stamp, without waiting.

        Args:
            stream: CUDA's handle of the stream to queue on.

        Returns:
            Where it will be, or ``None`` where none is free.

        Raises:
            RuntimeError: CUDA refused.
        """
        with self._lock:
            if not self._free and not self._recovered():
                return None
            place = self._free.popleft()
            try:
                self._launch(place, stream)
            except RuntimeError:
                self._free.append(place)
                raise
            return place

    def take(self, place: Place) -> HostStamp | None:
        """A stamp, whose place is free from then on; ``None``, and kept, if the GPU has not counted it yet."""
        found = self._raw[place].copy()
        if not found[:, 1].any():
            return None
        if not found[:, 1].all():  # a multiprocessor was missed, or is about to store its counts
            time.sleep(_STORES_S)
            found = self._raw[place].copy()
        with self._lock:
            self._raw[place] = 0
            self._free.append(place)
        return HostStamp(found[:, 0], found[:, 1])

    def drop(self, place: Place) -> None:
        """Give up a stamp, whether or not the GPU has counted it. Takes no lock: garbage collection may come here."""
        self._dropped.append(place)

    def _recovered(self) -> bool:
        """Whether a place of a dropped stamp is free now."""
        for _ in range(len(self._dropped)):
            place = self._dropped.popleft()
            if self._raw[place, :, 1].all():
                self._raw[place] = 0
                self._free.append(place)
            else:
                self._dropped.append(place)
        return bool(self._free)
