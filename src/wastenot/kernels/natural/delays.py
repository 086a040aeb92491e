r"""The delay of power readings over a sweep: found where kernels of different power follow each other.

power      ▔▔▔\_____/▔▔▔\_____/▔▔
readings      •     •        •          of each stretch of a run: how well does each delay explain them?
delay      ───────────────╮╭───         a line over all stretches, with jumps, that explains them best
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.devices.instrument import Channel
from wastenot.kernels.natural.powers import IDLE, Sensed
from wastenot.kernels.natural.readings import GRID_S, Response
from wastenot.kernels.natural.seen import Load
from wastenot.meters.sensors.delay import MAX_RUN_COST, run_delays_s, track_delay

_SEGMENT_READINGS = 12
_MOST_OFF = 3.0  # standard deviations beyond which a reading counts no more against a delay
_MOST_OF_SEGMENT = 0.6 * MAX_RUN_COST  # less than a jump there and back
_MISFIT = 0.01  # relative error of powers while the delay is sought


def segments(response: Response) -> IndexArray:
    """Stretches of about a dozen readings, in which the delay counts as constant; shape (readings,)."""
    readings = len(response.moment_s)
    number = max(readings // _SEGMENT_READINGS, 1)
    return np.asarray(np.arange(readings) * number // max(readings, 1), dtype=np.intp)


def at_nominal_delay(own: Load, response: Response, channel: Channel) -> Sensed:
    """A run whose delay is taken to be as its channel says."""
    drifted = channel.delay_s + channel.delay_drift * (response.moment_s - channel.delay_at_s)
    return Sensed(own, response, np.maximum(drifted, 0.0), segments(response))


def with_delays(
    sensed: Sequence[Sensed], power_w: Mapping[Load, FloatArray], noise_w: float, channel: Channel
) -> list[Sensed]:
    """Runs with the delays that explain their readings best, given the power of each load.

    Args:
        sensed: runs.
        power_w: of each load at its knots.
        noise_w: standard deviation of a reading.
        channel: what is known of the delay beforehand.
    """
    if not channel.delay_error_s or not sensed:
        return list(sensed)
    delays_s = run_delays_s(channel)
    # Phases that recur would explain readings as well with a delay that is wrong by one of their periods.
    likely = np.abs(delays_s - channel.delay_s) <= 0.5 * channel.sample_s + channel.delay_error_s
    costs, moments, where, traces = [], [], [], []
    for index, run in enumerate(sensed):
        powers = np.concatenate([*(power_w[load] for load in run.response.loads), power_w[IDLE]])
        traces.append(run.response.grid @ powers)
        expected_w = run.response.over_delays(powers, delays_s)
        off = (run.response.power_w[:, None] - expected_w) / np.hypot(noise_w, _MISFIT * expected_w)
        cost = np.minimum(off**2, _MOST_OFF**2)
        for segment in range(int(run.segment.max(initial=-1)) + 1):
            inside = run.segment == segment
            # A power that is wrong altogether makes every delay as unlikely: only differences count, and not without bound.
            of_segment = cost[inside].sum(axis=0)
            capped = np.minimum(of_segment - of_segment[likely].min(), _MOST_OF_SEGMENT)
            costs.append(np.where(likely, np.maximum(capped, 0.0), MAX_RUN_COST))
            moments.append(float(run.response.moment_s[inside].mean()))
            where.append((index, segment))
    order = np.argsort(moments)
    at_s = np.array(moments)[order]
    track = track_delay(np.array(costs)[order], at_s, channel)
    late_s = np.nan_to_num(track.late_s)
    ordered = [where[position] for position in order.tolist()]
    by_run = [np.zeros(len(run.response.moment_s)) for run in sensed]
    for late, (index, segment) in zip(late_s.tolist(), ordered, strict=True):
        by_run[index][sensed[index].segment == segment] = late
    lines_s = [track.delay_s + track.drift * (run.response.moment_s - track.at_s) for run in sensed]
    for number in np.flatnonzero(np.diff(late_s) != 0.0).tolist():
        _place_jump(sensed, by_run, lines_s, traces, ordered[number : number + 2], late_s[number : number + 2])
    return [
        Sensed(run.own, run.response, np.maximum(line_s + late, 0.0), run.segment)
        for run, line_s, late in zip(sensed, lines_s, by_run, strict=True)
    ]


def _place_jump(
    sensed: Sequence[Sensed],
    late_s: Sequence[FloatArray],
    lines_s: Sequence[FloatArray],
    traces: Sequence[FloatArray],
    segments: Sequence[tuple[int, int]],
    before_and_after_s: FloatArray,
) -> None:
    """Move a jump of the delay from between two segments to between the two readings where it explains most."""
    costs: list[FloatArray] = []
    places: list[tuple[int, IndexArray]] = []
    for index, segment in segments:
        run = sensed[index]
        inside = np.flatnonzero(run.segment == segment)
        of_segment = np.empty((2, len(inside)))
        for side, late in enumerate(before_and_after_s.tolist()):
            position = (run.response.moment_s - lines_s[index] - late - run.response.start_s)[inside] / GRID_S
            expected_w = np.interp(position, np.arange(len(traces[index])), traces[index])
            of_segment[side] = np.minimum(((run.response.power_w[inside] - expected_w) / (_MISFIT * expected_w)) ** 2, 9.0)
        costs.append(of_segment)
        places.append((index, inside))
    before, after = np.concatenate(costs, axis=1)
    total = np.concatenate([[0.0], np.cumsum(before - after)])  # cost of a jump before each reading, but for a constant
    jump = int(np.argmin(total))
    first = 0
    for index, inside in places:
        number = np.arange(first, first + len(inside))
        late_s[index][inside] = np.where(number < jump, before_and_after_s[0], before_and_after_s[1])
        first += len(inside)
