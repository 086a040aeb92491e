"""Jobs that are not as they were planned: slower, of another size, interrupted, or another workload altogether."""

from functools import partial

import pytest

from testbed.changed_jobs import Change, ChangedCourse, changed
from testbed.scheduled_jobs import SUBJECT, controller, gpu, programme, schedule
from wastenot.control.controller import Controller
from wastenot.control.simulated_job import Programme, run_job
from wastenot.core.setting import AUTO
from wastenot.devices.simulated.course import Spread

PROGRAMME = programme()
FROM = 60

SLOW = partial(pytest.param, marks=pytest.mark.slow)


def slower(device, plan, slowdown):
    """What makes the job so much slower at the plan's clocks, and less at higher ones."""
    course = ChangedCourse(device.engine.physics, PROGRAMME.tasks, PROGRAMME.order, [0])
    return course.slower_by(plan.rungs[0].segments[0].setting, slowdown, 60.0)


def run(preset, *, seed=0, iterations=FROM + 60, allowed=0.0, spread=None, change=None, of=PROGRAMME):
    device = gpu(preset, seed=seed)
    plan = schedule(device, PROGRAMME, allowed=allowed)
    driven = controller(device, plan, seed=seed)
    summary, (job,) = run_job(
        driven, of, iterations, seed=seed, spread=spread, course=changed(*([] if change is None else [change(device, plan)]))
    )
    assert device.engine.requested == AUTO
    return plan, summary, job


def slowdowns(job):
    return [ran.time_s / ran.auto_time_s - 1.0 for ran in job.ran]


def kinds(summary):
    return [event.kind for event in summary.status.events]


@pytest.mark.parametrize(("preset", "seed"), [("rtx-3080-ti", 0), ("v100", 1), SLOW("rtx-3080-ti", 1), SLOW("v100", 0)])
def test_a_job_that_slows_is_back_within_its_bound_in_20_iterations(preset, seed):
    plan, summary, job = run(
        preset, seed=seed, change=lambda device, plan: Change(FROM, slower=slower(device, plan, 0.04)), allowed=0.001
    )
    late = slowdowns(job)[FROM + 20 :]
    assert max(slowdowns(job)[FROM : FROM + 20]) > plan.max_slowdown + 0.01
    assert max(late) <= plan.max_slowdown + 0.001
    assert summary.status.rung > 0
    assert "stepped" in kinds(summary)


@pytest.mark.parametrize("noise", [SLOW(0.002), 0.01])
def test_a_job_as_planned_stays_where_it_is(noise):
    _, summary, _ = run("rtx-a4000", iterations=200, spread=Spread(noise, noise), allowed=0.001)
    assert summary.status.rung == 0
    assert "stepped" not in kinds(summary)


def test_another_batch_size_is_drift_and_no_slowdown():
    _, summary, _ = run("rtx-3080-ti", change=lambda *_: Change(FROM, work=1.2), iterations=FROM + 100)
    assert kinds(summary) == ["started", "drift", "ended"]
    assert "+20" in summary.status.events[1].text or "+19" in summary.status.events[1].text
    assert summary.status.rung == 0
    assert summary.status.proof.energy_change.high < 0.0


def test_pauses_are_no_slowdown():
    plan, summary, _ = run("rtx-3080-ti", spread=Spread(pause_every=13, pause_s=4.0), iterations=120)
    assert kinds(summary) == ["started", "ended"]
    assert summary.status.proof.time_change.value == pytest.approx(plan.rungs[0].time_change, abs=0.005)
    assert summary.status.proof.energy_change.value == pytest.approx(plan.rungs[0].energy_change, abs=0.01)


def test_another_workload_is_refused():
    _, summary, job = run("rtx-3080-ti", of=programme("gpt3-medium"), iterations=30)
    assert summary.ended == "refused"
    assert "refused" in kinds(summary)
    assert all(slowdown == pytest.approx(0.0, abs=2e-3) for slowdown in slowdowns(job))


def test_a_job_that_never_reaches_a_marker_of_the_plan_is_refused():
    silent = Programme(PROGRAMME.tasks, PROGRAMME.order, tuple(one for one in PROGRAMME.markers if one[0] != "backward"))
    _, summary, _ = run("rtx-3080-ti", of=silent, iterations=30)
    assert summary.ended == "refused"
    assert "'backward'" in next(event.text for event in summary.status.events if event.kind == "refused")


def test_several_gpus_are_summed():
    devices = [gpu("rtx-3080-ti", seed=seed) for seed in range(2)]
    plan = schedule(devices[0], PROGRAMME)
    driven = Controller(plan, devices, SUBJECT)
    summary, jobs = run_job(driven, PROGRAMME, 90)
    saved_j = sum(ran.auto_energy_j - ran.energy_j for job in jobs for ran in job.ran)
    assert summary.status.proof.saved_j.value == pytest.approx(saved_j, rel=0.15)
    assert [one.energy_j for one in summary.status.gpus] == pytest.approx(
        [sum(ran.energy_j for ran in job.ran) for job in jobs], rel=0.02
    )


def test_a_plan_of_the_default_clocks_changes_nothing():
    device = gpu("v100")
    plan = schedule(device, PROGRAMME)
    plan = plan.model_copy(update={"rungs": plan.rungs[-1:], "max_slowdown": 0.0})
    driven = controller(device, plan)
    summary, (job,) = run_job(driven, PROGRAMME, 30)
    assert kinds(summary) == ["started", "note", "ended"]
    assert summary.status.at_default and summary.status.proof.blocks == 0
    assert max(map(abs, slowdowns(job))) < 1e-3
