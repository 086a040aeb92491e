"""What is to be measured: the kernels of a workload, one by one, by pass or all together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from wastenot.capturing.workload_file import read_workload
from wastenot.devices.protocol import Task
from wastenot.errors import BadInputError
from wastenot.planning.objective import Granularity
from wastenot.study.state import parted
from wastenot.study.store import Study, open_study
from wastenot.study.sweep import Kernel, Sweep
from wastenot.workloads.build import build_workload, workload_named
from wastenot.workloads.kernel import KernelSpec, Workload
from wastenot.workloads.shape import Shape


@dataclass(frozen=True, slots=True)
class WorkloadTasks:
    """What a sweep measures.

    Attributes:
        workload: name that the study knows it by.
        kernels: as the study keeps them, in order of execution.
        tasks: what each of them runs.
    """

    workload: str
    kernels: tuple[Kernel, ...]
    tasks: tuple[Task, ...]


def tasks_of(workload: Workload, granularity: Granularity = "kernel") -> WorkloadTasks:
    """The kernels of a workload, or its passes or the whole iteration as one unit each (paper, §5).

    Args:
        workload: by formula.
        granularity: what is measured as one.
    """
    kernels = workload.kernels
    if granularity == "kernel":
        members = tuple(Kernel(kernel.name, kernel.count, kernel.pass_name, kernel.block) for kernel in kernels)
        return WorkloadTasks(workload.name, members, tuple(Task.of_kernel(kernel) for kernel in kernels))
    groups: dict[str, list[tuple[KernelSpec, int]]] = {}
    for kernel in kernels:
        name = kernel.pass_name if granularity == "pass" else "iteration"
        groups.setdefault(name, []).append((kernel, kernel.count))
    return WorkloadTasks(
        f"{workload.name}-by-{granularity}",
        tuple(Kernel(name, 1, name if granularity == "pass" else None) for name in groups),
        tuple(Task(name, tuple(steps)) for name, steps in groups.items()),
    )


def tasks_by_name(workload: str, kernels: Sequence[Kernel]) -> WorkloadTasks:
    """Kernels that are known by name only, for devices that know them: recordings and calibrated simulated GPUs."""
    specs = [
        KernelSpec(kernel.name, kernel.name, "other", (), 0.0, 0.0, 0.0, kernel.pass_name or "", kernel.block, kernel.count)
        for kernel in kernels
    ]
    return WorkloadTasks(workload, tuple(kernels), tuple(map(Task.of_kernel, specs)))


def find_tasks(name: str, device: str, shape: Shape | None = None, granularity: Granularity = "kernel") -> WorkloadTasks:
    """What a name means on a device.

    Args:
        name: of a model such as ``gpt3-xl``; of a workload in a recording; a captured workload's file, which ends in
            ``.json``; or a study, whose kernels are meant.
        device: name of the device; ``recorded:`` ones know their own workloads only.
        shape: how a model is run.
        granularity: what of a model is measured as one.

    Raises:
        BadInputError: there is no such workload; says which there are.
        StudyError: a study cannot be read.
    """
    kind, _, recording = device.partition(":")
    if kind == "recorded":
        recorded = open_study(recording)
        return tasks_in_study(recorded, recorded.read(None if Path(name).exists() else name))
    if name.endswith(".json"):
        return tasks_of(read_workload(name), granularity)
    if Path(name).exists():
        study = open_study(name)
        return tasks_in_study(study, study.read())
    return tasks_of(build_workload(name, shape), granularity)


def tasks_in_study(study: Study, sweep: Sweep) -> WorkloadTasks:
    """The kernels of a sweep, to be measured again.

    What they compute is known by formula where the workload's name says how they are run, or as the study keeps it of
    captured ones.

    Args:
        study: that the sweep was read from.
        sweep: of it.

    Raises:
        StudyError: the study cannot be read.
    """
    captured = study.captured(sweep.workload)
    if captured:
        named = tasks_by_name(sweep.workload, sweep.kernels)
        tasks = (Task.of_kernel(captured.get(task.name, task.steps[0][0])) for task in named.tasks)
        return WorkloadTasks(sweep.workload, sweep.kernels, tuple(tasks))
    try:
        workload = workload_named(parted(sweep.workload)[0])
    except BadInputError:
        return tasks_by_name(sweep.workload, sweep.kernels)
    by_formula = replace(tasks_of(workload), workload=sweep.workload)
    return by_formula if by_formula.kernels == sweep.kernels else tasks_by_name(sweep.workload, sweep.kernels)
