"""Intervals of pairs, bounds for looking again and again, and the rungs of a ladder."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import t

from wastenot.control.estimate import Noise, boundary, log_mean, student_t
from wastenot.control.ladder import Ladder
from wastenot.planning.schedule import Rung, Segment


@pytest.mark.parametrize("freedom", [1, 2, 5, 19, 20, 21, 30, 100, 1000])
def test_students_t(freedom):
    assert student_t(freedom) == pytest.approx(t.ppf(0.975, freedom), rel=2e-4)


@pytest.mark.parametrize("pairs", [2, 3, 5, 12, 60])
def test_intervals_of_few_and_many_pairs_hold_the_truth(pairs):
    draws = np.random.default_rng(pairs).normal(-0.05, 0.004, (2000, pairs))
    means = [log_mean(row.tolist()) for row in draws]
    held = np.mean([abs(one.mean + 0.05) <= one.half for one in means])
    assert 0.935 <= held <= 0.965


def test_one_pair_says_nothing():
    assert log_mean([0.1]) is None


def test_a_bound_for_endless_looks_is_rarely_crossed():
    steps = np.random.default_rng(1).normal(0.0, 1.0, (1000, 2000))
    count = np.arange(1, 2001)
    limit = np.array([boundary(float(n), 0.05) for n in count]) / np.sqrt(count)
    crossed = (np.cumsum(steps, axis=1) / count > limit).any(axis=1)
    assert 0.0 < crossed.mean() <= 0.05


def test_noise_counts_the_correlation_of_neighbours():
    rng, noise, state = np.random.default_rng(2), Noise(), 0.0
    values = []
    for _ in range(4000):
        state = 0.3 * state + np.sqrt(1 - 0.09) * float(rng.standard_normal())
        values.append(float(np.exp(0.01 * state)))
    for before, after in pairwise(values):
        noise.learn(before, after)
    means = np.log(values).reshape(-1, 16).mean(axis=1)
    assert noise.of_mean(16) == pytest.approx(means.var(), rel=0.5)


def rungs(*changes):
    def rung(core_mhz, time_change, energy_change):
        segment = Segment(
            begins="iteration",
            offset_s=0.0,
            core_mhz=core_mhz,
            memory_mhz=None,
            power_limit_w=None,
            early_s=0.0,
            time_s=1.0,
            energy_j=1.0,
        )
        return Rung(segments=(segment,), time_s=1.0, energy_j=1.0, time_change=time_change, energy_change=energy_change)

    return (*(rung(1000.0, *each) for each in changes), rung(None, 0.0, 0.0))


LADDER = rungs((0.02, -0.10), (0.01, -0.08), (0.005, -0.05))


def test_a_step_goes_as_far_as_the_excess_needs():
    for slowdown, expected in ((0.033, 1), (0.05, 2), (0.2, 3)):
        ladder = Ladder(LADDER, 0.03)
        ladder.step(slowdown)
        assert ladder.present == expected


def test_a_step_back_waits_for_room_and_longer_each_time_that_it_failed():
    ladder = Ladder(LADDER, 0.03)
    ladder.step(0.04)
    assert ladder.present == 1
    waited = []
    for _ in range(4):
        ran = 0
        while not ladder.back(0.011, 20):
            ladder.ran(50)
            ran += 50
        waited.append(ran)
        ladder.ran(50)
        ladder.step(0.04)
    assert waited[1:] == [2 * each for each in waited[:-1]]
    ladder.ran(10**6)
    assert not ladder.back(0.035, 20)  # no room
    assert not ladder.back(0.011, 2)  # little evidence
