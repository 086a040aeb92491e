"""What an instance draws at each level of load, at the cheapest clock that keeps the deadlines.

The estimate of :mod:`wastenot.serving.cluster.levels`, checked step by step by the simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.serving.cluster.levels import levels
from wastenot.serving.cluster.mixes import Mix
from wastenot.serving.cluster.model import ClockRule
from wastenot.serving.cluster.trials import Trial
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine

RATES = 48
"""Of the estimate, from a hundredth of the greatest on."""
_HOPELESS = 0.6
"""Of the share: clocks that by the estimate keep fewer are not checked."""


@dataclass(frozen=True, slots=True, eq=False)
class InstanceFrontier:
    """Levels of load of an instance, each at the cheapest clock that keeps the deadlines.

    Attributes:
        engine: of the instance.
        mix: of its requests.
        rate_per_s: ascending, the last its capacity; shape (levels,); empty where no clock keeps the deadlines at any rate.
        setting: of least power; shape (levels,).
        power_w: at it; shape (levels,).
        batch: requests that decode, on average; shape (levels,).
        rule: of the clock at each level, where it is not fixed: ``setting`` is then that of an instance without a backlog.
    """

    engine: Engine
    mix: Mix
    rate_per_s: FloatArray
    setting: IndexArray
    power_w: FloatArray
    batch: FloatArray
    rule: tuple[ClockRule, ...] = ()

    @property
    def capacity_per_s(self) -> float:
        """The greatest rate that keeps the deadlines."""
        return float(self.rate_per_s[-1]) if len(self.rate_per_s) else 0.0

    def power_at(self, rate_per_s: float | FloatArray) -> FloatArray:
        """Power at a rate, with straight lines between levels and from the idle engine; inf beyond capacity."""
        rate = np.concatenate([[0.0], self.rate_per_s])
        power = np.concatenate([[float(self.engine.tables.idle_power_w.min())], self.power_w])
        return np.where(np.asarray(rate_per_s) <= rate[-1] * (1 + 1e-9), np.interp(rate_per_s, rate, power), np.inf)


def frontier(
    engine: Engine,
    mix: Mix,
    deadlines: Deadlines,
    *,
    settings: Sequence[int] | None = None,
    share: float = 0.99,
    points: int = 10,
    together: int = 1,
) -> InstanceFrontier:
    """Levels of load at equal distances up to the capacity; a clock is raised until the simulator says that it suffices.

    Args:
        engine: of the instance.
        mix: of its requests.
        deadlines: to be kept.
        settings: that may be chosen; all by default.
        share: of the requests of each class that are to keep the deadlines.
        points: levels.
        together: instances behind one router; the more there are, the more even is the load of each.
    """
    trial = Trial(engine, mix, deadlines, share, together)
    allowed = np.array(sorted(settings if settings is not None else range(len(engine.tables.settings))), dtype=np.intp)
    capacity = _capacity(trial, allowed)
    if not capacity > 0:
        nothing = np.zeros(0)
        return InstanceFrontier(engine, mix, nothing, nothing.astype(np.intp), nothing, nothing)
    rate = capacity * np.arange(1, points + 1) / points
    at = levels(engine, mix, deadlines, rate)
    setting, power, batch = np.zeros(points, dtype=np.intp), np.zeros(points), np.zeros(points)
    for place in range(points):
        order = allowed[np.argsort(at.power_w[allowed, place], kind="stable")]
        hopeful = at.kept[order, place] >= _HOPELESS * share
        hopeful &= order >= (setting[place - 1] if place else 0)  # more load never asks for a lower clock
        hopeful |= order == allowed[-1]
        setting[place], power[place] = _cheapest(trial, order[hopeful], float(rate[place]))
        batch[place] = at.batch[setting[place], place]
    return InstanceFrontier(engine, mix, rate, setting, power, batch)


def capacity_at_full_speed(engine: Engine, mix: Mix, deadlines: Deadlines, *, share: float = 0.99) -> float:
    """The greatest rate that keeps the deadlines at the greatest clock: the capacity of such a frontier, without its levels.

    Args:
        engine: of the instance.
        mix: of its requests.
        deadlines: to be kept.
        share: of the requests of each class that are to keep the deadlines.
    """
    return _capacity(Trial(engine, mix, deadlines, share, 1), np.array([len(engine.tables.settings) - 1]))


def _capacity(trial: Trial, allowed: IndexArray) -> float:
    """The greatest rate that keeps the deadlines at the greatest of the settings, of which the last is it."""
    most = trial.most_per_s
    estimate = levels(trial.engine, trial.mix, trial.deadlines, np.geomspace(most / 100, most, RATES))
    guess_per_s = float(estimate.capacity(trial.share)[allowed].max())
    return trial.capacity(ClockRule.fixed(int(allowed[-1]), trial.engine), guess_per_s)


def _cheapest(trial: Trial, order: IndexArray, rate_per_s: float) -> tuple[int, float]:
    """The first setting by estimated power that keeps the deadlines, and its power in the trial."""
    greatest, failed, best = int(order.max()), -1, (-1, np.inf)
    for each in order.tolist():
        if each <= failed:  # slower than one that was too slow
            continue
        keeps, power_w = trial.run(ClockRule.fixed(each, trial.engine), rate_per_s)
        if keeps or each == greatest:
            best = each, power_w
            break
        failed = each
    return best
