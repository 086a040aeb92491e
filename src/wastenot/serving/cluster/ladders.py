"""Clocks that climb with the backlog of prompts, where these go by deadline: at each load the rule of least power.

    backlog, steps' worth    <1    1    2    4    8    16   32   64
    base 4, patience 2        4    4    4    5    6    8    11   12      settings by rising clock

A fixed clock must suffice for the busiest seconds. One that climbs is low in all others, and by deadline a backlog of long
prompts delays none of the short ones. Which base and which patience keep the deadlines is tried in the simulator.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from wastenot.serving.cluster.clock_rules import decode_s
from wastenot.serving.cluster.frontiers import InstanceFrontier
from wastenot.serving.cluster.levels import levels
from wastenot.serving.cluster.mixes import Mix
from wastenot.serving.cluster.model import ClockRule
from wastenot.serving.cluster.trials import Trial
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.policies.costs import StepCosts

PATIENCE = (0, 1, 2, 3)
"""Doublings of the backlog before the clock climbs."""
_CLIMB = (1 / 12, 1 / 6, 1 / 3, 7 / 12, 1.0)
"""Of all settings, by which it has climbed with each doubling from then on."""
_WITHIN = 0.9
"""Of the time between tokens that a step which only decodes may take."""
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
    in_time = decode_s(engine, context) <= _WITHIN * deadlines.tbt_s
    lowest = np.where(in_time.any(axis=0), in_time.argmax(axis=0), top)
    by_batch = np.maximum(lowest, base).astype(np.intp)
    return ClockRule(by_batch, base, tuple(min(base + each, top) for each in climbed[:_BACKLOGS]))


def ladder_frontier(
    engine: Engine, mix: Mix, deadlines: Deadlines, *, share: float = 0.99, points: int = 10, together: int = 1
) -> InstanceFrontier:
    """Levels of load up to the capacity, closer in its upper half, each with the ladder of least power that keeps deadlines.

    Args:
        engine: of the instance.
        mix: of its requests.
        deadlines: to be kept, by engines that prefill in their order.
        share: of the requests of each class that are to keep the deadlines.
        points: levels.
        together: instances behind one router; the more there are, the more even is the load of each.
    """
    trial = Trial(engine, mix, deadlines, share, together, by_deadline=True, requests=_REQUESTS)
    top = len(engine.tables.settings) - 1
    fastest = ladder(engine, top, 0, mix.context, deadlines)
    capacity = trial.capacity(fastest, trial.most_per_s / 2)
    if not capacity > 0:
        nothing = np.zeros(0)
        return InstanceFrontier(engine, mix, nothing, nothing.astype(np.intp), nothing, nothing)
    rate = capacity * np.union1d(np.arange(2, 2 * points + 1, 2), np.arange(points + 1, 2 * points + 1)) / (2 * points)
    points = len(rate)
    at = levels(engine, mix, deadlines, rate)
    setting, power, rules = np.zeros(points, dtype=np.intp), np.zeros(points), []
    lowest = _least_marginal(engine)
    for place in range(points):
        best = fastest, trial.run(fastest, float(rate[place]))[1]
        for patience in PATIENCE:

            @cache
            def tried(base: int, patience: int = patience, place: int = place) -> tuple[ClockRule, bool, float]:
                rule = ladder(engine, base, patience, mix.context, deadlines)
                return rule, *trial.run(rule, float(rate[place]))

            low, high = lowest - 1, top
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if tried(middle)[1] else (middle, high)
            rule, keeps, power_w = tried(high)
            if keeps and power_w < best[1]:
                best = rule, power_w
        rules.append(best[0])
        setting[place], power[place] = best[0].prompts, best[1]
    return InstanceFrontier(engine, mix, rate, setting, power, at.batch[setting, np.arange(points)], tuple(rules))


def _least_marginal(engine: Engine) -> int:
    """The setting at which full steps of prompts take least energy above that of an idle engine: none below it is of use."""
    tokens = float(min(engine.most_step_tokens, engine.tables.prefill_tokens[-1]))
    time_s, energy_j = StepCosts(engine.tables).prefill(tokens, 0.0)
    return int(np.argmin(np.asarray(energy_j) - engine.tables.idle_power_w * np.asarray(time_s)))
