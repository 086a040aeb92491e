"""Jobs on several machines, a controller on each, which tell each other nothing: blocks, guard and slack."""

import math
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from testbed.changed_jobs import Change, ChangedCourse
from testbed.scheduled_jobs import SUBJECT, gpu, programme, schedule
from wastenot.control.controller import Controller
from wastenot.control.marker import ITERATION, Marker
from wastenot.control.rank import Rank
from wastenot.control.session import Session
from wastenot.control.simulated_job import run_job
from wastenot.devices.simulated.course import STEADY, Spread

PROGRAMME = programme()
NOISE = 0.01


@pytest.fixture(scope="module")
def plan():
    made = schedule(gpu("v100"), PROGRAMME)
    return made.model_copy(update={"markers": tuple(each for each in made.markers if ":" not in each.name)})


class Machines:
    """Two machines of a job, each with a GPU and a controller of its own."""

    def __init__(self, plan, seed=0):
        self.schedule, self.gpus = plan, [gpu("v100", seed=seed + index) for index in range(2)]
        self.controllers = [
            Controller(plan, [each], SUBJECT, seed=seed + index, together=True) for index, each in enumerate(self.gpus)
        ]
        self.at_default = [[], []]

    def mark(self, marker):
        controller = self.controllers[marker.gpu]
        controller.mark(replace(marker, gpu=0))
        if marker.name == ITERATION:
            self.at_default[marker.gpu].append(controller.status().at_default)

    def due_s(self):
        return min(each.due_s() for each in self.controllers)

    def act(self, now_s):
        for each in self.controllers:
            each.act(now_s)

    def end(self, *arguments, **named):
        return [each.end(*arguments, **named) for each in self.controllers]


def at_default(plan, iterations, *, seed=0, slowdown=0.0, together=True, until_stepped=False, noise=NOISE, late=0.0):
    """Which iterations of a job a controller has run at the default clocks, where the plan slows it down so much.

    One in 50 is late, at any clocks.
    """
    device, random, found = gpu("v100"), Random(seed), []
    driven = Controller(plan, [device], SUBJECT, now_s=device.engine.now_s, seed=seed, together=together)
    at_s, rung = device.engine.now_s, plan.rungs[-1]
    for iteration in range(iterations):
        for place in plan.markers:
            driven.mark(Marker(place.name, iteration, at_s + place.after_s, 0))
        found.append(driven.status().at_default)
        if until_stepped and driven.status().rung:
            break
        by_itself = 1.0 + late if late and random.random() < 0.02 else 1.0
        at_s += rung.time_s * math.exp(random.gauss(0.0, noise)) * (1.0 if found[-1] else 1.0 + slowdown) * by_itself
    return found


def test_blocks_are_in_the_same_iterations_and_prove_the_saving(plan):
    machines = Machines(plan)
    summaries, jobs = run_job(machines, PROGRAMME, 260, spread=Spread(NOISE, NOISE, 0.0), meets={ITERATION: 0})
    first, second = machines.at_default
    assert first == second and all(first[:40]) and not any(first[41:50]) and any(first[50:])
    for summary, job in zip(summaries, jobs, strict=True):
        proof = summary.status.proof
        assert proof.blocks >= 4 and not [each for each in summary.status.events if each.kind == "stepped"]
        assert proof.time_change.low - 0.005 <= plan.rungs[0].time_change <= proof.time_change.high + 0.005
        saved_j = sum(ran.auto_energy_j - ran.energy_j for ran in job.ran)
        assert proof.saved_j.value == pytest.approx(saved_j, rel=0.15)


@pytest.mark.parametrize("together", [False, True])
def test_a_slowdown_is_noticed_within_300_iterations_on_one_machine_or_several(plan, together):
    slowdown = plan.max_slowdown + 0.018
    for seed in range(6):
        ran = at_default(plan, 340, seed=seed, slowdown=slowdown, together=together, until_stepped=True)
        assert len(ran) < 340 and ran.count(False) < 250


@pytest.mark.parametrize("together", [False, True])
def test_iterations_late_by_themselves_are_no_slowdown(plan, together):
    late = partial(at_default, plan, 500, together=together, until_stepped=True, noise=0.005, late=0.08)
    assert [len(late(seed=seed, slowdown=plan.max_slowdown)) for seed in range(2)] == [500, 500]
    assert late(slowdown=plan.max_slowdown + 0.05).count(False) < 30


def test_gpus_that_wait_run_slower_and_the_blocks_stay_where_they_are(plan):
    def course(*arguments, seed, spread, **named):
        return ChangedCourse(*arguments, seed=seed, spread=STEADY, changes=[Change(work=(0.96, 1.04)[seed[1]])], **named)

    seen = []

    class Followed(Controller):
        def mark(self, marker):
            super().mark(marker)
            if marker.gpu == 0 and marker.name == ITERATION:
                seen.append(self.status().at_default)

    devices = [gpu("v100", seed=index) for index in range(2)]
    summary, _ = run_job(Followed(plan, devices, SUBJECT, together=True), PROGRAMME, 110, course=course)
    assert "core clocks lowered" in next(each.text for each in summary.status.events if each.kind == "note")
    assert seen[:110] == at_default(plan, 110, slowdown=plan.rungs[0].time_change)


@pytest.mark.parametrize(("world", "together"), [(None, False), ("1", False), ("2", True)])
def test_a_program_says_that_its_job_has_ranks_elsewhere(plan, tmp_path, monkeypatch, world, together):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if world is not None:
        monkeypatch.setenv("WORLD_SIZE", world)
    driver = Controller(plan, [gpu("v100")], SUBJECT)
    with Session(driver, tmp_path / "s.sock", lease=False) as session:
        rank = Rank(str(session.path))
        rank.connect()
        assert driver.together == together
        rank.close()
