"""The part of a map of settings that is worth drawing: points outside are left out, lines are clipped to it.

Clipped here and not by the renderer: files with clipped marks take a minute to rasterise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_LOSS_SHOWN, _COST_SHOWN = 30.0, 20.0  # how far a window extends into slowdown and energy added, if points do
_LEAST_INSIDE = 5  # points that a window holds at least, if there are that many

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Window:
    """A rectangle of slowdown (x) and energy saved (y), both in per cent; it always holds auto, (0, 0)."""

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

    def clip_bar(self, center: Point, reach: Point) -> tuple[tuple[float, float], tuple[float, float]]:
        """The parts inside of the two bars through a point inside: along x, and along y."""
        return (
            (max(self.x[0], center[0] - reach[0]), min(self.x[1], center[0] + reach[0])),
            (max(self.y[0], center[1] - reach[1]), min(self.y[1], center[1] + reach[1])),
        )

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
    """A window that holds auto, the plan, every gain of time or energy near them and some of the losses.

    Args:
        points: (slowdown, energy saved) of each setting, in per cent.
        plan: the same for the plan.
    """
    low, high = _span([-point[0] for point in points], -_LOSS_SHOWN, -plan[0])
    x = (-high, -low)
    visible = [point[1] for point in points if x[0] <= point[0] <= x[1]]
    return Window(x, _span(visible or [0.0], -_COST_SHOWN, plan[1]))


def _span(gains: Sequence[float], floor: float, plan: float) -> tuple[float, float]:
    best = sorted(gains, reverse=True)
    wanted = max(best[-1], min(floor, best[:_LEAST_INSIDE][-1]))
    lowest, highest = min(0.0, plan, wanted), max(0.0, plan, best[0])
    reach = max(highest - lowest, 1.0)
    # Room for the label beside auto, and in the corner even if hardly anything is gained.
    return min(lowest - 0.04 * reach, -0.1 * reach), max(highest + 0.12 * reach, 0.2 * reach)
