"""How long to rest before a run, so that its readings are informative.

Where a sensor samples an instant, runs begin at random. One that averages over part of its period sees nothing between its
windows: once its rhythm is known, each run begins so that a window ends at a random moment of the burst or just after.

    sensor   ──├──window──┤──────────────├──window──┤──────────────├──window──┤───
    run                              begin ▇▇▇▇▇▇▇▇▇▇▇▇▇
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wastenot.arrays import FloatArray
from wastenot.devices.instrument import TOTAL, BurstRun, Channel


class Rests:
    """Times to rest before runs.

    Args:
        channel: whose readings the runs are timed for.
        least_s: shortest rest.
        aligned: whether the channel's timestamps are on the clock that runs are started by, so that its rhythm is usable.
        rng: random generator.
    """

    def __init__(self, channel: Channel, least_s: float, aligned: bool, rng: np.random.Generator) -> None:
        self._channel, self._aligned, self._rng = channel, aligned, rng
        self._least_s = max(least_s, channel.reach_s)  # what ran before must have left the readings

    def rest_s(self, now_s: float, runs: Sequence[BurstRun]) -> float:
        """Time to rest before the next run.

        Args:
            now_s: on the clock of the readings.
            runs: of the same burst so far; the readings of the last show the sensor's rhythm.
        """
        channel = self._channel
        readings: FloatArray = runs[-1].readings[TOTAL].moment_s if runs else np.empty(0)
        span_s = float(runs[-1].end_s[-1] - runs[-1].begin_s[0]) if runs else 0.0
        if not self._aligned or not len(readings) or span_s > channel.period_s:
            return self._least_s + float(self._rng.uniform(0.0, channel.period_s))
        # From the run's begin to the timestamp of the reading, which comes a delay after its window's end.
        wanted_s = float(self._rng.uniform(0.0, span_s + min(channel.reach_s, 2.0 * channel.span_s))) + channel.delay_s
        last_s = float(readings[-1])
        periods = np.ceil((now_s + self._least_s + wanted_s - last_s) / channel.period_s)
        return float(last_s + periods * channel.period_s - wanted_s - now_s)
