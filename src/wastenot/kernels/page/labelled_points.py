"""Points with labels and intervals, drawn over a panel; labels are moved apart where they would overlap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from wastenot.pages.figure import inline, tooltips
from wastenot.pages.formatting import change, percent
from wastenot.pages.narrow import NARROW_WIDTH
from wastenot.pages.optional_imports import load

LETTER_WIDTH = 6.4
"""Pixels that a letter of a label takes, on average."""

RULE_LABEL_HEIGHT = 13
"""Pixels of a line of the labels of rules, of which two stand at the top of the panel."""

_LABEL_HEIGHT = 16
_POINT_REACH = 8  # pixels to each side of a point
_GAP = 12  # pixels between a point and its label
_MOST_LINES = 8  # that a label is moved up or down
_PLACES_ACROSS = (0.0, 24.0, 60.0, 110.0)  # further pixels between a point and its label
_TOUCHES = 1000.0  # what it costs a label to overlap another or a point, in pixels of distance
_CROSSED = 4.0  # what a pixel of a line behind a label costs, likewise
_MISLEADS = 40.0  # what it costs to be nearer to another point, likewise


@dataclass(frozen=True, slots=True)
class Label:
    """The text of a label, the middle of which narrow pages leave out."""

    begin: str
    middle: str = ""
    end: str = ""

    @property
    def text(self) -> str:
        """All of it."""
        return f"{self.begin}{self.middle}{self.end}"

    @property
    def short(self) -> str:
        """What narrow pages show."""
        return f"{self.begin}{self.end}"


NO_LABEL = Label("")


@dataclass(frozen=True, slots=True)
class LabelledPoint:
    """A point with its label and intervals, in per cent; ``color`` is that of its line, if it belongs to one."""

    style: str
    x: float
    y: float
    label: Label
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


def draw_labels(
    marks: Sequence[LabelledPoint], frames: Sequence[Frame], lines: Sequence[Sequence[tuple[float, float]]]
) -> list[Any]:
    """The labels beside their points, those of later points first to choose their place.

    Args:
        marks: the points.
        frames: the panel in each of its sizes; a label is as far from its point in all of them.
        lines: of the panel, in per cent, which labels keep off where they can.
    """
    alt = load("altair")
    panels = [_Panel.of(frame, marks, lines) for frame in frames]
    layers = []
    for mark in reversed([mark for mark in marks if mark.label != NO_LABEL]):
        place = _free_place(mark, panels)
        for panel in panels:
            panel.taken.append(panel.box(mark, place))
        layers += _leader(mark, panels[0], place)
        row = {"x": mark.x, "y": mark.y, "text": mark.label.text, "short": mark.label.short}
        text = alt.Chart(inline([row])).encode(x=alt.X("x:Q"), y=alt.Y("y:Q"), text=alt.Text("text:N"))
        drawn: dict[str, Any] = {"baseline": "middle", "align": place.align, "dx": place.dx, "dy": place.dy}
        drawn |= {"fontWeight": "bold"} if mark.style == "plan" else {}
        style = "good-label" if mark.style == "applicable" else "label"
        layers.append(text.mark_text(style="halo", **drawn))
        layers.append(text.mark_text(style=style, fontSize=12, **drawn))
    return layers


_Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a label begins (``left``) or ends (``right``), and its middle, in pixels from its point."""

    align: Literal["left", "right"]
    dx: float
    dy: float


@dataclass(frozen=True, slots=True)
class _Panel:
    """A panel in one of its sizes: its points, what of it is taken, and its lines, in pixels."""

    frame: Frame
    points: dict[LabelledPoint, tuple[float, float]]
    taken: list[_Box]
    lines: Sequence[Sequence[tuple[float, float]]]

    @classmethod
    def of(cls, frame: Frame, marks: Sequence[LabelledPoint], lines: Sequence[Sequence[tuple[float, float]]]) -> _Panel:
        points = {mark: frame.pixel(mark.x, mark.y) for mark in marks}
        around = [(x - _POINT_REACH, y - _POINT_REACH, x + _POINT_REACH, y + _POINT_REACH) for x, y in points.values()]
        return cls(frame, points, around, [[frame.pixel(*point) for point in line] for line in lines])

    def length(self, mark: LabelledPoint) -> float:
        return LETTER_WIDTH * len(mark.label.short if self.frame.width <= NARROW_WIDTH else mark.label.text)

    def box(self, mark: LabelledPoint, place: _Place) -> _Box:
        x, y = self.points[mark]
        left = x + place.dx - (self.length(mark) if place.align == "right" else 0.0)
        middle = y + place.dy
        return left, middle - 0.5 * _LABEL_HEIGHT, left + self.length(mark), middle + 0.5 * _LABEL_HEIGHT

    def cost(self, mark: LabelledPoint, place: _Place) -> float:
        """How bad a place is, in pixels of distance; infinite outside the panel."""
        box, (x, y) = self.box(mark, place), self.points[mark]
        if not 2 * RULE_LABEL_HEIGHT <= box[1] <= box[3] <= self.frame.height - 2:
            return math.inf
        distance = math.dist((x, y), _nearest_in(box, x, y))
        others = [point for other, point in self.points.items() if other is not mark]
        cost = distance + _MISLEADS * any(math.dist(each, _nearest_in(box, *each)) < distance for each in others)
        cost += _TOUCHES * sum(_overlap(box, other) for other in self.taken)
        return cost + _CROSSED * sum(_length_inside(box, line) for line in self.lines)


def _free_place(mark: LabelledPoint, panels: Sequence[_Panel]) -> _Place:
    """The place of a label that overlaps least, and is nearest to its point."""
    (x, _), length, width = panels[0].points[mark], panels[0].length(mark), panels[0].frame.width
    places = []
    for step in sorted(range(-_MOST_LINES, _MOST_LINES + 1), key=abs):
        for further in _PLACES_ACROSS:
            for start in (x + _GAP + further, x - _GAP - further - length):
                left = max(2.0, min(start, width - length - 2.0))
                # Where the text is longer on a wide page, it goes away from its point.
                before = left + length < x
                dx = left + length - x if before else left - x
                places.append(_Place("right" if before else "left", dx, float(_LABEL_HEIGHT * step)))
    return min(places, key=lambda place: sum(panel.cost(mark, place) for panel in panels))


def _leader(mark: LabelledPoint, panel: _Panel, place: _Place) -> list[Any]:
    """A thin line from a point to its label, where that is not right beside it."""
    alt = load("altair")
    x, y = panel.points[mark]
    end = _nearest_in(panel.box(mark, place), x, y)
    if math.dist((x, y), end) <= _GAP + 2:
        return []
    line = alt.Chart(inline([{"x": mark.x, "y": mark.y}]))
    line = line.mark_rule(style="leader", x2Offset=end[0] - x, y2Offset=end[1] - y)
    return [line.encode(x=alt.X("x:Q"), y=alt.Y("y:Q"), x2=alt.X2("x:Q"), y2=alt.Y2("y:Q"))]


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
