from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from testbed.plain_engine import plainly_served
from testbed.random_serving import Whims, drawn
from wastenot.core.errors import BadInputError
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.model.requests import Requests
from wastenot.serving.simulation.apart import Link, simulate_apart
from wastenot.serving.simulation.policy import Fixed
from wastenot.serving.simulation.simulate import simulate


@pytest.mark.parametrize("seed", range(0, 200, 5))
def test_two_engines_are_two_plain_ones_with_a_link_between_them(seed: int) -> None:
    one, other, random = drawn(seed), drawn(seed + 1), np.random.default_rng(seed)
    requests = one.requests
    decoder = replace(other.engine, cache_blocks=200, block_tokens=one.engine.block_tokens)
    link = Link(tokens_per_s=float(random.choice([100.0, 1e4])), latency_s=0.003)

    def whims(engine: Engine) -> Whims:
        return Whims(len(engine.tables.settings), seed)

    run = simulate_apart(requests, (one.engine, whims(one.engine)), (decoder, whims(decoder)), link, deadlines=one.deadlines)

    firsts = replace(requests, output_tokens=np.ones(len(requests), dtype=np.intp))
    predicted = requests.output_tokens.astype(float)
    first = plainly_served(firsts, one.engine, whims(one.engine), deadlines=one.deadlines, predicted_tokens=predicted)
    free_s, came = 0.0, []
    for index in sorted(range(len(requests)), key=lambda each: first.first_token_s[each]):
        if requests.output_tokens[index] > 1:
            begin_s = max(free_s, first.first_token_s[index])
            free_s = begin_s + 0.003 + requests.prompt_tokens[index] / link.tokens_per_s
            came.append((index, free_s))
    kept, caches = [index for index, _ in came], np.array([at for _, at in came])
    np.testing.assert_allclose(run.prefill.first_token_s, first.first_token_s, rtol=1e-9)
    np.testing.assert_allclose(run.cache_s[kept], caches, rtol=1e-9)
    if not kept:
        assert run.decode is None
        return
    second = plainly_served(
        Requests(caches, requests.prompt_tokens[kept], requests.output_tokens[kept]),
        decoder, whims(decoder), deadlines=one.deadlines, predicted_tokens=predicted[kept],
        first_token_s=first.first_token_s[kept],
    )  # fmt: skip
    np.testing.assert_allclose(run.finish_s[kept], second.finish_s, rtol=1e-9)
    np.testing.assert_array_equal(run.late_tokens[kept], second.late_tokens)
    np.testing.assert_allclose(run.longest_gap_s[kept], second.longest_gap_s, rtol=1e-9)
    assert run.total_energy_j == pytest.approx(first.total_energy_j + second.total_energy_j + run.idle_energy_j, rel=1e-9)
    alone = [index for index in range(len(requests)) if requests.output_tokens[index] == 1]
    np.testing.assert_allclose(run.finish_s[alone], first.finish_s[alone], rtol=1e-9)


def test_tokens_do_not_wait_for_prompts_where_prefill_and_decode_are_apart(three_clocks: Engine) -> None:
    requests = poisson(4.0, 120.0, LogNormal(500, 0.5, most=4000), LogNormal(60, 0.5), seed=2)
    deadlines = Deadlines(tbt_s=0.03)
    whole = replace(three_clocks, chunked=False, most_step_tokens=4096)
    together = simulate(requests, whole, Fixed(), deadlines=deadlines)
    apart = simulate_apart(requests, (whole, Fixed()), (whole, Fixed()), Link(1e6), deadlines=deadlines)
    assert apart.decode is not None
    assert np.percentile(apart.longest_gap_s, 90) < 0.5 * np.percentile(together.longest_gap_s, 90)
    assert apart.attainment(deadlines) > together.attainment(deadlines)
    assert apart.decode.steps["prefill"] == apart.decode.steps["mixed"] == 0
    assert apart.prefill.steps["decode"] == 0
    assert apart.end_s == max(apart.finish_s)
    assert apart.energy_per_token_j == apart.total_energy_j / requests.output_tokens.sum()
    idle_w = whole.tables.idle_power_w[-1]
    assert apart.idle_energy_j == pytest.approx(idle_w * abs(apart.prefill.end_s - apart.decode.end_s))
    strict = replace(deadlines, end_to_end_s=float(np.median(apart.finish_s - requests.arrival_s)))
    assert apart.attainment(strict) <= 0.5


def test_answers_of_a_single_token_need_no_second_engine(three_clocks: Engine) -> None:
    requests = poisson(2.0, 20.0, LogNormal(100), LogNormal(1), seed=2)
    run = simulate_apart(requests, (three_clocks, Fixed()), (three_clocks, Fixed()), Link(1e6))
    assert run.decode is None
    np.testing.assert_array_equal(run.finish_s, run.prefill.first_token_s)
    assert run.end_s == run.prefill.end_s
    assert run.total_energy_j == run.prefill.total_energy_j


def test_a_link_that_carries_nothing_is_refused() -> None:
    for speed, latency in ((0.0, 0.0), (1.0, -1.0), (float("nan"), 0.0)):
        with pytest.raises(BadInputError, match="a link must carry more than 0 tokens"):
            Link(speed, latency)
