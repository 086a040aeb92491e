"""A sensor's response fitted to the very runs that are profiled, where it is not known precisely enough beforehand.

The delay of an H200's power reading is 0 to 23 ms and changes from minute to minute: it drifts by about 0.2 ms per
second and jumps back by 20 ms. It cannot be looked up, and an error shifts the whole profile. But the runs show it: with
the wrong delay no power explains readings that end at many moments of a burst. The right one makes them likeliest; runs
that no delay explains are excluded.

A power that rises and falls at once and changes only slowly in between is first fitted to some runs, too few for more than
one jump. It gives an estimate of the delay of every run, and the track that these lie on is found; then power, width and
track are fitted to all runs. (A power that could do anything at its edges would not determine delays.) Only runs of the same
pace are fitted, as slower ones end later, which looks like another delay; they get the delay of those around them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.blas import single_threaded
from wastenot.devices.instrument import Channel
from wastenot.meters.sensors.delay import MAX_RUN_COST, DelayTrack, run_delays_s, track_delay
from wastenot.profiles.design import Design, informative
from wastenot.profiles.runs import TimedRun, fullest_bin
from wastenot.profiles.surface import Surface, design_of, posterior

_GRID_S, _GRID_ERRORS = 1e-3, 1.5  # between the first delays tried, and how many errors of the delay they extend
_AROUND_TRACK_S = np.arange(-4e-3, 4.1e-3, 1e-3)  # around a track's delay, which may be a side minimum
_DRIFTS = (0.0, 2e-4)
_FIRST_RUNS = 40
_PACE_MARGIN, _FEWEST_ALIKE = 0.05, 15  # runs of the same pace, and how many of them are enough
_WIDTH_ERROR = 0.04  # of the logarithm of the lag or window, which is nearly the same for all cards of a model
_DRIFT_ERROR = 3e-4  # of the delay's drift, seconds per second
_MISFIT = 3e-3  # of the range of power, by which readings may be off on top of noise
_CURVATURE_S = 3e-4  # from a fitted delay, at which the evidence is compared with its own
_RISE_ERROR_S = 2.5e-4  # of a fitted delay, since power does not rise at once: what settles in a millisecond counts as delay
_ROUNDS = 2
_FIRST_ITERATIONS, _ITERATIONS = 15, 35


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """How a sensor responds.

    Attributes:
        channel: with the fitted delay and its error, drift and width.
        late_s: by which each run was later than that; NaN for runs that it does not explain; shape (runs,).
        surface: the coarse power that it was fitted with.
    """

    channel: Channel
    late_s: FloatArray
    surface: Surface


@single_threaded()
def fit_response(
    runs: Sequence[TimedRun], channel: Channel, *, kernels: int, own: int, group: int, before: Response | None = None
) -> Response:
    """The delay with its drift and jumps, and the lag or window, that make readings likeliest.

    Args:
        runs: short ones from rest in order of time, with readings that end at many moments of them.
        channel: as known; its ``delay_error_s`` limits the search, delays jump by its ``sample_s``.
        kernels: number of kernels in a run.
        own: index of the profiled one.
        group: executions in a unit.
        before: the fit to fewer runs, which the search starts from.
    """
    every = runs
    alike = _of_the_same_pace(runs, own)
    runs = [replace(runs[index], late_s=0.0) for index in alike]

    def coarse_design(of: Sequence[TimedRun]) -> Design:
        return design_of(of, kernels=kernels, own=own, group=group, shaped=False, coarse=True)

    def fit(design: Design, at: Channel) -> Surface:
        readings = [(rows, power_w / at.gain) for rows, power_w in design.readings(at)]
        return posterior([readings], design.basis, own, at.noise_w)

    def likeliest(design: Design, track: DelayTrack | None) -> Channel:
        search = _Search(channel, float(np.mean([run.zero_s for run in design.runs])))
        return search.likeliest(lambda at: fit(design, at).negative_log_evidence, track)

    if before is None:
        parts = [runs[:_FIRST_RUNS]]
        if channel.sample_s and len(runs) > _FIRST_RUNS:
            parts.append(runs[-_FIRST_RUNS:])  # a jump in the middle spoils one of them, but hardly both
        designs = [coarse_design(part) for part in parts]
        fits = [(at, fit(design, at)) for design in designs for at in [likeliest(design, None)]]
        fitted, surface = min(fits, key=lambda one: one[1].noise_w)
    else:
        fitted, surface = before.channel, before.surface
    for _ in range(_ROUNDS if before is None else 1):
        unsure = replace(fitted, delay_s=channel.delay_s, delay_error_s=channel.delay_error_s)
        costs = _delay_costs(Design(runs, surface.basis, own, group), surface, unsure)
        track = track_delay(costs, np.array([run.zero_s for run in runs]), unsure)
        lateness = zip(runs, track.late_s.tolist(), strict=True)
        design = coarse_design([replace(run, late_s=late_s) for run, late_s in lateness if not np.isnan(late_s)])
        fitted = likeliest(design, track)
        surface = fit(design, fitted)
    error_s = min(_delay_error_s(lambda at: fit(design, at).negative_log_evidence, fitted), channel.delay_error_s)
    known = replace(fitted, delay_error_s=error_s, source=f"{channel.source}; delay and width fitted to these runs")
    late_s = late_among([run.zero_s for run in every], [run.zero_s for run in runs], track.late_s)
    late_s[alike] = track.late_s
    return Response(known, late_s, surface)


def late_among(moment_s: Sequence[float], known_s: Sequence[float], known_late_s: FloatArray) -> FloatArray:
    """By which runs at some moments are late, from others in order of time; NaN where those around them disagree.

    If the delay jumped in between, a reading could be of either of two moments.
    """
    told = ~np.isnan(known_late_s)
    if not told.any():
        return np.full(len(moment_s), np.nan)
    late_s = known_late_s[told]
    after = np.searchsorted(np.asarray(known_s)[told], moment_s)
    before_s, after_s = late_s[np.maximum(after - 1, 0)], late_s[np.minimum(after, len(late_s) - 1)]
    return np.asarray(np.where(before_s == after_s, after_s, np.nan))


def _of_the_same_pace(runs: Sequence[TimedRun], own: int) -> IndexArray:
    """Indices of the runs whose executions of the profiled kernel take the same time; all if these are too few."""
    took_s = np.array([run.end_s[-1] - run.begin_s[np.argmax(run.kernel == own)] for run in runs])
    alike = fullest_bin(took_s, _PACE_MARGIN)
    return alike if len(alike) >= _FEWEST_ALIKE else np.arange(len(runs))


def _delay_error_s(negative_log_evidence: Callable[[Channel], float], fitted: Channel) -> float:
    """Standard error of a fitted delay: by the evidence's curvature, and of the assumption that power rises at once."""
    earlier, at, later = (
        negative_log_evidence(replace(fitted, delay_s=fitted.delay_s + step_s))
        for step_s in (-_CURVATURE_S, 0.0, _CURVATURE_S)
    )
    curvature = max(earlier + later - 2.0 * at, 1e-9) / _CURVATURE_S**2  # of the doubled negative logarithm
    return math.hypot(math.sqrt(2.0 / curvature), _RISE_ERROR_S)


