"""When to begin a run, so that readings fall where they tell something.

A sensor that samples a moment is met at random. One that averages over a part of its period says nothing between its
windows; once its rhythm is known, each run is begun so that a window ends at a random place of the burst or just after.

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
        channel: to meet.
        least_s: to rest.
        aligned: whether the channel's stamps are of the clock that runs are begun by, so that its rhythm can be met.
        rng: chance.
    """

    def __init__(self, channel: Channel, least_s: float, aligned: bool, rng: np.random.Generator) -> None:
        self._channel, self._aligned, self._rng = channel, aligned, rng
        self._least_s = max(least_s, channel.reach_s)  # what ran before must have left the readings

    def rest_s(self, now_s: float, runs: Sequence[BurstRun]) -> float:
        """Time to rest before the next run.

        Args:
            now_s: by the clock of the readings.
            runs: of the same burst so far; the last one's readings tell the rhythm.
        """
        channel = self._channel
        readings: FloatArray = runs[-1].readings[TOTAL].moment_s if runs else np.empty(0)
        span_s = float(runs[-1].end_s[-1] - runs[-1].begin_s[0]) if runs else 0.0
        if not self._aligned or not len(readings) or span_s > channel.period_s:
            return self._least_s + float(self._rng.uniform(0.0, channel.period_s))
        # Of the window's end from the run's begin; the stamp comes a delay later.
        wanted_s = float(self._rng.uniform(0.0, span_s + min(channel.reach_s, 2.0 * channel.span_s))) + channel.delay_s
        last_s = float(readings[-1])
        periods = np.ceil((now_s + self._least_s + wanted_s - last_s) / channel.period_s)
        return float(last_s + periods * channel.period_s - wanted_s - now_s)
