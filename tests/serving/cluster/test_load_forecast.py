"""Forecasts of arrivals: medians of days alike, levels that last, and upper quantiles that hold."""

from __future__ import annotations

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.planning.tariff import DAY_S
from wastenot.serving.cluster.classes import COUNT
from wastenot.serving.cluster.forecast import WINDOWS_S, Forecast, Past, forecast, template
from wastenot.serving.cluster.traffic import varied

SHARES = np.array([3.6, 9.8, 0.1, 19.0, 10.4, 7.7, 15.1, 8.8, 25.5]) / 100
SLOT_S = 1800.0
A_DAY = 48


def days(*values: float) -> np.ndarray:
    """Days of so many requests a slot in each class."""
    return np.repeat(np.array(values)[:, None], A_DAY, axis=0) * np.ones(COUNT)


def test_the_template_is_the_median_of_the_same_weekday() -> None:
    weeks = np.arange(21.0).reshape(3, 7)
    weeks[1] += 100.0
    past = Past(days(*weeks.ravel()), SLOT_S, 0.0)
    found = template(past, 7 * A_DAY) * SLOT_S
    assert found.shape == (7 * A_DAY, COUNT)
    np.testing.assert_allclose(found, days(*np.median(weeks, axis=0)))


@pytest.mark.parametrize("monday", [0.0, 2 * DAY_S + 6 * SLOT_S])
def test_the_template_follows_the_time_of_day_wherever_the_past_ends(monday: float) -> None:
    week = np.random.default_rng(0).integers(1, 1000, 7 * A_DAY)
    past = Past(np.tile(week, 3)[: 2 * 7 * A_DAY + 31, None] * np.ones(COUNT), SLOT_S, monday)
    found = template(past, 100) * SLOT_S
    np.testing.assert_allclose(found[:, 0], np.tile(week, 4)[2 * 7 * A_DAY + 31 :][:100])


def test_where_a_weekday_came_once_it_is_the_median_of_days_alike() -> None:
    past = Past(days(1, 2, 3, 4, 10, 50, 70), SLOT_S, 0.0)  # Monday to Sunday
    found = (template(past, 7 * A_DAY) * SLOT_S)[::A_DAY, 0]
    np.testing.assert_allclose(found, [3, 3, 3, 3, 3, 60, 60])
    no_weekdays = Past(days(1, 2, 3, 4, 10, 50, 70), SLOT_S)
    np.testing.assert_allclose(template(no_weekdays, A_DAY) * SLOT_S, 4.0)


def test_what_is_not_known_is_left_out() -> None:
    past = days(1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 14, 15, 16, 17)
    past[7 * A_DAY : 8 * A_DAY] = np.nan  # the second Monday: other weekdays stand for it
    found = (template(Past(past, SLOT_S, 0.0), 2 * A_DAY) * SLOT_S)[::A_DAY, 0]
    np.testing.assert_allclose(found, [5.0, 7.0])
    past[7 * A_DAY + 1 : 8 * A_DAY] = 11.0  # all of it but one slot
    found = (template(Past(past, SLOT_S, 0.0), A_DAY) * SLOT_S)[:2, 0]
    np.testing.assert_allclose(found, [5.0, 6.0])


def test_where_nothing_ever_came_something_may() -> None:
    past = days(0, 5, 0, 5) * np.arange(COUNT)
    found = template(Past(past, SLOT_S), A_DAY) * SLOT_S
    np.testing.assert_allclose(found, np.tile(2.5 * np.arange(COUNT), (A_DAY, 1)))
    past[: 2 * A_DAY : A_DAY] = past[2 * A_DAY :: A_DAY] = 0  # the first slot of each day
    first, second = (template(Past(past, SLOT_S), A_DAY) * SLOT_S)[:2]
    np.testing.assert_allclose(first, 0.5 * np.arange(COUNT) / 36, atol=1e-9)
    assert forecast(Past(past, SLOT_S), A_DAY).upper_per_s[0].sum() > 0 and second.sum() == pytest.approx(90)
    none = template(Past(np.zeros((A_DAY, COUNT)), SLOT_S), A_DAY)
    np.testing.assert_allclose(none * SLOT_S, 0.5 / COUNT)


