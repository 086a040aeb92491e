"""Power over executions and over the time inside them, from readings that are each a mean over a window.

Every reading is a sum over what is unknown: idle power, a level that moves from execution to execution, a shape that
executions share, the fall after the last one.

    power(unit e, at share u of it) = idle + level(e + u) + Σ_j shape_j · cos(π j v),  v: share of the execution that is done

    window      ├──────────────────────┤                  a reading: the mean of what it covers
    run      ___│▁▄▆│▇▇▆│▇▇▆│▇▇▆│▇▇▆│▃▁___               (stitching, where the window is far shorter than an execution;
                                                           deconvolution, where it is longer)

That is linear, so that with normal priors (levels change less and less, by the logarithm of the execution's number;
shapes are smooth) the power and its error band follow in closed form. How much levels and shapes vary, and how noisy
readings are, is what makes the readings most likely (MacKay, Neural Computation 4, 1992, the evidence). What the sum leaves
unexplained goes into the band.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from wastenot.arrays import FloatArray
from wastenot.devices.instrument import Channel
from wastenot.profiling.basis import Basis, points_in
from wastenot.profiling.collect import TimedRun
from wastenot.profiling.design import rows_of_readings
from wastenot.profiling.misfit import NO_MISFIT, Misfit, misfit_of
from wastenot.profiling.run_factors import without_factors

_NEVER = 1e12
_FARTHEST = 6.0  # logarithms that noise and variation may be off from what is believed of them
_LOOKED = 100  # units of a stretch that means over it are taken from
_SETTLINGS = (1.0, 1.7, 2.5)  # how fast power settles over executions; the likeliest is taken
_NOISE_DOUBT = 1.5
_LEVEL_SHARE, _LEVEL_DOUBT = 0.5, 0.7  # belief in changes of the level: about half the range of readings
_COARSE_SHARE = 0.1  # the same where power comes and goes at once: a tenth
_SHAPE_SHARE, _SHAPE_DOUBT = 0.1, 0.7  # belief in shapes: about a tenth of the range of readings, give or take half


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """Power and how well it is known; arrays of one shape.

    Attributes:
        power_w: expected.
        error_w: its standard error.
    """

    power_w: FloatArray
    error_w: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Surface:
    """What is known of one channel's power in a burst.

    Attributes:
        noises_w: standard deviation of a reading around it, for each kind of runs.
        readings: that it rests on.
        basis: of what is unknown.
        misfit: what it leaves unexplained.
        unlikeliness: twice the negative logarithm of the evidence, to compare fits to the same readings.
    """

    noises_w: tuple[float, ...]
    readings: int
    unlikeliness: float
    basis: Basis
    misfit: Misfit
    _mean: FloatArray
    _covariance: FloatArray
    _own: int

    @property
    def points(self) -> int:
        """Stretches that a unit is told at: so many in each of its executions."""
        group = self.basis.group[self._own]
        return group * points_in(group)

    def inside(self, first: int, until: int) -> Band:
        """Power inside units of the profiled kernel, their mean, at the middles of equal stretches of them."""
        rows = np.mean([self.basis.rows(self._own, places) for places in self._places(first, until)], axis=0)
        return self._band(rows, np.hypot(self.misfit.common_w, self.misfit.inside(first, until)))

    def mean(self, first: int, last: int) -> Band:
        """Mean power of each of the units from ``first`` to before ``last``; shape (units,)."""
        rows = np.stack([self._mean_row(unit, unit + 1) for unit in range(first, last)])
        return self._band(rows, self.misfit.common_w)

    def range(self, first: int, last: int) -> tuple[float, float]:
        """Mean power over the units from ``first`` to before ``last``, and its standard error."""
        band = self._band(self._mean_row(first, last)[None, :], self.misfit.common_w)
        return float(band.power_w[0]), float(band.error_w[0])

    def change(self, first: tuple[int, int], second: tuple[int, int]) -> tuple[float, float]:
        """Mean power of units ``second`` less that of units ``first`` (from, to before), and its standard error."""
        band = self._band((self._mean_row(*second) - self._mean_row(*first))[None, :])
        return float(band.power_w[0]), float(band.error_w[0])

    def explained(self, rows: FloatArray) -> FloatArray:
        """What readings should be, by how much of each unknown they cover."""
        return np.asarray(rows @ self._mean)

    @property
    def idle_w(self) -> float:
        """Power at rest."""
        return float(self._mean[0])

    @property
    def noise_w(self) -> float:
        """Standard deviation of a reading around it, in runs from rest."""
        return self.noises_w[0]

    @property
    def shaped(self) -> bool:
        """Whether power is told inside executions."""
        return self.basis.shapes[self._own] > 0

    @property
    def units(self) -> int:
        """Units in the longest run."""
        return int(self.basis.knots[self._own][-1])

    def _mean_row(self, first: int, last: int) -> FloatArray:
        return np.asarray(self.basis.rows(self._own, self._places(first, last).ravel()).mean(axis=0))

    def _places(self, first: int, until: int) -> FloatArray:
        """Middles of equal stretches of units, of some of them where they are many; shape (units, stretches)."""
        looked = np.unique(np.linspace(first, until - 1, min(until - first, _LOOKED)).astype(np.intp))
        return np.asarray(looked[:, None] + (np.arange(self.points) + 0.5) / self.points)

    def _band(self, rows: FloatArray, misfit_w: float = 0.0) -> Band:
        variance = np.einsum("ij,jk,ik->i", rows, self._covariance, rows)
        return Band(np.asarray(rows @ self._mean), np.sqrt(np.maximum(variance, 0.0) + misfit_w**2))


def fit_surface(
    runs: Sequence[TimedRun],
    channel: Channel,
    *,
    kernels: int,
    own: int,
    group: int = 1,
    kinds: Sequence[int] = (),
    shaped: bool = True,
    windows: bool = True,
    coarse: bool = False,
) -> Surface:
    """Fit the power of a burst to the readings of its runs.

    Args:
        runs: of one burst, by one clock.
        channel: whose readings; its window, delay and gain are taken as told.
        kernels: in the burst.
        own: the profiled one.
        group: executions in a unit of the profiled one.
        kinds: of each run, a number; readings scatter in each kind of runs by its own amount. One kind by default.
        shaped: whether power varies inside executions; if not, only from unit to unit.
        windows: whether readings are taken as means over their windows; if not, as power at the moment they came.
        coarse: whether power is to come and go at once and to change but slowly, as by which a delay can be told.
    """
    groups = [group if kernel == own else 1 for kernel in range(kernels)]
    executions = [max(int(np.count_nonzero(run.kernel == kernel)) for run in runs) for kernel in range(kernels)]
    basis = Basis.of(
        [max(number // each, 1) for number, each in zip(executions, groups, strict=True)],
        groups,
        shaped=shaped,
        coarse=coarse,
    )
    rows = [rows_of_readings(run, channel, basis, own, group, windows) for run in runs]
    found = [(design, seen / channel.gain) for design, seen in rows]
    range_w = max(float(np.ptp(np.concatenate([seen for _, seen in found]))), 1.0)
    each = [
        [one for one, its in zip(found, kinds or [0] * len(runs), strict=True) if its == kind]
        for kind in sorted(set(kinds or [0]))
    ]
    fitted = _posterior([_Sums.of(kind) for kind in each], basis, own, channel.noise_w, range_w)
    if not coarse:
        turned = [without_factors(kind, [fitted.explained(one[0]) for one in kind], fitted.idle_w) for kind in each]
        fitted = _posterior([_Sums.of(kind) for kind in turned], basis, own, channel.noise_w, range_w)
    residuals = [seen - fitted.explained(design) for design, seen in found]
    return replace(fitted, misfit=misfit_of(runs, residuals, channel, own, group))


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """Normal equations of the readings of one kind of runs."""

    gram: FloatArray
    right: FloatArray
    square: float
    readings: int

    @classmethod
    def of(cls, runs: Sequence[tuple[FloatArray, FloatArray]]) -> _Sums:
        """Of rows and values of the readings of runs."""
        design, seen = np.concatenate([one[0] for one in runs]), np.concatenate([one[1] for one in runs])
        return cls(design.T @ design, design.T @ seen, float(seen @ seen), len(seen))


@dataclass(frozen=True, slots=True, eq=False)
class _Evidence:
    """How likely readings are, by how noisy they are and how much levels and shapes vary.

    Places are logarithms: of the noise of each kind of runs, then of how much levels and shapes vary.

    Attributes:
        basis: of the unknowns.
        sums: of each kind of runs.
        noise_w: that is said of the channel; ``None`` for nothing.
        range_w: of the readings, by which beliefs in levels and shapes are scaled.
    """

    basis: Basis
    sums: Sequence[_Sums]
    noise_w: float | None
    range_w: float

    @property
    def start(self) -> FloatArray:
        """Where to begin looking."""
        noise = self.noise_w or 0.1 * self.range_w
        return np.log([*[noise] * len(self.sums), self.level_w, _SHAPE_SHARE * self.range_w])

    @property
    def level_w(self) -> float:
        """By how much levels are believed to change."""
        return (_COARSE_SHARE if self.basis.coarse else _LEVEL_SHARE) * self.range_w

    def likeliest(self, start: FloatArray, settling: float) -> tuple[float, FloatArray]:
        """The least of :meth:`less` and where it is."""

        def less(place: FloatArray) -> float:
            return self.less(place, settling)

        found = minimize(less, start, method="Nelder-Mead", options={"xatol": 0.02, "fatol": 0.05, "maxiter": 600})
        return float(found.fun), np.asarray(found.x, dtype=float)

    def normal(self, place: FloatArray, settling: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Precision of the prior, precision after the readings, and the right-hand side."""
        prior = self.basis.precision(float(np.exp(place[-2])), float(np.exp(place[-1])), settling)
        weights = np.exp(-2.0 * place[:-2])
        after = prior + sum(weight * one.gram for weight, one in zip(weights, self.sums, strict=True))
        right = np.sum([weight * one.right for weight, one in zip(weights, self.sums, strict=True)], axis=0)
        return prior, after, np.asarray(right)

    def less(self, place: FloatArray, settling: float) -> float:
        """Twice the negative logarithm of the evidence, but for a constant."""
        if np.any(np.abs(place - self.start) > _FARTHEST):
            return _NEVER
        prior, after, right = self.normal(place, settling)
        try:
            factor = cho_factor(after, lower=True)
        except np.linalg.LinAlgError:
            return _NEVER
        found = 2.0 * float(np.sum(np.log(np.diag(factor[0])))) - float(np.linalg.slogdet(prior)[1])
        found -= float(right @ cho_solve(factor, right))
        for log, one in zip(place[:-2], self.sums, strict=True):
            found += 2.0 * one.readings * float(log) + one.square * float(np.exp(-2.0 * log))
            if self.noise_w is not None:
                # A weak belief that the channel is as noisy as is said of it keeps few readings from being taken as exact.
                found += (float(log - np.log(max(self.noise_w, 1e-3))) / _NOISE_DOUBT) ** 2
        found += (float(place[-1] - np.log(_SHAPE_SHARE * self.range_w)) / _SHAPE_DOUBT) ** 2
        found += (float(place[-2] - np.log(self.level_w)) / _LEVEL_DOUBT) ** 2
        return found


def _posterior(sums: Sequence[_Sums], basis: Basis, own: int, noise_w: float | None, range_w: float) -> Surface:
    """The most likely hyperparameters, and what follows from them."""
    evidence = _Evidence(basis, sums, noise_w, range_w)
    start = evidence.start
    best: tuple[float, FloatArray, float] | None = None
    for settling in _SETTLINGS[:1] if basis.coarse else _SETTLINGS:
        unlikeliness, start = evidence.likeliest(start, settling)
        if best is None or unlikeliness < best[0]:
            best = (unlikeliness, start, settling)
    assert best is not None
    noise = tuple(np.exp(best[1][:-2]).tolist())
    _, after, right = evidence.normal(best[1], best[2])
    covariance: FloatArray = np.asarray(np.linalg.inv(after), dtype=float)
    readings = sum(one.readings for one in sums)
    return Surface(noise, readings, best[0], basis, NO_MISFIT, covariance @ right, covariance, own)