def _delay_costs(design: Design, surface: Surface, channel: Channel) -> FloatArray:
    """Cost of each delay for each run, given its power; shape (runs, delays)."""
    delays_s = run_delays_s(channel)
    peak_w = float(surface.unit_means(0, surface.units).power_w.max())
    usual_w = float(np.hypot(surface.noise_w, _MISFIT * (peak_w - surface.idle_w)))
    used = [informative(run, channel) for run in design.runs]
    logs = [run.readings[channel.name] for run in design.runs]
    ends_s = [(log.moment_s[chosen][:, None] - delays_s).ravel() for log, chosen in zip(logs, used, strict=True)]
    costs = np.empty((len(logs), len(delays_s)))
    for index, rows in enumerate(design.rows(channel, ends_s)):
        expected_w = surface.expected(rows).reshape(-1, len(delays_s))
        off = (logs[index].power_w[used[index]][:, None] / channel.gain - expected_w) / usual_w
        costs[index] = np.minimum(np.sum(off**2, axis=0), MAX_RUN_COST)
    return costs


def response_notes(response: Response, excluded: int) -> list[str]:
    """What a reader of a profile should know about it, ``excluded`` runs included."""
    channel = response.channel
    notes = [f"{excluded} runs left out, whose readings came later or earlier than those of the others"] if excluded else []
    width = f"a lag of {1e3 * channel.lag_s:.3g} ms" if channel.lag_s else f"a mean over {1e3 * channel.window_s:.3g} ms"
    drift = f"growing by {1e3 * channel.delay_drift:.2g} ms per second"
    jumps = f" and jumping by {1e3 * channel.sample_s:.3g} ms" if np.nanmax(np.abs(response.late_s)) > 0.0 else ""
    usual_s = channel.delay_s + float(np.nanmedian(response.late_s))  # in the middle of the time
    return [*notes, f"readings taken as {width}, {1e3 * usual_s:.3g} ms late, {drift}{jumps}, estimated from these runs"]


@dataclass(frozen=True, slots=True)
class _Search:
    """A search over the delay, width and drift of a channel, each in units of its prior error."""

    channel: Channel
    at_s: float  # moment of the host's clock at which delays are given

    def at(self, position: FloatArray) -> Channel:
        """The channel with this delay, width and drift."""
        width = float(np.exp(_WIDTH_ERROR * position[1]))
        return replace(
            self.channel,
            delay_s=max(self.channel.delay_s + float(position[0]) * self.channel.delay_error_s, 0.0),
            lag_s=self.channel.lag_s * width,
            window_s=self.channel.window_s * width,
            delay_drift=_DRIFT_ERROR * float(position[2]),
            delay_at_s=self.at_s,
        )

    def likeliest(self, negative_log_evidence: Callable[[Channel], float], track: DelayTrack | None) -> Channel:
        """The likeliest channel, starting from the best of a grid or around a track."""

        def cost(position: FloatArray) -> float:
            return negative_log_evidence(self.at(position)) + float(position @ position)

        error_s = self.channel.delay_error_s
        if track is None:
            number = round(_GRID_ERRORS * error_s / _GRID_S)
            delays = _GRID_S / error_s * np.arange(-number, number + 1)
            starts = [np.array([delay, 0.0, drift / _DRIFT_ERROR]) for delay in delays for drift in _DRIFTS]
        else:
            off = (track.delay_s + track.drift * (self.at_s - track.at_s) - self.channel.delay_s) / error_s
            starts = [np.array([off + around_s / error_s, 0.0, track.drift / _DRIFT_ERROR]) for around_s in _AROUND_TRACK_S]
        start = min(starts, key=cost)
        simplex = np.vstack([start, start + np.diag([0.15, 0.5, 0.4])])
        iterations = _ITERATIONS if track else _FIRST_ITERATIONS
        optimum = minimize(
            cost, start, method="Nelder-Mead",
            options={"initial_simplex": simplex, "xatol": 0.01, "fatol": 0.3, "maxiter": iterations},
        )  # fmt: skip
        return self.at(np.asarray(optimum.x, dtype=float))
