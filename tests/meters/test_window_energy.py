"""Energy of windows from steps of a counter, against exact integrals."""

import numpy as np
import pytest

from testbed.metered_windows import Power, alternating, constant, counted, near, telegraph
from wastenot.meters.window_energy import AFTER, BEFORE, SHORT, Steps, window_energy

LOG_S = 40.0


def gauge_scatter(power, rng):
    """By how much readings of a gauge over 25 ms scatter in steps, as a log would tell it."""
    ends = rng.uniform(1.0, LOG_S, 200)
    readings = (power.used_j(ends) - power.used_j(ends - 0.025)) / 0.025
    steps = (power.used_j(ends + 0.03) - power.used_j(ends - 0.07)) / 0.1
    return 0.5 * np.median(np.abs(readings - steps)) / 0.6745


def errors_of(make, length_s, windows=1000, seed=0, gauge=False):
    """Error of each of many windows at random moments, by what was stated and by the truth."""
    rng = np.random.default_rng(seed)
    stated, relative = [], []
    for _ in range(10):
        power = make(rng, LOG_S)
        steps = counted(power, rng, LOG_S)
        scatter = gauge_scatter(power, rng) if gauge else 0.0
        for _ in range(windows // 10):
            length = rng.uniform(*length_s)
            begin = rng.uniform(2.0, LOG_S - 2.0 - length)
            end = begin + length
            found = window_energy(near(steps, begin, end), begin, end, gauge_scatter_w=scatter)
            truth = power.between_j(begin, begin + length)
            stated.append((found.energy_j - truth) / found.error_j)
            relative.append(found.energy_j / truth - 1.0)
    return np.array(stated), np.array(relative)


@pytest.mark.parametrize("make", [constant, alternating(3.0, 100, 600), telegraph(1.0, 100, 600)])
def test_stated_intervals_hold_the_truth_as_often_as_they_say(make):
    held = [np.mean(np.abs(errors_of(make, length_s)[0]) <= 1.96) for length_s in ((0.3, 0.6), (1.0, 1.0), (5.0, 5.0))]
    assert min(held) >= 0.90
    assert 0.93 <= np.mean(held) <= 0.98


@pytest.mark.parametrize("make", [alternating(0.02, 100, 300), alternating(0.25, 100, 300), alternating(1.0, 100, 300)])
@pytest.mark.parametrize("length_s", [(0.02, 0.09), (1.0, 5.0)])
def test_where_power_varies_within_steps_they_hold_it_no_less_often(make, length_s):
    # What happens within steps leaves no trace in the counter; the gauge tells.
    stated, _ = errors_of(make, length_s, seed=1, gauge=True)
    assert np.mean(np.abs(stated) <= 1.96) >= 0.90


@pytest.mark.parametrize("make", [constant, alternating(1.0, 100, 300), telegraph(0.5, 100, 600)])
def test_windows_agree_with_the_truth(make):
    _, second = errors_of(make, (1.0, 1.0))
    _, five = errors_of(make, (5.0, 5.0))
    assert np.quantile(np.abs(second), 0.99) < 0.05
    assert np.quantile(np.abs(five), 0.99) < 0.01
    assert abs(np.mean(second)) < 0.002 and abs(np.mean(five)) < 0.001


def test_a_load_that_begins_and_ends_with_the_window_is_its_own():
    rng = np.random.default_rng(2)
    plain, found_errors = [], []
    for _ in range(300):
        begin, length = rng.uniform(1.0, 2.0), rng.uniform(0.8, 1.2)
        power = Power([0.0, begin, begin + length, 6.0], [79.0, 650.0, 79.0])
        steps = counted(power, rng, 5.0)
        truth = 650.0 * length
        found_errors.append(window_energy(near(steps, begin, begin + length), begin, begin + length).energy_j / truth - 1.0)
        plain.append(np.diff(np.interp([begin, begin + length], steps.moment_s, steps.energy_j))[0] / truth - 1.0)
    assert np.mean(plain) < -0.02  # what straight lines between the steps would say
    assert abs(np.mean(found_errors)) < 0.004
    assert np.quantile(np.abs(found_errors), 0.95) < 0.01


@pytest.mark.parametrize("length_s", [1e-6, 0.001, 0.01, 0.05, 0.12])
def test_short_windows_are_estimated_with_an_error_that_holds(length_s):
    rng = np.random.default_rng(3)
    for _ in range(200):
        begin = rng.uniform(1.0, 2.0)
        power = Power([0.0, begin, begin + length_s, 6.0], [79.0, 650.0, 79.0])
        found = window_energy(near(counted(power, rng, 4.0), begin, begin + length_s), begin, begin + length_s)
        assert found.energy_j > 0.0
        assert length_s > 0.1 or SHORT in found.flags
        assert abs(found.energy_j - 650.0 * length_s) <= 3.0 * found.error_j + 0.3


def test_windows_that_follow_each_other_add_up():
    rng = np.random.default_rng(4)
    for _ in range(200):
        power = telegraph(0.7, 100, 600)(rng, LOG_S)
        steps = counted(power, rng, LOG_S)
        begin, middle, end = 5.0 + np.sort(rng.uniform(0.0, 20.0, 3))
        if min(middle - begin, end - middle) < 0.35:
            continue
        parts = [window_energy(steps, *edges).energy_j for edges in ((begin, middle), (middle, end))]
        whole = window_energy(steps, begin, end)
        # But for what is taken as the sensor's noise, which the steps around tell, they are the same to the last digit.
        assert sum(parts) == pytest.approx(whole.energy_j, abs=0.5 * whole.error_j)


def test_a_gauge_that_sees_power_vary_within_steps_widens_the_error():
    rng = np.random.default_rng(5)
    steps = counted(alternating(0.02, 100, 300)(rng, 10.0), rng, 10.0)
    without = window_energy(near(steps, 3.03, 4.04), 3.03, 4.04)
    told = window_energy(near(steps, 3.03, 4.04), 3.03, 4.04, gauge_scatter_w=60.0)
    assert told.energy_j == without.energy_j
    assert told.error_j > without.error_j


def test_what_lies_beyond_the_steps_is_guessed_and_said():
    steps = Steps(np.array([1.0, 1.1, 1.2, 1.3, 1.4]), np.full(5, 0.003), np.arange(5) * 20.0)
    inside = window_energy(steps, 1.05, 1.35)
    early = window_energy(steps, 0.5, 1.35)
    late = window_energy(steps, 1.05, 2.0)
    assert inside.flags == ()
    assert early.flags == (BEFORE,) and late.flags == (AFTER,)
    assert early.energy_j == pytest.approx(170.0, rel=0.01) and early.error_j > 40.0
    assert late.energy_j == pytest.approx(190.0, rel=0.01) and late.error_j > 60.0


@pytest.mark.parametrize("count", [0, 1])
def test_without_steps_nothing_is_known(count):
    assert window_energy(Steps(np.ones(count), np.zeros(count), np.ones(count)), 1.0, 2.0) is None


def test_power_before_the_first_step_is_told_by_a_neighbour():
    """The first window of a program begins in the first step that was seen: the gauge told what was before."""
    begin = 1.05
    power = Power([0.0, begin, 10.0], [79.0, 650.0])
    moments = np.array([1.0, 1.1, 1.2, 1.3, 1.4, 1.5])
    steps = Steps(moments, np.full(6, 0.003), power.used_j(moments))
    alone = window_energy(steps, begin, 1.45)
    told = window_energy(steps, begin, 1.45, left_w=79.0, right_w=650.0)
    truth = power.between_j(begin, 1.45)
    assert abs(told.energy_j - truth) < 0.5 < abs(alone.energy_j - truth)
