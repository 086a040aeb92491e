"""Limits of a job's GPU set by a session, in real time on a simulated card that runs iterations of a model."""

import time

import pytest

from testbed.scheduled_jobs import programme
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import open_device
from wastenot.devices.simulated.course import Course
from wastenot.jobs.run.control import JobControl, Knobs
from wastenot.jobs.tables.records import JobTerms
from wastenot.jobs.tables.store import StoredJob

pytestmark = pytest.mark.usefixtures("runtime")


def test_a_run_measures_its_limits_in_real_time_and_gives_them_back():
    device = open_device("sim:v100", wall_time=True)
    work = programme()
    device.engine.follow(Course(device.engine.physics, work.tasks, work.order, [0]))
    settings = tuple(Setting(power_limit_w=watts) for watts in (250.0, 200.0, 150.0))
    terms = JobTerms("nightly", (32, 64), 64, 0.9, settings=settings, max_power_w=250.0)
    control = JobControl(Knobs((device,), settings), terms, "sim:v100", 64, None, StoredJob(terms, (), ()))
    try:
        for iteration in range(1, 401):
            control.iteration()
            time.sleep(0.05)
            if iteration % 20 == 0:
                control.epoch()
            if len(control.speeds) > 1:
                break
        assert len(control.speeds) > 1 and all(each.setting in settings for each in control.speeds)
        assert all(0.9 < each.epoch_time_s < 1.6 for each in control.speeds)
        assert device.engine.requested in settings
    finally:
        problem = control.end()
    assert problem is None and device.engine.requested == AUTO
