"""Pipelines whose ranks one process controls: their slowdown is guarded and their saving proved, as of any plan."""

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
    """Marks instructions for a controller."""

    def __init__(self, controller, graph):
        self.controller, self.steps = controller, [graph.steps(rank) for rank in range(RANKS)]

    def begin(self, rank, step, now_s):
        each = self.steps[rank][step].instruction
        self.controller.mark(Marker(f"{each.name}:{each.micro_batch}", 0, now_s, rank))

    def due_s(self):
        due_s = self.controller.due_s()
        return float("inf") if due_s is None else due_s

    def act(self, now_s):
        self.controller.act(now_s)


def run(iterations, *, lasting, seats=RANKS, then=lambda controller: None):
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
    ran = simulate_pipeline(graph, gpus, [ProfiledWork(profile)] * RANKS, Marked(controller, graph), iterations, seed=1)
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
    """Settings that change faster than clocks do make iterations twice as much slower as allowed."""
    plan, controller, ran = run(60, lasting=False)
    status = controller.status()
    assert "moving to the default clocks" in next(each.text for each in status.events if each.kind == "stepped")
    assert status.at_default and "to stay within the slowdown limit" in live_text(status)
    assert all(gpu.engine.requested.is_auto for gpu in controller.gpus)
    assert mean_s(ran[-10:]) == pytest.approx(plan.baseline.time_s, rel=0.01)


def test_ranks_that_others_control_as_well_are_not_compared():
    _, controller, _ = run(8, lasting=True, seats=1)
    status = controller.status()
    assert status.proof.default_iterations == 0 and status.proof.plan_iterations == 8 and not status.at_default
    assert not controller.gpus[0].engine.requested.is_auto


class Server:
    """Says that the plan itself is run."""

    def rung(self, iteration):
        return None

    def ended(self, iteration, factor, throttled):
        pass

    def close(self):
        pass


def test_a_server_of_stragglers_says_what_runs():
    def listens(controller):
        for rank in range(RANKS):
            controller.listen(rank, rank, Server())

    _, controller, _ = run(8, lasting=True, then=listens)
    assert controller.status().proof.default_iterations == 0 and not controller.status().at_default
