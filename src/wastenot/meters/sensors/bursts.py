r"""Runs bursts of a heavy kernel with rests between them, and gives what was logged on the host's clock.

A window much shorter than the period sees few edges by chance. Where the sensor keeps a grid and bursts begin about when
they are requested, a rest can be chosen such that the window of the next reading covers an edge:

    readings        •           •           •           •           •
    windows         ▭           ▭           ▭           ▭           ▭
    burst       ___________________________/▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔\____        alternately its beginning and its end
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.devices.clock_fit import ClockFit, fit_clocks
from wastenot.devices.instrument import BurstRun, Instrument, PreparedBurst, burst_of
from wastenot.meters.sensors.model import Load, SensorParameters
from wastenot.workloads.kernel import KernelSpec

_WINDOWS_BEFORE, _WINDOWS_AFTER = 0.5, 3.0  # how far from a reading's window an edge may be placed
_LAGS_AFTER = 3.0  # plus this many fast lags
_RECENT_BURSTS = 50  # that lateness is estimated from


@dataclass(slots=True)
class BurstSeries:
    """The runs so far of bursts of one kernel, the load, on one instrument."""

    instrument: Instrument
    kernel: KernelSpec
    runs: list[BurstRun] = field(default_factory=list)

    def run(
        self, executions: Sequence[int], rest_s: Callable[[], float], until_s: float, after_each: Callable[[], None]
    ) -> None:
        """Run bursts one after another, until all are done or the time is up.

        Args:
            executions: of each burst.
            rest_s: before each.
            until_s: on the host's clock; no burst begins later.
            after_each: called after each.
        """
        prepared: dict[int, PreparedBurst] = {}
        with ExitStack() as stack:
            for number in executions:
                if self.instrument.now_s() >= until_s:
                    return
                if number not in prepared:
                    prepared[number] = stack.enter_context(self.instrument.prepare(burst_of(self.kernel, number)))
                self.runs.append(prepared[number].run(rest_s()))
                after_each()

    def clocks(self) -> ClockFit:
        """Host and GPU clock, from all round trips."""
        return fit_clocks(trip for run in self.runs for trip in run.round_trips)

    def last_begin_s(self) -> float:
        """When the last burst began, on the host's clock as far as its own round trips determine it."""
        run = self.runs[-1]
        if self.instrument.executions_by == "host":
            return float(run.begin_s[0])
        return float(fit_clocks(run.round_trips, drift=False).host(run.begin_s[:1])[0])

    def execution_s(self) -> float:
        """Duration of an execution in steady state."""
        return float(np.median(np.concatenate([run.end_s - run.begin_s for run in self.runs])))

    def load(self, clocks: ClockFit) -> Load:
        """All bursts on the host's clock."""
        begin = np.array([run.begin_s[0] for run in self.runs])
        end = np.array([run.end_s[-1] for run in self.runs])
        if self.instrument.executions_by == "gpu":
            begin, end = clocks.host(begin), clocks.host(end)
        return Load(begin, end, self.execution_s())

    def executions(self, clocks: ClockFit) -> FloatArray:
        """When each execution began, and the last of each burst ended; ascending."""
        moments = np.concatenate([np.append(run.begin_s, run.end_s[-1]) for run in self.runs])
        return clocks.host(moments) if self.instrument.executions_by == "gpu" else moments

    def readings(self, channel: str, clocks: ClockFit) -> tuple[FloatArray, FloatArray, IndexArray]:
        """Timestamps on the host's clock, power and index of the run, of all readings; timestamps ascend."""
        logs = [run.readings[channel] for run in self.runs]
        moment = np.concatenate([log.moment_s for log in logs])
        power = np.concatenate([log.power_w for log in logs])
        run = np.repeat(np.arange(len(logs)), [len(log.moment_s) for log in logs])
        if self.instrument.readings_by == "gpu":
            moment = clocks.host(moment)
        order = np.argsort(moment, kind="stable")
        kept = order[np.concatenate([[True], np.diff(moment[order]) > 0.0])]
        return moment[kept], power[kept], run[kept]


@dataclass(slots=True)
class AimedRests:
    """Chooses rests that place edges inside the windows of readings.

    Attributes:
        grid_s, period_s: moment of a reading on the host's clock, and time between readings.
        length_s: of the next bursts.
        rest_s: shortest and longest rest, apart from one more period.
    """

    series: BurstSeries
    grid_s: float
    period_s: float
    parameters: SensorParameters
    length_s: float
    rest_s: tuple[float, float]
    rng: np.random.Generator
    _planned_s: list[float] = field(default_factory=list)
    _late_s: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        """The next rest."""
        now = self.series.instrument.now_s()
        if self._planned_s:
            begin = self.series.last_begin_s()
            self._late_s = [*self._late_s, begin - self._planned_s[-1]][-_RECENT_BURSTS:]
        late = float(np.median(self._late_s)) if self._late_s else 0.0
        rest = float(self.rng.uniform(*self.rest_s))
        span_s = self.parameters.span_s
        after = self.rng.uniform(-_WINDOWS_BEFORE * span_s, _WINDOWS_AFTER * span_s + _LAGS_AFTER * self.parameters.fast_s)
        edge = now + rest + late + (self.length_s if len(self._planned_s) % 2 else 0.0)
        stamped = edge + self.parameters.delay_s + float(after)
        rest += (self.grid_s - stamped) % self.period_s
        self._planned_s.append(now + rest)
        return rest
