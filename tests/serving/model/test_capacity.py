from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.serving.model.capacity import best_step_tokens, capacity
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.requests import Requests
from wastenot.serving.simulation.policy import Fixed
from wastenot.serving.simulation.simulate import simulate

DEADLINES = Deadlines(ttft_s=(0.3,), prompt_below=())


def load(rate_per_s: float) -> Requests:
    """Two hundred requests like any other, whose times between arrivals scale with the rate."""
    random = np.random.default_rng(5)
    arrival = np.cumsum(random.exponential(size=200)) / rate_per_s
    return Requests(arrival, random.integers(50, 1500, 200), random.integers(2, 60, 200))


def test_the_rate_found_keeps_the_deadlines_and_a_little_more_does_not(three_clocks: Engine) -> None:
    found = capacity(load, three_clocks, DEADLINES, share=0.9, within=0.02)
    for rate, keeps in ((found.rate_per_s, True), (found.rate_per_s * 1.02, False)):
        served = simulate(load(rate), three_clocks, Fixed(), deadlines=DEADLINES)
        assert (served.attainment(DEADLINES) >= 0.9) == keeps
    assert 0.9 <= found.attainment <= 1.0


def test_one_server_that_takes_one_prompt_at_a_time_is_full_when_all_its_time_is_taken(three_clocks: Engine) -> None:
    one = replace(three_clocks, most_running=1)

    def evenly(rate_per_s: float) -> Requests:
        return Requests(np.arange(300) / rate_per_s, np.full(300, 512), np.ones(300, dtype=np.intp))

    step_s = one.tables.prefill(2, 512).time_s
    found = capacity(evenly, one, Deadlines(ttft_s=(1.5 * step_s,), prompt_below=()), within=0.01)
    assert found.rate_per_s == pytest.approx(1 / step_s, rel=0.015)


def test_the_budget_of_a_step_is_the_one_with_which_the_engine_takes_most(three_clocks: Engine) -> None:
    budgets = (128, 512, 2048)
    best = best_step_tokens(load, three_clocks, DEADLINES, share=0.9, step_tokens=budgets)
    rates = [
        capacity(load, replace(three_clocks, most_step_tokens=tokens), DEADLINES, share=0.9).rate_per_s for tokens in budgets
    ]
    assert best.rate_per_s == max(rates)
    assert best.engine.most_step_tokens == budgets[int(np.argmax(rates))]
    assert len(set(rates)) > 1


def test_deadlines_that_nothing_keeps_are_said_so(three_clocks: Engine) -> None:
    hopeless = Deadlines(ttft_s=(1e-3,), prompt_below=())
    with pytest.raises(BadInputError, match=r"almost no load the engine meets the deadlines of 0.0% of the requests"):
        best_step_tokens(load, three_clocks, hopeless)
    with pytest.raises(BadInputError, match="the tables cover steps of at most 4096 tokens"):
        best_step_tokens(load, three_clocks, DEADLINES, step_tokens=(8192,))
