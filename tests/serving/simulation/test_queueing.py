"""What queueing theory and bookkeeping say of any run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies

from testbed.random_serving import Whims, drawn
from wastenot.core.setting import Setting
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.engine_tables import EngineTables
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.simulation.policy import Fixed
from wastenot.serving.simulation.simulate import simulate

SERVICE_S, POWER_W, IDLE_W = 0.02, 200.0, 50.0


def one_server() -> Engine:
    """Takes one request at a time; each step takes as long whatever it does."""
    knots = np.array([1.0, 1000.0])
    flat = np.full((1, 2, 2), SERVICE_S)
    tables = EngineTables(
        (Setting(core_mhz=1000.0),), knots, np.array([0.0, 1000.0]), flat, flat * POWER_W,
        knots, knots, flat, flat * POWER_W, np.array([IDLE_W]), "fitted", "simulated",
    )  # fmt: skip
    return Engine(tables, cache_blocks=1000, most_running=1)


@pytest.mark.parametrize("utilisation", [0.3, 0.7, 0.9])
@pytest.mark.parametrize("tokens", [1, 5])
def test_a_server_that_takes_one_request_at_a_time_waits_as_an_m_d_1_queue_does(utilisation: float, tokens: int) -> None:
    engine, service_s = one_server(), tokens * SERVICE_S
    rate = utilisation / service_s
    requests = poisson(rate, 300_000 / rate, LogNormal(10), LogNormal(tokens), seed=7)
    run = simulate(requests, engine, Fixed(), timeline_s=300_000 / rate / 1000)
    waited = run.finish_s - requests.arrival_s - service_s
    expected = utilisation * service_s / (2 * (1 - utilisation))  # Pollaczek and Khinchine
    assert waited.mean() == pytest.approx(expected, rel=0.03)
    assert (waited < 1e-9).mean() == pytest.approx(1 - utilisation, abs=0.01)
    busy = sum(run.time_s[kind] for kind in ("prefill", "decode", "mixed"))
    assert busy / run.end_s == pytest.approx(utilisation, rel=0.02)
    assert run.total_energy_j == pytest.approx(busy * POWER_W + (run.end_s - busy) * IDLE_W, rel=1e-9)
    line = run.timeline
    assert line is not None
    there = np.average(line.running + line.waiting, weights=line.lasted_s)
    assert there == pytest.approx(rate * (expected + service_s), rel=0.03)  # Little


@settings(max_examples=150, deadline=None)
@given(strategies.integers(1000, 1_000_000))
def test_requests_tokens_time_and_energy_are_conserved(seed: int) -> None:
    case = drawn(seed)
    policy = Whims(len(case.engine.tables.settings), seed)
    run = simulate(case.requests, case.engine, policy, predicted_tokens=case.predicted_tokens)
    assert (run.finish_s >= run.first_token_s).all()
    assert (run.first_token_s > case.requests.arrival_s).all()
    assert run.gap_counts.sum() == (case.requests.output_tokens - 1).sum()
    assert run.end_s == pytest.approx(run.finish_s.max())
    assert sum(run.time_s.values()) == pytest.approx(run.end_s, rel=1e-9)
    assert run.setting_s.sum() == pytest.approx(run.end_s, rel=1e-9)
    steps_s = run.end_s - run.time_s["idle"]
    per_step = (case.engine.tables.decode_time_s.min(), case.engine.tables.decode_time_s.max())
    assert sum(run.steps.values()) * min(per_step[0], case.engine.tables.prefill_time_s.min()) <= steps_s
    idle_w = case.engine.tables.idle_power_w
    assert run.energy_j["idle"] <= run.time_s["idle"] * idle_w.max() * (1 + 1e-9)
    assert run.energy_j["idle"] >= run.time_s["idle"] * idle_w.min() * (1 - 1e-9)
    block = case.engine.block_tokens
    for view in policy.seen:
        held = (-(-(view.running_context + 1) // block)).sum()
        assert 0 <= view.free_blocks <= case.engine.cache_blocks - held
        assert len(view.running_context) <= case.engine.most_running
        if not len(view.running_context) and not len(view.waiting_tokens):
            assert view.free_blocks == case.engine.cache_blocks
