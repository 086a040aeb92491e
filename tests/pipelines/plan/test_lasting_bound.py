"""The lower bound on plans whose settings last, against all plans of small pipelines."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from testbed.small_pipelines import hastily
from wastenot.core.setting import Setting
from wastenot.frontiers.algebra import choice
from wastenot.frontiers.graph_rounding import Effort
from wastenot.pipelines.model.profile import PipelineProfile
from wastenot.pipelines.model.schedules import build_schedule
from wastenot.pipelines.plan.lasting import NEARLY, LastingProblem
from wastenot.pipelines.plan.lasting_bound import lasting_bound_j
from wastenot.pipelines.plan.planner import PipelineGoal, plan_pipeline
from wastenot.pipelines.plan.switched import RESERVE, with_switching
from wastenot.planning.switching import switch_time


@pytest.fixture(scope="module", autouse=True)
def _hastily():
    with hastily():
        yield


def drawn(stages, clocks, seed):
    """A profile whose stages differ, and whose instructions gain differently by the clock."""
    rng = np.random.default_rng([seed, 7])
    mhz = np.linspace(900.0, 1800.0, clocks)
    ways, baseline = {}, {}
    for stage, name in product(range(stages), ("forward", "backward")):
        time_s = rng.uniform(0.02, 0.06) * (mhz[-1] / mhz) ** rng.uniform(0.3, 1.0)
        energy_j = time_s * (120.0 + 280.0 * (mhz / mhz[-1]) ** rng.uniform(1.5, 3.0))
        points = list(zip(time_s.tolist(), energy_j.tolist(), map(Setting, mhz.tolist()), strict=True))
        ways[stage, name], baseline[stage, name] = choice(points), points[-1][:2]
    return PipelineProfile("drawn", "unknown", "simulated", ways, baseline, float(rng.choice([0.0, 60.0])))


def least_of_all(made, switching):
    """Energy of the cheapest of all plans whose settings last, with a reserve and without, and that are in time with it."""
    problem = LastingProblem.of(made, switching, RESERVE, 0.0, Effort(steps=0))
    graph, count = made.graph, len(problem.time_s)
    sets = np.array(list(product(range(len(problem.settings)), repeat=count)))
    plain = replace(problem, time_s=problem.plain_s)
    padded_s, padded_end_s = problem.timed(sets)
    start_s, end_s = plain.timed(sets)
    waiting_w, until_s = float(graph.waiting_w.sum()), made.plan.until_s or 0.0
    energy_j = problem.cost_j[np.arange(count), sets].sum(axis=1) + waiting_w * np.maximum(end_s, until_s)
    for index in np.argsort(energy_j).tolist():
        times = (padded_s[index], padded_end_s[index]), (start_s[index], end_s[index])
        if padded_end_s[index] <= problem.within_s and not any(
            list(problem.too_short(sets[index], start, float(end), NEARLY)) for start, end in times
        ):
            return float(energy_j[index])
    raise AssertionError


@pytest.mark.parametrize(
    ("stages", "micro_batches", "clocks", "slowdown", "seconds", "seed"),
    [(2, 2, 3, 0.1, 0.05, 0), (2, 2, 4, 0.05, 0.08, 1), (2, 2, 3, 0.2, 0.15, 2), (2, 2, 3, 0.0, 0.03, 3)],
)
def test_no_plan_whose_settings_last_is_below_the_bound(stages, micro_batches, clocks, slowdown, seconds, seed):
    schedule = build_schedule("1f1b", ranks=stages, micro_batches=micro_batches)
    made = plan_pipeline(drawn(stages, clocks, seed), schedule, PipelineGoal(max_slowdown=slowdown))
    switching = switch_time("unknown", seconds)
    bound_j, best_j = lasting_bound_j(made, switching, RESERVE), least_of_all(made, switching)
    assert 0.85 * best_j <= bound_j <= best_j * (1.0 + 1e-12)


@pytest.mark.parametrize(
    ("stages", "micro_batches", "clocks", "slowdown", "seed"),
    [(2, 3, 6, 0.1, 0), (3, 4, 5, 0.05, 1), (3, 2, 5, 0.3, 2), (4, 3, 4, 0.15, 3)],
)
def test_where_no_switch_fits_in_the_plan_is_the_best_of_all_and_the_bound_its_energy(
    stages, micro_batches, clocks, slowdown, seed
):
    schedule = build_schedule("1f1b", ranks=stages, micro_batches=micro_batches)
    made = plan_pipeline(drawn(stages, clocks, seed), schedule, PipelineGoal(max_slowdown=slowdown))
    switching = switch_time("unknown", 1e3)
    problem = LastingProblem.of(made, switching, RESERVE, 0.0, Effort(steps=0))
    ranks = np.repeat(np.arange(stages), np.diff(problem.ranks))
    sets = np.array(list(product(range(clocks), repeat=stages)))[:, ranks]
    in_time = sets[problem.timed(sets)[1] <= problem.within_s]
    best_j = min(problem.exactly(each).plan.predicted.energy_j for each in in_time)
    plan = with_switching(made, switching).plan
    assert plan.predicted.energy_j == pytest.approx(best_j, rel=1e-12)
    assert best_j * (1.0 - 1e-8) <= lasting_bound_j(made, switching, RESERVE) <= best_j
