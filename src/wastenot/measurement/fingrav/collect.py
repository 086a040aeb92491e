"""Runs of a burst as they are collected, and the same by one clock. FinGraV's steps 2 and 4."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from wastenot.devices.fine_grain import Bench, Burst, Instrument, Readings, Run
from wastenot.frontier.points import FloatArray, IndexArray
from wastenot.measurement.fingrav.clocks import ClockFit, fit_clocks

Progress = Callable[[str, int, int], None]
"""Told what is done, how many runs of it are, and how many there will be."""


@dataclass(slots=True)
class Collected:
    """Runs of one burst on one instrument.

    Attributes:
        burst: that was run.
        runs: in order.
    """

    burst: Burst
    runs: list[Run] = field(default_factory=list)

    def clocks(self, *, drift: bool = True) -> ClockFit:
        """Host and GPU clock, from the round trips of all runs.

        Raises:
            DeviceError: they cannot be told together.
        """
        return fit_clocks((trip for run in self.runs for trip in run.round_trips), drift=drift)


@dataclass(frozen=True, slots=True, eq=False)
class TimedRun:
    """A run by the host's clock, counted from its first execution's begin.

    Attributes:
        kernel: which kernel each execution was; shape (executions,).
        begin_s, end_s: of each; shape (executions,).
        readings: by channel.
    """

    kernel: IndexArray
    begin_s: FloatArray
    end_s: FloatArray
    readings: Mapping[str, Readings]


def collect(bench: Bench, into: Collected, runs: int, rest_s: Callable[[], float], progress: Callable[[], None]) -> None:
    """Run a burst so often more.

    Args:
        bench: the burst, ready.
        into: where the runs are kept; each as soon as it is there.
        runs: how many.
        rest_s: time to rest before each.
        progress: called after each.
    """
    for _ in range(runs):
        into.runs.append(bench.run(rest_s()))
        progress()


def by_host(runs: Sequence[Run], instrument: Instrument, fit: ClockFit | None) -> list[TimedRun]:
    """Runs by the host's clock.

    Args:
        runs: as collected.
        instrument: that collected them; it knows which clock stamped what.
        fit: of the clocks. ``None`` leaves them apart, as who does not synchronise would: each run's first reading is
            taken to be of the moment that its first execution began.
    """
    return [_one_by_host(run, instrument, fit) for run in runs]


def _one_by_host(run: Run, instrument: Instrument, fit: ClockFit | None) -> TimedRun:
    def told(moment_s: FloatArray, by: str) -> FloatArray:
        return moment_s if fit is None or by == "host" else fit.host(moment_s)

    begin, end = told(run.begin_s, instrument.executions_by), told(run.end_s, instrument.executions_by)
    zero = float(begin[0])
    readings = {}
    for name, one in run.readings.items():
        moment = told(one.moment_s, instrument.readings_by)
        if fit is None and instrument.readings_by != instrument.executions_by and len(moment):
            inside = int(np.argmax(np.asarray(one.power_w) > 0.5 * (one.power_w.min() + one.power_w.max())))
            moment = moment - moment[inside] + zero
        readings[name] = Readings(moment - zero, one.power_w)
    return TimedRun(run.kernel, begin - zero, end - zero, readings)
