"""Plans whose settings last as long as switching takes."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from testbed.pipeline_runs import made_profile
from testbed.small_pipelines import hastily
from wastenot.core.setting import Setting
from wastenot.frontiers.algebra import choice
from wastenot.frontiers.graph_rounding import Effort
from wastenot.pipelines.model.derived import with_split_backward
from wastenot.pipelines.model.schedules import build_schedule
from wastenot.pipelines.model.ways import Stretch
from wastenot.pipelines.plan.annealing import annealed
from wastenot.pipelines.plan.lasting import LastingProblem
from wastenot.pipelines.plan.lasting_search import first, improved, on_time, quickened
from wastenot.pipelines.plan.plan_file import read_pipeline_plan
from wastenot.pipelines.plan.planner import PipelineGoal, frontier_rungs, plan_pipeline, with_rungs
from wastenot.pipelines.plan.rank_steps import PlanGraph
from wastenot.pipelines.plan.straggler import Rungs
from wastenot.pipelines.plan.switched import RESERVE, with_lasting, with_switching
from wastenot.pipelines.run.rung_follower import plan_at
from wastenot.planning.switching import switch_time

SLOW = switch_time("unknown", 0.05)


@pytest.fixture(scope="module", autouse=True)
def _hastily():
    with hastily():
        yield


def shortest_stays(plan):
    """For each rank the shortest time between two changes of its settings, by when instructions begin."""
    graph, found = PlanGraph(plan), []
    for rank in range(len(plan.ranks)):
        steps = graph.steps(rank)
        changes = [step.start_s for before, step in pairwise(steps) if before.stays != step.stays]
        found.append(min(np.diff(changes), default=np.inf))
    return found


@pytest.mark.parametrize(("name", "slowdown"), [("1f1b", 0.0), ("1f1b", 0.05), ("gpipe", 0.05), ("zb-h1", 0.0)])
def test_settings_last_and_the_deadline_is_kept(name, slowdown):
    profile = made_profile(4, forward_s=0.012, imbalance=0.2, seed=4)
    if name == "zb-h1":
        profile = with_split_backward(profile)
    made = plan_pipeline(profile, build_schedule(name, ranks=4, micro_batches=6), goal=PipelineGoal(max_slowdown=slowdown))
    lasting = with_switching(made, SLOW)
    assert min(shortest_stays(made.plan)) < SLOW.core_s
    assert min(shortest_stays(lasting.plan)) >= 0.9 * SLOW.core_s
    assert lasting.solved.exact_time_s <= made.baseline.exact_time_s * (1 + Fraction(slowdown))
    assert made.plan.predicted.energy_j <= lasting.plan.predicted.energy_j <= made.plan.baseline.energy_j
    assert lasting.plan.lower_bound_j == made.plan.lower_bound_j
    assert made.plan.lower_bound_j <= lasting.plan.lasting_lower_bound_j <= lasting.plan.predicted.energy_j
    assert lasting.plan.digest == lasting.plan.content_digest()
    if slowdown:
        assert lasting.plan.energy_change < 0.5 * made.plan.energy_change


@pytest.mark.parametrize("slowdown", [0.0, 0.05])
def test_plans_for_stragglers_last_too(slowdown, tmp_path):
    profile = made_profile(4, forward_s=0.012, imbalance=0.2, seed=4)
    goal = PipelineGoal(max_slowdown=slowdown)
    made = with_switching(plan_pipeline(profile, build_schedule("1f1b", ranks=4, micro_batches=6), goal=goal), SLOW)
    free = with_rungs(made, frontier_rungs(made, 6)).plan
    plan = with_rungs(made, with_lasting(made, frontier_rungs(made, 6))).plan
    assert len(plan.rungs) == len(free.rungs) and min(shortest_stays(plan_at(free, 3))) < 0.9 * SLOW.core_s
    for number, rung in enumerate(plan.rungs):
        assert min(shortest_stays(plan_at(plan, number))) >= 0.9 * SLOW.core_s
        assert rung.time_s <= rung.within_s * (1.0 + 1e-9) and rung.lower_bound_j <= rung.energy_j
    rungs = Rungs(plan)
    assert plan_at(plan, rungs.own).ranks == plan.ranks and rungs.time_s[rungs.own] == plan.predicted.time_s
    saved = [1.0 - Rungs(each).saving(Rungs(each).answer([1.2, 1.0]).rungs[1], 1.2 * rungs.time_s[rungs.own]).energy_j
             / rungs.saving(rungs.own, 1.2 * rungs.time_s[rungs.own]).energy_j for each in (plan, free)]  # fmt: skip
    assert 0.05 < saved[0] <= saved[1] + 1e-6
    plan.write(tmp_path / "plan.json")
    assert read_pipeline_plan(tmp_path / "plan.json") == plan


def test_switches_that_take_no_time_cost_nothing_and_those_that_take_some_a_reserve():
    made = plan_pipeline(
        made_profile(4), build_schedule("1f1b", ranks=4, micro_batches=5), goal=PipelineGoal(max_slowdown=0.05)
    )
    assert with_switching(made, switch_time("unknown", 0.0), reserve=0.01) is made
    short = switch_time("unknown", 1e-6)
    almost = with_switching(made, short).plan
    assert almost.predicted.energy_j == pytest.approx(made.plan.predicted.energy_j, rel=2e-3)
    assert (almost.switching, almost.free) == (short, made.plan.predicted)
    kept = with_switching(made, switch_time("unknown", 0.02), reserve=0.01).plan
    assert kept.predicted.time_s <= made.plan.within_s / 1.003
    assert kept.predicted.energy_j > almost.predicted.energy_j


def test_at_no_slowdown_what_is_critical_has_no_switches_that_could_be_late():
    """With switches that are often late, ranks that never wait keep one setting."""
    profile = made_profile(3, imbalance=0.0)
    made = plan_pipeline(profile, build_schedule("1f1b", ranks=3, micro_batches=6))
    late = switch_time("sim:h200").model_copy(update={"jitter": 1.0})
    plan = with_switching(made, late).plan
    assert plan.predicted.time_s == made.plan.baseline.time_s
    assert plan.predicted.energy_j <= made.plan.baseline.energy_j


def test_plans_with_settings_inside_instructions_stay_as_they_are():
    profile = made_profile(2)
    ways = dict(profile.ways)
    inside = (Stretch(Setting(900.0), 1, 0.1), Stretch(Setting(1980.0), 2, 0.05))
    ways[0, "forward"] = choice([(0.15, 60.0, inside), (0.1, 80.0, Setting(1980.0))])
    made = plan_pipeline(
        replace(profile, ways=ways), build_schedule("1f1b", ranks=2, micro_batches=2), goal=PipelineGoal(max_slowdown=0.5)
    )
    same = with_switching(made, SLOW)
    assert same.plan.ranks == made.plan.ranks and same.plan.switching is None
    assert any("settings change within instructions" in note for note in same.plan.notes)
    assert same.plan.digest == same.plan.content_digest()


def test_where_switching_takes_longer_than_an_iteration_each_rank_has_the_best_setting():
    """No instruction of the plan that changes settings at will is slow enough for one setting; time has to be traded."""
    made = plan_pipeline(
        made_profile(3, imbalance=0.2, seed=4),
        build_schedule("1f1b", ranks=3, micro_batches=8),
        goal=PipelineGoal(max_slowdown=0.03),
    )
    plan = with_switching(made, switch_time("unknown", 1e3), reserve=0.0).plan
    for rank in range(3):
        assert len({step.stays for step in PlanGraph(plan).steps(rank)}) == 1
    graph, best_j = made.graph, np.inf
    ways = len(graph.ways(int(graph.kind[0])))
    for each in np.ndindex(ways, ways, ways):
        way = np.repeat(each, 16)
        tried = graph.plan(np.concatenate([way, np.zeros(len(graph) - len(way), dtype=np.intp)]))
        if tried.time_s <= made.plan.within_s:
            best_j = min(best_j, tried.energy_j)
    assert plan.predicted.energy_j == pytest.approx(best_j, rel=1e-12)
    assert best_j * (1.0 - 1e-8) <= plan.lasting_lower_bound_j <= best_j
    assert best_j < 0.99 * made.plan.baseline.energy_j


@pytest.mark.parametrize("slowdown", [0.0, 0.03])
def test_annealing_gets_back_within_the_deadline(slowdown):
    """Where being late gets dearer too slowly, all is late to the end, and nothing better than the start is found."""
    made = plan_pipeline(
        made_profile(3, forward_s=0.012, imbalance=0.2, seed=5),
        build_schedule("1f1b", ranks=3, micro_batches=12),
        goal=PipelineGoal(max_slowdown=slowdown),
    )
    problem = LastingProblem.of(made, switch_time("unknown", 0.1), RESERVE, 0.0, Effort(steps=0))
    begun = problem.exactly(improved(problem, quickened(problem, on_time(problem, first(problem)))))
    setting, problem = problem.settings_of(begun), problem.waiting_as(begun)
    found = annealed(problem, setting)
    assert problem.keeps(found) and problem.cost(found) < 0.99 * problem.cost(setting)
