"""Tuning simulated jobs in virtual time: what is found, what is kept, and what becomes of pauses, refusals and changes."""

import pytest

from testbed.changed_jobs import Change, changed
from testbed.scheduled_jobs import SUBJECT, gpu, programme
from wastenot.control.candidates import ladders_of
from wastenot.control.simulated_job import run_job
from wastenot.control.tuner import Tuner
from wastenot.core.errors import BadInputError, ClocksRefusedError
from wastenot.core.setting import AUTO
from wastenot.devices.simulated.course import Course, Spread

PRESETS = ("rtx-3080-ti", "rtx-a4000", "v100", "h200", "mi300x")


def truth(device, iteration, setting):
    """Time and energy of an iteration against the default clocks."""
    return truths(device, iteration, [setting])[0]


def truths(device, iteration, settings):
    """The same of several settings."""
    course = Course(device.engine.physics, iteration.tasks, iteration.order, [0])
    (auto_s, auto_j), *own = (
        [until[-1] for until in course.until(each, device.engine.temperature_c)] for each in (AUTO, *settings)
    )
    return [(own_s / auto_s - 1.0, own_j / auto_j - 1.0) for own_s, own_j in own]


def tuned(preset, allowed, *, seed=1, most=5000, until=lambda tuner: tuner.done, options=None, **job):
    device, iteration = gpu(preset, seed=seed), programme()
    tuner = Tuner([device], SUBJECT, allowed, seed=seed, **(options or {}))
    summary, courses = run_job(tuner, iteration, most, seed=seed, watch=until, **job)
    return tuner, summary, device, iteration, courses[0]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_setting_within_the_bound_is_found_and_held(preset):
    tuner, summary, device, iteration, course = tuned(preset, 0.05)
    winner = tuner.search.winner
    assert winner is not None and tuner.controller is not None
    time_change, energy_change = truth(device, iteration, winner.setting)
    assert time_change <= 0.051
    every = truths(device, iteration, [each for ladder in tuner.search.ladders for each in ladder.settings])
    assert energy_change < min(energy for time, energy in every if time <= 0.051) + 0.01
    slower = sum(one.time_s for one in course.ran) / sum(one.auto_time_s for one in course.ran) - 1.0
    assert slower < 0.05  # the search itself included
    tuning = summary.status.tuning
    assert tuning is not None and tuning.done and tuning.best == str(winner.setting)
    assert tuning.energy_change.low - 0.01 < energy_change < tuning.energy_change.high + 0.01
    assert device.engine.requested == AUTO  # given back


def test_the_setting_is_held_under_a_guard_with_proof():
    tuner, summary, *_ = tuned("rtx-a4000", 0.02, until=None, most=800)
    proof = summary.status.proof
    assert proof.energy_change is not None and proof.energy_change.high < 0.0
    assert proof.saved_j is not None and proof.saved_j.low > 0.0
    rungs = tuner.schedule.rungs
    assert len(rungs) >= 2 and rungs[-1].is_default
    slower = [rung.time_change for rung in rungs[:-1]]
    assert slower == sorted(slower, reverse=True)


def test_gpus_of_one_job_run_alike_and_their_energies_count_together():
    gpus, iteration = [gpu("v100", seed=seed) for seed in (1, 2)], programme()
    tuner = Tuner(gpus, SUBJECT, 0.05, seed=1)
    summary, _ = run_job(tuner, iteration, 3000, seed=1, watch=lambda tuner: tuner.done)
    winner = tuner.search.winner
    assert winner is not None and truth(gpus[0], iteration, winner.setting)[0] <= 0.051
    time_s, energy_j = tuner.default_iteration
    alone = tuned("v100", 0.05)[0].default_iteration
    assert time_s == pytest.approx(alone[0], rel=0.02) and energy_j == pytest.approx(2.0 * alone[1], rel=0.02)
    assert [each.engine.requested for each in gpus] == [AUTO, AUTO] and len(summary.status.gpus) == 2


def test_an_uneven_job_with_pauses_is_tuned_as_well():
    spread = Spread(time=0.01, power=0.01, pause_every=23, pause_s=3.0)
    tuner, _, device, iteration, _ = tuned("v100", 0.05, spread=spread, most=8000)
    winner = tuner.search.winner
    assert winner is not None
    time_change, energy_change = truth(device, iteration, winner.setting)
    assert time_change <= 0.052 and energy_change < -0.05


def test_a_job_that_becomes_slower_meanwhile_is_tuned_as_it_is():
    tuner, _, device, iteration, _ = tuned("v100", 0.05, course=changed(Change(from_iteration=100, work=1.4)))
    winner = tuner.search.winner
    assert winner is not None and truth(device, iteration, winner.setting)[0] <= 0.051


def test_out_of_time_the_best_so_far_is_held():
    tuner, summary, *_ = tuned("h200", 0.05, options={"budget_s": 20.0})
    assert tuner.done and not tuner.search.known
    assert any("out of time" in event.text for event in summary.status.events)


def test_settings_that_are_refused_are_left_out(monkeypatch):
    device, iteration = gpu("h200", seed=1), programme()
    request = device.clocks.request

    def refusing(setting):
        if setting.core_mhz is not None:
            raise ClocksRefusedError("clocks cannot be locked here")
        request(setting)

    monkeypatch.setattr(device.clocks, "request", refusing)
    tuner = Tuner([device], SUBJECT, 0.05, seed=1)
    run_job(tuner, iteration, 5000, seed=1, watch=lambda tuner: tuner.done)
    assert tuner.search.winner is not None and tuner.search.winner.setting.power_limit_w is not None


def test_a_job_that_ends_amid_the_search_leaves_nothing_set():
    tuner, summary, device, *_ = tuned("h200", 0.05, until=None, most=60)
    assert tuner.controller is None and device.engine.requested == AUTO
    assert summary.ended == "job ended" and summary.status.tuning is not None and summary.time_line
    assert tuner.due_s() is None


def test_named_settings_are_the_only_ones_tried():
    device = gpu("h200")
    ladders = ladders_of([device], ("limit",), power_limit_w=(500.0, 600.0, 650.0))
    tuner, *_ = tuned("h200", 0.1, options={"ladders": ladders})
    assert {each.setting.power_limit_w for each in tuner.search.candidates} <= {500.0, 600.0, 650.0}
    assert tuner.search.winner is not None


@pytest.mark.parametrize(
    "options", [{"max_slowdown": -0.1}, {"max_slowdown": 1.0}, {"tolerance": 0.0}, {"budget_s": 0.0}, {"gpus": []}]
)
def test_numbers_that_make_no_sense_are_refused(options):
    with pytest.raises(BadInputError, match=next(iter(options))):
        Tuner(**({"gpus": [gpu("h200")], "subject": SUBJECT} | options))
