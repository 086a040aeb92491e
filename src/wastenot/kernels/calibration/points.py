"""The measured points that a calibration is fitted to: what they must show, and which clock pairs to choose.

Four corners pin the limits of every kernel (core, memory, latency, floor). Each further point is the one farthest from those
chosen already, over the core clock (linear: the voltage curve bends in its upper half) and the logarithm of the memory
clock. Pairs that earlier kernels used count as nearer, so that all kernels together cover every core clock of the voltage
table and every memory state. The choice does not depend on measured values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import BadInputError
from wastenot.study.sweep import Sweep

FEWEST_CORE_CLOCKS, FEWEST_KERNELS, FEWEST_POINTS = 3, 4, 4
"""Below these the data do not determine the model."""

GOOD_CORE_CLOCKS, GOOD_KERNELS, GOOD_POINTS = 5, 8, 6
"""Beyond these, more data change little."""

_SAME_CORE_CLOCK = 0.012  # relative; core clocks closer than this count as one level
_WIDEST_LEVEL = 0.03
_MOST_LEVELS = 12
_SAME_MEMORY_CLOCK = 0.02

ClockLevels = tuple[int, int]
"""Index of the level of a core clock, and of a memory clock."""


class CalibrationError(BadInputError):
    """The data cannot determine the model; the message says what to measure."""


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Measured points of several kernels, as arrays of shape (kernels, points); rows are padded and masked.

    Attributes:
        core_mhz, memory_mhz: clocks in effect.
        time_s, power_w: time and average power of one call.
        mask: 1 where the point may be used, else 0.
    """

    core_mhz: FloatArray
    memory_mhz: FloatArray
    time_s: FloatArray
    power_w: FloatArray
    mask: FloatArray

    @classmethod
    def of_rows(
        cls, kernel: ArrayLike, core_mhz: ArrayLike, memory_mhz: ArrayLike, time_s: ArrayLike, energy_j: ArrayLike
    ) -> Points:
        """Points from columns.

        Args:
            kernel: index of each row's kernel, from 0; every kernel must have a row.
            core_mhz: core clock in effect.
            memory_mhz: memory clock in effect.
            time_s: time of one call.
            energy_j: energy of one call.
        """
        owner = np.asarray(kernel, dtype=np.intp)
        order = np.argsort(owner, kind="stable")
        sizes = np.bincount(owner)
        start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        column = np.arange(int(sizes.max()))
        present = column < sizes[:, None]
        row = order[start[:, None] + np.where(present, column, 0)]  # padded with the kernel's first
        time, energy = np.asarray(time_s, dtype=float)[row], np.asarray(energy_j, dtype=float)[row]
        core, memory = np.asarray(core_mhz, dtype=float)[row], np.asarray(memory_mhz, dtype=float)[row]
        return cls(core, memory, time, energy / time, present.astype(float))

    @property
    def energy_j(self) -> FloatArray:
        """Energy of one call."""
        return self.time_s * self.power_w

    def with_mask(self, mask: FloatArray) -> Points:
        """The same points with another mask."""
        return replace(self, mask=mask)

    def of_kernels(self, rows: Sequence[int] | IndexArray) -> Points:
        """The points of some of the kernels."""
        chosen = list(rows)
        return Points(*(getattr(self, name)[chosen] for name in self.__slots__))


def points_of_sweep(sweep: Sweep) -> Points:
    """The points of a sweep whose clocks are known; row ``k`` holds those of its kernel ``k``.

    Clocks in effect are used where they were recorded, otherwise those requested. Rows with a power limit of their own
    and rows at the default clocks with no clock in effect recorded are left out. Repeats are averaged.

    Raises:
        CalibrationError: a kernel has no such point.
    """
    core = np.where(np.isnan(sweep.effective_core_mhz), sweep.core_mhz, sweep.effective_core_mhz)
    memory = np.where(np.isnan(sweep.effective_memory_mhz), sweep.memory_mhz, sweep.effective_memory_mhz)
    rows = np.flatnonzero(np.isfinite(core) & np.isfinite(memory) & np.isnan(sweep.power_limit_w) & np.isnan(sweep.profile))
    missing = set(range(len(sweep.kernels))) - set(sweep.kernel_index[rows].tolist())
    if missing:
        name = sweep.kernels[min(missing)].name
        raise CalibrationError(f"kernel '{name}' has no point at known clocks; sweep it at {FEWEST_POINTS} or more")
    requested = np.nan_to_num(np.column_stack([sweep.kernel_index, sweep.core_mhz, sweep.memory_mhz])[rows], nan=-1.0)
    _, first, group = np.unique(requested, axis=0, return_index=True, return_inverse=True)
    repeats = np.bincount(group.reshape(-1))

    def mean(column: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(group.reshape(-1), column[rows]) / repeats)

    order = np.argsort(first)  # in order of first appearance
    columns = (mean(core), merge_memory_clocks(mean(memory)), mean(sweep.time_s), mean(sweep.energy_j))
    return Points.of_rows(sweep.kernel_index[rows][first][order], *(column[order] for column in columns))


def merge_memory_clocks(clocks_mhz: FloatArray) -> FloatArray:
    """Replace memory clocks that lie within 2 % of each other, readings of one state, by the highest of them."""
    distinct = np.unique(clocks_mhz)
    group = np.concatenate([[0], np.cumsum(np.diff(np.log(distinct)) > _SAME_MEMORY_CLOCK)])
    state = np.array([distinct[group == index].max() for index in range(group[-1] + 1)])
    return np.asarray(state[group[np.searchsorted(distinct, clocks_mhz)]])


