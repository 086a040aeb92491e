"""The delay of each run's readings, where the sensor samples by a clock of its own (:mod:`wastenot.sensors.delay`)."""

from __future__ import annotations

import numpy as np

from wastenot.arrays import FloatArray
from wastenot.devices.instrument import Channel
from wastenot.profiling.collect import TimedRun
from wastenot.profiling.design import Design, told_of
from wastenot.profiling.surface import Surface
from wastenot.sensors.delay import MAX_RUN_COST, DelayTrack, run_delays_s, track_delay

_MISFIT = 3e-3  # of the range of power, by which readings may be off on top of noise


def find_track(runs: list[TimedRun], surface: Surface, channel: Channel, own: int, group: int) -> DelayTrack:
    """Delays that explain the readings of runs best, given the power.

    Args:
        runs: in order of time.
        surface: power over their executions.
        channel: prior of the delay, and the size of its jumps; 0 for none.
        own: the profiled kernel.
        group: executions in a unit of it.
    """
    levels = surface.mean(0, surface.units).power_w
    usual_w = float(np.hypot(surface.noise_w, _MISFIT * (float(levels.max()) - surface.idle_w)))
    costs = _costs(Design(runs, surface.basis, own, group), surface, channel, run_delays_s(channel), usual_w)
    return track_delay(costs, np.array([run.zero_s for run in runs]), channel)


def _costs(design: Design, surface: Surface, channel: Channel, delays: FloatArray, usual_w: float) -> FloatArray:
    """Cost of each delay for each run, given the usual residual of a reading; shape (runs, delays)."""
    used = [told_of(run, channel) for run in design.runs]
    logs = [run.readings[channel.name] for run in design.runs]
    moments = [(log.moment_s[chosen][:, None] - delays).ravel() for log, chosen in zip(logs, used, strict=True)]
    costs = np.empty((len(logs), len(delays)))
    for index, rows in enumerate(design.rows(channel, moments)):
        expected_w = surface.explained(rows).reshape(-1, len(delays))
        off = (logs[index].power_w[used[index]][:, None] / channel.gain - expected_w) / usual_w
        costs[index] = np.minimum(np.sum(off**2, axis=0), MAX_RUN_COST)
    return costs
