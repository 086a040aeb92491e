"""What caps on the core clock would do, from rows at clocks that nobody requested.

A GPU went through these clocks by itself; a plan from them is of caps that could be set if one were allowed to. A cap
within the range that a kernel was seen at makes it run at that clock; one above the clock that the kernel has by itself
changes nothing. Below the range a kernel counts with the most that physics allows, so that one that was hardly seen at other
clocks stands in the way of no cap for all: as many cycles as at its lowest clock, at the power that it drew there. By itself
such a cap is never worth it.

    log time   ╲            a cap's time is the time at auto times a ratio of the curve,
                 ╲·____     so that errors of its level cancel
                 ├── caps ──┤auto
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray
from wastenot.study.sweep import NUMBERS, CurveErrors, Sweep

CAP_STEP_MHZ = 15.0
"""Distance between caps: core clocks of NVIDIA GPUs are multiples of it."""

_MOST_CAPS = 128  # beyond which they lie further apart
SAME_MHZ = 1.0
"""A cap this close to the clock at auto is not below it."""
_NEAR = 0.01  # auto this far outside the range, relative to its clock, counts as at its end


@dataclass(frozen=True, slots=True, eq=False)
class JointErrors:
    """Covariances of the errors of each kernel's rows, its baseline first; a tuple of arrays of shape (rows, rows).

    Attributes:
        log_time: of logarithms of time.
        log_power: of logarithms of power, independent of these.
    """

    log_time: tuple[FloatArray, ...]
    log_power: tuple[FloatArray, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Caps:
    """What caps would do.

    Attributes:
        sweep: rows at auto and at caps, the same caps for all kernels as far as they are in range.
        errors: of these rows; ``None`` where nothing says how large they are.
    """

    sweep: Sweep
    errors: JointErrors | None


def as_caps(sweep: Sweep) -> Caps:
    """What caps would do, from a sweep at natural clocks."""
    auto = sweep.automatic
    grid = _grid(sweep, auto)
    kernels = [_kernel(sweep, index, auto, grid) for index in range(len(sweep.kernels))]
    rows: dict[str, Any] = {name: np.concatenate([each.rows[name] for each in kernels]) for name in _NAMES}
    index = np.repeat(np.arange(len(kernels)), [len(each.rows["time_s"]) for each in kernels])
    capped = replace(sweep, kernel_index=index, curve_errors={}, **rows)
    known = all(np.isfinite(each.log_time).all() and np.isfinite(each.log_power).all() for each in kernels)
    errors = JointErrors(tuple(each.log_time for each in kernels), tuple(each.log_power for each in kernels))
    return Caps(capped, errors if known else None)


_NAMES = tuple(column.name for column in NUMBERS)


@dataclass(frozen=True, slots=True, eq=False)
class _Kernel:
    rows: dict[str, FloatArray]
    log_time: FloatArray
    log_power: FloatArray


def _grid(sweep: Sweep, auto: BoolArray) -> FloatArray:
    """Caps between the lowest clock seen of any kernel that was seen at several, and the highest."""
    core = sweep.core_mhz[~auto]
    number = np.bincount(sweep.kernel_index[~auto], minlength=len(sweep.kernels))
    core = core[number[sweep.kernel_index[~auto]] > 1]
    if not len(core):
        return np.empty(0)
    low, high = float(core.min()), float(core.max())
    step = CAP_STEP_MHZ * max(1.0, np.ceil((high - low) / CAP_STEP_MHZ / _MOST_CAPS))
    return np.asarray(step * np.arange(np.ceil(low / step), np.floor(high / step) + 1))


def _kernel(sweep: Sweep, index: int, auto: BoolArray, grid: FloatArray) -> _Kernel:
    own = sweep.kernel_index == index
    base, seen = np.flatnonzero(own & auto), np.flatnonzero(own & ~auto)
    seen = seen[np.argsort(sweep.core_mhz[seen], kind="stable")]
    time, power = sweep.time_s[seen], sweep.energy_j[seen] / sweep.time_s[seen]
    auto_s, auto_j = float(sweep.time_s[base].mean()), float(sweep.energy_j[base].mean())
    time_var, power_var = (float(each.mean() / len(base)) for each in log_variances(sweep, base))
    knots = sweep.core_mhz[seen]
    stated = sweep.curve_errors.get(sweep.kernels[index].name)
    time_cov, power_cov = _covariances(sweep, seen, stated)
    clocks = sweep.effective_core_mhz[base]
    known = clocks[np.isfinite(clocks)]
    auto_mhz = float(known.mean()) if len(known) else float(knots.max(initial=0.0))
    low, high = (knots[0], knots[-1]) if len(knots) else (np.inf, -np.inf)
    caps = grid[(grid <= high + SAME_MHZ) | (grid >= auto_mhz - SAME_MHZ)]
    below = caps < auto_mhz - SAME_MHZ
    weights = np.zeros((1 + len(caps), len(knots)))
    log_time, log_power = np.zeros(1 + len(caps)), np.zeros(1 + len(caps))
    anchored = len(knots) > 0 and knots[0] * (1.0 - _NEAR) <= auto_mhz <= knots[-1] * (1.0 + _NEAR)
    if below.any():
        weights[1:][below] = hat_weights(np.log(caps[below]), np.log(knots))
        moved = weights[1:] - (hat_weights(np.log(auto_mhz), np.log(knots)) if anchored else 0.0)
        weights[1:] = np.where(below[:, None], moved, 0.0)
        log_time, log_power = weights @ np.log(time), weights @ np.log(power)
        log_time[1:][below] += np.log(np.maximum(low / caps[below], 1.0))
    level = np.concatenate([[True], ~below | anchored])  # rows that hold the level of auto, errors included
    time_s = np.exp(log_time) * np.where(level, auto_s, 1.0)
    power_w = np.exp(log_power) * np.where(level, auto_j / auto_s, 1.0)
    shared = np.outer(level, level)
    rows = {name: np.full(1 + len(caps), np.nan) for name in _NAMES}
    rows |= {"time_s": time_s, "energy_j": time_s * power_w, "core_mhz": np.concatenate([[np.nan], caps])}
    rows["effective_core_mhz"] = np.concatenate([[auto_mhz if len(known) else np.nan], np.minimum(caps, auto_mhz)])
    for name in ("effective_memory_mhz", "temperature_c"):
        values = getattr(sweep, name)[base]
        rows[name][:] = np.nan if np.isnan(values).all() else np.nanmean(values)
    log_time_cov = weights @ time_cov @ weights.T + time_var * shared
    log_power_cov = weights @ power_cov @ weights.T + power_var * shared
    rows["time_se_s"] = time_s * np.sqrt(np.diag(log_time_cov))
    rows["energy_se_j"] = rows["energy_j"] * np.sqrt(np.diag(log_time_cov) + np.diag(log_power_cov))
    return _Kernel(rows, log_time_cov, log_power_cov)


def _covariances(sweep: Sweep, seen: IndexArray, stated: CurveErrors | None) -> tuple[FloatArray, FloatArray]:
    """Covariances of the logarithms of time and power over the rows seen; of rows that came from a file, independent."""
    if stated is not None and np.allclose(stated.core_mhz, sweep.core_mhz[seen]):
        return stated.log_time_cov, stated.log_power_cov
    time, power = log_variances(sweep, seen)
    return np.diag(time), np.diag(power)


def log_variances(sweep: Sweep, rows: IndexArray, unknown: float = np.nan) -> tuple[FloatArray, FloatArray]:
    """Variances of the logarithms of time and power of some rows; ``unknown`` where not stated."""
    time = np.nan_to_num(sweep.time_se_s[rows] / sweep.time_s[rows], nan=unknown) ** 2
    energy = np.nan_to_num(sweep.energy_se_j[rows] / sweep.energy_j[rows], nan=unknown) ** 2
    return time, np.maximum(energy - time, 0.0)


def hat_weights(at: FloatArray, knots: FloatArray) -> FloatArray:
    """Weights of linear interpolation between knots, of points moved to within them; shape (..., knots)."""
    at = np.clip(np.asarray(at, dtype=float), knots[0], knots[-1])
    weights = np.zeros((*at.shape, len(knots)))
    flat, rows = np.atleast_1d(at).ravel(), weights.reshape(-1, len(knots))
    if len(knots) == 1:
        rows[:, 0] = 1.0
        return weights
    left = np.clip(np.searchsorted(knots, flat, side="right") - 1, 0, len(knots) - 2)
    fraction = (flat - knots[left]) / (knots[left + 1] - knots[left])
    index = np.arange(len(flat))
    rows[index, left] = 1.0 - fraction
    rows[index, left + 1] = fraction
    return weights
