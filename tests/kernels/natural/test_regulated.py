"""Iterations under a regulator that takes time."""

import numpy as np
import pytest

from benchmarks.regulated_iterations import run_regulated
from wastenot.planning.power_limit import ClockCosts, run_iteration

LIMIT_W = 700.0
STEP_S = 1e-3


class Follower:
    """A regulator as simple as can be: it sees power late, and moves the clock in proportion to the excess."""

    def __init__(self, sees_s: float = 0.02) -> None:
        self.core_mhz = 1975.0
        self._sees = STEP_S / sees_s
        self._seen_w = LIMIT_W

    def step(self, power_w: float, limit_w: float, ceiling_mhz: float) -> None:
        self._seen_w += self._sees * (power_w - self._seen_w)
        self.core_mhz = min(max(self.core_mhz - 20.0 * (self._seen_w / limit_w - 1.0), 1000.0), ceiling_mhz)


def costs_of(*kernels: tuple[float, float, float, float]) -> ClockCosts:
    """Kernels of (time at 1.5 GHz, its exponent, power there, its exponent), 40 calls each."""
    clocks = np.arange(1000.0, 1981.0, 15.0)
    x = clocks / 1500.0
    time_s = np.array([time * x**exponent for time, exponent, *_ in kernels])
    power_w = np.array([power * x**exponent for *_, power, exponent in kernels])
    names = tuple(f"k{index}" for index in range(len(kernels)))
    return ClockCosts(names, np.full(len(kernels), 40), clocks, time_s, power_w, np.ones(time_s.shape, dtype=bool))


def test_short_kernels_run_as_if_at_one_clock():
    costs = costs_of((2e-3, -1.0, 780.0, 2.2), (5e-4, -0.1, 480.0, 1.1))
    found = run_regulated(costs, [0, 1] * 40, Follower(), STEP_S, LIMIT_W, iterations=20, settle=40)
    expected = run_iteration(costs, LIMIT_W)
    assert found.mean_s == pytest.approx(expected.time_s, rel=0.002)
    assert found.mean_j == pytest.approx(expected.energy_j, rel=0.002)
    assert found.core_mhz.mean() == pytest.approx(expected.core_mhz, rel=0.002)


def test_time_and_energy_add_up_to_those_of_the_kernels():
    costs = costs_of((2e-3, -1.0, 400.0, 1.0), (5e-4, 0.0, 380.0, 1.1))  # below the limit at every clock
    found = run_regulated(costs, [0] * 40 + [1] * 40, Follower(), STEP_S, LIMIT_W, iterations=3)
    assert found.time_s == pytest.approx([costs.iteration_s[:, -1].sum()] * 3, rel=1e-9)
    assert found.energy_j == pytest.approx([costs.iteration_j[:, -1].sum()] * 3, rel=1e-9)
    assert found.core_mhz == pytest.approx([costs.core_mhz[-1]] * 3)


def test_ceilings_hold():
    costs = costs_of((2e-3, -1.0, 780.0, 2.2), (5e-4, -0.1, 480.0, 1.1))
    ceiling = np.array([10, 4])
    rows = np.arange(2)
    found = run_regulated(costs, [0, 1] * 40, Follower(), STEP_S, LIMIT_W, ceiling, iterations=3)
    assert found.time_s == pytest.approx([costs.iteration_s[rows, ceiling].sum()] * 3, rel=1e-9)
    assert found.energy_j == pytest.approx([costs.iteration_j[rows, ceiling].sum()] * 3, rel=1e-9)


def test_order_matters_where_kernels_are_long():
    costs = costs_of((2e-2, -1.0, 780.0, 2.2), (2e-2, -1.0, 350.0, 1.1))
    mixed = run_regulated(costs, [0, 1] * 40, Follower(), STEP_S, LIMIT_W, iterations=10, settle=20)
    apart = run_regulated(costs, [0] * 40 + [1] * 40, Follower(), STEP_S, LIMIT_W, iterations=10, settle=20)
    assert abs(mixed.mean_s / apart.mean_s - 1) > 0.01
