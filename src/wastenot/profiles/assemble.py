"""From collected runs to a profile: golden runs, power surfaces, states. FinGraV's steps 5, 6 and 8."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray
from wastenot.devices.clock_fit import ClockFit
from wastenot.devices.instrument import TOTAL, Channel
from wastenot.devices.protocol import Identity
from wastenot.profiles.design import window_end_s, window_middle_s
from wastenot.profiles.guidance import Guidance
from wastenot.profiles.result import ChannelProfile, Clocks, Logged, Profile, State, UnitPower
from wastenot.profiles.runs import TimedRun, UnitTimes, fullest_bin, unit_clocks, unit_times
from wastenot.profiles.surface import Surface, fit_surface

LEVEL_WINDOW_S = 0.3
"""A channel that averages over more gives only levels in steady state; it is never resolved in time."""

MIN_GOLDEN_RUNS = 10
"""Golden runs without which a profile is not complete."""

RESOLVED = 0.10
"""Largest error of a shape that is still shown, as a fraction of the range from idle to peak."""

_MEAN_RESOLVED = 0.02  # the same for a mean
_TREND_DEGREE = 4  # FinGraV §V-B
_KEPT_LEVELS = 400


@dataclass(frozen=True, slots=True)
class UnitRange:
    """Consecutive units of a run that a state is about: one, or all from one on where power swings in steady state.

    Attributes:
        name: of the state.
        first: unit, from 0.
        until: the unit after the last.
    """

    name: str
    first: int
    until: int

    @classmethod
    def single(cls, name: str, unit: int) -> UnitRange:
        """One unit."""
        return cls(name, unit, unit + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Collection:
    """All that a profile is made from.

    Attributes:
        kernel, before, alternating: as in :class:`Profile`.
        own: index of the profiled kernel among those of a run.
        kernels: number of kernels in a run.
        runs: on the host's clock.
        kinds: a number for each run; the readings of each kind scatter by their own amount.
        unsynchronised: the same runs without synchronising the clocks.
        channels: of the readings, total first, with their response as fitted.
        clocks: fit of the GPU's clock to the host's.
        bin_rank: of the bin that golden runs are in.
        group: executions in a unit.
        merged: whether runs count units as single executions, since what is inside is beyond the sensor.
        units: in a run that resolves the states; long runs in steady state have more.
        states: that the profile is about.
        notes, complete, stopped: as in :class:`Profile`.
    """

    identity: Identity
    kernel: str
    before: str
    alternating: bool
    own: int
    kernels: int
    runs: tuple[TimedRun, ...]
    kinds: tuple[int, ...]
    unsynchronised: tuple[TimedRun, ...]
    channels: tuple[Channel, ...]
    clocks: ClockFit
    guidance: Guidance
    bin_rank: int
    group: int
    merged: bool
    units: int
    states: tuple[UnitRange, ...]
    notes: tuple[str, ...]
    complete: bool
    stopped: str

    @property
    def per_unit(self) -> int:
        """Executions in a unit, as runs count them."""
        return 1 if self.merged else self.group


def assemble(collection: Collection) -> Profile:
    """The profile of a collection of runs."""
    times = unit_times(collection.runs, collection.own, collection.per_unit, collection.units)
    golden = golden_runs(collection)
    notes = list(collection.notes)
    complete = collection.complete and len(golden) >= MIN_GOLDEN_RUNS
    if len(golden) < MIN_GOLDEN_RUNS:
        notes.append(f"only {len(golden)} of {len(collection.runs)} runs are golden; at least {MIN_GOLDEN_RUNS} are needed")
    if not len(golden):
        golden = np.arange(len(collection.runs))
        notes.append("no run has all its executions in the bin: all runs are shown")
    timed = [collection.runs[index] for index in golden]
    logged, of_interest = _logged(collection, times, golden)
    surfaces = {
        channel.name: fit_surface(
            timed,
            channel,
            kinds=[collection.kinds[index] for index in golden],
            kernels=collection.kernels,
            own=collection.own,
            group=collection.per_unit,
            shaped=not collection.merged,
        )
        for channel in collection.channels
        if channel.span_s < LEVEL_WINDOW_S
    }
    states = []
    for wanted in collection.states:
        state = _resolvable(surfaces[TOTAL], collection, wanted) if TOTAL in surfaces else wanted
        channels = {}
        for index, channel in enumerate(collection.channels):
            chosen = of_interest & (logged.channel == index) & (logged.unit == state.first + 1)
            if channel.name in surfaces:
                channels[channel.name] = _unit_power(surfaces[channel.name], collection.units, state, logged, chosen)
            else:
                level = _steady_level(timed, channel, collection, state.first)
                if level is not None:
                    channels[channel.name] = level
        time_s = float(np.nanmedian(_times(collection, state)[golden]))
        states.append(State(state.name, state.first + 1, time_s, channels))
        if not channels[TOTAL].resolved:
            longer = "" if state == wanted else f" of {state.until - state.first} in a row"
            notes.append(
                f"{state.name}: the sensor does not resolve the kernel in the time allowed: "
                f"a mean{longer} and a band are given, but no shape"
            )
    fit = collection.clocks
    return Profile(
        kernel=collection.kernel,
        before=collection.before,
        alternating=collection.alternating,
        device=collection.identity.label,
        model=collection.identity.model,
        driver=collection.identity.driver,
        origin=collection.identity.origin,
        group=collection.group,
        runs=len(collection.runs),
        golden_runs=len(golden),
        margin=collection.guidance.margin,
        bin_rank=collection.bin_rank,
        readings_wanted=collection.guidance.readings(states[-1].time_s),
        unit_begin_s=np.nanmedian(times.begin_s[golden], axis=0),
        unit_time_s=np.nanmedian(times.time_s[golden], axis=0),
        execution_time_s=_times(collection, collection.states[-1]),
        states=tuple(states),
        channels=tuple(_channel_profile(one, surfaces.get(one.name), collection) for one in collection.channels),
        logged=logged,
        clocks=Clocks(1e6 * fit.drift, fit.delay_s, fit.error_s),
        counter=None,
        complete=complete,
        stopped=collection.stopped,
        notes=tuple(notes),
        unit_counted_mhz=_unit_clocks(collection, timed),
    )


def _unit_clocks(collection: Collection, golden: Sequence[TimedRun]) -> FloatArray | None:
    """Median SM clock of each unit over golden runs; ``None`` where any is unknown."""
    clocks_mhz = unit_clocks(golden, collection.own, collection.per_unit, collection.units)
    if np.isnan(clocks_mhz).all(axis=0).any():
        return None
    return np.asarray(np.nanmedian(clocks_mhz, axis=0))


def golden_runs(collection: Collection) -> IndexArray:
    """Indices of runs whose units of interest, as far as they have them, are in the fullest bins; each kind by itself.

    Long runs, which a sensor that averages calls for, are there for the last state only, so that only its times count.
    """
    golden = np.zeros(len(collection.runs), dtype=bool)
    times_s = [_times(collection, state) for state in collection.states]
    for kind in sorted(set(collection.kinds)):
        ours = np.flatnonzero(np.array(collection.kinds) == kind)
        in_bins, has_units = np.ones(len(ours), dtype=bool), np.zeros(len(ours), dtype=bool)
        for state_s in times_s[-1:] if kind else times_s:
            time_s = state_s[ours]
            present = np.flatnonzero(~np.isnan(time_s))
            chosen = present[fullest_bin(time_s[present], collection.guidance.margin, collection.bin_rank)]
            in_bins &= np.isnan(time_s) | np.isin(np.arange(len(ours)), chosen)
            has_units[present] = True
        golden[ours] = in_bins & has_units
    return np.flatnonzero(golden)


def shape_error(surface: Surface, units: int, first: int, until: int) -> float:
    """Root mean square of the power's standard errors inside units, as a fraction of the range from idle to peak."""
    peak_w = float(surface.unit_means(0, units).power_w.max())
    return float(np.sqrt(np.mean(surface.inside(first, until).error_w ** 2))) / max(peak_w - surface.idle_w, 1.0)


