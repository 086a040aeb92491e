from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.requests import Requests
from wastenot.serving.policies.two_loops import TwoLoops
from wastenot.serving.simulation.policy import Fixed, View
from wastenot.serving.simulation.simulate import simulate

DEADLINES = Deadlines(ttft_s=(0.3,), prompt_below=())


def seen(now_s: float, steps: int, decoding: int, *, waiting: tuple[float, ...] = (), setting: int = 0) -> View:
    """An engine with sequences of a thousand tokens, and prompts that have just come."""
    alike, prompts = np.full(decoding, 1000.0), np.array(waiting)
    zeros, at = np.zeros(decoding), np.full(len(prompts), now_s)
    return View(
        now_s, setting, setting, steps, 3000,
        alike, alike, alike, zeros, zeros, zeros, prompts, prompts, np.full(len(prompts), 100.0), at,
    )  # fmt: skip


def begun(engine: Engine, **of: float) -> TwoLoops:
    policy = TwoLoops(**of)  # type: ignore[arg-type]
    policy.begin(engine, DEADLINES)
    return policy


def decode_steps(policy: TwoLoops, step_s: float, steps: int, decoding: int = 16) -> list[int]:
    """What it asks for in a run of steps that all take the same time."""
    return [policy.choose(seen(number * step_s, number, decoding)).setting for number in range(steps)]


def test_prompts_get_the_clock_of_least_energy_that_is_in_time(three_clocks: Engine) -> None:
    tables, chosen = three_clocks.tables, set()
    for tokens in (20.0, 512.0, 2000.0, 3000.0, 3800.0, 4400.0, 8000.0):
        whole, rest = divmod(tokens, 512)
        costs = [
            [
                whole * full + last
                for full, last in zip(tables.prefill(each, 512), tables.prefill(each, max(rest, 1)), strict=True)
            ]
            if rest
            else [whole * full for full in tables.prefill(each, 512)]
            for each in range(3)
        ]
        in_time = [(energy_j, each) for each, (time_s, energy_j) in enumerate(costs) if time_s <= 0.3]
        expected = min(in_time)[1] if in_time else 2
        assert begun(three_clocks).choose(seen(1.0, 5, 0, waiting=(tokens,))).setting == expected
        chosen.add(expected)
    assert len(chosen) >= 2


def test_steps_that_come_close_to_the_bound_raise_the_clock_by_a_step(three_clocks: Engine) -> None:
    fast = decode_steps(begun(three_clocks), 0.030, 40)
    slow = decode_steps(begun(three_clocks), 0.098, 40)
    between = decode_steps(begun(three_clocks), 0.080, 40)
    assert fast[-1] == max(between[-1] - 1, 0)
    assert slow[-1] == between[-1] + 1
    assert max(slow) - min(between[5:]) <= 1  # no further than the band


def test_the_coarse_loop_follows_only_what_it_has_seen_twice(three_clocks: Engine) -> None:
    policy = begun(three_clocks, fine_s=1000.0)
    profiled = [policy._profiled(rate, 1000.0) for rate in (100.0, 1e6)]
    assert profiled[1] == 2  # more than any clock makes
    assert profiled[0] < 2
    decode_steps(policy, 0.02, 50)
    base = policy._base
    policy.choose(seen(1.2, 1_000_000, 16))  # one burst
    assert policy._base == base
    policy.choose(seen(1.5, 3_000_000, 16))
    assert policy._base == 2


def test_the_profile_has_the_least_energy_within_the_bound(three_clocks: Engine) -> None:
    policy, tables = begun(three_clocks), three_clocks.tables
    for batch in (4.0, 16.0, 48.0):
        per_s = batch / tables.decode(1, batch, 1000.0).time_s
        chosen = policy._profiled(per_s, 1000.0)
        found = {}
        for setting in range(3):  # the batch that makes as many tokens per second at each clock
            sizes = np.linspace(1.0, 64.0, 6301)
            cost = [tables.decode(setting, size, 1000.0) for size in sizes]
            at = int(np.argmin([abs(size / one.time_s - per_s) for size, one in zip(sizes, cost, strict=True)]))
            if cost[at].time_s <= 0.095:
                found[setting] = cost[at].energy_j / sizes[at]
        assert found[chosen] <= min(found.values()) * 1.001


def test_a_run_saves_energy_and_no_request_is_lost(three_clocks: Engine) -> None:
    random = np.random.default_rng(3)
    requests = Requests(np.cumsum(random.exponential(0.3, 200)), random.integers(20, 900, 200), random.integers(2, 60, 200))
    requests = replace(requests, prompt_tokens=4 * requests.prompt_tokens)  # some need a clock above the lowest
    steered = simulate(requests, three_clocks, TwoLoops(), deadlines=DEADLINES)
    greatest = simulate(requests, three_clocks, Fixed(), deadlines=DEADLINES)
    assert steered.total_energy_j < greatest.total_energy_j
    assert steered.switches > 10
    assert np.isfinite(steered.finish_s).all()


def test_loops_that_cannot_be_are_refused(three_clocks: Engine) -> None:
    with pytest.raises(BadInputError, match="low"):
        begun(three_clocks, low=1.0, high=0.5)
    with pytest.raises(BadInputError, match="periods"):
        begun(three_clocks, fine_s=0.0)
