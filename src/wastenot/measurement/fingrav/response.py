"""How a sensor answers, found from the very runs that are profiled, where it is not known well enough beforehand.

The delay of one H200's power reading is 6 ms, that of the next 16: too different to be looked up, and a profile shifts with
it. The runs tell: with the wrong delay or time constant no power at all explains readings that end in many places of a
burst. The right ones make the readings likeliest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize

from wastenot.devices.fine_grain import Channel
from wastenot.frontier.points import FloatArray
from wastenot.measurement.fingrav.collect import TimedRun
from wastenot.measurement.fingrav.surface import fit_surface

_MOST_RUNS = 400  # that are looked at; more say little more and take longer
_GRID = (-1.0, -0.5, 0.0, 0.5, 1.0)  # of the delay's error, that are tried first
_WIDTH_DOUBT = 0.04  # of the logarithm of the time constant or window, which cards of a model have in common


def fit_response(runs: Sequence[TimedRun], channel: Channel, *, kernels: int, own: int, group: int, shaped: bool) -> Channel:
    """The channel with the delay, and the time constant or window, that make its readings likeliest.

    Args:
        runs: short ones from rest, with windows ending in many places of them.
        channel: as it is known; its ``delay_error_s`` says how far to look.
        kernels: in a run.
        own: the profiled one.
        group: executions in a unit.
        shaped: whether power is to vary inside executions.
    """
    looked = list(runs[:: max(len(runs) // _MOST_RUNS, 1)])

    def at(place: FloatArray) -> Channel:
        delay_s = max(channel.delay_s + float(place[0]) * channel.delay_error_s, 0.0)
        stretch = float(np.exp(_WIDTH_DOUBT * place[1]))
        return replace(channel, delay_s=delay_s, lag_s=channel.lag_s * stretch, window_s=channel.window_s * stretch)

    def unlikeliness(place: FloatArray) -> float:
        surface = fit_surface(looked, at(place), kernels=kernels, own=own, group=group, shaped=shaped)
        return surface.unlikeliness + float(place @ place)

    start = min(([delay, 0.0] for delay in _GRID), key=_of_list(unlikeliness))
    simplex = np.array([start, [start[0] + 0.2, 0.0], [start[0], 0.5]])
    found = minimize(
        unlikeliness, start, method="Nelder-Mead",
        options={"initial_simplex": simplex, "xatol": 0.02, "fatol": 0.5, "maxiter": 30},
    )  # fmt: skip
    return replace(at(found.x), delay_error_s=0.0, source=f"{channel.source}; delay and width fitted to these runs")


def _of_list(function: Callable[[FloatArray], float]) -> Callable[[list[float]], float]:
    return lambda place: function(np.array(place))
