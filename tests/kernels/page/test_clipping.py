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


@given(st.lists(places, min_size=1, max_size=60), places)
def test_every_point_is_inside_or_gathered_at_the_edge_nearest_to_it(points, plan):
    window = window_around(points, plan)
    outside = window.gather(points)
    members = [index for each in outside for index in each.members]
    inside = [index for index, point in enumerate(points) if window.holds(point)]
    assert sorted(members + inside) == list(range(len(points)))
    for each in outside:
        assert window.holds(each.at)
        for index in each.members:
            x, y = points[index]
            beyond_x, beyond_y = window.x[0] <= x <= window.x[1], window.y[0] <= y <= window.y[1]
            assert beyond_x or each.at[0] == (window.x[0] if x < window.x[0] else window.x[1])
            assert beyond_y or each.at[1] == (window.y[0] if y < window.y[0] else window.y[1])


@pytest.mark.parametrize(
    ("point", "angle"),
    [((30.0, 0.0), 90.0), ((-30.0, 1.0), 270.0), ((0.0, 30.0), 0.0), ((0.0, -30.0), 180.0), ((30.0, -30.0), 135.0)],
)
def test_arrows_point_to_what_they_stand_for(point, angle):
    (arrow,) = SQUARE.gather([point])
    assert arrow.angle == angle


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


def test_kinds_at_the_same_place_of_the_edge_get_arrows_of_their_own():
    points = [(200.0, 0.5), (300.0, 0.5), (250.0, 0.5), (200.0, -90.0), (300.0, -90.0)]
    arrows = SQUARE.gather(points, ["slow", "fast", "slow", "slow", "fast"])
    assert sorted(arrow.members for arrow in arrows) == [(0, 2), (1,), (3,), (4,)]
    assert {arrow.kind for arrow in arrows} == {"slow", "fast"}
    assert len({arrow.at for arrow in arrows}) == 4 and all(SQUARE.holds(arrow.at) for arrow in arrows)
