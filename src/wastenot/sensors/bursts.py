"""Bursts of a heavy kernel with rests between them, as they were run, on the host's clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from wastenot.arrays import FloatArray, IndexArray
from wastenot.devices.clock_fit import ClockFit, fit_clocks
from wastenot.devices.instrument import BurstRun, Instrument, PreparedBurst, burst_of
from wastenot.sensors.model import Load
from wastenot.workloads.kernel import KernelSpec


@dataclass(slots=True)
class Rhythm:
    """Runs of bursts of one kernel.

    Attributes:
        instrument: that runs them.
        kernel: that they are of.
        runs: so far.
    """

    instrument: Instrument
    kernel: KernelSpec
    runs: list[BurstRun] = field(default_factory=list)

    def play(self, executions: Sequence[int], rest_s: Callable[[], float], until_s: float, told: Callable[[], None]) -> None:
        """Run bursts of so many executions in turn, until all are done or it is late.

        Args:
            executions: of the bursts.
            rest_s: before each.
            until_s: on the host's clock; none begins after.
            told: called after each.
        """
        ready: dict[int, PreparedBurst] = {}
        with ExitStack() as stack:
            for number in executions:
                if self.instrument.now_s() >= until_s:
                    return
                if number not in ready:
                    ready[number] = stack.enter_context(self.instrument.prepare(burst_of(self.kernel, number)))
                self.runs.append(ready[number].run(rest_s()))
                told()

    def clocks(self) -> ClockFit:
        """Host and GPU clock, from all round trips."""
        return fit_clocks(trip for run in self.runs for trip in run.round_trips)

    def last_begin_s(self) -> float:
        """When the last burst began, on the host's clock as far as its own round trips tell."""
        run = self.runs[-1]
        if self.instrument.executions_by == "host":
            return float(run.begin_s[0])
        return float(fit_clocks(run.round_trips, drift=False).host(run.begin_s[:1])[0])

    def execution_s(self) -> float:
        """Time of an execution in steady state."""
        return float(np.median(np.concatenate([run.end_s - run.begin_s for run in self.runs])))

    def load(self, fit: ClockFit) -> Load:
        """All bursts on the host's clock."""
        begin = np.array([run.begin_s[0] for run in self.runs])
        end = np.array([run.end_s[-1] for run in self.runs])
        if self.instrument.executions_by == "gpu":
            begin, end = fit.host(begin), fit.host(end)
        return Load(begin, end, self.execution_s())

    def executions(self, fit: ClockFit) -> FloatArray:
        """When every execution began, and the last of each burst ended; rising."""
        found = np.concatenate([np.append(run.begin_s, run.end_s[-1]) for run in self.runs])
        return fit.host(found) if self.instrument.executions_by == "gpu" else found

    def readings(self, channel: str, fit: ClockFit) -> tuple[FloatArray, FloatArray, IndexArray]:
        """Stamps on the host's clock, readings and their runs, of all runs together; stamps rise."""
        moment = np.concatenate([run.readings[channel].moment_s for run in self.runs])
        power = np.concatenate([run.readings[channel].power_w for run in self.runs])
        number = np.concatenate(
            [np.full(len(run.readings[channel].moment_s), index, dtype=np.intp) for index, run in enumerate(self.runs)]
        )
        if self.instrument.readings_by == "gpu":
            moment = fit.host(moment)
        order = np.argsort(moment, kind="stable")
        kept = order[np.concatenate([[True], np.diff(moment[order]) > 0.0])]
        return moment[kept], power[kept], number[kept]
