"""What a calibration is fitted to: measured points of several kernels, and what they must be to determine anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wastenot.errors import BadInputError
from wastenot.study.sweep import Sweep

Array = NDArray[np.float64]

FEWEST_CORE_CLOCKS, FEWEST_KERNELS, FEWEST_POINTS = 3, 4, 4
"""Below these the model is not determined."""

GOOD_CORE_CLOCKS, GOOD_KERNELS, GOOD_POINTS = 5, 8, 6
"""From these on, more changes little."""

SAME_CLOCK = 0.012
"""Core clocks closer than this fraction count as one level."""

_WIDEST_LEVEL = 0.03
_MOST_LEVELS = 12
_SAME_MEMORY_CLOCK = 0.02


class CalibrationError(BadInputError):
    """The data cannot determine the model; the message says what to measure."""


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Measured points of several kernels, as arrays of shape (kernels, points); rows are padded and masked.

    Attributes:
        core_mhz: core clocks in effect.
        memory_mhz: memory clocks in effect.
        time_s: time of one call.
        power_w: average power.
        mask: 1 where the point may be used, else 0.
    """

    core_mhz: Array
    memory_mhz: Array
    time_s: Array
    power_w: Array
    mask: Array

    @classmethod
    def of_rows(
        cls, kernel: ArrayLike, core_mhz: ArrayLike, memory_mhz: ArrayLike, time_s: ArrayLike, energy_j: ArrayLike
    ) -> Points:
        """Points from columns.

        Args:
            kernel: of each row, an index from 0; every kernel must have a row.
            core_mhz: core clock in effect.
            memory_mhz: memory clock in effect.
            time_s: of one call.
            energy_j: of one call.
        """
        owner = np.asarray(kernel, dtype=np.int64)
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
    def energy_j(self) -> Array:
        """Energy of one call."""
        return self.time_s * self.power_w

    def used(self, mask: Array) -> Points:
        """The same points with another mask."""
        return replace(self, mask=mask)

    def kernels(self, rows: Sequence[int] | NDArray[np.int64]) -> Points:
        """Some of the kernels."""
        chosen = list(rows)
        return Points(*(getattr(self, name)[chosen] for name in self.__slots__))


def points_of_sweep(sweep: Sweep) -> Points:
    """The points of a sweep that tell what clocks they were taken at; row ``k`` is its kernel ``k``.

    Clocks in effect count where they were recorded, else those requested. Left out are rows with a power limit of
    their own and rows at auto of which nobody knows the clocks. Repeats are averaged.

    Raises:
        CalibrationError: a kernel has no such point.
    """
    core = np.where(np.isnan(sweep.effective_core_mhz), sweep.core_mhz, sweep.effective_core_mhz)
    memory = np.where(np.isnan(sweep.effective_memory_mhz), sweep.memory_mhz, sweep.effective_memory_mhz)
    rows = np.flatnonzero(np.isfinite(core) & np.isfinite(memory) & np.isnan(sweep.power_limit_w))
    missing = set(range(len(sweep.kernels))) - set(sweep.kernel_index[rows].tolist())
    if missing:
        name = sweep.kernels[min(missing)].name
        raise CalibrationError(f"kernel '{name}' has no point at known clocks; sweep it at {FEWEST_POINTS} or more")
    requested = np.nan_to_num(np.column_stack([sweep.kernel_index, sweep.core_mhz, sweep.memory_mhz])[rows], nan=-1.0)
    _, first, group = np.unique(requested, axis=0, return_index=True, return_inverse=True)
    repeats = np.bincount(group.reshape(-1))

    def mean(column: Array) -> Array:
        return np.asarray(np.bincount(group.reshape(-1), column[rows]) / repeats)

    order = np.argsort(first)  # as they were read
    columns = (mean(core), settled_memory_mhz(mean(memory)), mean(sweep.time_s), mean(sweep.energy_j))
    return Points.of_rows(sweep.kernel_index[rows][first][order], *(column[order] for column in columns))


def settled_memory_mhz(clocks_mhz: Array) -> Array:
    """Memory clocks with readings of one state, a hair apart, made the same: the greatest of them."""
    distinct = np.unique(clocks_mhz)
    group = np.concatenate([[0], np.cumsum(np.diff(np.log(distinct)) > _SAME_MEMORY_CLOCK)])
    state = np.array([distinct[group == index].max() for index in range(group[-1] + 1)])
    return np.asarray(state[group[np.searchsorted(distinct, clocks_mhz)]])


def core_levels(clocks_mhz: Array) -> Array:
    """Core clocks that stand for those given, rising: near ones as their mean, of very many a dozen evenly apart."""
    distinct = np.unique(clocks_mhz)
    groups = np.split(distinct, np.flatnonzero(np.diff(np.log(distinct)) > SAME_CLOCK) + 1)
    if len(groups) > _MOST_LEVELS or any(group[-1] > group[0] * (1.0 + _WIDEST_LEVEL) for group in groups):
        return np.linspace(distinct[0], distinct[-1], min(_MOST_LEVELS, len(distinct)))
    return np.array([group.mean() for group in groups])


def check(points: Points, names: Sequence[str] = ()) -> None:
    """Refuse what cannot be calibrated.

    Args:
        points: to be fitted.
        names: of the kernels, for messages.

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
            f"only {len(used)} kernels were measured; what is the GPU's and what the kernel's can be told apart from "
            f"{FEWEST_KERNELS} on, better {GOOD_KERNELS}: sweep more of them"
        )
    if per_kernel.min() < FEWEST_POINTS:
        fewest = int(per_kernel.argmin())
        name = f"'{names[fewest]}'" if names else str(fewest)
        raise CalibrationError(
            f"kernel {name} has {per_kernel[fewest]} points; each needs at least {FEWEST_POINTS}, better "
            f"{GOOD_POINTS}: sweep more clocks"
        )


def warnings_of(points: Points) -> tuple[str, ...]:
    """What weakens a calibration that is possible."""
    used = points.mask > 0
    clocks, kernels = len(core_levels(points.core_mhz[used])), len(used)
    fewest = int(used.sum(axis=1).min())
    found = []
    if clocks < GOOD_CORE_CLOCKS:
        found.append(f"only {clocks} core clocks: the voltage curve is coarse; {GOOD_CORE_CLOCKS} or more are better")
    if kernels < GOOD_KERNELS:
        found.append(f"only {kernels} kernels: what is the GPU's is uncertain; {GOOD_KERNELS} or more are better")
    if fewest < GOOD_POINTS:
        found.append(f"a kernel with only {fewest} points: lean on what is usual; {GOOD_POINTS} or more are better")
    if len(np.unique(points.memory_mhz[used])) == 1:
        found.append("one memory clock: nothing is known of others")
    return tuple(found)
