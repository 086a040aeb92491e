"""The posterior of true costs after a noisy sweep: measured values, shrunk towards what is smooth over clocks.

The least of many noisy numbers is too low on average: choosing by measured values chooses lucky noise (paper, §6,
Validation). A posterior mean does not have that fault, however the choice was made from the same data. Time and power,
whose noises are independent, each get a surface for every kernel (:mod:`wastenot.planning.noise.surface`): time by its
logarithm, power as it is, being a sum of what physics names. Energy is their product.

The noise of readings is estimated from repeats, pooled over the sweep; where there are few, from their standard errors and
from how rough the measured values are over the clocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wastenot.arrays import FloatArray, IndexArray
from wastenot.blas import single_threaded
from wastenot.planning.costs import Costs, rows_of_readings
from wastenot.planning.noise.shapes import Shapes, ShapeTable, TimeShape
from wastenot.planning.noise.surface import LARGEST_FIT, Hyperparameters, Readings, fit_hyperparameters, posterior
from wastenot.planning.noise.temperature import at_one_temperature
from wastenot.study.sweep import Sweep

LEAST_SETTINGS = 8  # of every kernel, besides auto, for values to have a shape
_TIME_WIDENED, _POWER_WIDENED = 1.05, 1.15  # factors, for hyperparameters that are estimates (benchmarks/bench_noise.py)
_CLOCKS_UNKNOWN = 1.4  # factor where the clocks in effect were not recorded (same benchmark)
_MEMORY_STATES = 6  # the highest, whose power is fitted separately
_HIGH_CORES = 3  # core clocks at which bandwidth is looked at
_LEAST_FREEDOM = 8  # degrees of freedom of repeats from which their scatter is trusted
_LEAST_TIME_NOISE = 1e-9  # variance of a log time
_TOGETHER = 64  # kernels that are compared with a table at once
_CHUNK = 1 << 21  # numbers of the matrices that are factorised at once


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
            return np.asarray(mean * mean[ends] * theirs + other_mean * other_mean[ends] * ours + ours * theirs)

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
        """The same with further errors that all kernels have in common, as fractions of the mean; shape (rows, errors)."""
        return replace(self, common=np.concatenate([self.common, self.mean[:, None] * loadings], axis=1))

    def scaled(self, factor: float) -> Posterior:
        """The same in another unit."""
        return replace(self.widened(factor), mean=factor * self.mean)


@dataclass(frozen=True, slots=True, eq=False)
class Posteriors:
    """Posteriors of times and energies; apart from common errors, kernels are independent of each other.

    Attributes:
        rows: of :class:`Costs` that they are of, ascending, each kernel's baseline among them.
        time_s: of times, by ``rows``.
        energy_j: of energies, by ``rows``.
    """

    rows: IndexArray
    time_s: Posterior
    energy_j: Posterior

    def index(self, rows: IndexArray) -> IndexArray:
        """Where some rows of :class:`Costs` are in these arrays."""
        return np.searchsorted(self.rows, rows)


@dataclass(frozen=True, slots=True, eq=False)
class _Measured:
    """Means over repeats of one quantity; arrays by the rows of :class:`Costs`."""

    value: FloatArray
    noise: FloatArray  # variance of the value as far as it is known
    rest_scale: FloatArray  # factor by which the noise that is not known is multiplied
    rest_is_noise: bool  # whether there may be more noise than is known
    known: bool  # whether the noise is known at all


@dataclass(frozen=True, slots=True, eq=False)
class _Design:
    """Kernels that share their settings."""

    rows: IndexArray  # of Costs, shape (settings, kernels)
    clocks: FloatArray  # logarithms of those that vary, shape (settings, dimensions)
    shapes: Shapes  # that their surfaces are made of

    def readings(self, measured: _Measured, kernels: IndexArray, power: bool) -> Readings:
        """What was measured of some of its kernels."""
        shapes = self.shapes.of_power(kernels) if power else self.shapes.of_time(kernels)
        rows = self.rows[:, kernels]
        return Readings(self.clocks, shapes, measured.value[rows], measured.noise[rows], measured.rest_scale[rows])

    def chunks(self) -> Iterator[IndexArray]:
        """Its kernels, so many at once that their matrices are small."""
        settings, kernels = self.rows.shape
        return iter(np.array_split(np.arange(kernels), -(-kernels * settings**2 // _CHUNK)))


@dataclass(frozen=True, slots=True, eq=False)
class _Surfaces:
    """A fitted surface for each kernel."""

    costs: Costs
    designs: Sequence[_Design]
    measured: _Measured
    power: bool
    common: Hyperparameters

    @classmethod
    def fitted(cls, costs: Costs, designs: Sequence[_Design], measured: _Measured, power: bool) -> _Surfaces:
        """By the hyperparameters of greatest likelihood, above ``LARGEST_FIT`` kernels those of a random sample."""
        sample = _sample(costs)
        picked = [np.flatnonzero(np.isin(costs.kernel[design.rows[0]], sample)) for design in designs]
        readings = [
            design.readings(measured, kernels, power)
            for design, kernels in zip(designs, picked, strict=True)
            if len(kernels)
        ]
        everything = (design.readings(measured, kernels, power) for design in designs for kernels in design.chunks())
        common = fit_hyperparameters(readings, everything if len(sample) < len(costs.kernels) else ())
        return cls(costs, designs, measured, power, common)

    def posterior(self, rows: IndexArray) -> Posterior:
        """Of some rows, ascending, each kernel's baseline among them."""
        kernel = self.costs.kernel[rows]
        begin = np.searchsorted(kernel, np.arange(len(self.costs.kernels)))
        rank = np.arange(len(rows)) - begin[kernel]
        wanted = np.zeros((len(self.costs.kernels), int(rank.max()) + 1), dtype=np.intp)
        wanted[kernel, rank] = rows - self.costs.start[kernel]
        number = np.bincount(kernel)
        mean, variance, with_baseline = (np.empty(len(rows)) for _ in range(3))
        common = np.empty((len(rows), len(self.common.weight)))
        for design in self.designs:
            for chunk in design.chunks():
                members = self.costs.kernel[design.rows[0, chunk]]
                width = int(number[members].max())
                readings = design.readings(self.measured, chunk, self.power)
                found = posterior(readings, self.common, self.measured.rest_is_noise, wanted[members, :width])
                asked = np.arange(width) < number[members, None]
                place = (begin[members, None] + np.arange(width))[asked]
                for whole, part in zip((mean, variance, with_baseline, common), found, strict=True):
                    whole[place] = part[asked]
        return Posterior(mean, variance, with_baseline, common)


