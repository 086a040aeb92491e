"""What a sensor reads of bursts of load, as a sum over what is unknown of the power.

    demand      ___▆▇▇▇▇▇▇▇▇▇▇▇▇▇▅___       level, and what first and last executions differ from it
    power       ___▂▅▆▇▇▇▇▇▇▇▇▇▇▇▆▃▂▁_      (1 - slow_share) · fast lag + slow_share · slow lag of the demand
    reading        ├─ window ─┤ delay •      mean power over the window, stamped later
               ◁┄┄─────━━━━━━━┤ delay •      or a first-order lag of power

Demand is made of straight lines, so that what a lag makes of it and what a window or another lag takes of that are closed
forms. A lag makes of a step s = 1 - exp(-x / lag), of a ramp x - lag · s, and of each its integral of what it makes of the
one before; a lag of a lag is (lag · its answer - other · the other's) / (lag - other).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.arrays import FloatArray, IndexArray

_LAGS_REMEMBERED = 10.0
_LAGS_OVER = 25.0
_LAG_REACH = 6.0  # time constants after which a sensor that lags has all but forgotten
_APART = 1e-6  # share by which two lags must differ for the closed form to keep its digits


@dataclass(frozen=True, slots=True)
class Sensing:
    """What readings depend on in a way that is not linear.

    Attributes:
        span_s: the window that a reading is the mean over, or the time constant of the lag that it is.
        delay_s: from the window's end to the stamp, at ``at_s``.
        fast_s, slow_s: time constants with which power follows what is asked for.
        slow_share: share of power that follows the slow one.
        lagging: whether a reading is a first-order lag; else it is a mean.
        drift: by which the delay grows each second.
        at_s: moment at which the delay is as told.
        sample_s: by which it jumps.
    """

    span_s: float
    delay_s: float
    fast_s: float
    slow_s: float
    slow_share: float
    lagging: bool = False
    drift: float = 0.0
    at_s: float = 0.0
    sample_s: float = 0.0

    @property
    def reach_s(self) -> float:
        """How far back a reading tells of anything, its delay aside."""
        return _LAG_REACH * self.span_s if self.lagging else self.span_s

    @property
    def middle_s(self) -> float:
        """By how much a reading is late on the whole."""
        return self.delay_s + (self.span_s if self.lagging else 0.5 * self.span_s)

    def delays_s(self, seen: Seen) -> FloatArray:
        """The delay of each reading."""
        return self.delay_s + self.drift * (seen.moment_s - self.at_s) + self.sample_s * seen.jumps


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Bursts on one clock; arrays of shape (bursts,), rising.

    Attributes:
        begin_s, end_s: of each.
        execution_s: time of an execution in steady state.
    """

    begin_s: FloatArray
    end_s: FloatArray
    execution_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Knots:
    """Where demand may differ from its level.

    Attributes:
        rise_s: after a burst's begin, from 0; none for no difference. At the last it is the level.
        fall_s: inside an execution, from 0 to its time; the same for each of the last ones.
        last: executions before the end of a burst that this holds for.
    """

    rise_s: FloatArray
    fall_s: FloatArray
    last: int

    @property
    def columns(self) -> int:
        """Differences that are unknown."""
        return max(len(self.rise_s) - 1, 0) + len(self.fall_s)


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """Readings and the bursts that each may have seen.

    Attributes:
        moment_s, power_w: stamps and readings; shape (readings,).
        burst: the last that began before each; shape (readings,), -1 for none.
        jumps: by how many jumps the delay of each lies above the line of the last; shape (readings,).
    """

    moment_s: FloatArray
    power_w: FloatArray
    burst: IndexArray
    jumps: FloatArray

    @classmethod
    def of(cls, moment_s: FloatArray, power_w: FloatArray, load: Load) -> Seen:
        """Readings of a load."""
        burst = np.searchsorted(load.begin_s, moment_s, side="right") - 1
        return cls(moment_s, power_w, burst, np.zeros(len(moment_s)))

    def only(self, chosen: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] | IndexArray) -> Seen:
        """Some of them."""
        return Seen(self.moment_s[chosen], self.power_w[chosen], self.burst[chosen], self.jumps[chosen])


def columns_of(seen: Seen, load: Load, sensing: Sensing, knots: Knots) -> FloatArray:
    """What readings are of a power above idle of 1 W, and of each difference of 1 W; shape (readings, 1 + differences)."""
    found = np.zeros((len(seen.moment_s), 1 + knots.columns))
    if not len(load.begin_s):
        return found
    delay_s = sensing.delays_s(seen)
    lags_s = (sensing.slow_s, sensing.fast_s, sensing.span_s if sensing.lagging else 0.0)
    back_s = sensing.span_s + delay_s + _LAGS_REMEMBERED * max(lags_s)
    end = seen.moment_s - delay_s
    # A mean is the energy up to the window's end less that up to its begin.
    ends = ((1.0, 0.0),) if sensing.lagging else ((1.0 / sensing.span_s, 0.0), (-1.0 / sensing.span_s, sensing.span_s))
    for ago in range(len(load.begin_s)):
        burst = seen.burst - ago
        there = burst >= 0
        there[there] &= load.end_s[burst[there]] > (seen.moment_s - back_s)[there]
        if not there.any():
            break
        ours = np.flatnonzero(there)
        begin_s, end_s = load.begin_s[burst[ours]], load.end_s[burst[ours]]
        for weight, before_s in ends:
            edge = end[ours] - before_s
            found[ours] += weight * _answer(edge - begin_s, edge - end_s, load.execution_s, sensing, knots)
    return found


