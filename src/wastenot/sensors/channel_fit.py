"""Fits of one channel: roughly by load that comes and goes at once, then with lags and what executions differ by.

A window or lag of many executions sees none of them by itself: all readings serve, and both are tried. A window of few
sees the shape of each, which is not known; then only readings near the edges of bursts serve, where power is known on one
side: idle before the first execution, and after the last one a fall that is a sum of exponentials. A window that is wrong
calls for a shape with kinks; that is what tells the right one, however fast or slow the power itself falls. A lag as short
as that of power could not be told from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.ndimage import uniform_filter1d

from wastenot.arrays import FloatArray, IndexArray
from wastenot.sensors.delay_drift import Course, follow
from wastenot.sensors.model import Knots, Load, Seen, Sensing
from wastenot.sensors.response_fit import SensorFit, fit_sensing, search

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
_SPANS = np.array([1.0, 0.7, 0.5, 0.35, 0.25])  # times the rough window, which a delay that moves makes too long
_LAG_IN_WINDOW = 0.4  # the lag that is most like a window
_LONG_BURSTS = 0.7  # share of bursts that are shorter than what demand may differ for
_FOR_A_KNOT, _FEW_KNOTS, _MANY_KNOTS = 16, 4, 24  # readings for each, and how many
_NONE_S = 1e-7
_BELIEVED = 0.003  # by how much a response that was fitted may be wrong, as a share of power
_LEAST_TELLING = 10  # readings that two fits say different things of, for these to decide
_KEPT = 0.8  # share of readings that fits are judged by
_FOLLOWED = 500  # readings that a course of the delay is followed by
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

    def shaped(self, sensing: Sensing) -> bool:
        """Whether a sensor sees the shape of executions."""
        return sensing.reach_s < FINE * self.load.execution_s

    def rough(self, period_s: float, longest_s: float, rng: np.random.Generator) -> Sensing:
        """Window and delay by a search over a grid, then over a finer one.

        Args:
            period_s: of the channel.
            longest_s: that window and delay may be.
            rng: to choose readings with, where they are many.
        """
        chosen = _some(self._nearest_s < longest_s + period_s, _SEARCHED, rng)
        seen = self.seen.only(chosen)
        # The middle of the window is told far better than its bounds: fine steps of it, and windows around it.
        windows = np.geomspace(0.002 * period_s, longest_s, _WINDOWS)
        step_s = max(0.25 * period_s, longest_s / _MIDDLES)
        found = search(seen, self.load, windows, np.arange(0.0, longest_s, step_s))
        for factor in (8.0, 4.0, 2.0, 1.5, 1.2):
            middle_s = found.middle_s
            windows = np.geomspace(found.span_s / factor, found.span_s * factor, 13)
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
        if near is not None and self.shaped(near):
            return self._settled(near, noise_w, rng)
        if not self.shaped(rough):
            return self._coarse(rough, noise_w, rng)
        start = replace(rough, delay_s=self._onset_s(rough))
        starts = [self._fine(start, share * rough.span_s, noise_w, rng, _MOST // 2, 1) for share in _SMALLER]
        if before is not None and self.shaped(before):
            before = replace(before, at_s=rough.at_s)
            starts.append(self._fine(before, before.span_s, noise_w, rng, _MOST // 2, 1))
        starts.sort(key=_left_w)
        rivals: list[SensorFit] = []
        for fit in starts:
            apart = [abs(math.log(fit.sensing.span_s / rival.sensing.span_s)) > _SAME for rival in rivals]
            if all(apart) and _left_w(fit) < _RIVAL * _left_w(starts[0]):
                rivals.append(fit)
        # They saw different readings and shapes; rivals are judged by the same.
        widest_s = max(fit.sensing.span_s for fit in rivals)
        judged = [self._fine(fit.sensing, widest_s, noise_w, rng, _MOST // 2, 2, fit.sensing.span_s) for fit in rivals]
        noise = min(_left_w(fit) for fit in judged) * 1.5
        best = min(judged, key=lambda fit: float(np.mean(np.minimum(np.abs(fit.left_w), 4.0 * noise) ** 2)))
        return self._settled(best.sensing, noise_w, rng)

    def _settled(self, start: Sensing, noise_w: float, rng: np.random.Generator) -> SensorFit:
        """The middle of fits by shapes of different fineness: one may suit a wrong window. That they differ is error."""
        fits = [self._fine(start, start.span_s, noise_w, rng, _MOST, knots=number) for number in _OTHER_KNOTS]
        fits.sort(key=lambda fit: fit.sensing.span_s)
        windows = np.array([fit.sensing.span_s for fit in fits])
        delays = np.array([fit.sensing.delay_s for fit in fits])
        middle = fits[len(fits) // 2]
        # A drift beside everything else would cost digits of the window; it is looked for once that is known.
        chance = np.random.default_rng(0)
        drifting = self._fine(middle.sensing, middle.sensing.span_s, noise_w, chance, _MOST // 2, 2, drifts=True)
        drift = drifting.sensing.drift
        return replace(
            middle,
            sensing=replace(middle.sensing, drift=drift),
            drift_se=drifting.drift_se,
            span_se_s=float(np.hypot(middle.span_se_s, windows.std())),
            delay_se_s=float(np.hypot(middle.delay_se_s, delays.std())),
        )

    def _onset_s(self, rough: Sensing) -> float:
        """About when after a burst's begin readings begin to rise: at first with the square of the time."""
        within_s = rough.delay_s + 2.0 * rough.span_s + self.load.execution_s
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
        """The better of a mean over a window and a first-order lag, each with its own course of the delay."""
        usable = self._alike()
        reach_s = 1.5 * (rough.reach_s + rough.delay_s) + 10.0 * _SLOW_S
        near = self._nearest_s < reach_s
        told = self.seen.only(_some(near & usable, _FOLLOWED, rng))
        chosen = np.union1d(_some(near & usable, _MOST, rng), _some(~near & usable, _MOST // 4, rng))
        # Limits on power act when they act: for all of a burst demand may differ from its level, as finely as readings tell.
        longest_s = float(np.quantile(self.load.end_s - self.load.begin_s, _LONG_BURSTS))
        number = min(max(int(np.sum(near & usable)) // _FOR_A_KNOT, _FEW_KNOTS), _MANY_KNOTS)
        first_s = np.append(0.0, np.geomspace(min(self.load.execution_s, 0.1 * longest_s), longest_s, number))
        knots = Knots(first_s, np.zeros(0), 0)

        def fit(course: Course) -> SensorFit:
            start = course.sensing
            start = replace(start, fast_s=_NONE_S, slow_s=max(_SLOW_S, 0.02 * start.span_s), slow_share=_SLOW_SHARE)
            seen = course.seen(self.seen.only(chosen))
            return fit_sensing(seen, self.run[chosen], self.load, start, knots, fast=False, noise_w=noise_w)

        fits = []
        for middle, most_like in ((0.5, 1.0), (1.0, _LAG_IN_WINDOW)):
            starts = [
                replace(rough, span_s=span_s, delay_s=max(rough.middle_s - middle * span_s, 0.0), lagging=middle == 1.0)
                for span_s in (rough.span_s * most_like * _SPANS).tolist()
            ]
            found = fit(follow(told, self.load, starts, noise_w))
            if found.sensing.sample_s:  # now that the response is known, readings close to a jump are told apart as well
                again = fit(follow(told, self.load, [found.sensing], noise_w, believed=_BELIEVED))
                found = min(found, again, key=lambda one: _usual_w(one.left_w))
            fits.append(found)
        # Steady readings say nothing of the response: those count that the two say different things of.
        differ_w = np.abs(fits[0].left_w - fits[1].left_w)
        telling = differ_w > min(_left_w(one) for one in fits)
        if np.sum(telling) < _LEAST_TELLING:
            telling[:] = True
        best, other = sorted(fits, key=lambda one: _usual_w(one.left_w[telling]))
        return replace(best, usual_w=_usual_w(best.left_w[telling]), other_usual_w=_usual_w(other.left_w[telling]))

    @property
    def _nearest_s(self) -> FloatArray:
        """Time to the nearest edge."""
        near = np.minimum(np.abs(self.after_begin_s), np.abs(self.after_end_s))
        return np.asarray(np.minimum(near, np.abs(self.before_next_s)))

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
        drifts: bool = False,
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
        start = replace(
            rough,
            span_s=from_s or window_s,
            fast_s=rough.fast_s if known else max(0.3 * window_s, 1e-6),
            slow_s=rough.slow_s if known else _SLOW_S,
            slow_share=rough.slow_share if known else _SLOW_SHARE,
            drift=0.0,
        )
        seen, run = self.seen.only(chosen), self.run[chosen]
        return fit_sensing(seen, run, self.load, start, shapes, fast=True, noise_w=noise_w, drifts=drifts, rounds=rounds)

    def _alike(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Readings whose last two bursts were as fast as most: slower ones draw less, which is not the sensor's doing."""
        alike = np.abs(self.pace_s / np.median(self.pace_s) - 1.0) < _ALIKE
        last = np.maximum(self.seen.burst, 0)
        return np.asarray(alike[last] & alike[np.maximum(last - 1, 0)])


def _left_w(fit: SensorFit) -> float:
    """What a fit usually leaves of a reading."""
    return float(np.median(np.abs(fit.left_w)))


def _usual_w(left_w: FloatArray) -> float:
    """What is left of readings, root mean square, those farthest off aside."""
    least = np.sort(np.abs(left_w))[: math.ceil(_KEPT * len(left_w))]
    return float(np.sqrt(np.mean(least**2)))


def _uneven(steps: int) -> FloatArray:
    """From 0 to so many; between them not even, since a window of whole steps would be blind to them."""
    order = np.arange(steps + 1.0)
    inside = np.minimum(order, steps - order) > 0.0
    return np.asarray(order + np.where(inside, 0.35 * np.sin(2.4 * order), 0.0))


def _some(which: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], most: int, rng: np.random.Generator) -> IndexArray:
    """Places where it holds; where these are too many, some of them by chance."""
    found = np.flatnonzero(which)
    return found if len(found) <= most else np.sort(rng.choice(found, most, replace=False))
