"""The SM clock over each launch of a run, by stamps of the cycle counters between them.

    stream   ▮▮▮▮▮▮▮▮│·│▮▮▮▮▮▮▮▮│·│▮▮▮▮▮▮▮▮│·│      launches of about 20 ms
    stamps           ↑ ↑        ↑ ↑        ↑ ↑      cycles of each launch; in a look (·) only one thread spins

Under tensor load a chip may skip cycles, so that fewer are counted than its clock has. Looks show the clock in effect: where
they see more than launches count, the ratio of the two, which changes little from launch to launch, corrects the counts.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np
import torch

from wastenot.core.arrays import FloatArray
from wastenot.devices.torch.cycle_clock import LEAST_SKIPPED, LOOK_CYCLES, MOST_SKIPPED
from wastenot.devices.torch.host_stamps import HostStamp, HostStamps, Place

_NEARBY = 4  # launches before and after one, whose ratios are taken together
_RATIO_ERROR = 0.01  # of the ratio of a run, beyond which looks are not believed: the GPU's timer is too coarse for them


class LaunchClocks:
    """Counts the cycles of launches, in the order in which they are queued and end.

    Args:
        stamps: of the GPU.
        stream: the stream that launches are queued on, which is current whenever one is.
    """

    def __init__(self, stamps: HostStamps, stream: torch.cuda.Stream) -> None:
        self._stamps, self._stream = stamps, stream
        self._queued: deque[Place | None] = deque([stamps.record(stream.cuda_stream)])
        self._before: HostStamp | None = None
        self._counted: list[tuple[float, float] | None] = []
        self._seen_mhz: list[float] = []
        self._ratio: FloatArray = np.empty(0)  # of the clock in effect to the counted one, by launch

    def launched(self) -> None:
        """A launch was queued: queue a stamp after it, and a look at the clock."""
        self._queued.append(self._stamps.record(self._stream.cuda_stream))
        torch.cuda._sleep(LOOK_CYCLES)  # type: ignore[no-untyped-call]
        self._queued.append(self._stamps.record(self._stream.cuda_stream))

    def ended(self) -> None:
        """The oldest launch that had not ended has, with what was queued after it."""
        if not self._counted:
            self._before = self._next()
        before, end, looked = self._before, self._next(), self._next()
        self._counted.append(None if before is None or end is None else end.clock_since(before))
        seen = None if end is None or looked is None else looked.clock_since(end, briefly=True)
        self._seen_mhz.append(math.nan if seen is None else seen[0])
        self._before = looked

    def over(self, first: int, last: int) -> tuple[float | None, float | None]:
        """Mean clock in effect over launches, and the lowest over one, in MHz; ``None`` where one was not counted.

        Args:
            first: of the launches, by the order in which they ended.
            last: the one after the last.
        """
        counted = [each for each in self._counted[first:last] if each is not None]
        if len(counted) < max(last - first, 1):
            return None, None
        if len(self._ratio) != len(self._counted):
            self._ratio = self._ratios()
        clocks_mhz = np.array([mhz for mhz, _ in counted]) * self._ratio[first:last]
        return float(np.average(clocks_mhz, weights=[seconds for _, seconds in counted])), float(clocks_mhz.min())

    def close(self) -> None:
        """Give up the stamps of launches that nobody has asked about."""
        for place in self._queued:
            if place is not None:
                self._stamps.drop(place)
        self._queued.clear()

    def _ratios(self) -> FloatArray:
        """The clock in effect over the counted one, of every launch; 1 where no cycles are skipped."""
        counted_mhz = np.array([math.nan if each is None else each[0] for each in self._counted])
        ratio = np.array(self._seen_mhz) / counted_mhz
        with np.errstate(invalid="ignore"):
            ratio[~((ratio > 1.0 - MOST_SKIPPED) & (ratio < 1.0 / (1.0 - MOST_SKIPPED)))] = math.nan
        sane = ratio[np.isfinite(ratio)]
        ones = np.ones(len(ratio))
        if len(sane) < 2:
            return ones
        middle = float(np.median(sane))
        error = 1.5 * float(np.median(np.abs(sane - middle))) * math.sqrt(math.pi / (2 * min(len(sane), 2 * _NEARBY + 1)))
        if middle < 1.0 + LEAST_SKIPPED or error > _RATIO_ERROR * middle:
            return ones
        for launch in range(len(ratio)):
            near = ratio[max(launch - _NEARBY, 0) : launch + _NEARBY + 1]
            near = near[np.isfinite(near)]
            ones[launch] = np.median(near) if len(near) else middle
        return ones

    def _next(self) -> HostStamp | None:
        place = self._queued.popleft()
        return None if place is None else self._stamps.take(place)
