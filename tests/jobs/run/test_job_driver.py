"""A recurring job's settings, measured while it trains on simulated GPUs in virtual time."""

from functools import partial
from itertools import count

import pytest

from testbed.changed_jobs import Change, changed
from testbed.scheduled_jobs import SUBJECT, gpu, programme
from wastenot.control.blocks import MOST_PAUSES
from wastenot.control.marker import EPOCH, ITERATION, Marker
from wastenot.control.simulated_job import run_job
from wastenot.core.errors import BadInputError, ClocksRefusedError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.simulated.course import Course, Spread
from wastenot.jobs.model.objective import cost
from wastenot.jobs.plan.limits import Limits
from wastenot.jobs.run.driver import JobDriver
from wastenot.jobs.run.settings import job_settings
from wastenot.jobs.tables.records import JobTerms

SLOW = partial(pytest.param, marks=pytest.mark.slow)


def terms_of(gpus, knob="limits", **changes):
    settings = job_settings(gpus, knob)
    power_w = sum(each.clocks.power_limits_w()[1] for each in gpus)
    terms = {"name": "job", "batch_sizes": (32, 64, 128), "default": 64, "target": 0.9}
    return JobTerms(**terms | {"settings": settings, "max_power_w": power_w} | changes)


def trained(gpus, terms, *, seconds=600.0, seed=1, known=None, epoch=50, job=None, model="gpt3-small", **options):
    """Train for so many seconds of virtual time; an epoch is so many iterations."""
    iteration = programme(model)
    driver = JobDriver(gpus, SUBJECT, known or Limits(terms), 64, device="card", now_s=gpus[0].engine.now_s, **options)
    began_s, told = gpus[0].engine.now_s, [0]

    def watch(driver):
        now_s = gpus[0].engine.now_s
        reached = driver.status().iteration or 0
        if epoch and reached // epoch > told[0]:
            told[0] = reached // epoch
            driver.mark(Marker(EPOCH, reached, now_s))
        return now_s - began_s >= seconds

    summary, courses = run_job(driver, iteration, 10**6, seed=seed, watch=watch, **(job or {}))
    return driver, summary, iteration, courses


def cost_at(terms, device, iteration, setting, gpus=1):
    course = Course(device.engine.physics, iteration.tasks, iteration.order, [0])
    until_s, until_j = course.until(setting, device.engine.temperature_c)
    return float(cost(terms, until_s[-1], gpus * until_j[-1]))


@pytest.mark.parametrize(("preset", "knob", "eta"), [
    ("rtx-3080-ti", "limits", 0.5), SLOW("rtx-3080-ti", "clocks", 1.0), SLOW("rtx-a4000", "limits", 1.0),
    ("v100", "clocks", 0.5),
])  # fmt: skip
def test_the_setting_held_costs_little_more_than_the_best_and_little_to_find(preset, knob, eta):
    device = gpu(preset, seed=1)
    terms = terms_of([device], knob, eta=eta)
    driver, summary, iteration, (course,) = trained([device], terms, seconds=900.0)
    costs = {setting: cost_at(terms, device, iteration, setting) for setting in terms.settings}
    assert costs[driver.held] <= 1.012 * min(costs.values())
    spent = float(cost(terms, sum(each.time_s for each in course.ran), sum(each.energy_j for each in course.ran)))
    assert spent <= 1.02 * len(course.ran) * costs[driver.held]
    assert device.engine.requested == AUTO  # given back
    assert summary.status.tuning is not None and summary.status.tuning.trials >= 2


def test_what_is_measured_is_what_an_epoch_takes():
    device = gpu("v100", seed=2)
    terms = terms_of([device])
    driver, _, iteration, _ = trained([device], terms, seconds=300.0, epoch=40)
    assert len(driver.speeds) >= 2
    for speed in driver.speeds:
        course = Course(device.engine.physics, iteration.tasks, iteration.order, [0])
        until_s, until_j = course.until(speed.setting, device.engine.temperature_c)
        assert speed.batch_size == 64 and speed.device == "card"
        assert speed.epoch_time_s / until_s[-1] == pytest.approx(40.0, rel=0.1)  # epochs are told once a second
        assert speed.power_w == pytest.approx(until_j[-1] / until_s[-1], rel=0.03)


