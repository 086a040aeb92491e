from __future__ import annotations

import numpy as np
import pytest

from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.requests import Requests
from wastenot.serving.model.steering import FixedClock, best_fixed, fixed_clocks
from wastenot.serving.simulation.policy import Fixed
from wastenot.serving.simulation.simulate import simulate


def test_each_clock_is_run_and_the_least_energy_that_attains_is_chosen(three_clocks: Engine) -> None:
    random = np.random.default_rng(4)
    requests = Requests(np.cumsum(random.exponential(0.2, 200)), random.integers(20, 900, 200), random.integers(2, 40, 200))
    deadlines = Deadlines(ttft_s=(0.15,), prompt_below=())
    clocks = fixed_clocks(requests, three_clocks, deadlines)
    for each in clocks:
        served = simulate(requests, three_clocks, Fixed(each.setting), deadlines=deadlines)
        assert (each.energy_j, each.attainment) == pytest.approx((served.total_energy_j, served.attainment(deadlines)))
    assert [each.setting for each in clocks] == [2, 1, 0][: len(clocks)]
    easy = best_fixed(clocks, 0.0)
    assert easy.energy_j == min(each.energy_j for each in clocks)


def test_where_no_clock_attains_the_one_that_attains_most_is_chosen() -> None:
    clocks = (FixedClock(2, 0.95, 300.0), FixedClock(1, 0.90, 200.0))
    assert best_fixed(clocks, 0.99).setting == 2
    assert best_fixed(clocks, 0.90).setting == 1


def test_clocks_below_one_that_keeps_less_than_half_are_not_run(three_clocks: Engine) -> None:
    requests = Requests(np.arange(40) * 1e-3, np.full(40, 900), np.full(40, 3))
    clocks = fixed_clocks(requests, three_clocks, Deadlines(ttft_s=(0.2,), prompt_below=()))
    assert [each.setting for each in clocks] == [2]
