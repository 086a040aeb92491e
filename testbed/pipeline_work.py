"""What instructions of a pipeline take on simulated GPUs: by a profile, or by the kernels that a stage runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError, CannotRunError
from wastenot.core.setting import Setting
from wastenot.devices.protocol import Task
from wastenot.devices.simulated.physics import Physics
from wastenot.frontiers.graph import Graph
from wastenot.meters.tasks import WorkloadTasks
from wastenot.pipelines.model.profile import PipelineProfile
from wastenot.pipelines.model.stages import StageModel
from wastenot.workloads.stages import stage_work

_BIN_C = 0.5  # temperatures that count as one


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """An instruction at one setting: what its kernels have taken until each of them ends.

    Attributes:
        until_s: time; shape (kernels + 1,), from 0.
        until_j: energy; likewise.
        throttled: whether a limit holds the clocks below those requested.
    """

    until_s: FloatArray
    until_j: FloatArray
    throttled: bool = False


class Work(Protocol):
    """What a rank's instructions take on its GPU."""

    def course(self, stage: int, name: str, setting: Setting, temperature_c: float) -> Course:
        """An instruction at a setting that is in effect.

        Raises:
            CannotRunError: it is unknown.
        """

    def waiting_w(self, setting: Setting, temperature_c: float) -> float:
        """Power while the rank waits."""


@dataclass(frozen=True, slots=True)
class Calls:
    """What an instruction runs.

    Attributes:
        tasks: its kernels, in order.
        fixed_s: and then collectives, which take as long at every clock and draw what waiting does.
    """

    tasks: tuple[Task, ...]
    fixed_s: float = 0.0


def calls_of_stages(model: StageModel, tasks: WorkloadTasks, partition: Sequence[int]) -> Mapping[tuple[int, str], Calls]:
    """The kernels of each instruction of each stage.

    Args:
        model: that is cut into stages.
        tasks: its kernels, as they were measured.
        partition: layers of each stage.

    Raises:
        BadInputError: the tasks lack one of the model's kernels.
    """
    by_name = {task.name: task for task in tasks.tasks}
    kernels = model.table.kernels
    missing = next((kernel.name for kernel in kernels if kernel.name not in by_name), None)
    if missing is not None:
        raise BadInputError(f"`tasks`: lack the kernel {missing}")
    work = stage_work(
        kernels, partition, recomputation=model.recomputation, split_backward=model.split_backward
    )  # fmt: skip
    return {
        key: Calls(tuple(by_name[kernels[index].name] for index in each.order), each.layers * model.collectives_s)
        for key, each in work.items()
    }


class KernelWork:
    """Instructions made of kernels, on the physics of a simulated GPU.

    Args:
        physics: of the GPU.
        calls: for each (stage, instruction) what it runs.
        waiting_w: power while a rank waits; by default that of the GPU at rest.
    """

    def __init__(self, physics: Physics, calls: Mapping[tuple[int, str], Calls], waiting_w: float | None = None) -> None:
        self._physics, self._calls, self._waiting_w = physics, calls, waiting_w
        self._known: dict[tuple[int, str, Setting, int], Course] = {}

    def course(self, stage: int, name: str, setting: Setting, temperature_c: float) -> Course:
        """An instruction at a setting."""
        key = (stage, name, setting, round(temperature_c / _BIN_C))
        if key not in self._known:
            if (stage, name) not in self._calls:
                raise CannotRunError(f"{name} of stage {stage}: its kernels are not known")
            calls, bin_c = self._calls[stage, name], _BIN_C * key[3]
            points = {task: self._physics.operating_point(task, setting, bin_c) for task in set(calls.tasks)}
            time_s = [points[task].time_s for task in calls.tasks]
            energy_j = [points[task].time_s * points[task].power_w for task in calls.tasks]
            if calls.fixed_s > 0.0:
                time_s.append(calls.fixed_s)
                energy_j.append(calls.fixed_s * self.waiting_w(setting, bin_c))
            throttled = any(point.throttled for point in points.values())
            self._known[key] = Course(_until(np.array(time_s)), _until(np.array(energy_j)), throttled)
        return self._known[key]

    def waiting_w(self, setting: Setting, temperature_c: float) -> float:
        """Power while the rank waits."""
        return self._physics.idle_power_w(setting, temperature_c) if self._waiting_w is None else self._waiting_w


class ProfiledWork:
    """Instructions that take what a profile says, interpolated between its clocks.

    Args:
        profile: with one setting for each instruction.

    Raises:
        BadInputError: kernels inside its instructions have settings of their own.
    """

    def __init__(self, profile: PipelineProfile) -> None:
        self._profile = profile
        keys = list(profile.ways)
        graph = Graph(list(profile.ways.values()), np.arange(len(keys)), np.zeros((0, 2), dtype=np.intp))
        self._table: dict[tuple[int, str], FloatArray] = {}
        for kind, key in enumerate(keys):
            points, rows = graph.ways(kind), []
            for index in range(len(points)):
                label = points[index].choices[0]
                if not isinstance(label, Setting):
                    raise BadInputError("`profile`: kernels inside instructions have settings of their own")
                mhz = np.inf if label.core_mhz is None else label.core_mhz
                rows.append((mhz, float(points.time_s[index]), float(points.energy_j[index])))
            rows.sort()
            self._table[key] = np.array([row for row in rows if np.isfinite(row[0])] or rows)

    def course(self, stage: int, name: str, setting: Setting, temperature_c: float) -> Course:
        """An instruction at a setting."""
        if (stage, name) not in self._table:
            raise CannotRunError(f"{name} of stage {stage}: the profile does not have it")
        if setting.core_mhz is None:
            time_s, energy_j = self._profile.baseline[stage, name]
        else:
            table = self._table[stage, name]
            time_s, energy_j = (float(np.interp(setting.core_mhz, table[:, 0], table[:, each])) for each in (1, 2))
        return Course(np.array([0.0, time_s]), np.array([0.0, energy_j]))

    def waiting_w(self, setting: Setting, temperature_c: float) -> float:
        """Power while the rank waits."""
        return self._profile.waiting_w


def _until(each: FloatArray) -> FloatArray:
    return np.concatenate([[0.0], np.cumsum(each)])
