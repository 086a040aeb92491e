"""Runs of a profile: how many, how long, and which of their executions it is about. FinGraV's steps 1 to 7."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from wastenot.errors import DeviceError
from wastenot.profiling.assemble import LEAST_GOLDEN, RESOLVED, shape_error
from wastenot.profiling.collect import Collected, by_host
from wastenot.profiling.collecting import SENSOR_UNITS, Collecting
from wastenot.profiling.guidance import Guidance, executions_in_unit, guidance_for
from wastenot.profiling.material import Material, Stretch
from wastenot.profiling.response import fit_response, words_of
from wastenot.profiling.result import INTERRUPTED
from wastenot.profiling.steady_state import (
    FIRST_UNITS,
    FLAT,
    FLAT_KNOWN,
    FLAT_OF_MEANS,
    movement,
    steady_execution,
    steady_octaves,
    steady_power,
    swings,
)
from wastenot.profiling.units import units_of

_TIMED = 8  # executions that the first look is at
_LOOKS = 4
_PROBES = 50  # runs after which power is looked at while SSP is sought
_MOST_PROBES = 6  # times as many, before a movement counts as known
_SETTLING_UNITS = 6  # beyond SSE that are run at least, so that there is a plateau
_MORE_RUNS = 3.0  # times the guidance's runs, at most
_TRAINS, _SHORTS = 20, 60  # long and short runs after which the shape is looked at
_FEW_TRAINS = 4
_WORSE = 1.2  # times as badly known as SSP, from which SSE is worth more short runs
_SEEKING = 0.5  # of the time allowed, after which the search for SSP ends
_SHORT_RUNS = 0.4  # of it, for runs from rest where a sensor averages
_TRAIN_S, _TRAIN_PERIODS = 0.6, 30.0  # of the first long runs, at least
_LEARNT = 20  # runs from which a sensor's response can be learnt
_KNOWN = 0.5  # of what makes a shape worth showing, at which no more is measured


class Session(Collecting):
    """One profile in the making."""

    def profile(self) -> Material:
        """All of them but the last."""
        execution_s = self._time_it()
        self.group = 1 if self.alternate else self._group(execution_s)
        unit_s = self.unit_s = execution_s * self.group
        guidance = guidance_for(unit_s, self.options.runs, self.options.margin)
        context = bool(self.before) and not self.alternate
        units = self.options.units or (1 if context else 0)
        sse: int | None = None
        ssp = Stretch.at("SSP", max(units, 1) - 1)
        try:
            if self.averaging(unit_s) and not context:
                kept, units, sse, ssp = self._averaged(unit_s, guidance)
            else:
                if not units:
                    units, sse, ssp = self._seek(unit_s, guidance)
                kept, units = self._runs(ssp.first + 1, guidance, unit_s, context), ssp.first + 1
                if self.options.units and not context:
                    self._check_settled(kept, units, unit_s, guidance)
        except (DeviceError, KeyboardInterrupt) as error:
            kept = [one for one in self.collected[1:] if one.runs]
            if sum(len(one.runs) for one in kept) < LEAST_GOLDEN:
                raise
            self.complete, self.stopped = False, str(error) or INTERRUPTED
            # The last unit that all runs have is the nearest to SSP that there is.
            last = min(len(one.burst.order) // self.group for one in kept) - 1
            ssp = Stretch.at("SSP", min(ssp.first or units or last, last))
            units = ssp.first + 1
        if self.response is not None:
            self.notes += words_of(self.response, self.left_out)
        if context and self.averaging(unit_s):
            states: tuple[Stretch, ...] = (Stretch("in context", 0, units),)  # one by one they are beyond the sensor
        elif context or self.alternate:
            states = (Stretch.at("in context", 0 if context else ssp.first),)
        else:
            if sse is None:
                sse = min(self._sse(kept, ssp.first + 1, guidance), ssp.first)
            states = (Stretch.at("SSE", sse), ssp)
        return self._material(guidance, kept, units, states)

    def _sse(self, kept: Sequence[Collected], units: int, guidance: Guidance) -> int:
        runs = self._timed([run for one in kept for run in one.runs])
        return steady_execution(units_of(runs, self._own(kept[0]), self._each, units).time_s, guidance.margin)

    def _time_it(self) -> float:
        """Step 1: the time of an execution, from the last of a few."""
        timed = Collected(self._burst(_TIMED))
        self._collect(timed, _LOOKS)
        self.collected.append(timed)
        self._clocks()
        ours = len(timed.burst.kernels) - 1
        return float(np.median([(run.end_s - run.begin_s)[run.kernel == ours][-1] for run in timed.runs]))

    def _group(self, execution_s: float) -> int:
        """Executions in a unit: enough for the clock, and for a sensor that averages to tell units apart."""
        group = executions_in_unit(execution_s, self.instrument.resolution_s)
        sensor = math.ceil(self.total.span_s / SENSOR_UNITS / execution_s * (1 - 1e-9)) if self.averaging(execution_s) else 1
        if sensor > group:
            self.merge = True
            self.notes.append(
                f"{sensor} executions in a row are one unit: readings stand for about {1e3 * self.total.span_s:g} ms"
            )
        return max(group, sensor)

    def averaging(self, unit_s: float) -> bool:
        """Whether readings stand for more than a part of a unit."""
        return self.total.span_s > unit_s

    def _seek(self, unit_s: float, guidance: Guidance) -> tuple[int, int, Stretch]:
        """Step 3: units in a run, and which of them are SSE and SSP; by doubling, then halving."""
        units = FIRST_UNITS
        units = max(units, math.ceil(2.0 * self.total.period_s / unit_s))  # each run is to have readings in it
        while True:
            probe = self._begun(units)
            with self.instrument.prepare(probe.burst) as bench:
                for _ in range(_MOST_PROBES):
                    self._collect(probe, _PROBES, bench)
                    surface, timed = self._surface([probe], units, guidance)
                    moved, error = movement(surface, units)
                    if error <= FLAT_KNOWN or moved - error > 1.0 or self._spent(_SEEKING):
                        break
            sse = steady_execution(units_of(timed, self._own(probe), self._each, units).time_s, guidance.margin)
            if moved <= FLAT and units >= sse + _SETTLING_UNITS:
                return units, sse, Stretch.at("SSP", steady_power(surface, units, sse))
            if 2 * units * unit_s > self.options.longest_run_s or self._spent(_SEEKING):
                self._fall_short(_still_moved(units, unit_s))
                return units, sse, Stretch.at("SSP", units - 1)
            units *= 2

    def _check_settled(self, kept: Sequence[Collected], units: int, unit_s: float, guidance: Guidance) -> None:
        """Whether as many units as were asked for, in place of a search, are enough to see time and power settle."""
        if self._too_few(units, self._sse(kept, units, guidance)):
            return
        surface, _ = self._surface(kept, units, guidance)
        if movement(surface, units)[0] > FLAT:
            self._fall_short(_still_moved(units, unit_s))

    def _too_few(self, units: int, sse: int) -> bool:
        if units >= sse + _SETTLING_UNITS:
            return False
        self._fall_short(f"executions in a run: {units}, too few to tell which is SSE and which SSP")
        return True

    def _runs(self, units: int, guidance: Guidance, unit_s: float, context: bool) -> list[Collected]:
        """Steps 4 to 7: the runs of the guidance, and more where readings of interest are too few."""
        burst = self._burst(units * self.group)
        main = next((one for one in self.collected[1:] if one.burst == burst), None)
        if main is None:
            main = self._begun(units)
        wanted = 0 if self.averaging(unit_s) else guidance.readings(unit_s)
        limit = round(_MORE_RUNS * guidance.runs)
        with self.instrument.prepare(burst) as bench:
            self._collect(main, max(guidance.runs - len(main.runs), 0), bench)
            while (short := wanted - self._readings_of_interest(main, guidance, units - 1)) > 0:
                if len(main.runs) >= limit or self._spent(1.0):
                    break
                self._collect(main, min(max(4 * short, 20), limit - len(main.runs)), bench)
        self._learn_response(main)
        if short > 0:
            self._fall_short(f"too few readings of interest after {len(main.runs)} runs: {wanted} are asked for")
        return [one for one in self.collected[1:] if len(one.burst.order) >= len(burst.order)]

    def _averaged(self, unit_s: float, guidance: Guidance) -> tuple[list[Collected], int, int, Stretch]:
        """Steps 3 to 7 with a sensor that averages over many units: short runs from rest, long ones in steady state.

        Short runs are as long as a window, so that its edges lie at random places of them; they tell of SSE. In long ones
        every reading tells of the steady power; they are doubled until it no longer moves. Of both kinds more are made, of
        the one that is worse known, until the shape is known or the time is over.
        """
        units = self.options.units or max(math.ceil(self.total.span_s / unit_s), FIRST_UNITS)
        short = self._begun(units)
        self._collect(short, guidance.runs, share=_SHORT_RUNS)
        self._learn_response(short)
        length_s = max(_TRAIN_S, _TRAIN_PERIODS * self.total.period_s, 3.0 * self.total.span_s)
        length_s = min(length_s, self.options.longest_run_s)
        while True:
            train = self._begun(max(math.ceil(length_s / unit_s), units))
            trains = max(math.ceil(_TRAINS * _TRAIN_S / length_s), _FEW_TRAINS)
            self._long_runs(train, trains, short)
            kept = [short, train]
            surface, timed = self._surface(kept, units, guidance)
            moved, error = movement(surface, surface.units)
            still = moved - error <= FLAT_OF_MEANS
            if still or 2.0 * length_s > self.options.longest_run_s or self._spent(1.0):
                break
            length_s *= 2.0
        if not still:
            self._fall_short(f"power still moved after {length_s:.3g} s of executions")
        sse = steady_execution(units_of(timed, self._own(short), self._each, units).time_s, guidance.margin)
        # What is inside a group is beyond the sensor, however long it looks.
        while not self.merge and not self._spent(1.0):
            early, late = (shape_error(surface, units, unit, unit + 1) for unit in (sse, units - 1))
            if max(early, late) <= _KNOWN * RESOLVED:
                break
            if early > _WORSE * late:
                self._collect(short, max(_SHORTS, len(short.runs) // 2))
                self._learn_response(short, train)
            else:
                self._long_runs(train, trains, short)
            surface, _ = self._surface(kept, units, guidance)
        if self.options.units:
            self._too_few(units, sse)
        ssp = steady_power(surface, surface.units, sse)
        if still and ssp > surface.units // 2:
            ssp = steady_octaves(surface, surface.units, sse)
            if swings(surface, surface.units):
                self.notes.append("power swings in steady state: SSP is the mean of all executions from there on")
                return kept, max(units, ssp + 1), sse, Stretch("SSP", ssp, surface.units)
        return kept, max(units, ssp + 1), sse, Stretch.at("SSP", ssp)

    def _long_runs(self, train: Collected, runs: int, short: Collected) -> None:
        """More long runs; where delays drift, short ones after them tell by how much until then."""
        self._collect(train, runs)
        while self.untold.delay_error_s:
            self._collect(short, _LEARNT)
            self._learn_response(short, train)
            if train.runs or self._spent(1.0):
                return
            self._collect(train, runs)

    def _learn_response(self, short: Collected, *trains: Collected) -> None:
        """Where the sensor's delay is not known well enough, take it from short runs; long ones are like those around."""
        if not self.untold.delay_error_s or len(short.runs) < _LEARNT:
            return
        own, kernels = self._own(short), len(short.burst.kernels)
        response = fit_response(self._timed(short.runs), self.untold, kernels=kernels, own=own, group=self._each,
                                before=self.response)  # fmt: skip
        self.response, found = response, response.channel
        self.channels = tuple(found if channel is self.total else channel for channel in self.channels)
        self.total = found
        self.rests = self._rests()
        told = [place for place, late_s in enumerate(response.late_s) if not math.isnan(late_s)]
        self.left_out += len(short.runs) - len(told)
        short.runs[:] = [replace(short.runs[place], late_s=float(response.late_s[place])) for place in told]
        began_s = np.array([run.begin_s[0] for run in short.runs])
        for train in trains:
            after = np.searchsorted(began_s, [run.begin_s[0] for run in train.runs])
            late = [[short.runs[place].late_s for place in (max(at - 1, 0), min(at, len(told) - 1))] for at in after]
            # A delay that jumped in between would tell a wrong place in executions of every reading.
            train.runs[:] = [
                replace(run, late_s=before_s)
                for run, (before_s, after_s) in zip(train.runs, late, strict=True)
                if before_s == after_s or self.merge
            ]

    def _material(self, guidance: Guidance, kept: Sequence[Collected], units: int, states: tuple[Stretch, ...]) -> Material:
        fit, own = self._clocks(), self._own(kept[0])
        apart = any(len(one.burst.order) > 2 * units * self.group for one in kept)  # long runs scatter by more
        runs = [run for one in kept for run in one.runs]
        return Material(
            identity=self.instrument.identity,
            kernel=self.kernel.name,
            before=", ".join(f"{times} × {kernel.name}" for kernel, times in self.before),
            own=own,
            kernels=len(kept[0].burst.kernels),
            runs=tuple(self._timed(runs)),
            kinds=tuple(kind if apart else 0 for kind, one in enumerate(kept) for _ in one.runs),
            unsynchronised=tuple(by_host(runs, self.instrument, None)),
            channels=self.channels,
            clocks=fit,
            guidance=guidance,
            bin_rank=self.options.bin_rank,
            group=self.group,
            merged=self.merge,
            units=units,
            states=states,
            notes=tuple(self.notes),
            complete=self.complete,
            stopped=self.stopped,
        )


def _still_moved(units: int, unit_s: float) -> str:
    return f"power still moved after {units} executions ({1e3 * units * unit_s:.3g} ms); the last is taken as SSP"
