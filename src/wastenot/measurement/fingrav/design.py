"""Rows of readings: how much of each unknown the window of each reading covers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wastenot.devices.fine_grain import Channel
from wastenot.frontier.points import FloatArray, IndexArray
from wastenot.measurement.fingrav.basis import CELLS, LEAST_CELLS, TAIL_CELLS, TAIL_S, Basis, tail_rows
from wastenot.measurement.fingrav.collect import TimedRun

_SHORTEST_WINDOW_S = 1e-6
_SHORT_LINE = 4000  # stretches up to which all of them are looked at for every reading


def rows_of_readings(
    run: TimedRun, channel: Channel, basis: Basis, own: int, group: int, windows: bool
) -> tuple[FloatArray, FloatArray]:
    """Rows and values of the readings of one run that say something of it."""
    readings = run.readings[channel.name]
    told = told_of(run, channel)
    if not windows:
        instant = replace(channel, window_s=_SHORTEST_WINDOW_S, lag_s=0.0)
        return rows_until(run, instant, basis, own, group, readings.moment_s[told]), readings.power_w[told]
    return rows_until(run, channel, basis, own, group, seen_until(run, channel)[told]), readings.power_w[told]


def rows_until(run: TimedRun, channel: Channel, basis: Basis, own: int, group: int, end_s: FloatArray) -> FloatArray:
    """Rows of readings that would tell of power until some moments."""
    line = timeline_of(run, own, group)
    if channel.lag_s:
        return _rows_of_lags(line, channel, basis, end_s)
    window = max(channel.window_s, _SHORTEST_WINDOW_S)
    begin = end_s - window
    # Only stretches that a window covers are looked at: of a long run most are not.
    first = np.searchsorted(line.bounds_s, begin, side="right") - 1
    last = np.searchsorted(line.bounds_s, end_s, side="right") - 1
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
        idle = np.zeros((len(end_s), basis.columns))
        idle[:, 0] = 1.0
        return idle
    return (until(end_s) - until(begin)) / window


def seen_until(run: TimedRun, channel: Channel) -> FloatArray:
    """Moments up to which readings tell of power."""
    moment = run.readings[channel.name].moment_s
    drifted_s = channel.delay_drift * (run.zero_s + moment - channel.delay_at_s)
    return np.asarray(moment - channel.delay_s - drifted_s - run.late_s)


def middle_of(run: TimedRun, channel: Channel) -> FloatArray:
    """Middles of the time that readings stand for."""
    return np.asarray(seen_until(run, channel) - 0.5 * channel.span_s)


def told_of(run: TimedRun, channel: Channel) -> NDArray[np.bool_]:
    """Readings that say something of a run, whatever window and delay they are taken to have."""
    moment = run.readings[channel.name].moment_s
    return np.asarray((moment > -channel.period_s) & (moment < run.end_s[-1] + 3.0 * channel.period_s))


def _rows_of_lags(line: Timeline, channel: Channel, basis: Basis, end_s: FloatArray) -> FloatArray:
    """The same for readings that are first-order lags of power: the past counts by exp(-age / lag)."""
    if len(line.unit) <= _SHORT_LINE:
        bounds = np.minimum(line.bounds_s, end_s[:, None])
        rows = np.diff(np.exp((bounds - end_s[:, None]) / channel.lag_s), axis=1) @ line.rows(
            np.arange(len(line.unit)), basis
        )
    else:
        rows = np.zeros((len(end_s), basis.columns))
        for place, moment in enumerate(end_s.tolist()):
            first = max(int(np.searchsorted(line.bounds_s, moment - channel.reach_s, side="right")) - 1, 0)
            last = int(np.searchsorted(line.bounds_s, moment, side="left"))
            bounds = np.minimum(line.bounds_s[first : last + 1], moment)
            weights = np.diff(np.exp((bounds - moment) / channel.lag_s))
            if len(weights):
                rows[place] = weights @ line.rows(np.arange(first, first + len(weights)), basis)
    rows[:, 0] = 1.0  # idle is below everything, before the run and after it too
    return np.asarray(rows)


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """A run cut into stretches, its tail included.

    Attributes:
        bounds_s: of the stretches; shape (stretches + 1,).
        kernel: that runs in each, -1 after the last execution; shape (stretches,).
        unit: number of the unit and share of it at each one's middle; in the tail, the stretch's number.
    """

    bounds_s: FloatArray
    kernel: IndexArray
    unit: FloatArray

    def rows(self, stretches: IndexArray, basis: Basis) -> FloatArray:
        """The columns' values in some stretches."""
        found = np.zeros((len(stretches), basis.columns))
        for kernel in np.unique(self.kernel[stretches]):
            ours = self.kernel[stretches] == kernel
            unit = self.unit[stretches[ours]]
            found[ours] = tail_rows(basis.columns)[unit.astype(np.intp)] if kernel < 0 else basis.rows(int(kernel), unit)
        return found


def timeline_of(run: TimedRun, own: int, group: int) -> Timeline:
    """A run cut into stretches."""
    ends = np.append(run.begin_s[1:], run.end_s[-1])
    bounds, kernels, units = [], [], []
    for kernel in np.unique(run.kernel):
        each = group if kernel == own else 1
        cells = max(CELLS // each, LEAST_CELLS)
        ours = np.flatnonzero(run.kernel == kernel)
        inside = (np.arange(cells) + 0.5) / cells
        bounds.append((run.begin_s[ours][:, None] + np.arange(cells) / cells * (ends - run.begin_s)[ours][:, None]).ravel())
        units.append(((np.arange(len(ours))[:, None] + inside) / each).ravel())
        kernels.append(np.full(len(ours) * cells, kernel))
    order = np.argsort(np.concatenate(bounds), kind="stable")
    stretches = TAIL_CELLS * (len(TAIL_S) - 1)
    tail_s = np.interp(np.arange(stretches + 1) / TAIL_CELLS, np.arange(len(TAIL_S)), TAIL_S)
    return Timeline(
        np.concatenate([np.concatenate(bounds)[order], run.end_s[-1] + tail_s]),
        np.concatenate([np.concatenate(kernels)[order], np.full(stretches, -1)]),
        np.concatenate([np.concatenate(units)[order], np.arange(float(stretches))]),
    )
