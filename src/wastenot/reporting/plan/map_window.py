"""The part of a map of settings that is worth drawing, and lines cut at its edges.

Cut here and not by the renderer: files with clipped marks take a minute to rasterise, and what is outside is not sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_LOSS_SHOWN, _COST_SHOWN = 30.0, 20.0  # how far a window reaches into time lost and energy added, where points do
_LEAST_INSIDE = 5  # points that a window holds at least, where there are so many

Place = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Window:
    """A rectangle of time gain (x) and energy saved (y), both in per cent; it always holds auto, (0, 0)."""

    x: tuple[float, float]
    y: tuple[float, float]

    def holds(self, place: Place) -> bool:
        """Whether a point is inside."""
        return self.x[0] <= place[0] <= self.x[1] and self.y[0] <= place[1] <= self.y[1]

    def cut(self, line: Sequence[Place]) -> list[list[Place]]:
        """The pieces of a line that are inside, the parts between two points included."""
        pieces: list[list[Place]] = []
        for start, end in pairwise(line):
            inside = self._cut_segment(start, end)
            if inside is None:
                continue
            if pieces and pieces[-1][-1] == inside[0] == start:
                pieces[-1].append(inside[1])
            else:
                pieces.append(list(inside))
        return pieces

    def _cut_segment(self, start: Place, end: Place) -> tuple[Place, Place] | None:
        """Liang and Barsky's clipping: the stretch of the segment that satisfies all four edges."""
        enter, leave = 0.0, 1.0
        step = (end[0] - start[0], end[1] - start[1])
        for axis, (low, high) in enumerate((self.x, self.y)):
            for toward, room in ((-step[axis], start[axis] - low), (step[axis], high - start[axis])):
                if toward == 0.0:
                    if room < 0.0:
                        return None
                elif toward < 0.0:
                    enter = max(enter, room / toward)
                else:
                    leave = min(leave, room / toward)
        if enter > leave:
            return None
        first = start if enter == 0.0 else (start[0] + enter * step[0], start[1] + enter * step[1])
        last = end if leave == 1.0 else (start[0] + leave * step[0], start[1] + leave * step[1])
        return first, last


def fit(places: Sequence[Place], plan: Place) -> Window:
    """A window with what is gained, some of what is lost, auto, and the plan.

    Args:
        places: (time gain, energy saved) of each setting, in per cent.
        plan: the same of the plan.
    """
    x = _span([place[0] for place in places], -_LOSS_SHOWN, plan[0])
    seen = [place[1] for place in places if x[0] <= place[0] <= x[1]]
    return Window(x, _span(seen or [0.0], -_COST_SHOWN, plan[1]))


def _span(values: Sequence[float], floor: float, plan: float) -> tuple[float, float]:
    best = sorted(values, reverse=True)
    wanted = max(best[-1], min(floor, best[:_LEAST_INSIDE][-1]))
    lowest, highest = min(0.0, plan, wanted), max(0.0, plan, best[0])
    reach = max(highest - lowest, 1.0)
    # Room for the words beside auto below, and in the corner even where hardly anything is gained.
    return min(lowest - 0.04 * reach, -0.1 * reach), max(highest + 0.12 * reach, 0.3 * reach)
