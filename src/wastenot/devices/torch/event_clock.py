"""A GPU's clock, read from CUDA events, which only report the time elapsed between two of them.

    reference ──── elapsed ────▶ event ──── elapsed ────▶ event          each relative to one shortly before it

Elapsed times are milliseconds in single precision, which over a second is finer than the clock itself (half a microsecond)
but over minutes is not. So moments are summed in double precision over short intervals.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.devices.instrument import RoundTrip

RESOLUTION_S = 0.5e-6
"""Resolution of an event's timestamp, as documented for CUDA."""

_INTERVAL_S = 0.1  # over which single precision resolves 0.01 µs


class EventClock:
    """Timestamps of events in seconds since this object was created.

    Args:
        make_event: creates an event with timing.
        stream: a stream of the GPU with nothing else on it, so that an event happens as soon as it is recorded.
        now_s: the host's clock.
    """

    def __init__(self, make_event: Callable[[], Any], stream: Any, now_s: Callable[[], float] = time.perf_counter) -> None:
        self._stream, self._now_s = stream, now_s
        self._reference, self._spare = make_event(), make_event()
        self._reference_s = 0.0
        for event in (self._spare, self._reference):
            event.record(stream)
            event.synchronize()

    def moments(self, events: Iterable[Any]) -> FloatArray:
        """Timestamps of completed events, in order and not before the last round trip; shape (events,)."""
        reference, reference_s = self._reference, self._reference_s
        moments = []
        for event in events:
            elapsed_s = 1e-3 * float(reference.elapsed_time(event))
            moments.append(reference_s + elapsed_s)
            if elapsed_s > _INTERVAL_S:
                reference, reference_s = event, moments[-1]
        return np.array(moments, dtype=np.float64)

    def round_trip(self) -> RoundTrip:
        """Read the clock now."""
        event = self._spare
        before_s = self._now_s()
        event.record(self._stream)
        event.synchronize()
        after_s = self._now_s()
        moment_s = float(self.moments([event])[0])
        self._reference, self._spare, self._reference_s = event, self._reference, moment_s
        return RoundTrip(before_s, moment_s, after_s)
