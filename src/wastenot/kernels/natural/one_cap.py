"""One cap on the clock of all kernels, and what it does to a whole iteration.

    clock   ──╮ ╭──╮     light kernels by themselves
              ╰─╯  ╰──   products by themselves
            ─────────    all of them in an iteration, where mean power meets the limit
            · · · · ·    a cap

Only a cap below the clock of the iteration changes anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.kernels.natural.whole import WholeIteration, changes_of
from wastenot.planning.objective import DEFAULT_CONFIDENCE
from wastenot.planning.power_limit import run_iteration


@dataclass(frozen=True, slots=True, eq=False)
class OneCap:
    """A cap, and how it changes the iteration.

    Attributes:
        core_mhz: the highest clock allowed.
        change: expected, of time and energy, as fractions; shape (2,).
        drawn: what it may truly be; shape (draws, 2).
    """

    core_mhz: float
    change: FloatArray
    drawn: FloatArray


def under_each_cap(whole: WholeIteration) -> FloatArray:
    """Expected changes of time and energy under a cap at each clock of the costs, as fractions; shape (clocks, 2)."""
    ceilings = (np.full(len(whole.curves), cap) for cap in range(len(whole.costs.core_mhz)))
    return np.array([changes_of(run_iteration(whole.costs, whole.limit_w, each), whole.default) for each in ceilings])


def best_cap(whole: WholeIteration, max_slowdown: float) -> OneCap | None:
    """The cap of least energy whose slowdown stays within the limit with 95 % confidence; ``None`` if none saves energy."""
    changes = under_each_cap(whole)
    for cap in np.argsort(changes[:, 1]).tolist():
        if changes[cap, 1] >= 0.0:
            break
        if changes[cap, 0] > max_slowdown:
            continue
        ceiling = np.full(len(whole.curves), cap)
        drawn = np.array([
            changes_of(run_iteration(costs, limit_w, ceiling), before)
            for (costs, limit_w), before in zip(whole.drawn, whole.without, strict=True)
        ])  # fmt: skip
        drawn += changes[cap] - drawn.mean(axis=0)
        if np.quantile(drawn[:, 0], DEFAULT_CONFIDENCE) <= max_slowdown:
            return OneCap(float(whole.costs.core_mhz[cap]), changes[cap], drawn)
    return None
