"""Power by clock of all kernels together, from readings that show several kernels at several clocks at once.

    reading = response to kernel · its power at knots + response to products · theirs + noise

Each kernel's runs have unknowns of their own: its power at the knots, how much more or less each load of a run draws than
usual, what is left of the delay's error. All share the power of the products around them and the effect of temperature. The
unknowns of one kernel are eliminated from its readings (Schur complement), the shared ones solved for, and put back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.kernels.natural.power_rows import IDLE, PowerSpread, Rows, Sensed, rows_of, shared_prior
from wastenot.kernels.natural.seen import Load

_ROBUST = 2.5
_USUAL = 15.0  # readings' worth of what is usual for all kernels
_ROUNDS = 5


@dataclass(frozen=True, slots=True, eq=False)
class PowerFit:
    """Powers at knots.

    Attributes:
        power_w: of each load at its knots.
        covariance: of their errors; for kernels of interest, and for those shared.
        per_degree: relative change of power with a degree, and its standard error.
        residual: of each run's readings in standard deviations.
        weight: of each run's readings, 1 or less where it is off.
        spread: of the residuals.
    """

    power_w: Mapping[Load, FloatArray]
    covariance: Mapping[Load, FloatArray]
    per_degree: tuple[float, float]
    residual: tuple[FloatArray, ...]
    weight: tuple[FloatArray, ...]
    spread: PowerSpread


def fit_powers(
    sensed: Sequence[Sensed],
    log_knots: Mapping[Load, FloatArray],
    guess_w: Mapping[Load, FloatArray],
    reference_c: float,
    spread: PowerSpread,
) -> PowerFit:
    """Fit the power of all loads to the readings of all runs.

    Args:
        sensed: runs, grouped by kernel of interest or not.
        log_knots: logarithms of clocks at which the power of each load is sought; a single one for idle.
        guess_w: powers to begin with, at these knots.
        reference_c: temperature at which powers are stated.
        spread: of readings and runs, to begin with.
    """
    by_own: dict[Load, list[int]] = {}
    for index, one in enumerate(sensed):
        by_own.setdefault(one.own, []).append(index)
    seen_beside = {load: {one.own for one in sensed if load in one.response.loads} for load in log_knots}
    shared = [load for load in log_knots if load == IDLE or len(seen_beside[load]) > 1]
    power_w = dict(guess_w)
    per_degree = 0.0
    weight = [np.ones(len(one.response.power_w)) for one in sensed]
    residual = [np.zeros(len(one.response.power_w)) for one in sensed]
    covariance: dict[Load, FloatArray] = {}
    rougher = dict.fromkeys(by_own, 1.0)
    for _ in range(_ROUNDS):
        problems = {
            own: rows_of([sensed[index] for index in indices], shared, log_knots, power_w, reference_c, spread)
            for own, indices in by_own.items()
        }
        of_shared, common_prior, common_wanted = shared_prior(shared, log_knots, power_w)
        reduced = {}
        for own, rows in problems.items():
            certain = np.concatenate([weight[index] for index in by_own[own]]) / (rougher[own] * rows.noise_w) ** 2
            reduced[own] = _eliminated(rows, certain)
        total = common_prior + sum(one.of_shared for one in reduced.values())
        right = common_wanted + sum(one.explained for one in reduced.values())
        common_cov = np.asarray(np.linalg.inv(total), dtype=float)
        common = np.asarray(common_cov @ right, dtype=float)
        for load, where in of_shared.items():
            power_w[load], covariance[load] = common[where], common_cov[where, where]
        per_degree = float(common[-1])
        factors, factor_variance, own_noise, other_noise = [], [], [], []
        for own, rows in problems.items():
            solved, own_cov = reduced[own].own(common, common_cov)
            for load, where in rows.of_knots.items():
                power_w[load], covariance[load] = solved[where], own_cov[where, where]
            left = rows.power_w - rows.matrix @ np.concatenate([solved, common])
            for index, where in zip(by_own[own], rows.runs, strict=True):
                residual[index] = left[where] / (rougher[own] * rows.noise_w[where])
                weight[index] = np.minimum(_ROBUST / np.maximum(np.abs(residual[index]), 1e-9), 1.0)
            factors.append(solved[rows.of_factors])
            factor_variance.append(np.diag(own_cov)[rows.of_factors])
            own_noise.append(left / rows.noise_w * spread.noise_w)
            rougher[own] = _rougher(left / rows.noise_w, reduced[own].freedom)
            other_noise.append(rows.others_w)
        spread = _new_spread(
            spread,
            np.concatenate(factors),
            np.concatenate(factor_variance),
            np.concatenate(own_noise),
            np.concatenate(other_noise),
            sum(one.freedom for one in reduced.values()),
        )
    error = float(np.sqrt(common_cov[-1, -1]))
    return PowerFit(power_w, covariance, (per_degree, error), tuple(residual), tuple(weight), spread)


class _Reduced(NamedTuple):
    """What the readings of one kernel say of the shared unknowns, once its own are eliminated."""

    inverse: FloatArray  # of the normal matrix of its own unknowns
    coupling: FloatArray  # of its own with the shared ones
    known: FloatArray  # right-hand side of its own
    of_shared: FloatArray
    explained: FloatArray
    freedom: float  # number of its own unknowns that readings rather than the prior determine

    def own(self, shared: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Its own unknowns and their covariance, given the shared ones and theirs."""
        through = self.inverse @ self.coupling
        solved = np.asarray(self.inverse @ (self.known - self.coupling @ shared), dtype=float)
        return solved, np.asarray(self.inverse + through @ covariance @ through.T, dtype=float)


