"""The linear model of readings: how much of each unknown the window of each reading covers.

Power is piecewise constant over cells, equal parts of each execution. What a window covers is the difference of two values
of a running integral. That is summed over executions once for all runs; the part of an execution that a window cuts off
follows in closed form.

    cells      │▁│▄│▆│▆│▇│▇│▇│▇│▇│▇│▇│▇│▃▁          3 executions of 4 cells, and the tail
    window           ├──────────┤                    integral to its end minus integral to its begin
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray
from wastenot.devices.instrument import Channel
from wastenot.profiles.basis import CELLS, TAIL_CELLS, TAIL_S, Basis, points_in, tail_rows
from wastenot.profiles.runs import TimedRun

_SHORTEST_WINDOW_S = 1e-6
_LONGEST_LAGS = 300.0  # time constants that a running integral may span: exp(±700) is the range of a float
_TAIL_BOUNDS_S = np.interp(np.arange(TAIL_CELLS * (len(TAIL_S) - 1) + 1) / TAIL_CELLS, np.arange(len(TAIL_S)), TAIL_S)


DesignRows = tuple[FloatArray, FloatArray]
"""Rows of the linear model, and the values of the readings; shapes (readings, columns) and (readings,)."""


def window_end_s(run: TimedRun, channel: Channel) -> FloatArray:
    """Ends of the windows that readings are of."""
    moment = run.readings[channel.name].moment_s
    drifted_s = channel.delay_drift * (run.zero_s + moment - channel.delay_at_s)
    return np.asarray(moment - channel.delay_s - drifted_s - run.late_s)


def window_middle_s(run: TimedRun, channel: Channel) -> FloatArray:
    """Middles of these windows."""
    return np.asarray(window_end_s(run, channel) - 0.5 * channel.span_s)


def informative(run: TimedRun, channel: Channel) -> BoolArray:
    """Which readings say something about a run, whatever their window and delay."""
    moment = run.readings[channel.name].moment_s
    return np.asarray((moment > -channel.period_s) & (moment < run.end_s[-1] + 3.0 * channel.period_s))


class Design:
    """Runs laid out for one basis, so that the rows of their readings are fast to compute for many sensor responses.

    Args:
        runs: of one burst, by one clock.
        basis: of the unknowns.
        own: the profiled kernel.
        group: executions in a unit of it.
    """

    def __init__(self, runs: Sequence[TimedRun], basis: Basis, own: int, group: int) -> None:
        self.runs, self.basis = runs, basis
        alike: dict[bytes, list[int]] = {}
        for index, run in enumerate(runs):
            alike.setdefault(np.asarray(run.kernel, dtype=np.intp).tobytes(), []).append(index)
        self._layouts = [
            (members, _Layout([runs[index] for index in members], basis, own, group)) for members in alike.values()
        ]

    def readings(self, channel: Channel) -> list[DesignRows]:
        """Rows and values of the informative readings of each run, with the channel's window, lag and delay."""
        used = [informative(run, channel) for run in self.runs]
        ends = [window_end_s(run, channel)[chosen] for run, chosen in zip(self.runs, used, strict=True)]
        values = [run.readings[channel.name].power_w[chosen] for run, chosen in zip(self.runs, used, strict=True)]
        return list(zip(self.rows(channel, ends), values, strict=True))

    def rows(self, channel: Channel, end_s: Sequence[FloatArray]) -> list[FloatArray]:
        """Rows of windows of each run that end at some moments."""
        rows: list[FloatArray] = [np.empty(0)] * len(self.runs)
        for members, layout in self._layouts:
            number = np.array([len(end_s[index]) for index in members])
            run = np.repeat(np.arange(len(members)), number)
            its = layout.rows(channel, run, np.concatenate([end_s[index] for index in members]))
            for index, its_rows in zip(members, np.split(its, np.cumsum(number)[:-1]), strict=True):
                rows[index] = its_rows
        return rows


