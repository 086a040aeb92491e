"""What an instance draws at each level of load, at the cheapest clock that keeps the deadlines, fixed or climbing.

The estimate of :mod:`wastenot.serving.cluster.levels`, checked step by step by the simulator. Clocks may climb with the
backlog of prompts (:func:`ladder`)::

    backlog, steps' worth    <1    1    2    4    8    16   32   64
    base 4, patience 2        4    4    4    5    6    8    11   12      settings by rising clock

A fixed clock must suffice for the busiest seconds. One that climbs is low in all others. Which base and which patience keep
the deadlines is tried in the simulator, with the scheduler that the engine has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.serving.cluster.levels import decode_step_s, levels
from wastenot.serving.cluster.mixes import Mix
from wastenot.serving.cluster.model import ClockRule
from wastenot.serving.cluster.trials import Trial
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.step_costs import StepCosts

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


def greatest(engine: Engine) -> ClockRule:
    """The maximum clock, whatever happens."""
    return ClockRule.fixed(len(engine.tables.settings) - 1, engine)


def rule_at(frontier: InstanceFrontier, rate_per_s: float) -> ClockRule:
    """The rule of the first level of load that takes a rate; beyond capacity, the maximum clock."""
    level = int(np.searchsorted(frontier.rate_per_s * (1 + 1e-9), rate_per_s))
    return frontier.rule[level] if level < len(frontier.rule) else greatest(frontier.engine)


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
        return _without_levels(engine, mix)
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
    """The greatest rate that keeps the deadlines at the maximum clock: that of such a frontier, without its levels."""
    return _capacity(Trial(engine, mix, deadlines, share, 1), np.array([len(engine.tables.settings) - 1]))


def _capacity(trial: Trial, allowed: IndexArray) -> float:
    """The greatest rate that keeps the deadlines at the greatest of the settings, of which the last is it."""
    most = trial.most_per_s
    estimate = levels(trial.engine, trial.mix, trial.deadlines, np.geomspace(most / 100, most, RATES))
    guess_per_s = float(estimate.capacity(trial.share)[allowed].max())
    return trial.capacity(ClockRule.fixed(int(allowed[-1]), trial.engine), guess_per_s)


def _without_levels(engine: Engine, mix: Mix) -> InstanceFrontier:
    """Of an instance that keeps the deadlines at no rate."""
    return InstanceFrontier(engine, mix, np.zeros(0), np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros(0))


def _first(suffices: Callable[[int], bool], low: int, top: int) -> int:
    """The first number above ``low`` that suffices, as do all above it; ``top`` if none below it does.

    It is looked for in steps that double, since it is mostly near.
    """
    step, high = 1, min(low + 1, top)
    while high < top and not suffices(high):
        low, step = high, 2 * step
        high = min(low + step, top)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def _cheapest(trial: Trial, order: IndexArray, rate_per_s: float) -> tuple[int, float]:
    """The first setting by estimated power that keeps the deadlines, and its power in the trial."""
    top, failed, best = int(order.max()), -1, (-1, np.inf)
    for each in order.tolist():
        if each <= failed:  # slower than one that was too slow
            continue
        keeps, power_w = trial.run(ClockRule.fixed(each, trial.engine), rate_per_s)
        if keeps or each == top:
            best = each, power_w
            break
        failed = each
    return best


PATIENCE = (0, 1, 2, 3)
"""Doublings of the backlog before the clock climbs."""
_CLIMB = (1 / 12, 1 / 6, 1 / 3, 7 / 12, 1.0)
"""Of all settings, by which it has climbed with each doubling from then on."""
_WITHIN = 0.9
"""Of the time between tokens that a step which only decodes may take."""
_LOW = (0.05, 0.2, 0.5)
"""Of the first level's load, at which the power is estimated."""
_BACKLOGS = 7
_REQUESTS = 9000


