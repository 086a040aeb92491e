from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from wastenot.core.setting import AUTO, Setting
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.requests import Requests
from wastenot.serving.model.steering import result_of
from wastenot.serving.simulation.policy import Fixed
from wastenot.serving.simulation.served import gap_percentile_s
from wastenot.serving.simulation.simulate import simulate

DEADLINES = Deadlines(ttft_s=(0.05, 0.2, 1.0), prompt_below=(256, 5000))


def test_a_run_in_numbers(three_clocks: Engine) -> None:
    random = np.random.default_rng(8)
    requests = Requests(np.cumsum(random.exponential(0.1, 300)), random.integers(20, 900, 300), random.integers(2, 40, 300))
    served = simulate(requests, three_clocks, Fixed(1), deadlines=DEADLINES)
    row = result_of("one clock", served, three_clocks, DEADLINES)
    waited = served.first_token_s - requests.arrival_s
    short = requests.prompt_tokens < 256
    assert row.ttft_p99_s[:2] == pytest.approx((np.percentile(waited[short], 99), np.percentile(waited[~short], 99)))
    assert math.isnan(row.ttft_p99_s[2])  # no prompt is that long
    assert row.mean_core_mhz == pytest.approx(1500.0)
    assert row.power_w * served.end_s == pytest.approx(served.total_energy_j)
    assert (row.policy, row.switches, row.attainment) == ("one clock", 0, served.attainment(DEADLINES))


def test_the_percentile_of_gaps_is_within_a_bin_of_the_true_one(three_clocks: Engine) -> None:
    requests = Requests(np.zeros(1), np.array([10]), np.array([400]))  # alone: all gaps nearly alike
    served = simulate(requests, three_clocks, Fixed(), timeline_s=1.0)
    longest_s = served.timeline.longest_gap_s.max()  # type: ignore[union-attr]
    assert longest_s <= gap_percentile_s(served.gap_counts, 1.0) <= longest_s * 1.024
    one = simulate(Requests(np.zeros(1), np.array([10]), np.array([1])), three_clocks, Fixed())
    assert gap_percentile_s(one.gap_counts, 0.99) == 0.0


def test_an_automatic_clock_counts_as_the_greatest_there_is(three_clocks: Engine) -> None:
    requests = Requests(np.zeros(1), np.array([10]), np.array([4]))

    def mean_mhz(*settings: Setting) -> float | None:
        engine = replace(three_clocks, tables=replace(three_clocks.tables, settings=settings))
        return result_of("auto", simulate(requests, engine, Fixed()), engine, DEADLINES).mean_core_mhz

    assert mean_mhz(*three_clocks.tables.settings[:2], AUTO) == pytest.approx(1500.0)
    assert mean_mhz(AUTO, AUTO, AUTO) is None


@pytest.mark.parametrize(("share", "allowed"), [(0.99, [0, 0, 1, 1]), (0.9, [1, 9, 10, 19]), (1.0, [0, 0, 0, 0])])
def test_late_tokens_that_are_allowed(share: float, allowed: list[int]) -> None:
    tokens = np.array([11, 100, 101, 200])
    assert Deadlines(share=share).late_allowed(tokens).tolist() == allowed
