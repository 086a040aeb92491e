"""Readings of a channel by the bursts that they follow, and the noise that is in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray
from wastenot.meters.sensors.model import BurstReadings, Load, SensorParameters

FINE_EXECUTIONS = 4.0
"""Number of executions below which a window sees their shape."""
_MIN_SIMILAR = 32  # readings at the usual pace, below which pace is not looked at
_SIMILAR_PACE = 0.03  # fraction by which a burst's executions may be slower or faster than most
MAD_TO_SD = 1.4826  # 1 / Φ⁻¹(3/4): the standard deviation of a normal variable by its median absolute deviation
SHAPE_KNOTS = 8  # in an execution
_MIN_STEADY = 12  # readings that tell the noise
_STEADY_AFTER = 8.0  # slow lags, or executions, after which power is steady
_HARMONICS = 8
_NOISE_READINGS = 3000


@dataclass(frozen=True, slots=True, eq=False)
class ChannelReadings:
    """Readings of one channel and their position relative to bursts; all but the load of shape (readings,).

    Attributes:
        run: index of each reading's run.
        pace_s: usual duration of an execution in each burst, shape (bursts,).
    """

    readings: BurstReadings
    run: IndexArray
    load: Load
    pace_s: FloatArray

    @property
    def after_begin_s(self) -> FloatArray:
        """Since the last burst's beginning; infinite before the first."""
        since = self.readings.moment_s - self.load.begin_s[np.maximum(self.readings.burst, 0)]
        return np.where(self.readings.burst >= 0, since, np.inf)

    @property
    def after_end_s(self) -> FloatArray:
        """Since the last burst's end, negative during it; infinite before the first."""
        since = self.readings.moment_s - self.load.end_s[np.maximum(self.readings.burst, 0)]
        return np.where(self.readings.burst >= 0, since, np.inf)

    @property
    def before_next_s(self) -> FloatArray:
        """Until the next burst; infinite after the last."""
        following = np.append(self.load.begin_s, np.inf)[self.readings.burst + 1]
        return np.asarray(following - self.readings.moment_s)

    @property
    def to_edge_s(self) -> FloatArray:
        """Time to the nearest edge."""
        nearest = np.minimum(np.abs(self.after_begin_s), np.abs(self.after_end_s))
        return np.asarray(np.minimum(nearest, np.abs(self.before_next_s)))

    @property
    def similar_pace(self) -> BoolArray:
        """Mask of readings whose last two bursts ran at the usual pace: slower ones draw less power.

        Where hardly any did, as under a power limit that throttles every burst differently, all readings count.
        """
        similar = np.abs(self.pace_s / np.median(self.pace_s) - 1.0) < _SIMILAR_PACE
        last = np.maximum(self.readings.burst, 0)
        mask = similar[last] & similar[np.maximum(last - 1, 0)]
        return np.asarray(mask if mask.sum() >= _MIN_SIMILAR else np.ones(len(mask), dtype=bool))

    def sees_shape(self, parameters: SensorParameters) -> bool:
        """Whether a sensor resolves the shape of executions."""
        return parameters.reach_s < FINE_EXECUTIONS * self.load.execution_s


def reading_noise(
    channel: ChannelReadings, parameters: SensorParameters, executions_s: FloatArray, *, busy: bool
) -> float | None:
    """Standard deviation of readings that reflect only rest, or only steady work.

    Where a window is so short that it sees the phase of an execution, what depends on that phase is not noise.

    Args:
        channel: its readings.
        parameters: approximate window and delay.
        executions_s: when executions began or ended, ascending.
        busy: under load rather than at rest.

    Returns:
        ``None`` where there are too few steady readings.
    """
    load, readings = channel.load, channel.readings
    transient_s = parameters.reach_s + parameters.delay_s + _STEADY_AFTER * max(parameters.slow_s, load.execution_s)
    if busy:
        steady = (channel.after_begin_s > transient_s) & (channel.after_end_s < 0.0)
    else:
        steady = (channel.after_end_s > transient_s) & (channel.before_next_s > 0.0)
    chosen = np.flatnonzero(steady)[-_NOISE_READINGS:]
    if len(chosen) < _MIN_STEADY:
        return None
    power = readings.power_w[chosen]
    if busy and channel.sees_shape(parameters):
        middle = readings.moment_s[chosen] - parameters.delay_s - 0.5 * parameters.span_s
        before = np.clip(np.searchsorted(executions_s, middle, side="right") - 1, 0, len(executions_s) - 2)
        phase = (middle - executions_s[before]) / (executions_s[before + 1] - executions_s[before])
        angle = 2.0 * np.pi * np.outer(phase, np.arange(1, _HARMONICS + 1))
        design = np.column_stack([np.ones(len(phase)), np.cos(angle), np.sin(angle)])
        if len(chosen) > 3 * design.shape[1]:
            power = power - design @ np.linalg.lstsq(design, power, rcond=None)[0]
    # Between neighbours, so that a slow drift does not count as noise; differences of two have twice the variance.
    return float(MAD_TO_SD * np.median(np.abs(np.diff(power))) / np.sqrt(2.0))