@pytest.mark.parametrize(
    ("counts", "slot_s", "says"),
    [
        (np.full((10, COUNT), np.nan), SLOT_S, "some of them known"),
        (np.ones((10, 8)), SLOT_S, "shape"),
        (np.ones((10, COUNT)), 700.0, "divide a day"),
    ],
)
def test_a_past_that_is_none_is_refused(counts: np.ndarray, slot_s: float, says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        Past(counts, slot_s)


# ---- levels and errors ------------------------------------------------------------------------------------------------


def week(random: np.random.Generator, scale: float = 1.0, **sigmas: float) -> np.ndarray:
    """A week of 5-minute counts that rises and falls with the day, at 40 requests a second on average."""
    slots = np.arange(7 * 288)
    rate = scale * 40 * (1 + 0.4 * np.sin(2 * np.pi * slots / 288) - 0.3 * (slots >= 5 * 288))
    rate = varied(rate, 300.0, slots // 288, random, **sigmas)
    return random.poisson(rate[:, None] * 300 * SHARES).astype(float)


def levels(now: np.ndarray, expected: np.ndarray, slot: int) -> np.ndarray:
    begins = [max(slot - round(window_s / 300), 0) for window_s in WINDOWS_S]
    return np.array([np.log(now[begin:slot].sum() / expected[begin:slot].sum()) for begin in begins])


def covered(made: Forecast, now: np.ndarray, ahead: int) -> tuple[float, float, np.ndarray]:
    """Shares of slots and of spans that stay below the upper quantile given what was seen, and of slots by class."""
    expected = made.expected_per_s * 300
    slots, spans, classes = [], [], []
    for slot in range(3, len(now) - ahead, 5):
        rate = made.given(levels(now, expected, slot), slot, slot, slot + ahead)
        slots.append(now[slot + ahead].sum() / 300 <= made.above(rate[ahead].sum(), made.slot_error[ahead]))
        most = made.above(rate.sum(axis=1).max(), made.span_error[ahead])
        spans.append(now[slot : slot + ahead + 1].sum(axis=1).max() / 300 <= most)
        classes.append(now[slot + ahead] / 300 <= made.above(rate[ahead], made.slot_error[ahead]))
    return float(np.mean(slots)), float(np.mean(spans)), np.mean(classes, axis=0)


@pytest.mark.parametrize(
    ("sigmas", "scale"), [({}, 1.0), ({}, 0.02), ({"day_sigma": 0.0}, 1.0), ({"day_sigma": 0.2, "slot_sigma": 0.1}, 1.0)]
)
def test_upper_quantiles_hold(sigmas: dict[str, float], scale: float) -> None:
    found = []
    for seed in range(6):
        random = np.random.default_rng([77, seed])
        past = np.concatenate([week(random, scale, **sigmas) for _ in range(2)])
        made, now = forecast(Past(past, 300.0, 0.0), 7 * 288), week(random, scale, **sigmas)
        found.append(covered(made, now, 6))
    slots, spans, classes = (np.mean([each[place] for each in found], axis=0) for place in range(3))
    assert 0.92 < slots < 0.995 and 0.91 < spans < 0.999
    assert (classes > 0.9).all()


def test_a_week_like_those_before_has_no_error_but_that_of_counting() -> None:
    random = np.random.default_rng(3)
    weeks = [week(random, day_sigma=0.0, slot_sigma=0.0) for _ in range(3)]
    made = forecast(Past(np.concatenate(weeks[:2]), 300.0, 0.0), 7 * 288)
    total, told = weeks[2].sum(axis=1), made.expected_per_s.sum(axis=1) * 300
    assert np.abs(total / told - 1).mean() < 2 / np.sqrt(told.mean())
    assert made.unseen_error < 0.05
    assert (made.upper_per_s > made.expected_per_s).all()
    assert 0.93 < (weeks[2] / 300 <= made.upper_per_s).mean() <= 1.0


def test_levels_seen_make_a_forecast_better_and_fade() -> None:
    random = np.random.default_rng(4)
    made = forecast(Past(np.concatenate([week(random) for _ in range(2)]), 300.0, 0.0), 7 * 288)
    now = week(random)
    expected, total = made.expected_per_s * 300, now.sum(axis=1)
    slots = range(3, len(now) - 6)
    seen = [made.given(levels(now, expected, slot), slot, slot, slot + 6)[6].sum() * 300 for slot in slots]
    error = [np.abs(np.log(total[9:] / each)).mean() for each in (np.array(seen), expected[9:].sum(axis=1))]
    assert error[0] < 0.7 * error[1]
    more = made.given(np.full(2, np.log(1.5)), 0, 0, 7 * 288 - 1) / made.expected_per_s
    assert more[0, 0] > 1.3 and more[0, 0] > more[36, 0] and more[-1, 0] == 1.0


def test_a_day_says_nothing_of_errors() -> None:
    made = forecast(Past(week(np.random.default_rng(0))[:288], 300.0, 0.0), 288)
    assert not made.weights.any() and made.unseen_error > 0.4
    np.testing.assert_allclose(made.given(np.ones(2), 0, 0, 287), made.expected_per_s)
