"""What is to be measured: the kernels of a workload, one by one, by pass or all together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from wastenot.core.errors import BadInputError
from wastenot.devices.protocol import Task
from wastenot.study.sweep import Kernel, Sweep
from wastenot.workloads.build import build_workload
from wastenot.workloads.capturing.workload_file import read_workload
from wastenot.workloads.identity import EnergyState, Granularity, ModelRun, WorkloadKey
from wastenot.workloads.kernel import KernelSpec, Workload
from wastenot.workloads.shape import Shape

if TYPE_CHECKING:
    from wastenot.study.store import Study


@dataclass(frozen=True, slots=True)
class WorkloadTasks:
    """What a sweep measures.

    Attributes:
        kernels: as the study stores them, in order of execution: kernels, or passes or the iteration, each measured as one.
        tasks: what each of them runs.
        state: to measure energies in.
        granularity: of ``kernels``.
        run: the model of the workload and how it is run; ``None`` for other workloads.
        captured_on: the kind of device that the workload was captured on, where it was.
    """

    name: str
    kernels: tuple[Kernel, ...]
    tasks: tuple[Task, ...]
    state: EnergyState = "ssp"
    granularity: Granularity = "kernel"
    run: ModelRun | None = None
    captured_on: str | None = None

    @property
    def key(self) -> WorkloadKey:
        """What identifies its measurements in a study."""
        return WorkloadKey(self.name, self.state, self.granularity)


def tasks_of(workload: Workload, granularity: Granularity = "kernel", state: EnergyState = "ssp") -> WorkloadTasks:
    """The kernels of a workload, or its passes or the whole iteration as one task each (paper, §5).

    Args:
        workload: of a model, or captured.
        granularity: what is measured as a unit.
        state: to measure energies in.
    """
    kernels = workload.kernels
    if granularity == "kernel":
        members = tuple(Kernel(kernel.name, kernel.count, kernel.pass_name, kernel.block) for kernel in kernels)
        tasks = tuple(map(Task.of_kernel, kernels))
    else:
        groups: dict[str, list[tuple[KernelSpec, int]]] = {}
        for kernel in kernels:
            group = kernel.pass_name if granularity == "pass" else "iteration"
            groups.setdefault(group, []).append((kernel, kernel.count))
        members = tuple(Kernel(name, 1, name if granularity == "pass" else None) for name in groups)
        tasks = tuple(Task(name, tuple(steps)) for name, steps in groups.items())
    return WorkloadTasks(workload.name, members, tasks, state, granularity, workload.run, workload.captured_on)


def tasks_by_name(workload: WorkloadKey | str, kernels: Sequence[Kernel]) -> WorkloadTasks:
    """Kernels known by name only, for devices that know them: recordings and calibrated simulated GPUs."""
    key = workload if isinstance(workload, WorkloadKey) else WorkloadKey(workload)
    specs = [
        KernelSpec(kernel.name, kernel.name, "other", (), 0.0, 0.0, 0.0, kernel.pass_name or "", kernel.block, kernel.count)
        for kernel in kernels
    ]
    return WorkloadTasks(key.name, tuple(kernels), tuple(map(Task.of_kernel, specs)), key.state, key.granularity)


def find_tasks(
    name: str, device: str, shape: Shape | None = None, granularity: Granularity = "kernel", state: EnergyState = "ssp"
) -> WorkloadTasks:
    """What a name means on a device.

    Args:
        name: of a model such as ``gpt3-xl``; of a workload in a recording; a captured workload's file, which ends in
            ``.json``; or a study, whose kernels are meant.
        device: name of the device; ``recorded:`` ones know their own workloads only.
        shape: how a model is run.
        granularity: what is measured as one; of a study or a recording what it holds.
        state: to measure energies in.

    Raises:
        BadInputError: there is no such workload; says which there are.
        StudyError: a study cannot be read.
    """
    kind, _, recording = device.partition(":")
    exists = Path(name).exists()
    if kind == "recorded" or (exists and not name.endswith(".json")):
        from wastenot.study.store import open_study  # with its databases, which other tasks do without

        study = open_study(recording if kind == "recorded" else name)
        sweep = study.read(None if exists else name, granularity=granularity, finer=True)
        return replace(tasks_in_study(study, sweep), state=state)
    built = read_workload(name) if name.endswith(".json") else build_workload(name, shape)
    return tasks_of(built, granularity, state)


def find_workload(name: str, shape: Shape | None = None, of_study: str | None = None) -> Workload:
    """The kernels that a name stands for, and what they compute.

    Args:
        name: of a model such as ``gpt3-xl``, of the file of a captured workload (``mine.json``), or of a study.
        shape: how a model is run; files and studies say it themselves.
        of_study: which workload, where a study has several.

    Raises:
        BadInputError: there is no such workload, or ``shape`` or ``of_study`` is given for what has none.
        StudyError: the study cannot be read.
    """
    if not name.endswith(".json") and not Path(name).exists():
        if of_study is not None:
            raise BadInputError(f"`workload` {of_study}: selects a workload of a study; {name} is a model: leave it out")
        return build_workload(name, shape)
    if shape is not None and replace(shape, dtype=Shape().dtype) != Shape():
        raise BadInputError(f"{name}: has a fixed shape; leave out the options that change the shape of a model")
    if name.endswith(".json"):
        return read_workload(name)
    from wastenot.study.store import open_study

    study = open_study(name)
    sweep = study.read(of_study, granularity="kernel", finer=True)
    found = tasks_in_study(study, sweep)
    specs = [
        replace(task.steps[0][0], name=kernel.name, count=kernel.count, pass_name=kernel.pass_name or "", block=kernel.block)
        for kernel, task in zip(found.kernels, found.tasks, strict=True)
    ]
    described = f"of {name}, measured on {sweep.device}"
    return Workload(found.name, tuple(specs), described, found.run, found.captured_on)


def tasks_in_study(study: Study, sweep: Sweep) -> WorkloadTasks:
    """The kernels of a sweep, to be measured again in the same state.

    What they compute follows from the model and the shape, or is stored with them where they were captured.

    Args:
        study: that the sweep was read from.
        sweep: of it.

    Raises:
        StudyError: the study cannot be read.
    """
    named = tasks_by_name(sweep.key, sweep.kernels)
    captured = study.captured(sweep.workload, sweep.state, sweep.granularity)
    if captured:
        tasks = (Task(task.name, captured.get(task.name, task.steps)) for task in named.tasks)
        return replace(named, tasks=tuple(tasks), captured_on=sweep.captured_on)
    if sweep.run is None:
        return named
    modelled = tasks_of(build_workload(sweep.run.model, sweep.run.shape), sweep.granularity, sweep.state)
    known = dict(zip(modelled.kernels, modelled.tasks, strict=True))
    if not all(kernel in known for kernel in sweep.kernels):
        return replace(named, name=sweep.workload)
    reached = tuple(known[kernel] for kernel in sweep.kernels)  # fewer than the model has where some were not yet
    return replace(modelled, name=sweep.workload, kernels=sweep.kernels, tasks=reached)
