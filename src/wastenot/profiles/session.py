"""Collecting the runs of a profile: how many, how long, and which executions it is about. FinGraV's steps 1 to 7."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from wastenot.core.errors import DeviceError
from wastenot.core.progress import Progress
from wastenot.devices.clock_fit import ClockFit, fit_clocks
from wastenot.devices.instrument import Burst, BurstRun, Channel, Instrument, PreparedBurst
from wastenot.profiles.assemble import MIN_GOLDEN_RUNS, RESOLVED, Collection, UnitRange, shape_error
from wastenot.profiles.design import window_middle_s
from wastenot.profiles.guidance import executions_in_unit, guidance_for
from wastenot.profiles.options import ProfileOptions
from wastenot.profiles.response import Response, fit_response, late_among, response_notes
from wastenot.profiles.result import INTERRUPTED
from wastenot.profiles.runs import (
    BurstRuns,
    TimedRun,
    UnitTimes,
    fullest_bin,
    merged,
    merged_others,
    on_host_clock,
    rest_before_run_s,
    unit_times,
)
from wastenot.profiles.steady_state import (
    FIRST_UNITS,
    FLAT,
    FLAT_AVERAGED,
    MAX_FLAT_ERROR,
    SETTLED,
    movement,
    steady_execution,
    steady_power,
    steady_power_by_octaves,
    swings,
)
from wastenot.profiles.surface import Surface, fit_surface
from wastenot.workloads.kernel import KernelSpec

_TIMING_EXECUTIONS, _TIMING_RUNS = 8, 4  # of the first look at execution times
_UNITS_IN_SPAN = 25  # units in the time a reading stands for, that a sensor can just about tell apart
_PROBE_RUNS = 50  # between looks at whether power is steady
_MAX_PROBES = 6  # such looks, before the movement counts as known
_MIN_PLATEAU_UNITS = 6  # run after SSE at least, so that there is a plateau
_MAX_MORE_RUNS = 3.0  # times the guidance's runs
_LONG_RUNS, _SHORT_RUNS = 20, 60  # collected between looks at the shape
_MIN_LONG_RUNS = 4
_WORSE = 1.2  # ratio of SSE's error to SSP's, above which short runs are collected instead of long ones
_SEARCH_BUDGET = 0.5  # fraction of the budget after which the search for SSP ends
_SHORT_RUN_BUDGET = 0.4  # fraction of it for the first runs from rest where a sensor averages
_LONG_RUN_S, _LONG_RUN_PERIODS = 0.6, 30.0  # the first long runs last at least these
_RESPONSE_RUNS = 20  # from which a sensor's response can be fitted
_GOOD_ENOUGH = 0.3  # fraction of the error at which a shape is shown, at which no more is measured


class Session:
    """Collects the runs of one profile.

    Args:
        instrument: to run them on.
        kernel: to profile.
        before: executions of other kernels that come first.
        alternate: repeat ``before`` and the kernel alternately until power is steady.
        options: how to profile.
        channels: of the instrument, total first, with what is known about them.
        progress: informed of every run.
    """

    def __init__(
        self,
        instrument: Instrument,
        kernel: KernelSpec,
        before: tuple[tuple[KernelSpec, int], ...],
        alternate: bool,
        options: ProfileOptions,
        channels: tuple[Channel, ...],
        progress: Progress,
    ) -> None:
        self._instrument, self._kernel, self._before, self._alternate = instrument, kernel, before, alternate
        self._options, self._progress = options, progress
        self._channels, self._total = channels, channels[0]
        self._nominal = channels[0]  # the total's channel before its response was fitted
        self._response: Response | None = None
        self._rng = np.random.default_rng([options.seed, 41])
        self._started_s = instrument.now_s()
        self._collected: list[BurstRuns] = []
        self._planned = self._done = 0
        self._group = 1  # executions in a unit
        self._merge = False  # whether units count as single executions, since what is inside is beyond the sensor
        self._unit_s = math.inf  # not known yet
        self._guidance = guidance_for(0.0)
        self._notes: list[str] = []
        self._excluded = 0  # runs whose readings no delay explains
        self._complete, self._stopped = True, ""

    def collect(self) -> Collection:
        """Steps 1 to 7: everything but the profile itself.

        Raises:
            DeviceError: the device failed before there was enough for a profile.
            CannotRunError: the kernel cannot be run, or is too short for the clock.
        """
        execution_s = self._time_execution()
        self._group = 1 if self._alternate else self._choose_group(execution_s)
        self._unit_s = execution_s * self._group
        self._guidance = guidance_for(self._unit_s, self._options.runs, self._options.margin)
        in_context = bool(self._before) and not self._alternate
        units = self._options.executions or (1 if in_context else 0)
        sse: int | None = None
        ssp = UnitRange.single("SSP", max(units, 1) - 1)
        try:
            if self._averages(self._unit_s) and not in_context:
                kept, units, sse, ssp = self._collect_averaged()
            else:
                if not units:
                    units, sse, ssp = self._find_steady_power()
                kept, units = self._collect_guided(ssp.first + 1), ssp.first + 1
                if self._options.executions and not in_context:
                    self._check_steady(kept, units)
        except (DeviceError, KeyboardInterrupt) as error:
            kept = [one for one in self._collected[1:] if one.runs]
            if sum(len(one.runs) for one in kept) < MIN_GOLDEN_RUNS:
                raise
            self._complete, self._stopped = False, str(error) or INTERRUPTED
            # The last unit that all runs have is the nearest to SSP that there is.
            last = min(len(one.burst.order) // self._group for one in kept) - 1
            ssp = UnitRange.single("SSP", min(ssp.first or units or last, last))
            units = ssp.first + 1
        if self._response is not None:
            self._notes += response_notes(self._response, self._excluded)
        if in_context and self._averages(self._unit_s):
            states: tuple[UnitRange, ...] = (UnitRange("in context", 0, units),)  # single ones are beyond the sensor
        elif in_context or self._alternate:
            states = (UnitRange.single("in context", 0 if in_context else ssp.first),)
        else:
            if sse is None:
                sse = min(self._steady_execution(kept, ssp.first + 1), ssp.first)
            states = (UnitRange.single("SSE", sse), ssp)
        return self._collection(kept, units, states)

    # ---- steps 1 and 3: execution time, SSE and SSP --------------------------------------------------------------

    def _time_execution(self) -> float:
        """Step 1: the time of an execution, by the last of a few."""
        timing = BurstRuns(self._burst(_TIMING_EXECUTIONS))
        self._run(timing, _TIMING_RUNS)
        self._collected.append(timing)
        self._fit_clocks()
        ours = len(timing.burst.kernels) - 1
        return float(np.median([(run.end_s - run.begin_s)[run.kernel == ours][-1] for run in timing.runs]))

    def _choose_group(self, execution_s: float) -> int:
        """Executions in a unit: enough for the clock, and for a sensor that averages to tell units apart."""
        group = executions_in_unit(execution_s, self._instrument.resolution_s)
        if not self._averages(execution_s):
            return group
        for_sensor = math.ceil(self._total.span_s / _UNITS_IN_SPAN / execution_s * (1 - 1e-9))
        if for_sensor > group:
            self._merge = True
            self._notes.append(
                f"{for_sensor} executions in a row are one unit: readings stand for about {1e3 * self._total.span_s:g} ms"
            )
        return max(group, for_sensor)

    def _averages(self, unit_s: float) -> bool:
        """Whether readings stand for more than a part of a unit."""
        return self._total.span_s > unit_s

    def _find_steady_power(self) -> tuple[int, int, UnitRange]:
        """Step 3: the units in a run, and which of them are SSE and SSP, by doubling and then halving."""
        units = max(FIRST_UNITS, math.ceil(2.0 * self._total.period_s / self._unit_s))  # each run has readings in it
        while True:
            probe = self._new_burst_runs(units)
            with self._instrument.prepare(probe.burst) as bench:
                for _ in range(_MAX_PROBES):
                    self._run(probe, _PROBE_RUNS, bench)
                    surface, timed = self._fit_surface([probe], units)
                    moved, error = movement(surface, units)
                    if error <= MAX_FLAT_ERROR or moved - error > 1.0 or self._over_budget(_SEARCH_BUDGET):
                        break
            sse = steady_execution(self._unit_times(timed, probe, units).time_s, self._guidance.margin)
            if moved <= FLAT and units >= sse + _MIN_PLATEAU_UNITS:
                return units, sse, UnitRange.single("SSP", steady_power(surface, units, sse, SETTLED))
            if 2 * units * self._unit_s > self._options.longest_run_s or self._over_budget(_SEARCH_BUDGET):
                self._fall_short(self._still_moved(units))
                return units, sse, UnitRange.single("SSP", units - 1)
            units *= 2

    def _steady_execution(self, kept: Sequence[BurstRuns], units: int) -> int:
        """SSE by the golden and other runs of some bursts."""
        timed = self._timed([run for one in kept for run in one.runs])
        return steady_execution(self._unit_times(timed, kept[0], units).time_s, self._guidance.margin)

    def _check_steady(self, kept: Sequence[BurstRuns], units: int) -> None:
        """Check that the units asked for, in place of a search, are enough to see time and power settle."""
        if self._too_few(units, self._steady_execution(kept, units)):
            return
        surface, _ = self._fit_surface(kept, units)
        if movement(surface, units)[0] > FLAT:
            self._fall_short(self._still_moved(units))

    def _still_moved(self, units: int) -> str:
        after_ms = 1e3 * units * self._unit_s
        return f"power was still changing after {units} executions ({after_ms:.3g} ms); the last one is used as SSP"

    def _too_few(self, units: int, sse: int) -> bool:
        if units >= sse + _MIN_PLATEAU_UNITS:
            return False
        self._fall_short(f"executions in a run: {units}, too few to identify SSE and SSP")
        return True

    # ---- steps 4 to 7: the runs ----------------------------------------------------------------------------------

    def _collect_guided(self, units: int) -> list[BurstRuns]:
        """Steps 4 to 7: the runs of the guidance, and more where there are too few readings of interest."""
        burst = self._burst(units * self._group)
        main = next((one for one in self._collected[1:] if one.burst == burst), None) or self._new_burst_runs(units)
        wanted = 0 if self._averages(self._unit_s) else self._guidance.readings(self._unit_s)
        limit = round(_MAX_MORE_RUNS * self._guidance.runs)
        kept = [one for one in self._collected[1:] if len(one.burst.order) >= len(burst.order)]
        with self._instrument.prepare(burst) as bench:
            self._run(main, max(self._guidance.runs - len(main.runs), 0), bench)
            while (missing := wanted - sum(self._readings_of_interest(one, units - 1) for one in kept if one.runs)) > 0:
                if len(main.runs) >= limit or self._over_budget(1.0):
                    break
                self._run(main, min(max(4 * missing, 20), limit - len(main.runs)), bench)
        self._learn_response(main)
        if missing > 0:
            self._fall_short(f"too few readings of interest after {len(main.runs)} runs: {wanted} are asked for")
        return kept

    def _readings_of_interest(self, runs: BurstRuns, unit: int) -> int:
        """Step 6: the number of readings that fall into a unit, in golden runs."""
        timed = self._timed(runs.runs)
        times = self._unit_times(timed, runs, unit + 1)
        number = 0
        for index in fullest_bin(times.time_s[:, unit], self._guidance.margin, self._options.outliers):
            middle_s = window_middle_s(timed[index], self._total)
            inside = (middle_s >= times.begin_s[index, unit]) & (middle_s < times.end_s[index, unit])
            number += int(np.count_nonzero(inside))
        return number

    def _collect_averaged(self) -> tuple[list[BurstRuns], int, int, UnitRange]:
        """Steps 3 to 7 with a sensor that averages over many units: short runs from rest, long ones in steady state.

        Short runs are as long as a window, so that its edges fall on random moments of them; they resolve SSE. In long
        runs every reading is of the steady power; they are doubled until it no longer moves. More runs are then collected
        of the kind that is less well known, until the shape is known or the budget is spent.
        """
        units = self._options.executions or max(math.ceil(self._total.span_s / self._unit_s), FIRST_UNITS)
        short = self._new_burst_runs(units)
        self._run(short, self._guidance.runs, budget=_SHORT_RUN_BUDGET)
        self._learn_response(short)
        length_s = max(_LONG_RUN_S, _LONG_RUN_PERIODS * self._total.period_s, 3.0 * self._total.span_s)
        length_s = min(length_s, self._options.longest_run_s)
        while True:
            long = self._new_burst_runs(max(math.ceil(length_s / self._unit_s), units))
            runs = max(math.ceil(_LONG_RUNS * _LONG_RUN_S / length_s), _MIN_LONG_RUNS)
            self._run_long(long, runs, short)
            kept = [short, long]
            surface, timed = self._fit_surface(kept, units)
            moved, error = movement(surface, surface.units)
            steady = moved - error <= FLAT_AVERAGED
            if steady or 2.0 * length_s > self._options.longest_run_s or self._over_budget(1.0):
                break
            length_s *= 2.0
        if not steady:
            self._fall_short(f"power was still changing after {length_s:.3g} s of executions")
        sse = steady_execution(self._unit_times(timed, short, units).time_s, self._guidance.margin)
        # What is inside a merged unit stays beyond the sensor, however many runs there are.
        while not self._merge and not self._over_budget(1.0):
            sse_error, ssp_error = (shape_error(surface, units, unit, unit + 1) for unit in (sse, units - 1))
            if max(sse_error, ssp_error) <= _GOOD_ENOUGH * RESOLVED:
                break
            if sse_error > _WORSE * ssp_error:
                self._run(short, max(_SHORT_RUNS, len(short.runs) // 2))
                self._learn_response(short, long)
            else:
                self._run_long(long, runs, short)
            surface, _ = self._fit_surface(kept, units)
        if self._options.executions:
            self._too_few(units, sse)
        ssp = steady_power(surface, surface.units, sse)
        if steady and ssp > surface.units // 2:
            ssp = steady_power_by_octaves(surface, surface.units, sse)
            if swings(surface, surface.units):
                self._notes.append("power oscillates in steady state: SSP is the mean of all executions from there on")
                return kept, max(units, ssp + 1), sse, UnitRange("SSP", ssp, surface.units)
        return kept, max(units, ssp + 1), sse, UnitRange.single("SSP", ssp)

    def _run_long(self, long: BurstRuns, runs: int, short: BurstRuns) -> None:
        """More long runs; where the delay drifts, short ones after them show by how much."""
        self._run(long, runs)
        while self._nominal.delay_error_s:
            self._run(short, _RESPONSE_RUNS)
            self._learn_response(short, long)
            if long.runs:
                return
            if self._over_budget(1.0):
                raise DeviceError(
                    f"the delay of the sensor changed during every long run, and the budget of {self._options.budget_s:g} s "
                    "left no time for more; allow more time"
                )
            self._run(long, runs)

    def _learn_response(self, short: BurstRuns, *long_runs: BurstRuns) -> None:
        """Fit the sensor's response to short runs where its delay is not known; long runs get the delay of those around."""
        if not self._nominal.delay_error_s or len(short.runs) < _RESPONSE_RUNS:
            return
        own, kernels = self._own(short), len(short.burst.kernels)
        response = fit_response(
            self._timed(short.runs), self._nominal, kernels=kernels, own=own, group=self._per_unit, before=self._response
        )
        self._channels = tuple(response.channel if one is self._total else one for one in self._channels)
        self._response, self._total = response, response.channel
        explained = np.flatnonzero(~np.isnan(response.late_s)).tolist()
        self._excluded += len(short.runs) - len(explained)
        short.runs[:] = [replace(short.runs[index], late_s=float(response.late_s[index])) for index in explained]
        begin_s, late_s = [run.begin_s[0] for run in short.runs], np.array([run.late_s for run in short.runs])
        for long in long_runs:
            # Merged units too: where the delay jumped, the begin of a run would be seen a sample too early or too late.
            late = late_among([run.begin_s[0] for run in long.runs], begin_s, late_s).tolist()
            long.runs[:] = [replace(run, late_s=by) for run, by in zip(long.runs, late, strict=True) if not math.isnan(by)]

    # ---- bursts, runs and fits -----------------------------------------------------------------------------------

    def _burst(self, executions: int) -> Burst:
        if self._alternate:
            return Burst((*self._before, (self._kernel, 1)) * executions)
        return Burst((*self._before, (self._kernel, executions)))

    def _new_burst_runs(self, units: int) -> BurstRuns:
        """Register a burst of a number of units, without any runs yet."""
        self._collected.append(BurstRuns(self._burst(units * self._group)))
        return self._collected[-1]

    def _own(self, collected: BurstRuns) -> int:
        return collected.burst.kernels.index(self._kernel)

    def _run(self, into: BurstRuns, runs: int, bench: PreparedBurst | None = None, *, budget: float = 1.0) -> None:
        """Collect more runs, until a fraction of the budget is spent."""
        if bench is None:
            with self._instrument.prepare(into.burst) as prepared:
                self._run(into, runs, prepared, budget=budget)
            return
        self._planned = max(self._planned, self._done + runs)
        self._progress.begin(self._planned, self._done)
        for _ in range(runs):
            if into.runs and self._over_budget(budget):
                return
            rest_s = rest_before_run_s(
                self._total, into.runs, self._instrument.now_s(), self._options.rest_s, self._rng,
                aligned=self._instrument.readings_by == "host",
            )  # fmt: skip
            into.runs.append(self._with_units_merged(bench.run(rest_s), self._own(into)))
            self._done += 1
            self._progress.step(f"{self._kernel.name}: {len(into.burst.order)} executions per run")

    def _with_units_merged(self, run: BurstRun, own: int) -> BurstRun:
        """A run in which executions that the sensor cannot tell apart count as one."""
        if self._total.span_s <= self._unit_s:
            return run
        run = merged_others(run, own, max(self._total.span_s / _UNITS_IN_SPAN, self._unit_s))
        return merged(run, own, self._group) if self._merge else run

    def _over_budget(self, fraction: float) -> bool:
        """Whether a fraction of the budget is spent."""
        return self._instrument.now_s() - self._started_s > fraction * self._options.budget_s

    @property
    def _per_unit(self) -> int:
        """Executions in a unit, as runs count them."""
        return 1 if self._merge else self._group

    def _fit_clocks(self) -> ClockFit:
        return fit_clocks(trip for one in self._collected for run in one.runs for trip in run.round_trips)

    def _timed(self, runs: Sequence[BurstRun]) -> list[TimedRun]:
        return on_host_clock(runs, self._instrument, self._fit_clocks())

    def _unit_times(self, timed: Sequence[TimedRun], of: BurstRuns, units: int) -> UnitTimes:
        return unit_times(timed, self._own(of), self._per_unit, units)

    def _fit_surface(self, kept: Sequence[BurstRuns], units: int) -> tuple[Surface, list[TimedRun]]:
        """Power fitted to the golden ones of some runs, each element of ``kept`` a kind of its own, and these runs."""
        kinds: list[int] = []
        chosen: list[TimedRun] = []
        for kind, one in enumerate(kept):
            timed = self._timed(one.runs)
            last_s = self._unit_times(timed, kept[0], units).time_s[:, -1]
            golden = [timed[index] for index in fullest_bin(last_s, self._guidance.margin, self._options.outliers)] or timed
            chosen += golden
            kinds += [kind] * len(golden)
        # More runs do not reduce what is left of the delay's error, so that it must not keep the search going.
        channel = replace(self._total, delay_error_s=0.0)
        surface = fit_surface(
            chosen, channel, kernels=len(kept[0].burst.kernels), own=self._own(kept[0]), group=self._per_unit,
            kinds=kinds, shaped=not self._merge,
        )  # fmt: skip
        return surface, chosen

    def _fall_short(self, note: str) -> None:
        self._complete = False
        self._notes.append(note)

    def _collection(self, kept: Sequence[BurstRuns], units: int, states: tuple[UnitRange, ...]) -> Collection:
        clocks = self._fit_clocks()
        apart = any(len(one.burst.order) > 2 * units * self._group for one in kept)  # readings of long runs scatter more
        runs = [run for one in kept for run in one.runs]
        return Collection(
            identity=self._instrument.identity,
            kernel=self._kernel.name,
            before=", ".join(f"{times} × {kernel.name}" for kernel, times in self._before),
            alternating=self._alternate,
            own=self._own(kept[0]),
            kernels=len(kept[0].burst.kernels),
            runs=tuple(self._timed(runs)),
            kinds=tuple(kind if apart else 0 for kind, one in enumerate(kept) for _ in one.runs),
            unsynchronised=tuple(on_host_clock(runs, self._instrument, None)),
            channels=self._channels,
            clocks=clocks,
            guidance=self._guidance,
            bin_rank=self._options.outliers,
            group=self._group,
            merged=self._merge,
            units=units,
            states=states,
            notes=tuple(self._notes),
            complete=self._complete,
            stopped=self._stopped,
        )
