"""What is believed of the true costs after a noisy sweep: measured values, drawn towards what is smooth over clocks.

The least of many noisy numbers is too low on average: who chooses by measured values chooses lucky noise (paper, §6,
Validation). A posterior mean does not have that fault, however the choice was made from the same data. Time and power,
whose noises are independent, each get a surface for every kernel (:mod:`wastenot.planning.noise.surface`): time by its
logarithm, power as it is, being a sum of what physics names. Energy is their product.

How noisy readings are is taken from repeats, pooled over the sweep; where there are few, from their standard errors and
from how rough the measured values are over the clocks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wastenot.arrays import FloatArray, IndexArray
from wastenot.planning.costs import Costs, rows_of_readings
from wastenot.planning.noise.shapes import ShapeTable
from wastenot.planning.noise.surface import Readings, fit_hyperparameters, posterior
from wastenot.planning.noise.temperature import at_one_temperature
from wastenot.study.sweep import Sweep

LEAST_SETTINGS = 8  # of every kernel, besides auto, for values to have a shape
_TIME_WIDENED, _POWER_WIDENED = 1.05, 1.15  # times: for hyperparameters that are estimates (benchmarks/bench_noise.py)
_CLOCKS_UNKNOWN = 1.4  # times wider where the clocks in effect were not recorded (likewise)
_MEMORY_STATES = 6  # the highest, whose power is told from each other
_HIGH_CORES = 3  # core clocks at which bandwidth is looked at
_LEAST_FREEDOM = 8  # degrees of freedom of repeats from which their scatter is trusted


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """True values of one call of each kernel at each setting, as believed; arrays by the rows of :class:`Costs`.

    Attributes:
        mean: expected value.
        variance: of the true value around it.
        with_baseline: covariance with the kernel's baseline, its variance at the baseline itself.
        common: loadings of further errors that all kernels have in common, each of variance 1; shape (rows, errors).
    """

    mean: FloatArray
    variance: FloatArray
    with_baseline: FloatArray
    common: FloatArray

    def times(self, other: Posterior, first: IndexArray) -> Posterior:
        """The product with values that are independent of these; ``first`` is the baseline row of each row."""

        def moment(ours: FloatArray, theirs: FloatArray, ends: IndexArray) -> FloatArray:
            mean, other_mean = self.mean, other.mean
            found: FloatArray = mean * mean[ends] * theirs + other_mean * other_mean[ends] * ours + ours * theirs
            return found

        here = np.arange(len(first))
        return Posterior(
            self.mean * other.mean,
            moment(self.variance, other.variance, here),
            moment(self.with_baseline, other.with_baseline, first),
            np.concatenate([other.mean[:, None] * self.common, self.mean[:, None] * other.common], axis=1),
        )

    def exponential(self, first: IndexArray) -> Posterior:
        """Values of whose logarithms this is believed (log-normal); ``first`` is the baseline row of each row."""
        value = np.exp(self.mean + 0.5 * self.variance)
        variance, with_baseline = np.expm1(self.variance), np.expm1(self.with_baseline)
        return Posterior(value, value**2 * variance, value * value[first] * with_baseline, value[:, None] * self.common)

    def widened(self, factor: float) -> Posterior:
        """The same with errors so many times as large."""
        square = factor**2
        return Posterior(self.mean, square * self.variance, square * self.with_baseline, factor * self.common)

    def with_common(self, loadings: FloatArray) -> Posterior:
        """The same with further errors that all kernels have in common, as shares of the mean; shape (rows, errors)."""
        return replace(self, common=np.concatenate([self.common, self.mean[:, None] * loadings], axis=1))

    def scaled(self, factor: float) -> Posterior:
        """The same in another unit."""
        square = factor**2
        return Posterior(factor * self.mean, square * self.variance, square * self.with_baseline, factor * self.common)


@dataclass(frozen=True, slots=True, eq=False)
class Posteriors:
    """What is believed of times and energies; but for common errors, kernels are independent of each other."""

    time_s: Posterior
    energy_j: Posterior


@dataclass(frozen=True, slots=True, eq=False)
class _Measured:
    """Means over repeats of one thing; arrays by the rows of :class:`Costs`.

    Attributes:
        value: the means.
        noise: variance of ``value`` as far as it is known.
        share: what noise that is not known is to be multiplied by.
        rest_is_noise: whether there may be more noise than ``noise``.
        known: whether ``noise`` is known at all.
    """

    value: FloatArray
    noise: FloatArray
    share: FloatArray
    rest_is_noise: bool
    known: bool


def posteriors(sweep: Sweep, costs: Costs) -> Posteriors | None:
    """What is believed of the true costs; ``None`` where nothing says how noisy they are.

    Args:
        sweep: every reading.
        costs: the same with repeats combined.
    """
    row = rows_of_readings(sweep)
    repeats = np.bincount(row, minlength=len(costs.kernel))
    levelled = at_one_temperature(sweep)
    sweep = levelled.sweep
    time_error, energy_error = sweep.time_se_s / sweep.time_s, sweep.energy_se_j / sweep.energy_j
    power_variance = np.maximum(energy_error**2 - time_error**2, 0.0)  # energy is measured as power times time
    time = _logarithm(np.log(sweep.time_s), time_error**2, row, repeats)
    log_power = _logarithm(np.log(sweep.energy_j / sweep.time_s), power_variance, row, repeats)
    relative = np.exp(log_power.value - log_power.value.mean())
    power = replace(log_power, value=relative, noise=relative**2 * log_power.noise, share=relative**2 * log_power.share)
    first = costs.start[costs.kernel]
    if np.diff(costs.start).min() > LEAST_SETTINGS:
        level = (np.add.reduceat(time.value, costs.start[:-1]) / np.diff(costs.start))[costs.kernel]
        time_shapes, power_shapes = _shapes(sweep, costs, time.value, row, repeats)
        log_time = _smoothed(costs, replace(time, value=time.value - level), time_shapes)
        log_time = replace(log_time, mean=log_time.mean + level)
        power_posterior = _smoothed(costs, power, power_shapes)
        doubt = _CLOCKS_UNKNOWN if np.isnan(sweep.effective_core_mhz).any() else 1.0
        log_time, power_posterior = log_time.widened(doubt * _TIME_WIDENED), power_posterior.widened(doubt * _POWER_WIDENED)
    elif time.known and power.known:
        log_time, power_posterior = _as_measured(time, first), _as_measured(power, first)
    else:
        return None
    time_posterior = log_time.exponential(first)
    energy_posterior = time_posterior.times(power_posterior.scaled(float(np.exp(log_power.value.mean()))), first)
    time_errors, power_errors = (_means(each, row, repeats) for each in (levelled.time_errors, levelled.power_errors))
    return Posteriors(time_posterior.with_common(time_errors), energy_posterior.with_common(time_errors + power_errors))


def _logarithm(value: FloatArray, stated: FloatArray, row: IndexArray, repeats: IndexArray) -> _Measured:
    """Means of logarithms, and their noise from repeats where there are enough, else as stated."""
    mean = np.bincount(row, value) / repeats
    told = np.bincount(row, np.nan_to_num(stated)) / repeats
    freedom = len(value) - len(repeats)
    if freedom < _LEAST_FREEDOM:
        return _Measured(mean, told / repeats, 1.0 / repeats, True, not bool(np.isnan(stated).any()))
    scatter = float(((value - mean[row]) ** 2).sum())
    expected = float(told @ (repeats - 1))
    return _Measured(mean, (told + max(0.0, scatter - expected) / freedom) / repeats, np.ones(len(mean)), False, True)


def _means(loadings: FloatArray, row: IndexArray, repeats: IndexArray) -> FloatArray:
    """Loadings of each row from those of its readings, shape (rows, errors)."""
    return np.column_stack([np.bincount(row, column) / repeats for column in loadings.T])


def _as_measured(measured: _Measured, first: IndexArray) -> Posterior:
    """Measured values with their own errors, where there is no shape to draw them to."""
    at_baseline = np.arange(len(first)) == first
    return Posterior(measured.value, measured.noise, np.where(at_baseline, measured.noise, 0.0), np.zeros((len(first), 0)))


def _smoothed(costs: Costs, measured: _Measured, shapes: list[FloatArray]) -> Posterior:
    """Values drawn towards surfaces over clocks."""
    clocks, _ = _clocks(costs)
    designs = _designs(costs)
    readings = [
        Readings(
            clocks[rows[:, 0]],
            np.stack([shapes[kernel] for kernel in costs.kernel[rows[0]]]),
            *(column[rows] for column in (measured.value, measured.noise, measured.share)),
        )
        for rows in designs
    ]
    found = fit_hyperparameters(readings)
    mean, variance, covariance = (np.empty(len(costs.kernel)) for _ in range(3))
    common = np.empty((len(costs.kernel), len(found.weight)))
    for rows, reading in zip(designs, readings, strict=True):
        for column in range(rows.shape[1]):
            at = rows[:, column]
            mean[at], whole, common[at] = posterior(reading, column, found, measured.rest_is_noise)
            variance[at], covariance[at] = np.diag(whole), whole[0]
    return Posterior(mean, variance, covariance, common)


def _shapes(
    sweep: Sweep, costs: Costs, log_time: FloatArray, row: IndexArray, repeats: IndexArray
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Of each kernel the shapes of time and those of power."""
    logs = _log_clocks(costs)
    effective, effective_memory = (
        np.log(np.bincount(row, recorded) / repeats) - highest
        for recorded, highest in zip(
            (sweep.effective_core_mhz, sweep.effective_memory_mhz), _highest_logs(costs)[:2], strict=True
        )
    )
    automatic: FloatArray = np.asarray(_clocks(costs)[1].any(axis=1), dtype=np.float64)
    others: list[FloatArray] = [logs[:, 2]] if np.ptp(logs[:, 2]) > 0 else []
    tables: dict[bytes, ShapeTable] = {}
    fits = []
    rates = _memory_rates(costs, log_time, logs[:, 1] if np.isnan(effective_memory).any() else effective_memory)
    for first, last in zip(costs.start[:-1].tolist(), costs.start[1:].tolist(), strict=True):
        core = logs[first:last, 0]
        known = not np.isnan(effective[first:last]).any()
        core, memory = effective[first:last] if known else core, rates[first:last]
        key = core.tobytes() + memory.tobytes()
        if key not in tables:
            tables[key] = ShapeTable(core, memory, automatic[first:last], held=not known)
        fits.append((tables[key], tables[key].misfits(log_time[first:last]), [log[first:last] for log in others]))
    noise = max(float(np.median([misfits.min() / (len(table.core) - 4) for table, misfits, _ in fits])), 1e-9)
    states = np.unique(rates)[-_MEMORY_STATES:-1]
    found = [table.shapes(misfits, noise, states, others) for table, misfits, others in fits]
    return [time for time, _ in found], [power for _, power in found]


