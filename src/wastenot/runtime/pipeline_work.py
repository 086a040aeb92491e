"""What instructions of a pipeline take on simulated GPUs: by a profile, or by the kernels that a stage runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from wastenot.arrays import FloatArray
from wastenot.devices.protocol import Task
from wastenot.devices.simulated.physics import Physics
from wastenot.errors import BadInputError, CannotRunError
from wastenot.frontiers.graph import Graph
from wastenot.setting import Setting
from wastenot.stack.pipeline.profile import PipelineProfile

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


class KernelWork:
    """Instructions made of kernels, on the physics of a simulated GPU.

    Args:
        physics: of the GPU.
        calls: for each (stage, instruction) its tasks, in the order in which it runs them.
        waiting_w: power while a rank waits; by default that of the GPU at rest.
    """

    def __init__(
        self, physics: Physics, calls: Mapping[tuple[int, str], Sequence[Task]], waiting_w: float | None = None
    ) -> None:
        self._physics, self._calls, self._waiting_w = physics, calls, waiting_w
        self._known: dict[tuple[int, str, Setting, int], Course] = {}

    def course(self, stage: int, name: str, setting: Setting, temperature_c: float) -> Course:
        """An instruction at a setting."""
        key = (stage, name, setting, round(temperature_c / _BIN_C))
        if key not in self._known:
            if (stage, name) not in self._calls:
                raise CannotRunError(f"{name} of stage {stage}: its kernels are not known")
            calls = self._calls[stage, name]
            points = {task: self._physics.operating_point(task, setting, _BIN_C * key[3]) for task in set(calls)}
            time_s = np.array([points[task].time_s for task in calls])
            power_w = np.array([points[task].power_w for task in calls])
            throttled = any(point.throttled for point in points.values())
            self._known[key] = Course(_until(time_s), _until(time_s * power_w), throttled)
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