@dataclass(frozen=True, slots=True, eq=False)
class _AsMeasured:
    """Measured values with their own errors, where there is no shape towards which to shrink them."""

    costs: Costs
    measured: _Measured

    def posterior(self, rows: IndexArray) -> Posterior:
        noise = self.measured.noise[rows]
        at_baseline = rows == self.costs.start[self.costs.kernel[rows]]
        return Posterior(self.measured.value[rows], noise, np.where(at_baseline, noise, 0.0), np.zeros((len(rows), 0)))


@dataclass(frozen=True, slots=True, eq=False)
class CostModel:
    """What a noisy sweep says about the true costs; get one from :func:`fit_costs`.

    Attributes:
        log_time: of the logarithm of time, less ``level``.
        level: shape (rows,).
        power: in units of ``power_unit_w``.
        power_unit_w: typical power.
        widened: factors on the errors of log time and of power.
        time_errors: loadings of further errors that all rows share, as fractions of time; shape (rows, errors).
        power_errors: the same of power.
    """

    costs: Costs
    log_time: _Surfaces | _AsMeasured
    level: FloatArray
    power: _Surfaces | _AsMeasured
    power_unit_w: float
    widened: tuple[float, float]
    time_errors: FloatArray
    power_errors: FloatArray

    @single_threaded()
    def posteriors(self, rows: IndexArray | None = None) -> Posteriors:
        """Posteriors of true times and energies.

        Args:
            rows: of the costs; each kernel's baseline is added. By default all, which takes longer.
        """
        start = self.costs.start
        rows = np.arange(start[-1]) if rows is None else np.unique(np.concatenate([start[:-1], rows]))
        first = np.searchsorted(rows, start[self.costs.kernel[rows]])
        log_time = self.log_time.posterior(rows)
        log_time = replace(log_time, mean=log_time.mean + self.level[rows])
        time = log_time.widened(self.widened[0]).exponential(first)
        power = self.power.posterior(rows).widened(self.widened[1])
        energy = time.times(power.scaled(self.power_unit_w), first)
        time_errors, power_errors = self.time_errors[rows], self.power_errors[rows]
        return Posteriors(rows, time.with_common(time_errors), energy.with_common(time_errors + power_errors))


