"""A sweep corrected to one temperature.

A hot GPU leaks more than a cold one, and a sweep measures each point at the temperature that the points before it left: low
clocks are measured cold, though a plan would run them on a GPU that other kernels keep hot. The temperature coefficient of
leakage is estimated from repeats within the sweep: the same kernel at the same setting differs in little else. What the
estimate leaves uncertain moves all cold points together, so it is an error common to all kernels. The temperature at which
plan and baselines will run is another: nothing fixes it, and kernels that a power limit holds are slower when hot.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.planning.costs import rows_of_readings
from wastenot.study.sweep import Sweep

_LEAST_SPREAD_C = 1.0  # root mean square of repeats' temperatures (whole degrees), from which they are informative
_LEAST_REPEATS = 8
_RUNS_C = 3.0  # how far from the baselines' temperature a plan may run: a twentieth to a tenth of 50 degrees above ambient
_AT_LIMIT = 0.97  # of the highest power: above it a power limit sets the power, and leakage costs clock instead
_KNEES = (0.6, 0.8)  # core clock, over the highest, up to which voltage is lowest: anywhere between these
_HIGHEST_VOLTAGE = 1.5  # over the lowest
_LOWEST_LEAKAGE = _HIGHEST_VOLTAGE**-3  # over the highest: leakage grows about with the cube of the voltage
# Per degree, as fractions of the highest power: a tenth of it is leakage, which grows by about 1 % per degree.
_USUAL_SLOPES = (1e-3 * _LOWEST_LEAKAGE, 1e-3 * (1.0 - _LOWEST_LEAKAGE))
_GRID = 81  # values of each slope that are weighed
_REACH = 4.0  # standard errors that the grid extends to either side of the likeliest
_LEAST_NOISE = 1e-12  # relative variance of a power, below any instrument's


@dataclass(frozen=True, slots=True, eq=False)
class Levelled:
    """A sweep corrected to one temperature, and the uncertainty of the correction.

    Attributes:
        sweep: as it would be at the mean temperature of its baselines.
        time_errors: loadings, as fractions of each row's time, of errors of variance 1 common to all rows; shape (rows, 4).
        power_errors: the same of power.
    """

    sweep: Sweep
    time_errors: FloatArray
    power_errors: FloatArray


def at_one_temperature(sweep: Sweep) -> Levelled:
    """The sweep with the times and energies that it would have at the mean temperature of its baselines.

    Leakage is modelled as linear in temperature, with a slope of a + b (V³ − 1) watts per degree, where the voltage V rises
    from a knee of the core clock on; a and b, non-negative, are estimated from repeats and a prior of usual values. It adds
    to the power of a row; where a power limit holds the power it lengthens the time instead, by the kernel's own ratio of
    time to power between that row and one below the limit. A sweep whose repeats do not differ in temperature is returned
    unchanged.
    """
    unchanged = Levelled(sweep, np.zeros((len(sweep.time_s), 4)), np.zeros((len(sweep.time_s), 4)))
    power = sweep.energy_j / sweep.time_s
    known = ~np.isnan(sweep.temperature_c)
    reference_c = baseline_temperature_c(sweep)
    if reference_c is None:
        return unchanged
    limited = power >= _AT_LIMIT * power.max()
    shapes, unsure = np.split(_slopes(sweep), [2], axis=1)
    row = rows_of_readings(sweep)
    free = known & ~limited
    apart_c, apart_w = (_from_mean(value, row, free) for value in (sweep.temperature_c, power))
    repeated = free & (np.bincount(row[free], minlength=row.max() + 1)[row] > 1)
    if repeated.sum() < _LEAST_REPEATS or np.sqrt(np.mean(apart_c[repeated] ** 2)) < _LEAST_SPREAD_C:
        return unchanged
    usual = np.array(_USUAL_SLOPES) * power.max()
    each = shapes[repeated] * (apart_c / power)[repeated, None]
    freedom = int(repeated.sum()) - len(np.unique(row[repeated]))
    slope, root = _slope_posterior(each, (apart_w / power)[repeated], freedom, usual)
    warmer = (np.where(known, reference_c - sweep.temperature_c, 0.0) / power)[:, None]
    added = warmer * shapes @ slope
    errors = np.column_stack([warmer * shapes @ root, warmer * unsure * slope[1], _RUNS_C * (shapes @ slope) / power])
    longer = np.where(limited, _elasticity(sweep, power, limited), 0.0)
    time_s = sweep.time_s * np.exp(longer * added)
    level = replace(sweep, time_s=time_s, energy_j=time_s * power * np.where(limited, 1.0, 1.0 + added))
    return Levelled(level, longer[:, None] * errors, np.where(limited[:, None], 0.0, errors))


def baseline_temperature_c(sweep: Sweep) -> float | None:
    """Mean temperature of the baselines, weighted by their time in an iteration; ``None`` where none is known."""
    baseline = sweep.automatic & ~np.isnan(sweep.temperature_c)
    if not baseline.any():
        return None
    weight = np.array([kernel.count for kernel in sweep.kernels])[sweep.kernel_index] * sweep.time_s
    return float(np.average(sweep.temperature_c[baseline], weights=weight[baseline]))


def _slope_posterior(
    shapes: FloatArray, apart: FloatArray, freedom: int, usual: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Posterior mean of the slopes, shape (2,), and a root of their covariance, shape (2, 2).

    The prior of each slope is half-normal, with a usual scale. A slope of 1 moves each repeat's power from its mean by
    ``shapes``, shape (repeats, 2); measured is ``apart``, shape (repeats,), with as many degrees of freedom as given.
    """
    left = apart - shapes @ _not_negative(shapes, apart)
    noise = max(float(left @ left) / freedom, _LEAST_NOISE)
    weighed = np.concatenate([shapes / np.sqrt(noise), np.diag(1.0 / usual)])
    precision, explained = weighed.T @ weighed, shapes.T @ apart / noise
    best = _not_negative(weighed, np.concatenate([apart / np.sqrt(noise), np.zeros(2)]))
    reach = _REACH * np.sqrt(np.diag(np.linalg.inv(precision)))
    tried = [np.linspace(max(0.0, middle - far), middle + far, _GRID) for middle, far in zip(best, reach, strict=True)]
    slopes = np.stack(np.meshgrid(*tried, indexing="ij"), axis=-1).reshape(-1, 2)
    loss = 0.5 * np.einsum("ps,st,pt->p", slopes, precision, slopes) - slopes @ explained
    likely = np.exp(loss.min() - loss)
    likely /= likely.sum()
    mean = likely @ slopes
    covariance = (likely[:, None] * (slopes - mean)).T @ (slopes - mean)
    size, along = np.linalg.eigh(covariance)
    return mean, along * np.sqrt(np.maximum(size, 0.0))


