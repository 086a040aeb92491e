r"""When a change takes effect: the first moment after which iterations stay at the level of the target.

    signal   ▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔\▁▁▁▁▁▁▁▁▁▁▁▁▁      core clock, or iterations per second
             request ┘               └ arrival

After Velička, Vysocký, Říha, "Methodology for GPU Frequency Switching Latency Measurement" (IPDPSW 2025, arXiv 2502.20075).
A running median keeps steps where they are and takes single interrupted iterations out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import median_filter

from wastenot.core.arrays import FloatArray
from wastenot.devices.tracer import Load, Trace

WIDTHS = (5, 9, 17, 33, 65)
"""Widths of the running median that are tried, in iterations."""

_APART = 5.0  # standard deviations of the filtered signal that fit between a level and the middle of two
_RUNS_APART = 3.0  # standard deviations between runs that fit there besides
_NEAR = 0.35  # distance from a level, as a fraction of that between two, that still counts as being at it
_TAIL = 20  # iterations that must have stayed at the target
_SHARE = 0.1  # of the time after a request for which they must have
_HELD_UP = 1.5  # times as long as usual is an iteration in which kernels pause
_STAYS = 0.95  # fraction of the iterations after an arrival that are at the target: the others were interrupted


@dataclass(frozen=True, slots=True)
class Level:
    """The signal at one value, steady.

    Attributes:
        mean: its median.
        sd: standard deviation after filtering, by width of the running median.
        between: standard deviation of the mean between runs.
    """

    mean: float
    sd: Mapping[int, float]
    between: float = 0.0


def signal(trace: Trace, load: Load) -> FloatArray:
    """What shows the change: the core clock, or else how many iterations run in a second; shape (iterations,)."""
    return trace.core_mhz if load == "core" else 1.0 / np.maximum(trace.seconds, 1e-9)


def levels_of(runs: Mapping[float, Sequence[FloatArray]]) -> dict[float, Level]:
    """The levels of steady signals.

    Args:
        runs: by value, the signal in each of several runs; between runs levels differ a little too.
    """
    means = {value: np.array([float(np.median(run)) for run in mine]) for value, mine in runs.items()}
    relative = [mine / mine.mean() - 1.0 for mine in means.values()]
    degrees = sum(len(mine) - 1 for mine in relative)
    between = math.sqrt(sum(float(mine @ mine) for mine in relative) / degrees) if degrees else 0.0
    levels = {}
    for value, mine in runs.items():
        spread = {width: float(np.mean([_spread(filtered(run, width)) for run in mine])) for width in WIDTHS}
        levels[value] = Level(float(means[value].mean()), spread, between * float(means[value].mean()))
    return levels


def width_for(start: Level, target: Level) -> int | None:
    """The narrowest running median that tells two levels apart; ``None`` where they overlap whatever is done."""
    half = 0.5 * abs(start.mean - target.mean) - _RUNS_APART * max(start.between, target.between)
    return next((width for width in WIDTHS if half > _APART * max(start.sd[width], target.sd[width])), None)


@dataclass(frozen=True, slots=True)
class Arrival:
    """What became of a request.

    Attributes:
        seconds: from the request until it was in effect; ``None`` where that was not seen.
        reason: why not: ``start`` was not in effect when it was requested, or the target was not ``reached`` in time.
    """

    seconds: float | None
    reason: str = ""


def arrival(
    bounds_s: FloatArray, seen: FloatArray, asked_s: float, until_s: float, start: Level, target: Level, width: int
) -> Arrival:
    """When a request took effect.

    Args:
        bounds_s: of the iterations; shape (iterations + 1,).
        seen: the signal of each iteration, through the running median.
        asked_s: moment of the request.
        until_s: moment up to which nothing else was requested.
        start: level before.
        target: level after.
        width: of the running median.
    """
    apart = abs(target.mean - start.mean)
    first = int(np.searchsorted(bounds_s, asked_s, side="right")) - 1
    last = min(int(np.searchsorted(bounds_s, until_s, side="left")), len(seen))
    before = seen[max(first - _TAIL, 0) : first]
    if first < _TAIL or not _at(before, start.mean, apart):
        return Arrival(None, "start")
    after = seen[first:last]
    settled_from = int(np.searchsorted(bounds_s, until_s - _SHARE * (until_s - asked_s)))
    tail = after[min(settled_from - first, len(after) - _TAIL) :]
    if len(after) < 2 * _TAIL or not _at(tail, target.mean, apart):
        return Arrival(None, "reached")
    # The level drifts with temperature where a power limit sets it, so its own end is what it settles at.
    settled = float(np.median(tail))
    band = min(0.5 * apart, max(_APART * target.sd[width], 0.02 * apart))
    inside = np.abs(after - settled) <= band
    left = np.arange(len(inside), 0, -1)
    stays = np.cumsum(inside[::-1])[::-1] >= _STAYS * left
    ahead = np.convolve(inside, np.ones(_TAIL), mode="full")[_TAIL - 1 :] >= _STAYS * np.minimum(left, _TAIL)
    there = np.flatnonzero(inside & stays & ahead)
    if not len(there):
        return Arrival(None, "reached")
    return Arrival(max(_moment_s(bounds_s, first, last, first + int(there[0])) - asked_s, 0.0))


def _moment_s(bounds_s: FloatArray, first: int, last: int, reached: int) -> float:
    """When the change happened that is seen from one iteration on.

    Args:
        bounds_s: of the iterations.
        first: iteration of the request.
        last: iteration after the last one looked at.
        reached: the first one at the target.
    """
    usual_s = float(np.median(np.diff(bounds_s[first - _TAIL : first + 1])))
    target_s = float(np.median(np.diff(bounds_s[last - _TAIL : last + 1])))
    if bounds_s[reached + 1] - bounds_s[reached] > _HELD_UP * target_s:  # kernels pause until the change, in this one
        return float(bounds_s[reached + 1]) - 0.5 * target_s
    if reached == first:
        return float(bounds_s[reached])
    # It lies somewhere in the iteration before; where kernels pause for it, in its last part.
    within_s = min(float(bounds_s[reached] - bounds_s[reached - 1]), max(usual_s, target_s))
    return float(bounds_s[reached]) - 0.5 * within_s


def filtered(values: FloatArray, width: int) -> FloatArray:
    """A signal through the running median."""
    return np.asarray(median_filter(values, width, mode="nearest"))


def _at(values: FloatArray, level: float, apart: float) -> bool:
    return len(values) > 0 and abs(float(np.median(values)) - level) < _NEAR * apart


def _spread(values: FloatArray) -> float:
    """Standard deviation, without the few iterations that were interrupted."""
    low, high = np.quantile(values, (0.005, 0.995))
    return float(np.std(np.clip(values, low, high)))
