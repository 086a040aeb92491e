"""How a sensor's delay goes with time: along a line, with jumps, where it samples by a clock of its own.

    delay       ╱╱   │╱
                ╱    ╱        the line through the last readings, and by how many jumps those before lie above it
               ╱    ╱│
    readings   • • • • • •

Each reading near an edge of load tells how well each delay would explain it. The path through these that costs least, by
dynamic programming over intercepts for each drift of a grid, is found whatever the jumps are; least squares refine it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from wastenot.arrays import FloatArray, IndexArray
from wastenot.sensors.model import Load, Seen, Sensing, columns_of
from wastenot.sensors.response_fit import NO_KNOTS, middle_of

_STEP = 0.04  # of delays, in spans
_MOST_DELAYS = 160
_LARGEST_DRIFT, _MOST_DRIFTS = 1e-3, 101
_BELIEVED = 0.02
_OUTLYING = 9.0  # what a reading can cost at most, in squared noises
_JUMP_COST = 40.0
_LEAST_JUMP = 5  # steps
_NO_DRIFT = 1.0  # cost by which a path without drift may be worse
_ROUNDS = 3
_TELLING = 1.0  # costs that differ by so much between delays


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """A sensor's delay over time.

    Attributes:
        sensing: with its delay, drift and jumps by the last readings.
        jump_s: moments before which delays lie on other lines, rising.
        above: by how many jumps, before each of these moments and after the one before.
        cost: of readings, in squared noises.
    """

    sensing: Sensing
    jump_s: FloatArray
    above: FloatArray
    cost: float

    def seen(self, seen: Seen) -> Seen:
        """Readings with the jumps that they lie above the last line."""
        lines = np.append(self.above, 0.0)
        return replace(seen, jumps=lines[np.searchsorted(self.jump_s, seen.moment_s, side="right")])


def follow(seen: Seen, load: Load, starts: Iterable[Sensing], noise_w: float, *, believed: float = _BELIEVED) -> Course:
    """The course of the delay that explains readings best.

    Args:
        seen: the readings, some hundreds.
        load: that they saw.
        starts: responses to try, with a delay that is about the mean of all.
        noise_w: standard deviation of a reading.
        believed: by how much responses may be wrong, as a share of the power between rest and work.
    """
    return min((_followed(seen, load, start, noise_w, believed) for start in starts), key=lambda course: course.cost)


def _followed(seen: Seen, load: Load, start: Sensing, noise_w: float, believed: float) -> Course:
    start = replace(start, drift=0.0, at_s=middle_of(seen), sample_s=0.0)
    step_s = max(_STEP * start.span_s, (start.reach_s + 2.0 * start.middle_s) / _MOST_DELAYS)
    delays_s = np.arange(-4.0 * step_s, start.delay_s + start.middle_s + start.span_s + step_s, step_s)
    shares = np.stack([columns_of(seen, load, replace(start, delay_s=delay), NO_KNOTS)[:, 0] for delay in delays_s.tolist()])
    at = np.full(len(seen.moment_s), int(np.argmin(np.abs(delays_s - start.delay_s))), dtype=np.intp)
    course = Course(start, np.zeros(0), np.zeros(0), np.inf)
    everyone = np.arange(len(at))
    for _ in range(_ROUNDS):
        idle_w, rise_w = _levels(shares[at, everyone], seen.power_w)
        noise = max(noise_w, believed * abs(rise_w))
        costs = np.minimum(((seen.power_w - idle_w - rise_w * shares) / noise) ** 2, _OUTLYING)
        course, at = _path(costs, seen.moment_s, delays_s, start)
    return course


def _levels(share: FloatArray, power_w: FloatArray) -> tuple[float, float]:
    """Power at rest and what work adds, outliers counting less."""
    design, weight = np.column_stack([np.ones(len(share)), share]), np.ones(len(share))
    for _ in range(5):
        idle, rise = np.linalg.lstsq(design * weight[:, None], power_w * weight, rcond=None)[0].tolist()
        off = np.abs(power_w - idle - rise * share)
        weight = 1.0 / np.sqrt(1.0 + (off / max(1.5 * float(np.median(off)), 1e-9)) ** 2)
    return idle, rise


def _path(costs: FloatArray, moment_s: FloatArray, delays_s: FloatArray, start: Sensing) -> tuple[Course, IndexArray]:
    """The cheapest path through costs of shape (delays, readings), and which delay it gives each reading."""
    step_s = float(delays_s[1] - delays_s[0])
    when = moment_s - start.at_s
    half_s = max(float(np.max(np.abs(when))), 1e-9)
    most = min(int(_LARGEST_DRIFT * half_s / step_s), _MOST_DRIFTS // 2)
    drifts = np.arange(-most, most + 1) * (_LARGEST_DRIFT / max(most, 1))
    telling = np.flatnonzero(np.ptp(costs, axis=0) > _TELLING)
    shift = np.round(drifts[:, None] * when / step_s).astype(int)
    pad = int(np.max(np.abs(shift), initial=0))
    padded = np.pad(costs, ((2 * pad, 2 * pad), (0, 0)), constant_values=_OUTLYING)
    lines = np.arange(-pad, len(delays_s) + pad)  # delays in the middle of the time, of which those of readings may not be
    everyone = np.arange(len(drifts))
    total = np.zeros((len(drifts), len(lines)))
    came = np.zeros((len(telling), *total.shape), dtype=np.int16)
    for number, reading in enumerate(telling.tolist()):
        best = np.argmin(total, axis=1)
        jumping = total[everyone, best] + (_JUMP_COST if number else 0.0)
        stays = total <= jumping[:, None]
        came[number] = np.where(stays, np.arange(len(lines)), best[:, None])
        total = np.where(stays, total, jumping[:, None]) + padded[lines + shift[:, reading, None] + 2 * pad, reading]
    cheapest = total.min(axis=1) + _NO_DRIFT * (drifts != 0.0)
    which = int(np.argmin(cheapest))
    line = np.full(len(telling), int(np.argmin(total[which])))
    for number in range(len(telling) - 1, 0, -1):
        line[number - 1] = came[number, which, line[number]]
    on_s = delays_s[0] + step_s * (line - pad)
    course = _course(on_s, moment_s[telling], replace(start, drift=float(drifts[which])), step_s, float(cheapest[which]))
    seen = course.seen(Seen(moment_s, moment_s, np.zeros(0, dtype=np.intp), np.zeros(len(moment_s))))
    at = np.round((course.sensing.delays_s(seen) - delays_s[0]) / step_s)
    return course, np.clip(at, 0, len(delays_s) - 1).astype(np.intp)


def _course(on_s: FloatArray, moment_s: FloatArray, start: Sensing, step_s: float, cost: float) -> Course:
    """From the delay at ``start.at_s`` of the line that each reading lies on."""
    if not len(on_s):
        return Course(start, np.zeros(0), np.zeros(0), cost)
    sensing = replace(start, delay_s=float(on_s[-1]))
    changes = np.flatnonzero(np.diff(on_s))
    sizes_s = (on_s[changes] - on_s[changes + 1]) * np.sign(start.drift)
    # A sample later than the last is a jump against the drift; anything else is chance.
    if not len(sizes_s) or sizes_s.min() < (_LEAST_JUMP - 0.5) * step_s:
        return Course(sensing, np.zeros(0), np.zeros(0), cost)
    sample_s = float(np.median(sizes_s / np.round(sizes_s / sizes_s.min())))
    jump_s = 0.5 * (moment_s[changes] + moment_s[changes + 1])
    at_s = 0.5 * float(jump_s[-1] + moment_s[-1])
    delay_s = sensing.delay_s + start.drift * (at_s - start.at_s)
    sensing = replace(sensing, at_s=at_s, delay_s=delay_s, sample_s=sample_s)
    return Course(sensing, jump_s, np.round((on_s[changes] - on_s[-1]) / sample_s), cost)