def _not_negative(columns: FloatArray, values: FloatArray) -> FloatArray:
    """Least squares by two coefficients that are not negative; ``scipy.optimize.nnls`` takes 0.25 s to import.

    Where the best of all has a negative one, the sum of squares being convex, one of the two is 0 in the best that has none.
    """
    best = np.asarray(np.linalg.lstsq(columns, values)[0], dtype=np.float64)
    if best.min() >= 0.0:
        return best
    squares = np.maximum((columns**2).sum(axis=0), np.finfo(float).tiny)
    ends = np.diag(np.maximum(columns.T @ values / squares, 0.0))
    return np.asarray(ends[((values - ends @ columns.T) ** 2).sum(axis=1).argmin()])


def _slopes(sweep: Sweep) -> FloatArray:
    """The two components of each row's watts per degree, and how unsure the second is; shape (rows, 3)."""
    core = _in_effect(sweep.effective_core_mhz, sweep.core_mhz)
    rate = core / core.max()
    knee = np.array(_KNEES)
    voltage = 1.0 + (_HIGHEST_VOLTAGE - 1.0) * np.maximum(rate[:, None] - knee, 0.0) / (1.0 - knee)
    rising = (voltage**3 - 1.0) / (_HIGHEST_VOLTAGE**3 - 1.0)
    return np.column_stack([np.ones(len(rate)), rising.mean(axis=1), (rising[:, 0] - rising[:, 1]) / math.sqrt(12.0)])


def _in_effect(effective: FloatArray, requested: FloatArray) -> FloatArray:
    """Clocks in effect, otherwise requested, otherwise the highest."""
    clock = np.where(np.isnan(effective), requested, effective)
    return np.nan_to_num(clock, nan=float(np.nanmax(clock, initial=1.0)))


def _elasticity(sweep: Sweep, power: FloatArray, limited: NDArray[np.bool_]) -> FloatArray:
    """Relative growth of time per relative lack of power, of rows at the limit; shape (rows,), 0 where unknown."""
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
