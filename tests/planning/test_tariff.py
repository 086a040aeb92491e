"""Costs of energy over time: means, and what runs cost."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from wastenot.core.errors import BadInputError
from wastenot.planning.tariff import HOUR_S, Tariff

DAY = tuple([1.0] * 18 + [5.0] * 3 + [1.0] * 3)


def _summed(tariff: Tariff, from_s: float, until_s: float) -> float:
    """The mean by looking the value up at many times."""
    at_s = from_s + (np.arange(20_000) + 0.5) * (until_s - from_s) / 20_000 + tariff.begin_s
    if math.isfinite(tariff.period_s):
        at_s = at_s % tariff.period_s
    return float(tariff.per_kwh[np.searchsorted(tariff.at_s, at_s, side="right") - 1].mean())


@given(begin_s=st.floats(0, 2e5), from_s=st.floats(0, 2e5), lasts_s=st.floats(10.0, 2e5), repeats=st.booleans())
def test_a_mean_is_that_of_the_values_of_all_moments(begin_s, from_s, lasts_s, repeats):
    values = np.array([3.0, -1.0, 4.0])
    tariff = Tariff(np.array([0.0, 5000.0, 60_000.0]), values, 86_400.0 if repeats else math.inf, begin_s)
    found = tariff.mean(np.array([from_s]), np.array([from_s + lasts_s]))[0]
    assert found == pytest.approx(_summed(tariff, from_s, from_s + lasts_s), abs=2e-3)


def test_hours_of_a_day_and_a_week_repeat_and_a_number_holds_always():
    day = Tariff.hourly(DAY)
    assert day.mean(np.array([0.0, 17.5 * HOUR_S]), np.array([86_400.0, 18.5 * HOUR_S])).tolist() == [1.5, 3.0]
    assert day.later(30 * 86_400.0).mean(np.array([18.0]) * HOUR_S, np.array([19.0]) * HOUR_S) == 5.0
    week = Tariff.hourly((*[2.0] * 167, 9.0))
    assert week.mean(np.array([335.0]) * HOUR_S, np.array([336.0]) * HOUR_S) == 9.0
    assert Tariff.hourly(0.25).mean(np.zeros(1), np.array([1e9])) == 0.25
    with pytest.raises(BadInputError, match="23 values; give one, 24 by hour of the day"):
        Tariff.hourly((1.0,) * 23)


def test_a_run_costs_its_energy_at_the_price_of_each_moment():
    day = Tariff.hourly(DAY)
    assert day.cost(np.full(24, 3.6e6), HOUR_S, 86_400.0) == pytest.approx(36.0)  # a kWh in each hour
    assert day.later(18 * HOUR_S).cost(np.array([3.6e6, 7.2e6]), HOUR_S, 1.5 * HOUR_S) == pytest.approx(15.0)
    assert day.later(20.5 * HOUR_S).cost(np.array([3.6e6]), HOUR_S, 0.5 * HOUR_S) == pytest.approx(5.0)  # ended within it
    assert day.later(20.5 * HOUR_S).cost(np.array([3.6e6]), HOUR_S, HOUR_S) == pytest.approx(3.0)
