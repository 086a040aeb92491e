"""A plan's time and energy: standard errors as measured, and the expected true values.

Expectations are of posteriors, which takes out the luck of choosing among noisy measurements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray
from wastenot.planning.costs import Costs
from wastenot.planning.headline import LEVEL
from wastenot.planning.noise.optimism import Optimism
from wastenot.planning.noise.posteriors import Posterior, Posteriors
from wastenot.planning.plan import Expected
from wastenot.planning.units import PlanUnit


class _Change(NamedTuple):
    """The expected total of one iteration, its change from the baseline (plan/baseline − 1), and the interval of that."""

    total: float
    change: float
    interval: tuple[float, float]


def _expected_change(
    posterior: Posterior, count: FloatArray, base: IndexArray, chosen: IndexArray, optimism: float
) -> _Change:
    """What to expect of one total under a plan; ``base`` and ``chosen`` are each kernel's rows of the posterior.

    ``optimism`` is by how much the posterior's total may be too low: half of it is added, and doubted.

    The error is that of a ratio to first order; what a kernel's plan and baseline have in common cancels, and a kernel left
    at auto counts only as far as it makes the whole larger.
    """
    whole, total = float(count @ posterior.mean[base]), float(count @ posterior.mean[chosen]) + 0.5 * optimism
    ratio = total / whole
    variance, shared = errors_of_ratio(posterior, base, chosen, ratio)
    common = count @ shared
    error = math.sqrt(max(0.0, float(count**2 @ variance + common @ common)) + 0.25 * optimism**2) / whole
    reach = NormalDist().inv_cdf(0.5 + 0.5 * LEVEL) * error
    return _Change(total, ratio - 1.0, (ratio - 1.0 - reach, ratio - 1.0 + reach))


def errors_of_ratio(
    posterior: Posterior, base: IndexArray, chosen: IndexArray, ratio: float
) -> tuple[FloatArray, FloatArray]:
    """Variance of what each chosen row is above ``ratio`` times its baseline, and its loadings of common errors."""
    variance = (
        posterior.variance[chosen] + ratio**2 * posterior.variance[base] - 2.0 * ratio * posterior.with_baseline[chosen]
    )
    return variance, posterior.common[chosen] - ratio * posterior.common[base]


@dataclass(frozen=True, slots=True, eq=False)
class Excess:
    """Time over the budget that each option of each unit adds: a normal variable. Units share only common errors.

    Attributes:
        start: options of unit ``u`` are ``start[u]:start[u + 1]``; shape (units + 1,).
        mean_s: of each option, shape (options,), as are the others.
        variance_s2: the same of variances, without the common errors.
        common_s: loadings of the common errors, shape (options, errors).
        energy_j: expected energy of each option.
        time_s: expected time of each option.
    """

    start: IndexArray
    mean_s: FloatArray
    variance_s2: FloatArray
    common_s: FloatArray
    energy_j: FloatArray
    time_s: FloatArray

    def only(self, kept: BoolArray) -> Excess:
        """That of some options, at least one of each unit."""
        start = np.concatenate([[0], np.cumsum(kept)])[self.start].astype(np.intp)
        return Excess(start, *(getattr(self, each.name)[kept] for each in fields(self)[1:]))


def excess(units: Sequence[PlanUnit], posteriors: Posteriors, slowdown: float) -> Excess:
    """Time of each option less what the slowdown allows the unit; what option and baseline have in common cancels."""
    sizes = [len(unit.rows) for unit in units]
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
    if all(len(unit.kernels) == 1 for unit in units):  # one after the other they are as many rows
        rows = posteriors.index(np.concatenate([unit.rows[:, 0] for unit in units]))
        base = posteriors.index(np.array([unit.costs.start[unit.kernels[0]] for unit in units]))
        count = np.repeat([float(unit.costs.count[unit.kernels[0]]) for unit in units], sizes)
        mean, variance, common = excess_of_calls(posteriors.time_s, np.repeat(base, sizes), rows, slowdown)
        common *= count[:, None]
        energy, time = (each.mean[rows] * count for each in (posteriors.energy_j, posteriors.time_s))
        return Excess(start, mean * count, variance * count**2, common, energy, time)
    parts = []
    for unit in units:
        counts = unit.costs.count[unit.kernels].astype(np.float64)
        rows = posteriors.index(unit.rows)
        mean, variance, common = excess_of_calls(
            posteriors.time_s, posteriors.index(unit.costs.start[unit.kernels]), rows, slowdown
        )
        common = np.einsum("k,okf->of", counts, common)
        energy, time = (each.mean[rows] @ counts for each in (posteriors.energy_j, posteriors.time_s))
        parts.append((mean @ counts, variance @ counts**2, common, energy, time))
    return Excess(start, *map(np.concatenate, zip(*parts, strict=True)))


def expect(
    costs: Costs, posteriors: Posteriors, rows: IndexArray, slowdown: float | None, too_low: Optimism | None = None
) -> Expected:
    """A plan's expected true time and energy.

    Args:
        costs: of the kernels.
        posteriors: of the true costs, at least of ``rows``.
        rows: chosen row of each kernel.
        slowdown: that was to be kept.
        too_low: by how much posterior means of the plan may be too low; by default not at all.
    """
    too_low = Optimism() if too_low is None or np.array_equal(rows, costs.start[:-1]) else too_low
    count, base, chosen = costs.count.astype(np.float64), posteriors.index(costs.start[:-1]), posteriors.index(rows)
    time = _expected_change(posteriors.time_s, count, base, chosen, too_low.time_s)
    energy = _expected_change(posteriors.energy_j, count, base, chosen, too_low.energy_j)
    probability = None
    if slowdown is not None:
        mean, variance, common = excess_of_calls(posteriors.time_s, base, chosen, slowdown)
        together = float(variance @ count**2) + float(np.sum(np.square(count @ common)))
        doubted_s = 0.5 * too_low.time_s
        probability = probability_kept(math.fsum(mean * count) + doubted_s, math.hypot(math.sqrt(together), doubted_s))
    return Expected(
        level=LEVEL,
        time_s=time.total,
        energy_j=energy.total,
        time_change=time.change,
        time_change_interval=time.interval,
        energy_change=energy.change,
        energy_change_interval=energy.interval,
        probability_within_budget=probability,
    )


def excess_of_calls(
    time: Posterior, base: IndexArray, chosen: IndexArray, slowdown: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Time of one call less what the slowdown allows: mean, variance and loadings of common errors.

    Args:
        time: posteriors of times.
        base: of each kernel's baseline, shape (kernels,).
        chosen: of the chosen settings, shape (..., kernels).
        slowdown: that is allowed.
    """
    allowed, same = 1.0 + slowdown, chosen == base
    mean = np.where(same, -slowdown * time.mean[base], time.mean[chosen] - allowed * time.mean[base])
    variance = np.where(
        same,
        slowdown**2 * time.variance[base],
        time.variance[chosen] + allowed**2 * time.variance[base] - 2.0 * allowed * time.with_baseline[chosen],
    )
    common, of_base = time.common[chosen], time.common[base]
    of_base *= allowed
    common -= of_base
    return mean, np.maximum(variance, 0.0), common


