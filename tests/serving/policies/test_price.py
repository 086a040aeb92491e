"""Our policy, on loads small enough for a test: deadlines first, then energy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from testbed.steered_load import DEADLINES, load
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.requests import Requests, log_normal_lengths
from wastenot.serving.model.step_costs import StepCosts
from wastenot.serving.policies.price import Price, _Steering
from wastenot.serving.simulation.policy import Fixed, View
from wastenot.serving.simulation.simulate import simulate


@pytest.mark.parametrize("rate_per_s", [0.3, 6.0])
def test_attains_and_is_as_good_as_the_best_fixed_clock_but_for_learning_the_load(
    three_clocks: Engine, rate_per_s: float
) -> None:
    requests = load(rate_per_s, 160.0 / rate_per_s**0.5, 1)
    runs = [simulate(requests, three_clocks, Fixed(each), deadlines=DEADLINES) for each in range(3)]
    ours = simulate(requests, three_clocks, Price(), deadlines=DEADLINES)
    assert runs[-1].attainment(DEADLINES) >= 0.99, "the test's load is not too much for the greatest clock"
    assert ours.attainment(DEADLINES) >= 0.985
    attaining = [each.total_energy_j for each in runs if each.attainment(DEADLINES) >= 0.99]
    assert ours.total_energy_j < 1.1 * min(attaining), "it does not know the load beforehand"
    assert ours.total_energy_j < 0.9 * runs[-1].total_energy_j


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_lengths_predicted_wrong_by_a_factor_of_two_cost_no_deadlines(three_clocks: Engine, factor: float) -> None:
    requests = load(4.0, 50.0, 2)
    predicted = log_normal_lengths(requests.output_tokens, sigma=0.4, factor=factor, seed=3)
    ours = simulate(requests, three_clocks, Price(), deadlines=DEADLINES, predicted_tokens=predicted)
    greatest = simulate(requests, three_clocks, Fixed(), deadlines=DEADLINES)
    assert ours.attainment(DEADLINES) >= greatest.attainment(DEADLINES) - 0.01
    assert ours.total_energy_j < 0.9 * greatest.total_energy_j


def test_overload_is_served_at_the_greatest_clock(three_clocks: Engine) -> None:
    requests = load(60.0, 2.0, 3)
    ours = simulate(requests, three_clocks, Price(), deadlines=DEADLINES)
    greatest = simulate(requests, three_clocks, Fixed(), deadlines=DEADLINES)
    assert ours.end_s < 1.15 * greatest.end_s


def test_a_run_does_not_remember_the_one_before(three_clocks: Engine) -> None:
    requests, policy = load(3.0, 30.0, 4), Price()
    first = simulate(requests, three_clocks, policy, deadlines=DEADLINES)
    again = simulate(requests, three_clocks, policy, deadlines=DEADLINES)
    assert first.total_energy_j == again.total_energy_j
    assert first.switches == again.switches > 0


def test_no_more_clocks_than_one_is_a_fixed_clock(three_clocks: Engine) -> None:
    tables = three_clocks.tables
    one = replace(
        tables,
        settings=tables.settings[-1:],
        prefill_time_s=tables.prefill_time_s[-1:],
        prefill_energy_j=tables.prefill_energy_j[-1:],
        decode_time_s=tables.decode_time_s[-1:],
        decode_energy_j=tables.decode_energy_j[-1:],
        idle_power_w=tables.idle_power_w[-1:],
    )
    requests = load(3.0, 30.0, 5)
    served = simulate(requests, replace(three_clocks, tables=one), Price(), deadlines=DEADLINES)
    assert served.switches == 0


def test_costs_at_every_setting_are_those_of_the_tables(three_clocks: Engine) -> None:
    tables, random = three_clocks.tables, np.random.default_rng(6)
    costs = StepCosts(tables)
    for _ in range(50):
        tokens, past, context = random.uniform(1, 2000), random.uniform(0, 4000), random.uniform(1, 8000)
        batch = float(random.integers(1, 64))
        for found, expected in (
            (
                costs.mixed(tokens, past, batch, context),
                [tables.mixed(each, tokens, past, batch, context) for each in range(3)],
            ),
            (costs.mixed(tokens, past, 0.0, 0.0), [tables.prefill(each, tokens, past) for each in range(3)]),
            (costs.decode(batch, context), [tables.decode(each, batch, context) for each in range(3)]),
        ):
            assert found[0] == pytest.approx([each.time_s for each in expected], rel=1e-12)
            assert found[1] == pytest.approx([each.energy_j for each in expected], rel=1e-12)


def test_cells_that_are_not_known_do_not_spoil_a_projection(three_clocks: Engine) -> None:
    tables = three_clocks.tables
    holes = tables.decode_time_s.copy()
    holes[:, -1, -1] = np.nan
    time_s, _ = StepCosts(replace(tables, decode_time_s=holes)).decode(60.0, 8000.0)
    assert np.isfinite(time_s).all()


def test_prompts_that_are_prefilled_whole_miss_few_deadlines(three_clocks: Engine) -> None:
    engine, requests = replace(three_clocks, chunked=False), load(2.0, 100.0, 6)
    loose = replace(DEADLINES, tbt_s=0.2)
    ours = simulate(requests, engine, Price(), deadlines=loose)
    greatest = simulate(requests, engine, Fixed(), deadlines=loose)
    assert ours.attainment(loose) >= greatest.attainment(loose) - 0.03  # prompts that come meanwhile prolong a wait
    assert ours.total_energy_j < 0.9 * greatest.total_energy_j


def test_end_to_end_deadlines_raise_the_clock(three_clocks: Engine) -> None:
    requests = load(2.0, 50.0, 7)
    free = simulate(requests, three_clocks, Price(), deadlines=DEADLINES)
    waited = free.finish_s - requests.arrival_s
    bound = replace(DEADLINES, end_to_end_s=float(np.quantile(waited, 0.97)))
    ours = simulate(requests, three_clocks, Price(), deadlines=bound)
    assert ours.attainment(bound) > free.attainment(bound)


def test_waits_for_prompts_prefilled_whole_are_counted_and_made_good(three_clocks: Engine) -> None:
    engine, requests, loose = replace(three_clocks, chunked=False), load(3.0, 200.0, 11), replace(DEADLINES, tbt_s=0.14)
    ours = simulate(requests, engine, Price(), deadlines=loose)
    assert simulate(requests, engine, Fixed(), deadlines=loose).attainment(loose) >= 0.99
    assert ours.attainment(loose) >= 0.98


def test_answers_of_one_token_are_counted(three_clocks: Engine) -> None:
    requests = load(3.0, 60.0, 13)
    single = Requests(requests.arrival_s, requests.prompt_tokens, np.ones_like(requests.output_tokens))
    ours = simulate(single, three_clocks, Price(), deadlines=DEADLINES)
    greatest = simulate(single, three_clocks, Fixed(), deadlines=DEADLINES)
    assert ours.total_energy_j < 0.97 * greatest.total_energy_j


def test_a_batch_that_would_be_full_at_a_low_clock_is_answered_at_a_higher_one(three_clocks: Engine) -> None:
    narrow = replace(three_clocks, most_running=34)
    random = np.random.default_rng(5)
    count = 250
    requests = Requests(
        np.sort(random.uniform(0, count / 6.0, count)),
        np.full(count, 40, dtype=np.intp),
        random.integers(150, 350, count).astype(np.intp),
    )
    lowest, greatest, ours = (
        simulate(requests, narrow, policy, deadlines=DEADLINES) for policy in (Fixed(0), Fixed(), Price())
    )
    assert lowest.attainment(DEADLINES) < 0.9 and greatest.attainment(DEADLINES) > 0.99
    assert ours.attainment(DEADLINES) >= 0.99


def test_a_batch_that_is_soon_full_raises_the_clock_only_where_the_lowest_cannot_keep_up(three_clocks: Engine) -> None:
    engine = replace(three_clocks, most_running=60)

    def lowest_that_is_left(batches: list[float], rate_per_s: float) -> int:
        """With no prompt waiting, after a batch each second."""
        steering, nothing = _Steering(engine, DEADLINES), np.empty(0)
        came_s = np.arange(0.0, len(batches), 1 / rate_per_s)
        some = np.full(len(came_s), 50.0)
        none = nothing, nothing, nothing
        steering.load.see(View(float(len(batches)), 0, 0, 0, 4000, *none, *none, some, some, 5 * some, came_s))
        for now_s, batch in enumerate(batches):
            some = np.full(round(batch), 50.0)
            view = View(float(now_s), 0, 0, now_s, 4000, some, some, some, *(3 * [nothing]), *(4 * [nothing]))
            steering.prices = steering.prices or steering.renewed(float(len(batches)))
            lowest = steering.floor(view, steering.prices)
        return lowest

    assert lowest_that_is_left([40.0] * 30, 40.0) == 0, "two thirds of what it can hold, and steady"
    assert lowest_that_is_left([2.0 * each for each in range(29)], 40.0) == 2, "soon full, and more come than go"
    assert lowest_that_is_left([2.0 * each for each in range(29)], 0.5) == 0, "it empties at any clock"


@pytest.mark.parametrize(("missed", "rate_per_s", "lowest"), [(8, 9.0, 0), (9, 9.0, 1), (9, 0.3, 0)])
def test_once_misses_are_nearly_used_clocks_are_left_that_would_have_missed_no_more_than_the_greatest(
    three_clocks: Engine, missed: int, rate_per_s: float, lowest: int
) -> None:
    steering, nothing = _Steering(three_clocks, DEADLINES), np.empty(0)
    came = load(rate_per_s, 120.0, 4)
    prompt, output = came.prompt_tokens.astype(float), came.output_tokens.astype(float)
    six = (nothing, nothing, nothing, nothing, nothing, nothing)
    view = View(120.0, 0, 0, 0, 4000, *six, prompt, prompt, output, came.arrival_s)
    steering.load.see(view)
    steering.misses.begun, steering.misses.missed = 1000, missed  # ten may be missed
    assert steering.floor(view, steering.renewed(120.0)) == lowest
