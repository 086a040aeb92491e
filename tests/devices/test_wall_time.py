"""A simulated GPU that lives in real time, to be shared with other programs."""

import time

import pytest

from wastenot.core.setting import AUTO
from wastenot.devices.open import open_device
from wastenot.meters.tasks import find_tasks
from wastenot.sweeping.point import PointOptions, measure_point


def test_it_keeps_step_with_the_wall():
    device = open_device("sim:testbed/toy.toml", wall_time=True)
    before = time.monotonic()
    began = device.time.now_s()
    after = time.monotonic()
    device.time.sleep(0.2)
    least = time.monotonic() - after
    passed = device.time.now_s() - began
    assert 0.2 <= least <= passed <= time.monotonic() - before


def test_it_can_be_measured():
    device = open_device("sim:testbed/toy.toml", wall_time=True)
    task = find_tasks("gpt3-small", "sim:testbed/toy.toml").tasks[0]
    began = time.monotonic()
    found = measure_point(device, task, AUTO, PointOptions(0.1, 1.0))
    assert time.monotonic() - began >= 1.0
    assert found.time_s == pytest.approx(device.truth(task, AUTO).time_s, rel=0.02)