def test_a_later_run_holds_what_is_known_and_measures_little_more():
    device = gpu("v100", seed=3)
    terms = terms_of([device])
    first, before, iteration, _ = trained([device], terms, seconds=900.0)
    again = Limits(terms)
    for speed in first.speeds:
        again.measured(speed)
    second, summary, *_ = trained([gpu("v100", seed=4)], terms, known=again, seconds=300.0, seen_s=900.0)
    held, before_held = (cost_at(terms, device, iteration, each.held) for each in (second, first))
    assert held <= 1.01 * before_held
    assert summary.status.tuning.trials <= before.status.tuning.trials / 2


def test_another_batch_size_begins_near_its_best():
    device = gpu("v100", seed=5)
    terms = terms_of([device])
    first, *_, iteration, _ = trained([device], terms)
    other = Limits(terms)
    for speed in first.speeds:
        other.measured(speed.__class__(**{name: getattr(speed, name) for name in speed.__slots__} | {"batch_size": 128}))
    cost_of = {setting: cost_at(terms, device, iteration, setting) for setting in terms.settings}
    assert cost_of[other.best(64)] <= 1.03 * min(cost_of.values())


def test_gpus_of_one_job_run_alike_and_their_energies_count_together():
    gpus = [gpu("v100", seed=seed) for seed in (1, 2)]
    terms = terms_of(gpus)
    driver, _, iteration, _ = trained(gpus, terms)
    alone = terms_of(gpus[:1])
    costs = {setting: cost_at(alone, gpus[0], iteration, setting) for setting in alone.settings}
    assert costs[driver.held] <= 1.012 * min(costs.values())
    assert all(each.power_w > 1.2 * (setting_w(each)) for each in driver.speeds if setting_w(each) < 200.0)
    assert [each.engine.requested for each in gpus] == [AUTO, AUTO]


def setting_w(speed):
    return speed.setting.power_limit_w


def test_pauses_and_uneven_iterations_are_survived():
    device = gpu("v100", seed=6)
    terms = terms_of([device])
    spread = Spread(time=0.02, power=0.02, pause_every=17, pause_s=2.0)
    driver, _, iteration, _ = trained([device], terms, seconds=1200.0, job={"spread": spread})
    costs = {setting: cost_at(terms, device, iteration, setting) for setting in terms.settings}
    assert costs[driver.held] <= 1.02 * min(costs.values())


def test_a_slice_begins_anew_after_a_pause_unless_pauses_are_how_the_job_runs():
    device = gpu("v100", seed=1)
    driver = JobDriver([device], SUBJECT, Limits(terms_of([device])), 64, device="card", now_s=device.engine.now_s)
    iterations = count()

    def iterate(seconds):
        """The times that count, once an iteration has ended."""
        device.engine.advance(seconds)
        driver.act(device.engine.now_s)
        driver.mark(Marker(ITERATION, next(iterations), device.engine.now_s))
        return [] if driver._stretch is None else [round(each, 1) for each in driver._stretch.times_s]

    while iterate(0.1) != [0.1] * 3:
        pass
    assert iterate(1.0) == []
    assert [iterate(0.1), iterate(0.1), iterate(0.1)][-1] == [0.1] * 3
    assert [iterate(1.0) for _ in range(MOST_PAUSES - 1)] == [[], [1.0]]
    driver.end(device.engine.now_s)


def test_a_job_that_becomes_slower_is_measured_anew():
    device = gpu("v100", seed=7)
    terms = terms_of([device])
    _, summary, *_ = trained([device], terms, seconds=900.0, job={"course": changed(Change(from_iteration=400, work=1.3))})
    assert any(event.kind == "drift" for event in summary.status.events)


def test_a_steady_job_is_measured_once():
    device = gpu("v100", seed=8)
    _, summary, *_ = trained([device], terms_of([device]), seconds=900.0)
    assert not any(event.kind == "drift" for event in summary.status.events)


