"""How fast a sensor is, on virtual time."""

import math

import pytest

from wastenot.meters.sensors.probe import probe


class Time:
    """Virtual time, that only reads and sleeps let pass."""

    def __init__(self):
        self.s = 0.0

    def now_s(self):
        return self.s

    def sleep(self, seconds):
        self.s += seconds


def probed(period_s, read_s=4e-6, seconds=1.5):
    """A probe of a sensor that changes at an interval, and how often it was read."""
    time, reads = Time(), []

    def read():
        time.s += read_s
        reads.append(math.floor(time.s / period_s))
        return float(reads[-1])

    return probe("power", "W", read, time, seconds), len(reads)


@pytest.mark.parametrize("period_s", [0.001, 0.02, 0.1])
def test_the_period_is_found_within_what_polls_are_apart(period_s):
    speed, reads = probed(period_s)
    assert speed.period_s == pytest.approx(period_s, abs=max(2.1e-4, 0.01 * period_s))
    assert speed.read_s == pytest.approx(4e-6) and speed.slowest_read_s == pytest.approx(4e-6)
    assert reads < 1.5 / 2e-4


def test_a_sensor_that_does_not_change_is_polled_ever_more_rarely():
    speed, reads = probed(math.inf)
    assert speed.there and speed.value == 0.0 and speed.period_s is None
    assert reads < 600


def test_the_period_of_a_sensor_whose_reads_take_long():
    speed, _ = probed(0.1, read_s=0.003)
    assert speed.period_s == pytest.approx(0.1, abs=0.003) and speed.read_s == pytest.approx(0.003)
