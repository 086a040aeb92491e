"""What is to be expected of a plan's true time and energy, once luck in the measurements is taken out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from wastenot.arrays import FloatArray, IndexArray
from wastenot.planning.costs import Costs
from wastenot.planning.noise.shrinkage import Posterior, Posteriors
from wastenot.planning.plan import Expected
from wastenot.planning.units import PlanUnit

LEVEL = 0.95  # of intervals


@dataclass(frozen=True, slots=True)
class Change:
    """A total of one iteration, and its change from the baseline: plan/baseline − 1.

    Attributes:
        total: expected.
        change: expected.
        error: standard error of ``change``.
    """

    total: float
    change: float
    error: float

    @property
    def interval(self) -> tuple[float, float]:
        """Within which the true change is with probability ``LEVEL``."""
        reach = NormalDist().inv_cdf(0.5 + 0.5 * LEVEL) * self.error
        return self.change - reach, self.change + reach


def expected_change(posterior: Posterior, costs: Costs, rows: IndexArray) -> Change:
    """What is to be expected of one total under a plan.

    The error is that of a ratio to first order; what a kernel's plan and baseline have in common cancels, and a kernel left
    at auto counts only as far as it makes the whole larger.

    Args:
        posterior: of times or energies.
        costs: that it is about.
        rows: chosen row of each kernel.
    """
    base, count = costs.start[:-1], costs.count.astype(np.float64)
    whole, total = float(count @ posterior.mean[base]), float(count @ posterior.mean[rows])
    ratio = total / whole
    variance = posterior.variance[rows] + ratio**2 * posterior.variance[base] - 2.0 * ratio * posterior.with_baseline[rows]
    common = count @ (posterior.common[rows] - ratio * posterior.common[base])
    return Change(total, ratio - 1.0, math.sqrt(max(0.0, float(count**2 @ variance + common @ common))) / whole)


@dataclass(frozen=True, slots=True, eq=False)
class Excess:
    """Time over the budget that each option of each unit adds: a normal variable. Units share no more than common errors.

    Attributes:
        mean_s: of each unit an array of shape (options,).
        variance_s2: likewise, without the common errors.
        common_s: loadings of the common errors, of each unit an array of shape (options, errors).
        energy_j: expected energy of each option.
        time_s: expected time of each option.
    """

    mean_s: tuple[FloatArray, ...]
    variance_s2: tuple[FloatArray, ...]
    common_s: tuple[FloatArray, ...]
    energy_j: tuple[FloatArray, ...]
    time_s: tuple[FloatArray, ...]

    def of_plan(self, options: tuple[int, ...]) -> tuple[float, float]:
        """Mean and standard deviation of a plan's time over the budget."""
        mean = math.fsum(unit[option] for unit, option in zip(self.mean_s, options, strict=True))
        variance = math.fsum(unit[option] for unit, option in zip(self.variance_s2, options, strict=True))
        return mean, math.sqrt(max(0.0, variance + self.common_variance(options)))

    def common_variance(self, options: tuple[int, ...]) -> float:
        """What common errors add to the variance of a plan's time over the budget."""
        loading = sum(unit[option] for unit, option in zip(self.common_s, options, strict=True))
        return float(np.sum(np.square(loading)))

    def probability_kept(self, options: tuple[int, ...]) -> float:
        """That the plan's true time is within the budget."""
        mean, deviation = self.of_plan(options)
        if deviation == 0.0:
            return 1.0 if mean <= 0.0 else 0.0
        return NormalDist().cdf(-mean / deviation)


def excess(units: Sequence[PlanUnit], posteriors: Posteriors, slowdown: float) -> Excess:
    """Time of each option less what the slowdown allows the unit; what option and baseline have in common cancels."""
    means, variances, commons, energies, times = [], [], [], [], []
    time, allowed = posteriors.time_s, 1.0 + slowdown
    for unit in units:
        count = unit.costs.count[unit.kernels].astype(np.float64)
        base = unit.costs.start[unit.kernels]
        same = unit.rows == base
        mean = np.where(same, -slowdown * time.mean[base], time.mean[unit.rows] - allowed * time.mean[base])
        variance = np.where(
            same,
            slowdown**2 * time.variance[base],
            time.variance[unit.rows] + allowed**2 * time.variance[base] - 2.0 * allowed * time.with_baseline[unit.rows],
        )
        means.append(mean @ count)
        variances.append(np.maximum(variance, 0.0) @ count**2)
        commons.append(np.einsum("k,okf->of", count, time.common[unit.rows] - allowed * time.common[base]))
        energies.append(posteriors.energy_j.mean[unit.rows] @ count)
        times.append(time.mean[unit.rows] @ count)
    return Excess(tuple(means), tuple(variances), tuple(commons), tuple(energies), tuple(times))


def expect(
    units: Sequence[PlanUnit], costs: Costs, posteriors: Posteriors, options: tuple[int, ...], slowdown: float | None
) -> Expected:
    """What is to be expected of a plan in truth.

    Args:
        units: that got an option each.
        costs: of their kernels.
        posteriors: of the true costs.
        options: of each unit.
        slowdown: that was to be kept.
    """
    rows = costs.start[:-1].copy()
    for unit, option in zip(units, options, strict=True):
        rows[unit.kernels] = unit.rows[option]
    time = expected_change(posteriors.time_s, costs, rows)
    energy = expected_change(posteriors.energy_j, costs, rows)
    return Expected(
        level=LEVEL,
        time_s=time.total,
        energy_j=energy.total,
        time_change=time.change,
        time_change_interval=time.interval,
        energy_change=energy.change,
        energy_change_interval=energy.interval,
        probability_within_budget=None
        if slowdown is None
        else excess(units, posteriors, slowdown).probability_kept(options),
    )
