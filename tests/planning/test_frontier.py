"""The frontier of a workload: read from any source, composed, and read back."""

import doctest
from itertools import pairwise

import numpy as np
import pytest

import wastenot as wn
from testbed.small_sweeps import make_sweep, random_sweep
from wastenot.core.errors import BadInputError
from wastenot.frontiers.nodes import KernelSetting

CLOCKS = [(None, None, 1.0, 9.0), (1410, 9501, 1.02, 5.0), (900, 9501, 1.5, 4.0)]
ROWS = [(kernel, core, memory, size * time, size * energy) for kernel, size in (("gemm", 2), ("norm", 1))
        for core, memory, time, energy in CLOCKS]  # fmt: skip


@pytest.fixture
def studies(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("training", "evaluation"):
        wn.open_study(f"{name}.db", create=True).add(make_sweep(ROWS, counts={"gemm": 3}), source="test")


@pytest.mark.usefixtures("studies")
def test_the_example_is_true():
    example = doctest.DocTestFinder().find(wn.frontier, globs={})[0]
    assert doctest.DocTestRunner().run(example) == (0, 7)


@pytest.mark.usefixtures("studies")
def test_any_source_gives_the_same_frontier():
    study = wn.open_study("training.db")
    for source in ("training.db", study, study.read()):
        point = wn.frontier(source, workload="test").least_energy()
        assert (point.time_s, point.energy_j) == (1.5 * 7, 4.0 * 7)
    with pytest.raises(BadInputError, match="the sweep is of workload 'test'"):
        wn.frontier(study.read(), workload="other")


def test_the_frontier_is_a_function_even_once_its_room_is_imported():
    import wastenot.frontiers.algebra  # noqa: F401

    assert callable(wn.frontier)


@pytest.mark.parametrize("granularity", ["kernel", "pass", "iteration"])
def test_a_plan_is_a_point_of_the_frontier(rng, granularity):
    sweep = random_sweep(rng, kernels=4, settings=4, passes=2)
    plan = wn.plan(sweep, wn.Objective("waste", 0.05), granularity=granularity)
    point = wn.frontier(sweep, granularity=granularity).least_energy(plan.certificate.budget_s)
    assert point.time_s == plan.predicted.time_s and point.energy_j == pytest.approx(plan.predicted.energy_j)
    settings = {each.kernel: each.setting for each in point.choices if isinstance(each, KernelSetting)}
    assert settings == {row.kernel: row.setting for row in plan.assignments}


def test_a_tie_of_kernels_is_the_coarse_frontier(rng):
    sweep = random_sweep(rng, kernels=3, settings=4)
    tied, coarse = wn.tie(wn.frontier(sweep)), wn.frontier(sweep, granularity="iteration")
    for ours, theirs in zip(tied.pareto(), coarse.pareto(), strict=True):
        assert (ours.exact_time_s, ours.choices) == (theirs.exact_time_s, theirs.choices)


def test_thousands_of_kernels_are_composed_as_arrays():
    rng = np.random.default_rng(0)
    kernels, settings = 2000, 20
    rows = [(f"k{kernel}", 100 + clock if clock else None, None, 1.0 + clock * rng.random(), 2.0 - 0.05 * clock)
            for kernel in range(kernels) for clock in range(settings)]  # fmt: skip
    frontier = wn.frontier(make_sweep(rows))
    assert len(frontier.alternatives) == 1 and len(frontier.alternatives[0].groups.time_s) == kernels * settings
    hull = frontier.hull()
    assert all(earlier < later for earlier, later in pairwise(hull.time_s.tolist()))
    assert len(repr(frontier)) < 200


def test_what_is_public_shows_itself_on_a_few_lines(rng):
    sweep = random_sweep(rng, kernels=12, settings=12)
    plan = wn.plan(sweep)
    for shown in (
        plan,
        wn.compare(sweep),
        wn.whole_frontier(sweep, (0.0, 0.1)),
        wn.difference(plan, plan),
        wn.frontier(sweep),
    ):
        assert len(repr(shown)) < 400