def core_levels(clocks_mhz: FloatArray) -> FloatArray:
    """Representative core clocks, ascending: the means of groups of close ones, or a dozen evenly spaced for many."""
    distinct = np.unique(clocks_mhz)
    groups = np.split(distinct, np.flatnonzero(np.diff(np.log(distinct)) > _SAME_CORE_CLOCK) + 1)
    if len(groups) > _MOST_LEVELS or any(group[-1] > group[0] * (1.0 + _WIDEST_LEVEL) for group in groups):
        return np.linspace(distinct[0], distinct[-1], min(_MOST_LEVELS, len(distinct)))
    return np.array([group.mean() for group in groups])


def require_enough(points: Points, names: Sequence[str] = ()) -> None:
    """Refuse points that cannot determine the model.

    Args:
        points: to be fitted.
        names: names of the kernels, for messages.

    Raises:
        CalibrationError: fewer than 3 core clocks or 4 kernels, or a kernel with fewer than 4 points.
    """
    used = points.mask > 0
    per_kernel = used.sum(axis=1)
    clocks = len(core_levels(points.core_mhz[used])) if used.any() else 0
    if clocks < FEWEST_CORE_CLOCKS:
        raise CalibrationError(
            f"only {clocks} core clocks were measured; the voltage curve needs at least {FEWEST_CORE_CLOCKS}, "
            f"better {GOOD_CORE_CLOCKS}: sweep more of them"
        )
    if len(used) < FEWEST_KERNELS:
        raise CalibrationError(
            f"only {len(used)} kernels were measured; separating the GPU's parameters from the kernels' takes at least "
            f"{FEWEST_KERNELS}, better {GOOD_KERNELS}: sweep more of them"
        )
    if per_kernel.min() < FEWEST_POINTS:
        fewest = int(per_kernel.argmin())
        name = f"'{names[fewest]}'" if names else str(fewest)
        raise CalibrationError(
            f"kernel {name} has {per_kernel[fewest]} points; each needs at least {FEWEST_POINTS}, better "
            f"{GOOD_POINTS}: sweep more clocks"
        )


def data_warnings(points: Points) -> tuple[str, ...]:
    """What weakens a calibration that is possible."""
    used = points.mask > 0
    clocks, kernels = len(core_levels(points.core_mhz[used])), len(used)
    fewest = int(used.sum(axis=1).min())
    warnings = []
    if clocks < GOOD_CORE_CLOCKS:
        warnings.append(f"only {clocks} core clocks: the voltage curve is coarse; {GOOD_CORE_CLOCKS} or more are better")
    if kernels < GOOD_KERNELS:
        warnings.append(f"only {kernels} kernels: the GPU's parameters are uncertain; {GOOD_KERNELS} or more are better")
    if fewest < GOOD_POINTS:
        warnings.append(f"a kernel with only {fewest} points: its fit leans on the prior; {GOOD_POINTS} or more are better")
    if len(np.unique(points.memory_mhz[used])) == 1:
        warnings.append("only one memory clock: others are unknown")
    return tuple(warnings)


def choose_pairs(available: Sequence[tuple[float, float]], used: Counter[ClockLevels], count: int = 8) -> list[int]:
    """Choose the clock pairs to measure for the next kernel.

    Args:
        available: the (core, memory) clock pairs of the device in MHz, without the default clocks.
        used: how often earlier kernels used each pair of clock levels; is updated.
        count: how many pairs to choose.

    Returns:
        Indices into ``available``, in the order of choice; all of them where there are no more than ``count``.
    """
    pairs = np.asarray(available, dtype=float)
    core, memory = rescaled(pairs[:, 0]), rescaled(np.log(pairs[:, 1]))
    coordinates = np.stack([core, memory], axis=1)
    levels = list(zip(_level_indices(pairs[:, 0]).tolist(), _level_indices(pairs[:, 1]).tolist(), strict=True))
    uses = np.array([1.0 + used[level] for level in levels])
    corners = (core + memory, memory - 2 * core, 1.9 * core - 2 * memory, -core - memory)
    chosen = list(dict.fromkeys(int(np.argmax(corner)) for corner in corners))[:count]
    while len(chosen) < min(count, len(pairs)):
        distance = np.linalg.norm(coordinates[:, None] - coordinates[chosen][None], axis=2).min(axis=1)
        score = np.round(distance / uses, 9) + 1e-8 * (core + memory)
        score[chosen] = -1.0
        chosen.append(int(np.argmax(score)))
    used.update(levels[index] for index in chosen)
    return chosen


def choose_points(points: Points, count: int = 8) -> FloatArray:
    """Choose which measured points of each kernel to fit, as a mask; different kernels get different clocks."""
    mask, used = np.zeros_like(points.mask), Counter[ClockLevels]()
    for kernel, present in enumerate(points.mask > 0):
        available = np.flatnonzero(present)
        core, memory = points.core_mhz[kernel, available], points.memory_mhz[kernel, available]
        pairs = list(zip(core.tolist(), memory.tolist(), strict=True))
        mask[kernel, available[choose_pairs(pairs, used, count)]] = 1.0
    return mask


def rescaled(values: FloatArray) -> FloatArray:
    """To the range from 0 to 1."""
    return np.asarray((values - values.min()) / (float(np.ptp(values)) or 1.0))


def _level_indices(clocks_mhz: FloatArray) -> IndexArray:
    """Index of each clock's level; clocks one step of the driver apart share a level."""
    levels = core_levels(clocks_mhz)
    return np.asarray(np.abs(clocks_mhz[:, None] - levels).argmin(axis=1), dtype=np.intp)
