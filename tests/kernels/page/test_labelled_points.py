"""Labels beside points: off each other, off lines, and nearer to their own point than to another."""

from __future__ import annotations

import math

from wastenot.kernels.page.labelled_points import LETTER_WIDTH, NO_LABEL, Frame, Label, LabelledPoint, draw_labels
from wastenot.pages.figure import specification_of

FRAME = Frame((0.0, 100.0), (0.0, 100.0), 1000, 400)
FAR = "a label of some length"


def point(x, y, label=FAR):
    return LabelledPoint("dot", x, y, Label(label) if label else NO_LABEL, "a plan", "1 J")


def places(marks, lines=()):
    """Where each label begins, in pixels, by its text."""
    found = {}
    for layer in draw_labels(marks, [FRAME], lines):
        chart = specification_of(layer)
        if chart["mark"]["type"] == "text":
            ((row,),) = chart["datasets"].values()
            (x, y), mark = FRAME.pixel(row["x"], row["y"]), chart["mark"]
            length = LETTER_WIDTH * len(row["text"]) if mark["align"] == "right" else 0.0
            found[row["text"]] = x + mark["dx"] - length, y + mark["dy"]
    return found


def test_a_label_stands_beside_its_point():
    assert places([point(50.0, 50.0)]) == {FAR: (512.0, 200.0)}


def test_a_label_keeps_off_lines():
    across = [(0.0, 50.0), (100.0, 50.0)]
    ((_, height),) = places([point(50.0, 50.0)], [across]).values()
    assert abs(height - 200.0) >= 8.0


def test_labels_keep_off_each_other_and_off_points():
    marks = [point(50.0, 50.0, "the first"), point(50.5, 51.0, "the second"), point(53.0, 50.0, "")]
    found = places(marks)
    boxes = [(left, height, left + LETTER_WIDTH * len(text), height) for text, (left, height) in found.items()]
    boxes += [(x, y, x, y) for x, y in (FRAME.pixel(mark.x, mark.y) for mark in marks)]
    for index, (left, top, right, _) in enumerate(boxes[:2]):
        for other in boxes[:index] + boxes[2:]:
            assert not (left < other[2] and other[0] < right and abs(top - other[1]) < 16.0)


def test_a_label_is_not_nearest_to_another_point():
    own, other = point(50.0, 50.0), point(50.0, 46.0, "")
    ((left, height),) = places([own, other]).values()
    assert math.dist((left, height), (500.0, 200.0)) < math.dist((left, height), (500.0, 216.0))
