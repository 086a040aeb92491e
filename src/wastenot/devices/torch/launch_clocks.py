"""The SM clock over each launch of a run, by stamps of the cycle counters between them."""

from __future__ import annotations

import math
from collections import deque

from wastenot.devices.torch.host_stamps import HostStamp, HostStamps, Place


class LaunchClocks:
    """Counts the cycles of launches, in the order in which they are queued and end.

    Args:
        stamps: of the GPU.
        stream: CUDA's handle of the stream that launches are queued on.
    """

    def __init__(self, stamps: HostStamps, stream: int) -> None:
        self._stamps, self._stream = stamps, stream
        self._queued: deque[Place | None] = deque([stamps.record(stream)])
        self._before: HostStamp | None = None
        self._counted: list[tuple[float, float] | None] = []

    def launched(self) -> None:
        """A launch was queued: queue a stamp after it."""
        self._queued.append(self._stamps.record(self._stream))

    def ended(self) -> None:
        """The oldest launch that had not ended has, with the stamp after it."""
        if not self._counted:
            self._before = self._next()
        before, now = self._before, self._next()
        self._counted.append(None if before is None or now is None else now.clock_since(before))
        self._before = now

    def over(self, first: int, last: int) -> tuple[float | None, float | None]:
        """Mean clock over launches, and the lowest over one, in MHz; ``None`` where one was not counted.

        Args:
            first: of the launches, by the order in which they ended.
            last: the one after the last.
        """
        counted = [each for each in self._counted[first:last] if each is not None]
        if len(counted) < max(last - first, 1):
            return None, None
        cycles, seconds = (math.fsum(each) for each in ((mhz * s for mhz, s in counted), (s for _, s in counted)))
        return cycles / seconds, min(mhz for mhz, _ in counted)

    def close(self) -> None:
        """Give up the stamps of launches that nobody has asked about."""
        for place in self._queued:
            if place is not None:
                self._stamps.drop(place)
        self._queued.clear()

    def _next(self) -> HostStamp | None:
        place = self._queued.popleft()
        return None if place is None else self._stamps.take(place)
