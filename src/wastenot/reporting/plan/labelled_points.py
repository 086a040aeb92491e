"""Points with labels and intervals, drawn over a panel; labels are moved apart where they would overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wastenot.reporting.figure import inline, tooltips
from wastenot.reporting.formatting import change, percent
from wastenot.reporting.optional_imports import load

LETTER_WIDTH = 6.4
"""Pixels that a letter of a label takes, on average."""

RULE_LABEL_HEIGHT = 13
"""Pixels of a line of the labels of rules, of which two stand at the top of the panel."""

_LABEL_HEIGHT = 16
_POINT_REACH = 8  # pixels to each side of a point


@dataclass(frozen=True, slots=True)
class LabelledPoint:
    """A point with its label and intervals, in per cent."""

    style: str
    x: float
    y: float
    label: str
    about: str
    energy: str
    x_interval: tuple[float, float] | None = None
    y_interval: tuple[float, float] | None = None


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
        layers.append(alt.Chart(inline(across)).mark_rule(style="interval").encode(x=x, x2="x2:Q", y=y))
    if along:
        layers.append(alt.Chart(inline(along)).mark_rule(style="interval").encode(x=x, y=y, y2="y2:Q"))
    tooltip = tooltips({"about:N": "plan", "time:N": "time", "saved:N": "energy saved", "energy:N": "energy per iteration"})
    for mark in marks:
        row = {"x": mark.x, "y": mark.y, "about": mark.about, "energy": mark.energy}
        row |= {"time": change(mark.x / 100) + _written(mark.x_interval, signed=True)}
        row |= {"saved": percent(mark.y / 100) + _written(mark.y_interval, signed=False)}
        layers.append(alt.Chart(inline([row])).mark_point(style=mark.style).encode(x=x, y=y, tooltip=tooltip))
    return layers


def _written(interval: tuple[float, float] | None, *, signed: bool) -> str:
    if interval is None:
        return ""
    low, high = (percent(end / 100, sign=signed) for end in interval)
    return f" ({low} to {high})"


def draw_labels(marks: Sequence[LabelledPoint], frame: Frame) -> list[Any]:
    """The labels beside their points, those of later points first to choose their place."""
    alt = load("altair")
    points = [frame.pixel(mark.x, mark.y) for mark in marks]
    placed = [(x - _POINT_REACH, x + _POINT_REACH, y) for x, y in points]  # labels keep off all points
    layers = []
    for mark in reversed([mark for mark in marks if mark.label]):
        left, height = _free_place(mark, frame, placed)
        placed.append((left, left + LETTER_WIDTH * len(mark.label), height))
        text = alt.Chart(inline([{"text": mark.label}])).encode(x=alt.value(left), y=alt.value(height), text="text:N")
        weight = {"fontWeight": "bold"} if mark.style == "plan" else {}
        layers += [text.mark_text(style=style, align="left", **weight) for style in ("halo", "label")]
    return layers


def _free_place(mark: LabelledPoint, frame: Frame, placed: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    """Where a label begins, and its height, in pixels; ``placed`` are (left, right, height) of those there are."""
    x, y = frame.pixel(mark.x, mark.y)
    length = LETTER_WIDTH * len(mark.label)
    left = x - 12 - length if x + 12 + length > frame.width and x > 0.5 * frame.width else x + 12
    left = max(2.0, min(left, frame.width - length))
    for lines in (1, -1, 2, -2, 3, -3, 4, -4):
        height = y + _LABEL_HEIGHT * lines
        inside = 2 * RULE_LABEL_HEIGHT + 10 < height < frame.height - 2
        if inside and not any(
            left < other_right and other_left < left + length and abs(height - other_height) < _LABEL_HEIGHT
            for other_left, other_right, other_height in placed
        ):
            return left, height
    return left, y
