"""A pipeline's profile measured on one device: a model's few dozen kernels once, and every stage from them."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from wastenot.devices.open import claimed
from wastenot.errors import BadInputError
from wastenot.planning.switching import switch_time
from wastenot.setting import Setting
from wastenot.study.store import Study, open_study
from wastenot.study.sweep import Sweep
from wastenot.sweeping.grid import Grid, check_measures, settable
from wastenot.sweeping.point import PointOptions
from wastenot.sweeping.sweep import BASELINE_ROUNDS, measure_sweep
from wastenot.tasks import WorkloadTasks, tasks_of
from wastenot.workloads.build import build_workload
from wastenot.workloads.pipeline_shape import pipeline_shape
from wastenot.workloads.shape import ShapeOptions

if TYPE_CHECKING:
    from wastenot.devices.protocol import Device
    from wastenot.progress import Progress

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
    core_step_mhz: float = CORE_STEP_MHZ,
    options: PointOptions | None = None,
    progress: Progress | None = None,
    command: str | None = None,
) -> Sweep:
    """Measure the kernels of stages; resumes what a study holds of them.

    Args:
        device: to measure on.
        tasks: of :func:`stage_tasks`.
        study: to keep the measurements in; by default they are not kept.
        core_step_mhz: between core clocks, counted down from the highest.
        options: how to measure.
        progress: informed of every point.
        command: that resumes this, for the study to remember.

    Raises:
        BadInputError: the study is of another device, or its workload of other kernels.
        ClocksRefusedError: the device's clocks may not be set.
        DeviceError: the device does not measure.
        StudyError: the study cannot be written.
    """
    check_measures(device)
    settings = stage_settings(device, core_step_mhz)
    if not settings:
        raise BadInputError(f"{device.identity.name}: has no clocks to choose from, and a pipeline is planned by them")
    with ExitStack() as stack:
        if study is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="wastenot-"))
            study = open_study(Path(folder) / "stages.db", create=True)
        with claimed(device):
            measure_sweep(
                device, tasks, study, settings,
                options=options, progress=progress, rounds=BASELINE_ROUNDS, command=command,
            )  # fmt: skip
        return study.read(tasks.name, tasks.state, tasks.granularity)