def ladder(engine: Engine, base: int, patience: int, context: float, deadlines: Deadlines) -> ClockRule:
    """A rule that climbs.

    Args:
        engine: of the instance.
        base: setting without a backlog.
        patience: doublings of the backlog before it climbs.
        context: tokens in the cache of a request, on average.
        deadlines: of which steps that only decode keep the time between tokens.
    """
    top = len(engine.tables.settings) - 1
    climbed = [0] * patience + [int(np.ceil(top * each)) for each in _CLIMB]
    climbed += [top] * (_BACKLOGS - len(climbed))
    in_time = decode_step_s(engine, context) <= _WITHIN * deadlines.tbt_s
    lowest = np.where(in_time.any(axis=0), in_time.argmax(axis=0), top)
    by_batch = np.maximum(lowest, base).astype(np.intp)
    return ClockRule(by_batch, base, tuple(min(base + each, top) for each in climbed[:_BACKLOGS]))


_Tried = Callable[[int], tuple[ClockRule, bool, float]]  # the rule with a base, whether it keeps the deadlines, its power


def ladder_frontier(
    engine: Engine, mix: Mix, deadlines: Deadlines, *, share: float = 0.99, points: int = 10, together: int = 1
) -> InstanceFrontier:
    """Levels of load up to the capacity, closer in its upper half, each with the ladder of least power that keeps deadlines.

    Arguments are those of :func:`frontier`.
    """
    trial = Trial(engine, mix, deadlines, share, together, by_tokens=True, requests=_REQUESTS)
    top = len(engine.tables.settings) - 1
    fastest = ladder(engine, top, 0, mix.context, deadlines)
    capacity = trial.capacity(fastest, trial.most_per_s / 2)
    if not capacity > 0:
        return _without_levels(engine, mix)
    rate = capacity * np.union1d(np.arange(2, 2 * points + 1, 2), np.arange(points + 1, 2 * points + 1)) / (2 * points)
    points = len(rate)
    at = levels(engine, mix, deadlines, rate)
    setting, power, rules = np.zeros(points, dtype=np.intp), np.zeros(points), []
    # More load never asks for a lower clock: each search begins where the one at less load, of the same patience, ended.
    below = dict.fromkeys(PATIENCE, _least_marginal(engine) - 1)
    for place in range(points):
        best = fastest, trial.run(fastest, float(rate[place]))[1]
        for patience in PATIENCE:

            @cache
            def tried(base: int, patience: int = patience, place: int = place) -> tuple[ClockRule, bool, float]:
                rule = ladder(engine, base, patience, mix.context, deadlines)
                return rule, *trial.run(rule, float(rate[place]))

            def decided(base: int, tried: _Tried = tried, least_w: float = best[1]) -> bool:
                _, keeps, power_w = tried(base)
                return keeps or power_w >= least_w  # a higher one draws no less

            high = _first(decided, below[patience], top)
            below[patience] = high - 1
            rule, keeps, power_w = tried(high)
            if keeps and power_w < best[1]:
                best = rule, power_w
        rules.append(best[0])
        setting[place], power[place] = best[0].prompts, best[1]
    # Below the first level the power falls less than the load, as fewer requests share a step: by the estimate, whose error
    # at the first level is taken for that below it.
    less = np.array(_LOW) * rate[0]
    low, first = levels(engine, mix, deadlines, less), int(setting[0])
    less_w = low.power_w[first] * power[0] / at.power_w[first, 0]
    return InstanceFrontier(
        engine,
        mix,
        np.concatenate([less, rate]),
        np.concatenate([np.full(len(less), first), setting]),
        np.concatenate([less_w, power]),
        np.concatenate([low.batch[first], at.batch[setting, np.arange(points)]]),
        (*[rules[0]] * len(less), *rules),
    )


def _least_marginal(engine: Engine) -> int:
    """The setting at which full steps of prompts take least energy above that of an idle engine: none below it is of use."""
    tokens = float(min(engine.most_step_tokens, engine.tables.prefill_tokens[-1]))
    time_s, energy_j = StepCosts(engine.tables).prefill(tokens, 0.0)
    return int(np.argmin(np.asarray(energy_j) - engine.tables.idle_power_w * np.asarray(time_s)))