def _answer(
    after_begin: FloatArray, after_end: FloatArray, execution_s: float, sensing: Sensing, knots: Knots
) -> FloatArray:
    """Energy up to moments, or what a lag reads then, of a power of 1 W and of each difference."""
    found = [(_step(after_begin, sensing) - _step(after_end, sensing))[:, None]]
    if len(knots.rise_s) > 1:
        rise = _hats(after_begin, knots.rise_s, sensing)[:, :-1]
        short = (after_begin - after_end < knots.rise_s[-1]) & (after_end > 0.0)
        rise[short] -= _beyond(after_begin[short], after_end[short], knots.rise_s, sensing)[:, :-1]
        found.append(rise)
    if len(knots.fall_s):
        fall = np.zeros((len(after_end), len(knots.fall_s)))
        for execution in range(1, knots.last + 1):
            fall += _hats(after_end + execution * execution_s, knots.fall_s, sensing)
        found.append(fall)
    return np.concatenate(found, axis=1)


def _hats(x: FloatArray, knots: FloatArray, sensing: Sensing) -> FloatArray:
    """Of demands that are 1 at a knot and 0 at all others, and outside of them."""
    # Long after the last knot nothing is added; squares of long times would only lose digits.
    x = np.minimum(x, knots[-1] + _LAGS_OVER * max(sensing.fast_s, sensing.slow_s, sensing.span_s * sensing.lagging))
    found = np.zeros((len(x), len(knots)))
    near = np.flatnonzero(x > knots[0])
    ramps = _ramp(x[near, None] - knots, sensing)
    slopes = (ramps[:, :-1] - ramps[:, 1:]) / np.diff(knots)  # rises by 1 from a knot to the next, and stays there
    found[near, 0] = _step(x[near] - knots[0], sensing)
    found[near, 1:] = slopes
    found[near, :-1] -= slopes
    found[near, -1] -= _step(x[near] - knots[-1], sensing)
    return found


def _beyond(after_begin: FloatArray, after_end: FloatArray, knots: FloatArray, sensing: Sensing) -> FloatArray:
    """Of what such demands would be after the end of bursts that end before the last knot."""
    lasted = (after_begin - after_end)[:, None]
    # At the end, and from there on by the knots that are left.
    at_end = np.stack([np.interp(lasted[:, 0], knots, hat) for hat in np.eye(len(knots))], axis=1)
    left = np.maximum(knots, lasted) - lasted
    ramps = _ramp(after_end[:, None] - left, sensing)
    whole = np.diff(np.maximum(knots, lasted), axis=1)
    slopes = np.where(whole > 0.0, (ramps[:, :-1] - ramps[:, 1:]) / np.diff(knots), 0.0)
    found = at_end * _step(after_end, sensing)[:, None]
    found[:, 1:] += slopes
    found[:, :-1] -= slopes
    found[:, -1] -= _step(after_end - left[:, -1], sensing)
    return found


def _step(x: FloatArray, sensing: Sensing) -> FloatArray:
    return _mixed(x, sensing)[0]


def _ramp(x: FloatArray, sensing: Sensing) -> FloatArray:
    return _mixed(x, sensing)[1]


def _mixed(x: FloatArray, sensing: Sensing) -> tuple[FloatArray, FloatArray]:
    """What is made of a step and of a ramp: their energies, or what a sensor that lags reads of them."""
    after = np.maximum(x, 0.0)
    first = 0 if sensing.lagging else 1
    own = _lagged(after, sensing.span_s) if sensing.lagging else ()
    step, ramp = np.zeros_like(after), np.zeros_like(after)
    for lag, share in ((sensing.fast_s, 1.0 - sensing.slow_share), (sensing.slow_s, sensing.slow_share)):
        if sensing.lagging:
            other = lag if abs(lag / sensing.span_s - 1.0) > _APART else lag * (1.0 + _APART)
            weight = sensing.span_s / (sensing.span_s - other)
            found = [weight * a + (1.0 - weight) * b for a, b in zip(own, _lagged(after, other), strict=True)]
        else:
            found = list(_lagged(after, lag))
        step += share * found[first]
        ramp += share * found[first + 1]
    return step, ramp


def _lagged(x: FloatArray, lag_s: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """What a lag makes of a step, a ramp and a parabola x²/2, at some time after their begin."""
    step = -np.expm1(-x / lag_s) if lag_s > 0.0 else (x > 0.0).astype(float)
    ramp = x - lag_s * step
    return step, ramp, 0.5 * x**2 - lag_s * ramp
