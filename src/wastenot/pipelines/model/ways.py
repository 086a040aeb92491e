"""The ways to run an instruction of a stage: one setting for all of its kernels, or several inside.

instruction   |        1500        |        one setting, which a driver sets while the GPU waits or works
layer         |  1500  |    1410   |        layers are alike: the first of them at one setting, the others at another
kernel        |15|14|15|15|14|15|..|        what each kernel would like, were switches free
schedule      | 1500 |    1410     |        stretches that last as long as the device needs to switch
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, get_args, overload

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.core.suggest import suggestion
from wastenot.frontiers.algebra import Frontier, choice, schedule
from wastenot.frontiers.nodes import Ways
from wastenot.frontiers.pareto import Groups, hull_points, pareto_points
from wastenot.pipelines.model.kernel_table import KernelTable
from wastenot.planning.switching import SwitchTime
from wastenot.workloads.stages import StageWork

Settings = Literal["instruction", "layer", "kernel", "schedule"]
"""What gets a setting of its own."""
SETTINGS: tuple[Settings, ...] = get_args(Settings)

_IN_TIME = 1.645  # standard deviations: 95 % of switches are done before the next one
_SCHEDULES = 8  # of one instruction


@dataclass(frozen=True, slots=True)
class Stretch:
    """Kernels of an instruction that run one after another at one setting.

    Attributes:
        setting: that they run at.
        kernels: how many.
        time_s: that they take.
    """

    setting: Setting
    kernels: int
    time_s: float


Label = Setting | tuple[Stretch, ...]


def ways_of(
    table: KernelTable, work: StageWork, settings: Settings, fixed_s: float, waiting_w: float, switching: SwitchTime
) -> InstructionWays:
    """The ways to run an instruction, each labelled with its setting or, where there are several, its stretches.

    Args:
        table: of the kernels.
        work: what the instruction runs.
        settings: what gets a setting of its own.
        fixed_s: collectives inside, which take as long at every clock and draw what waiting does.
        waiting_w: power while waiting.
        switching: how long the device takes to change clocks.

    Raises:
        BadInputError: there are no such settings, or the kernels have none in common.
    """
    if settings not in SETTINGS:
        raise BadInputError(f"`granularity` {settings}: unknown; {suggestion(settings, SETTINGS)}")
    tied = _tied(table, work)
    if settings == "instruction":
        found = tied
    elif settings == "kernel":
        found = tied.and_those(_by_kernel(table, work, waiting_w))
    elif settings == "layer":
        found = tied.and_those(_by_layer(table, work, waiting_w))
    else:
        found = tied.and_those(_scheduled(table, work, switching))
    return replace(found, time_s=found.time_s + fixed_s, energy_j=found.energy_j + fixed_s * waiting_w)


@dataclass(frozen=True, slots=True, eq=False)
class InstructionWays(Sequence[Label]):
    """Ways to run an instruction, and their labels, which are made when asked for.

    Attributes:
        table: of the kernels.
        order: the kernels in the order they run; shape (calls,).
        time_s: shape (ways,).
        energy_j: shape (ways,).
        setting_at: the setting of each call in a way, as an index into the table's; shape (calls,).
    """

    table: KernelTable
    order: IndexArray
    time_s: FloatArray
    energy_j: FloatArray
    setting_at: Callable[[int], IndexArray]

    @property
    def frontier(self) -> Frontier:
        """The choice among them."""
        return choice(Ways(self.time_s, self.energy_j, self))

    def __len__(self) -> int:
        return len(self.time_s)

    @overload
    def __getitem__(self, index: int) -> Label: ...
    @overload
    def __getitem__(self, index: slice) -> list[Label]: ...
    def __getitem__(self, index: int | slice) -> Label | list[Label]:
        chosen = range(len(self))[index]
        return self._label(chosen) if isinstance(chosen, int) else [self._label(each) for each in chosen]

    def runs(self, index: int) -> FloatArray:
        """How often a way runs each kernel at each setting; shape (settings, kernels)."""
        runs = np.zeros(self.table.rows.shape)
        np.add.at(runs, (self.setting_at(index), self.order), 1.0)
        return runs

    def _label(self, index: int) -> Label:
        setting = self.setting_at(index)
        time_s = self.table.time_s[setting, self.order]
        bounds = [0, *(np.flatnonzero(np.diff(setting)) + 1).tolist(), len(setting)]
        stretches = [
            Stretch(self.table.settings[int(setting[begin])], end - begin, float(time_s[begin:end].sum()))
            for begin, end in pairwise(bounds)
        ]
        return stretches[0].setting if len(stretches) == 1 else tuple(stretches)

    def and_those(self, others: InstructionWays) -> InstructionWays:
        """These ways, and then the others."""
        own = len(self)
        return replace(
            self,
            time_s=np.concatenate([self.time_s, others.time_s]),
            energy_j=np.concatenate([self.energy_j, others.energy_j]),
            setting_at=lambda index: self.setting_at(index) if index < own else others.setting_at(index - own),
        )


def _counts(table: KernelTable, work: StageWork) -> FloatArray:
    counts = np.zeros(len(table.kernels))
    for loop in work.loops:
        counts[list(loop.members)] += loop.times
    return counts


def _tied(table: KernelTable, work: StageWork) -> InstructionWays:
    """All kernels at one setting, at each that all were measured at."""
    counts = _counts(table, work)
    used = counts > 0.0
    common = np.flatnonzero((table.rows[:, used] >= 0).all(axis=1))
    time_s, energy_j = (each[np.ix_(common, used)] @ counts[used] for each in (table.time_s, table.energy_j))
    order = np.asarray(work.order)
    return InstructionWays(table, order, time_s, energy_j, lambda index: np.full(len(order), common[index]))


def _by_kernel(table: KernelTable, work: StageWork, waiting_w: float) -> InstructionWays:
    """Each kernel at its own setting, the same in all layers: for each price of time what is best at it."""
    counts = _counts(table, work)
    used = np.flatnonzero(counts > 0.0)
    hulls = [_hull(table.time_s[:, each], table.energy_j[:, each], waiting_w) for each in used.tolist()]
    parts = list(zip(used.tolist(), hulls, strict=True))
    times = [counts[kernel] * table.time_s[hull, kernel] for kernel, hull in parts]
    energies = [counts[kernel] * table.energy_j[hull, kernel] for kernel, hull in parts]
    choices = _merged_hulls(times, [energy - waiting_w * time for time, energy in zip(times, energies, strict=True)])
    setting = np.stack([hull[taken] for hull, taken in zip(hulls, choices.T, strict=True)], axis=1)
    time_s, energy_j = (each[setting, used] @ counts[used] for each in (table.time_s, table.energy_j))
    place = {kernel: index for index, kernel in enumerate(used.tolist())}
    columns = np.array([place[kernel] for kernel in work.order])
    return InstructionWays(table, np.asarray(work.order), time_s, energy_j, lambda index: setting[index, columns])


def _by_layer(table: KernelTable, work: StageWork, waiting_w: float) -> InstructionWays:
    """Each layer at a setting: what comes before layers goes with the first, what comes after with the last."""
    layers = max(loop.times for loop in work.loops)
    rounds = _rounds(work, layers)
    counts = np.zeros((layers, len(table.kernels)))
    for index, calls in enumerate(rounds):
        np.add.at(counts[index], calls, 1.0)
    used = counts.sum(axis=0) > 0.0
    common = np.flatnonzero((table.rows[:, used] >= 0).all(axis=1))
    time_s, energy_j = (each[np.ix_(common, used)] @ counts[:, used].T for each in (table.time_s, table.energy_j))
    middle = layers // 2  # a layer by itself, where there are several
    hull = _hull(time_s[:, middle], energy_j[:, middle], waiting_w)
    # From each setting to the next slower one, layer by layer, the last first.
    slower = np.arange(layers)[None, :] >= layers - np.arange(1, layers)[:, None]
    steps = [np.where(slower, after, before) for before, after in pairwise(hull.tolist())]
    pattern = np.concatenate([*steps, np.full((1, layers), hull[0])])
    where = np.broadcast_to(np.arange(layers), pattern.shape)
    order = np.concatenate(rounds)
    of_call = np.repeat(np.arange(layers), [len(calls) for calls in rounds])
    times, energies = (each[pattern, where].sum(axis=1) for each in (time_s, energy_j))
    return InstructionWays(table, order, times, energies, lambda index: common[pattern[index]][of_call])


def _rounds(work: StageWork, layers: int) -> list[IndexArray]:
    """The kernels that each layer runs, in order, with what is before the first and after the last."""
    rounds: list[list[int]] = [[] for _ in range(layers)]
    seen = False
    for loop in work.loops:
        if loop.times == layers and not seen:
            seen = True
            for each in rounds:
                each.extend(loop.members)
        else:
            rounds[-1 if seen else 0] += loop.members * loop.times
    return [np.array(each, dtype=np.intp) for each in rounds]


def _scheduled(table: KernelTable, work: StageWork, switching: SwitchTime) -> InstructionWays:
    """Stretches that last at least as long as 95 % of switches take."""
    order = np.asarray(work.order)
    common = np.flatnonzero((table.rows[:, order] >= 0).all(axis=1))
    settings = [table.settings[index] for index in common.tolist()]
    calls = {
        kernel: choice(Ways(table.time_s[common, kernel], table.energy_j[common, kernel], settings))
        for kernel in set(order.tolist())
    }
    stay_s = math.exp(_IN_TIME * switching.jitter) * switching.core_s
    made = schedule(
        [calls[kernel] for kernel in order.tolist()],
        stay_s=stay_s, switch_s=switching.stall_s, switch_j=switching.energy_j, points=_SCHEDULES,
    )  # fmt: skip
    points = made.pareto()
    place = {setting: index for index, setting in zip(common.tolist(), settings, strict=True)}

    def setting_at(index: int) -> IndexArray:
        (taken,) = points[index].choices
        assert isinstance(taken, tuple)
        return np.array([place[setting] for setting in taken], dtype=np.intp)

    return InstructionWays(table, order, points.time_s, points.energy_j, setting_at)


def _hull(time_s: FloatArray, energy_j: FloatArray, waiting_w: float) -> IndexArray:
    """The settings on the lower hull of time and cost (energy less what waiting draws meanwhile), the fastest first."""
    known = np.flatnonzero(np.isfinite(time_s))
    time, cost = time_s[known], energy_j[known] - waiting_w * time_s[known]
    front = pareto_points(Groups.of_one(time, cost))
    kept = hull_points(time[front], cost[front], np.zeros(len(front), dtype=np.intp))
    return known[front[kept]]


def _merged_hulls(time_s: Sequence[FloatArray], cost_j: Sequence[FloatArray]) -> IndexArray:
    """The vertices of a sum of hulls: for each the vertex that every hull is at; shape (vertices, hulls)."""
    saved = np.concatenate([-np.diff(cost) / np.diff(time) for time, cost in zip(time_s, cost_j, strict=True)])
    whose = np.repeat(np.arange(len(time_s)), [len(time) - 1 for time in time_s])
    order = np.argsort(-saved, kind="stable")
    steps = np.zeros((len(order) + 1, len(time_s)), dtype=np.intp)
    steps[np.arange(1, len(order) + 1), whose[order]] = 1
    return np.cumsum(steps, axis=0)
