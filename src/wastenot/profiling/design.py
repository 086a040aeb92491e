"""Rows of readings: how much of each unknown the window of each reading covers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from wastenot.arrays import FloatArray, IndexArray
from wastenot.devices.instrument import Channel
from wastenot.profiling.basis import CELLS, TAIL_CELLS, TAIL_S, Basis, points_in, tail_rows
from wastenot.profiling.collect import TimedRun

_SHORTEST_WINDOW_S = 1e-6


def rows_of_readings(
    run: TimedRun, channel: Channel, basis: Basis, own: int, group: int, windows: bool
) -> tuple[FloatArray, FloatArray]:
    """Rows and values of the readings of one run that say something of it."""
    readings, told = run.readings[channel.name], told_of(run, channel)
    if windows:
        return rows_until(run, channel, basis, own, group, seen_until(run, channel)[told]), readings.power_w[told]
    instant = replace(channel, window_s=_SHORTEST_WINDOW_S, lag_s=0.0)
    return rows_until(run, instant, basis, own, group, readings.moment_s[told]), readings.power_w[told]


def rows_until(run: TimedRun, channel: Channel, basis: Basis, own: int, group: int, end_s: FloatArray) -> FloatArray:
    """Rows of readings that would tell of power until some moments."""
    reach = max(channel.reach_s, _SHORTEST_WINDOW_S)
    line = timeline_of(run, own, group, coarse=basis.coarse)
    reading, stretch = _covered(line, end_s - reach, end_s)
    begins = np.maximum(line.bounds_s[stretch], (end_s - reach)[reading])
    ends = np.minimum(line.bounds_s[stretch + 1], end_s[reading])
    if channel.lag_s:
        weights = np.exp((ends - end_s[reading]) / channel.lag_s) - np.exp((begins - end_s[reading]) / channel.lag_s)
    else:
        weights = (ends - begins) / reach
    # Only stretches that a window covers are looked at: of a long run most are not.
    looked, column = np.unique(stretch, return_inverse=True)
    covers = csr_array((weights, (reading, column)), shape=(len(end_s), len(looked)))
    rows = np.asarray(covers @ line.rows(looked, basis))
    rows[:, 0] = 1.0  # idle is below everything, before the run and after it too
    return rows


def _covered(line: Timeline, begin_s: FloatArray, end_s: FloatArray) -> tuple[IndexArray, IndexArray]:
    """Pairs of a window and a stretch that it covers some of, as two arrays."""
    last = len(line.unit)
    first = np.clip(np.searchsorted(line.bounds_s, begin_s, side="right") - 1, 0, last)
    number = np.clip(np.searchsorted(line.bounds_s, end_s, side="left"), first, last) - first
    window = np.repeat(np.arange(len(begin_s)), number)
    return window, np.arange(len(window)) - np.repeat(np.cumsum(number) - number, number) + first[window]


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


def timeline_of(run: TimedRun, own: int, group: int, *, coarse: bool = False) -> Timeline:
    """A run cut into stretches; coarse ones where power changes little within an execution."""
    ends = np.append(run.begin_s[1:], run.end_s[-1])
    bounds, kernels, units = [], [], []
    for kernel in np.unique(run.kernel):
        each = group if kernel == own else 1
        cells = CELLS * (1 if coarse else points_in(each))
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
