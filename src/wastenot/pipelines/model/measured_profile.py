"""A pipeline's profile measured on one device: a model's few dozen kernels once, and every stage from them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.devices.protocol import Task
from wastenot.meters.tasks import WorkloadTasks, tasks_of
from wastenot.pipelines.model.measured_stages import measured_name
from wastenot.pipelines.model.partition import balanced
from wastenot.pipelines.model.schedule import PipelineSchedule
from wastenot.pipelines.model.stages import PartitionKind, StageModel, StageOptions, check_partition_kind
from wastenot.planning.switching import switch_time
from wastenot.study.store import Study, open_study
from wastenot.study.sweep import Kernel, Sweep
from wastenot.sweeping.estimate import Estimate, estimate_sweep
from wastenot.sweeping.grid import Grid, check_measures, settable
from wastenot.sweeping.measure import BASELINE_ROUNDS, measure_sweep
from wastenot.workloads.build import build_workload
from wastenot.workloads.pipeline_shape import pipeline_shape
from wastenot.workloads.shape import ShapeOptions
from wastenot.workloads.stages import StageWork, check_partition, check_stages, layers_of, stage_work, update_work

if TYPE_CHECKING:
    from wastenot.core.progress import Progress
    from wastenot.devices.protocol import Device

CORE_STEP_MHZ = 75.0
"""Between core clocks of a profile; finer than for a single workload, as instructions each have little time to fill."""

_LONGEST_S = 0.2  # that an instruction lasts, about


def stage_tasks(name: str, stages: int, **shape: Unpack[ShapeOptions]) -> WorkloadTasks:
    """The kernels that a model's stages are made of, to be measured one by one.

    Args:
        name: of a model, such as ``gpt3-175b``.
        stages: of the pipeline.
        shape: how the model is run, where not as :func:`pipeline_shape` has it.

    Raises:
        BadInputError: there is no such model, or it cannot be run so.
    """
    return tasks_of(build_workload(name, pipeline_shape(name, stages, **shape)))


def check_cut(tasks: WorkloadTasks, schedule: PipelineSchedule, partition: Sequence[int] | PartitionKind) -> None:
    """Refuse stages that a model cannot be cut into.

    Raises:
        BadInputError: says why.
    """
    layers = layers_of(tasks.kernels)
    check_stages(schedule.stages, layers)
    if isinstance(partition, str):
        check_partition_kind(partition)
    else:
        check_partition(partition, schedule.stages, layers)


def whole_tasks(tasks: WorkloadTasks, partition: Sequence[int], options: StageOptions | None = None) -> WorkloadTasks:
    """The instructions of stages, each to be measured as a whole; those that stages have in common once.

    Args:
        tasks: the kernels, of :func:`stage_tasks`.
        partition: layers of each stage.
        options: whether activations are recomputed, and the backward split.
    """
    recomputation, split = (options or StageOptions()).recomputation, options is not None and options.split_backward
    work = stage_work(tasks.kernels, partition, recomputation=recomputation, split_backward=split)
    every = [*work.items()]
    every += [((stage, "optimizer"), each) for stage, each in enumerate(update_work(tasks.kernels, partition)) if each.loops]
    alike: dict[tuple[str, StageWork], list[int]] = {}
    for (stage, name), each in every:
        alike.setdefault((name, each), []).append(stage)
    kernels, whole = [], []
    for (name, each), stages in alike.items():
        called = measured_name(name, stages, each.layers or partition[stages[0]])
        kernels.append(Kernel(called, len(stages), name))
        steps = tuple((tasks.tasks[member].steps[0][0], loop.times) for loop in each.loops for member in loop.members)
        whole.append(Task(called, steps))
    cut = "-".join(map(str, partition))
    how = ("" if recomputation == "none" else f"-recomputed-{recomputation}") + ("-split" if split else "")
    return replace(tasks, name=f"{tasks.name}-stages-{cut}{how}", kernels=tuple(kernels), tasks=tuple(whole))


def measure_pipeline(
    device: Device,
    tasks: WorkloadTasks,
    schedule: PipelineSchedule,
    study: Study | None = None,
    options: StageOptions | None = None,
    *,
    max_slowdown: float = 0.0,
    core_step_mhz: float = CORE_STEP_MHZ,
    progress: Progress | None = None,
    command: str | None = None,
) -> Sweep:
    """Measure what the profile of a pipeline is made of.

    That is each instruction as a whole, or where kernels inside take their own settings, each kernel. Where layers are to be
    shared out first, kernels are measured for that at the default clocks; for the partition of least energy at all clocks.

    Args:
        device: to measure on.
        tasks: the kernels, of :func:`stage_tasks`.
        schedule: that the stages run.
        study: to keep the measurements in; by default they are not kept.
        options: how the stages are made.
        max_slowdown: that the partition of least energy is for.
        core_step_mhz: between core clocks, counted down from the highest.
        progress: informed of every point.
        command: that resumes this, for the study to remember.

    Raises:
        BadInputError: more stages than layers, a bad partition, or a study of another device.
        ClocksRefusedError: the device's clocks may not be set.
        DeviceError: the device does not measure.
        StudyError: the study cannot be written.
    """
    how = (options or StageOptions()).run_by(schedule)
    check_cut(tasks, schedule, how.partition)
    measure = partial(measure_stages, device, progress=progress)
    if how.settings == "instruction":
        cut = StageOptions(recomputation=how.recomputation, split_backward=how.split_backward)
        partition = how.partition
        if partition == "least-energy":
            model = StageModel.of(measure(tasks, core_step_mhz=2.0 * core_step_mhz), cut)
            partition = model.least_energy(schedule.stages, schedule, max_slowdown)
        elif isinstance(partition, str):
            rough = measure(tasks, core_step_mhz=None)
            partition = StageModel.of(rough, replace(cut, as_measured=True)).balanced(schedule.stages)
        tasks = whole_tasks(tasks, partition, how)
    return measure(tasks, study, core_step_mhz=core_step_mhz, command=command)


def estimate_pipeline(
    device: Device, tasks: WorkloadTasks, schedule: PipelineSchedule, options: StageOptions | None = None
) -> Estimate:
    """What :func:`measure_pipeline` measures into a new study, and how long that takes.

    Where layers are still to be shared out, equal stages stand for the ones that it finds, and its look at kernels for that
    is left out.

    Raises:
        BadInputError: as there.
    """
    check_measures(device)
    how = (options or StageOptions()).run_by(schedule)
    check_cut(tasks, schedule, how.partition)
    if how.settings == "instruction":
        cut = how.partition
        if isinstance(cut, str):
            cut = balanced(layers_of(tasks.kernels), schedule.stages, 1.0)
        tasks = whole_tasks(tasks, cut, how)
    return estimate_sweep(device, tasks, stage_settings(device), {}, rounds=BASELINE_ROUNDS)


def stage_settings(device: Device, core_step_mhz: float = CORE_STEP_MHZ) -> tuple[Setting, ...]:
    """The settings to measure kernels of stages at: core clocks; memory clocks only where a driver changes them at once.

    Raises:
        BadInputError: the step is not positive.
        ClocksRefusedError: the device's clocks may not be set.
    """
    states = device.clocks.supported_clocks()
    slow = switch_time(device.identity.name).memory_s > _LONGEST_S
    grid = Grid(core_step_mhz, memory_mhz=(max(states),) if slow and states else None)
    return settable(device, grid.settings(states))


def measure_stages(
    device: Device,
    tasks: WorkloadTasks,
    study: Study | None = None,
    *,
    core_step_mhz: float | None = CORE_STEP_MHZ,
    progress: Progress | None = None,
    command: str | None = None,
) -> Sweep:
    """Measure the kernels of stages, or their instructions; resumes what a study holds of them.

    Args:
        device: to measure on.
        tasks: of :func:`stage_tasks` or :func:`whole_tasks`.
        study: to keep the measurements in; by default they are not kept.
        core_step_mhz: between core clocks, counted down from the highest; ``None`` for the default clocks only, once.
        progress: informed of every point.
        command: that resumes this, for the study to remember.

    Raises:
        BadInputError: the study is of another device, or its workload of other kernels.
        ClocksRefusedError: the device's clocks may not be set.
        DeviceError: the device does not measure.
        StudyError: the study cannot be written.
    """
    check_measures(device)
    settings = () if core_step_mhz is None else stage_settings(device, core_step_mhz)
    if not settings and core_step_mhz is not None:
        raise BadInputError(f"{device.identity.name}: has no clocks to choose from, and a pipeline's plan sets clocks")
    with ExitStack() as stack:
        if study is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="wastenot-"))
            study = open_study(Path(folder) / "stages.db", create=True)
        with device.clocks.claimed():
            measure_sweep(
                device, tasks, study, settings,
                progress=progress, rounds=BASELINE_ROUNDS if settings else 1, command=command,
            )  # fmt: skip
        return study.read(tasks.name, tasks.state, tasks.granularity)
