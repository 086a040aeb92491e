"""The window of a map: what it holds, and lines cut at its edges."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from wastenot.kernels.page.clipping import Window, window_around

SQUARE = Window((-10.0, 10.0), (-10.0, 10.0))
places = st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))


def test_a_line_through_the_window_is_cut_at_both_edges():
    assert SQUARE.clip([(-20.0, 0.0), (20.0, 0.0)]) == [[(-10.0, 0.0), (10.0, 0.0)]]


def test_a_line_inside_stays_whole():
    line = [(0.0, 0.0), (1.0, 2.0), (3.0, 1.0)]
    assert SQUARE.clip(line) == [line]


def test_a_line_that_comes_back_is_two_pieces():
    pieces = SQUARE.clip([(0.0, 0.0), (30.0, 0.0), (30.0, 5.0), (0.0, 5.0)])
    assert pieces == [[(0.0, 0.0), (10.0, 0.0)], [(10.0, 5.0), (0.0, 5.0)]]


def test_lines_outside_vanish():
    assert SQUARE.clip([(20.0, 0.0), (20.0, 5.0)]) == []
    assert SQUARE.clip([(0.0, 0.0)]) == []


@given(st.lists(places, min_size=1, max_size=30), places)
def test_a_window_holds_auto_the_plan_and_the_fastest(points, plan):
    window = window_around(points, plan)
    assert window.holds((0.0, 0.0))
    assert window.holds(plan)
    assert window.x[0] < min(slower for slower, _ in points)


def test_intervals_end_at_the_edge():
    assert SQUARE.clip_bar((9.0, 0.0), (3.0, 2.0)) == ((6.0, 10.0), (-2.0, 2.0))


@given(st.lists(places, min_size=2, max_size=12))
def test_pieces_are_inside_and_keep_every_inner_point(line):
    pieces = SQUARE.clip(line)
    flat = [place for piece in pieces for place in piece]
    slack = 1e-6
    assert all(abs(x) <= 10 + slack and abs(y) <= 10 + slack for x, y in flat)
    for place in line:
        if SQUARE.holds(place):
            assert any(place == pytest.approx(other, abs=1e-6) for other in flat)
