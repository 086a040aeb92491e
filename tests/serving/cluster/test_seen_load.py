"""Clocks chosen by rates and mean lengths alone, judged by the step-exact simulator, which knows every request."""

from pathlib import Path

import numpy as np
import pytest

from wastenot.serving.cluster.seen_load import SeenLoad, carried, rule_of
from wastenot.serving.control.recommender import recommended
from wastenot.serving.model.deadlines import LITERATURE, Deadlines
from wastenot.serving.model.profile_file import read_engine
from wastenot.serving.model.requests import Requests
from wastenot.serving.simulation.policy import Fixed
from wastenot.serving.simulation.simulate import simulate

ENGINE = read_engine(Path(__file__).parents[3] / "data" / "serving" / "llama-8b-sim-h200.json").engine()
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
    true_per_s = len(load) / load.arrival_s[-1]
    safe_per_s = true_per_s + 2.0 * (true_per_s / 10.0) ** 0.5  # as from a count over 10 s
    at = int(carried(seen(load, safe_per_s), ENGINE, LITERATURE).cheapest()[0])
    state = carried(seen(load, true_per_s), ENGINE, LITERATURE)
    served, greatest = (simulate(load, ENGINE, Fixed(each), deadlines=LITERATURE) for each in (at, TOP))
    assert served.attainment(LITERATURE) >= 0.99
    assert served.total_energy_j < 0.97 * greatest.total_energy_j  # and it is worth it
    assert state.power_w[at, 0] == pytest.approx(served.total_energy_j / served.end_s, rel=0.06)
    assert state.power_w[TOP, 0] == pytest.approx(greatest.total_energy_j / greatest.end_s, rel=0.06)


def test_more_than_the_engine_can_take_is_said_to_be():
    load = seen(requests(5.0, 100.0), 40.0)
    assert carried(load, ENGINE, LITERATURE).cheapest()[0] == -1
    assert (rule_of(load, ENGINE, LITERATURE).by_batch == TOP).all()


def test_a_load_that_is_not_known_gets_the_greatest_clock():
    rule = rule_of(None, ENGINE, LITERATURE)
    assert (rule.by_batch == TOP).all() and rule.prompts == TOP


def test_a_batch_that_the_load_does_not_explain_gets_the_greatest_clock():
    rule = rule_of(seen(requests(5.0, 100.0), 5.0), ENGINE, LITERATURE)
    assert rule.by_batch[8] < TOP and rule.by_batch[200] == TOP


def test_waiting_prompts_raise_the_clock():
    load = seen(requests(5.0, 100.0), 5.0)
    few, many = (rule_of(load, ENGINE, LITERATURE, waiting=each).prompts for each in (0.0, 200.0))
    assert few < many


def test_more_load_never_lowers_the_least_clock_that_keeps_the_deadlines():
    of = requests(5.0, 100.0)
    rates = np.linspace(0.2, 30.0, 25)
    least = [int(np.append(carried(seen(of, rate), ENGINE, LITERATURE).kept[:, 0] >= 0.99, True).argmax()) for rate in rates]
    assert least == sorted(least) and least[0] < least[-1]


@pytest.mark.parametrize("deadlines", [Deadlines((0.01, 0.01, 0.01)), Deadlines(tbt_s=0.002)])
def test_deadlines_that_cannot_be_kept_leave_the_greatest_clock(deadlines):
    load = seen(requests(5.0, 100.0), 5.0)
    assert carried(load, ENGINE, deadlines).cheapest()[0] == -1


def test_what_is_made_up_has_the_lengths_that_were_seen():
    load = SeenLoad(3.0, 700.0, 2500.0, 150.0, 800.0)
    mix = load.mix()
    assert (mix.prompt, mix.output) == pytest.approx((700.0, 150.0), rel=1e-9)
    assert 0.8 * 2500.0 < mix.prompt_tokens.max() < 1.2 * 2500.0 and mix.share.sum() == pytest.approx(1.0)
    same = SeenLoad(3.0, 64.0, 64.0, 1.0, 64.0).mix()  # prompts all alike
    assert same.prompt == pytest.approx(64.0) and (same.output_tokens == 1.0).sum() > 0


def test_recommended_instances_keep_the_deadlines_and_fewer_do_not():
    rate_per_s = 60.0
    load = seen(requests(5.0, 100.0), rate_per_s)
    found = recommended(load, [ENGINE], LITERATURE)
    assert found.gpus == 1 and 2 < found.instances < 12
    rates = rate_per_s / np.array([found.instances, 2.0])
    assert (carried(load, ENGINE, LITERATURE, rate_per_s=rates).cheapest() >= 0).tolist() == [True, False]
    of_one = requests(rate_per_s / found.instances, 200.0)
    at = ENGINE.tables.settings.index(found.setting)
    served = simulate(of_one, ENGINE, Fixed(at), deadlines=LITERATURE)
    assert served.attainment(LITERATURE) >= 0.99
    assert found.power_w == pytest.approx(found.instances * served.total_energy_j / served.end_s, rel=0.06)


def test_no_number_of_instances_keeps_what_none_can():
    assert recommended(seen(requests(5.0, 100.0), 5.0), [ENGINE], Deadlines((0.01, 0.01, 0.01))) is None
