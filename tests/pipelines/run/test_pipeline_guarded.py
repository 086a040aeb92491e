"""Pipelines whose ranks one process controls, or one each: slowdowns are guarded and savings proved, as of any plan."""

from dataclasses import dataclass, replace

import pytest

from testbed.pipeline_lockstep import simulate_pipeline
from testbed.pipeline_runs import made_profile
from testbed.pipeline_work import ProfiledWork
from wastenot.control.marker import Marker
from wastenot.control.page.line import live_text
from wastenot.devices.open import simulated_device
from wastenot.devices.simulated.preset import find_preset
from wastenot.pipelines.model.schedules import one_forward_one_backward
from wastenot.pipelines.plan.planner import PipelineGoal, plan_pipeline
from wastenot.pipelines.plan.rank_steps import PlanGraph
from wastenot.pipelines.plan.switched import with_switching
from wastenot.pipelines.run.controller import PipelineController
from wastenot.planning.switching import switch_time

RANKS, SWITCHING = 2, switch_time("sim:h200")


class Marked:
    """Marks instructions for a controller of all ranks, or for one of each."""

    def __init__(self, controllers, graph, at_iteration=lambda iteration: None):
        self.controllers, self.at_iteration = controllers, at_iteration
        self.steps = [graph.steps(rank) for rank in range(RANKS)]
        self.at_default = [[] for _ in range(RANKS)]  # by rank and iteration, once clocks were requested for it

    def begin(self, rank, step, now_s):
        apart = len(self.controllers) > 1
        controller = self.controllers[rank * apart]
        if step == 0 and rank == 0:
            self.at_iteration(len(self.at_default[rank]))
        each = self.steps[rank][step].instruction
        controller.mark(Marker(f"{each.name}:{each.micro_batch}", 0, now_s, rank * (not apart)))
        if step == 0:
            self.at_default[rank].append(controller.status().at_default)

    def due_s(self):
        return min((float("inf") if (due_s := each.due_s()) is None else due_s) for each in self.controllers)

    def act(self, now_s):
        for each in self.controllers:
            each.act(now_s)


@dataclass
class Slowed:
    """Work that takes longer at any clocks, or at those that a plan requests."""

    work: ProfiledWork
    factor: float = 1.0
    requested_factor: float = 1.0

    def course(self, stage, name, setting, temperature_c):
        course = self.work.course(stage, name, setting, temperature_c)
        factor = self.factor if setting.core_mhz is None else self.factor * self.requested_factor
        return replace(course, until_s=course.until_s * factor, until_j=course.until_j * factor)

    def waiting_w(self, *arguments):
        return self.work.waiting_w(*arguments)


def run(iterations, *, lasting, seats=RANKS, then=lambda controller: None, requested_factor=1.0):
    """A plan whose settings last or change at will, the controller of some of its ranks, and what became of it."""
    profile = made_profile(RANKS, forward_s=0.06, imbalance=0.3)
    made = plan_pipeline(profile, one_forward_one_backward(RANKS, 4), PipelineGoal(max_slowdown=0.05))
    plan = (with_switching(made, SWITCHING) if lasting else made).plan
    graph, preset = PlanGraph(plan), find_preset("h200")
    gpus = [simulated_device(preset, "sim:h200", seed=100 + rank) for rank in range(RANKS)]
    controller = PipelineController(graph, "pipeline.json", gpus, [SWITCHING] * RANKS, now_s=gpus[0].time.now_s())
    for rank in range(seats):
        controller.seat(rank, rank)
    then(controller)
    work = Slowed(ProfiledWork(profile), requested_factor=requested_factor)
    ran = simulate_pipeline(graph, gpus, [work] * RANKS, Marked([controller], graph), iterations, seed=1)
    return plan, controller, ran.iterations


def mean_s(iterations):
    return sum(each.time_s for each in iterations) / len(iterations)


@pytest.mark.slow
def test_a_saving_is_proved_against_the_default_clocks():
    plan, controller, _ = run(200, lasting=True)
    status = controller.status()
    proof = status.proof
    assert proof.blocks >= 3 and proof.plan_iterations > proof.default_iterations > 0
    assert proof.energy_change.value == pytest.approx(plan.energy_change, abs=0.01) and proof.energy_change.high < -0.1
    assert proof.time_change.value == pytest.approx(plan.time_change, abs=0.01) and proof.saved_j.low > 0.0
    assert [each.kind for each in status.events] == ["started"] and (status.rung, status.rungs) == (0, 2)
    assert live_text(status).startswith("saved 15.")
    summary = controller.end()
    assert summary.ended == "job ended" and summary.status.proof.saved_j.low > 0.0
    assert all(gpu.engine.requested.is_auto for gpu in controller.gpus)


def test_a_plan_that_is_slower_than_promised_gives_way_to_the_default_clocks():
    plan, controller, ran = run(60, lasting=False, requested_factor=1.03)
    status = controller.status()
    assert "moving to the default clocks" in next(each.text for each in status.events if each.kind == "stepped")
    assert status.at_default and "to stay within the slowdown limit" in live_text(status)
    assert all(gpu.engine.requested.is_auto for gpu in controller.gpus)
    assert mean_s(ran[-10:]) == pytest.approx(plan.baseline.time_s, rel=0.01)


