"""What an instance is estimated to do under a steady load, beside what the engine's simulator makes of it step by step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.serving.cluster.frontiers import InstanceFrontier, capacity_at_full_speed, frontier
from wastenot.serving.cluster.levels import levels
from wastenot.serving.cluster.mixes import Mix, mix_of, mix_of_classes
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.simulation.policy import Fixed
from wastenot.serving.simulation.simulate import simulate

DEADLINES = Deadlines(ttft_s=(0.3, 0.6), prompt_below=(256,), tbt_s=0.06)


@pytest.fixture(scope="module")
def mix() -> Mix:
    return mix_of(poisson(10.0, 200.0, LogNormal(300, 0.7, 3000), LogNormal(80, 0.6, 500), seed=3))


@pytest.fixture(scope="module")
def found(three_clocks: Engine, mix: Mix) -> InstanceFrontier:
    return frontier(three_clocks, mix, DEADLINES, points=4)


@pytest.mark.parametrize("setting", [0, 2])
@pytest.mark.parametrize("rate_per_s", [0.5, 3.0, 7.0])
def test_the_estimate_agrees_with_steps_one_by_one(three_clocks: Engine, mix: Mix, setting: int, rate_per_s: float) -> None:
    found = levels(three_clocks, mix, DEADLINES, np.array([rate_per_s]))
    requests = mix.draw(rate_per_s, 3000 / rate_per_s, seed=1)
    served = simulate(requests, three_clocks, Fixed(setting))
    decoding_s = served.finish_s - served.first_token_s
    assert found.power_w[setting, 0] == pytest.approx(served.total_energy_j / served.end_s, rel=0.05)
    assert found.batch[setting, 0] == pytest.approx(decoding_s.sum() / served.end_s, rel=0.1)
    assert found.tbt_s[setting, 0] == pytest.approx(decoding_s.sum() / (requests.output_tokens - 1).sum(), rel=0.1)
    waited_s = float((served.first_token_s - requests.arrival_s).mean())
    assert found.ttft_s[setting, 0] == pytest.approx(waited_s, rel=0.25)


def test_more_load_keeps_fewer_deadlines_at_more_power(three_clocks: Engine, mix: Mix) -> None:
    found = levels(three_clocks, mix, DEADLINES, np.linspace(0.1, 40.0, 60))
    assert (np.diff(found.power_w, axis=1) > -1e-6 * found.power_w[:, 1:]).all()
    assert (np.diff(found.batch, axis=1) > 0).all()
    assert found.kept[2, 0] > 0.99
    assert found.kept[:, -1].max() < 0.99
    capacity = found.capacity()
    assert (np.diff(capacity) >= 0).all()
    assert capacity[-1] > 1.0


def test_the_cheapest_clock_keeps_deadlines_at_least_power(three_clocks: Engine, mix: Mix) -> None:
    found = levels(three_clocks, mix, DEADLINES, np.linspace(0.1, 20.0, 60))
    for place, best in enumerate(found.cheapest()):
        good = np.flatnonzero(found.kept[:, place] >= 0.99)
        if best < 0:
            assert not len(good)
        else:
            assert best in good
            assert found.power_w[best, place] == found.power_w[good, place].min()


def test_levels_are_kept_by_requests_that_they_were_not_made_with(
    three_clocks: Engine, mix: Mix, found: InstanceFrontier
) -> None:
    assert found.capacity_per_s > 1.0
    assert (np.diff(found.rate_per_s) > 0).all()
    for rate_per_s, setting, power_w in zip(found.rate_per_s[:3], found.setting, found.power_w, strict=False):
        served = simulate(mix.draw(rate_per_s, 3000 / rate_per_s, seed=77), three_clocks, Fixed(int(setting)))
        assert served.attainment(DEADLINES) > 0.98
        assert served.total_energy_j / served.end_s == pytest.approx(power_w, rel=0.05)
    beyond = mix.draw(1.4 * found.capacity_per_s, 300.0, seed=77)
    assert simulate(beyond, three_clocks, Fixed()).attainment(DEADLINES) < 0.99


def test_a_level_takes_all_rates_below_it(found: InstanceFrontier) -> None:
    assert found.power_at(float(found.rate_per_s[1])) == pytest.approx(found.power_w[1])
    assert np.isinf(found.power_at(2 * found.capacity_per_s))


def test_an_engine_that_is_too_slow_has_no_levels(three_clocks: Engine, mix: Mix) -> None:
    never = Deadlines(ttft_s=(0.001,), prompt_below=())
    assert frontier(three_clocks, mix, never).capacity_per_s == capacity_at_full_speed(three_clocks, mix, never) == 0.0


def test_the_capacity_by_itself_is_that_of_the_levels(three_clocks: Engine, mix: Mix, found: InstanceFrontier) -> None:
    assert capacity_at_full_speed(three_clocks, mix, DEADLINES) == pytest.approx(found.capacity_per_s, rel=1e-12)
    small = replace(three_clocks, most_running=2)
    assert capacity_at_full_speed(small, mix, DEADLINES) < found.capacity_per_s


def test_a_mix_keeps_the_means_of_its_classes() -> None:
    rate, prompt, output = np.zeros(9), np.zeros(9), np.zeros(9)
    rate[[0, 8]], prompt[[0, 8]], output[[0, 8]] = (3.0, 1.0), (100.0, 2500.0), (40.0, 700.0)
    mix = mix_of_classes(rate, prompt, output)
    classes = mix.classes()
    assert set(classes.tolist()) == {0, 8}
    assert mix.share[classes == 0].sum() == pytest.approx(0.75)
    for number in (0, 8):
        share = mix.share[classes == number] / mix.share[classes == number].sum()
        assert share @ mix.prompt_tokens[classes == number] == pytest.approx(prompt[number], rel=0.1)
        assert share @ mix.output_tokens[classes == number] == pytest.approx(output[number], rel=0.1)


def test_what_is_no_mix_is_refused() -> None:
    one = np.array([1.0])
    with pytest.raises(BadInputError, match="sum to 1"):
        Mix(one, one, np.array([0.5]))
    with pytest.raises(BadInputError, match="at least one kind"):
        Mix(one, one, np.zeros(0))
    with pytest.raises(BadInputError, match="no class has requests"):
        mix_of_classes(np.zeros(9), np.zeros(9), np.zeros(9))
