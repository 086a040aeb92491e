"""From collected runs to a profile: golden runs, surfaces, states. FinGraV's steps 5, 6 and 8."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from wastenot.arrays import FloatArray, IndexArray
from wastenot.devices.instrument import TOTAL, Channel
from wastenot.profiling.collect import TimedRun
from wastenot.profiling.design import middle_of, seen_until
from wastenot.profiling.golden import fullest_bin
from wastenot.profiling.material import Material, Stretch
from wastenot.profiling.result import ChannelFound, Clocks, Inside, Logged, Profile, State
from wastenot.profiling.surface import Surface, fit_surface
from wastenot.profiling.units import Units, units_of

LEVEL_WINDOW_S = 0.3
"""A channel that averages over more tells of levels in steady state only; it is never drawn in time."""

LEAST_GOLDEN = 10
"""Golden runs without which a profile is not complete."""

RESOLVED = 0.06
"""Share of the range from idle to peak, that a shape's error may be for it to be shown."""

TOLD = 0.02
"""The same that a mean's error may be."""

_TREND_DEGREE = 4  # FinGraV §V-B
_KEPT_LEVELS = 400


def assembled(material: Material) -> Profile:
    """The profile of some runs."""
    units = units_of(material.runs, material.own, material.each, material.units)
    golden = golden_runs(material)
    notes = list(material.notes)
    complete = material.complete and len(golden) >= LEAST_GOLDEN
    if len(golden) < LEAST_GOLDEN:
        notes.append(f"only {len(golden)} of {len(material.runs)} runs are golden, {LEAST_GOLDEN} are needed at least")
    if not len(golden):
        golden = np.arange(len(material.runs))
        notes.append("no run's executions all fall into the bin: what is shown is of all runs")
    golden_runs_timed = [material.runs[place] for place in golden]
    logged, interest = _logged(material, units, golden)
    surfaces = {
        channel.name: fit_surface(
            golden_runs_timed,
            channel,
            kinds=[material.kinds[place] for place in golden],
            kernels=material.kernels,
            own=material.own,
            group=material.each,
            shaped=not material.merged,
        )
        for channel in material.channels
        if channel.span_s < LEVEL_WINDOW_S
    }
    states = []
    for asked in material.states:
        stretch = _as_told(surfaces[TOTAL], material, asked) if TOTAL in surfaces else asked
        channels = {}
        for index, channel in enumerate(material.channels):
            chosen = interest & (logged.channel == index) & (logged.unit == stretch.first + 1)
            if channel.name in surfaces:
                channels[channel.name] = _inside(surfaces[channel.name], material.units, stretch, logged, chosen)
            else:
                level = _level(golden_runs_timed, channel, material, stretch.first)
                if level is not None:
                    channels[channel.name] = level
        time_s = float(np.nanmedian(_times(material, stretch)[golden]))
        states.append(State(stretch.name, stretch.first + 1, time_s, channels))
        if not channels[TOTAL].resolved:
            longer = "" if stretch == asked else f" of {stretch.until - stretch.first} in a row"
            notes.append(
                f"{stretch.name}: the sensor does not resolve the kernel in the time allowed: "
                f"a mean{longer} and a band are given, no shape"
            )
    found = tuple(_channel_found(channel, surfaces.get(channel.name), material) for channel in material.channels)
    fit = material.clocks
    return Profile(
        kernel=material.kernel,
        before=material.before,
        device=material.identity.label,
        model=material.identity.model,
        driver=material.identity.driver,
        origin=material.identity.origin,
        group=material.group,
        runs=len(material.runs),
        golden_runs=len(golden),
        margin=material.guidance.margin,
        bin_rank=material.bin_rank,
        readings_wanted=material.guidance.readings(states[-1].time_s),
        unit_begin_s=np.nanmedian(units.begin_s[golden], axis=0),
        unit_time_s=np.nanmedian(units.time_s[golden], axis=0),
        execution_time_s=_times(material, material.states[-1]),
        states=tuple(states),
        channels=found,
        logged=logged,
        clocks=Clocks(1e6 * fit.drift, fit.delay_s, fit.error_s),
        counter=None,
        complete=complete,
        stopped=material.stopped,
        notes=tuple(notes),
    )


def golden_runs(material: Material) -> IndexArray:
    """Runs whose units of interest, those that they have, are in the fullest bins of their times, each kind by itself.

    Long runs, as a sensor that averages calls for, are there for the last state alone: to its units only they come.
    """
    golden = np.zeros(len(material.runs), dtype=bool)
    times_s = [_times(material, stretch) for stretch in material.states]
    for kind in sorted(set(material.kinds)):
        ours = np.flatnonzero(np.array(material.kinds) == kind)
        fits, has = np.ones(len(ours), dtype=bool), np.zeros(len(ours), dtype=bool)
        for every_s in times_s[-1:] if kind else times_s:
            time_s = every_s[ours]
            there = np.flatnonzero(~np.isnan(time_s))
            chosen = there[fullest_bin(time_s[there], material.guidance.margin, material.bin_rank)]
            fits &= np.isnan(time_s) | np.isin(np.arange(len(ours)), chosen)
            has[there] = True
        golden[ours] = fits & has
    return np.flatnonzero(golden)


