"""Power over executions and over the time inside them, from readings that are each a mean over a window.

Every reading is a sum over what is unknown: idle power, a level that moves from execution to execution, a shape that
executions share, the fall after the last one.

    power(unit e, at share u of it) = idle + level(e + u) + Σ_j shape_j · cos(π j v),  v: share of the execution that is done

    window      ├──────────────────────┤                  a reading: the mean of what it covers
    run      ___│▁▄▆│▇▇▆│▇▇▆│▇▇▆│▇▇▆│▃▁___               (stitching, where the window is far shorter than an execution;
                                                           deconvolution, where it is longer)

That is linear, so that with normal priors (levels change less and less, by the logarithm of the execution's number;
shapes are smooth) the power and its error band follow in closed form. How much levels and shapes vary, and how noisy
readings are, is what makes the readings most likely (MacKay, Neural Computation 4, 1992, the evidence).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from wastenot.devices.fine_grain import Channel
from wastenot.frontier.points import FloatArray
from wastenot.measurement.fingrav.basis import CELLS, LEAST_CELLS, Basis
from wastenot.measurement.fingrav.collect import TimedRun
from wastenot.measurement.fingrav.design import rows_of_readings

_NEVER = 1e12
_SETTLINGS = (1.0, 1.7, 2.5)  # how fast power settles over executions; the likeliest is taken
_NOISE_DOUBT = 1.5
_LEVEL_SHARE, _LEVEL_DOUBT = 0.5, 0.7  # belief in changes of the level: about half the range of readings
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
        noise_w: standard deviation of a reading around it.
        readings: that it rests on.
        unlikeliness: twice the negative logarithm of the evidence, to compare fits to the same readings.
    """

    noise_w: float
    readings: int
    unlikeliness: float
    _basis: Basis
    _mean: FloatArray
    _covariance: FloatArray
    _own: int

    @property
    def points(self) -> int:
        """Stretches that a unit is told at: so many in each of its executions."""
        group = self._basis.group[self._own]
        return group * max(CELLS // group, LEAST_CELLS)

    def inside(self, unit: int) -> Band:
        """Power inside a unit of the profiled kernel, at the middles of equal stretches of it."""
        return self._band(self._basis.rows(self._own, unit + (np.arange(self.points) + 0.5) / self.points))

    def mean(self, first: int, last: int) -> Band:
        """Mean power of each of the units from ``first`` to before ``last``; shape (units,)."""
        return self._band(np.stack([self._mean_row(unit, unit + 1) for unit in range(first, last)]))

    def change(self, first: tuple[int, int], second: tuple[int, int]) -> tuple[float, float]:
        """Mean power of units ``second`` less that of units ``first`` (from, to before), and its standard error."""
        band = self._band((self._mean_row(*second) - self._mean_row(*first))[None, :])
        return float(band.power_w[0]), float(band.error_w[0])

    @property
    def idle_w(self) -> float:
        """Power at rest."""
        return float(self._mean[0])

    @property
    def shaped(self) -> bool:
        """Whether power is told inside executions."""
        return self._basis.shapes > 0

    @property
    def units(self) -> int:
        """Units in the longest run."""
        return int(self._basis.knots[self._own][-1])

    @property
    def steady_w(self) -> float:
        """Mean power of the last eighth of the longest run."""
        return float(self._mean_row(self.units - max(self.units // 8, 1), self.units) @ self._mean)

    def _mean_row(self, first: int, last: int) -> FloatArray:
        at = first + (last - first) * (np.arange((last - first) * self.points) + 0.5) / ((last - first) * self.points)
        return np.asarray(self._basis.rows(self._own, at).mean(axis=0))

    def _band(self, rows: FloatArray) -> Band:
        variance = np.einsum("ij,jk,ik->i", rows, self._covariance, rows)
        return Band(np.asarray(rows @ self._mean), np.sqrt(np.maximum(variance, 0.0)))


def fit_surface(
    runs: Sequence[TimedRun],
    channel: Channel,
    *,
    kernels: int,
    own: int,
    group: int = 1,
    shaped: bool = True,
    windows: bool = True,
) -> Surface:
    """Fit the power of a burst to the readings of its runs.

    Args:
        runs: of one burst, by one clock.
        channel: whose readings; its window, delay and gain are taken as told.
        kernels: in the burst.
        own: the profiled one.
        group: executions in a unit of the profiled one.
        shaped: whether power varies inside executions; if not, only from unit to unit.
        windows: whether readings are taken as means over their windows; if not, as power at the moment they came.
    """
    groups = [group if kernel == own else 1 for kernel in range(kernels)]
    executions = [max(int(np.count_nonzero(run.kernel == kernel)) for run in runs) for kernel in range(kernels)]
    basis = Basis.of(
        [max(number // each, 1) for number, each in zip(executions, groups, strict=True)], groups, shaped=shaped
    )
    rows, power = [], []
    for run in runs:
        found = rows_of_readings(run, channel, basis, own, group, windows)
        rows.append(found[0])
        power.append(found[1])
    design, seen = np.concatenate(rows), np.concatenate(power) / channel.gain
    return _posterior(design, seen, basis, own, channel.noise_w)


@dataclass(frozen=True, slots=True, eq=False)
class _Evidence:
    """How likely readings are, by how noisy they are and how much levels and shapes vary.

    Attributes:
        basis: of the unknowns.
        gram, right, square: the readings' normal equations.
        readings: how many.
        noise_w: that is said of the channel; ``None`` for nothing.
        range_w: of the readings, by which beliefs in levels and shapes are scaled.
    """

    basis: Basis
    gram: FloatArray
    right: FloatArray
    square: float
    readings: int
    noise_w: float | None
    range_w: float

    def precision(self, log: FloatArray, settling: float) -> tuple[FloatArray, FloatArray]:
        """Of the prior, and after the readings, at logarithms of noise, level and shape."""
        noise, level, shape = np.exp(log).tolist()
        prior = self.basis.precision(level, shape, settling)
        return prior, self.gram / noise**2 + prior

    def likeliest(self, start: FloatArray, settling: float) -> tuple[float, FloatArray]:
        """The least of :meth:`less` and where it is."""

        def less(log: FloatArray) -> float:
            return self.less(log, settling)

        found = minimize(less, start, method="Nelder-Mead", options={"xatol": 0.02, "fatol": 0.05, "maxiter": 400})
        return float(found.fun), np.asarray(found.x, dtype=float)

    def less(self, log: FloatArray, settling: float) -> float:
        """Twice the negative logarithm of the evidence, but for a constant."""
        if np.any(np.abs(log) > 15.0):
            return _NEVER
        prior, precision = self.precision(log, settling)
        try:
            factor = cho_factor(precision, lower=True)
        except np.linalg.LinAlgError:
            return _NEVER
        noise = float(np.exp(log[0]))
        fit = (self.square - float(self.right @ cho_solve(factor, self.right)) / noise**2) / noise**2
        widths = 2.0 * float(np.sum(np.log(np.diag(factor[0])))) - float(np.linalg.slogdet(prior)[1])
        # A weak belief that the channel is as noisy as is said of it keeps few readings from being taken as exact.
        believed = 0.0 if self.noise_w is None else (float(log[0] - np.log(max(self.noise_w, 1e-3))) / _NOISE_DOUBT) ** 2
        believed += (float(log[2] - np.log(_SHAPE_SHARE * self.range_w)) / _SHAPE_DOUBT) ** 2
        believed += (float(log[1] - np.log(_LEVEL_SHARE * self.range_w)) / _LEVEL_DOUBT) ** 2
        return self.readings * 2.0 * float(log[0]) + fit + widths + believed


def _posterior(design: FloatArray, seen: FloatArray, basis: Basis, own: int, noise_w: float | None) -> Surface:
    """The most likely hyperparameters, and what follows from them."""
    spread = max(float(np.ptp(seen)), 1.0)
    gram, right = design.T @ design, design.T @ seen
    evidence = _Evidence(basis, gram, right, float(seen @ seen), len(seen), noise_w, spread)
    start = np.log([noise_w or 0.1 * spread, _LEVEL_SHARE * spread, _SHAPE_SHARE * spread])
    best: tuple[float, FloatArray, float] | None = None
    for settling in _SETTLINGS:
        unlikeliness, start = evidence.likeliest(start, settling)
        if best is None or unlikeliness < best[0]:
            best = (unlikeliness, start, settling)
    assert best is not None
    noise = float(np.exp(best[1][0]))
    covariance: FloatArray = np.asarray(np.linalg.inv(evidence.precision(best[1], best[2])[1]), dtype=float)
    return Surface(noise, len(seen), best[0], basis, covariance @ right / noise**2, covariance, own)