def _resolvable(surface: Surface, collection: Collection, wanted: UnitRange) -> UnitRange:
    """The units wanted if their shape is resolved; if not, as many from there on as resolve their mean."""
    if surface.shaped and shape_error(surface, collection.units, wanted.first, wanted.until) <= RESOLVED:
        return wanted
    units = surface.units if wanted is collection.states[-1] else collection.units  # the last state lasts
    range_w = max(surface.mean(min(wanted.first, units - 1), units)[0] - surface.idle_w, 1.0)
    until = wanted.until
    while until < units and surface.mean(wanted.first, until)[1] > _MEAN_RESOLVED * range_w:
        until = min(wanted.first + 2 * (until - wanted.first), units)
    return UnitRange(wanted.name, wanted.first, until)


def _times(collection: Collection, state: UnitRange) -> FloatArray:
    """Median time of a state's units in each run; NaN where a run does not have all of them; shape (runs,)."""
    times = unit_times(collection.runs, collection.own, collection.per_unit, state.until)
    return np.asarray(np.median(times.time_s[:, state.first :], axis=1))


def _unit_power(surface: Surface, units: int, state: UnitRange, logged: Logged, chosen: BoolArray) -> UnitPower:
    first, until = state.first, state.until
    band, (mean_w, mean_error_w) = surface.inside(first, until), surface.mean(first, until)
    resolved = shape_error(surface, units, first, until) <= RESOLVED and surface.shaped
    fraction, power_w = logged.share[chosen], logged.power_w[chosen]
    trend: tuple[float, ...] = ()
    if len(fraction) > 2 * _TREND_DEGREE:
        line = np.polynomial.Polynomial.fit(fraction, power_w, _TREND_DEGREE, domain=[0, 1], window=[0, 1])
        trend = tuple(line.coef.tolist())
    return UnitPower(
        mean_w,
        mean_error_w,
        (np.arange(surface.points) + 0.5) / surface.points,
        band.power_w if resolved else np.full(surface.points, mean_w),
        band.error_w,
        trend,
        int(np.count_nonzero(chosen)),
        resolved,
    )


