"""The clock of a GPU, read from events: how long after each other they happened is all that a GPU tells.

    reference ──── elapsed ────▶ event ──── elapsed ────▶ event          each counted from one not far before it

Elapsed times come in milliseconds of single precision, which over a second is finer than the clock itself (half a
microsecond), but over minutes is not. So moments are added up in double precision from short pieces.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from wastenot.arrays import FloatArray
from wastenot.devices.instrument import RoundTrip

RESOLUTION_S = 0.5e-6
"""Of an event's moment, as CUDA's manual says."""

_PIECE_S = 0.1  # single precision tells 0.01 µs apart in it


class EventClock:
    """Tells moments of events in seconds since this was made.

    Args:
        make_event: an event that knows its time.
        stream: of the GPU, with nothing else on it, so that an event on it happens as soon as it is asked for.
        now_s: clock of the host.
    """

    def __init__(self, make_event: Callable[[], Any], stream: Any, now_s: Callable[[], float] = time.perf_counter) -> None:
        self._stream, self._now_s = stream, now_s
        self._reference, self._spare = make_event(), make_event()
        self._reference_s = 0.0
        for event in (self._spare, self._reference):
            event.record(stream)
            event.synchronize()

    def moments(self, events: Iterable[Any]) -> FloatArray:
        """Moments of events that have happened, in order, none before the last round trip; shape (events,)."""
        reference, reference_s = self._reference, self._reference_s
        found = []
        for event in events:
            elapsed_s = 1e-3 * float(reference.elapsed_time(event))
            found.append(reference_s + elapsed_s)
            if elapsed_s > _PIECE_S:
                reference, reference_s = event, found[-1]
        return np.array(found, dtype=np.float64)

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
