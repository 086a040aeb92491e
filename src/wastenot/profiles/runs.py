"""Runs of a burst on the host's clock, and the units of the profiled kernel in them. FinGraV's steps 2, 4 and 5.

A unit is one execution of the profiled kernel, or a group of consecutive ones where a single one is too short to be seen.
Golden runs are those whose units take nearly the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.devices.clock_fit import ClockFit
from wastenot.devices.instrument import TOTAL, Burst, BurstRun, Channel, Clock, Instrument, Readings
from wastenot.meters.sensors.updates import on_grid


@dataclass(slots=True)
class BurstRuns:
    """Runs of one burst on one instrument, in order of time."""

    burst: Burst
    runs: list[BurstRun] = field(default_factory=list)


def rest_before_run_s(
    channel: Channel, runs: Sequence[BurstRun], now_s: float, least_s: float, rng: np.random.Generator, *, aligned: bool
) -> float:
    """How long to rest before a run, so that its readings are informative.

    Where a sensor samples an instant, runs begin at random. One that averages over part of its period sees nothing between
    its windows: once its rhythm is known, each run begins so that a window ends at a random moment of the burst or after.

        sensor   ──├──window──┤──────────────├──window──┤──────────────├──window──┤───
        run                              begin ▇▇▇▇▇▇▇▇▇▇▇▇▇

    Args:
        channel: whose readings the run is timed for.
        runs: of the same burst so far; the readings of the last show the sensor's rhythm.
        now_s: on the clock of the readings.
        least_s: shortest rest.
        rng: random generator.
        aligned: whether the channel's timestamps are on the clock that runs are started by, so that its rhythm is usable.
    """
    least_s = max(least_s, channel.reach_s)  # what ran before must have left the readings
    readings: FloatArray = runs[-1].readings[TOTAL].moment_s if runs else np.empty(0)
    span_s = float(runs[-1].end_s[-1] - runs[-1].begin_s[0]) if runs else 0.0
    if not aligned or not len(readings) or span_s > channel.period_s:
        return least_s + float(rng.uniform(0.0, channel.period_s))
    # From the run's begin to the timestamp of the reading, which comes a delay after its window's end.
    wanted_s = float(rng.uniform(0.0, span_s + min(channel.reach_s, 2.0 * channel.span_s))) + channel.delay_s
    last_s = float(readings[-1])
    periods = np.ceil((now_s + least_s + wanted_s - last_s) / channel.period_s)
    return float(last_s + periods * channel.period_s - wanted_s - now_s)


@dataclass(frozen=True, slots=True, eq=False)
class TimedRun:
    """A run on the host's clock, counted from the begin of its first execution.

    Attributes:
        kernel: index of each execution's kernel; shape (executions,).
        begin_s, end_s: of each execution; shape (executions,).
        zero_s: begin of the first execution on the host's clock.
        readings: by channel.
        late_s: by which the readings came later than their channel's delay.
        counted_mhz: cycles counted per microsecond; shape (executions,), or ``None``.
    """

    kernel: IndexArray
    begin_s: FloatArray
    end_s: FloatArray
    zero_s: float
    readings: Mapping[str, Readings]
    late_s: float = 0.0
    counted_mhz: FloatArray | None = None


def on_host_clock(runs: Sequence[BurstRun], instrument: Instrument, fit: ClockFit | None) -> list[TimedRun]:
    """Convert runs to the host's clock.

    Args:
        runs: as collected.
        instrument: that collected them; it knows which clock gave which timestamps.
        fit: of the clocks. ``None`` does not synchronise them: the first busy reading of each run is then taken to be of
            the moment at which its first execution began.
    """
    timed = [_timed(run, instrument, fit) for run in runs]
    if fit is None or instrument.readings_by == "gpu":
        return timed
    return _with_regular_readings(timed, instrument)


def _timed(run: BurstRun, instrument: Instrument, fit: ClockFit | None) -> TimedRun:
    def host(moment_s: FloatArray, clock: Clock) -> FloatArray:
        return moment_s if fit is None or clock == "host" else fit.host(moment_s)

    begin_s, end_s = host(run.begin_s, instrument.executions_by), host(run.end_s, instrument.executions_by)
    zero_s = float(begin_s[0])
    readings = {}
    for name, log in run.readings.items():
        moment_s = host(log.moment_s, instrument.readings_by)
        if fit is None and len(moment_s):
            first_busy = np.argmax(log.power_w > 0.5 * (log.power_w.min() + log.power_w.max()))  # that looks like work
            moment_s = moment_s - moment_s[first_busy] + zero_s
        readings[name] = Readings(moment_s - zero_s, log.power_w)
    return TimedRun(run.kernel, begin_s - zero_s, end_s - zero_s, zero_s, readings, run.late_s, run.counted_mhz)


def _with_regular_readings(runs: list[TimedRun], instrument: Instrument) -> list[TimedRun]:
    """The runs, with polled readings timestamped as regularly as their sensors update."""
    regular = {}
    for channel in instrument.channels:
        moments = [run.zero_s + run.readings[channel.name].moment_s for run in runs]
        joined = np.concatenate(moments)
        order = np.argsort(joined, kind="stable")
        joined[order] = on_grid(joined[order], channel.period_s)
        regular[channel.name] = np.split(joined, np.cumsum([len(moment) for moment in moments])[:-1])
    return [
        replace(
            run,
            readings={name: Readings(regular[name][index] - run.zero_s, log.power_w) for name, log in run.readings.items()},
        )
        for index, run in enumerate(runs)
    ]


@dataclass(frozen=True, slots=True, eq=False)
class UnitTimes:
    """When the units of the profiled kernel ran; arrays of shape (runs, units), NaN where a run has fewer.

    Attributes:
        begin_s, end_s: from the begin of a unit's first execution to the end of its last.
    """

    begin_s: FloatArray
    end_s: FloatArray

    @property
    def time_s(self) -> FloatArray:
        """Time of each unit."""
        return np.asarray(self.end_s - self.begin_s)


def unit_times(runs: Sequence[TimedRun], kernel: int, per_unit: int, units: int) -> UnitTimes:
    """When the first units of runs ran.

    Args:
        runs: some of which may have fewer units.
        kernel: index of the profiled kernel among those of a run.
        per_unit: executions in a unit.
        units: of each run.
    """
    begin_s, end_s = np.full((len(runs), units), np.nan), np.full((len(runs), units), np.nan)
    for index, run in enumerate(runs):
        ours = np.flatnonzero(run.kernel == kernel)
        whole = ours[: min(len(ours) // per_unit, units) * per_unit]
        begin_s[index, : len(whole) // per_unit] = run.begin_s[whole[::per_unit]]
        end_s[index, : len(whole) // per_unit] = run.end_s[whole[per_unit - 1 :: per_unit]]
    return UnitTimes(begin_s, end_s)


def unit_clocks(runs: Sequence[TimedRun], kernel: int, per_unit: int, units: int) -> FloatArray:
    """Mean SM clock over the units of runs in MHz, shape (runs, units); NaN where it is unknown or a run has fewer units.

    Arguments are those of :func:`unit_times`.
    """
    clocks_mhz = np.full((len(runs), units), np.nan)
    for index, run in enumerate(runs):
        ours = np.flatnonzero(run.kernel == kernel)
        whole = ours[: min(len(ours) // per_unit, units) * per_unit].reshape(-1, per_unit)
        if run.counted_mhz is not None:
            seconds = (run.end_s - run.begin_s)[whole]
            clocks_mhz[index, : len(whole)] = (run.counted_mhz[whole] * seconds).sum(axis=1) / seconds.sum(axis=1)
    return clocks_mhz


def merged(run: BurstRun, kernel: int, group: int) -> BurstRun:
    """A run in which each group of executions of a kernel counts as one; an incomplete group at the end is dropped."""
    ours = np.flatnonzero(run.kernel == kernel)
    whole = ours[: len(ours) // group * group]
    first, last = whole[::group], whole[group - 1 :: group]
    others = np.flatnonzero(run.kernel != kernel)
    begin_s = np.concatenate([run.begin_s[others], run.begin_s[first]])
    order = np.argsort(begin_s, kind="stable")
    end_s = np.concatenate([run.end_s[others], run.end_s[last]])
    kernels = np.concatenate([run.kernel[others], run.kernel[first]])
    counted_mhz = run.counted_mhz
    if counted_mhz is not None:
        seconds = (run.end_s - run.begin_s)[whole].reshape(-1, group)
        of_groups = (counted_mhz[whole].reshape(-1, group) * seconds).sum(axis=1) / seconds.sum(axis=1)
        counted_mhz = np.concatenate([counted_mhz[others], of_groups])[order]
    return replace(run, kernel=kernels[order], begin_s=begin_s[order], end_s=end_s[order], counted_mhz=counted_mhz)


def merged_others(run: BurstRun, own: int, unit_s: float) -> BurstRun:
    """A run in which consecutive executions of each other kernel are merged into ones that take about ``unit_s``."""
    for kernel in np.unique(run.kernel[run.kernel != own]).tolist():
        ours = np.flatnonzero(run.kernel == kernel)
        group = min(round(unit_s / float(np.median(run.end_s[ours] - run.begin_s[ours]))), len(ours))
        if group > 1 and ours[-1] - ours[0] == len(ours) - 1:
            run = merged(run, kernel, group)
    return run


def fullest_bin(time_s: FloatArray, margin: float, rank: int = 0) -> IndexArray:
    """Indices of the times in the fullest bin: the largest set in which no two differ by more than the margin.

    Args:
        time_s: execution time of each run; shape (runs,).
        margin: width of the bin as a fraction of its lower end.
        rank: 0 for the fullest bin, 1 for the fullest of what that leaves, and so on: outliers have profiles too.

    Returns:
        Indices in ascending order; none if no run is left.
    """
    left = np.arange(len(time_s))
    for _ in range(rank + 1):
        if not len(left):
            return left
        order = left[np.argsort(time_s[left], kind="stable")]
        ascending = time_s[order]
        ends = np.searchsorted(ascending, ascending * (1.0 + margin), side="right")
        first = int(np.argmax(ends - np.arange(len(ascending))))
        chosen = np.sort(order[first : ends[first]])
        left = np.setdiff1d(left, chosen)
    return chosen
