"""The oracle: its model of the engine is the simulator's, and what it finds is cheaper than what can be had."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.requests import Requests
from wastenot.serving.policies.oracle import Planned, _Search, run_oracle
from wastenot.serving.policies.price import Price
from wastenot.serving.simulation.policy import Fixed
from wastenot.serving.simulation.simulate import simulate

DEADLINES = Deadlines(ttft_s=(0.3, 0.6), prompt_below=(256,), tbt_s=0.05)


def load(rate_per_s: float, duration_s: float, seed: int) -> Requests:
    random = np.random.default_rng(seed)
    number = random.poisson(rate_per_s * duration_s)
    prompts = np.exp(random.normal(5.5, 0.8, number)).clip(4, 2000).astype(np.intp)
    outputs = np.exp(random.normal(4.3, 0.7, number)).clip(1, 400).astype(np.intp)
    return Requests(np.sort(random.uniform(0, duration_s, number)), prompts, outputs)


def test_it_attains_at_less_energy_than_any_fixed_clock_and_than_ours(three_clocks: Engine) -> None:
    requests = load(3.0, 60.0, 1)
    fixed = [simulate(requests, three_clocks, Fixed(each), deadlines=DEADLINES) for each in range(3)]
    assert fixed[-1].attainment(DEADLINES) >= 0.99, "the test's load is not too much for the greatest clock"
    assert fixed[0].attainment(DEADLINES) < 0.99, "nor is it too little for the lowest"
    policy, oracle = run_oracle(requests, three_clocks, DEADLINES)
    assert policy.name == "oracle"
    assert oracle.attainment(DEADLINES) >= 0.99
    assert oracle.total_energy_j < min(each.total_energy_j for each in fixed if each.attainment(DEADLINES) >= 0.99)
    assert oracle.total_energy_j <= simulate(requests, three_clocks, Price(), deadlines=DEADLINES).total_energy_j


def test_a_clock_that_must_stay_costs_more(three_clocks: Engine) -> None:
    requests = load(3.0, 40.0, 2)
    _, instant = run_oracle(requests, three_clocks, DEADLINES)
    _, slow = run_oracle(requests, replace(three_clocks, switch_s=0.2), DEADLINES, at_once=False)
    assert instant.total_energy_j <= 1.02 * slow.total_energy_j
    assert slow.attainment(DEADLINES) >= 0.99


def test_plans_as_the_engine_runs(three_clocks: Engine) -> None:

    requests = load(3.0, 20.0, 3)
    engine = replace(three_clocks, switch_s=0.0, overhead_s=0.001)
    plan = _Search(requests, engine, DEADLINES, 0.0).plan(10.0)

    served = simulate(requests, engine, Planned(plan, 0), deadlines=DEADLINES)
    assert sum(served.steps.values()) == len(plan)


def test_an_engine_without_chunks_is_refused(three_clocks: Engine) -> None:
    with pytest.raises(BadInputError, match="chunked"):
        run_oracle(load(1.0, 5.0, 4), replace(three_clocks, chunked=False), DEADLINES)
