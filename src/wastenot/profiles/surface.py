"""Power over executions and over the time inside them, from readings that are each a mean over a window.

Every reading is a sum over unknowns: idle power, a level that moves from execution to execution, a shape that all executions
have in common, the fall after the last one.

    power(unit e, fraction u) = idle + level(e + u) + Σ_j shape_j · cos(π j v),  v: fraction of the execution that is done

    window      ├──────────────────────┤                  a reading: the mean of what it covers
    run      ___│▁▄▆│▇▇▆│▇▇▆│▇▇▆│▇▇▆│▃▁___               (stitching, where the window is far shorter than an execution;
                                                           deconvolution, where it is longer)

That is linear, so that with normal priors (levels change less and less, with the logarithm of the execution's number;
shapes are smooth) the posterior of the power follows in closed form. How much levels and shapes vary, and how noisy readings
are, maximises the evidence (MacKay, Neural Computation 4, 1992). What the model leaves unexplained widens the error band.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtrs
from scipy.optimize import minimize

from wastenot.core.arrays import FloatArray
from wastenot.core.blas import single_threaded
from wastenot.devices.instrument import Channel
from wastenot.profiles.basis import Basis, points_in
from wastenot.profiles.design import Design, DesignRows
from wastenot.profiles.residuals import NO_MISFIT, Misfit, misfit_of, without_run_factors
from wastenot.profiles.runs import TimedRun

_NEVER = 1e12
_MAX_OFF = 6.0  # from their priors, that the logarithms of noise and variation may be
_ROWS_AT_ONCE = 10_000  # of which means are taken, to limit memory
_MAX_UNITS = 100  # that a mean over many units is taken from
_SETTLINGS = (1.0, 1.7, 2.5)  # how fast power settles over executions, of which the likeliest is taken
_WIDTH_ERROR = 0.02  # of a fitted lag or window, as a fraction
_ROOM, _LEAST_FILLED = 1.5, 0.02  # times the highest reading that power may be; fraction of a reading
_NOISE_ERROR = 1.5  # of the logarithm of the noise, as stated of a channel
_LEVEL_FRACTION, _LEVEL_ERROR = 0.5, 0.7  # prior of changes of the level: about half the range of readings
_COARSE_FRACTION = 0.1  # the same where power rises and falls at once: a tenth
_SHAPE_FRACTION, _SHAPE_ERROR = 0.1, 0.7  # prior of shapes: about a tenth of the range, give or take half


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """Expected power and its standard error; arrays of the same shape."""

    power_w: FloatArray
    error_w: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Surface:
    """The power of one channel in a burst: a normal posterior.

    Attributes:
        noises_w: standard deviation of a reading about the power, for each kind of runs.
        readings: number that it rests on.
        misfit: what the power leaves unexplained.
        negative_log_evidence: doubled, to compare fits to the same readings.
    """

    noises_w: tuple[float, ...]
    readings: int
    negative_log_evidence: float
    basis: Basis
    misfit: Misfit
    _mean: FloatArray
    _covariance: FloatArray
    _own: int
    _settling: float
    _logs: FloatArray  # of the most likely hyperparameters
    _highest_w: float = math.inf  # that readings leave room for

    @property
    def points(self) -> int:
        """Intervals of a unit at which its power is given."""
        group = self.basis.group[self._own]
        return group * points_in(group)

    def inside(self, first: int, until: int) -> Band:
        """Power inside units of the profiled kernel, averaged over them, at the middles of equal intervals."""
        rows = np.mean([self.basis.rows(self._own, positions) for positions in self._positions(first, until)], axis=0)
        return self._band(rows, np.hypot(self.misfit.common_w, self.misfit.inside(first, until)))

    def unit_means(self, first: int, last: int) -> Band:
        """Mean power of each of the units from ``first`` to before ``last``; shape (units,)."""
        positions = np.arange(first, last)[:, None] + (np.arange(self.points) + 0.5) / self.points
        parts = np.array_split(positions, max(positions.size // _ROWS_AT_ONCE, 1))
        rows = [self.basis.rows(self._own, part.ravel()).reshape(*part.shape, -1).mean(axis=1) for part in parts]
        return self._band(np.concatenate(rows), self.misfit.common_w)

    def mean(self, first: int, last: int) -> tuple[float, float]:
        """Mean power over the units from ``first`` to before ``last``, and its standard error, in watts."""
        band = self._band(self._mean_row(first, last)[None, :], self.misfit.common_w)
        return float(band.power_w[0]), float(band.error_w[0])

    def change(self, first: tuple[int, int], second: tuple[int, int]) -> tuple[float, float]:
        """Mean power of units ``second`` (first, until) minus that of units ``first``, and its standard error, in watts."""
        band = self._band((self._mean_row(*second) - self._mean_row(*first))[None, :])
        return float(band.power_w[0]), float(band.error_w[0])

    def expected(self, rows: FloatArray) -> FloatArray:
        """Expected readings, from rows of the design."""
        return np.asarray(rows @ self._mean)

    @property
    def idle_w(self) -> float:
        """Power at rest."""
        return float(self._mean[0])

    @property
    def noise_w(self) -> float:
        """The noise in runs of the first kind."""
        return self.noises_w[0]

    @property
    def shaped(self) -> bool:
        """Whether power varies inside executions."""
        return self.basis.shapes[self._own] > 0

    @property
    def units(self) -> int:
        """Units in the longest run."""
        return int(self.basis.knots[self._own][-1])

    def _mean_row(self, first: int, last: int) -> FloatArray:
        return np.asarray(self.basis.rows(self._own, self._positions(first, last).ravel()).mean(axis=0))

    def _positions(self, first: int, until: int) -> FloatArray:
        """Middles of equal intervals of units, of some of the units if there are many; shape (units, intervals)."""
        units = np.unique(np.linspace(first, until - 1, min(until - first, _MAX_UNITS)).astype(np.intp))
        return np.asarray(units[:, None] + (np.arange(self.points) + 0.5) / self.points)

    def _band(self, rows: FloatArray, misfit_w: float = 0.0) -> Band:
        variance = np.sum((rows @ self._covariance) * rows, axis=1)
        power_w = np.asarray(rows @ self._mean)
        # No GPU draws less than at rest, or far more than readings show: such a power is off by as much as it is beyond.
        beyond_w = np.maximum(np.maximum(self.idle_w - power_w, power_w - self._highest_w), 0.0)
        return Band(power_w, np.sqrt(np.maximum(variance, 0.0) + misfit_w**2 + beyond_w**2))


@single_threaded()
def fit_surface(
    runs: Sequence[TimedRun],
    channel: Channel,
    *,
    kernels: int,
    own: int,
    group: int = 1,
    kinds: Sequence[int] = (),
    shaped: bool = True,
) -> Surface:
    """Fit the power of a burst to the readings of its runs.

    Args:
        runs: of one burst, on one clock.
        channel: whose readings, with their window, delay and gain.
        kernels: number of kernels in the burst.
        own: index of the profiled one.
        group: executions in a unit of the profiled one.
        kinds: a number for each run; the readings of each kind scatter by their own amount. One kind by default.
        shaped: whether power varies inside executions, or only from unit to unit.
    """
    design = design_of(runs, kernels=kernels, own=own, group=group, shaped=shaped)

    def readings_at(at: Channel) -> list[DesignRows]:
        return [(rows, power_w / at.gain) for rows, power_w in design.readings(at)]

    def by_kind(readings: Sequence[DesignRows]) -> list[list[DesignRows]]:
        return [
            [one for one, its in zip(readings, kinds or [0] * len(runs), strict=True) if its == kind]
            for kind in sorted(set(kinds or [0]))
        ]

    def independent(kinds: list[list[DesignRows]]) -> list[list[DesignRows]]:
        return [without_run_factors(kind, [first.expected(one[0]) for one in kind], first.idle_w) for kind in kinds]

    readings = readings_at(channel)
    as_read = by_kind(readings)
    first = posterior(as_read, design.basis, own, channel.noise_w)
    fitted = posterior(independent(as_read), design.basis, own, channel.noise_w, _range_w(as_read))
    fitted = replace(fitted, _highest_w=_highest_w(as_read, fitted))
    if channel.delay_error_s:
        wider = (1.0 + sign * _WIDTH_ERROR for sign in (-1.0, 1.0))
        later_s = (channel.delay_s + sign * channel.delay_error_s for sign in (-1.0, 1.0))
        for either in (
            [replace(channel, delay_s=delay_s) for delay_s in later_s],
            [replace(channel, lag_s=factor * channel.lag_s, window_s=factor * channel.window_s) for factor in wider],
        ):
            fitted = _with_error_between(fitted, *(independent(by_kind(readings_at(at))) for at in either))
    residuals = [power_w - fitted.expected(rows) for rows, power_w in readings]
    return replace(fitted, misfit=misfit_of(runs, residuals, channel, own, group))


def _with_error_between(
    fitted: Surface, one: Sequence[Sequence[DesignRows]], other: Sequence[Sequence[DesignRows]]
) -> Surface:
    """The power with the error of its sensor's response, from the same readings at both ends of that."""

    def mean(kinds: Sequence[Sequence[DesignRows]]) -> FloatArray:
        evidence = _Evidence(fitted.basis, [_Sums.of(kind) for kind in kinds], None, 1.0, fitted._settling)
        _, after, right = evidence.normal(fitted._logs)
        return np.asarray(np.linalg.solve(after, right), dtype=float)

    half = 0.5 * (mean(other) - mean(one))
    return replace(fitted, _covariance=fitted._covariance + np.outer(half, half))


