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
from wastenot.frontier.points import FloatArray, IndexArray
from wastenot.measurement.fingrav.collect import TimedRun

CELLS = 24
"""Stretches that a unit is cut into."""

_LEAST_CELLS = 4  # of an execution

_SHAPES = 10
_SMOOTHNESS = 3.0  # exponent with which the prior variance of shape_j falls
# Of the level: fine where power rises from idle and the shape is not yet what it will be, then ever coarser.
_FIRST_KNOTS = (*np.arange(0.0, 1.0, 0.1), *np.arange(1.0, 4.0, 0.25), *np.arange(4.0, 8.5, 0.5))
_GROWTH = 1.08
# Moments after the last execution between which its fall is told; idle from the last of them on.
_TAIL_S = np.array([0.0, 1e-5, 3e-5, 6e-5, 1e-4, 2e-4, 4e-4, 8e-4, 1.5e-3, 3e-3, 6e-3, 1.2e-2, 3e-2])
_TAIL_CELLS = 5  # between two of them
_SHAPE_SHARE, _SHAPE_DOUBT = 0.1, 0.7  # belief in shapes: about a tenth of the range of readings, give or take half
_BROAD_W = 1e3  # standard deviation of what nothing is known of
_SHORTEST_WINDOW_S = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class _Basis:
    """Columns of what is unknown: idle, the tail, then of each kernel its levels and shapes.

    Attributes:
        knots: of each kernel's level, in units; shape (knots,).
        group: executions in a unit of each kernel.
        first: column of each kernel's first level.
        columns: altogether.
    """

    knots: tuple[FloatArray, ...]
    group: tuple[int, ...]
    first: tuple[int, ...]
    columns: int

    @classmethod
    def of(cls, units: Sequence[int], group: Sequence[int]) -> _Basis:
        """For kernels with so many units each in a run, of so many executions each."""
        knots, first = [], []
        column = len(_TAIL_S)
        for number in units:
            places = [place for place in _FIRST_KNOTS if place <= number]
            while places[-1] < number:
                places.append(min(places[-1] * _GROWTH, float(number)))
            knots.append(np.array(places))
            first.append(column)
            column += len(places) + _SHAPES
        return cls(tuple(knots), tuple(group), tuple(first), column)

    def rows(self, kernel: int, unit: FloatArray) -> FloatArray:
        """Power inside units: values of all columns; ``unit`` is the unit's number and the share of it that is done."""
        knots, first = self.knots[kernel], self.first[kernel]
        rows = np.zeros((len(unit), self.columns))
        rows[:, 0] = 1.0
        at = np.clip(unit, knots[0], knots[-1])
        left = np.clip(np.searchsorted(knots, at, side="right") - 1, 0, len(knots) - 2)
        share = (at - knots[left]) / (knots[left + 1] - knots[left])
        here = np.arange(len(unit))
        rows[here, first + left] = 1.0 - share
        rows[here, first + left + 1] += share
        order = np.arange(1, _SHAPES + 1)
        execution = unit * self.group[kernel]
        inside = np.pi * np.outer(execution - np.floor(execution), order)
        rows[:, first + len(knots) : first + len(knots) + _SHAPES] = np.cos(inside)
        return rows

    def precision(self, level_w: float, shape_w: float) -> FloatArray:
        """Of the prior."""
        found = np.zeros((self.columns, self.columns))
        found[0, 0] = _BROAD_W**-2
        tail = np.arange(1, len(_TAIL_S))
        found[tail, tail] = _BROAD_W**-2
        for knots, first in zip(self.knots, self.first, strict=True):
            steps = np.diff(np.eye(len(knots)), axis=0)
            weights = 1.0 / (level_w**2 * np.diff(np.log1p(knots)))
            block = slice(first, first + len(knots))
            found[block, block] += steps.T @ (weights[:, None] * steps)
            found[first, first] += _BROAD_W**-2
            shapes = np.arange(first + len(knots), first + len(knots) + _SHAPES)
            found[shapes, shapes] = np.arange(1, _SHAPES + 1) ** _SMOOTHNESS / shape_w**2
        return found


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
    """

    noise_w: float
    readings: int
    _basis: _Basis
    _mean: FloatArray
    _covariance: FloatArray
    _own: int

    @property
    def points(self) -> int:
        """Stretches that a unit is told at: so many in each of its executions."""
        group = self._basis.group[self._own]
        return group * max(CELLS // group, _LEAST_CELLS)

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
    runs: Sequence[TimedRun], channel: Channel, *, kernels: int, own: int, group: int = 1, windows: bool = True
) -> Surface:
    """Fit the power of a burst to the readings of its runs.

    Args:
        runs: of one burst, by one clock.
        channel: whose readings; its window, delay and gain are taken as told.
        kernels: in the burst.
        own: the profiled one.
        group: executions in a unit of the profiled one.
        windows: whether readings are taken as means over their windows; if not, as power at the moment they came.
    """
    groups = [group if kernel == own else 1 for kernel in range(kernels)]
    executions = [max(int(np.count_nonzero(run.kernel == kernel)) for run in runs) for kernel in range(kernels)]
    basis = _Basis.of([max(number // each, 1) for number, each in zip(executions, groups, strict=True)], groups)
    rows, power = [], []
    for run in runs:
        found = _readings_of(run, channel, basis, own, group, windows)
        rows.append(found[0])
        power.append(found[1])
    design, seen = np.concatenate(rows), np.concatenate(power) / channel.gain
    return _posterior(design, seen, basis, own, channel.noise_w)


def _readings_of(
    run: TimedRun, channel: Channel, basis: _Basis, own: int, group: int, windows: bool
) -> tuple[FloatArray, FloatArray]:
    """Rows and values of the readings of one run that say something of it."""
    readings = run.readings[channel.name]
    window = max(channel.window_s, _SHORTEST_WINDOW_S) if windows else _SHORTEST_WINDOW_S
    end = readings.moment_s - (channel.delay_s if windows else 0.0)
    begin = end - window
    told = (end > -2.0 * (channel.period_s + window)) & (begin < run.end_s[-1] + window)
    line = _timeline(run, own, group)
    # Only stretches that a window covers are looked at: of a long run most are not.
    first = np.searchsorted(line.bounds_s, begin[told], side="right") - 1
    last = np.searchsorted(line.bounds_s, end[told], side="right") - 1
    covered = np.zeros(len(line.bounds_s) + 1)
    np.add.at(covered, np.clip(first, 0, None), 1.0)
    np.add.at(covered, np.clip(last, 0, None) + 1, -1.0)
    looked = np.flatnonzero(np.cumsum(covered)[: len(line.unit)] > 0)
    values = line.rows(looked, basis)
    place = np.zeros(len(line.unit), dtype=np.intp)
    place[looked] = np.arange(len(looked))
    length = np.diff(line.bounds_s)
    sums = np.vstack([np.zeros(basis.columns), np.cumsum(values * length[looked][:, None], axis=0)])

    def until(moment_s: FloatArray) -> FloatArray:
        cell = np.clip(np.searchsorted(line.bounds_s, moment_s, side="right") - 1, 0, len(length) - 1)
        inside = np.clip(moment_s, line.bounds_s[0], line.bounds_s[-1]) - line.bounds_s[cell]
        found = sums[place[cell]] + inside[:, None] * values[place[cell]]
        found[:, 0] += np.minimum(moment_s - line.bounds_s[0], 0.0) + np.maximum(moment_s - line.bounds_s[-1], 0.0)
        return np.asarray(found)

    if not len(looked):
        idle = np.zeros((int(told.sum()), basis.columns))
        idle[:, 0] = 1.0
        return idle, readings.power_w[told]
    return (until(end[told]) - until(begin[told])) / window, readings.power_w[told]


@dataclass(frozen=True, slots=True, eq=False)
class _Timeline:
    """A run cut into stretches, its tail included.

    Attributes:
        bounds_s: of the stretches; shape (stretches + 1,).
        kernel: that runs in each, -1 after the last execution; shape (stretches,).
        unit: number of the unit and share of it at each one's middle; in the tail, the stretch's number.
    """

    bounds_s: FloatArray
    kernel: IndexArray
    unit: FloatArray

    def rows(self, stretches: IndexArray, basis: _Basis) -> FloatArray:
        """The columns' values in some stretches."""
        found = np.zeros((len(stretches), basis.columns))
        for kernel in np.unique(self.kernel[stretches]):
            ours = self.kernel[stretches] == kernel
            unit = self.unit[stretches[ours]]
            found[ours] = _tail(basis.columns)[unit.astype(np.intp)] if kernel < 0 else basis.rows(int(kernel), unit)
        return found