def probability_kept(mean_s: float, deviation_s: float) -> float:
    """That a normal time over the budget is not above 0."""
    if deviation_s == 0.0:
        return 1.0 if mean_s <= 0.0 else 0.0
    return NormalDist().cdf(-mean_s / deviation_s)


def total_error(count: NDArray[np.int64], error: FloatArray) -> float | None:
    """Standard error of a sum of ``count`` times each value; ``None`` where one is unknown (NaN). Shapes (kernels,)."""
    return _known_or_none(np.sqrt(np.sum((count * error) ** 2)))


def change_error(
    count: NDArray[np.int64], value: FloatArray, error: FloatArray, rows: IndexArray, base: IndexArray
) -> float | None:
    """Standard error of (sum over ``rows``) / (sum over ``base``) − 1, to first order.

    A kernel that a plan leaves at auto enters both sums with one and the same measurement.

    Args:
        count: shape (kernels,).
        value: value of each row, shape (rows,).
        error: its standard error, NaN where unknown; shape (rows,).
        rows: chosen row of each kernel, shape (kernels,).
        base: baseline row of each kernel, shape (kernels,).
    """
    whole = float(count @ value[base])
    ratio = float(count @ value[rows]) / whole
    same = rows == base
    moved = np.where(same, 0.0, (count * error[rows]) ** 2 + (ratio * count * error[base]) ** 2)
    stayed = np.where(same, ((1.0 - ratio) * count * error[base]) ** 2, 0.0)
    return _known_or_none(np.sqrt(np.sum(moved + stayed)) / whole)


def _known_or_none(error: np.floating) -> float | None:
    return None if np.isnan(error) else float(error)