def _highest_w(kinds: Sequence[Sequence[DesignRows]], fitted: Surface) -> float:
    """Power far above every reading, given how much of one an execution fills at most."""
    rows, power_w = (np.concatenate([reading[part] for kind in kinds for reading in kind]) for part in (0, 1))
    basis = fitted.basis
    levels = np.concatenate([first + np.arange(len(knots)) for first, knots in zip(basis.first, basis.knots, strict=True)])
    filled = float(rows[:, levels].sum(axis=1).max(initial=0.0))
    return fitted.idle_w + _ROOM * (float(power_w.max(initial=0.0)) - fitted.idle_w) / max(filled, _LEAST_FILLED)


def design_of(
    runs: Sequence[TimedRun], *, kernels: int, own: int, group: int, shaped: bool = True, coarse: bool = False
) -> Design:
    """The design of some runs; arguments as for :func:`fit_surface`.

    Where it is ``coarse``, power rises and falls at once and changes only slowly in between, which fits of a delay need.
    """
    groups = [group if kernel == own else 1 for kernel in range(kernels)]
    executions = [max(int(np.count_nonzero(run.kernel == kernel)) for run in runs) for kernel in range(kernels)]
    units = [max(number // each, 1) for number, each in zip(executions, groups, strict=True)]
    return Design(runs, Basis.of(units, groups, shaped=shaped, coarse=coarse), own, group)


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """Normal equations of the readings of one kind of runs."""

    gram: FloatArray
    right: FloatArray
    square: float
    readings: int

    @classmethod
    def of(cls, runs: Sequence[DesignRows]) -> _Sums:
        rows, values = np.concatenate([one[0] for one in runs]), np.concatenate([one[1] for one in runs])
        return cls(rows.T @ rows, rows.T @ values, float(values @ values), len(values))


class _Evidence:
    """The evidence of readings, as a function of their noise and of how much levels and shapes vary.

    Hyperparameters are logarithms: of the noise of each kind of runs, then of how much levels and shapes vary.
    """

    def __init__(
        self, basis: Basis, sums: Sequence[_Sums], noise_w: float | None, range_w: float, settling: float
    ) -> None:  # fmt: skip
        self._prior, self._noise_w = basis.prior(settling), noise_w
        self._shaped = any(basis.shapes)
        self._grams = np.stack([one.gram.ravel() for one in sums])
        self._rights = np.stack([one.right for one in sums])
        self._squares = np.array([one.square for one in sums])
        self._readings = np.array([float(one.readings) for one in sums])
        level_fraction = _COARSE_FRACTION if basis.coarse else _LEVEL_FRACTION
        noise = noise_w or 0.1 * range_w
        self.start: FloatArray = np.log([*[noise] * len(sums), level_fraction * range_w, _SHAPE_FRACTION * range_w])

    def least(self, start: FloatArray) -> tuple[float, FloatArray]:
        """The least negative log-evidence, doubled, and its hyperparameters.

        Without shapes their variation is the prior's, which is likeliest; searching for it would take twice as long.
        """
        free = len(start) if self._shaped else len(start) - 1

        def whole(logs: FloatArray) -> FloatArray:
            return np.concatenate((logs, self.start[free:]))

        def of_free(logs: FloatArray) -> float:
            return self.negative_log(whole(logs))

        optimum = minimize(
            of_free, start[:free], method="Nelder-Mead", options={"xatol": 0.02, "fatol": 0.05, "maxiter": 600}
        )
        return float(optimum.fun), whole(np.asarray(optimum.x, dtype=float))

    def normal(self, logs: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Precision of the prior, precision after the readings, and the right-hand side."""
        prior = self._prior.precision(math.exp(logs[-2]), math.exp(logs[-1]))
        weights = np.exp(-2.0 * logs[:-2])
        return prior, prior + (weights @ self._grams).reshape(prior.shape), weights @ self._rights

    def negative_log(self, logs: FloatArray) -> float:
        """The negative log-evidence, doubled, up to a constant."""
        off: list[float] = (logs - self.start).tolist()
        if max(off) > _MAX_OFF or min(off) < -_MAX_OFF:
            return _NEVER
        prior, after, right = self.normal(logs)
        factor, failed = dpotrf(after, lower=True, clean=False)
        if failed:
            return _NEVER
        factor_of_prior, _ = dpotrf(prior, lower=True, clean=False)
        white, _ = dtrtrs(factor, right, lower=True)
        noise, level, shape = logs[:-2], off[-2], off[-1]
        result = 2.0 * float(np.add.reduce(np.log(factor.diagonal())) - np.add.reduce(np.log(factor_of_prior.diagonal())))
        result -= float(white @ white)
        result += float(2.0 * self._readings @ noise + self._squares @ np.exp(-2.0 * noise))
        if self._noise_w is not None:
            # A weak prior on the stated noise keeps a few readings from being taken as exact.
            result += float(np.add.reduce((noise - math.log(max(self._noise_w, 1e-3))) ** 2)) / _NOISE_ERROR**2
        return result + (shape / _SHAPE_ERROR) ** 2 + (level / _LEVEL_ERROR) ** 2


def _range_w(kinds: Sequence[Sequence[DesignRows]]) -> float:
    return max(float(np.ptp(np.concatenate([power_w for kind in kinds for _, power_w in kind]))), 1.0)


def posterior(
    kinds: Sequence[Sequence[DesignRows]], basis: Basis, own: int, noise_w: float | None, range_w: float | None = None
) -> Surface:
    """The posterior of the power at the most likely hyperparameters.

    Args:
        kinds: rows and values of the readings of each run, for each kind of runs.
        basis: of the unknowns.
        own: the profiled kernel.
        noise_w: stated of the channel; ``None`` if nothing is.
        range_w: of the readings, if not that of the values.
    """
    sums = [_Sums.of(kind) for kind in kinds]
    range_w = range_w or _range_w(kinds)
    start: FloatArray | None = None
    fits: list[tuple[float, FloatArray, _Evidence, float]] = []
    for settling in _SETTLINGS[:1] if basis.coarse else _SETTLINGS:
        evidence = _Evidence(basis, sums, noise_w, range_w, settling)
        fits.append((*evidence.least(evidence.start if start is None else start), evidence, settling))
        start = fits[-1][1]
    least, logs, evidence, settling = min(fits, key=lambda fit: fit[0])
    _, after, right = evidence.normal(logs)
    covariance: FloatArray = np.asarray(np.linalg.inv(after), dtype=float)
    readings = sum(one.readings for one in sums)
    return Surface(
        tuple(np.exp(logs[:-2]).tolist()), readings, least, basis, NO_MISFIT, covariance @ right, covariance, own,
        settling, logs,
    )  # fmt: skip