def _timeline(run: TimedRun, own: int, group: int) -> _Timeline:
    ends = np.append(run.begin_s[1:], run.end_s[-1])
    bounds, kernels, units = [], [], []
    for kernel in np.unique(run.kernel):
        each = group if kernel == own else 1
        cells = max(CELLS // each, _LEAST_CELLS)
        ours = np.flatnonzero(run.kernel == kernel)
        inside = (np.arange(cells) + 0.5) / cells
        bounds.append((run.begin_s[ours][:, None] + np.arange(cells) / cells * (ends - run.begin_s)[ours][:, None]).ravel())
        units.append(((np.arange(len(ours))[:, None] + inside) / each).ravel())
        kernels.append(np.full(len(ours) * cells, kernel))
    order = np.argsort(np.concatenate(bounds), kind="stable")
    stretches = _TAIL_CELLS * (len(_TAIL_S) - 1)
    tail_s = np.interp(np.arange(stretches + 1) / _TAIL_CELLS, np.arange(len(_TAIL_S)), _TAIL_S)
    return _Timeline(
        np.concatenate([np.concatenate(bounds)[order], run.end_s[-1] + tail_s]),
        np.concatenate([np.concatenate(kernels)[order], np.full(stretches, -1)]),
        np.concatenate([np.concatenate(units)[order], np.arange(float(stretches))]),
    )


def _tail(columns: int) -> FloatArray:
    """The columns' values in each stretch after the last execution: straight lines between moments."""
    number = len(_TAIL_S) - 1
    place = (np.arange(number * _TAIL_CELLS) + 0.5) / _TAIL_CELLS
    left, share = place.astype(np.intp), place - np.floor(place)
    values = np.zeros((len(place), columns))
    values[:, 0] = 1.0
    values[np.arange(len(place)), 1 + left] = 1.0 - share
    further = left + 1 < number  # the last moment is idle
    values[np.flatnonzero(further), 2 + left[further]] = share[further]
    return values


def _posterior(design: FloatArray, seen: FloatArray, basis: _Basis, own: int, noise_w: float | None) -> Surface:
    """The most likely hyperparameters, and what follows from them."""
    gram, right, square = design.T @ design, design.T @ seen, float(seen @ seen)
    spread = max(float(np.ptp(seen)), 1.0)
    shape_belief = float(np.log(_SHAPE_SHARE * spread))

    def parts(log: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        noise, level, shape = np.exp(log)
        prior = basis.precision(float(level), float(shape))
        return float(noise), prior, gram / noise**2 + prior

    def less_likely(log: FloatArray) -> float:
        if np.any(np.abs(log) > 15.0):
            return 1e12
        noise, prior, precision = parts(log)
        try:
            factor = cho_factor(precision, lower=True)
            before = np.linalg.slogdet(prior)[1]
        except np.linalg.LinAlgError:
            return 1e12
        mean = cho_solve(factor, right) / noise**2
        fit = square / noise**2 - float(right @ mean) / noise**2
        after = 2.0 * float(np.sum(np.log(np.diag(factor[0]))))
        # A weak belief that the channel is as noisy as is said of it keeps few readings from being taken as exact.
        believed = 0.0 if noise_w is None else (np.log(noise / max(noise_w, 1e-3)) / 1.5) ** 2
        believed += ((float(log[2]) - shape_belief) / _SHAPE_DOUBT) ** 2
        return len(seen) * 2.0 * float(log[0]) + fit + after - before + believed

    start = np.array([np.log(noise_w or 0.1 * spread), np.log(0.5 * spread), shape_belief])
    found = minimize(less_likely, start, method="Nelder-Mead", options={"xatol": 0.02, "fatol": 0.05, "maxiter": 400})
    noise, _, precision = parts(found.x)
    covariance = np.linalg.inv(precision)
    return Surface(noise, len(seen), basis, covariance @ right / noise**2, covariance, own)