def shape_error(surface: Surface, units: int, first: int, until: int) -> float:
    """Root mean square of the power's standard errors inside units, as a share of the range from idle to peak."""
    peak_w = float(surface.mean(0, units).power_w.max())
    return float(np.sqrt(np.mean(surface.inside(first, until).error_w ** 2))) / max(peak_w - surface.idle_w, 1.0)


def _as_told(surface: Surface, material: Material, asked: Stretch) -> Stretch:
    """What was asked for where it is resolved; if not, so many units from there on as are needed to tell their mean."""
    if surface.shaped and shape_error(surface, material.units, asked.first, asked.until) <= RESOLVED:
        return asked
    units = surface.units if asked is material.states[-1] else material.units  # the last state stays as it is
    range_w = max(surface.range(min(asked.first, units - 1), units)[0] - surface.idle_w, 1.0)
    until = asked.until
    while until < units and surface.range(asked.first, until)[1] > TOLD * range_w:
        until = min(asked.first + 2 * (until - asked.first), units)
    return Stretch(asked.name, asked.first, until)


def _times(material: Material, stretch: Stretch) -> FloatArray:
    """Time of a unit in each run, the median of a stretch; NaN where a run does not have all of it; shape (runs,)."""
    time_s = units_of(material.runs, material.own, material.each, stretch.until).time_s[:, stretch.first :]
    return np.asarray(np.median(time_s, axis=1))


def _inside(surface: Surface, units: int, stretch: Stretch, logged: Logged, chosen: FloatArray) -> Inside:
    first, until = stretch.first, stretch.until
    band, (mean_w, mean_error_w) = surface.inside(first, until), surface.range(first, until)
    resolved = shape_error(surface, units, first, until) <= RESOLVED and surface.shaped
    share, power = logged.share[chosen], logged.power_w[chosen]
    trend: tuple[float, ...] = ()
    if len(share) > 2 * _TREND_DEGREE:
        trend = tuple(np.polynomial.Polynomial.fit(share, power, _TREND_DEGREE, domain=[0, 1], window=[0, 1]).coef.tolist())
    return Inside(
        mean_w,
        mean_error_w,
        (np.arange(surface.points) + 0.5) / surface.points,
        band.power_w if resolved else np.full(surface.points, mean_w),
        band.error_w,
        trend,
        int(np.count_nonzero(chosen)),
        resolved,
    )


def _level(runs: Sequence[TimedRun], channel: Channel, material: Material, unit: int) -> Inside | None:
    """Mean of readings whose windows lie in steady state altogether; ``None`` where there is none."""
    power = []
    for run in runs:
        ours = np.flatnonzero(run.kernel == material.own)
        settled_s = run.begin_s[ours[min((unit + 1) * material.each, len(ours) - 1)]]
        readings = run.readings[channel.name]
        end_s = seen_until(run, channel)
        power.append(readings.power_w[(end_s - channel.reach_s >= settled_s) & (end_s <= run.end_s[-1])])
    seen = np.concatenate(power) / channel.gain
    if not len(seen):
        return None
    error = float(seen.std() / np.sqrt(max(len(seen) * channel.period_s / channel.span_s, 1.0)))
    none = np.empty(0)
    return Inside(float(seen.mean()), error, none, none, none, (), len(seen), False)


def _channel_found(channel: Channel, surface: Surface | None, material: Material) -> ChannelFound:
    if surface is None:
        return ChannelFound(channel, math.nan, math.nan, math.nan, np.empty(0), np.empty(0))
    levels = surface.mean(0, min(material.units, _KEPT_LEVELS))
    steady_w, _ = surface.range(min(material.states[-1].first, surface.units - 1), surface.units)
    return ChannelFound(channel, surface.idle_w, surface.noise_w, steady_w, levels.power_w, levels.error_w)


def _logged(material: Material, units: Units, golden: IndexArray) -> tuple[Logged, FloatArray]:
    """All readings in rows, and which of them are golden and inside a unit."""
    rows: list[FloatArray] = []
    for place, (run, apart) in enumerate(zip(material.runs, material.unsynchronised, strict=True)):
        for index, channel in enumerate(material.channels):
            readings = run.readings[channel.name]
            middle = middle_of(run, channel)
            number = np.searchsorted(units.begin_s[place], middle, side="right") - 1
            clipped = np.clip(number, 0, None)
            share = (middle - units.begin_s[place][clipped]) / units.time_s[place][clipped]
            share = np.where(np.isnan(share), 1.0, share)
            inside = (number >= 0) & (share < 1.0)
            rows.append(
                np.stack(
                    [
                        np.full(len(middle), index),
                        np.full(len(middle), place),
                        np.full(len(middle), place in golden),
                        middle,
                        apart.readings[channel.name].moment_s,
                        np.where(inside, number + 1, 0),
                        np.where(inside, share, 0.0),
                        readings.power_w,
                    ]
                )
            )
    table = np.concatenate(rows, axis=1)
    whole = [table[row].astype(np.intp) for row in (0, 1, 2, 5)]
    logged = Logged(whole[0], whole[1], whole[2], table[3], table[4], whole[3], table[6], table[7])
    return logged, (logged.golden == 1) & (logged.unit > 0)
