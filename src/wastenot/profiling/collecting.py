"""What a session of profiling collects with: bursts, runs, time allowed, and the power that the runs so far tell of."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from wastenot.devices.clock_fit import ClockFit, fit_clocks
from wastenot.devices.instrument import Burst, BurstRun, Channel, Instrument, PreparedBurst
from wastenot.profiling.collect import Collected, TimedRun, by_host
from wastenot.profiling.design import middle_of
from wastenot.profiling.golden import fullest_bin
from wastenot.profiling.guidance import Guidance
from wastenot.profiling.options import Options
from wastenot.profiling.phase import Rests
from wastenot.profiling.response import Response
from wastenot.profiling.surface import Surface, fit_surface
from wastenot.profiling.units import merged, merged_others, units_of
from wastenot.progress import Progress
from wastenot.workloads.kernel import KernelSpec

SENSOR_UNITS = 25
"""Units in a window that a sensor can just about tell apart."""


class Collecting:
    """Runs of one profile, and what has been decided of them so far."""

    def __init__(
        self,
        instrument: Instrument,
        kernel: KernelSpec,
        before: tuple[tuple[KernelSpec, int], ...],
        alternate: bool,
        options: Options,
        channels: tuple[Channel, ...],
        progress: Progress,
    ) -> None:
        self.instrument, self.kernel, self.before, self.options = instrument, kernel, before, options
        self.alternate = alternate
        self.channels, self.total = channels, channels[0]
        self.untold = channels[0]  # the total's channel before runs told more of it
        self.progress = progress
        self.rng = np.random.default_rng([options.seed, 41])
        self.rests = self._rests()
        self.began_s = instrument.now_s()
        self.notes: list[str] = []
        self.complete = True
        self.left_out = 0
        self.response: Response | None = None
        self.stopped = ""
        self.group = 1
        self.unit_s = math.inf  # not known yet
        self.merge = False
        self.collected: list[Collected] = []
        self.planned = self.done = 0

    def _begun(self, units: int) -> Collected:
        """A place for runs of so many units."""
        collected = Collected(self._burst(units * self.group))
        self.collected.append(collected)
        return collected

    def _rests(self) -> Rests:
        return Rests(self.total, self.options.rest_s, self.instrument.readings_by == "host", self.rng)

    def _burst(self, executions: int) -> Burst:
        if self.alternate:
            return Burst((*self.before, (self.kernel, 1)) * executions)
        if self.before:
            return Burst((*self.before, (self.kernel, executions)))
        return Burst(((self.kernel, executions),))

    def _own(self, collected: Collected) -> int:
        return collected.burst.kernels.index(self.kernel)

    def _collect(self, into: Collected, runs: int, bench: PreparedBurst | None = None, *, share: float = 1.0) -> None:
        if bench is None:
            with self.instrument.prepare(into.burst) as ready:
                self._collect(into, runs, ready, share=share)
            return
        self.planned = max(self.planned, self.done + runs)
        self.progress.begin(self.planned, self.done)
        for _ in range(runs):
            if into.runs and self._spent(share):
                return
            run = bench.run(self.rests.rest_s(self.instrument.now_s(), into.runs))
            into.runs.append(self._as_units(run, self._own(into)))
            self.done += 1
            self.progress.step(f"{self.kernel.name}: {len(into.burst.order)} executions a run")

    def _as_units(self, run: BurstRun, own: int) -> BurstRun:
        """A run without what the sensor cannot tell apart."""
        if self.total.span_s <= self.unit_s:
            return run
        run = merged_others(run, own, max(self.total.span_s / SENSOR_UNITS, self.unit_s))
        return merged(run, own, self.group) if self.merge else run

    def _spent(self, share: float) -> bool:
        """Whether so much of the time allowed is over."""
        return self.instrument.now_s() - self.began_s > share * self.options.budget_s

    def _timed(self, runs: Sequence[BurstRun]) -> list[TimedRun]:
        """Runs by the host's clock."""
        return by_host(runs, self.instrument, self._clocks())

    @property
    def _each(self) -> int:
        """Executions in a unit, as runs have them."""
        return 1 if self.merge else self.group

    def _clocks(self) -> ClockFit:
        return fit_clocks(trip for one in self.collected for run in one.runs for trip in run.round_trips)

    def _surface(self, kept: Sequence[Collected], units: int, guidance: Guidance) -> tuple[Surface, list[TimedRun]]:
        """Power by the golden ones of some runs, each element of ``kept`` a kind of its own, and these runs."""
        own = self._own(kept[0])
        kinds: list[int] = []
        chosen: list[TimedRun] = []
        for kind, one in enumerate(kept):
            timed = self._timed(one.runs)
            last = units_of(timed, own, self._each, units).time_s[:, -1]
            golden = [timed[place] for place in fullest_bin(last, guidance.margin, self.options.bin_rank)] or timed
            chosen += golden
            kinds += [kind] * len(golden)
        kernels = len(kept[0].burst.kernels)
        surface = fit_surface(
            chosen, self.total, kernels=kernels, own=own, group=self._each, kinds=kinds, shaped=not self.merge
        )
        return surface, chosen

    def _readings_of_interest(self, main: Collected, guidance: Guidance, unit: int) -> int:
        """Step 6: how many readings fall into a unit, in golden runs."""
        timed = self._timed(main.runs)
        units = units_of(timed, self._own(main), self._each, unit + 1)
        found = 0
        for place in fullest_bin(units.time_s[:, unit], guidance.margin, self.options.bin_rank):
            middle = middle_of(timed[place], self.total)
            inside = (middle >= units.begin_s[place, unit]) & (middle < units.end_s[place, unit])
            found += int(np.count_nonzero(inside))
        return found

    def _fall_short(self, note: str) -> None:
        self.complete = False
        self.notes.append(note)
