"""Lifetimes from a window that cuts some off: as all would show them, where those that ended alone would mislead."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from wastenot.serving.bench.lifetimes import lifetimes, percentiles


def test_lifetimes_that_are_all_known_are_their_percentiles() -> None:
    lived = np.random.default_rng(0).exponential(2.0, 500)
    assert lifetimes(np.zeros(500), lived, np.ones(500, dtype=bool)) == percentiles(lived)


def test_a_window_shorter_than_most_lifetimes_does_not_make_them_short() -> None:
    rng = np.random.default_rng(1)
    # A closed loop of 400 places, watched from the time 3 to 13; lifetimes of 1 to 15.
    lived = rng.uniform(1.0, 15.0, (400, 60))
    ends = np.cumsum(lived, axis=1)
    begins = ends - lived
    seen = (ends > 3.0) & (begins < 13.0)
    begins, ends, whole = begins[seen], ends[seen], lived[seen]
    found = lifetimes(np.maximum(3.0 - begins, 0.0), np.minimum(ends, 13.0) - begins, ends <= 13.0)
    assert found.p50_s == pytest.approx(8.0, rel=0.05)
    assert found.p90_s is None or found.p90_s == pytest.approx(13.6, rel=0.05)
    ended = whole[(ends <= 13.0)]
    assert np.median(ended) < 7.2  # those that ended in the window are the short ones


def test_what_too_few_lived_to_see_is_not_known() -> None:
    found = lifetimes(np.zeros(10), np.array([1.0] * 6 + [2.0] * 4), np.array([True] * 6 + [False] * 4))
    assert found.p50_s == 1.0
    assert found.p90_s is None
    assert found.mean_s is None


def test_a_few_that_all_ended_early_tell_nothing_of_those_watched_later() -> None:
    found = lifetimes(np.array([0.0, 2.0, 2.0]), np.array([1.0, 4.0, 5.0]), np.array([True, True, True]))
    assert found.mean_s is None
    assert found.p50_s is None


def product_limit(entered: list[float], left: list[float], ended: list[bool], age: float) -> float:
    """Share that outlives an age, one death at a time."""
    share = 1.0
    for at in sorted({leave for leave, end in zip(left, ended, strict=True) if end and leave <= age}):
        watched = sum(enter < at <= leave for enter, leave in zip(entered, left, strict=True))
        died = sum(end and leave == at for leave, end in zip(left, ended, strict=True))
        share *= 1.0 - died / watched
    return share


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 8), st.booleans()), min_size=1, max_size=12))
def test_as_counted_one_by_one(lives: list[tuple[int, int, bool]]) -> None:
    entered = [float(enter) for enter, _, _ in lives]
    left = [float(enter + span) for enter, span, _ in lives]
    ended = [end for _, _, end in lives]
    found = lifetimes(np.array(entered), np.array(left), np.array(ended))
    if found.p50_s is None or (all(ended) and not any(entered)):
        return
    assert product_limit(entered, left, ended, found.p50_s) <= 0.5 + 1e-9
    earlier = [age for age in left if age < found.p50_s]
    assert all(product_limit(entered, left, ended, age) > 0.5 - 1e-9 for age in earlier)
