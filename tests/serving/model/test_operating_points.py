"""What an engine can be set to, beside brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wastenot.core.setting import Setting
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.engine_tables import EngineTables, OutsideProfileError
from wastenot.serving.model.operating_points import operating_points, prefill_points, usual_batches, usual_context
from wastenot.serving.model.profile_file import EngineProfile


def made(gpus: int, seed: int = 0) -> Engine:
    rng = np.random.default_rng(seed + gpus)
    times = np.sort(rng.uniform(0.01, 0.05, (4, 3, 2)), axis=1)
    tables = EngineTables(
        settings=tuple(Setting(core_mhz=clock) for clock in (600.0, 900.0, 1200.0, 1500.0)),
        prefill_tokens=np.array([1.0, 4096.0]),
        past_tokens=np.array([0.0, 4096.0]),
        prefill_time_s=rng.uniform(0.1, 0.5, (4, 2, 2)),
        prefill_energy_j=rng.uniform(10.0, 50.0, (4, 2, 2)),
        batches=np.array([1.0, 16.0, 48.0]),
        context_tokens=np.array([0.0, 2048.0]),
        decode_time_s=times,
        decode_energy_j=times * rng.uniform(100.0, 300.0, (4, 3, 2)),
        idle_power_w=np.full(4, 50.0),
        source="fitted",
        evidence="simulated",
    )
    return Engine(tables, cache_blocks=10_000, gpus=gpus, overhead_s=0.001)


@pytest.mark.parametrize("seed", range(5))
def test_frontier_and_least_by_brute_force(seed: int) -> None:
    points = operating_points(EngineProfile((made(1, seed), made(2, seed))))
    assert len(points) == 2 * 4 * 7
    for point in points:
        beaten = any(
            other.latency_s <= point.latency_s
            and other.energy_per_token_j <= point.energy_per_token_j
            and (other.latency_s, other.energy_per_token_j) != (point.latency_s, point.energy_per_token_j)
            for other in points
        )
        assert point.on_frontier == (not beaten)
        like = [each for each in points if (each.gpus, each.batch) == (point.gpus, point.batch)]
        assert point.is_least == (point.energy_per_token_j == min(each.energy_per_token_j for each in like))


def test_a_point_is_a_step_with_the_host() -> None:
    engine = made(1)
    point = operating_points(EngineProfile((engine,)), context=700, batches=[5])[1]
    cost = engine.tables.decode(1, 5, 700)
    assert point.latency_s == pytest.approx(cost.time_s + 0.001)
    assert point.energy_per_token_j == pytest.approx((cost.energy_j + 0.05) / 5)
    assert point.power_w == pytest.approx((cost.energy_j + 0.05) / (cost.time_s + 0.001))


def test_what_is_not_covered_or_does_not_fit_is_left_out() -> None:
    small = replace(made(1), cache_blocks=16 * 65)  # 16 sequences of 1,024 tokens and one more
    assert {each.batch for each in operating_points(EngineProfile((small,)))} == {1, 2, 4, 8, 16}
    with pytest.raises(OutsideProfileError, match="5000 tokens"):
        operating_points(EngineProfile((small,)), context=5000)
    assert usual_batches(small) == (1, 2, 4, 8, 16, 32, 48)
    assert usual_context(EngineProfile((small,))) == 1024


def test_prefill_points() -> None:
    engine = made(1)
    points = prefill_points(EngineProfile((engine,)))
    assert {each.tokens for each in points} == {128, 512, 2048}
    assert sum(each.is_least for each in points) == 3
    assert points[0].time_s == engine.tables.prefill(0, 128).time_s
