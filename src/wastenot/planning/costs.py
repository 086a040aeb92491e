"""What each kernel costs at each setting: the rows of a sweep with repeats combined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.setting import Setting
from wastenot.study.coverage import Coverage, RecordedSweep, coverage_of
from wastenot.study.sweep import SETTING, Kernel, Sweep


@dataclass(frozen=True, eq=False)
class Costs:
    """One row for each kernel and setting, by kernel in order of execution, each kernel's baseline first.

    Arrays have shape (rows,); NaN is auto in a clock or limit, unknown in a standard error. Times and energies are for
    one call.

    Attributes:
        kernels: in order of execution.
        kernel: index into ``kernels``.
        core_mhz: requested, as are ``memory_mhz``, ``power_limit_w`` and ``profile``.
        time_s: mean over repeats, as is ``energy_j``.
        time_se_s: standard error of that mean, as is ``energy_se_j``.
    """

    kernels: tuple[Kernel, ...]
    kernel: IndexArray
    core_mhz: FloatArray
    memory_mhz: FloatArray
    power_limit_w: FloatArray
    profile: FloatArray
    time_s: FloatArray
    energy_j: FloatArray
    time_se_s: FloatArray
    energy_se_j: FloatArray

    @cached_property
    def start(self) -> IndexArray:
        """Kernel ``k`` has rows ``start[k]:start[k + 1]``; the first is its baseline."""
        return np.searchsorted(self.kernel, np.arange(len(self.kernels) + 1))

    @cached_property
    def count(self) -> NDArray[np.int64]:
        """How often each kernel runs in an iteration, shape (kernels,)."""
        return np.array([kernel.count for kernel in self.kernels], dtype=np.int64)

    @cached_property
    def setting_index(self) -> IndexArray:
        """The index of each row's setting among all of the sweep, auto first; shape (rows,)."""
        index = np.zeros(len(self.kernel), dtype=np.intp)
        for column in (self.core_mhz, self.memory_mhz, self.power_limit_w, self.profile):
            levels, level = np.unique(np.nan_to_num(column, nan=-1.0), return_inverse=True)
            index = index * len(levels) + level
        return np.unique(index, return_inverse=True)[1]

    def setting(self, row: int) -> Setting:
        """The setting of a row."""
        return Setting.of_numbers(*(getattr(self, name)[row] for name in SETTING))

    def coverage(self, recorded: Sequence[RecordedSweep]) -> Coverage:
        """How far the sweeps that brought these costs came."""
        if not recorded:
            return Coverage("given", len(self.kernel))
        names = [kernel.name for kernel in self.kernels]
        points = {(names[kernel], self.setting(row)) for row, kernel in enumerate(self.kernel.tolist())}
        return coverage_of(recorded, names, points)


def combine_repeats(sweep: Sweep) -> Costs:
    """Average the repeats of each kernel and setting.

    The standard error of a mean over n repeats is the larger of two: that from their scatter (sample standard deviation over
    the root of n) and that from their own standard errors. A single reading keeps its own, where it has one.
    """
    order, first = _grouped(sweep)
    repeats = np.diff(np.append(first, len(order)))
    row = order[first]
    time, time_se = _mean_and_error(sweep.time_s[order], sweep.time_se_s[order], first, repeats)
    energy, energy_se = _mean_and_error(sweep.energy_j[order], sweep.energy_se_j[order], first, repeats)
    setting = sweep.core_mhz[row], sweep.memory_mhz[row], sweep.power_limit_w[row], sweep.profile[row]
    return Costs(sweep.kernels, sweep.kernel_index[row], *setting, time, energy, time_se, energy_se)


def rows_of_readings(sweep: Sweep) -> IndexArray:
    """For each row of a sweep, the row of :func:`combine_repeats` that averages it."""
    order, first = _grouped(sweep)
    combined = np.empty(len(order), dtype=np.intp)
    combined[order] = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(order))))
    return combined


def _grouped(sweep: Sweep) -> tuple[IndexArray, IndexArray]:
    """The order that brings repeats together, auto first, and where in it each kernel and setting begins."""
    clocks = [np.nan_to_num(getattr(sweep, name), nan=-1.0) for name in reversed(SETTING)]
    order = np.lexsort((*reversed(clocks), sweep.kernel_index))  # auto sorts first, as -1
    keys = np.column_stack([sweep.kernel_index[order], *(column[order] for column in clocks)])
    return order, np.flatnonzero(np.concatenate([[True], (keys[1:] != keys[:-1]).any(axis=1)]))


def _mean_and_error(
    value: FloatArray, error: FloatArray, first: IndexArray, repeats: IndexArray
) -> tuple[FloatArray, FloatArray]:
    mean = np.add.reduceat(value, first) / repeats
    scatter = np.add.reduceat((value - np.repeat(mean, repeats)) ** 2, first)
    stated = np.sqrt(np.add.reduceat(error**2, first)) / repeats
    with np.errstate(divide="ignore", invalid="ignore"):
        scattered = np.where(repeats > 1, np.sqrt(scatter / (repeats - 1) / repeats), np.nan)
    return mean, np.fmax(stated, scattered)
