"""The posterior of true costs after a noisy sweep: measured values, shrunk towards what is smooth over clocks.

The least of many noisy numbers is too low on average: choosing by measured values chooses lucky noise (paper, §6,
Validation). A posterior mean does not have that fault, however the choice was made from the same data, as long as its prior
is right; :mod:`wastenot.planning.noise.optimism` looks after the rest. Time and power each get a surface for every kernel
(:mod:`wastenot.planning.noise.surface`): time by its logarithm, power as it is, being a sum of what physics names. Energy is
their product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.blas import single_threaded
from wastenot.planning.costs import Costs, rows_of_readings
from wastenot.planning.noise.designs import FEW_SETTINGS, Design, make_designs, sample_of
from wastenot.planning.noise.hyperparameters import fit_hyperparameters, roughness
from wastenot.planning.noise.measured import Measured, correlation, mean_logarithms
from wastenot.planning.noise.optimism import Bootstrap, standard_draws
from wastenot.planning.noise.pattern import common_pattern
from wastenot.planning.noise.posteriors import Loadings, Posterior, Posteriors
from wastenot.planning.noise.surface import ADDED_NOISE, Hyperparameters, posterior
from wastenot.planning.noise.temperature import at_one_temperature
from wastenot.study.sweep import Sweep

_WIDENED = 1.15
"""Factor on errors of log time, whose shapes are chosen by the values that they explain; power's are not. Set by hand; how
often intervals hold with it, on cards and tables that had no part in this, is in ``docs/judged-kernels.md``."""

_LEAST_POWER = 0.1  # of the measured one, where a surface that does not fit says less
_LEAST_KERNELS = 8  # of few settings each, from which can be learnt what kernels have in common
_LEAST_SETTINGS = 3  # of the middle one of them, auto among them


class Bootstrapped(NamedTuple):
    """A posterior; by how much its means move with more noise, and independent measurements less its means.

    See :func:`wastenot.planning.noise.surface.posterior`; ``moved`` and ``left`` have shape (rows, draws).
    """

    posterior: Posterior
    moved: FloatArray
    left: FloatArray


class Values(Protocol):
    """What is believed of one quantity, of the rows of :class:`Costs`."""

    def posterior(self, rows: IndexArray) -> Posterior:
        """Of some rows, ascending, each kernel's baseline among them."""

    def level(self) -> FloatArray:
        """The measured values, shape (rows,)."""

    def with_bootstrap(self, draws: FloatArray) -> Bootstrapped:
        """The posterior of all rows, and its coupled bootstrap with standard normal draws, shape (rows, draws)."""


@dataclass(frozen=True, slots=True, eq=False)
class _Surfaces:
    """A fitted surface for each kernel."""

    costs: Costs
    designs: Sequence[Design]
    measured: Measured
    power: bool
    common: Hyperparameters
    rough: FloatArray  # of each kernel

    @classmethod
    def fitted(cls, costs: Costs, designs: Sequence[Design], measured: Measured, power: bool) -> _Surfaces:
        """By the hyperparameters of greatest likelihood, above ``LARGEST_FIT`` kernels those of a random sample."""
        sample = sample_of(costs)
        picked = [np.flatnonzero(np.isin(costs.kernel[design.rows[:, 0]], sample)) for design in designs]
        readings = [
            design.readings(measured, kernels, power)
            for design, kernels in zip(designs, picked, strict=True)
            if len(kernels)
        ]
        everything = (design.readings(measured, kernels, power) for design in designs for kernels in design.chunks())
        common = fit_hyperparameters(readings, everything if len(sample) < len(costs.kernels) else ())
        rough = np.empty(len(costs.kernels))
        for design in designs:
            for chunk in design.chunks():
                members = costs.kernel[design.rows[chunk, 0]]
                rough[members] = roughness(design.readings(measured, chunk, power), common)
        return cls(costs, designs, measured, power, common, rough)

    def posterior(self, rows: IndexArray) -> Posterior:
        """Of some rows, ascending, each kernel's baseline among them."""
        return self._solved(rows, np.zeros((len(self.costs.kernel), 0))).posterior

    def with_bootstrap(self, draws: FloatArray) -> Bootstrapped:
        """The posterior of all rows, and its coupled bootstrap with standard normal draws, shape (rows, draws)."""
        return self._solved(np.arange(len(self.costs.kernel)), draws)

    def _solved(self, rows: IndexArray, draws: FloatArray) -> Bootstrapped:
        place = np.full(len(self.costs.kernel), -1)
        place[rows] = np.arange(len(rows))
        mean, variance, with_baseline = (np.empty(len(rows)) for _ in range(3))
        common = np.empty((len(rows), len(self.common.weight) + 2))
        moved, left = np.empty_like(draws), np.empty_like(draws)
        for design in self.designs:
            for chunk in design.chunks():
                own = design.rows[chunk]
                readings = design.readings(self.measured, chunk, self.power)
                found = posterior(readings, self.common, self.rough[self.costs.kernel[own[:, 0]]], draws[own])
                moved[own], left[own] = found.moved, found.left
                at = place[own]
                asked = at >= 0
                for whole, part in zip((mean, variance, with_baseline, common), found[:4], strict=True):
                    if asked.all():
                        whole[at] = part
                    else:
                        whole[at[asked]] = part[asked]
        return Bootstrapped(Posterior(mean, variance, with_baseline, Loadings.of(common)), moved, left)

    def level(self) -> FloatArray:
        """The measured values, shape (rows,)."""
        return self.measured.value


