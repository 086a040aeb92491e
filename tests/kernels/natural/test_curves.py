"""Curves of time and power by clock: interpolated, never extrapolated, drawn within what physics allows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import LinearConstraint, minimize

from wastenot.core.errors import BadInputError
from wastenot.kernels.natural.curves import AutoPoint, KernelCurve, NaturalCurves, nearest_within


def curve(time_slope: float = -0.5, error: float = 0.01) -> KernelCurve:
    clock = np.array([1450.0, 1600.0, 1800.0, 1980.0])
    covariance = error**2 * (0.5 + 0.5 * np.eye(4))
    return KernelCurve(
        "softmax", clock, 1e-3 * (clock / 1980.0) ** time_slope, 600.0 * (clock / 1980.0) ** 1.2, covariance, covariance,
        AutoPoint(1975.0, 1e-3, 600.0, 1e-6, 2.0, False), 100, 200,
    )  # fmt: skip


def test_between_knots_a_power_law_is_kept_exactly() -> None:
    clock = np.linspace(1450.0, 1980.0, 40)
    assert curve().time_at(clock) == pytest.approx(1e-3 * (clock / 1980.0) ** -0.5, rel=1e-12)
    assert curve().power_at(1700.0) == pytest.approx(600.0 * (1700.0 / 1980.0) ** 1.2, rel=1e-12)


@pytest.mark.parametrize("clock", [1440.0, 1990.0, float("nan")])
def test_nothing_is_said_beyond_the_clocks_seen(clock: float) -> None:
    with pytest.raises(BadInputError, match=r"kernel softmax: not seen at .* MHz, only from 1450 to 1980 MHz"):
        curve().power_at([1500.0, clock])


def test_draws_scatter_as_stated_and_keep_to_physics() -> None:
    one = curve()
    times, powers = one.draws(np.random.default_rng(1), 4000)
    assert np.std(np.log(times), axis=0) == pytest.approx(np.full(4, 0.01), rel=0.08)
    step = np.diff(np.log(one.core_mhz))
    for flat in (curve(0.0), curve(-1.0)):
        times, powers = flat.draws(np.random.default_rng(2), 500)
        slope = np.diff(np.log(times), axis=1) / step
        assert slope.max() <= 1e-6
        assert slope.min() >= -1.0 - 1e-6
        assert np.diff(powers, axis=1).min() >= -1e-6


def test_a_kernel_is_found_by_name() -> None:
    curves = NaturalCurves("sim:h200", "gpt3-xl", "simulated", (curve(),))
    assert curves["softmax"].kernel == "softmax"
    with pytest.raises(BadInputError, match="gelu"):
        curves["gelu"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1.0, 1.0), min_size=2, max_size=7), st.integers(0, 2**31))
def test_the_nearest_curve_is_the_one_that_a_general_solver_finds(values: list[float], seed: int) -> None:
    position = np.cumsum(np.random.default_rng(seed).uniform(0.1, 1.0, len(values)))
    wanted = np.array(values)
    found = nearest_within(wanted[None], position, (-1.0, 0.0))[0]
    difference = np.diff(np.eye(len(values)), axis=0) / np.diff(position)[:, None]
    solved = minimize(  # type: ignore[call-overload]
        lambda x: 0.5 * np.sum((x - wanted) ** 2), np.zeros(len(values)), jac=lambda x: x - wanted, method="SLSQP",
        constraints=LinearConstraint(difference, -1.0, 0.0), options={"ftol": 1e-14, "maxiter": 300},
    )  # fmt: skip
    assert np.sum((found - wanted) ** 2) == pytest.approx(solved.fun * 2.0, abs=1e-5)
    assert np.all((difference @ found <= 1e-5) & (difference @ found >= -1.0 - 1e-5))
