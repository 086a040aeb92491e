"""What an instance draws at each level of load, at the cheapest clock that keeps the deadlines.

The estimate of :mod:`wastenot.stack.serving.cluster.levels`, checked step by step by the simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.arrays import FloatArray, IndexArray
from wastenot.stack.serving.cluster.levels import levels
from wastenot.stack.serving.cluster.mixes import Mix
from wastenot.stack.serving.cluster.model import Action, ChangeTimes, ClockRule, Cluster, ClusterView, Start
from wastenot.stack.serving.cluster.results import kept
from wastenot.stack.serving.cluster.simulation.simulate import simulate_cluster
from wastenot.stack.serving.deadlines import Deadlines
from wastenot.stack.serving.engine import Engine

RATES = 48
"""Of the estimate, from a hundredth of the greatest on."""
CHECKED = 3000
"""Requests of a check."""
_SEED = 20_240_510
_HOPELESS = 0.6
"""Of the share: clocks that by the estimate keep fewer are not checked."""
_FEWEST = 100
"""Requests of a class that say enough of it."""


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
    """

    engine: Engine
    mix: Mix
    rate_per_s: FloatArray
    setting: IndexArray
    power_w: FloatArray
    batch: FloatArray

    @property
    def capacity_per_s(self) -> float:
        """The greatest rate that keeps the deadlines."""
        return float(self.rate_per_s[-1]) if len(self.rate_per_s) else 0.0

    def setting_at(self, rate_per_s: float | FloatArray) -> IndexArray:
        """The setting of the first level that takes a rate; beyond capacity, the greatest there is."""
        if not len(self.setting):
            return np.full(np.shape(rate_per_s), len(self.engine.tables.settings) - 1, dtype=np.intp)
        beyond = np.append(self.setting, len(self.engine.tables.settings) - 1)
        return np.asarray(beyond[np.searchsorted(self.rate_per_s * (1 + 1e-9), rate_per_s)], dtype=np.intp)

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
    checked: bool = True,
) -> InstanceFrontier:
    """Levels of load at equal distances up to the capacity.

    Args:
        engine: of the instance.
        mix: of its requests.
        deadlines: to be kept.
        settings: that may be chosen; all by default.
        share: of the requests of each class that are to keep the deadlines.
        points: levels.
        together: instances behind one router; the more there are, the more even is the load of each.
        checked: by the simulator: a level's clock is raised until it keeps them there, and its power is that of the run.
    """
    most = _most_per_s(engine, mix)
    allowed = np.array(sorted(settings if settings is not None else range(len(engine.tables.settings))), dtype=np.intp)
    estimate = levels(engine, mix, deadlines, np.geomspace(most / 100, most, RATES))
    capacity = float(estimate.capacity(share)[allowed].max())
    check = _Check(engine, mix, deadlines, share, together)
    if checked:
        capacity = check.capacity(int(allowed[-1]), capacity, most)
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
        order = order[hopeful]
        if checked:
            setting[place], power[place] = check.level(order, float(rate[place]))
        else:
            good = [each for each in order if at.kept[each, place] >= share]
            setting[place] = good[0] if good else allowed[-1]
            power[place] = at.power_w[setting[place], place]
        batch[place] = at.batch[setting[place], place]
    return InstanceFrontier(engine, mix, rate, setting, power, batch)


def _most_per_s(engine: Engine, mix: Mix) -> float:
    """A rate that is too much: prompts or answers alone would take all of the time."""
    tables = engine.tables
    most = min(engine.most_step_tokens, tables.prefill_tokens[-1])
    full = int(np.searchsorted(tables.prefill_tokens, most))
    prompts_s = float(np.nanmin(tables.prefill_time_s[:, full, 0])) * mix.prompt / float(most)
    answers_s = float(np.nanmin(tables.decode_time_s[:, -1, 0])) * mix.output / float(tables.batches[-1])
    return 1.2 / max(prompts_s, answers_s)


@dataclass(frozen=True, slots=True)
class _Alike:
    """Instances of one layout at one clock, for a check."""

    count: int
    rule: ClockRule
    name: str = "check"
    period_s: float = 1e9

    def begin(self, cluster: Cluster) -> Sequence[Action]:
        return [Start(0, 0, self.rule)] * self.count

    def control(self, view: ClusterView) -> Sequence[Action]:
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class _Check:
    """Runs of instances under a mix, step by step."""

    engine: Engine
    mix: Mix
    deadlines: Deadlines
    share: float
    together: int

    def run(self, setting: int, rate_per_s: float) -> tuple[bool, float]:
        """Whether the deadlines are kept at a rate of each instance, and the power of each."""
        rate = rate_per_s * self.together
        requests = self.mix.draw(rate, CHECKED / rate, _SEED)
        if not len(requests):
            return True, 0.0
        cluster = Cluster((self.engine,), self.together, ChangeTimes((0.0,)), self.engine.gpus, deadlines=self.deadlines)
        rule = ClockRule.fixed(setting, self.engine)
        lasts_s = float(requests.arrival_s[-1])
        served = simulate_cluster(requests, cluster, _Alike(self.together, rule), bin_s=max(lasts_s / 8, 1e-3))
        good = kept(served, requests, cluster)
        kind = np.searchsorted(self.deadlines.prompt_below, requests.prompt_tokens, side="right")
        kinds = [good[kind == each] for each in np.unique(kind)]
        keeps = bool(good.mean() >= self.share and all(each.mean() >= self.share for each in kinds if len(each) >= _FEWEST))
        steady_j = served.timeline.energy_j[1:7].sum()  # neither filling nor emptying
        return keeps, float(steady_j / (6 * served.timeline.bin_s) / self.together)

    def capacity(self, setting: int, guess: float, most: float) -> float:
        """By bisection around the estimate."""
        low = high = max(guess, most / 100)
        while low > most / 1000 and not self.run(setting, low)[0]:
            high, low = low, low / 1.4
        if low <= most / 1000:
            return 0.0
        while high <= low and high < most:
            high = low * 1.2
            if self.run(setting, high)[0]:
                low = high
        for _ in range(4):
            middle = (low + high) / 2
            low, high = (middle, high) if self.run(setting, middle)[0] else (low, middle)
        return low

    def level(self, order: IndexArray, rate_per_s: float) -> tuple[int, float]:
        """The first setting by estimated power that keeps the deadlines, at what it draws in the run."""
        greatest, failed, best = int(order.max()), -1, (-1, np.inf)
        for each in order.tolist():
            if each <= failed:  # slower than one that was too slow
                continue
            keeps, power_w = self.run(each, rate_per_s)
            if keeps or each == greatest:
                best = each, power_w
                break
            failed = each
        return best
