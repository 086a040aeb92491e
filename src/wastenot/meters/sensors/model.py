"""What a sensor reads during bursts of load, as a linear combination of unknown powers.

    demand      ___▆▇▇▇▇▇▇▇▇▇▇▇▇▇▅___       a level, plus deviations in the first and last executions
    power       ___▂▅▆▇▇▇▇▇▇▇▇▇▇▇▆▃▂▁_      (1 - slow_fraction) · fast lag + slow_fraction · slow lag of the demand
    reading        ├─ window ─┤ delay •      mean power over the window, stamped later
               ◁┄┄─────━━━━━━━┤ delay •      or a first-order lag of power

Demand is piecewise linear, so its response to a lag, and the mean or lag of that, have closed forms. After a time x a lag
turns a step into s = 1 - exp(-x / lag), a ramp into x - lag · s, and so on for each integral; a lag of a lag is
(lag · its response - other · the other's) / (lag - other).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray

_REMEMBERED_LAGS = 10.0
_SETTLED_LAGS = 25.0
_REACH_LAGS = 6.0  # time constants after which a first-order lag has all but forgotten
_MIN_RELATIVE_DIFFERENCE = 1e-6  # of two lags, for the closed form to keep its digits


@dataclass(frozen=True, slots=True)
class SensorParameters:
    """What readings depend on nonlinearly.

    Attributes:
        span_s: averaging window of a reading, or its time constant where it is a lag.
        delay_s: from the window's end to the timestamp, at ``at_s``.
        fast_s, slow_s: time constants with which power follows demand.
        slow_fraction: fraction of power that follows the slow one.
        is_lag: whether a reading is a first-order lag of power rather than a mean.
        drift: seconds by which the delay grows each second.
        at_s: moment at which the delay is ``delay_s``.
        sample_s: size of the delay's jumps.
    """

    span_s: float
    delay_s: float
    fast_s: float
    slow_s: float
    slow_fraction: float
    is_lag: bool = False
    drift: float = 0.0
    at_s: float = 0.0
    sample_s: float = 0.0

    @property
    def reach_s(self) -> float:
        """How far back a reading depends on power, without its delay."""
        return _REACH_LAGS * self.span_s if self.is_lag else self.span_s

    @property
    def mean_age_s(self) -> float:
        """Mean age of the power that a reading shows."""
        return self.delay_s + (self.span_s if self.is_lag else 0.5 * self.span_s)

    def delays_s(self, readings: BurstReadings) -> FloatArray:
        """The delay of each reading."""
        return self.delay_s + self.drift * (readings.moment_s - self.at_s) + self.sample_s * readings.jumps


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Bursts on one clock, arrays of shape (bursts,), ascending; and the duration of an execution in steady state."""

    begin_s: FloatArray
    end_s: FloatArray
    execution_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Knots:
    """Where demand may deviate from its level, linearly interpolated.

    Attributes:
        rise_s: after the beginning of a burst, from 0; empty for no deviation. At the last one demand is at its level.
        fall_s: within an execution, from 0 to its duration; the same for each of the last executions.
        last: number of executions before the end of a burst that this applies to.
    """

    rise_s: FloatArray
    fall_s: FloatArray
    last: int

    @property
    def columns(self) -> int:
        """Number of unknown deviations."""
        return max(len(self.rise_s) - 1, 0) + len(self.fall_s)


@dataclass(frozen=True, slots=True, eq=False)
class BurstReadings:
    """Readings, and the burst that each may reflect.

    Attributes:
        moment_s, power_w: timestamps and readings; shape (readings,).
        burst: index of the last burst that began before each; shape (readings,), -1 for none.
        jumps: number of jumps by which the delay of each lies above the line of the last readings; shape (readings,).
    """

    moment_s: FloatArray
    power_w: FloatArray
    burst: IndexArray
    jumps: FloatArray

    @classmethod
    def of(cls, moment_s: FloatArray, power_w: FloatArray, load: Load) -> BurstReadings:
        """Readings during a load."""
        burst = np.searchsorted(load.begin_s, moment_s, side="right") - 1
        return cls(moment_s, power_w, burst, np.zeros(len(moment_s)))

    def subset(self, chosen: BoolArray | IndexArray) -> BurstReadings:
        """Some of them, by mask or index."""
        return BurstReadings(self.moment_s[chosen], self.power_w[chosen], self.burst[chosen], self.jumps[chosen])


def design_matrix(readings: BurstReadings, load: Load, parameters: SensorParameters, knots: Knots) -> FloatArray:
    """Readings of 1 W above idle and of 1 W at each knot; shape (readings, 1 + deviations)."""
    matrix = np.zeros((len(readings.moment_s), 1 + knots.columns))
    if not len(load.begin_s):
        return matrix
    delay_s = parameters.delays_s(readings)
    lags_s = (parameters.slow_s, parameters.fast_s, parameters.span_s if parameters.is_lag else 0.0)
    earliest_s = readings.moment_s - (parameters.span_s + delay_s + _REMEMBERED_LAGS * max(lags_s))
    end = readings.moment_s - delay_s
    # A mean is the energy up to the window's end minus that up to its beginning.
    span_s = parameters.span_s
    ends = ((1.0, 0.0),) if parameters.is_lag else ((1.0 / span_s, 0.0), (-1.0 / span_s, span_s))
    for ago in range(len(load.begin_s)):
        burst = readings.burst - ago
        relevant = np.flatnonzero(burst >= 0)
        relevant = relevant[load.end_s[burst[relevant]] > earliest_s[relevant]]
        if not len(relevant):
            break
        begin_s, end_s = load.begin_s[burst[relevant]], load.end_s[burst[relevant]]
        for weight, before_s in ends:
            edge = end[relevant] - before_s
            matrix[relevant] += weight * _response(edge - begin_s, edge - end_s, load.execution_s, parameters, knots)
    return matrix


