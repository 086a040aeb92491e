"""The oracle: its model of the engine is the simulator's, and what it finds is cheaper than what can be had."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.engine_tables import OutsideProfileError
from wastenot.serving.model.requests import Requests
from wastenot.serving.policies.oracle import _Search, run_oracle
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


@pytest.mark.parametrize("cache_blocks", [4000, 132])
def test_plans_as_the_engine_runs(three_clocks: Engine, cache_blocks: int) -> None:
    requests = load(3.0, 20.0, 3)
    engine = replace(three_clocks, switch_s=0.0, overhead_s=0.001, cache_blocks=cache_blocks)
    plan = _Search(requests, engine, DEADLINES).plan(10.0)
    served = simulate(requests, engine, plan, deadlines=DEADLINES)
    assert served.total_energy_j == pytest.approx(plan.energy_j, rel=1e-9)
    assert (served.preemptions.sum() > 0) == (cache_blocks < 4000)
    assert len(np.unique(plan.clocks)) > 1, "the plan changes its clock"


def test_a_plan_is_the_same_with_few_slots_to_begin_with_and_without_the_compiler(three_clocks: Engine) -> None:
    script = """
import sys
sys.modules["numba"] = None
from tests.serving.conftest import three_clocks
from tests.serving.policies import test_oracle
print(repr(test_oracle.small_plan(three_clocks.__wrapped__(), 1)))
"""
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == repr(small_plan(three_clocks, 64))


def small_plan(engine: Engine, slots: int) -> tuple[list[list[int]], float]:
    search = _Search(load(3.0, 3.0, 3), replace(engine, switch_s=0.0), DEADLINES)
    search.slots = slots
    plan = search.plan(10.0)
    return plan.clocks.tolist(), round(plan.energy_j, 6)


def test_a_step_that_the_tables_do_not_cover_is_said(three_clocks: Engine) -> None:
    tables = replace(three_clocks.tables, context_tokens=np.array([1.0, 300.0]))
    with pytest.raises(OutsideProfileError, match="tokens in the cache is outside the profile"):
        run_oracle(load(3.0, 5.0, 3), replace(three_clocks, tables=tables), DEADLINES)


def test_an_engine_without_chunks_is_refused(three_clocks: Engine) -> None:
    with pytest.raises(BadInputError, match="chunked"):
        run_oracle(load(1.0, 5.0, 4), replace(three_clocks, chunked=False), DEADLINES)
