"""What an instance draws at each level of load, at the cheapest clock that keeps the deadlines.

The estimate of :mod:`wastenot.stack.serving.cluster.levels`, checked step by step by the engine's simulator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.arrays import FloatArray, IndexArray
from wastenot.stack.serving.cluster.levels import levels
from wastenot.stack.serving.cluster.mixes import Mix
from wastenot.stack.serving.deadlines import Deadlines
from wastenot.stack.serving.engine import Engine
from wastenot.stack.serving.requests import Requests
from wastenot.stack.serving.simulation.policy import Fixed
from wastenot.stack.serving.simulation.served import Served
from wastenot.stack.serving.simulation.simulate import simulate

RATES = 48
"""Of the estimate, from a hundredth of the greatest on."""
CHECKED = 2000
"""Requests of a check."""
_SEED = 20_240_510
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
        checked: by the simulator: a level's clock is raised until it keeps them there, and its power is that of the run.
    """
    most = _most_per_s(engine, mix)
    allowed = np.array(sorted(settings if settings is not None else range(len(engine.tables.settings))), dtype=np.intp)
    estimate = levels(engine, mix, deadlines, np.geomspace(most / 100, most, RATES))
    capacity = float(estimate.capacity(share)[allowed].max())
    if checked:
        capacity = _checked_capacity(engine, mix, deadlines, int(allowed[-1]), share, capacity, most)
    if not capacity > 0:
        nothing = np.zeros(0)
        return InstanceFrontier(engine, mix, nothing, nothing.astype(np.intp), nothing, nothing)
    rate = capacity * np.arange(1, points + 1) / points
    at = levels(engine, mix, deadlines, rate)
    setting, power, batch = np.zeros(points, dtype=np.intp), np.zeros(points), np.zeros(points)
    for place in range(points):
        order = allowed[np.argsort(at.power_w[allowed, place], kind="stable")]
        if checked:
            setting[place], power[place] = _checked_level(engine, mix, deadlines, order, float(rate[place]), share)
        else:
            good = [each for each in order if at.kept[each, place] >= share]
            setting[place] = good[0] if good else allowed[-1]
            power[place] = at.power_w[setting[place], place]
        batch[place] = at.batch[setting[place], place]
    return InstanceFrontier(engine, mix, rate, setting, power, batch)


def keeps(served: Served, deadlines: Deadlines, share: float) -> bool:
    """Whether all requests together and those of each class with enough of them keep the deadlines."""
    kept = served.kept(deadlines)
    if not len(kept):
        return True
    kinds = np.searchsorted(deadlines.prompt_below, served.requests.prompt_tokens, side="right")
    counted = [kept[kinds == each] for each in np.unique(kinds)]
    return bool(kept.mean() >= share and all(each.mean() >= share for each in counted if len(each) >= _FEWEST))


def _most_per_s(engine: Engine, mix: Mix) -> float:
    """A rate that is too much: prompts or answers alone would take all of the time."""
    tables = engine.tables
    most = min(engine.most_step_tokens, tables.prefill_tokens[-1])
    full = int(np.searchsorted(tables.prefill_tokens, most))
    prompts_s = float(np.nanmin(tables.prefill_time_s[:, full, 0])) * mix.prompt / float(most)
    answers_s = float(np.nanmin(tables.decode_time_s[:, -1, 0])) * mix.output / float(tables.batches[-1])
    return 1.2 / max(prompts_s, answers_s)


def _run(engine: Engine, mix: Mix, deadlines: Deadlines, setting: int, rate_per_s: float) -> tuple[Served, Requests]:
    requests = mix.draw(rate_per_s, CHECKED / rate_per_s, _SEED)
    return simulate(requests, engine, Fixed(setting), deadlines=deadlines), requests


def _checked_capacity(
    engine: Engine, mix: Mix, deadlines: Deadlines, setting: int, share: float, guess: float, most: float
) -> float:
    """By bisection around the estimate."""

    def good(rate_per_s: float) -> bool:
        return keeps(_run(engine, mix, deadlines, setting, rate_per_s)[0], deadlines, share)

    guess = max(guess, most / 100)
    low, high = guess, guess
    while low > most / 1000 and not good(low):
        high, low = low, low / 1.4
    if low <= most / 1000:
        return 0.0
    while high <= low and high < most and good(high):
        low, high = high, high * 1.2
        if good(high):
            low = high
    for _ in range(4):
        middle = (low + high) / 2
        low, high = (middle, high) if good(middle) else (low, middle)
    return low


def _checked_level(
    engine: Engine, mix: Mix, deadlines: Deadlines, order: IndexArray, rate_per_s: float, share: float
) -> tuple[int, float]:
    """The first setting by estimated power that keeps the deadlines, at what it draws in the run."""
    greatest = int(order.max())
    tried = greatest
    failed = -1
    for each in order:
        if each <= failed:  # slower than one that was too slow
            continue
        tried = int(each)
        served, requests = _run(engine, mix, deadlines, tried, rate_per_s)
        if tried == greatest or keeps(served, deadlines, share):
            break
        failed = tried
    served, requests = _run(engine, mix, deadlines, tried, rate_per_s)
    duration_s = max(float(requests.arrival_s[-1]) if len(requests) else 1.0, 1e-9)
    late_s = max(served.end_s - duration_s, 0.0)  # the tail draws less; leave it out in proportion
    return tried, served.total_energy_j / (duration_s + 0.5 * late_s)
