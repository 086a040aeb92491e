"""How a sensor answers, found from the very runs that are profiled, where it is not known well enough beforehand.

The delay of an H200's power reading is 3 to 19 ms, another one from minute to minute: its sampling runs by a clock of its
own beside that of its stamps (by about 0.2 ms a second), and now and then a sample is skipped. Too different to be looked
up, and a profile shifts with it. The runs tell: with the wrong delay no power at all explains readings that end in many
places of a burst. The right one makes them likeliest; runs that no delay of the others explains are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from wastenot.devices.fine_grain import Channel
from wastenot.frontier.points import FloatArray, IndexArray
from wastenot.measurement.fingrav.collect import TimedRun
from wastenot.measurement.fingrav.design import rows_of_readings
from wastenot.measurement.fingrav.surface import Surface, fit_surface

_GRID = (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5)  # of the delay's error, that are tried first
_DRIFTS = (0.0, 2e-4)
_WIDTH_DOUBT = 0.04  # of the logarithm of the time constant or window, which cards of a model have in common
_DRIFT_DOUBT = 3e-4  # of the delay's drift, seconds a second
_LEFT_OUT = 5.0  # times the usual residual, from which a run is left out
_ROUNDS = 2


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """How a sensor answered.

    Attributes:
        channel: with delay, drift and width as found.
        kept: runs that it explains.
    """

    channel: Channel
    kept: IndexArray


def fit_response(
    runs: Sequence[TimedRun], channel: Channel, *, kernels: int, own: int, group: int, shaped: bool
) -> Response:
    """The delay, its drift, and the time constant or window that make readings likeliest.

    Args:
        runs: short ones from rest, with readings that end in many places of them.
        channel: as it is known; its ``delay_error_s`` says how far to look.
        kernels: in a run.
        own: the profiled one.
        group: executions in a unit.
        shaped: whether power is to vary inside executions.
    """
    middle_s = float(np.mean([run.zero_s for run in runs]))

    def at(place: FloatArray) -> Channel:
        stretch = float(np.exp(_WIDTH_DOUBT * place[1]))
        return replace(
            channel,
            delay_s=max(channel.delay_s + float(place[0]) * channel.delay_error_s, 0.0),
            lag_s=channel.lag_s * stretch,
            window_s=channel.window_s * stretch,
            delay_drift=_DRIFT_DOUBT * float(place[2]),
            delay_at_s=middle_s,
        )

    def fitted(place: FloatArray, chosen: IndexArray) -> Surface:
        looked = [runs[index] for index in chosen]
        return fit_surface(looked, at(place), kernels=kernels, own=own, group=group, shaped=shaped)

    kept: IndexArray = np.arange(len(runs))
    place = np.zeros(3)
    for turn in range(_ROUNDS + 1):
        place = _likeliest(lambda tried, chosen=kept: fitted(tried, chosen).unlikeliness + float(tried @ tried), place, turn)
        surface = fitted(place, kept)
        off = np.array([_worst(surface, run, at(place), own, group) for run in runs])
        usual = max(1.4826 * float(np.median(off[kept])), surface.idle_w * 1e-3)
        found = np.flatnonzero(off <= _LEFT_OUT * usual)
        if turn == _ROUNDS or len(found) == len(kept) or len(found) < len(runs) // 2:
            break
        kept = found
    known = replace(at(place), delay_error_s=0.0, source=f"{channel.source}; delay and width fitted to these runs")
    return Response(known, kept)


def _likeliest(unlikeliness: object, start: FloatArray, turn: int) -> FloatArray:
    """Where it is least: from a grid at first, then from where it was."""
    assert callable(unlikeliness)
    if turn == 0:
        grid = [np.array([delay, 0.0, drift / _DRIFT_DOUBT]) for delay in _GRID for drift in _DRIFTS]
        start = min(grid, key=lambda place: float(unlikeliness(place)))
    simplex = np.vstack([start, start + np.diag([0.15, 0.5, 0.4])])
    found = minimize(
        unlikeliness, start, method="Nelder-Mead",
        options={"initial_simplex": simplex, "xatol": 0.01, "fatol": 0.3, "maxiter": 45},
    )  # fmt: skip
    return np.asarray(found.x, dtype=float)


def _worst(surface: Surface, run: TimedRun, channel: Channel, own: int, group: int) -> float:
    """The largest residual of a run's readings, in watts."""
    rows, seen = rows_of_readings(run, channel, surface.basis, own, group, windows=True)
    return float(np.max(np.abs(seen / channel.gain - surface.explained(rows)), initial=0.0))
