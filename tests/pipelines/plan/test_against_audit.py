"""Our plans of a pipeline recomputed without the package: times, energies and bounds."""

from fractions import Fraction

import pytest

from benchmarks.bench_pipeline_lowtime import write_profile
from benchmarks.lowtime_plans import clocks_of
from benchmarks.pipeline_audit import Pipeline, rows_of
from wastenot.frontiers.graph import Graph
from wastenot.pipelines.model.iteration_graph import pipeline_graph
from wastenot.pipelines.model.perseus_csv import read_perseus_csv
from wastenot.pipelines.model.schedules import one_forward_one_backward

MICRO_BATCHES, WAITING_W = 5, 70.0  # so many parts that no exact search closes the gap to the relaxation's bound


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    path = tmp_path_factory.mktemp("audit") / "profile.csv"
    write_profile(path)
    return path


@pytest.fixture(scope="module")
def graph(profile) -> Graph:
    return pipeline_graph(one_forward_one_backward(8, MICRO_BATCHES), read_perseus_csv(profile, waiting_w=WAITING_W))


@pytest.mark.parametrize(
    ("slower", "held"), [("0", False), pytest.param("0.013", False, marks=pytest.mark.slow), ("0.07", True), ("0.6", True)]
)
def test_a_plan_is_what_it_says(profile, graph, slower, held):
    rows, pipeline = rows_of(profile), Pipeline(8, MICRO_BATCHES)
    fastest = pipeline.recompute(rows, pipeline.fastest(rows), WAITING_W)
    within = fastest.exact_s * (1 + Fraction(slower))
    until_s = float(within) if held else 0.0
    plan = graph.least_energy(within, until_s=until_s or None)
    clocks = clocks_of(plan, graph, one_forward_one_backward(8, MICRO_BATCHES))
    found = pipeline.recompute(rows, clocks, WAITING_W, until_s)
    assert found.exact_s == plan.exact_time_s <= within
    assert found.energy_j == pytest.approx(plan.energy_j, rel=1e-12)
    bound = pipeline.bound(rows, WAITING_W, float(within), until_s)
    assert plan.lower_bound_j == pytest.approx(bound, rel=1e-6)
    assert plan.lower_bound_j <= bound * (1.0 + 1e-9)
    assert found.energy_j >= plan.lower_bound_j


def test_the_fastest_plan_is_the_fastest(profile, graph):
    rows, pipeline = rows_of(profile), Pipeline(8, MICRO_BATCHES)
    assert graph.least_time().exact_time_s == pipeline.recompute(rows, pipeline.fastest(rows), WAITING_W).exact_s


def test_a_pipeline_of_one_stage_runs_one_after_another(profile):
    rows = {key: value for key, value in rows_of(profile).items() if key[0] == 0}
    found = Pipeline(1, 3).recompute(
        rows, {(0, name, at): 1410.0 for name in ("forward", "backward") for at in range(3)}, 50.0
    )
    times = [Fraction(rows[0, name][1410.0][0]) for name in ("forward", "backward")]
    assert found.exact_s == 3 * sum(times)
    assert found.energy_j == pytest.approx(3 * sum(rows[0, name][1410.0][1] for name in ("forward", "backward")), rel=1e-12)
