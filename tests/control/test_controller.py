"""The controller on jobs of simulated GPUs, in virtual time."""

import pytest

from testbed.scheduled_jobs import controller, gpu, programme, schedule
from wastenot.control.marker import Marker
from wastenot.control.simulated_job import run_job
from wastenot.core.setting import AUTO
from wastenot.devices.simulated.basis import preset_names

PROGRAMME = programme()


@pytest.mark.parametrize("preset", [
    "rtx-3080-ti", "v100",
    *(pytest.param(name, marks=pytest.mark.slow) for name in sorted({*preset_names()} - {"rtx-3080-ti", "v100"})),
])  # fmt: skip
def test_a_plan_saves_what_it_is_expected_to_on_every_preset(preset):
    device = gpu(preset)
    plan = schedule(device, PROGRAMME)
    driven = controller(device, plan)
    summary, (job,) = run_job(driven, PROGRAMME, max(150, round(100.0 / plan.rungs[0].time_s)))
    proof, rung = summary.status.proof, plan.rungs[0]
    assert summary.ended == "job ended"
    assert device.engine.requested == AUTO
    assert proof.energy_change.value == pytest.approx(rung.energy_change, abs=0.01)
    assert proof.time_change.value == pytest.approx(rung.time_change, abs=0.005)
    assert proof.energy_change.low < proof.energy_change.value < proof.energy_change.high
    saved_j = sum(ran.auto_energy_j - ran.energy_j for ran in job.ran)
    assert proof.saved_j.value == pytest.approx(saved_j, rel=0.15)
    assert not [event for event in summary.status.events if event.kind in ("stepped", "refused", "drift")]


def test_a_dry_run_requests_nothing():
    device = gpu("h200")
    driven = controller(device, schedule(device, PROGRAMME), dry_run=True)
    summary, (job,) = run_job(driven, PROGRAMME, 20)
    assert all(ran.energy_j == pytest.approx(ran.auto_energy_j, rel=2e-3) for ran in job.ran)
    assert summary.status.dry_run and summary.status.iteration == 20
    assert summary.status.proof.blocks == 0


def refusal(times_s):
    """What becomes of a job whose iterations take these times, as fractions of the plan's, at the default clocks."""
    device = gpu("h200")
    plan = schedule(device, PROGRAMME)
    driven = controller(device, plan)
    planned_s = plan.rungs[-1].time_s
    at_s = device.engine.now_s
    for number, share in enumerate((1.0, 1.0, *times_s, 1.0)):
        for place in plan.markers:
            driven.mark(Marker(place.name, number, at_s + share * place.after_s, 0))
        at_s += share * planned_s
    return [event.text for event in driven.status().events if event.kind == "refused"]


def test_another_workload_is_refused():
    [why] = refusal([1.8] * 32)
    assert "not the plan's workload" in why


@pytest.mark.parametrize("other", [0.4, 2.4])
def test_a_few_iterations_on_a_busy_machine_do_not_make_it_another_workload(other):
    assert not refusal([other] * 5 + [1.0] * 20)
    assert not refusal([0.7, 1.0, 1.3] * 9 + [other] * 4 + [1.0] * 20)