@dataclass(frozen=True, slots=True, eq=False)
class _AsMeasured:
    """Measured values with their own errors, where there is no shape towards which to shrink them."""

    costs: Costs
    measured: Measured

    def posterior(self, rows: IndexArray) -> Posterior:
        """Of some rows, ascending, each kernel's baseline among them."""
        noise = self.measured.noise[rows]
        at_baseline = rows == self.costs.start[self.costs.kernel[rows]]
        none = Loadings.of(np.zeros((len(rows), 0)))
        return Posterior(self.measured.value[rows], noise, np.where(at_baseline, noise, 0.0), none)

    def level(self) -> FloatArray:
        """The measured values, shape (rows,)."""
        return self.measured.value

    def with_bootstrap(self, draws: FloatArray) -> Bootstrapped:
        """The posterior of all rows, and its coupled bootstrap with standard normal draws, shape (rows, draws)."""
        added = np.sqrt(self.measured.noise)[:, None] * draws
        posterior = self.posterior(np.arange(len(self.costs.kernel)))
        return Bootstrapped(posterior, ADDED_NOISE * added, -added / ADDED_NOISE)


@dataclass(frozen=True, slots=True, eq=False)
class CostModel:
    """What a noisy sweep says about the true costs; get one from :func:`fit_costs`.

    Attributes:
        known: whether repeats or standard errors say how noisy the sweep is; otherwise that is a guess from how rough the
            measured values are over the clocks.
        log_time: of the logarithm of time, less ``level``.
        level: shape (rows,).
        power: in units of ``power_unit_w``.
        power_unit_w: typical power.
        widened: factor on the errors of log time.
        correlation: of these errors.
        time_errors: loadings of further errors that all rows share, as fractions of time; shape (rows, errors).
        power_errors: the same of power.
    """

    costs: Costs
    known: bool
    log_time: Values
    level: FloatArray
    power: Values
    power_unit_w: float
    widened: float
    correlation: float
    time_errors: FloatArray
    power_errors: FloatArray

    @single_threaded()
    def posteriors(self, rows: IndexArray) -> Posteriors:
        """Posteriors of true times and energies at some rows of the costs; each kernel's baseline is added."""
        rows = np.unique(np.concatenate([self.costs.start[:-1], rows]))
        return self._posteriors(rows, self.log_time.posterior(rows), self.power.posterior(rows))

    @single_threaded()
    def with_bootstrap(self) -> tuple[Posteriors, Bootstrap]:
        """Posteriors at all rows; what would be believed with a little more noise, and what independent measurements say."""
        time, power = standard_draws(len(self.costs.kernel))
        power = self.correlation * time + math.sqrt(1.0 - self.correlation**2) * power
        log_time, watt = self.log_time.with_bootstrap(time), self.power.with_bootstrap(power)
        level = self.power.level()[:, None]
        bootstrap = Bootstrap(
            log_time.moved, log_time.moved + watt.moved / level, log_time.left, log_time.left + watt.left / level
        )
        return self._posteriors(np.arange(len(self.costs.kernel)), log_time.posterior, watt.posterior), bootstrap

    def _posteriors(self, rows: IndexArray, log_time: Posterior, power: Posterior) -> Posteriors:
        first = np.searchsorted(rows, self.costs.start[self.costs.kernel[rows]])
        log_time = replace(log_time, mean=log_time.mean + self.level[rows])
        time = log_time.widened(self.widened).exponential(first)
        power = power.scaled(self.power_unit_w)
        power = replace(power, mean=np.maximum(power.mean, _LEAST_POWER * self.power_unit_w * self.power.level()[rows]))
        energy = time.times(power, first, self.correlation)
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
    # Energy is mostly measured as power times time, and its error holds that of time; measured by itself it does not.
    least, most = np.maximum(energy_error**2 - time_error**2, 0.0), energy_error**2 + time_error**2
    readings = np.log(sweep.time_s), np.log(sweep.energy_j / sweep.time_s)
    time = mean_logarithms(readings[0], time_error**2, time_error**2, row, repeats)
    log_power = mean_logarithms(readings[1], least, most, row, repeats)
    known = time.known and log_power.known
    unit = log_power.value.mean()
    power = replace(log_power, value=log_power.value - unit).exponential()
    settings = np.diff(costs.start)
    together = 0.0
    level = np.zeros(len(costs.kernel))
    if settings.min() > FEW_SETTINGS or (
        known and len(settings) >= _LEAST_KERNELS and np.median(settings) >= _LEAST_SETTINGS
    ):
        level = (np.add.reduceat(time.value, costs.start[:-1]) / np.diff(costs.start))[costs.kernel]
        typical = (np.add.reduceat(power.value, costs.start[:-1]) / np.diff(costs.start))[costs.kernel]
        designs = make_designs(sweep, costs, time, row, repeats)
        time = replace(time, value=time.value - level)
        left = np.zeros((2, len(level)))
        for design in designs:
            design.unexplained(time, False, left[0])
            design.unexplained(power, True, left[1])
        left[1] /= typical
        (time_pattern, time_doubt), (power_pattern, power_doubt) = (common_pattern(costs, each) for each in left)
        together = correlation(*readings, row, repeats, left - np.stack([time_pattern, power_pattern]))
        time = time.with_offset(time_pattern, time_doubt)
        power = power.with_offset(typical * power_pattern, typical * power_doubt)
        fits: tuple[Values, Values] = (
            _Surfaces.fitted(costs, designs, time, False),
            _Surfaces.fitted(costs, designs, power, True),
        )
        widened = _WIDENED
    elif known:
        fits, widened = (_AsMeasured(costs, time), _AsMeasured(costs, power)), 1.0
    else:
        return None
    errors = (
        np.column_stack([np.bincount(row, column) / repeats for column in each.T])
        for each in (levelled.time_errors, levelled.power_errors)
    )
    return CostModel(costs, known, fits[0], level, fits[1], float(np.exp(unit)), widened, together, *errors)
