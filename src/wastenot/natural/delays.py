r"""The delay of power readings over a sweep: found where kernels of different power follow each other.

power      ▔▔▔\_____/▔▔▔\_____/▔▔
readings      •     •        •          of each stretch of a run: how well does each delay explain them?
delay      ───────────────╮╭───         a line over all stretches, with jumps, that explains them best
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from wastenot.arrays import FloatArray, IndexArray
from wastenot.devices.instrument import Channel
from wastenot.natural.powers import IDLE, Sensed
from wastenot.natural.readings import Response
from wastenot.natural.seen import Load
from wastenot.sensors.delay import MAX_RUN_COST, run_delays_s, track_delay

_SEGMENT_READINGS = 12
_MOST_OFF = 3.0  # standard deviations beyond which a reading counts no more against a delay
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
    costs, moments, where = [], [], []
    for index, run in enumerate(sensed):
        powers = np.concatenate([*(power_w[load] for load in run.response.loads), power_w[IDLE]])
        expected_w = run.response.over_delays(powers, delays_s)
        off = (run.response.power_w[:, None] - expected_w) / np.hypot(noise_w, _MISFIT * expected_w)
        cost = np.minimum(off**2, _MOST_OFF**2)
        for segment in range(int(run.segment.max(initial=-1)) + 1):
            inside = run.segment == segment
            # A power that is wrong altogether makes every delay as unlikely: only differences count.
            of_segment = cost[inside].sum(axis=0)
            costs.append(np.minimum(of_segment - of_segment.min(), 0.99 * MAX_RUN_COST))
            moments.append(float(run.response.moment_s[inside].mean()))
            where.append((index, segment))
    order = np.argsort(moments)
    at_s = np.array(moments)[order]
    track = track_delay(np.array(costs)[order], at_s, channel)
    found = {}
    for position, late_s in zip(order.tolist(), track.late_s.tolist(), strict=True):
        found[where[position]] = 0.0 if np.isnan(late_s) else late_s
    result = []
    for index, run in enumerate(sensed):
        late = np.array([found[index, segment] for segment in range(int(run.segment.max(initial=-1)) + 1)])
        line = track.delay_s + track.drift * (run.response.moment_s - track.at_s)
        result.append(Sensed(run.own, run.response, np.maximum(line + late[run.segment], 0.0), run.segment))
    return result
