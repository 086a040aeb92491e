"""How a sensor answers, found from the very runs that are profiled, where it is not known well enough beforehand.

The delay of an H200's power reading is 0 to 23 ms, another one from minute to minute: it drifts by about 0.2 ms a second and
jumps back by 20 ms. Too different to be looked up, and a profile shifts with it. The runs tell: with the wrong delay no
power at all explains readings that end in many places of a burst. The right one makes them likeliest; runs that no delay
explains are left out.

Power that comes and goes at once and changes but slowly in between is fitted to a stretch of runs first, too short for more
than one jump. By it every run tells its own delay more or less well, and the track that they lie on is found; then power,
width and track are fitted to all of them. (A power that may do anything at its edges would not tell delays.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from wastenot.arrays import FloatArray
from wastenot.blas import single_threaded
from wastenot.devices.instrument import Channel
from wastenot.profiling.collect import TimedRun
from wastenot.profiling.delay_track import find_track
from wastenot.profiling.design import Design
from wastenot.profiling.surface import Surface, design_of, posterior
from wastenot.sensors.delay import DelayTrack

_GRID_S, _GRID_REACH = 1e-3, 1.5  # between delays that are tried first, and how many of their errors off
_AGAIN_S = np.arange(-4e-3, 4.1e-3, 1e-3)  # around what a track says, as it may have come from a side minimum
_DRIFTS = (0.0, 2e-4)
_STRETCH = 40  # runs of the first look
_WIDTH_DOUBT = 0.04  # of the logarithm of the time constant or window, which cards of a model have in common
_DRIFT_DOUBT = 3e-4  # of the delay's drift, seconds a second
_ROUNDS = 2
_FIRST_STEPS, _STEPS = 15, 35  # of a search


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """How a sensor answered.

    Attributes:
        channel: with delay, drift and width as found.
        late_s: of each run, by which it was later than that; NaN for runs that it does not explain; shape (runs,).
        surface: the coarse power that this was told by.
    """

    channel: Channel
    late_s: FloatArray
    surface: Surface


@single_threaded()
def fit_response(
    runs: Sequence[TimedRun], channel: Channel, *, kernels: int, own: int, group: int, before: Response | None = None
) -> Response:
    """The delay, its drift and jumps, and the time constant or window that make readings likeliest.

    Args:
        runs: short ones from rest in order of time, with readings that end in many places of them.
        channel: as it is known; its ``delay_error_s`` says how far to look, its ``sample_s`` by how much delays jump.
        kernels: in a run.
        own: the profiled one.
        group: executions in a unit.
        before: what fewer runs told; looking begins there.
    """
    runs = [replace(run, late_s=0.0) for run in runs]

    def designed(looked: Sequence[TimedRun]) -> Design:
        return design_of(looked, kernels=kernels, own=own, group=group, shaped=False, coarse=True)

    def fitted(design: Design, at: Channel) -> Surface:
        readings = [(rows, power_w / at.gain) for rows, power_w in design.readings(at)]
        return posterior([readings], design.basis, own, at.noise_w)

    def likeliest(design: Design, track: DelayTrack | None) -> Channel:
        tried = _Places(channel, float(np.mean([run.zero_s for run in design.runs])))
        return tried.likeliest(lambda at: fitted(design, at).negative_log_evidence, track)

    if before is None:
        # A jump in the middle of a stretch spoils it; two stretches are not both likely to have one.
        stretches = [runs[:_STRETCH], runs[-_STRETCH:]] if channel.sample_s and len(runs) > _STRETCH else [runs[:_STRETCH]]
        looks = [(one, likeliest(one, None)) for one in map(designed, stretches)]
        found, surface = min(((at, fitted(one, at)) for one, at in looks), key=lambda look: look[1].noise_w)
    else:
        found, surface = before.channel, before.surface
    for _ in range(_ROUNDS if before is None else 1):
        track = find_track(
            runs, surface, replace(found, delay_s=channel.delay_s, delay_error_s=channel.delay_error_s), own, group
        )
        design = designed(
            [
                replace(run, late_s=float(late_s))
                for run, late_s in zip(runs, track.late_s, strict=True)
                if not np.isnan(late_s)
            ]
        )
        found = likeliest(design, track)
        surface = fitted(design, found)
    known = replace(found, delay_error_s=0.0, source=f"{channel.source}; delay and width fitted to these runs")
    return Response(known, track.late_s, surface)


def words_of(response: Response, left_out: int) -> list[str]:
    """What a reader of a profile should know of it."""
    found = response.channel
    said = [f"{left_out} runs left out, whose readings came later or earlier than those of the others"] if left_out else []
    width = f"a lag of {1e3 * found.lag_s:.3g} ms" if found.lag_s else f"a mean over {1e3 * found.window_s:.3g} ms"
    drift = f"growing by {1e3 * found.delay_drift:.2g} ms a second"
    jumps = f" and jumping by {1e3 * found.sample_s:.3g} ms" if np.nanmax(np.abs(response.late_s)) > 0.0 else ""
    usual_s = found.delay_s + float(np.nanmedian(response.late_s))  # in the middle of the time
    return [*said, f"readings taken as {width}, {1e3 * usual_s:.3g} ms late, {drift}{jumps}, as these runs tell"]


@dataclass(frozen=True, slots=True)
class _Places:
    """Delays, widths and drifts of a channel, in units of their doubts.

    Attributes:
        channel: as it is known.
        at_s: moment of the host's clock that delays are told at.
    """

    channel: Channel
    at_s: float

    def at(self, place: FloatArray) -> Channel:
        """The channel there."""
        stretch = float(np.exp(_WIDTH_DOUBT * place[1]))
        return replace(
            self.channel,
            delay_s=max(self.channel.delay_s + float(place[0]) * self.channel.delay_error_s, 0.0),
            lag_s=self.channel.lag_s * stretch,
            window_s=self.channel.window_s * stretch,
            delay_drift=_DRIFT_DOUBT * float(place[2]),
            delay_at_s=self.at_s,
        )

    def likeliest(self, unlikeliness: Callable[[Channel], float], track: DelayTrack | None) -> Channel:
        """The least unlikely channel: from a grid on, or from a track."""

        def cost(place: FloatArray) -> float:
            return unlikeliness(self.at(place)) + float(place @ place)

        if track is None:
            number = round(_GRID_REACH * self.channel.delay_error_s / _GRID_S)
            delays = _GRID_S / self.channel.delay_error_s * np.arange(-number, number + 1)
            grid = [np.array([delay, 0.0, drift / _DRIFT_DOUBT]) for delay in delays for drift in _DRIFTS]
        else:
            delay_s = track.delay_s + track.drift * (self.at_s - track.at_s)
            off = (delay_s - self.channel.delay_s) / self.channel.delay_error_s
            grid = [
                np.array([off + again / self.channel.delay_error_s, 0.0, track.drift / _DRIFT_DOUBT]) for again in _AGAIN_S
            ]
        start = min(grid, key=cost)
        simplex = np.vstack([start, start + np.diag([0.15, 0.5, 0.4])])
        found = minimize(
            cost, start, method="Nelder-Mead",
            options={"initial_simplex": simplex, "xatol": 0.01, "fatol": 0.3, "maxiter": _STEPS if track else _FIRST_STEPS},
        )  # fmt: skip
        return self.at(np.asarray(found.x, dtype=float))
