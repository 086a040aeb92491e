"""A sweep at one temperature.

A hot GPU leaks more than a cold one, and a sweep takes each point at the temperature that the points before it left: low
clocks are measured cold, though a plan would run them on a GPU that other kernels keep hot. How leakage goes with
temperature is read off the repeats of the sweep itself: the same kernel at the same setting differs in little else.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from wastenot.frontier.points import FloatArray, IndexArray
from wastenot.planning.costs import rows_of_readings
from wastenot.study.sweep import Sweep

_LEAST_SPREAD_C = 4.0  # root mean square of repeats' temperatures, from which they say something
_LEAST_REPEATS = 8
_AT_LIMIT = 0.97  # of the highest power: there a power limit sets the power, and leakage takes clock instead
_VOLTAGE_EXPONENT = 4  # of the core clock, that stands for the cube of a voltage which rises late


def at_one_temperature(sweep: Sweep) -> Sweep:
    """The sweep with the times and energies that it would have at the mean temperature of its baselines.

    Leakage is taken as linear in temperature, with a slope that rises with the core clock: a + b (f / f_highest)⁴ watts a
    degree, both not negative, by least squares over repeats. It adds to the power of a row; where a power limit holds the
    power it lengthens the time, by as much as the kernel's time and power change between the row and one below the limit.
    A sweep whose repeats do not differ in temperature comes back unchanged.
    """
    power = sweep.energy_j / sweep.time_s
    known = ~np.isnan(sweep.temperature_c)
    automatic = np.isnan(sweep.core_mhz) & np.isnan(sweep.memory_mhz) & np.isnan(sweep.power_limit_w)
    if not (known & automatic).any():
        return sweep
    limited = power >= _AT_LIMIT * power.max()
    shapes = _slopes(sweep)
    row = rows_of_readings(sweep)
    free = known & ~limited
    apart_c, apart_w = (_from_mean(value, row, free) for value in (sweep.temperature_c, power))
    repeated = free & (np.bincount(row[free], minlength=row.max() + 1)[row] > 1)
    if repeated.sum() < _LEAST_REPEATS or np.sqrt(np.mean(apart_c[repeated] ** 2)) < _LEAST_SPREAD_C:
        return sweep
    slope, _ = nnls(shapes[repeated] * apart_c[repeated, None], apart_w[repeated])
    weight = np.array([kernel.count for kernel in sweep.kernels])[sweep.kernel_index] * sweep.time_s
    baseline = known & automatic
    reference_c = float(np.average(sweep.temperature_c[baseline], weights=weight[baseline]))
    added = (shapes @ slope) * (reference_c - np.where(known, sweep.temperature_c, reference_c)) / power
    time_s = sweep.time_s * np.where(limited, np.exp(_elasticity(sweep, power, limited) * added), 1.0)
    return replace(sweep, time_s=time_s, energy_j=time_s * power * np.where(limited, 1.0, 1.0 + added))


def _slopes(sweep: Sweep) -> FloatArray:
    """What the watts a degree of each row are made of, shape (rows, 2)."""
    core = _in_effect(sweep.effective_core_mhz, sweep.core_mhz)
    rate = core / core.max()
    return np.column_stack([np.ones(len(rate)), rate**_VOLTAGE_EXPONENT])


def _in_effect(effective: FloatArray, requested: FloatArray) -> FloatArray:
    """Clocks in effect, else requested, else the highest."""
    clock = np.where(np.isnan(effective), requested, effective)
    return np.nan_to_num(clock, nan=float(np.nanmax(clock, initial=1.0)))


def _elasticity(sweep: Sweep, power: FloatArray, limited: NDArray[np.bool_]) -> FloatArray:
    """By what share time grows for each share of its power that a row at the limit lacks, shape (rows,); 0 where unknown."""
    memory = _in_effect(sweep.effective_memory_mhz, sweep.memory_mhz)
    order = np.lexsort((power, memory, sweep.kernel_index))
    places = np.arange(len(order))
    below = np.maximum.accumulate(np.where(limited[order], -1, places))  # the free row of most power before each
    other = order[np.maximum(below, 0)]
    alike = (below >= 0) & (memory[other] == memory[order]) & (sweep.kernel_index[other] == sweep.kernel_index[order])
    alike &= limited[order]
    found = np.zeros(len(order))
    here, there = order[alike], other[alike]
    found[here] = np.log(sweep.time_s[there] / sweep.time_s[here]) / np.log(power[here] / power[there])
    return np.clip(found, 0.0, 1.0)


def _from_mean(value: FloatArray, row: IndexArray, taken: NDArray[np.bool_]) -> FloatArray:
    """Values less the mean of those of the same kernel and setting, 0 where not taken."""
    total = np.bincount(row[taken], value[taken], minlength=row.max() + 1)
    number = np.maximum(np.bincount(row[taken], minlength=row.max() + 1), 1)
    return np.where(taken, np.nan_to_num(value) - (total / number)[row], 0.0)
