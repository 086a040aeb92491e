"""The load that controllers expect: forecast by slots of time where there is a forecast, and what was seen lately."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from wastenot.arrays import FloatArray
from wastenot.stack.serving.cluster.classes import COUNT
from wastenot.stack.serving.cluster.model import ClusterView

KEPT_S = 900.0
"""Of arrivals that are remembered."""
LEAST = 0.8
"""Of a forecast, whatever little came."""


@dataclass(slots=True, eq=False)
class Demand:
    """Rates by class: what was seen, and what is expected.

    Attributes:
        forecast_per_s: by slot and class; one slot alone holds for all times; shape (slots, 9).
        slot_s: length of a slot; the first begins at 0, the last holds on.
        follows: whether the forecast is scaled by what came of it lately.
    """

    forecast_per_s: FloatArray
    slot_s: float = math.inf
    follows: bool = True
    _seen: deque[tuple[float, FloatArray]] = field(default_factory=deque, init=False, repr=False)
    _begun_s: float | None = field(default=None, init=False, repr=False)

    def see(self, view: ClusterView) -> None:
        """Take in the arrivals since the last visit."""
        if self._begun_s is None:
            self._begun_s = 0.0
        self._seen.append((view.now_s, np.asarray(view.arrivals, dtype=np.float64)))
        while self._seen and self._seen[0][0] <= view.now_s - KEPT_S:
            self._seen.popleft()

    def recent(self, window_s: float) -> FloatArray:
        """Mean rate of each class over the last so many seconds; the forecast before anything was seen; shape (9,)."""
        if not self._seen:
            return np.asarray(self.forecast_per_s[0])
        now_s = self._seen[-1][0]
        window_s = min(window_s, max(now_s, 1e-9))
        count = np.zeros(COUNT)
        for at_s, arrivals in reversed(self._seen):
            if at_s <= now_s - window_s + 1e-9:
                break
            count += arrivals
        if window_s < 10.0:  # too short to say much
            known = window_s / 10.0
            return np.asarray(known * count / window_s + (1 - known) * self.forecast_per_s[0])
        return np.asarray(count / window_s)

    def peak(self, now_s: float, until_s: float) -> FloatArray:
        """The greatest rate of each class that is expected from now on until then; shape (9,).

        A forecast is scaled by what came of it in the last quarter of an hour, down a little and up to twice, and what was
        the load of a minute in this time may be so again.
        """
        slots = len(self.forecast_per_s)
        first = min(int(now_s / self.slot_s), slots - 1)
        last = min(int(max(until_s - 1e-9, now_s) / self.slot_s), slots - 1)
        expected = self.forecast_per_s[first : last + 1].max(axis=0)
        if not self.follows or now_s < 60.0:
            return np.asarray(expected)
        seen, foreseen = self.recent(KEPT_S), self.forecast_per_s[first]
        ratio = min(max(float(seen.sum() / max(foreseen.sum(), 1e-9)), LEAST), 2.0)
        blend = 0.5 * (expected / max(expected.sum(), 1e-9) + seen / max(seen.sum(), 1e-9))  # classes as they came lately
        return np.asarray(blend * max(expected.sum() * ratio, self._busiest_minute()))

    def _busiest_minute(self) -> float:
        """The greatest rate of all classes over a minute of those that are remembered."""
        found, at_s, count = 0.0, [each for each, _ in self._seen], [float(arrivals.sum()) for _, arrivals in self._seen]
        total, begin = 0.0, 0
        for end, now_s in enumerate(at_s):
            total += count[end]
            while at_s[begin] <= now_s - 60.0:
                total -= count[begin]
                begin += 1
            if now_s >= 60.0:
                found = max(found, total / 60.0)
        return found
