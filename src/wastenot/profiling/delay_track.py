"""How late a sensor is from run to run, where it takes its samples by a clock of its own.

A reading is the latest sample there is. Both clocks are regular, so that the delay drifts evenly, until one sample more or
less lies between: then it jumps by the time between two of them. On an H200, 20 ms every 100 s or so.

    delay   │      ╱│     ╱│
            │    ╱  │   ╱  │   ╱
            │  ╱    │ ╱    │ ╱
            └──────────────────── time
               · ·· ·· · ·· ·      runs: each tells its own delay more or less well

The path of jumps that costs least is found for every drift and delay (Viterbi, IEEE Trans. Inf. Theory 13, 1967).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wastenot.arrays import FloatArray, IndexArray
from wastenot.devices.instrument import Channel
from wastenot.profiling.design import Design, informative
from wastenot.profiling.runs import TimedRun
from wastenot.profiling.surface import Surface

_STEP_S = 2.5e-4  # between delays that are tried
_DRIFTS = np.arange(-2e-4, 6.01e-4, 2e-5)  # seconds a second
_MOST = 25.0  # cost of a run: squares of residuals over noise, and no more than this
_JUMP = 8.0  # cost of one
_LEFT_OUT = 20.0  # cost from which a run is left out
_MISFIT = 3e-3  # of the range of power, by which readings may be off on top of noise


@dataclass(frozen=True, slots=True, eq=False)
class Track:
    """Delays of runs.

    Attributes:
        delay_s: at ``at_s``, of runs before a jump.
        drift: seconds a second.
        at_s: a moment of the host's clock.
        late_s: of each run, by which jumps make it later; NaN for one that no delay explains; shape (runs,).
    """

    delay_s: float
    drift: float
    at_s: float
    late_s: FloatArray


def find_track(runs: list[TimedRun], surface: Surface, channel: Channel, own: int, group: int) -> Track:
    """Delays that explain the readings of runs best, by a power that is known.

    Args:
        runs: in order of time.
        surface: power over their executions.
        channel: what is believed of the delay beforehand, and the time between samples; 0 for no jumps.
        own: the profiled kernel.
        group: executions in a unit of it.
    """
    at_s = runs[0].zero_s
    since = np.array([run.zero_s - at_s for run in runs])
    delays = np.arange(0.0, channel.delay_s + 2.0 * channel.delay_error_s + channel.sample_s, _STEP_S)
    levels = surface.unit_means(0, surface.units).power_w
    usual_w = float(np.hypot(surface.noise_w, _MISFIT * (float(levels.max()) - surface.idle_w)))
    curves = _costs(Design(runs, surface.basis, own, group), surface, channel, delays, usual_w)
    jumps = _jumps(channel.sample_s, since[-1])
    first = delays[np.abs(delays - channel.delay_s) <= 2.0 * channel.delay_error_s]
    drift, start = (one.ravel() for one in np.meshgrid(_DRIFTS, first, indexing="ij"))
    belief = ((start - channel.delay_s) / channel.delay_error_s) ** 2
    place = (start + np.outer(since, drift))[:, :, None] + channel.sample_s * jumps  # (runs, candidates, jumps)
    index = np.clip(np.round(place / _STEP_S).astype(np.intp), 0, len(delays) - 1)
    costs = np.take_along_axis(curves[:, None, :], index.reshape(len(runs), 1, -1), axis=2).reshape(index.shape)
    costs[(place < -0.5 * _STEP_S) | (place > delays[-1])] = _MOST  # nothing is read before it was sampled
    total, path = _cheapest(costs, start_at=int(np.flatnonzero(jumps == 0)[0]))
    best = int(np.argmin(total + belief))
    chosen = path(best)
    paid = costs[np.arange(len(runs)), best, chosen]
    late_s = np.where(paid < _LEFT_OUT, channel.sample_s * jumps[chosen], np.nan)
    return Track(float(start[best]), float(drift[best]), at_s, late_s)


def _costs(design: Design, surface: Surface, channel: Channel, delays: FloatArray, usual_w: float) -> FloatArray:
    """What each delay costs each run, whose readings usually are off by so much; shape (runs, delays)."""
    used = [informative(run, channel) for run in design.runs]
    logs = [run.readings[channel.name] for run in design.runs]
    moments = [(log.moment_s[chosen][:, None] - delays).ravel() for log, chosen in zip(logs, used, strict=True)]
    costs = np.empty((len(logs), len(delays)))
    for index, rows in enumerate(design.rows(channel, moments)):
        expected_w = surface.expected(rows).reshape(-1, len(delays))
        off = (logs[index].power_w[used[index]][:, None] / channel.gain - expected_w) / usual_w
        costs[index] = np.minimum(np.sum(off**2, axis=0), _MOST)
    return costs


def _jumps(sample_s: float, lasting_s: float) -> IndexArray:
    """Samples by which a reading can come later than the first ones did, after so long."""
    if not sample_s:
        return np.zeros(1, dtype=np.intp)
    least, most = (math.ceil(abs(drift) * lasting_s / sample_s) + 1 for drift in (_DRIFTS[-1], _DRIFTS[0]))
    return np.arange(-least, most + 1)


def _cheapest(costs: FloatArray, start_at: int) -> tuple[FloatArray, Callable[[int], IndexArray]]:
    """Least cost of every candidate, and what gives the path of one; costs of shape (runs, candidates, jumps)."""
    jumps = costs.shape[2]
    moved = _JUMP * (1 - np.eye(jumps))
    total = np.full(costs.shape[1:], np.inf)
    total[:, start_at] = 0.0
    came = np.empty(costs.shape, dtype=np.int8)
    for run, cost in enumerate(costs):
        through = total[:, :, None] + moved  # (candidates, from, to)
        came[run] = np.argmin(through, axis=1)
        total = np.min(through, axis=1) + cost

    def path(candidate: int) -> IndexArray:
        found = np.empty(len(costs), dtype=np.intp)
        found[-1] = int(np.argmin(total[candidate]))
        for run in range(len(costs) - 1, 0, -1):
            found[run - 1] = came[run, candidate, found[run]]
        return found

    return np.min(total, axis=1), path