def _memory_rates(costs: Costs, log_time: FloatArray, log_memory: FloatArray) -> FloatArray:
    """Logarithm of the rate at which each row's memory delivers over that at the highest memory clock, shape (rows,).

    Bandwidth does not quite go with the clock, so it is measured: by how much a lower memory clock slows those kernels that
    the lowest slows most, at the highest core clocks.

    Args:
        costs: of which the settings are taken.
        log_time: logarithm of each row's time.
        log_memory: logarithm of each row's memory clock in effect.
    """
    clocks = np.unique(np.nan_to_num(_log_clocks(costs)[:, 1]))
    state = np.abs(log_memory[:, None] - clocks).argmin(axis=1)
    cores = np.unique(costs.core_mhz[~np.isnan(costs.core_mhz)])
    high = np.isnan(costs.core_mhz) | (costs.core_mhz >= cores[-_HIGH_CORES:].min(initial=np.inf))
    cell = costs.kernel[high] * len(clocks) + state[high]
    shape = (len(costs.kernels), len(clocks))
    readings = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
    with np.errstate(invalid="ignore"):
        level = np.bincount(cell, log_time[high], minlength=shape[0] * shape[1]).reshape(shape) / readings
    slowing = level - level[:, -1:]
    known = ~np.isnan(slowing).any(axis=0)
    if not known.any():
        return np.asarray(clocks[state])
    bound = np.argsort(-slowing[:, np.flatnonzero(known)[0]])[: max(3, len(slowing) // 4)]
    beyond = np.interp(clocks, clocks[known], -slowing[bound].mean(axis=0)[known] - clocks[known])
    return np.asarray((clocks + beyond)[state])


def _highest_logs(costs: Costs) -> FloatArray:
    """Logarithms of the highest core clock, memory clock and power limit that were asked for; shape (3,)."""
    columns = (costs.core_mhz, costs.memory_mhz, costs.power_limit_w)
    highest: FloatArray = np.log([1.0 if np.isnan(column).all() else np.nanmax(column) for column in columns])
    return highest


def _log_clocks(costs: Costs) -> FloatArray:
    """Logarithms of core clock, memory clock and power limit over the highest, auto at it; shape (rows, 3)."""
    logs = np.log(np.column_stack([costs.core_mhz, costs.memory_mhz, costs.power_limit_w]))
    return np.asarray(np.nan_to_num(logs - _highest_logs(costs)))


def _clocks(costs: Costs) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Logarithms of what varies of the settings; and where each is auto. Shape (rows, varying)."""
    logs = _log_clocks(costs)
    varying = np.ptp(logs, axis=0) > 0
    automatic = np.isnan(np.column_stack([costs.core_mhz, costs.memory_mhz, costs.power_limit_w]))
    return logs[:, varying], automatic[:, varying]


def _designs(costs: Costs) -> list[IndexArray]:
    """Rows of kernels that have their settings in common, shape (settings, kernels) each."""
    places = np.column_stack(_clocks(costs))
    found: dict[bytes, list[IndexArray]] = {}
    for first, last in zip(costs.start[:-1].tolist(), costs.start[1:].tolist(), strict=True):
        found.setdefault(places[first:last].tobytes(), []).append(np.arange(first, last))
    return [np.column_stack(members) for members in found.values()]
