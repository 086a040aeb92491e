"""Which clock pairs to measure for a calibration: far apart, and over all kernels every pair about equally often.

Four corners pin the limits of every kernel (core, memory, latency, floor). The other points are the ones farthest from
those chosen, over the core clock (linear: voltage bends in the upper half) and the logarithm of the memory clock; pairs
that earlier kernels used count as nearer, so the kernels take turns and each core clock of the voltage table and each
memory state is seen by some of them. Nothing measured is looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wastenot.tuning.calibration.measured_points import Array, Points, core_levels

Level = tuple[int, int]


def _unit_scaled(values: Array) -> Array:
    extent = float(np.ptp(values))
    return np.asarray((values - values.min()) / (extent or 1.0))


def _levels(clocks_mhz: Array) -> NDArray[np.int64]:
    """Rank of each clock; clocks one step of the driver apart share a rank."""
    levels = core_levels(clocks_mhz)
    return np.asarray(np.abs(clocks_mhz[:, None] - levels).argmin(axis=1), dtype=np.int64)


def choose_pairs(available: Sequence[tuple[float, float]], used: Counter[Level], count: int = 8) -> list[int]:
    """The pairs to measure for the next kernel.

    Args:
        available: the (core, memory) clock pairs of the device in MHz, without auto.
        used: how often earlier kernels used each pair of clock levels; is brought up to date.
        count: how many pairs to choose.

    Returns:
        Indices into available, in the order of choice; all of them when there are no more than count.
    """
    pairs = np.asarray(available, dtype=float)
    core, memory = _unit_scaled(pairs[:, 0]), _unit_scaled(np.log(pairs[:, 1]))
    places = np.stack([core, memory], axis=1)
    levels = list(zip(_levels(pairs[:, 0]).tolist(), _levels(pairs[:, 1]).tolist(), strict=True))
    turns = np.array([1.0 + used[level] for level in levels])
    corners = (core + memory, memory - 2 * core, 1.9 * core - 2 * memory, -core - memory)
    chosen = list(dict.fromkeys(int(np.argmax(corner)) for corner in corners))[:count]
    while len(chosen) < min(count, len(pairs)):
        distance = np.linalg.norm(places[:, None] - places[chosen][None], axis=2).min(axis=1)
        score = np.round(distance / turns, 9) + 1e-8 * (core + memory)
        score[chosen] = -1.0
        chosen.append(int(np.argmax(score)))
    used.update(levels[index] for index in chosen)
    return chosen


def choose_points(points: Points, count: int = 8) -> Array:
    """Which of the measured points of every kernel to fit, as a mask; kernels take turns over the clocks."""
    mask, used = np.zeros_like(points.mask), Counter[Level]()
    for kernel, present in enumerate(points.mask > 0):
        available = np.flatnonzero(present)
        core, memory = points.core_mhz[kernel, available], points.memory_mhz[kernel, available]
        pairs = list(zip(core.tolist(), memory.tolist(), strict=True))
        mask[kernel, available[choose_pairs(pairs, used, count)]] = 1.0
    return mask
