r"""What power readings see of the kernels that ran: the sensor's response to 1 W of each, for any delay.

    kernels   ▮▮▮▮▮▮▯▯▯▯▯▯▯▯▯▮▮▮▮▮▮      1 W at a knot of a kernel's clock while it runs near there
    response  __/‾‾‾‾\______/‾‾‾‾\      a lag, or a mean over a window
    readings       •         •   ┊•      taken from it a delay earlier: read off the same response

The response is calculated once on a fine grid of time; readings of any delay are interpolated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.devices.instrument import TOTAL, Channel
from wastenot.kernels.natural.seen import Groups, Load, Recorded
from wastenot.planning.natural import hat_weights

GRID_S = 2.5e-4
"""Step of the grid of time."""

_FORGOTTEN_LAGS = 5.0
_BEFORE_S = 0.2  # for which the GPU counts as idle before the first group


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """The sensor's response to the loads of one run.

    Attributes:
        loads: of the run, the kernel of interest first.
        columns: where the knots of each load stand; the last column is idle.
        start_s: moment of the grid's first point, on the host's clock.
        grid: response at each point of the grid to 1 W in each column; shape (points, columns).
        moment_s: timestamps of the readings; shape (readings,).
        power_w: the readings, without the sensor's gain.
        temperature_c: mean over the run; NaN where it is unknown.
    """

    loads: tuple[Load, ...]
    columns: tuple[slice, ...]
    start_s: float
    grid: FloatArray
    moment_s: FloatArray
    power_w: FloatArray
    temperature_c: float

    def at(self, delay_s: FloatArray | float) -> FloatArray:
        """Response of each reading to 1 W in each column, where it is so late; shape (readings, columns)."""
        position = (self.moment_s - delay_s - self.start_s) / GRID_S
        position = np.clip(position, 0.0, len(self.grid) - 1.000001)
        left = np.asarray(position, dtype=np.intp)
        fraction = (position - left)[:, None]
        return np.asarray((1.0 - fraction) * self.grid[left] + fraction * self.grid[left + 1])

    def over_delays(self, power_w: FloatArray, delays_s: FloatArray) -> FloatArray:
        """What each reading would be with each delay, given the power of each column; shape (readings, delays)."""
        trace = self.grid @ power_w
        position = (self.moment_s[:, None] - delays_s[None, :] - self.start_s) / GRID_S
        return np.asarray(np.interp(position, np.arange(len(trace)), trace))


def response_of(run: Recorded, groups: Groups, knots: Mapping[Load, FloatArray]) -> Response | None:
    """The response of the total power's sensor to a run.

    Args:
        run: as recorded.
        groups: of it.
        knots: logarithms of clocks at which the power of each load is sought.

    Returns:
        ``None`` where no reading reflects the run.
    """
    channel = next((one for one in run.channels if one.name == TOTAL), None)
    log = run.timeline.readings.get(TOTAL)
    if channel is None or log is None or not len(groups.begin_s):
        return None
    latest_s = channel.delay_s + 3.0 * channel.delay_error_s
    # What ran before and after is not known: readings that show it say nothing.
    settled_s = _FORGOTTEN_LAGS * channel.lag_s or channel.window_s
    seen = (log.moment_s > groups.begin_s[0] + latest_s + settled_s) & (log.moment_s < groups.end_s[-1])
    if not np.any(seen):
        return None
    columns, number = [], 0
    for load in groups.loads:
        columns.append(slice(number, number + len(knots[load])))
        number += len(knots[load])
    start_s = float(groups.begin_s[0]) - max(_BEFORE_S, channel.reach_s) - latest_s
    points = int((groups.end_s[-1] + latest_s - start_s) / GRID_S) + 3
    moments = np.asarray(start_s + GRID_S * np.arange(points + 1), dtype=float)
    energy = _energy(groups, knots, columns, number, moments)
    demand = np.diff(energy, axis=0) / GRID_S
    demand = np.column_stack([demand, np.maximum(1.0 - demand.sum(axis=1), 0.0)])
    return Response(
        groups.loads,
        tuple(columns),
        start_s + GRID_S,
        _sensed(demand, channel),
        log.moment_s[seen],
        log.power_w[seen] / channel.gain,
        groups.temperature_c,
    )


def _energy(
    groups: Groups, knots: Mapping[Load, FloatArray], columns: Sequence[slice], number: int, moments: FloatArray
) -> FloatArray:
    """Energy used until moments, of 1 W at each knot; a stamp counts as part of the group that follows it."""
    weights = np.zeros((len(groups.begin_s), number))
    log_mhz = np.log(groups.core_mhz)
    for load, (name, where) in enumerate(zip(groups.loads, columns, strict=True)):
        ours: IndexArray = np.flatnonzero(groups.load == load)
        at = knots[name]
        weights[ours, where] = hat_weights(log_mhz[ours], at)
    begin_s = np.where(groups.rested > 0.0, groups.begin_s, np.concatenate([groups.begin_s[:1], groups.end_s[:-1]]))
    bounds = np.column_stack([begin_s, groups.end_s]).ravel()
    used = np.zeros((len(bounds), number))
    used[1::2] = weights * (groups.end_s - begin_s)[:, None]
    total = np.cumsum(used, axis=0)
    return np.column_stack([np.interp(moments, bounds, one) for one in total.T]) if number else np.zeros((len(moments), 0))


def _sensed(demand: FloatArray, channel: Channel) -> FloatArray:
    """A lag or a mean of what happens in each step of the grid, at the end of it."""
    before = np.zeros(demand.shape[1])
    before[-1] = 1.0
    if channel.lag_s > 0.0:
        keep = float(np.exp(-GRID_S / channel.lag_s))
        sensed, _ = lfilter([1.0 - keep], [1.0, -keep], demand, axis=0, zi=(keep * before)[None, :])
        return np.asarray(sensed)
    span = max(channel.window_s / GRID_S, 1.0)
    total = np.concatenate([np.zeros((1, demand.shape[1])), np.cumsum(demand, axis=0)])
    end = np.arange(1, len(total), dtype=float)
    begin = end - span
    at_begin = np.column_stack([np.interp(begin, np.arange(len(total)), one) for one in total.T])
    at_begin += np.minimum(begin, 0.0)[:, None] * before
    return np.asarray((total[1:] - at_begin) / span)
