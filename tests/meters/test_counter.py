"""Following a counter that is slow to read, on a clock that the test holds."""

import numpy as np
import pytest

from testbed.metered_windows import PERIOD_S, FakeDevice, FakeSensors, Power, constant
from wastenot.meters.counter import StepFollower


def followed(sensors, seconds, *, late=None):
    """Polls a follower when it asks for it, or later."""
    follower = StepFollower(FakeDevice(sensors), lambda: sensors.now_s)
    end = sensors.now_s + seconds
    while sensors.now_s < end:
        sensors.now_s = max(sensors.now_s, follower.due_s) + (late() if late else 0.0)
        follower.poll()
    return follower


def true_steps(sensors, moments):
    return sensors.phase_s + np.round((moments - sensors.phase_s) / PERIOD_S) * PERIOD_S


@pytest.mark.parametrize("read_s", [1e-5, 0.003, 0.015])
def test_steps_are_where_it_says_and_energies_those_of_the_counter(read_s):
    sensors = FakeSensors(constant(None, 100.0), read_s=read_s)
    steps = followed(sensors, 20.0).log.steps(0.0, 100.0)
    away = steps.moment_s - true_steps(sensors, steps.moment_s)
    assert len(steps.moment_s) >= 198
    assert np.all(np.abs(away) <= 0.5 * steps.width_s + 1e-6)
    assert np.median(steps.width_s) < 1.3 * read_s + 0.002
    assert abs(np.mean(away)) < 0.1 * np.median(steps.width_s)
    usual = steps.width_s < 1.5 * np.median(steps.width_s)
    assert np.mean(usual) > 0.95
    assert np.std(away[usual]) == pytest.approx(np.median(steps.width_s) / np.sqrt(12.0), rel=0.35)
    assert steps.energy_j == pytest.approx(sensors.power.used_j(true_steps(sensors, steps.moment_s)))


def test_a_counter_known_to_be_late_is_logged_for_the_time_it_tells_of():
    sensors = FakeSensors(constant(None, 100.0))
    sensors.energy_delay_s = 0.04
    steps = followed(sensors, 5.0).log.steps(0.0, 100.0)
    moments = steps.moment_s + 0.04
    assert np.all(np.abs(moments - true_steps(sensors, moments)) <= 0.5 * steps.width_s + 1e-6)


def test_it_reads_the_counter_seldom():
    sensors = FakeSensors(constant(None, 100.0))
    followed(sensors, 20.0)
    assert sensors.reads < 3.2 * 200


def test_the_step_before_the_first_is_put_back():
    sensors = FakeSensors(Power([0.0, 100.0], [300.0]))
    began = sensors.now_s
    assert followed(sensors, 0.5).log.steps(0.0, 100.0).moment_s[0] < began


def test_coming_late_now_and_then_widens_nothing_for_long():
    rng = np.random.default_rng(1)
    sensors = FakeSensors(constant(None, 100.0))
    follower = followed(sensors, 30.0, late=lambda: float(rng.exponential(0.002) + 0.03 * (rng.random() < 0.02)))
    steps = follower.log.steps(0.0, 100.0)
    away = steps.moment_s - true_steps(sensors, steps.moment_s)
    assert np.mean(np.abs(away) <= 0.5 * steps.width_s + 1e-4) > 0.98
    assert np.quantile(steps.width_s, 0.9) < 0.03


def test_after_a_pause_it_goes_on():
    sensors = FakeSensors(constant(None, 100.0))
    follower = followed(sensors, 2.0)
    before = follower.log.last_step_s()
    sensors.now_s += 20.0
    follower.restart()
    while sensors.now_s < 34.0:
        sensors.now_s = max(sensors.now_s, follower.due_s)
        follower.poll()
    steps = follower.log.steps(0.0, 100.0)
    assert np.all(np.diff(steps.moment_s) > 0.0)
    assert np.all(np.diff(steps.energy_j) > 0.0)
    assert np.max(np.diff(steps.moment_s)) == pytest.approx(sensors.now_s - before - 2.0, abs=0.5)


def test_a_counter_that_stands_still_is_looked_at_now_and_then():
    sensors = FakeSensors(Power([0.0, 100.0], [0.0]))
    followed(sensors, 20.0)
    assert sensors.reads < 1200
    assert followed(FakeSensors(Power([0.0, 100.0], [0.0])), 5.0).log.last_step_s() is None


def test_without_a_counter_the_gauge_is_sampled():
    follower = followed(FakeSensors(constant(None, 100.0), counter=False), 5.0)
    assert follower.has_counter is False
    assert 80 <= np.count_nonzero(~np.isnan(follower.log.samples(0.0, 100.0).power_w)) <= 120


def test_the_log_forgets_what_is_old():
    follower = followed(FakeSensors(constant(None, 100.0)), 20.0)
    follower.log.forget(25.0)
    steps = follower.log.steps(0.0, 100.0)
    assert 20.0 < steps.moment_s[0] < 25.0
