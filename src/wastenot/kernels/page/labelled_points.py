"""Points with labels and intervals, drawn over a panel; labels are moved apart where they would overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from wastenot.pages.figure import inline, tooltips
from wastenot.pages.formatting import change, percent
from wastenot.pages.optional_imports import load

LETTER_WIDTH = 6.4
"""Pixels that a letter of a label takes, on average."""

RULE_LABEL_HEIGHT = 13
"""Pixels of a line of the labels of rules, of which two stand at the top of the panel."""

_LABEL_HEIGHT = 16
_POINT_REACH = 8  # pixels to each side of a point
_GAP = 12  # pixels between a point and its label
_MOST_LINES = 5  # that a label is moved up or down
_PLACES_ACROSS = (0.0, 24.0, 60.0)  # further pixels between a point and its label
_TOUCHES = 1000.0  # what it costs a label to overlap another or a point, in pixels of distance
_CROSSED = 1.5  # what a pixel of a line behind a label costs, likewise
_MISLEADS = 40.0  # what it costs to be nearer to another point, likewise


@dataclass(frozen=True, slots=True)
class LabelledPoint:
    """A point with its label and intervals, in per cent; ``color`` is that of its line, if it belongs to one."""

    style: str
    x: float
    y: float
    label: str
    about: str
    energy: str
    x_interval: tuple[float, float] | None = None
    y_interval: tuple[float, float] | None = None
    color: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """The axes in per cent, and the size of the panel in pixels."""

    x: tuple[float, float]
    y: tuple[float, float]
    width: int
    height: int

    def pixel(self, x: float, y: float) -> tuple[float, float]:
        """Where a point is."""
        return (
            self.width * (x - self.x[0]) / (self.x[1] - self.x[0]),
            self.height * (self.y[1] - y) / (self.y[1] - self.y[0]),
        )


def draw_points(marks: Sequence[LabelledPoint], x: Any, y: Any) -> list[Any]:
    """Intervals below, then points."""
    alt = load("altair")
    layers = []
    across = [{"x": m.x_interval[0], "x2": m.x_interval[1], "y": m.y} for m in marks if m.x_interval is not None]
    along = [{"y": m.y_interval[0], "y2": m.y_interval[1], "x": m.x} for m in marks if m.y_interval is not None]
    if across:
        layers.append(alt.Chart(inline(across)).mark_rule(style="interval").encode(x=x, x2=alt.X2("x2:Q"), y=y))
    if along:
        layers.append(alt.Chart(inline(along)).mark_rule(style="interval").encode(x=x, y=y, y2=alt.Y2("y2:Q")))
    tooltip = tooltips({"about:N": "plan", "time:N": "time", "saved:N": "energy saved", "energy:N": "energy per iteration"})
    for mark in marks:
        row = {"x": mark.x, "y": mark.y, "about": mark.about, "energy": mark.energy}
        row |= {"time": change(mark.x / 100) + _written(mark.x_interval, signed=True)}
        row |= {"saved": percent(mark.y / 100) + _written(mark.y_interval, signed=False)}
        own = {"stroke": mark.color} if mark.color else {}
        layers.append(alt.Chart(inline([row])).mark_point(style=mark.style, **own).encode(x=x, y=y, tooltip=tooltip))
    return layers


def _written(interval: tuple[float, float] | None, *, signed: bool) -> str:
    if interval is None:
        return ""
    low, high = (percent(end / 100, sign=signed) for end in interval)
    return f" ({low} to {high})"


def draw_labels(marks: Sequence[LabelledPoint], frame: Frame, lines: Sequence[Sequence[tuple[float, float]]]) -> list[Any]:
    """The labels beside their points, those of later points first to choose their place.

    Args:
        marks: the points.
        frame: of the panel.
        lines: of the panel, in per cent, which labels keep off where they can.
    """
    alt = load("altair")
    points = [frame.pixel(mark.x, mark.y) for mark in marks]
    taken = [(x - _POINT_REACH, y - _POINT_REACH, x + _POINT_REACH, y + _POINT_REACH) for x, y in points]
    drawn = [[frame.pixel(*point) for point in line] for line in lines]
    layers = []
    for mark in reversed([mark for mark in marks if mark.label]):
        others = [point for other, point in zip(marks, points, strict=True) if other is not mark]
        box = _free_place(mark, frame, taken, drawn, others)
        taken.append(box)
        left, height = box[0], 0.5 * (box[1] + box[3])
        layers += _leader(mark, frame, box)
        place = {"x": alt.XValue(left), "y": alt.YValue(height)}
        text = alt.Chart(inline([{"text": mark.label}])).encode(**place, text=alt.Text("text:N"))
        weight = {"fontWeight": "bold"} if mark.style == "plan" else {}
        style = "good-label" if mark.style == "applicable" else "label"
        layers.append(text.mark_text(style="halo", align="left", baseline="middle", **weight))
        layers.append(text.mark_text(style=style, align="left", baseline="middle", fontSize=12, **weight))
    return layers


_Box = tuple[float, float, float, float]  # left, top, right, bottom


def _leader(mark: LabelledPoint, frame: Frame, box: _Box) -> list[Any]:
    """A thin line from a point to its label, where that is not right beside it."""
    alt = load("altair")
    x, y = frame.pixel(mark.x, mark.y)
    end = _nearest_in(box, x, y)
    if math.dist((x, y), end) <= _GAP + 2:
        return []
    ends = {"x": alt.XValue(x), "y": alt.YValue(y), "x2": alt.X2Value(end[0]), "y2": alt.Y2Value(end[1])}
    return [alt.Chart(inline([{"leader": 0}])).mark_rule(style="leader").encode(**ends)]


def _free_place(
    mark: LabelledPoint,
    frame: Frame,
    taken: Sequence[_Box],
    lines: Sequence[Sequence[tuple[float, float]]],
    others: Sequence[tuple[float, float]],
) -> _Box:
    """The box of a label that overlaps least, and is nearest to its point."""
    x, y = frame.pixel(mark.x, mark.y)
    length = LETTER_WIDTH * len(mark.label)
    best, least = (0.0, 0.0, length, float(_LABEL_HEIGHT)), math.inf
    for step in sorted(range(-_MOST_LINES, _MOST_LINES + 1), key=abs):
        for further in _PLACES_ACROSS:
            for start in (x + _GAP + further, x - _GAP - further - length):
                left = max(2.0, min(start, frame.width - length - 2.0))
                middle = y + _LABEL_HEIGHT * step
                box = (left, middle - 0.5 * _LABEL_HEIGHT, left + length, middle + 0.5 * _LABEL_HEIGHT)
                if not 2 * RULE_LABEL_HEIGHT <= box[1] <= box[3] <= frame.height - 2:
                    continue
                distance = math.dist((x, y), _nearest_in(box, x, y))
                cost = distance + _MISLEADS * any(math.dist(each, _nearest_in(box, *each)) < distance for each in others)
                cost += _TOUCHES * sum(_overlap(box, other) for other in taken)
                if cost < least:
                    cost += _CROSSED * sum(_length_inside(box, line) for line in lines)
                if cost < least:
                    best, least = box, cost
    return best


def _nearest_in(box: _Box, x: float, y: float) -> tuple[float, float]:
    """The place in a box that is nearest to a point."""
    return min(max(x, box[0]), box[2]), min(max(y, box[1]), box[3])


def _overlap(box: _Box, other: _Box) -> bool:
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]


def _length_inside(box: _Box, line: Sequence[tuple[float, float]]) -> float:
    """Pixels of a line of horizontal and vertical pieces that are inside a box."""
    inside = 0.0
    for (x, y), (x2, y2) in pairwise(line):
        across = min(max(x, x2), box[2]) - max(min(x, x2), box[0])
        along = min(max(y, y2), box[3]) - max(min(y, y2), box[1])
        if across >= 0.0 and along >= 0.0:
            inside += across + along
    return inside
