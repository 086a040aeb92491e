"""One cap on the clock of all kernels, and what it does to a whole iteration.

    clock   ──╮ ╭──╮     light kernels by themselves
              ╰─╯  ╰──   products by themselves
            ─────────    all of them in an iteration, where mean power meets the limit
            · · · · ·    only a cap below that changes anything
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.kernels.natural.iteration import Known, PredictedIteration, changes_of
from wastenot.planning.objective import DEFAULT_CONFIDENCE
from wastenot.planning.power_limit import run_iteration


@dataclass(frozen=True, slots=True, eq=False)
class OneCap:
    """A cap, and how it changes the iteration."""

    core_mhz: float
    time_change: Known
    energy_change: Known


def under_each_cap(predicted: PredictedIteration) -> FloatArray:
    """Expected changes of time and energy under a cap at each clock of the costs, as fractions; shape (clocks, 2)."""
    costs, limit_w = predicted.costs, predicted.limit_w
    ceilings = (np.full(len(costs.kernels), cap) for cap in range(len(costs.core_mhz)))
    return np.array([changes_of(run_iteration(costs, limit_w, each), predicted.default) for each in ceilings])


def best_cap(predicted: PredictedIteration, max_slowdown: float) -> OneCap | None:
    """The cap of least energy whose slowdown stays within the limit with 95 % confidence; ``None`` if none saves energy."""
    time, energy = under_each_cap(predicted).T
    for cap in np.argsort(energy).tolist():
        if energy[cap] >= 0.0:
            break
        if time[cap] > max_slowdown:
            continue
        ceiling = np.full(len(predicted.costs.kernels), cap)
        drawn = np.array([
            changes_of(run_iteration(costs, limit_w, ceiling), before)
            for (costs, limit_w), before in zip(predicted.drawn, predicted.without, strict=True)
        ])  # fmt: skip
        around = drawn - drawn.mean(axis=0)
        if time[cap] + np.quantile(around[:, 0], DEFAULT_CONFIDENCE) <= max_slowdown:
            known = (Known.of(float(each[cap]), each[cap] + own) for each, own in zip((time, energy), around.T, strict=True))
            return OneCap(float(predicted.costs.core_mhz[cap]), *known)
    return None