def _response(
    after_begin: FloatArray, after_end: FloatArray, execution_s: float, parameters: SensorParameters, knots: Knots
) -> FloatArray:
    """Energy up to moments, or the lagged reading then, of a demand of 1 W and of each deviation."""
    columns = [(_step(after_begin, parameters) - _step(after_end, parameters))[:, None]]
    if len(knots.rise_s) > 1:
        rise = _hats(after_begin, knots.rise_s, parameters)[:, :-1]
        cut_short = (after_begin - after_end < knots.rise_s[-1]) & (after_end > 0.0)
        if cut_short.any():
            rise[cut_short] -= _hats_after(after_begin[cut_short], after_end[cut_short], knots.rise_s, parameters)[:, :-1]
        columns.append(rise)
    if len(knots.fall_s):
        fall = np.zeros((len(after_end), len(knots.fall_s)))
        for execution in range(1, knots.last + 1):
            fall += _hats(after_end + execution * execution_s, knots.fall_s, parameters)
        columns.append(fall)
    return np.concatenate(columns, axis=1)


def _hats(x: FloatArray, knots: FloatArray, parameters: SensorParameters) -> FloatArray:
    """Response to demands that are 1 at one knot, 0 at all others and outside of them."""
    # Long after the last knot nothing changes any more; squares of long times would only lose digits.
    longest_s = max(parameters.fast_s, parameters.slow_s, parameters.span_s * parameters.is_lag)
    x = np.minimum(x, knots[-1] + _SETTLED_LAGS * longest_s)
    response = np.zeros((len(x), len(knots)))
    near = np.flatnonzero(x > knots[0])
    ramps = _step(x[near, None] - knots, parameters, order=1)
    slopes = (ramps[:, :-1] - ramps[:, 1:]) / np.diff(knots)  # rises by 1 from a knot to the next, and stays there
    response[near, 0] = _step(x[near] - knots[0], parameters)
    response[near, 1:] = slopes
    response[near, :-1] -= slopes
    response[near, -1] -= _step(x[near] - knots[-1], parameters)
    return response


def _hats_after(
    after_begin: FloatArray, after_end: FloatArray, knots: FloatArray, parameters: SensorParameters
) -> FloatArray:
    """Response to what such demands would be after the end of bursts that end before the last knot."""
    duration = (after_begin - after_end)[:, None]
    # The value at the end, and the slopes of the knots that remain.
    each, before = np.arange(len(duration)), np.searchsorted(knots, duration[:, 0], side="right") - 1
    towards_next = 1.0 / np.diff(knots)[before] * (duration[:, 0] - knots[before])
    at_end = np.zeros((len(duration), len(knots)))
    at_end[each, before], at_end[each, before + 1] = 1.0 - towards_next, towards_next
    remaining = np.maximum(knots, duration) - duration
    ramps = _step(after_end[:, None] - remaining, parameters, order=1)
    segments = np.diff(np.maximum(knots, duration), axis=1)
    slopes = np.where(segments > 0.0, (ramps[:, :-1] - ramps[:, 1:]) / np.diff(knots), 0.0)
    response = at_end * _step(after_end, parameters)[:, None]
    response[:, 1:] += slopes
    response[:, :-1] -= slopes
    response[:, -1] -= _step(after_end - remaining[:, -1], parameters)
    return response


def _step(x: FloatArray, parameters: SensorParameters, order: int = 0) -> FloatArray:
    """Response to a step of demand (its energy, or the lagged reading of it), or of order 1 to a ramp."""
    after = np.maximum(x, 0.0)
    span_s, slow = parameters.span_s, parameters.slow_fraction
    response = np.zeros_like(after)
    own = _integrated(after, span_s, order) if parameters.is_lag else None
    for lag, fraction in ((parameters.fast_s, 1.0 - slow), (parameters.slow_s, slow)):
        if own is None:
            response += fraction * _integrated(after, lag, order + 1)
        else:
            other = lag if abs(lag / span_s - 1.0) > _MIN_RELATIVE_DIFFERENCE else lag * (1.0 + _MIN_RELATIVE_DIFFERENCE)
            weight = span_s / (span_s - other)
            response += fraction * (weight * own + (1.0 - weight) * _integrated(after, other, order))
    return response


def _integrated(x: FloatArray, lag_s: float, order: int) -> FloatArray:
    """Response of a lag to a step (order 0), a ramp (1) or a parabola x²/2 (2), at times after it began."""
    response = -np.expm1(-x / lag_s) if lag_s > 0.0 else (x > 0.0).astype(float)
    if order > 0:
        response = x - lag_s * response
    if order > 1:
        response = 0.5 * x**2 - lag_s * response
    return response
