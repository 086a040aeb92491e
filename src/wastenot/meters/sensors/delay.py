"""How a sensor's delay changes over time where it samples by a clock of its own: along a line, with jumps.

    delay       ╱╱   │╱
                ╱    ╱        a reading is the latest sample there is: both clocks are regular, so the delay drifts evenly,
               ╱    ╱│        until one sample more or less lies in between (on an H200, 20 ms every 100 s or so)
    readings   • • • • • •

How well each delay would explain a reading is known; the path of delays with the least total cost is found by dynamic
programming (Viterbi, IEEE Trans. Inf. Theory 13, 1967) for each drift of a grid. :func:`follow_delay` knows nothing about
the jumps, and works reading by reading; :func:`track_delay` knows their size, and works run by run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.devices.instrument import Channel
from wastenot.meters.sensors.model import BurstReadings, Knots, Load, SensorParameters, design_matrix

_NO_KNOTS = Knots(np.zeros(0), np.zeros(0), 0)

# Unknown jumps.
_STEP_SPANS = 0.04  # between delays, in spans
_MAX_DELAYS = 160
_MAX_DRIFT, _MAX_DRIFTS = 1e-3, 101
_RESPONSE_ERROR = 0.02
_MAX_READING_COST = 9.0  # in squared noise standard deviations
_JUMP_COST = 40.0
_MIN_JUMP_STEPS = 5
_NO_DRIFT_BONUS = 1.0  # cost by which a path without drift may be worse
_ROUNDS = 3
_DECISIVE_COST = 1.0  # range of costs over delays, from which a reading counts

# Known jumps.
_RUN_STEP_S = 2.5e-4  # between delays
_RUN_DRIFTS = np.arange(-2e-4, 6.01e-4, 2e-5)  # seconds per second
MAX_RUN_COST = 25.0
_RUN_JUMP_COST = 8.0
_EXCLUDED_COST = 20.0  # from which a run is excluded


def _cheapest_path(
    costs: Iterable[FloatArray], start: FloatArray, jump_cost: float
) -> tuple[FloatArray, Callable[[int], IndexArray]]:
    """The least cost of each candidate's path through states, and a function that gives the path of one.

    ``costs`` are of each state at each time, ``start`` before the first time; all of shape (candidates, states).
    """
    candidates = np.arange(start.shape[0])
    total, moves = start, []
    for cost in costs:
        best = np.argmin(total, axis=1)
        jumping = total[candidates, best] + jump_cost
        moves.append((total > jumping[:, None], best))
        total = np.minimum(total, jumping[:, None]) + cost

    def path(candidate: int) -> IndexArray:
        state = np.full(len(moves), int(np.argmin(total[candidate])), dtype=np.intp)
        for time in range(len(moves) - 1, 0, -1):
            jumps, best = moves[time]
            state[time - 1] = best[candidate] if jumps[candidate, state[time]] else state[time]
        return state

    return total.min(axis=1), path


@dataclass(frozen=True, slots=True, eq=False)
class DelayPath:
    """A sensor's delay over time.

    Attributes:
        parameters: with the delay, drift and jumps of the last readings.
        jump_s: moments before which delays lie on other lines, ascending.
        above: number of jumps by which they lie above the last line, before each of these moments (and after the previous).
        cost: of the readings, in squared noise standard deviations.
    """

    parameters: SensorParameters
    jump_s: FloatArray
    above: FloatArray
    cost: float

    def with_jumps(self, readings: BurstReadings) -> BurstReadings:
        """The readings with the number of jumps by which they lie above the last line."""
        lines = np.append(self.above, 0.0)
        return replace(readings, jumps=lines[np.searchsorted(self.jump_s, readings.moment_s, side="right")])


def follow_delay(
    readings: BurstReadings,
    load: Load,
    starts: Iterable[SensorParameters],
    noise_w: float,
    response_error: float = _RESPONSE_ERROR,
) -> DelayPath:
    """The path of the delay that explains readings best, with jumps of unknown times and size.

    Args:
        readings: some hundreds.
        load: during them.
        starts: responses to try, with the approximate mean delay.
        noise_w: standard deviation of a reading.
        response_error: of these responses, as a fraction of the power between rest and work.
    """
    paths = [_followed(readings, load, start, noise_w, response_error) for start in starts]
    return min(paths, key=lambda path: path.cost)


def _followed(
    readings: BurstReadings, load: Load, start: SensorParameters, noise_w: float, response_error: float
) -> DelayPath:
    begin_s, end_s = float(readings.moment_s[0]), float(readings.moment_s[-1])
    start = replace(start, drift=0.0, at_s=0.5 * (begin_s + end_s), sample_s=0.0)
    step_s = max(_STEP_SPANS * start.span_s, (start.reach_s + 2.0 * start.mean_age_s) / _MAX_DELAYS)
    delays_s = np.arange(-4.0 * step_s, start.delay_s + start.mean_age_s + start.span_s + step_s, step_s)
    busy = np.stack(
        [design_matrix(readings, load, replace(start, delay_s=delay), _NO_KNOTS)[:, 0] for delay in delays_s.tolist()]
    )
    every = np.arange(len(readings.moment_s))
    delay_index = np.full(len(every), int(np.argmin(np.abs(delays_s - start.delay_s))), dtype=np.intp)
    path = DelayPath(start, np.zeros(0), np.zeros(0), np.inf)
    for _ in range(_ROUNDS):
        idle_w, rise_w = _power_levels(busy[delay_index, every], readings.power_w)
        noise = max(noise_w, response_error * abs(rise_w))
        costs = np.minimum(((readings.power_w - idle_w - rise_w * busy) / noise) ** 2, _MAX_READING_COST)
        path, delay_index = _path_of_readings(costs, readings.moment_s, delays_s, start)
    return path


def _power_levels(busy: FloatArray, power_w: FloatArray) -> tuple[float, float]:
    """Power at rest and what work adds, by robust regression on the busy fraction of each reading."""
    design, weight = np.column_stack([np.ones(len(busy)), busy]), np.ones(len(busy))
    for _ in range(5):
        idle, rise = np.linalg.lstsq(design * weight[:, None], power_w * weight, rcond=None)[0].tolist()
        residual = np.abs(power_w - idle - rise * busy)
        weight = 1.0 / np.sqrt(1.0 + (residual / max(1.5 * float(np.median(residual)), 1e-9)) ** 2)
    return idle, rise


def _path_of_readings(
    costs: FloatArray, moment_s: FloatArray, delays_s: FloatArray, start: SensorParameters
) -> tuple[DelayPath, IndexArray]:
    """The cheapest path through costs of shape (delays, readings), and the index of the delay of each reading."""
    step_s = float(delays_s[1] - delays_s[0])
    when = moment_s - start.at_s
    half_s = max(float(np.max(np.abs(when))), 1e-9)
    most = min(int(_MAX_DRIFT * half_s / step_s), _MAX_DRIFTS // 2)
    drifts = np.arange(-most, most + 1) * (_MAX_DRIFT / max(most, 1))
    decisive = np.flatnonzero(np.ptp(costs, axis=0) > _DECISIVE_COST)
    shift = np.round(drifts[:, None] * when / step_s).astype(int)
    pad = int(np.max(np.abs(shift), initial=0))
    padded = np.pad(costs.T, ((0, 0), (2 * pad, 2 * pad)), constant_values=_MAX_READING_COST)
    # A state is the delay in the middle of the time, which may lie outside the delays of readings by up to the padding.
    lines = len(delays_s) + 2 * pad
    along = (sliding_window_view(padded[reading], lines)[shift[:, reading] + pad] for reading in decisive.tolist())
    total, path_of = _cheapest_path(along, np.zeros((len(drifts), lines)), _JUMP_COST)
    cheapest = total + _NO_DRIFT_BONUS * (drifts != 0.0)
    best = int(np.argmin(cheapest))
    line_s = delays_s[0] + step_s * (path_of(best) - pad)
    drifting = replace(start, drift=float(drifts[best]))
    path = _with_jumps_found(line_s, moment_s[decisive], drifting, step_s, float(cheapest[best]))
    all_readings = path.with_jumps(BurstReadings(moment_s, moment_s, np.zeros(0, dtype=np.intp), np.zeros(len(moment_s))))
    index = np.round((path.parameters.delays_s(all_readings) - delays_s[0]) / step_s)
    return path, np.clip(index, 0, len(delays_s) - 1).astype(np.intp)


def _with_jumps_found(
    line_s: FloatArray, moment_s: FloatArray, start: SensorParameters, step_s: float, cost: float
) -> DelayPath:
    """From the delay at ``start.at_s`` of the line that each reading lies on."""
    if not len(line_s):
        return DelayPath(start, np.zeros(0), np.zeros(0), cost)
    parameters = replace(start, delay_s=float(line_s[-1]))
    changes = np.flatnonzero(np.diff(line_s))
    sizes_s = (line_s[changes] - line_s[changes + 1]) * np.sign(start.drift)
    # One sample more or less is a jump against the drift; anything else is chance.
    if not len(sizes_s) or sizes_s.min() < (_MIN_JUMP_STEPS - 0.5) * step_s:
        return DelayPath(parameters, np.zeros(0), np.zeros(0), cost)
    sample_s = float(np.median(sizes_s / np.round(sizes_s / sizes_s.min())))
    jump_s = 0.5 * (moment_s[changes] + moment_s[changes + 1])
    at_s = 0.5 * float(jump_s[-1] + moment_s[-1])
    delay_s = parameters.delay_s + start.drift * (at_s - start.at_s)
    parameters = replace(parameters, at_s=at_s, delay_s=delay_s, sample_s=sample_s)
    return DelayPath(parameters, jump_s, np.round((line_s[changes] - line_s[-1]) / sample_s), cost)


@dataclass(frozen=True, slots=True, eq=False)
class DelayTrack:
    """Delays of runs.

    Attributes:
        delay_s: at ``at_s``, before any jump.
        drift: seconds per second.
        at_s: moment of the first run.
        late_s: by which jumps delay each run further; NaN for one that no delay explains; shape (runs,).
    """

    delay_s: float
    drift: float
    at_s: float
    late_s: FloatArray


def run_delays_s(channel: Channel) -> FloatArray:
    """The delays that :func:`track_delay` considers; shape (delays,)."""
    return np.arange(0.0, channel.delay_s + 2.0 * channel.delay_error_s + channel.sample_s, _RUN_STEP_S)


def track_delay(costs: FloatArray, moment_s: FloatArray, channel: Channel) -> DelayTrack:
    """The delays that explain runs best, with jumps of a known size.

    Args:
        costs: of each delay of :func:`run_delays_s` for each run, at most :data:`MAX_RUN_COST`; shape (runs, delays).
        moment_s: of each run, ascending; shape (runs,).
        channel: prior of the delay, and the size of its jumps; 0 for none.
    """
    delays_s, since_s = run_delays_s(channel), moment_s - moment_s[0]
    jumps = _possible_jumps(channel.sample_s, float(since_s[-1]))
    first = delays_s[np.abs(delays_s - channel.delay_s) <= 2.0 * channel.delay_error_s]
    drift, start = (one.ravel() for one in np.meshgrid(_RUN_DRIFTS, first, indexing="ij"))
    prior = ((start - channel.delay_s) / channel.delay_error_s) ** 2
    delay_s = (start + np.outer(since_s, drift))[:, :, None] + channel.sample_s * jumps  # (runs, candidates, jumps)
    index = np.clip(np.round(delay_s / _RUN_STEP_S).astype(np.intp), 0, len(delays_s) - 1)
    along = np.take_along_axis(costs[:, None, :], index.reshape(len(costs), 1, -1), axis=2).reshape(index.shape)
    along[(delay_s < -0.5 * _RUN_STEP_S) | (delay_s > delays_s[-1])] = MAX_RUN_COST  # nothing is read before it was sampled
    before = np.full(along.shape[1:], np.inf)
    before[:, jumps == 0] = 0.0
    total, path_of = _cheapest_path(along, before, _RUN_JUMP_COST)
    best = int(np.argmin(total + prior))
    path = path_of(best)
    explained = along[np.arange(len(costs)), best, path] < _EXCLUDED_COST
    late_s = np.where(explained, channel.sample_s * jumps[path], np.nan)
    return DelayTrack(float(start[best]), float(drift[best]), float(moment_s[0]), late_s)


def _possible_jumps(sample_s: float, duration_s: float) -> IndexArray:
    """Numbers of samples by which a reading may come later than the first ones did, after so long."""
    if not sample_s:
        return np.zeros(1, dtype=np.intp)
    down, up = (math.ceil(abs(drift) * duration_s / sample_s) + 1 for drift in (_RUN_DRIFTS[-1], _RUN_DRIFTS[0]))
    return np.arange(-down, up + 1)
