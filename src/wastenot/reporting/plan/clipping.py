"""The part of a map of settings that is worth drawing, and lines clipped to it.

Clipped here and not by the renderer: files with clipped marks take a minute to rasterise, and what is outside is not sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_LOSS_SHOWN, _COST_SHOWN = 30.0, 20.0  # how far a window extends into time lost and energy added, if points do
_LEAST_INSIDE = 5  # points that a window holds at least, if there are that many

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Window:
    """A rectangle of time saved (x) and energy saved (y), both in per cent; it always holds auto, (0, 0)."""

    x: tuple[float, float]
    y: tuple[float, float]

    def holds(self, point: Point) -> bool:
        """Whether a point is inside."""
        return self.x[0] <= point[0] <= self.x[1] and self.y[0] <= point[1] <= self.y[1]

    def clip(self, line: Sequence[Point]) -> list[list[Point]]:
        """The pieces of a line that are inside, including the parts between two points."""
        pieces: list[list[Point]] = []
        for start, end in pairwise(line):
            inside = self._clip_segment(start, end)
            if inside is None:
                continue
            if pieces and pieces[-1][-1] == inside[0] == start:
                pieces[-1].append(inside[1])
            else:
                pieces.append(list(inside))
        return pieces

    def _clip_segment(self, start: Point, end: Point) -> tuple[Point, Point] | None:
        """The part of a segment inside all four edges (Liang–Barsky clipping)."""
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


def window_around(points: Sequence[Point], plan: Point) -> Window:
    """A window that holds auto, the plan, every gain and some of the losses.

    Args:
        points: (time saved, energy saved) of each setting, in per cent.
        plan: the same for the plan.
    """
    x = _span([point[0] for point in points], -_LOSS_SHOWN, plan[0])
    visible = [point[1] for point in points if x[0] <= point[0] <= x[1]]
    return Window(x, _span(visible or [0.0], -_COST_SHOWN, plan[1]))


def _span(values: Sequence[float], floor: float, plan: float) -> tuple[float, float]:
    best = sorted(values, reverse=True)
    wanted = max(best[-1], min(floor, best[:_LEAST_INSIDE][-1]))
    lowest, highest = min(0.0, plan, wanted), max(0.0, plan, best[0])
    reach = max(highest - lowest, 1.0)
    # Room for the labels below auto, and in the corner even if hardly anything is gained.
    return min(lowest - 0.04 * reach, -0.1 * reach), max(highest + 0.12 * reach, 0.3 * reach)
