"""A first guess of a sensor's window and delay: the pair whose mean of the load explains readings best."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import uniform_filter1d

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray
from wastenot.meters.sensors.channel_readings import SHAPE_KNOTS, ChannelReadings
from wastenot.meters.sensors.model import BurstReadings, Load, SensorParameters

_SEARCH_READINGS = 600
_SMOOTHED_READINGS = 9  # averaged to find an onset
_SEARCH_WINDOWS, _SEARCH_DELAYS = 24, 400


def rough_fit(channel: ChannelReadings, period_s: float, longest_s: float, rng: np.random.Generator) -> SensorParameters:
    """Window and delay by a search over a grid, then over finer ones.

    Args:
        channel: its readings.
        period_s: of the channel.
        longest_s: upper bound of window and delay.
        rng: for a random subset of readings, where they are many.
    """
    chosen = random_subset(channel.to_edge_s < longest_s + period_s, _SEARCH_READINGS, rng)
    readings = channel.readings.subset(chosen)
    # The middle of the window is determined far better than its length: fine steps of it, with several windows around it.
    windows = np.geomspace(0.002 * period_s, longest_s, _SEARCH_WINDOWS)
    step_s = max(0.25 * period_s, longest_s / _SEARCH_DELAYS)
    # Then five grids around the best: 13 windows within a smaller factor, 13 ages within 1.5 steps, which shrink to a third.
    best = _grid_search(readings, channel.load, windows, np.arange(0.0, longest_s, step_s))
    for factor in (8.0, 4.0, 2.0, 1.5, 1.2):
        windows = np.geomspace(best.span_s / factor, best.span_s * factor, 13)
        ages_s = best.mean_age_s + 1.5 * step_s * np.linspace(-1.0, 1.0, 13)
        best = _grid_search(readings, channel.load, windows, ages_s)
        step_s /= 3.0
    return best


def _grid_search(readings: BurstReadings, load: Load, windows_s: FloatArray, ages_s: FloatArray) -> SensorParameters:
    """The window, and its middle's age, that explain readings best for a load that switches instantly.

    Readings are then idle + (busy − idle) · the fraction of the window that was busy. Of all levels, the sum of squares that
    such a line explains is (fraction · reading)² / fraction², both less their means: one product for each window and age.
    """
    edges = np.stack([load.begin_s, load.end_s], axis=1).ravel()
    worked = np.concatenate([[0.0], np.cumsum(np.diff(edges) * (np.arange(len(edges) - 1) % 2 == 0))])
    power = readings.power_w - readings.power_w.mean()
    highest, best = -np.inf, (float(windows_s[0]), 0.0)
    for age in ages_s:
        delays = np.maximum(age - 0.5 * windows_s, 0.0)
        until = readings.moment_s - delays[:, None]
        busy = np.interp(until, edges, worked) - np.interp(until - windows_s[:, None], edges, worked)
        busy /= windows_s[:, None]
        busy -= busy.mean(axis=1, keepdims=True)
        explained = [float(one @ power) ** 2 / max(float(one @ one), 1e-12) for one in busy]
        index = int(np.argmax(explained))
        if explained[index] > highest:
            highest, best = explained[index], (float(windows_s[index]), float(delays[index]))
    return SensorParameters(*best, 0.0, 0.0, 0.0, at_s=centre_of(readings))


def centre_of(readings: BurstReadings) -> float:
    """The moment at which delays that drift are stated."""
    return 0.5 * float(readings.moment_s[0] + readings.moment_s[-1])


def random_subset(mask: BoolArray, most: int, rng: np.random.Generator) -> IndexArray:
    """Indices where the mask holds; a random subset where these are too many."""
    indices = np.flatnonzero(mask)
    return indices if len(indices) <= most else np.sort(rng.choice(indices, most, replace=False))


def onset_s(channel: ChannelReadings, rough: SensorParameters) -> float:
    """About when after a burst's beginning readings begin to rise: at first with the square of the time.

    Power rises linearly at first (a lag's response to a step), thus its mean over a window that reaches back before the
    onset t₀ rises as (t − t₀)². Let t₁ be at 0.1 and t₃ at 0.3 of the rise: (t₃ − t₀) / (t₁ − t₀) = √3, which gives t₀.
    """
    load = channel.load
    within_s = rough.delay_s + 2.0 * rough.span_s + load.execution_s
    since = np.where(channel.before_next_s < load.execution_s, -channel.before_next_s, channel.after_begin_s)
    rising = np.flatnonzero((since < within_s) & ((channel.after_end_s < 0.0) | (since < 0.0)))
    rising = rising[np.argsort(since[rising])]
    if len(rising) < _SMOOTHED_READINGS * SHAPE_KNOTS:
        return rough.delay_s
    power = uniform_filter1d(channel.readings.power_w[rising], _SMOOTHED_READINGS, mode="nearest")
    moment = uniform_filter1d(since[rising], _SMOOTHED_READINGS, mode="nearest")
    idle = float(np.median(power[moment < 0.0])) if np.any(moment < 0.0) else float(power[0])
    fraction = (power - idle) / (float(np.max(power)) - idle)
    tenth, third = (float(moment[np.argmax(fraction > level)]) for level in (0.1, 0.3))
    return max(float(tenth - (third - tenth) / (np.sqrt(3.0) - 1.0)), 0.0)
