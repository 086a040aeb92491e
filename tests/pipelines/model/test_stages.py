"""Profiles of stages from a study of kernels."""

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO
from wastenot.devices.open import open_device
from wastenot.pipelines.model.iteration_graph import baseline_of, pipeline_graph
from wastenot.pipelines.model.measured_profile import measure_stages, stage_tasks
from wastenot.pipelines.model.schedules import build_schedule
from wastenot.pipelines.model.stages import StageModel, StageOptions, profile_of_workload
from wastenot.planning.planner import Planner


@pytest.fixture(scope="module")
def planner() -> Planner:
    """Of kernels of GPT-3 XL's stages at a few clocks."""
    return Planner(measure_stages(open_device("sim:h200", seed=3), stage_tasks("gpt3-xl", 4), core_step_mhz=450.0), "kernel")


def test_stages_add_up_to_the_model(planner):
    costs = planner.believed.costs
    rows, trained = costs.start[:-1], [each.pass_name != "optimizer" for each in costs.kernels]
    whole = float((costs.count * costs.time_s[rows])[trained].sum())
    for stages in (1, 4, 24):
        profile = profile_of_workload(planner, stages=stages)
        assert sum(time for time, _ in profile.baseline.values()) == pytest.approx(whole, rel=1e-12)


def test_the_baseline_is_the_way_at_auto(planner):
    profile = profile_of_workload(planner, stages=4)
    for key, frontier in profile.ways.items():
        node = frontier.alternatives[0]
        place = list(node.label).index(AUTO)
        assert (node.time_s[place], node.energy_j[place]) == profile.baseline[key]  # a deadline may be just that


def test_balanced_stages_are_as_equal_as_layers_allow(planner):
    model = StageModel.of(planner)
    times = _stage_times(model, model.balanced(5))
    first, each, last = model._stage_times()
    assert min(first, each, last) > 0.0
    assert max(times) - min(times) < 2.0 * each


def test_a_given_partition_is_taken(planner):
    profile = profile_of_workload(planner, options=StageOptions(partition=(4, 10, 10)), stages=3)
    assert profile.baseline[0, "forward"][0] < profile.baseline[1, "forward"][0]
    assert "layers by stage: 4, 10, 10" in profile.notes


def test_bad_input_is_named(planner):
    with pytest.raises(BadInputError, match="stages 30"):
        profile_of_workload(planner, stages=30)
    with pytest.raises(BadInputError, match="partition 4,4"):
        profile_of_workload(planner, options=StageOptions(partition=(4, 4)), stages=2)
    with pytest.raises(BadInputError, match="granularity kernels: unknown"):
        profile_of_workload(planner, options=StageOptions(settings="kernels"), stages=2)
    with pytest.raises(BadInputError, match="tensor_link nvlink: unknown"):
        profile_of_workload(planner, options=StageOptions(tensor_link="nvlink"), stages=2)
    with pytest.raises(BadInputError, match="waiting_w"):
        profile_of_workload(planner, options=StageOptions(waiting_w=-1.0), stages=2)


@pytest.mark.parametrize(
    ("schedule", "options"),
    [
        ("1f1b", {}),
        pytest.param("gpipe", {"recomputation": "full"}, marks=pytest.mark.slow),
        ("early-recomputation", {"recomputation": "early"}),
        ("zb-h1", {"split_backward": True}),
    ],
)
def test_profiles_have_what_schedules_run(planner, schedule, options):
    profile = profile_of_workload(planner, options=StageOptions(**options), stages=4)
    graph = pipeline_graph(build_schedule(schedule, ranks=4, micro_batches=6), profile)
    fastest = graph.least_time()
    assert graph.least_energy(1.05 * fastest.time_s).energy_j < fastest.energy_j


def test_memory_clocks_that_change_too_slowly_are_left_alone(planner):
    profile = profile_of_workload(planner, stages=4)
    labels = {label for frontier in profile.ways.values() for label in frontier.alternatives[0].label}
    assert {label.memory_mhz for label in labels} == {None}
    assert len(labels) > 4


def test_communication_is_part_of_large_stages():
    sweep = measure_stages(open_device("sim:h200"), stage_tasks("gpt3-xl", 2, tensor_parallel=2), core_step_mhz=600.0)
    model = StageModel.of(sweep)
    assert model.tensor_parallel == 2
    # two all-reduces of 2,048 × 2,048 elements of two bytes, by a reduce-scatter and an all-gather each, at 450 GB/s
    assert model.collectives_s == pytest.approx(4 * (5e-6 + 2048 * 2048 * 2 / 2 / 450e9))
    apart = StageModel.of(sweep, options=StageOptions(tensor_link="pcie4"))
    assert apart.profile((12, 12)).baseline[0, "forward"][0] > model.profile((12, 12)).baseline[0, "forward"][0]
    assert np.isclose(model.profile((12, 12)).fixed[0, "receive"].time_s, 10e-6 + 2048 * 2048 * 2 / 2 / 50e9)


def _stage_times(model, partition):
    baseline = model.profile(partition).baseline
    return [sum(time for (at, _), (time, _) in baseline.items() if at == stage) for stage in range(len(partition))]


def test_partitions_by_name(planner):
    schedule = build_schedule("1f1b", ranks=5, micro_batches=6)
    usual = profile_of_workload(planner, stages=5)
    found = profile_of_workload(planner, options=StageOptions(partition="least-energy"), stages=5, schedule=schedule)
    assert _bound_j(schedule, found) <= _bound_j(schedule, usual) * (1 + 1e-6)
    with pytest.raises(BadInputError, match="partition least-energy: depends on the schedule"):
        profile_of_workload(planner, options=StageOptions(partition="least-energy"), stages=5)
    with pytest.raises(BadInputError, match="partition balance: "):
        profile_of_workload(planner, options=StageOptions(partition="balance"), stages=5)


def _bound_j(schedule, profile):
    graph = pipeline_graph(schedule, profile)
    return graph.lower_bound_j(max(graph.least_time().exact_time_s, _default_s(schedule, profile)))


def _default_s(schedule, profile):
    return baseline_of(schedule, profile).exact_time_s
