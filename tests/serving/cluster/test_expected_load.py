"""The load that controllers expect: what was seen by running sums, and forecasts corrected by it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from wastenot.serving.cluster.demand import Demand
from wastenot.serving.cluster.forecast import Forecast
from wastenot.serving.cluster.model import ClusterView

RATE = np.array([3.6, 9.8, 0.1, 19.0, 10.4, 7.7, 15.1, 8.8, 25.5])


def view(now_s: float, arrivals: np.ndarray) -> ClusterView:
    """What demand looks at."""
    return cast(ClusterView, SimpleNamespace(now_s=now_s, arrivals=arrivals))


def calibrated(slots: int = 12, error: float = 0.1) -> Forecast:
    """Twice the rate in the second half; levels last for 36 slots."""
    rates = np.repeat([[1.0], [2.0]], slots // 2, axis=0) * RATE
    weights = np.linspace(1.0, 0.0, 37)[:, None] * np.array([0.75, 0.25])
    return Forecast(rates, 300.0, weights, np.full(37, error / 2), np.full(37, error), 2 * error)


def fed(demand: Demand, rate: np.ndarray, until_s: float, begin_s: float = 0.0) -> Demand:
    for now_s in np.arange(begin_s + 5.0, until_s + 1.0, 5.0):
        demand.see(view(now_s, 5 * rate))
    return demand


@pytest.mark.parametrize("period_s", [5.0, 1.0, 17.3])
def test_what_came_is_what_a_sum_over_visits_says(period_s: float) -> None:
    random, demand = np.random.default_rng(1), Demand(RATE[None])
    times_s, came = [], []
    for visit in range(1, 2500):
        times_s.append(visit * period_s)
        came.append(random.poisson(RATE))
        demand.see(view(times_s[-1], came[-1]))
        if visit % 97:
            continue
        at_s, counts = np.array(times_s), np.array(came)
        for window_s in (20.0, 60.0, 300.0, 900.0):
            there = at_s > at_s[-1] - window_s + 1e-9
            covered_s = at_s[-1] - (0.0 if there.all() else at_s[~there][-1])  # whole visits
            assert demand.recent(window_s) == pytest.approx(counts[there].sum(axis=0) / covered_s)


def test_nothing_was_seen_at_first() -> None:
    demand = Demand.of(calibrated())
    assert demand.recent(60.0) == pytest.approx(RATE)
    assert demand.expected(0.0, 600.0) == pytest.approx(RATE)
    assert demand.expected(0.0, 3600.0) == pytest.approx(1.5 * RATE)
    peak = demand.peak(0.0, 600.0)
    assert peak.sum() == pytest.approx(calibrated().above(RATE.sum(), 0.2))  # the error of a day of which nothing is seen
    assert peak / peak.sum() == pytest.approx(RATE / RATE.sum())


@pytest.mark.parametrize("level", [0.7, 1.0, 1.6])
def test_a_calibrated_forecast_follows_the_level_that_is_seen(level: float) -> None:
    made = calibrated()
    demand = fed(Demand.of(made), level * RATE, 1200.0)
    assert demand.expected(1200.0, 1210.0) == pytest.approx(level * RATE, rel=1e-3)
    rates = made.given(np.full(2, np.log(level)), 4, 4, 11)
    assert demand.expected(1200.0, 3600.0) == pytest.approx(rates.mean(axis=0), rel=1e-3)
    assert demand.peak(1200.0, 3600.0).sum() == pytest.approx(made.above(rates.max(axis=0).sum(), 0.1), rel=1e-3)
    ahead = made.given(np.full(2, np.log(level)), 4, 9, 9)[0]
    assert demand.expected(2700.0, 3000.0) == pytest.approx(ahead, rel=1e-3)
    assert demand.peak(2700.0, 3000.0).sum() == pytest.approx(made.above(ahead.sum(), 0.05), rel=1e-3)
    assert demand.peak(1200.0, 1e9) == pytest.approx(demand.peak(1200.0, 3600.0))


def test_a_level_is_bounded_and_a_busy_minute_counts() -> None:
    assert fed(Demand.of(calibrated()), 0.0 * RATE, 1200.0).peak(1200.0, 1210.0).sum() > 0.45 * RATE.sum()
    demand = fed(fed(Demand.of(calibrated()), RATE, 1200.0), 4 * RATE, 1260.0, 1200.0)
    assert 3.9 * RATE.sum() < demand.peak(1260.0, 1300.0).sum() < 4 * RATE.sum()  # less what a minute varies by chance
    assert fed(Demand.of(calibrated()), 50 * RATE, 30.0).peak(30.0, 60.0).sum() < 1.5 * RATE.sum()  # nothing for a minute


def test_shares_of_classes_follow_what_came_halfway() -> None:
    turned = RATE[::-1].copy()
    peak = fed(Demand.of(calibrated()), 10 * turned, 1200.0).peak(1200.0, 1210.0)
    halfway = (RATE + turned) / 2 / RATE.sum()
    assert peak / peak.sum() == pytest.approx(halfway, rel=0.02, abs=1e-3)


def test_a_template_stays_as_it_is() -> None:
    rates = calibrated().expected_per_s
    demand = fed(Demand(rates, 300.0, follows=False), 7 * RATE, 1200.0)
    assert demand.peak(1200.0, 3000.0) == pytest.approx(2 * RATE)
    assert demand.peak(1200.0, 1500.0) == pytest.approx(RATE)
    assert demand.expected(1200.0, 2400.0) == pytest.approx(1.5 * RATE)
    assert demand.recent(60.0) == pytest.approx(7 * RATE)


def test_a_rise_that_is_forecast_is_not_scaled_down_by_what_came_before_it() -> None:
    demand = fed(Demand(np.stack([RATE, 4 * RATE]), 900.0), RATE, 900.0)
    assert demand.peak(895.0, 1200.0) == pytest.approx(4 * RATE)
    assert demand.expected(900.0, 1200.0) == pytest.approx(4 * RATE)