class _Layout:
    """Runs with the same executions in the same order."""

    def __init__(self, runs: Sequence[TimedRun], basis: Basis, own: int, group: int) -> None:
        self._basis = basis
        self._bounds_s = np.stack([np.append(run.begin_s, run.end_s[-1]) for run in runs])  # (runs, executions + 1)
        self._executions = [np.flatnonzero(runs[0].kernel == kernel) for kernel in range(len(basis.knots))]
        self._each = [group if kernel == own else 1 for kernel in range(len(basis.knots))]
        self._integrals: dict[tuple[float, float], list[_Integral]] = {}  # of the last lag and piece

    def rows(self, channel: Channel, run: IndexArray, end_s: FloatArray) -> FloatArray:
        """Rows of readings, from the run of each and the end of its window; both of shape (readings,)."""
        rows = np.zeros((len(end_s), self._basis.columns))
        rows[:, 0] = 1.0  # idle is below everything, before the run and after it too
        reach_s = max(channel.reach_s, _SHORTEST_WINDOW_S)
        last_s = self._bounds_s[run, -1] + TAIL_S[-1]
        covers = (end_s > 0.0) & (end_s - reach_s < last_s)
        # The exponentials of a long run do not fit into a float, so it is integrated piece by piece.
        piece_s = _LONGEST_LAGS * channel.lag_s if channel.lag_s else np.inf
        piece = np.where(covers, np.minimum(end_s, last_s) // piece_s, -1.0)
        for number in np.unique(piece[covers]).tolist():
            chosen = np.flatnonzero(piece == number)
            origin_s = number * piece_s if number else 0.0
            rows[chosen] += self._covered(channel.lag_s, reach_s, run[chosen], end_s[chosen], origin_s)
        return rows

    def _covered(self, lag_s: float, reach_s: float, run: IndexArray, end_s: FloatArray, origin_s: float) -> FloatArray:
        """What windows cover of all columns but idle, if they end in the piece of their runs that begins at ``origin_s``."""
        if (lag_s, origin_s) not in self._integrals:
            from_s, until_s = max(origin_s - reach_s, 0.0), origin_s + _LONGEST_LAGS * lag_s if lag_s else math.inf
            self._integrals = {
                (lag_s, origin_s): [
                    self._integral(kernel, lag_s, origin_s, from_s, until_s) for kernel in range(len(self._executions))
                ]
            }
        begin_s = end_s - reach_s
        tail_s = np.clip(self._bounds_s[run, -1:] + _TAIL_BOUNDS_S, begin_s[:, None], end_s[:, None])
        weight = np.exp((tail_s - end_s[:, None]) / lag_s) if lag_s else tail_s / reach_s
        rows: FloatArray = np.diff(weight, axis=1) @ tail_rows(self._basis.columns)
        rows[:, 0] = 0.0
        scale = np.exp((origin_s - end_s) / lag_s) if lag_s else np.full(len(end_s), 1.0 / reach_s)
        for kernel, integral in enumerate(self._integrals[lag_s, origin_s]):
            columns = integral.between(run, begin_s - origin_s, end_s - origin_s)
            first = self._basis.first[kernel]
            rows[:, first : first + columns.shape[1]] = columns * scale[:, None]
        return rows

    def _integral(self, kernel: int, lag_s: float, origin_s: float, from_s: float, until_s: float) -> _Integral:
        basis, each = self._basis, self._each[kernel]
        executions = self._executions[kernel]
        begin_s, end_s = self._bounds_s[:, executions], self._bounds_s[:, executions + 1]
        cells = CELLS * (1 if basis.coarse else points_in(each))
        # Knots are moved to the nearest bounds of cells, as power is constant within a cell.
        knot = np.ceil(basis.knots[kernel] * each * cells - 0.5).astype(np.intp)
        number, cell = np.minimum(knot // cells, len(executions) - 1), knot % cells
        cell[knot >= cells * len(executions)] = cells
        knot_s = begin_s[:, number] + cell / cells * (end_s - begin_s)[:, number]
        first = max(int(np.searchsorted(begin_s.max(axis=0), from_s, side="right")) - 1, 0)
        last = max(int(np.searchsorted(begin_s.min(axis=0), until_s)), first + 1)
        return _Integral(
            begin_s[:, first:last] - origin_s, end_s[:, first:last] - origin_s, knot_s - origin_s,
            np.arange(first, min(last, len(executions))), basis.knots[kernel], basis.shapes[kernel], each, cells, lag_s,
        )  # fmt: skip


class _Integral:
    """Running integrals of one kernel's columns over runs, weighted by exp(time / lag) where there is a lag."""

    def __init__(
        self, begin_s: FloatArray, end_s: FloatArray, knot_s: FloatArray, number: IndexArray, knots: FloatArray, shapes: int,
        each: int, cells: int, lag_s: float,
    ) -> None:  # fmt: skip
        # Executions (runs, executions) and knots (runs, knots) are counted from the moment at which the weight is 1.
        self._begin_s, self._knot_s, self._knots, self._shapes = begin_s, knot_s, knots, shapes
        self._number, self._each, self._cells, self._lag_s = number, each, cells, lag_s
        self._width_s = end_s - begin_s
        if lag_s:
            self._base = np.exp(begin_s / lag_s)
            last = np.exp(end_s / lag_s)
            self._growth = np.expm1(self._width_s / (cells * lag_s))  # of the weight, from cell to cell
            weight = last - self._base
            inside = last * (1.0 - 0.5 / cells) + (0.5 * self._base - weight / self._growth) / cells
        else:
            weight, inside = self._width_s, 0.5 * self._width_s
        self._weight = _running(weight)
        self._moment = _running(weight * number + inside)
        # Runs one after another on one axis, so that one search finds moments of all.
        self._stride_s = 2.0 * (float(end_s.max()) - float(begin_s.min()))
        self._keys = (begin_s + self._stride_s * np.arange(len(begin_s))[:, None]).ravel()

    def between(self, run: IndexArray, begin_s: FloatArray, end_s: FloatArray) -> FloatArray:
        """Integrals of all columns over windows of runs, those of levels before those of shapes."""
        knots = self._knots
        bounds_s = np.clip(self._knot_s[run], begin_s[:, None], end_s[:, None])
        weight, moment = self._until(run[:, None], np.column_stack([bounds_s, end_s]))
        weight, moment = np.diff(weight, axis=1), np.diff(moment, axis=1) / self._each
        columns = np.zeros((len(run), len(knots) + self._shapes))
        right = (moment[:, :-1] - knots[:-1] * weight[:, :-1]) / np.diff(knots)
        columns[:, : len(knots)] = weight
        columns[:, : len(knots) - 1] -= right
        columns[:, 1 : len(knots)] += right
        if self._shapes:
            columns[:, len(knots) :] = self._shapes_until(run, end_s) - self._shapes_until(run, begin_s)
        return columns

    def _locate(self, run: IndexArray, moment_s: FloatArray) -> tuple[IndexArray, IndexArray, FloatArray]:
        """The execution of some moments, the cell in it, and the fraction of the cell."""
        executions = len(self._number)
        first_s, last_s = self._begin_s[run, 0], self._begin_s[run, -1] + self._width_s[run, -1]
        moment_s = np.clip(moment_s, first_s, last_s)
        index = np.searchsorted(self._keys, moment_s + self._stride_s * run, side="right") - 1 - executions * run
        index = np.clip(index, 0, executions - 1)
        fraction = np.clip((moment_s - self._begin_s[run, index]) / self._width_s[run, index], 0.0, 1.0) * self._cells
        cell = np.minimum(fraction.astype(np.intp), self._cells - 1)
        return index, cell, fraction - cell

    def _until(self, run: IndexArray, moment_s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Integrals up to some moments: of the weight, and of the weight times the number of executions done."""
        index, cell, fraction = self._locate(run, moment_s)
        width_s = self._width_s[run, index] / self._cells
        if self._lag_s:
            base, growth = self._base[run, index], self._growth[run, index]
            until_cell = np.exp(cell * width_s / self._lag_s)
            in_cell = base * until_cell * np.expm1(fraction * width_s / self._lag_s)
            weight = base * (until_cell - 1.0) + in_cell
            inside = base * ((cell - 0.5) * until_cell + 0.5 - (until_cell - 1.0) / growth) + in_cell * (cell + 0.5)
        else:
            weight = width_s * (cell + fraction)
            inside = width_s * (0.5 * cell**2 + fraction * (cell + 0.5))
        moment = self._moment[run, index] + weight * self._number[index] + inside / self._cells
        return self._weight[run, index] + weight, moment

    def _shapes_until(self, run: IndexArray, moment_s: FloatArray) -> FloatArray:
        """Integrals of the cosines up to some moments; shape (moments, shapes)."""
        index, cell, fraction = self._locate(run, moment_s)
        angle = np.pi * np.arange(1, self._shapes + 1) / self._cells  # of a cell
        width_s = self._width_s[run, index] / self._cells
        here = np.cos(angle * (cell[:, None] + 0.5))
        if not self._lag_s:
            done = np.sin(angle * cell[:, None]) / (2.0 * np.sin(0.5 * angle))  # sum of the cosines of whole cells
            return np.asarray(width_s[:, None] * (done + fraction[:, None] * here))
        growth, until_cell = self._growth[run, index][:, None], np.exp(cell * width_s / self._lag_s)[:, None]
        turn = np.exp(0.5j * angle)
        done = (growth * (until_cell * np.exp(1j * angle * cell[:, None]) - 1.0) / ((growth + 1.0) * turn - 1.0 / turn)).real
        in_cell = until_cell * np.expm1(fraction * width_s / self._lag_s)[:, None]
        sums: FloatArray = self._base[run, index][:, None] * (done + in_cell * here)
        last = self._base + np.diff(self._weight)
        for shape, cosine in enumerate(np.cos(0.5 * angle)):
            ends = last if shape % 2 else -last  # cos(π j) at the end of an execution
            whole = cosine * self._growth**2 * (ends - self._base)
            whole /= (cosine * self._growth) ** 2 + (1.0 - cosine**2) * (self._growth + 2.0) ** 2
            sums[:, shape] += _running(whole)[run, index]
        return sums


def _running(values: FloatArray) -> FloatArray:
    """Sums of the values before each, and of all, along the last axis."""
    sums = np.zeros((*values.shape[:-1], values.shape[-1] + 1))
    np.cumsum(values, axis=-1, out=sums[..., 1:])
    return sums
