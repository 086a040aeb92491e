"""What a sensor reads of bursts of load, as a sum over what is unknown of the power.

    demand      ___▆▇▇▇▇▇▇▇▇▇▇▇▇▇▅___       level, and what first and last executions differ from it
    power       ___▂▅▆▇▇▇▇▇▇▇▇▇▇▇▆▃▂▁_      (1 - slow_share) · fast lag + slow_share · slow lag of the demand
    reading        ├─ window ─┤ delay •      mean power over the window, stamped later

Demand is made of straight lines, so that what a lag makes of it and what a window takes of that are closed forms: of a
step the energy is x - lag · (1 - exp(-x / lag)), and its integral of a ramp.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.frontier.points import FloatArray, IndexArray

_LAGS_REMEMBERED = 10.0
_LAGS_OVER = 25.0


@dataclass(frozen=True, slots=True)
class Sensing:
    """What readings depend on in a way that is not linear.

    Attributes:
        window_s: that a reading is the mean over.
        delay_s: from the window's end to the stamp.
        fast_s, slow_s: time constants with which power follows what is asked for.
        slow_share: share of power that follows the slow one.
    """

    window_s: float
    delay_s: float
    fast_s: float
    slow_s: float
    slow_share: float


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
    """

    moment_s: FloatArray
    power_w: FloatArray
    burst: IndexArray

    @classmethod
    def of(cls, moment_s: FloatArray, power_w: FloatArray, load: Load) -> Seen:
        """Readings of a load."""
        return cls(moment_s, power_w, np.searchsorted(load.begin_s, moment_s, side="right") - 1)

    def only(self, chosen: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] | IndexArray) -> Seen:
        """Some of them."""
        return Seen(self.moment_s[chosen], self.power_w[chosen], self.burst[chosen])


def columns_of(seen: Seen, load: Load, sensing: Sensing, knots: Knots) -> FloatArray:
    """What readings are of a power above idle of 1 W, and of each difference of 1 W; shape (readings, 1 + differences)."""
    found = np.zeros((len(seen.moment_s), 1 + knots.columns))
    if not len(load.begin_s):
        return found
    back_s = sensing.window_s + sensing.delay_s + _LAGS_REMEMBERED * max(sensing.slow_s, sensing.fast_s)
    end = seen.moment_s - sensing.delay_s
    for ago in range(len(load.begin_s)):
        burst = seen.burst - ago
        there = burst >= 0
        there[there] &= load.end_s[burst[there]] > seen.moment_s[there] - back_s
        if not there.any():
            break
        ours = np.flatnonzero(there)
        begin_s, end_s = load.begin_s[burst[ours]], load.end_s[burst[ours]]
        for sign, edge in ((1.0, end[ours]), (-1.0, end[ours] - sensing.window_s)):
            found[ours] += sign * _energy(edge - begin_s, edge - end_s, load.execution_s, sensing, knots)
    return found / sensing.window_s


def _energy(
    after_begin: FloatArray, after_end: FloatArray, execution_s: float, sensing: Sensing, knots: Knots
) -> FloatArray:
    """Energy up to moments, of a power of 1 W and of each difference."""
    found = [(_step(after_begin, sensing) - _step(after_end, sensing))[:, None]]
    if len(knots.rise_s) > 1:
        found.append(_hats(after_begin, knots.rise_s, sensing)[:, :-1])
    if len(knots.fall_s):
        fall = np.zeros((len(after_end), len(knots.fall_s)))
        for execution in range(1, knots.last + 1):
            fall += _hats(after_end + execution * execution_s, knots.fall_s, sensing)
        found.append(fall)
    return np.concatenate(found, axis=1)


def _hats(x: FloatArray, knots: FloatArray, sensing: Sensing) -> FloatArray:
    """Energy of demands that are 1 at a knot and 0 at all others, and outside of them."""
    # Long after the last knot nothing is added; squares of long times would only lose digits.
    x = np.minimum(x, knots[-1] + _LAGS_OVER * max(sensing.fast_s, sensing.slow_s))
    found = np.zeros((len(x), len(knots)))
    near = np.flatnonzero(x > knots[0])
    ramps = _ramp(x[near, None] - knots, sensing)
    slopes = (ramps[:, :-1] - ramps[:, 1:]) / np.diff(knots)  # rises by 1 from a knot to the next, and stays there
    found[near, 0] = _step(x[near] - knots[0], sensing)
    found[near, 1:] = slopes
    found[near, :-1] -= slopes
    found[near, -1] -= _step(x[near] - knots[-1], sensing)
    return found


def _step(x: FloatArray, sensing: Sensing) -> FloatArray:
    return _mixed(x, sensing)[0]


def _ramp(x: FloatArray, sensing: Sensing) -> FloatArray:
    return _mixed(x, sensing)[1]


def _mixed(x: FloatArray, sensing: Sensing) -> tuple[FloatArray, FloatArray]:
    after = np.maximum(x, 0.0)
    step, ramp = np.zeros_like(after), np.zeros_like(after)
    for lag, share in ((sensing.fast_s, 1.0 - sensing.slow_share), (sensing.slow_s, sensing.slow_share)):
        energy = after + lag * np.expm1(-after / lag) if lag > 0.0 else after
        step += share * energy
        ramp += share * (0.5 * after**2 - lag * energy)
    return step, ramp
