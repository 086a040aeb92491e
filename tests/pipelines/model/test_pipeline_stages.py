"""Instructions of stages measured as a whole, beside the sums of their kernels."""

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO
from wastenot.devices.open import open_device
from wastenot.pipelines.model.iteration_graph import pipeline_graph
from wastenot.pipelines.model.measured_profile import measure_pipeline, measure_stages, stage_tasks, whole_tasks
from wastenot.pipelines.model.measured_stages import measured_name, measured_stages
from wastenot.pipelines.model.schedules import build_schedule
from wastenot.pipelines.model.stages import StageModel, StageOptions, profile_of_workload
from wastenot.planning.planner import Planner
from wastenot.study.store import open_study
from wastenot.study.sweep import Kernel

FREE_MHZ = 1350.0  # up to which large products stay below the power limit


@pytest.fixture(scope="module")
def tasks():
    return stage_tasks("gpt3-175b", 8)


@pytest.fixture(scope="module")
def whole(tasks):
    """Eight stages of twelve layers, instruction by instruction."""
    schedule = build_schedule("1f1b", ranks=8, micro_batches=16)
    return measure_pipeline(open_device("sim:h200", seed=2), tasks, schedule, core_step_mhz=300.0)


def test_kernels_add_up_to_instructions_below_the_power_limit(tasks, whole):
    summed = StageModel.of(measure_stages(open_device("sim:h200", seed=1), tasks, core_step_mhz=300.0)).profile([12] * 8)
    measured = profile_of_workload(whole, stages=8)
    assert summed.ways.keys() == measured.ways.keys()
    throttled = []
    for key, frontier in measured.ways.items():
        there, here = summed.ways[key].alternatives[0], frontier.alternatives[0]
        place = {label: index for index, label in enumerate(there.label)}
        for index, label in enumerate(here.label):
            time_s, energy_j = there.time_s[place[label]], there.energy_j[place[label]]
            if label != AUTO and label.core_mhz < FREE_MHZ:
                assert time_s == pytest.approx(here.time_s[index], rel=0.005)
                assert energy_j == pytest.approx(here.energy_j[index], rel=0.015)
            else:
                throttled.append(time_s / here.time_s[index] - 1.0)
    assert 0.0 < np.mean(throttled) < 0.04, "kernels by themselves are throttled more than among others"


def test_instructions_that_stages_have_in_common_are_measured_once(tasks, whole):
    assert measured_stages(tasks.kernels) is None
    found = measured_stages(whole.kernels)
    assert found.partition == (12,) * 8
    assert not found.recomputes
    assert {kernel.name for kernel in whole.kernels if kernel.pass_name == "forward"} == {
        "forward of stage 0, 12 layers", "forward of stages 1-6, 12 layers", "forward of stage 7, 12 layers",
    }  # fmt: skip
    assert found.work[2, "backward"] == found.work[5, "backward"] != found.work[7, "backward"]
    assert [bool(each.loops) for each in found.update] == [True] * 8
    profile = profile_of_workload(whole, stages=8)
    assert profile.errors is not None
    assert profile.fixed[3, "optimizer"].time_s < profile.fixed[0, "optimizer"].time_s


def test_names_say_which_stages_and_come_back():
    name = measured_name("backward", [0, 2, 3, 4, 7], 1)
    assert name == "backward of stages 0,2-4,7, 1 layer"
    forward = measured_name("forward", range(8), 1)
    found = measured_stages([Kernel(name, 5), Kernel(forward, 8)])
    assert [stage for stage, instruction in found.work if instruction == "backward"] == [0, 2, 3, 4, 7]
    assert found.partition == (1,) * 8


def test_recomputation_is_measured_with_the_backward():
    tasks = stage_tasks("gpt3-xl", 2)
    once, again = (whole_tasks(tasks, [12, 12], options=StageOptions(recomputation=each)) for each in ("none", "full"))
    assert measured_stages(again.kernels).recomputes
    assert once.name != again.name
    steps = [dict((kernel.name, times) for kernel, times in each.tasks[1].steps) for each in (once, again)]  # noqa: C402
    assert "up_gemm" not in steps[0]
    assert steps[1]["up_gemm"] == 12


def test_a_study_of_instructions_is_of_its_partition(whole):
    with pytest.raises(BadInputError, match="stages 4: instructions of 8 stages were measured"):
        profile_of_workload(whole, stages=4)
    with pytest.raises(BadInputError, match="partition 11,13,12,12,12,12,12,12: instructions of 12,12"):
        profile_of_workload(whole, options=StageOptions(partition=(11, 13, *[12] * 6)), stages=8)
    with pytest.raises(BadInputError, match="granularity kernel: instructions were measured as a whole"):
        profile_of_workload(whole, options=StageOptions(settings="kernel"), stages=8)
    with pytest.raises(BadInputError, match="measured without full recomputation"):
        profile_of_workload(whole, options=StageOptions(recomputation="full"), stages=8)


def test_measurements_are_kept_and_resumed(tmp_path):
    study = open_study(tmp_path / "stages.db", create=True)
    tasks, schedule = stage_tasks("gpt3-small", 3), build_schedule("zb-h1", ranks=3, micro_batches=4)
    for _ in range(2):
        sweep = measure_pipeline(
            open_device("sim:h200"), tasks, schedule, study, options=StageOptions(partition=(3, 4, 5)), core_step_mhz=600.0
        )
    assert len(study.workloads()) == 1
    profile = profile_of_workload(study, options=StageOptions(split_backward=True), stages=3)
    assert len(sweep) == len(study.read())
    graph = pipeline_graph(schedule, profile)
    assert graph.least_time().time_s > 0.0


@pytest.mark.parametrize("partition", ["balanced", "least-energy"])
def test_layers_are_shared_out_before_instructions_are_measured(partition):
    tasks, schedule = stage_tasks("gpt3-small", 5), build_schedule("1f1b", ranks=5, micro_batches=6)
    sweep = measure_pipeline(
        open_device("sim:h200"), tasks, schedule, options=StageOptions(partition=partition), core_step_mhz=600.0
    )
    found = measured_stages(sweep.kernels)
    assert sum(found.partition) == 12
    assert len(found.partition) == 5
    assert Planner(sweep, "kernel").errors_known


def test_stages_that_cannot_be_are_refused_before_anything_is_measured():
    tasks, device = stage_tasks("gpt3-small", 3), open_device("sim:h200")
    began = device.time.now_s()
    with pytest.raises(BadInputError, match="stages 13: must be from 1 to 12"):
        measure_pipeline(device, tasks, build_schedule("1f1b", ranks=13, micro_batches=4))
    with pytest.raises(BadInputError, match="partition 3,4: has 2 stages"):
        measure_pipeline(
            device, tasks, build_schedule("1f1b", ranks=3, micro_batches=4), options=StageOptions(partition=(3, 4))
        )
    assert device.time.now_s() == began