@single_threaded()
def fit_costs(sweep: Sweep, costs: Costs) -> CostModel | None:
    """Fit what a sweep says about the true costs; ``None`` where nothing says how noisy it is.

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
    unit = log_power.value.mean()
    relative = np.exp(log_power.value - unit)
    power = replace(
        log_power, value=relative, noise=relative**2 * log_power.noise, rest_scale=relative**2 * log_power.rest_scale
    )
    level = np.zeros(len(row))
    fits: tuple[_Surfaces | _AsMeasured, _Surfaces | _AsMeasured]
    if np.diff(costs.start).min() > LEAST_SETTINGS:
        level = (np.add.reduceat(time.value, costs.start[:-1]) / np.diff(costs.start))[costs.kernel]
        designs = _designs(sweep, costs, time.value, row, repeats)
        relative_time = replace(time, value=time.value - level)
        fits = _Surfaces.fitted(costs, designs, relative_time, False), _Surfaces.fitted(costs, designs, power, True)
        doubt = _CLOCKS_UNKNOWN if np.isnan(sweep.effective_core_mhz).any() else 1.0
        widened = doubt * _TIME_WIDENED, doubt * _POWER_WIDENED
    elif time.known and power.known:
        fits, widened = (_AsMeasured(costs, time), _AsMeasured(costs, power)), (1.0, 1.0)
    else:
        return None
    errors = (_means(each, row, repeats) for each in (levelled.time_errors, levelled.power_errors))
    return CostModel(costs, fits[0], level, fits[1], float(np.exp(unit)), widened, *errors)


def _sample(costs: Costs) -> IndexArray:
    """The kernels from which is learnt what kernels have in common: all, or of many a random choice, always the same."""
    kernels = len(costs.kernels)
    if kernels <= LARGEST_FIT:
        return np.arange(kernels)
    return np.sort(np.random.default_rng(0).choice(kernels, LARGEST_FIT, replace=False))


def _logarithm(value: FloatArray, stated: FloatArray, row: IndexArray, repeats: IndexArray) -> _Measured:
    """Means of logarithms, and their noise from repeats where there are enough, else as stated."""
    mean = np.bincount(row, value) / repeats
    variance = np.bincount(row, np.nan_to_num(stated)) / repeats
    freedom = len(value) - len(repeats)
    if freedom < _LEAST_FREEDOM:
        return _Measured(mean, variance / repeats, 1.0 / repeats, True, not bool(np.isnan(stated).any()))
    scatter = float(((value - mean[row]) ** 2).sum())
    expected = float(variance @ (repeats - 1))
    return _Measured(mean, (variance + max(0.0, scatter - expected) / freedom) / repeats, np.ones(len(mean)), False, True)


def _means(loadings: FloatArray, row: IndexArray, repeats: IndexArray) -> FloatArray:
    """Loadings of each row from those of its readings, shape (rows, errors)."""
    return np.column_stack([np.bincount(row, column) / repeats for column in loadings.T])


def _designs(sweep: Sweep, costs: Costs, log_time: FloatArray, row: IndexArray, repeats: IndexArray) -> list[_Design]:
    """The kernels by the settings that they share, and the shapes of their times and powers."""
    settings = np.column_stack([costs.core_mhz, costs.memory_mhz, costs.power_limit_w])
    highest = np.log([1.0 if np.isnan(column).all() else np.nanmax(column) for column in settings.T])
    logs = np.nan_to_num(np.log(settings) - highest)  # of each setting over the highest, auto at it
    effective, effective_memory = (
        np.log(np.bincount(row, recorded) / repeats) - most
        for recorded, most in zip((sweep.effective_core_mhz, sweep.effective_memory_mhz), highest[:2], strict=True)
    )
    held = bool(np.isnan(effective).any())
    core = logs[:, 0] if held else effective
    in_effect = logs[:, 1] if np.isnan(effective_memory).any() else effective_memory
    memory = _memory_rates(costs, log_time, np.unique(logs[:, 1]), in_effect)
    varying = np.ptp(logs, axis=0) > 0
    clocks, automatic = logs[:, varying], np.isnan(settings[:, varying])
    others = [logs[:, 2]] if varying[2] else []
    states = np.unique(memory)[-_MEMORY_STATES:-1]
    fits = _time_shapes(costs, log_time, core, memory, held)
    designs = []
    for rows in _shared_settings(costs, clocks, automatic):
        members = [fits[kernel] for kernel in costs.kernel[rows[0]].tolist()]
        first = rows[:, 0]
        shapes = Shapes(
            core=np.minimum(core[rows.T], np.array([fit.limit for fit in members])[:, None]),
            memory=memory[rows.T],
            mean=np.stack([fit.mean for fit in members]),
            directions=np.stack([fit.directions for fit in members]),
            ratio=np.array([[fit.ratio] for fit in members]),
            exponent=np.array([[fit.exponent] for fit in members]),
            automatic=np.where(automatic[first].any(axis=1), 1.0, 0.0),
            others=[log[first] for log in others],
            states=states,
            held=held,
        )
        designs.append(_Design(rows, clocks[first], shapes))
    return designs


def _time_shapes(costs: Costs, log_time: FloatArray, core: FloatArray, memory: FloatArray, held: bool) -> list[TimeShape]:
    """The shape of each kernel's time; kernels at the same clocks share a table."""
    spans = [slice(*span) for span in zip(costs.start[:-1].tolist(), costs.start[1:].tolist(), strict=True)]
    members: dict[bytes, list[int]] = {}
    for kernel, span in enumerate(spans):
        members.setdefault(core[span].tobytes() + memory[span].tobytes(), []).append(kernel)
    sampled = set(_sample(costs).tolist())
    tables: dict[bytes, ShapeTable] = {}
    left: list[float] = []
    for key, kernels in members.items():
        some = sampled.intersection(kernels)
        if some:
            tables[key] = ShapeTable(core[spans[kernels[0]]], memory[spans[kernels[0]]], held)
            settings = spans[kernels[0]].stop - spans[kernels[0]].start
            misfits = tables[key].misfits(np.stack([log_time[spans[kernel]] for kernel in sorted(some)]))
            left += (misfits.min(axis=1) / (settings - 4)).tolist()
    noise = max(float(np.median(left)), _LEAST_TIME_NOISE)
    shapes: dict[int, TimeShape] = {}
    for key, kernels in members.items():
        table = tables.get(key) or ShapeTable(core[spans[kernels[0]]], memory[spans[kernels[0]]], held)
        for first in range(0, len(kernels), _TOGETHER):
            chunk = kernels[first : first + _TOGETHER]
            misfits = table.misfits(np.stack([log_time[spans[kernel]] for kernel in chunk]))
            shapes |= {kernel: table.time_shape(each, noise) for kernel, each in zip(chunk, misfits, strict=True)}
    return [shapes[kernel] for kernel in range(len(spans))]


def _memory_rates(costs: Costs, log_time: FloatArray, clocks: FloatArray, log_memory: FloatArray) -> FloatArray:
    """Logarithm of the rate at which each row's memory delivers over that at the highest memory clock, shape (rows,).

    Bandwidth is not quite proportional to the clock in effect, so it is measured: by how much a lower memory clock slows
    those kernels that the lowest slows most, at the highest core clocks.
    """
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


def _shared_settings(costs: Costs, clocks: FloatArray, automatic: NDArray[np.bool_]) -> list[IndexArray]:
    """Rows of kernels that have their settings in common, shape (settings, kernels) each."""
    settings = np.column_stack([clocks, automatic])
    members: dict[bytes, list[IndexArray]] = {}
    for first, last in zip(costs.start[:-1].tolist(), costs.start[1:].tolist(), strict=True):
        members.setdefault(settings[first:last].tobytes(), []).append(np.arange(first, last))
    return [np.column_stack(kernels) for kernels in members.values()]