def test_settings_that_the_gpu_refuses_are_left_out():
    device = gpu("v100", seed=9)
    terms = terms_of([device])
    request, asked = device.clocks.request, []

    def refuse(setting):
        asked.append(setting)
        if setting.power_limit_w is not None and setting.power_limit_w < 180.0:
            raise ClocksRefusedError("the policy allows at least 180 W")
        request(setting)

    device.clocks.request = refuse
    driver, summary, *_ = trained([device], terms, seconds=900.0)
    refused = [each for each in asked if each.power_limit_w is not None and each.power_limit_w < 180.0]
    assert refused and len(set(refused)) == len(refused)  # none is asked for twice
    assert driver.held.power_limit_w >= 180.0
    assert any("at least 180 W" in event.text for event in summary.status.events)
    assert device.engine.requested == AUTO


def test_where_nothing_may_be_set_the_job_runs_at_the_default_clocks():
    device = gpu("v100", seed=10)
    terms = terms_of([device])
    request = device.clocks.request

    def refuse(setting):
        if not setting.is_auto:
            raise ClocksRefusedError("not allowed")
        request(setting)

    device.clocks.request = refuse
    driver, summary, *_ = trained([device], terms, seconds=60.0)
    assert driver.held == AUTO and summary.ended == "stopped"


def test_a_time_to_keep_is_kept_once_epochs_are_known():
    device = gpu("v100", seed=12)
    iteration = programme()
    fastest = job_settings([device], "limits")[0]
    course = Course(device.engine.physics, iteration.tasks, iteration.order, [0])
    epoch_s = 50 * course.until(fastest, device.engine.temperature_c)[0][-1]
    terms = terms_of([device], within_s=10.0 * 1.15 * epoch_s)
    driver, *_ = trained([device], terms, seconds=1200.0, epochs=10.0)
    held_s = 50 * course.until(driver.held, device.engine.temperature_c)[0][-1]
    assert held_s <= 1.15 * epoch_s and driver.held.power_limit_w < fastest.power_limit_w


def test_a_program_without_iterations_is_measured_by_epochs():
    device = gpu("v100", seed=11)
    terms = terms_of([device])
    driver = JobDriver([device], SUBJECT, Limits(terms), 64, device="card", now_s=device.engine.now_s)
    iteration = programme()
    course = Course(device.engine.physics, iteration.tasks, iteration.order, [0])
    device.engine.follow(course)
    next_s = device.engine.now_s
    for _ in range(80):
        next_s += 12.0
        while device.engine.now_s < next_s:
            due_s = driver.due_s()
            device.engine.advance(max(min(next_s, due_s or next_s) - device.engine.now_s, 1e-3))
            driver.act(device.engine.now_s)
        driver.mark(Marker(EPOCH, 0, device.engine.now_s))
    assert driver.speeds and all(each.epoch_time_s == pytest.approx(12.0, rel=0.01) for each in driver.speeds)
    driver.end(device.engine.now_s)
    assert device.engine.requested == AUTO


def test_no_gpu_is_refused():
    with pytest.raises(BadInputError, match="name at least one GPU"):
        JobDriver([], SUBJECT, Limits(JobTerms("job", (64,), 64, None)), 64, device="card")


@pytest.mark.parametrize("preset", ["rtx-3080-ti", "v100", "h200", "mi300x"])
def test_settings_to_choose_among_are_those_of_the_card_the_fastest_first(preset):
    device = gpu(preset)
    low, high = device.clocks.power_limits_w()
    limits = [each.power_limit_w for each in job_settings([device], "limits")]
    assert limits == sorted(set(limits), reverse=True) and limits[0] == high and limits[-1] >= low and len(limits) > 5
    clocks = [each.core_mhz for each in job_settings([device], "clocks")]
    assert clocks == sorted(set(clocks), reverse=True) and len(clocks) > 5
    for setting in (Setting(power_limit_w=limits[-1]), Setting(core_mhz=clocks[-1])):
        device.clocks.request(setting)
