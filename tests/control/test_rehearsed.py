"""A program that is rehearsed: it is followed, clocks are requested, and nothing is compared, guarded or refused."""

import pytest

from testbed.applied import status
from testbed.scheduled_jobs import SUBJECT, gpu, programme, schedule
from wastenot.control.candidates import ladders_of
from wastenot.control.controller import Controller
from wastenot.control.hooks import Seen
from wastenot.control.marker import Marker
from wastenot.control.rehearsed import Rehearsed, rehearsal_lines, seen_text
from wastenot.control.simulated_job import run_job
from wastenot.control.tuner import Tuner
from wastenot.core.setting import AUTO

PROGRAMME = programme()
PLANNED = ("iteration", "forward", "loss", "backward", "forward:11", "backward:3")


def reached(rehearsed, names, iterations, *, gpus=1):
    for number in range(iterations):
        for index in range(gpus):
            for name in names:
                rehearsed.reached(name, index, 0.02 * number, begins=name == "iteration")
    return rehearsed


def test_a_program_that_is_nothing_like_the_plan_is_followed():
    device = gpu("h200")
    plan = schedule(device, PROGRAMME)
    rehearsed = Rehearsed([marker.name for marker in plan.markers], ["iteration", "backward"])
    driven = Controller(plan, [device], SUBJECT, rehearsed=rehearsed)
    took_s = [0.01, 0.02, 0.4, 0.01] * 300  # noisier than any job, and 30 times as fast as the plan's
    at_s, requested = device.engine.now_s, set()
    for number, each_s in enumerate(took_s):
        for share, name in ((0.0, "iteration"), (0.1, "forward"), (0.5, "backward")):
            device.time.sleep(max(at_s + share * each_s - device.engine.now_s, 0.0))
            driven.mark(Marker(name, number, device.engine.now_s))
            driven.act(device.engine.now_s)
            requested.add(device.engine.requested)
        at_s += each_s
    summary = driven.end(device.engine.now_s)
    assert {segment.setting for segment in plan.rungs[0].segments} | {AUTO} <= requested
    assert requested <= {segment.setting for segment in plan.rungs[0].segments} | {AUTO}
    proof, seen = summary.status.proof, summary.status.rehearsal
    assert proof.energy_change is proof.time_change is proof.saved_j is None
    assert proof.plan_iterations > 100 and proof.default_iterations > 20
    assert [event.kind for event in summary.status.events] == ["started", "ended"]
    assert seen.iterations == (len(took_s),) and seen.requests > 10 and seen.refusal is None
    assert "backward" not in seen.missing and "loss" in seen.missing
    assert summary.status.gpus[0].energy_j is None and summary.status.rung == 0
    assert all(moment.saved_j is None and moment.energy_change is None for moment in summary.time_line)
    assert device.engine.requested == AUTO


def test_settings_are_tried_and_none_is_found():
    device = gpu("rtx-a4000", seed=1)
    ladders = ladders_of([device], ["clock"], core_mhz=(1200.0, 1410.0))
    tuner = Tuner([device], SUBJECT, 0.5, ladders=ladders, seed=1, rehearsed=Rehearsed())
    summary, _ = run_job(tuner, PROGRAMME, 5000, seed=1, watch=lambda tuner: tuner.done)
    tuning, seen = summary.status.tuning, summary.status.rehearsal
    assert tuning.done and tuning.tried == 2 and tuning.best is tuning.energy_change is tuning.regret is None
    assert summary.trials == () and tuning.trials == 0 and not any(each.energy for each in tuner.search.candidates)
    assert tuner.controller is None and device.engine.requested == AUTO and seen.requests > 2
    assert "as this is a rehearsal; the default clocks stay" in summary.status.events[-2].text


@pytest.mark.parametrize("iterations", [0, 1, 2])
def test_what_never_comes_is_missing_after_two_iterations(iterations):
    seen = reached(Rehearsed(PLANNED, ["forward:11"]), ["iteration", "forward", "loss"], iterations).so_far(0)
    assert seen.missing == (("backward", "forward:11", "backward:3") if iterations == 2 else ())
    assert (seen.refusal is None) == (iterations < 2)
    assert seen.iteration_s == (0.02 if iterations == 2 else None)


def test_another_model_is_told_before_what_never_comes():
    rehearsed = reached(Rehearsed(PLANNED, ["backward"]), ["iteration"], 3)
    rehearsed.saw(Seen(layers=12), "the model has 3 parameters")
    assert rehearsed.so_far(0).refusal == "the model has 3 parameters" and rehearsed.so_far(0).layers == 12


def test_what_is_said_of_it():
    rehearsed = reached(Rehearsed(PLANNED, ["forward:11"], gpus=2), ["iteration", "forward", "forward:0"], 4, gpus=2)
    rehearsed.saw(Seen(layers=1), None)
    seen = rehearsed.so_far(1234)
    rest = "passes: forward 8; 1 layer; clocks were requested 1,234 times"
    assert seen_text(seen) == f"4 and 4 iterations of 20 ms (median of the latest, with wastenot); {rest}"
    first, second, third, last = rehearsal_lines(status(rehearsal=seen))
    assert "simulated" in first and "Savings were not measured" in first and second.endswith(seen_text(seen))
    assert third.startswith("never seen: loss, backward and 2 turns of layers (forward:11, …). ")
    assert 'applied.phase("loss")' in third and "docs/tutorials/rehearse.md" in third
    assert (
        last == "on a real GPU this plan would be refused: it never reaches 'forward:11', at which the plan changes clocks"
    )
    assert not [*rehearsal_lines(status())]