def test_nothing_is_compared_before_it_is_known_who_runs_on_all_gpus():
    _, controller, _ = run(8, lasting=True, seats=1)
    status = controller.status()
    assert status.proof.default_iterations == 0 and status.proof.plan_iterations == 8 and not status.at_default
    assert not controller.gpus[0].engine.requested.is_auto


# ---- a process for each rank: none tells the others anything -------------------------------------------------------


def run_apart(
    iterations,
    *,
    lasting,
    seats=RANKS,
    at_iteration=lambda iteration, controllers, work: None,
    seed=1,
    requested_factor=1.0,
):
    """As :func:`run`, each rank in a process of its own, some of which apply the plan."""
    profile = made_profile(RANKS, forward_s=0.06, imbalance=0.3)
    made = plan_pipeline(profile, one_forward_one_backward(RANKS, 4), PipelineGoal(max_slowdown=0.05))
    plan = (with_switching(made, SWITCHING) if lasting else made).plan
    graph, preset = PlanGraph(plan), find_preset("h200")
    gpus = [simulated_device(preset, "sim:h200", seed=100 * seed + rank) for rank in range(RANKS)]
    controllers = [PipelineController(graph, "pipeline.json", [gpu], [SWITCHING], now_s=gpu.time.now_s()) for gpu in gpus]
    for rank, controller in enumerate(controllers[:seats]):
        controller.seat(0, rank)
    work = [Slowed(ProfiledWork(profile), requested_factor=requested_factor) for _ in range(RANKS)]
    marked = Marked(controllers, graph, lambda iteration: at_iteration(iteration, controllers, work))
    ran = simulate_pipeline(graph, gpus, work, marked, iterations, seed=seed)
    return plan, controllers, marked.at_default, ran.iterations


def told(controller, kind):
    return [each.text for each in controller.status().events if each.kind == kind]


@pytest.mark.slow
def test_processes_prove_a_saving_by_blocks_in_the_same_iterations():
    plan, controllers, at_default, ran = run_apart(260, lasting=True)
    assert at_default[0] == at_default[1] and not all(at_default[0][41:])
    statuses = [each.status() for each in controllers]
    assert all(each.proof.blocks >= 4 and each.proof.time_change is not None for each in statuses)
    assert not any(told(each, "stepped") for each in controllers)
    default = [sum(ran[each].energy_j) for each in range(5, 40)]
    default_j, planned = sum(default) / len(default), [i for i, each in enumerate(at_default[0]) if not each and i > 40]
    saved_j = sum(default_j - sum(ran[each].energy_j) for each in planned)
    proved = [each.proof.saved_j for each in statuses]
    half_j = sum((each.high - each.low) ** 2 / 4 for each in proved) ** 0.5
    # In the first iteration after a change clocks have not arrived, which the truth counts here and the proof in part.
    assert sum(each.value for each in proved) == pytest.approx(saved_j, abs=half_j + 0.03 * saved_j)
    for status in statuses:
        assert status.proof.time_change.low - 0.002 <= plan.time_change <= status.proof.time_change.high + 0.002


def test_processes_fall_back_each_for_itself_until_the_limit_is_kept():
    plan, controllers, _, ran = run_apart(130, lasting=False, requested_factor=1.03)
    assert any("moving to the default clocks" in text for each in controllers for text in told(each, "stepped"))
    assert mean_s(ran[5:40]) == pytest.approx(plan.baseline.time_s, rel=0.01)
    assert mean_s(ran[-10:]) < 1.052 * mean_s(ran[5:40])


def test_a_rank_that_alone_runs_at_the_default_clocks_slows_nobody():
    _, (alone, _), at_default, one = run_apart(60, lasting=True, seats=1)
    _, _, both_at_default, both = run_apart(60, lasting=True)
    assert at_default[0] == both_at_default[0] and not any(at_default[0][41:])
    assert mean_s(one[45:]) < mean_s(both[45:])
    assert sum(each.energy_j[0] for each in one[45:]) < 0.95 * sum(each.energy_j[0] for each in one[5:20])
    assert not told(alone, "stepped")


def test_a_job_that_has_become_slower_itself_keeps_its_plan_in_all_processes():
    def slower(iteration, controllers, work):
        for each in work:
            each.factor = 1.1 if iteration >= 60 else 1.0

    _, controllers, at_default, _ = run_apart(120, lasting=True, at_iteration=slower)
    assert all(told(each, "drift") and not told(each, "stepped") for each in controllers)
    assert [each[-8:] for each in at_default] == RANKS * [8 * [False]]


def test_processes_that_start_again_begin_together_again():
    def restarted(iteration, controllers, work):
        if iteration == 60:
            for rank, controller in enumerate(controllers):
                controller.leave(0)
                controller.seat(0, rank)

    _, controllers, at_default, _ = run_apart(120, lasting=True, at_iteration=restarted)
    assert at_default[0] == at_default[1]
    assert all(at_default[0][61:100]) and not any(at_default[0][101:110])
    assert [each.status().iteration for each in controllers] == [59, 59]
