"""When a job will reach its markers, learned while it runs: from each marker that comes, until the next ones.

    iteration        forward          backward                 optimizer   iteration
    ├──── gap 0 ─────┼──── gap 1 ─────┼───────── gap 2 ────────┼── gap 3 ──┤

Markers that a job never sends do no harm: the gaps around them are scaled together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from wastenot.planning.schedule import Rung, Schedule

_WEIGHT = 0.2  # of what was seen last
_PAUSE = 1.5  # a gap that is longer by this factor is a pause, which says nothing of the next one
_SHIFTED = 3  # so many of these in a row are how the job runs now


class Expected:
    """Times between the markers of an iteration at one rung; expected are ``gaps_s``, the last to the next iteration."""

    def __init__(self, gaps_s: Sequence[float]) -> None:
        self.gaps_s = list(gaps_s)
        self.planned_s = sum(gaps_s)
        self._seen = 0
        self._odd = 0

    @property
    def iteration_s(self) -> float:
        """Of an iteration."""
        return sum(self.gaps_s)

    def between_s(self, first: int, last: int, iterations: int) -> float:
        """Expected time from one marker to another, a number of iterations later."""
        if iterations == 0:
            return sum(self.gaps_s[first:last])
        inner = (iterations - 1) * self.iteration_s if iterations > 1 else 0.0
        return sum(self.gaps_s[first:]) + inner + sum(self.gaps_s[:last])

    def learn(self, first: int, last: int, seconds: float) -> bool:
        """Take note of the time between two markers that followed each other; ``last`` is 0 for the next iteration's begin.

        Returns:
            Whether it was a pause rather than a gap.
        """
        last = last or len(self.gaps_s)
        expected_s = sum(self.gaps_s[first:last])
        if seconds <= 0.0:
            return False
        if expected_s <= 0.0:  # nothing to scale
            self.gaps_s[last - 1] += _WEIGHT * seconds
            return False
        ratio = seconds / expected_s
        if self._seen >= _SHIFTED * len(self.gaps_s) and ratio > _PAUSE and self._odd < _SHIFTED * len(self.gaps_s):
            self._odd += 1
            return True
        self._odd = 0
        self._seen += 1
        weight = max(_WEIGHT, 1.0 / (1.0 + self._seen / len(self.gaps_s)))
        factor = 1.0 + weight * (ratio - 1.0)
        for index in range(first, last):
            self.gaps_s[index] *= factor
        return False


def expected_at(schedule: Schedule, rung: Rung) -> Expected:
    """What a schedule says of the markers at a rung.

    Its segments say when those markers come at which they begin; the others come in between as at the default clocks.
    """
    markers = schedule.markers
    place = {marker.name: index for index, marker in reversed(list(enumerate(markers)))}
    default_s = [*(marker.after_s for marker in markers), schedule.rungs[-1].time_s]
    known: dict[int, float] = {0: 0.0, len(markers): rung.time_s}
    begins_s = 0.0
    for index, segment in enumerate(rung.segments):
        begins_s = segment.offset_s if index == 0 else begins_s
        at_s = begins_s - segment.offset_s
        known.setdefault(place[segment.begins], min(max(at_s, 0.0), rung.time_s))
        begins_s += segment.time_s
    at_s_of: list[float] = []
    anchors = sorted(known)
    for index in range(len(markers) + 1):
        before = max(anchor for anchor in anchors if anchor <= index)
        after = min(anchor for anchor in anchors if anchor >= index)
        span_s = default_s[after] - default_s[before]
        fraction = (default_s[index] - default_s[before]) / span_s if span_s > 0.0 else 0.0
        at_s_of.append(known[before] + fraction * (known[after] - known[before]))
    gaps_s = [max(b - a, 0.0) for a, b in pairwise(at_s_of)]
    return Expected(gaps_s)