def _steady_level(runs: Sequence[TimedRun], channel: Channel, collection: Collection, unit: int) -> UnitPower | None:
    """Mean of the readings whose windows lie entirely in steady state; ``None`` if there are none."""
    readings_w = []
    for run in runs:
        ours = np.flatnonzero(run.kernel == collection.own)
        steady_from_s = run.begin_s[ours[min((unit + 1) * collection.per_unit, len(ours) - 1)]]
        end_s = window_end_s(run, channel)
        steady = (end_s - channel.reach_s >= steady_from_s) & (end_s <= run.end_s[-1])
        readings_w.append(run.readings[channel.name].power_w[steady])
    power_w = np.concatenate(readings_w) / channel.gain
    if not len(power_w):
        return None
    independent = max(len(power_w) * channel.period_s / channel.span_s, 1.0)
    none = np.empty(0)
    return UnitPower(
        float(power_w.mean()), float(power_w.std() / np.sqrt(independent)), none, none, none, (), len(power_w), False
    )


def _channel_profile(channel: Channel, surface: Surface | None, collection: Collection) -> ChannelProfile:
    if surface is None:
        return ChannelProfile(channel, math.nan, math.nan, math.nan, np.empty(0), np.empty(0))
    means = surface.unit_means(0, min(collection.units, _KEPT_LEVELS))
    steady_w, _ = surface.mean(min(collection.states[-1].first, surface.units - 1), surface.units)
    return ChannelProfile(channel, surface.idle_w, surface.noise_w, steady_w, means.power_w, means.error_w)


def _logged(collection: Collection, times: UnitTimes, golden: IndexArray) -> tuple[Logged, BoolArray]:
    """All readings as rows, and which of them are of interest: golden and inside a unit."""
    parts: list[Logged] = []
    for index, (run, unsynchronised) in enumerate(zip(collection.runs, collection.unsynchronised, strict=True)):
        for number, channel in enumerate(collection.channels):
            middle_s = window_middle_s(run, channel)
            unit = np.searchsorted(times.begin_s[index], middle_s, side="right") - 1
            clipped = np.clip(unit, 0, None)
            fraction = (middle_s - times.begin_s[index][clipped]) / times.time_s[index][clipped]
            fraction = np.where(np.isnan(fraction), 1.0, fraction)
            inside = (unit >= 0) & (fraction < 1.0)
            channel_index, run_index, is_golden = (
                np.full(len(middle_s), each, dtype=np.intp) for each in (number, index, index in golden)
            )
            asynchronous_s, power_w = unsynchronised.readings[channel.name].moment_s, run.readings[channel.name].power_w
            unit, fraction = np.where(inside, unit + 1, 0), np.where(inside, fraction, 0.0)
            parts.append(Logged(channel_index, run_index, is_golden, middle_s, asynchronous_s, unit, fraction, power_w))
    logged = Logged(*(np.concatenate([getattr(part, name) for part in parts]) for name in Logged.__slots__))
    return logged, (logged.golden == 1) & (logged.unit > 0)
