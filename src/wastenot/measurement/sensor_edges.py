"""Fits of one channel: roughly by load that comes and goes at once, then with lags and what executions differ by.

A window of many executions sees none of them by itself: all readings serve. A window of few sees the shape of each, which
is not known; then only readings near the edges of bursts serve, where power is known on one side: idle before the first
execution, and after the last one a fall that is a sum of exponentials. A window that is wrong calls for a shape with
kinks; that is what tells the right one, however fast or slow the power itself falls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.ndimage import uniform_filter1d

from wastenot.frontier.points import FloatArray, IndexArray
from wastenot.measurement.sensor_fit import SensorFit, fit_sensing, search
from wastenot.measurement.sensor_model import Knots, Load, Seen, Sensing

FINE = 4.0
"""Executions under which a window sees their shape."""

_MOST = 4000  # readings of a fit
_SEARCHED = 600  # readings of a search
_KNOTS = 8  # of a shape, in an execution
_OTHER_KNOTS = (8, 11, 14)
_SMOOTHED = 9  # readings that an onset is looked for in the means of
_WINDOWS, _MIDDLES = 24, 400  # that a search looks at to begin with
_ALIKE = 0.03  # share by which a burst's executions may be slower or faster than most
_SLOW_S = 1e-3
_SLOW_SHARE = 0.3
_SAME = 0.1  # logarithms by which windows differ, under which two fits are the same
_RIVAL = 1.25  # times what the best leaves of readings, that another may leave at first
_SMALLER = (1.0, 0.5, 0.25, 0.12, 0.06, 0.03)  # windows that a fine fit starts from, times the rough one


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """Readings of one channel with where they are; all but the load of shape (readings,).

    Attributes:
        seen: the readings.
        run: which each is of.
        load: bursts.
        pace_s: usual time of an execution in each burst, shape (bursts,).
    """

    seen: Seen
    run: IndexArray
    load: Load
    pace_s: FloatArray

    @property
    def after_begin_s(self) -> FloatArray:
        """Since the last burst's begin; endless before the first."""
        since = self.seen.moment_s - self.load.begin_s[np.maximum(self.seen.burst, 0)]
        return np.where(self.seen.burst >= 0, since, np.inf)

    @property
    def after_end_s(self) -> FloatArray:
        """Since the last burst's end, negative inside it; endless before the first."""
        since = self.seen.moment_s - self.load.end_s[np.maximum(self.seen.burst, 0)]
        return np.where(self.seen.burst >= 0, since, np.inf)

    @property
    def before_next_s(self) -> FloatArray:
        """Until the next burst; endless after the last."""
        following = np.append(self.load.begin_s, np.inf)[self.seen.burst + 1]
        return np.asarray(following - self.seen.moment_s)

    def rough(self, period_s: float, longest_s: float, rng: np.random.Generator) -> Sensing:
        """Window and delay by a search over a grid, then over a finer one.

        Args:
            period_s: of the channel.
            longest_s: that window and delay may be.
            rng: to choose readings with, where they are many.
        """
        near = np.minimum(np.minimum(np.abs(self.after_begin_s), np.abs(self.after_end_s)), np.abs(self.before_next_s))
        chosen = _some(near < longest_s + period_s, _SEARCHED, rng)
        seen = self.seen.only(chosen)
        # The middle of the window is told far better than its bounds: fine steps of it, and windows around it.
        windows = np.geomspace(0.002 * period_s, longest_s, _WINDOWS)
        step_s = max(0.25 * period_s, longest_s / _MIDDLES)
        found = search(seen, self.load, windows, np.arange(0.0, longest_s, step_s))
        for factor in (8.0, 4.0, 2.0, 1.5, 1.2):
            middle_s = found.delay_s + 0.5 * found.window_s
            windows = np.geomspace(found.window_s / factor, found.window_s * factor, 13)
            found = search(seen, self.load, windows, middle_s + 1.5 * step_s * np.linspace(-1.0, 1.0, 13))
            step_s /= 3.0
        return found

    def fitted(
        self,
        rough: Sensing,
        noise_w: float,
        rng: np.random.Generator,
        near: Sensing | None = None,
        before: Sensing | None = None,
    ) -> SensorFit:
        """The best fit that starts from a rough one.

        Args:
            rough: as by :meth:`rough`.
            noise_w: of a reading, about.
            rng: to choose readings with.
            near: to start from alone, where that is sure to be near.
            before: what fewer readings said; one more to start from.
        """
        if near is not None and near.window_s < FINE * self.load.execution_s:
            return self._settled(near, noise_w, rng)
        if rough.window_s >= FINE * self.load.execution_s:
            return self._coarse(rough, noise_w, rng)
        start = replace(rough, delay_s=self._onset_s(rough))
        starts = [self._fine(start, share * rough.window_s, noise_w, rng, _MOST // 2, 1) for share in _SMALLER]
        if before is not None and before.window_s < FINE * self.load.execution_s:
            starts.append(self._fine(before, before.window_s, noise_w, rng, _MOST // 2, 1))
        starts.sort(key=_left_w)
        rivals: list[SensorFit] = []
        for fit in starts:
            apart = [abs(math.log(fit.sensing.window_s / rival.sensing.window_s)) > _SAME for rival in rivals]
            if all(apart) and _left_w(fit) < _RIVAL * _left_w(starts[0]):
                rivals.append(fit)
        # They saw different readings and shapes; rivals are judged by the same.
        widest_s = max(fit.sensing.window_s for fit in rivals)
        judged = [self._fine(fit.sensing, widest_s, noise_w, rng, _MOST // 2, 2, fit.sensing.window_s) for fit in rivals]
        noise = min(_left_w(fit) for fit in judged) * 1.5
        best = min(judged, key=lambda fit: float(np.mean(np.minimum(np.abs(fit.left_w), 4.0 * noise) ** 2)))
        return self._settled(best.sensing, noise_w, rng)

    def _settled(self, start: Sensing, noise_w: float, rng: np.random.Generator) -> SensorFit:
        """The mean of fits by shapes of different fineness; that they differ counts as error."""
        fits = [self._fine(start, start.window_s, noise_w, rng, _MOST, knots=number) for number in _OTHER_KNOTS]
        windows = np.array([fit.sensing.window_s for fit in fits])
        delays = np.array([fit.sensing.delay_s for fit in fits])
        middle = fits[len(fits) // 2]
        return replace(
            middle,
            sensing=replace(middle.sensing, window_s=float(windows.mean()), delay_s=float(delays.mean())),
            window_se_s=float(np.hypot(middle.window_se_s, windows.std())),
            delay_se_s=float(np.hypot(middle.delay_se_s, delays.std())),
        )

    def _onset_s(self, rough: Sensing) -> float:
        """About when after a burst's begin readings begin to rise: at first with the square of the time."""
        within_s = rough.delay_s + 2.0 * rough.window_s + self.load.execution_s
        since = np.where(self.before_next_s < self.load.execution_s, -self.before_next_s, self.after_begin_s)
        ours = np.flatnonzero((since < within_s) & ((self.after_end_s < 0.0) | (since < 0.0)))
        ours = ours[np.argsort(since[ours])]
        if len(ours) < _SMOOTHED * _KNOTS:
            return rough.delay_s
        power = uniform_filter1d(self.seen.power_w[ours], _SMOOTHED, mode="nearest")
        moment = uniform_filter1d(since[ours], _SMOOTHED, mode="nearest")
        idle = float(np.median(power[moment < 0.0])) if np.any(moment < 0.0) else float(power[0])
        share = (power - idle) / (float(np.max(power)) - idle)
        tenth, third = (float(moment[np.argmax(share > level)]) for level in (0.1, 0.3))
        return max(float(tenth - (third - tenth) / (np.sqrt(3.0) - 1.0)), 0.0)

    def _coarse(self, rough: Sensing, noise_w: float, rng: np.random.Generator) -> SensorFit:
        first_s = self.load.execution_s * np.array([0.0, 1.0, 2.0, 4.0, 8.0])
        shortest_s = float(np.min(self.load.end_s - self.load.begin_s))
        knots = Knots(first_s[first_s < 0.5 * shortest_s], np.zeros(0), 0)
        start = Sensing(rough.window_s, rough.delay_s, 1e-7, max(_SLOW_S, 0.02 * rough.window_s), _SLOW_SHARE)
        reach_s = 1.5 * (rough.window_s + rough.delay_s) + 10.0 * start.slow_s
        near = np.minimum(np.abs(self.after_end_s), np.minimum(np.abs(self.after_begin_s), self.before_next_s)) < reach_s
        alike = self._alike()
        chosen = np.union1d(_some(near & alike, _MOST, rng), _some(~near & alike, _MOST // 4, rng))
        return fit_sensing(self.seen.only(chosen), self.run[chosen], self.load, start, knots, fast=False, noise_w=noise_w)

    def _fine(
        self,
        rough: Sensing,
        window_s: float,
        noise_w: float,
        rng: np.random.Generator,
        most: int,
        rounds: int = 3,
        from_s: float | None = None,
        knots: int = _KNOTS,
    ) -> SensorFit:
        """From a window of ``from_s``, with readings and shapes as a window of ``window_s`` calls for."""
        each_s = self.load.execution_s
        last = 1 if window_s < 0.5 * each_s else int(np.ceil(window_s / each_s)) + 1
        rise_s = max(each_s, 2.2 * window_s)
        step_s = each_s / knots
        shapes = Knots(_uneven(int(np.ceil(rise_s / step_s)) + 1) * step_s, _uneven(knots) * step_s, last)
        rising = (self.after_begin_s - rough.delay_s < rise_s - step_s) & (self.after_end_s < 0.0)
        falling_s = self.after_end_s - rough.delay_s
        falling = (falling_s - 1.2 * window_s > -last * each_s) & (self.after_begin_s > 0.0)
        steep = falling & (falling_s < max(3.0 * window_s, 0.5 * each_s))
        tail = (falling & ~steep) | ((self.before_next_s < each_s) & ~rising)
        alike = self._alike()
        chosen = np.union1d(_some((rising | steep) & alike, most, rng), _some(tail & alike, most // 4, rng))
        known = rough.slow_s > 0.0
        start = Sensing(
            from_s or window_s,
            rough.delay_s,
            rough.fast_s if known else max(0.3 * window_s, 1e-6),
            rough.slow_s if known else _SLOW_S,
            rough.slow_share if known else _SLOW_SHARE,
        )
        return fit_sensing(
            self.seen.only(chosen), self.run[chosen], self.load, start, shapes, fast=True, noise_w=noise_w, rounds=rounds
        )

    def _alike(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Readings whose last two bursts were as fast as most: slower ones draw less, which is not the sensor's doing."""
        alike = np.abs(self.pace_s / np.median(self.pace_s) - 1.0) < _ALIKE
        last = np.maximum(self.seen.burst, 0)
        return np.asarray(alike[last] & alike[np.maximum(last - 1, 0)])


def _left_w(fit: SensorFit) -> float:
    """What a fit usually leaves of a reading."""
    return float(np.median(np.abs(fit.left_w)))


def _uneven(steps: int) -> FloatArray:
    """From 0 to so many; between them not even, since a window of whole steps would be blind to them."""
    order = np.arange(steps + 1.0)
    inside = np.minimum(order, steps - order) > 0.0
    return np.asarray(order + np.where(inside, 0.35 * np.sin(2.4 * order), 0.0))


def _some(which: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], most: int, rng: np.random.Generator) -> IndexArray:
    """Places where it holds; where these are too many, some of them by chance."""
    found = np.flatnonzero(which)
    return found if len(found) <= most else np.sort(rng.choice(found, most, replace=False))
