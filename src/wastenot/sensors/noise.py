"""How much a sensor's readings scatter by themselves, at rest and under load."""

from __future__ import annotations

import numpy as np

from wastenot.arrays import FloatArray
from wastenot.sensors.channel_fit import Edges
from wastenot.sensors.model import Sensing

_LEAST = 12
_SETTLED = 8.0  # slow lags, and executions, after which power is steady
_HARMONICS = 8
_ROBUST = 1.4826
_AT_MOST = 3000


def noise_of(edges: Edges, sensing: Sensing, executions_s: FloatArray, *, busy: bool) -> float | None:
    """Standard deviation of a reading that sees nothing but rest, or nothing but steady work.

    Where a window is so short that it sees where in an execution it is, what follows from that place is no noise.

    Args:
        edges: the readings and bursts.
        sensing: window and delay, about.
        executions_s: when executions began or ended, rising.
        busy: under load; else at rest.

    Returns:
        ``None`` where too few readings tell.
    """
    load, seen = edges.load, edges.seen
    settle_s = sensing.reach_s + sensing.delay_s + _SETTLED * max(sensing.slow_s, load.execution_s)
    if busy:
        steady = (edges.after_begin_s > settle_s) & (edges.after_end_s < 0.0)
    else:
        steady = (edges.after_end_s > settle_s) & (edges.before_next_s > 0.0)
    places = np.flatnonzero(steady)[-_AT_MOST:]
    if len(places) < _LEAST:
        return None
    power = seen.power_w[places]
    if busy and edges.shaped(sensing):
        middle = seen.moment_s[places] - sensing.delay_s - 0.5 * sensing.span_s
        before = np.clip(np.searchsorted(executions_s, middle, side="right") - 1, 0, len(executions_s) - 2)
        phase = (middle - executions_s[before]) / (executions_s[before + 1] - executions_s[before])
        angle = 2.0 * np.pi * np.outer(phase, np.arange(1, _HARMONICS + 1))
        design = np.column_stack([np.ones(len(phase)), np.cos(angle), np.sin(angle)])
        if len(places) > 3 * design.shape[1]:
            power = power - design @ np.linalg.lstsq(design, power, rcond=None)[0]
    # From neighbour to neighbour, so that a slow drift is not taken for noise.
    step = np.diff(power)
    return float(_ROBUST * np.median(np.abs(step)) / np.sqrt(2.0))
