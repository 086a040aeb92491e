"""Runs of a burst as they are collected, and the same by one clock. FinGraV's steps 2 and 4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from wastenot.arrays import FloatArray, IndexArray
from wastenot.devices.clock_fit import ClockFit
from wastenot.devices.instrument import Burst, BurstRun, Clock, Instrument, Readings
from wastenot.sensors.updates import on_grid


@dataclass(slots=True)
class Collected:
    """Runs of one burst on one instrument.

    Attributes:
        burst: that was run.
        runs: in order.
    """

    burst: Burst
    runs: list[BurstRun] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class TimedRun:
    """A run by the host's clock, counted from its first execution's begin.

    Attributes:
        kernel: which kernel each execution was; shape (executions,).
        begin_s, end_s: of each; shape (executions,).
        zero_s: the first execution's begin on the host's clock.
        readings: by channel.
        late_s: by which they came later than their channel's delay says.
    """

    kernel: IndexArray
    begin_s: FloatArray
    end_s: FloatArray
    zero_s: float
    readings: Mapping[str, Readings]
    late_s: float = 0.0


def by_host(runs: Sequence[BurstRun], instrument: Instrument, fit: ClockFit | None) -> list[TimedRun]:
    """Runs by the host's clock.

    Args:
        runs: as collected.
        instrument: that collected them; it knows which clock stamped what.
        fit: of the clocks. ``None`` leaves them apart, as who does not synchronise would: each run's first reading is
            taken to be of the moment that its first execution began.
    """
    timed = [_one_by_host(run, instrument, fit) for run in runs]
    if fit is None or instrument.readings_by == "gpu":
        return timed
    return _regular(timed, instrument)


def _one_by_host(run: BurstRun, instrument: Instrument, fit: ClockFit | None) -> TimedRun:
    begin, end = _told(run.begin_s, instrument.executions_by, fit), _told(run.end_s, instrument.executions_by, fit)
    zero = float(begin[0])
    readings = {}
    for name, one in run.readings.items():
        moment = _told(one.moment_s, instrument.readings_by, fit)
        if fit is None and len(moment):
            moment = moment - moment[_first_busy(one)] + zero
        readings[name] = Readings(moment - zero, one.power_w)
    return TimedRun(run.kernel, begin - zero, end - zero, zero, readings, run.late_s)


def _told(moment_s: FloatArray, by: Clock, fit: ClockFit | None) -> FloatArray:
    return moment_s if fit is None or by == "host" else fit.host(moment_s)


def _first_busy(readings: Readings) -> int:
    """The first reading that looks like work."""
    return int(np.argmax(readings.power_w > 0.5 * (readings.power_w.min() + readings.power_w.max())))


def _regular(runs: list[TimedRun], instrument: Instrument) -> list[TimedRun]:
    """The runs with polled readings stamped as regularly as their sensors update."""
    found = {}
    for channel in instrument.channels:
        moments = [run.zero_s + run.readings[channel.name].moment_s for run in runs]
        every = np.concatenate(moments)
        order = np.argsort(every, kind="stable")
        every[order] = on_grid(every[order], channel.period_s)
        found[channel.name] = np.split(every, np.cumsum([len(moment) for moment in moments])[:-1])
    return [
        replace(
            run,
            readings={name: Readings(found[name][place] - run.zero_s, one.power_w) for name, one in run.readings.items()},
        )
        for place, run in enumerate(runs)
    ]
