"""Plans of pipelines executed on simulated GPUs in lockstep."""

import pytest

from testbed.pipeline_lockstep import Faults, RankExecutions, simulate_pipeline
from testbed.pipeline_runs import made_profile, planned
from testbed.pipeline_work import ProfiledWork
from wastenot.core.errors import BadInputError
from wastenot.devices.open import simulated_device
from wastenot.devices.simulated.hardware import Switching
from wastenot.devices.simulated.preset import find_preset
from wastenot.pipelines.model.schedules import gpipe, one_forward_one_backward
from wastenot.pipelines.plan.rank_steps import PlanGraph
from wastenot.pipelines.run.rank_execution import RankExecution
from wastenot.planning.switching import switch_time

IDEAL = Switching.of(0.0), Faults(0.0, 0.0)


def executed(plan, profile, *, switching=None, faults=None, switch=None, iterations=3, seed=0):
    graph, preset = PlanGraph(plan), find_preset("h200")
    ranks = range(len(plan.ranks))
    gpus = [simulated_device(preset, "sim:h200", seed=100 * seed + rank, switching=switching) for rank in ranks]
    switch = switch_time("sim:h200") if switch is None else switch
    driver = RankExecutions(
        [RankExecution(gpu, graph.steps(rank), graph.period_s, switch) for rank, gpu in zip(ranks, gpus, strict=True)]
    )
    work = [ProfiledWork(profile)] * len(gpus)
    return simulate_pipeline(graph, gpus, work, driver, iterations, faults=faults, seed=seed), driver


def in_effect(ran):
    """Settings of an instruction with when each began and ended."""
    begins = [begin_s for begin_s, _ in ran.settings]
    return zip([s for _, s in ran.settings], begins, [*begins[1:], ran.end_s - ran.begin_s], strict=True)


def test_without_faults_a_run_is_the_plan():
    profile = made_profile(3, transfer_s=0.0005, iteration_s=0.05, iteration_j=10.0)
    plan = planned(profile, 6, slower=0.05)
    run, driver = executed(plan, profile, switching=IDEAL[0], faults=IDEAL[1], switch=switch_time("x", 0.0))
    assert driver.ranks[0].out_of_order == 0 and max(rank.requests for rank in driver.ranks) > 3
    for each in run.iterations[1:]:
        assert each.time_s == pytest.approx(plan.predicted.time_s, rel=1e-6)
        assert sum(each.energy_j) == pytest.approx(plan.predicted.energy_j, rel=1e-6)


@pytest.mark.parametrize("schedule", [one_forward_one_backward, pytest.param(gpipe, marks=pytest.mark.slow)])
def test_every_instruction_ran_at_its_own_clock_where_switches_are_on_time(schedule):
    profile = made_profile(3, forward_s=0.2)
    plan = planned(profile, 6, slower=0.1, schedule=schedule(3, 6))
    run, _ = executed(plan, profile, switching=Switching.of(0.02), faults=IDEAL[1], switch=switch_time("x", 0.02))
    graph = PlanGraph(plan)
    steps = [graph.steps(rank) for rank in range(3)]
    settings = {
        (each.rank, each.step): [s for s, begin_s, end_s in in_effect(each) if end_s - begin_s > 1e-6]
        for each in run.instructions
        if each.iteration == 2
    }
    assert settings == {(r, i): [step.stays[0].setting] for r, rank in enumerate(steps) for i, step in enumerate(rank)}


@pytest.mark.slow
def test_with_the_faults_of_real_cards_a_run_takes_what_its_plan_says():
    profile = made_profile(4, forward_s=0.08, transfer_s=0.0005, iteration_s=0.05, iteration_j=10.0, seed=3)
    plan = planned(profile, 8, slower=0.05)
    for seed in range(2):
        run, _ = executed(plan, profile, seed=seed, iterations=5)
        ran = run.iterations[1:]
        time_s = sum(each.time_s for each in ran) / len(ran)
        energy_j = sum(sum(each.energy_j) for each in ran) / len(ran)
        assert time_s == pytest.approx(plan.predicted.time_s, rel=0.005)
        assert energy_j == pytest.approx(plan.predicted.energy_j, rel=0.01)


def test_clocks_at_their_default_run_as_the_baseline():
    profile = made_profile(3)
    plan = planned(profile, 4)
    graph = PlanGraph(plan)
    gpus = [simulated_device(find_preset("h200"), "sim:h200", seed=rank) for rank in range(3)]
    run = simulate_pipeline(graph, gpus, [ProfiledWork(profile)] * 3, None, 1, faults=IDEAL[1])
    assert run.iterations[0].time_s == pytest.approx(plan.baseline.time_s)
    assert sum(run.iterations[0].energy_j) == pytest.approx(plan.baseline.energy_j)
    assert all(gpu.engine.requested.is_auto for gpu in gpus)


def test_as_many_gpus_as_ranks():
    profile = made_profile(3)
    with pytest.raises(BadInputError, match="the plan has 3 ranks, and there are 0 GPUs"):
        simulate_pipeline(PlanGraph(planned(profile, 4)), [], [], None, 1)


def test_a_program_in_another_order_is_followed_and_told():
    profile = made_profile(2, forward_s=0.2)
    plan = planned(profile, 4, slower=0.1)
    graph = PlanGraph(plan)
    gpu = simulated_device(find_preset("h200"), "sim:h200")
    rank = RankExecution(gpu, graph.steps(0), graph.period_s, switch_time("x", 0.02))
    assert rank.place("forward", 0) == 0 and rank.place("forward", 9) is None and rank.place("forward", 0, 1) is None
    rank.begin(0, 0.0)
    rank.begin(3, 0.5)
    assert rank.out_of_order == 1 and gpu.engine.requested == rank.steps[3].stays[0].setting
    rank.release(1.0)
    assert gpu.engine.requested.is_auto and rank.due_s == float("inf") and not rank.act(99.0)


def test_what_does_not_come_is_not_run_ahead_of():
    """Where the next instruction does not begin (a checkpoint is written), the clock stays that of what comes next."""
    profile = made_profile(2, forward_s=0.2)
    graph = PlanGraph(planned(profile, 4, slower=0.1))
    gpu = simulated_device(find_preset("h200"), "sim:h200")
    steps = graph.steps(0)
    rank = RankExecution(gpu, steps, graph.period_s, switch_time("x", 0.02))
    rank.begin(0, 0.0)
    for _ in range(10):
        if rank.due_s < 100.0:
            rank.act(rank.due_s)
    assert rank.due_s == float("inf") and rank.requests <= 2
    assert gpu.engine.requested in (steps[0].stays[0].setting, steps[1].stays[0].setting)