def _eliminated(rows: Rows, certain: FloatArray) -> _Reduced:
    weighted = rows.matrix * certain[:, None]
    normal, explained = rows.matrix.T @ weighted, weighted.T @ rows.power_w
    coupling = normal[: rows.own, rows.own :]
    inverse = np.asarray(np.linalg.inv(normal[: rows.own, : rows.own] + rows.prior), dtype=float)
    known = explained[: rows.own] + rows.wanted
    return _Reduced(
        inverse,
        coupling,
        known,
        normal[rows.own :, rows.own :] - coupling.T @ inverse @ coupling,
        explained[rows.own :] - coupling.T @ inverse @ known,
        rows.own - float(np.sum(inverse * rows.prior)),
    )


def _new_spread(
    before: PowerSpread,
    factors: FloatArray,
    variance: FloatArray,
    left_w: FloatArray,
    others_w: FloatArray,
    explained_by: float,
) -> PowerSpread:
    """How readings and runs scatter, by what is left of them; others' fluctuations by readings that show mostly others."""
    run = float(np.sqrt((np.sum(factors**2 + variance) + 4.0 * before.run**2) / (len(factors) + 4.0)))
    freedom = max(1.0 - explained_by / max(len(left_w), 1), 0.3)
    few, many = np.quantile(others_w, [0.4, 0.8])
    noise_w = max(_scatter(left_w[others_w <= few + 1.0]) / freedom**0.5, 0.5)
    # Relative to what was allowed for: what readings of others scatter more by, these fluctuate.
    more = (_scatter(left_w[others_w > many]) ** 2 / freedom) / noise_w**2 if many > few + 1.0 else 1.0
    mean_w = float(np.mean(others_w[others_w > many])) if many > few + 1.0 else 1.0
    allowed = 1.0 + (before.fluctuation * mean_w / before.noise_w) ** 2
    fluctuation = before.noise_w / max(mean_w, 1.0) * max(more * allowed - 1.0, 0.0) ** 0.5
    return replace(
        before,
        noise_w=float(noise_w),
        fluctuation=min(max(fluctuation, 1e-3), 0.05),
        run=min(max(run, 1e-3), 0.03),
    )


def _rougher(left: FloatArray, explained_by: float) -> float:
    """By what factor a kernel's readings scatter more than usual: the power of some depends on what was before."""
    freedom = max(1.0 - explained_by / max(len(left), 1), 0.3)
    within = np.minimum(left**2, 9.0)
    return float(np.sqrt((_USUAL + within.sum() / freedom) / (_USUAL + len(left))).clip(1.0, 6.0))


def _scatter(values: FloatArray) -> float:
    """Standard deviation, robustly."""
    return float(1.4826 * np.median(np.abs(values))) if len(values) > 3 else 5.0
