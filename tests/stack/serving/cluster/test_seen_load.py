"""Clocks chosen by rates and mean lengths alone, judged by the step-exact simulator, which knows every request."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from wastenot.stack.serving.cluster.recommended import recommended
from wastenot.stack.serving.cluster.seen_load import SeenLoad, carried, rule_of
from wastenot.stack.serving.deadlines import LITERATURE, Deadlines
from wastenot.stack.serving.policies.costs import StepCosts
from wastenot.stack.serving.profile_file import read_engine
from wastenot.stack.serving.requests import Requests
from wastenot.stack.serving.simulation.policy import Fixed
from wastenot.stack.serving.simulation.simulate import simulate

ENGINE = read_engine(Path(__file__).parents[4] / "data" / "serving" / "llama-8b-sim-h200.json").engine()
COSTS = StepCosts(ENGINE.tables)
TOP = len(ENGINE.tables.settings) - 1


def requests(rate_per_s, seconds, seed=0):
    rng = np.random.default_rng(seed)
    count = int(rate_per_s * seconds)
    came_s = np.cumsum(rng.exponential(1.0 / rate_per_s, count))
    return Requests(came_s, rng.integers(200, 1800, count), 1 + rng.exponential(200.0, count).astype(int))


def seen(of, rate_per_s):
    prompt, output = float(of.prompt_tokens.mean()), float(of.output_tokens.mean())
    return SeenLoad(rate_per_s, prompt, float(np.quantile(of.prompt_tokens, 0.99)), output, prompt + output / 2.0)


@pytest.mark.parametrize("rate_per_s", [0.5, 2.0, 5.0, 10.0, 15.0, 20.0])
def test_the_clock_keeps_the_deadlines_and_draws_what_was_predicted(rate_per_s):
    load = requests(rate_per_s, max(200.0, 400.0 / rate_per_s))
    state = carried(seen(load, len(load) / load.arrival_s[-1]), ENGINE, COSTS, LITERATURE)
    at = state.cheapest()
    served, greatest = (simulate(load, ENGINE, Fixed(each), deadlines=LITERATURE) for each in (at, TOP))
    assert served.attainment(LITERATURE) >= 0.99
    assert served.total_energy_j < 0.97 * greatest.total_energy_j  # and it is worth it
    assert state.power_w[at] == pytest.approx(served.total_energy_j / served.end_s, rel=0.06)
    assert state.power_w[TOP] == pytest.approx(greatest.total_energy_j / greatest.end_s, rel=0.06)


def test_more_than_the_engine_can_take_is_said_to_be():
    load = seen(requests(5.0, 100.0), 40.0)
    assert carried(load, ENGINE, COSTS, LITERATURE).cheapest() is None
    assert (rule_of(load, ENGINE, COSTS, LITERATURE).by_batch == TOP).all()


def test_a_load_that_is_not_known_gets_the_greatest_clock():
    rule = rule_of(None, ENGINE, COSTS, LITERATURE)
    assert (rule.by_batch == TOP).all() and rule.prompts == TOP


def test_a_batch_that_the_load_does_not_explain_gets_the_greatest_clock():
    rule = rule_of(seen(requests(5.0, 100.0), 5.0), ENGINE, COSTS, LITERATURE)
    assert rule.by_batch[8] < TOP and rule.by_batch[200] == TOP


def test_waiting_prompts_raise_the_clock():
    load = seen(requests(5.0, 100.0), 5.0)
    few, many = (rule_of(load, ENGINE, COSTS, LITERATURE, waiting=each).prompts for each in (0.0, 200.0))
    assert few < many


def test_more_load_never_lowers_the_least_clock_that_keeps_the_deadlines():
    of = requests(5.0, 100.0)
    rates = np.linspace(0.2, 30.0, 25)
    least = [int(np.append(carried(seen(of, rate), ENGINE, COSTS, LITERATURE).keeps, True).argmax()) for rate in rates]
    assert least == sorted(least) and least[0] < least[-1]


@pytest.mark.parametrize("deadlines", [Deadlines((0.01, 0.01, 0.01)), Deadlines(tbt_s=0.002)])
def test_deadlines_that_cannot_be_kept_leave_the_greatest_clock(deadlines):
    load = seen(requests(5.0, 100.0), 5.0)
    assert carried(load, ENGINE, COSTS, deadlines).cheapest() is None


def test_prompts_that_are_not_chunked_hold_up_those_who_decode():
    load = seen(requests(5.0, 100.0), 5.0)
    chunked = carried(load, ENGINE, COSTS, LITERATURE).keeps
    whole = carried(load, replace(ENGINE, chunked=False), COSTS, LITERATURE).keeps
    assert (chunked | ~whole).all()


def test_recommended_instances_keep_the_deadlines_and_fewer_do_not():
    rate_per_s = 60.0
    load = seen(requests(5.0, 100.0), rate_per_s)
    found = recommended(load, [ENGINE], LITERATURE)
    assert found.gpus == 1 and 2 < found.instances < 12
    shares = [carried(load.times(1.0 / count), ENGINE, COSTS, LITERATURE) for count in (found.instances, 2)]
    assert shares[0].keeps.any() and not shares[1].keeps.any()
    of_one = requests(rate_per_s / found.instances, 200.0)
    at = ENGINE.tables.settings.index(found.setting)
    served = simulate(of_one, ENGINE, Fixed(at), deadlines=LITERATURE)
    assert served.attainment(LITERATURE) >= 0.99
    assert found.power_w == pytest.approx(found.instances * served.total_energy_j / served.end_s, rel=0.06)


def test_no_number_of_instances_keeps_what_none_can():
    assert recommended(seen(requests(5.0, 100.0), 5.0), [ENGINE], Deadlines((0.01, 0.01, 0.01))) is None
