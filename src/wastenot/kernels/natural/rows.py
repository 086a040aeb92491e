"""Curves of kernels from the rows of a study: those at natural clocks, or those of a sweep that set clocks.

Where clocks were set, what counts is the clock in effect: rows that the power limit held at one clock are one point,
whatever was requested.
"""

from __future__ import annotations

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray
from wastenot.core.errors import BadInputError
from wastenot.kernels.natural.curves import AutoPoint, KernelCurve
from wastenot.planning.natural import log_variances
from wastenot.study.sweep import Sweep

_SAME = 0.004  # relative distance of clocks that count as one
_FREE = 0.985  # fraction of the highest clock of all from which a kernel counts as not held down


def curves_of_rows(sweep: Sweep) -> tuple[KernelCurve, ...]:
    """The curve of each kernel of a sweep, in order of execution.

    Raises:
        BadInputError: of a kernel, the clock in effect is not known at auto, or at any other setting.
    """
    auto = sweep.automatic
    in_effect = np.where(np.isfinite(sweep.effective_core_mhz), sweep.effective_core_mhz, sweep.core_mhz)
    if not np.isfinite(in_effect).any():
        raise BadInputError(f"workload '{sweep.workload}': no clocks are known; measure it with wastenot kernel sweep")
    highest_mhz = float(np.nanmax(in_effect))
    return tuple(_curve(sweep, index, auto, in_effect, highest_mhz) for index in range(len(sweep.kernels)))


def _curve(sweep: Sweep, index: int, auto: BoolArray, in_effect: FloatArray, highest_mhz: float) -> KernelCurve:
    name = sweep.kernels[index].name
    own = (sweep.kernel_index == index) & np.isfinite(in_effect)
    base = np.flatnonzero(own & auto)
    if not len(base):
        raise BadInputError(f"kernel '{name}': the clock it runs at by default is unknown; sweep it again")
    natural = sweep.state == "natural"
    rows = np.flatnonzero(own & ~auto if natural else own & np.isnan(sweep.power_limit_w) & _same_memory(sweep, base))
    rows = rows[np.argsort(in_effect[rows], kind="stable")] if len(rows) else base
    time_var, power_var = log_variances(sweep, rows, 0.0)
    stated = sweep.curve_errors.get(name) if natural else None
    if stated is not None and len(stated.core_mhz) == len(rows):
        knots, time, power = in_effect[rows], sweep.time_s[rows], sweep.energy_j[rows] / sweep.time_s[rows]
        time_cov, power_cov = stated.log_time_cov, stated.log_power_cov
    else:
        group = np.cumsum(np.concatenate([[0], np.diff(np.log(in_effect[rows])) > _SAME]))
        mean = _averages(group)
        knots = np.exp(mean @ np.log(in_effect[rows]))
        time = np.exp(mean @ np.log(sweep.time_s[rows]))
        power = np.exp(mean @ np.log(sweep.energy_j[rows] / sweep.time_s[rows]))
        time_cov, power_cov = mean @ np.diag(time_var) @ mean.T, mean @ np.diag(power_var) @ mean.T
    return KernelCurve(name, knots, time, power, time_cov, power_cov, _auto_point(sweep, base, in_effect, highest_mhz), 0, 0)


def _auto_point(sweep: Sweep, base: IndexArray, in_effect: FloatArray, highest_mhz: float) -> AutoPoint:
    time_s, energy_j = float(sweep.time_s[base].mean()), float(sweep.energy_j[base].mean())
    time_var, power_var = (values.mean() / len(base) for values in log_variances(sweep, base, 0.0))
    clock_mhz, power_w = float(in_effect[base].mean()), energy_j / time_s
    limited = clock_mhz < _FREE * highest_mhz
    return AutoPoint(clock_mhz, time_s, power_w, time_s * time_var**0.5, power_w * power_var**0.5, limited)


def _same_memory(sweep: Sweep, base: IndexArray) -> BoolArray:
    """Rows whose memory clock is the one that it has by default."""
    memory = np.where(np.isfinite(sweep.effective_memory_mhz), sweep.effective_memory_mhz, sweep.memory_mhz)
    default = memory[base][np.isfinite(memory[base])]
    highest = float(default.mean()) if len(default) else float(np.nan_to_num(memory, nan=0.0).max())
    return np.asarray(np.isnan(memory) | (np.abs(memory - highest) <= _SAME * highest))


def _averages(group: IndexArray) -> FloatArray:
    """Weights by which rows are averaged within groups, shape (groups, rows)."""
    member = np.arange(group[-1] + 1)[:, None] == group
    return np.asarray(member / member.sum(axis=1, keepdims=True))
