"""Which clocks carry the load that an instance is seen to have, and which of them needs least power.

A server's metrics tell rates and mean lengths, not requests. From these follows the steady state at each clock: prompts take
a share of the time, and in the rest as many requests decode together as are needed to make the tokens (Little's law):

    batch = requests per second x tokens of an answer x time of a decode step with this batch / share left by prompts
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc

from wastenot.arrays import BoolArray, FloatArray, IndexArray
from wastenot.stack.serving.cluster.model import ClockRule
from wastenot.stack.serving.deadlines import Deadlines
from wastenot.stack.serving.engine import Engine
from wastenot.stack.serving.policies.costs import StepCosts

_MOST_BUSY = 0.9
"""Share of the time that prompts may take."""
_SPREAD = 2.0
"""Roots of a mean number of requests that it may be exceeded by: as independent ones vary."""
_LATE = 0.5
"""Share of the requests that may miss their deadlines, that is planned to miss them for steps that take too long."""
_RANKS = (np.arange(10) + 0.5) / 10.0
"""Of answers by length, which are taken to be distributed exponentially."""
_SIZES = 8
"""Sizes of steps that are looked up."""
_MARGIN = 3.0
"""The same, beyond which there is more load than was seen."""


@dataclass(frozen=True, slots=True)
class SeenLoad:
    """What an instance is seen to have to do.

    Attributes:
        rate_per_s: requests that come.
        prompt_tokens: of a prompt, on average.
        long_prompt_tokens: that 99 % of the prompts do not exceed.
        output_tokens: of an answer, on average.
        context: tokens in the cache of a request that decodes, on average.
    """

    rate_per_s: float
    prompt_tokens: float
    long_prompt_tokens: float
    output_tokens: float
    context: float

    def times(self, share: float) -> SeenLoad:
        """The same requests at a multiple of the rate."""
        return SeenLoad(
            share * self.rate_per_s, self.prompt_tokens, self.long_prompt_tokens, self.output_tokens, self.context
        )


@dataclass(frozen=True, slots=True, eq=False)
class Carried:
    """A load at each clock.

    Attributes:
        keeps: whether the deadlines are expected to be kept, with the head-room asked for; shape (settings,).
        batch: requests that decode, on average; inf where they become more and more; shape (settings,).
        power_w: of the instance; shape (settings,).
        prompt_s: by which a prompt of mean length delays what decodes; shape (settings,).
        step_s: time of a decode step, by batch; shape (settings, batches).
    """

    keeps: BoolArray
    batch: FloatArray
    power_w: FloatArray
    prompt_s: FloatArray
    step_s: FloatArray

    def cheapest(self) -> int | None:
        """The clock of least power that keeps the deadlines; ``None`` where none does."""
        return int(np.where(self.keeps, self.power_w, np.inf).argmin()) if self.keeps.any() else None


def carried(load: SeenLoad, engine: Engine, costs: StepCosts, deadlines: Deadlines, *, headroom: float = 0.15) -> Carried:
    """The steady state of a load at every clock of an engine.

    Args:
        load: of the instance.
        engine: that serves it.
        costs: of its steps, ``StepCosts(engine.tables)``.
        deadlines: to be kept.
        headroom: share of each deadline that is to be left over.
    """
    tables = engine.tables
    context = float(np.clip(load.context, tables.context_tokens[0], tables.context_tokens[-1]))
    fits = engine.cache_blocks * engine.block_tokens / max(context + engine.block_tokens, 1.0)
    most = int(max(min(engine.most_running, tables.batches[-1], fits), 1.0))
    batches = np.arange(1.0, most + 1.0)
    step_s, step_j = costs.decode(batches, np.full(most, context))
    power_w = step_j / step_s
    step_s = step_s + engine.overhead_s

    # Twice: what prompts cost depends on the batch beside them, and the batch on what they cost.
    batch = np.zeros(len(tables.settings))
    for _ in range(2):
        beside = np.clip(batch, 0.0, most)
        prompt_s, prompt_j = _prompt(load.prompt_tokens, beside, context, engine, costs)
        busy = load.rate_per_s * prompt_s
        batch = _batch(load.rate_per_s * load.output_tokens, np.minimum(busy, _MOST_BUSY), step_s, batches)
    at = np.minimum(np.where(np.isfinite(batch), batch, most), most)
    crowded = np.minimum(at + _SPREAD * np.sqrt(at) + 1.0, most)
    keeps = np.isfinite(batch) & (busy < _MOST_BUSY) & (batch <= most)
    within = 1.0 - headroom
    keeps &= _looked_up(step_s, crowded) <= within * deadlines.tbt_s
    keeps &= _tokens_beside_prompts_in_time(load, at, crowded, context, step_s, engine, costs, deadlines, within)
    for tokens in (load.prompt_tokens, load.long_prompt_tokens):
        own_s = _prompt_alone(tokens, at, context, engine, costs) + _looked_up(step_s, at)
        wait_s = _wait(np.minimum(busy, _MOST_BUSY), prompt_s, 1.0 - deadlines.share)
        bound_s = float(deadlines.ttft_of(np.array([round(tokens)]))[0])
        keeps &= own_s + wait_s <= within * bound_s
    none = np.exp(-at)  # of the time nothing decodes
    decoding_w = (1.0 - none) * _looked_up(power_w, np.maximum(at, 1.0)) + none * tables.idle_power_w
    busy = np.minimum(busy, 1.0)
    total_w = busy * prompt_j / np.maximum(prompt_s, 1e-12) + (1.0 - busy) * decoding_w
    return Carried(keeps, batch, total_w, prompt_s, step_s)


def rule_of(
    load: SeenLoad | None,
    engine: Engine,
    costs: StepCosts,
    deadlines: Deadlines,
    *,
    waiting: float = 0.0,
    headroom: float = 0.15,
) -> ClockRule:
    """The cheapest clock of each batch that keeps the deadlines, and that of prompts that wait; else the greatest.

    A batch larger than the load explains means that there is more of it than was seen, and takes the greatest, too.

    Args:
        load: that is seen; ``None`` where it is not known, and only the greatest clock is safe.
        engine: that serves it.
        costs: of its steps.
        deadlines: to be kept.
        waiting: requests that wait now.
        headroom: share of each deadline that is to be left over.
    """
    top = len(engine.tables.settings) - 1
    if load is None:
        return ClockRule.fixed(top, engine)
    state = carried(load, engine, costs, deadlines, headroom=headroom)
    batch = np.arange(engine.most_running + 1, dtype=np.float64)
    crowded = batch + _SPREAD * np.sqrt(batch) + 1.0
    within = 1.0 - headroom
    step_s = state.step_s[:, np.minimum(np.ceil(crowded).astype(np.intp), state.step_s.shape[1]) - 1]
    usual = np.where(np.isfinite(state.batch), state.batch, 0.0)
    usual = usual + _MARGIN * np.sqrt(usual) + _MARGIN
    good = state.keeps[:, None] & (step_s <= within * deadlines.tbt_s) & (batch <= usual[:, None])
    bound_s = float(deadlines.ttft_of(np.array([round(load.prompt_tokens)]))[0])
    clears = state.keeps & ((waiting + 1.0) * state.prompt_s + state.step_s[:, 0] <= within * bound_s)
    return ClockRule(_cheapest(good, state.power_w, top), int(_cheapest(clears[:, None], state.power_w, top)[0]))


def _cheapest(good: BoolArray, power_w: FloatArray, otherwise: int) -> IndexArray:
    """The setting of least power of those that are good, in each column."""
    found = np.where(good, power_w[:, None], np.inf).argmin(axis=0)
    return np.where(good.any(axis=0), found, otherwise).astype(np.intp)


def _batch(tokens_per_s: float, busy: FloatArray, step_s: FloatArray, batches: FloatArray) -> FloatArray:
    """The batch at which as many tokens are made as are asked for; inf where none is large enough."""
    made = batches * (1.0 - busy)[:, None] / step_s  # by batch; rising
    enough = made >= tokens_per_s
    first = enough.argmax(axis=1)
    row = np.arange(len(made))
    above, below = made[row, first], np.where(first > 0, made[row, first - 1], 0.0)
    between = batches[first] - 1.0 + (tokens_per_s - below) / np.maximum(above - below, 1e-12)
    return np.where(enough.any(axis=1), between, np.inf)


def _prompt(
    tokens: float, beside: FloatArray, context: float, engine: Engine, costs: StepCosts
) -> tuple[FloatArray, FloatArray]:
    """Time and energy by which a prompt makes steps longer and dearer than they were without it, by setting."""
    own_s, own_j = _steps(tokens, beside, context, engine, costs)
    if not engine.chunked:
        return own_s, own_j
    count = max(math.ceil(tokens / engine.most_step_tokens), 1)
    row = np.arange(len(beside))
    plain_s, plain_j = (each[row, row] for each in costs.decode(np.maximum(beside, 1.0), np.full(len(beside), context)))
    some = np.minimum(beside, 1.0)  # with less than one request beside, the step is rarely shared
    return (
        np.maximum(own_s - some * count * plain_s, 1e-9),
        np.maximum(own_j - some * count * plain_j, 1e-9),
    )


def _prompt_alone(tokens: float, beside: FloatArray, context: float, engine: Engine, costs: StepCosts) -> FloatArray:
    """Time of all steps that prefill a prompt."""
    return _steps(tokens, beside, context, engine, costs)[0]


def _steps(
    tokens: float, beside: FloatArray, context: float, engine: Engine, costs: StepCosts
) -> tuple[FloatArray, FloatArray]:
    most = min(float(engine.most_step_tokens), float(engine.tables.prefill_tokens[-1]))
    total_s, total_j = np.zeros(len(beside)), np.zeros(len(beside))
    row, past, left = np.arange(len(beside)), 0.0, max(tokens, 1.0)
    while left > 0.0:
        room = np.maximum(most - beside, 1.0) if engine.chunked else np.full(len(beside), most)
        chunk = min(left, float(room.min()))
        if engine.chunked:
            shape = np.full(len(beside), chunk)
            time_s, energy_j = costs.mixed(shape, np.full(len(beside), past), beside, np.full(len(beside), context))
            total_s += time_s[row, row] + engine.overhead_s
            total_j += energy_j[row, row]
        else:
            time_s, energy_j = costs.prefill(chunk, past)
            total_s += time_s + engine.overhead_s
            total_j += energy_j
        past, left = past + chunk, left - chunk
    return total_s, total_j


def _tokens_beside_prompts_in_time(
    load: SeenLoad,
    batch: FloatArray,
    crowded: FloatArray,
    context: float,
    step_s: FloatArray,
    engine: Engine,
    costs: StepCosts,
    deadlines: Deadlines,
    within: float,
) -> BoolArray:
    """Whether steps that prefill are short enough for those who decode, or those that are not rare enough to be late.

    At each clock there is a number of new tokens from which on a step is too long. How many prompts have as many, or have
    them together with the next one that comes meanwhile, follows from their mean and their 99th percentile.
    """
    own_s = _looked_up(step_s, np.maximum(batch, 1.0))
    most = float(engine.most_step_tokens) if engine.chunked else float(engine.tables.prefill_tokens[-1])
    sizes = np.linspace(most / _SIZES, most, _SIZES)
    waits = np.stack([_prompt_alone(each, crowded, context, engine, costs) for each in sizes], axis=1)
    if not engine.chunked:  # who decodes waits for all of it, and its own step
        waits = waits + own_s[:, None]
    limit_s = within * deadlines.tbt_s
    fits = np.array([np.interp(limit_s, row, sizes, left=0.0, right=np.inf) for row in waits])
    alone_s = _prompt_alone(load.prompt_tokens, batch, context, engine, costs)
    two = 1.0 - np.exp(-load.rate_per_s * alone_s)
    late = (1.0 - two) * _longer_than(fits, load) + two * _longer_than(fits - load.prompt_tokens, load)
    # Late tokens of an answer of each length: more of them than it may have are a request that misses its deadline.
    lengths = np.maximum(-np.log(1.0 - _RANKS) * load.output_tokens, 1.0)
    expected = (load.rate_per_s * late * own_s)[:, None] * lengths
    allowed = np.floor((1.0 - deadlines.share) * lengths + 1e-9)
    missed = gammainc(allowed + 1.0, np.maximum(expected, 1e-12)).mean(axis=1)
    return np.asarray(missed <= _LATE * (1.0 - deadlines.share))


def _longer_than(tokens: FloatArray, load: SeenLoad) -> FloatArray:
    """The share of prompts that are longer: half at the mean, a hundredth at the 99th percentile, exponential between."""
    mean, long = load.prompt_tokens, max(load.long_prompt_tokens, load.prompt_tokens + 1.0)
    below = 1.0 - 0.5 * np.clip(tokens, 0.0, mean) / mean
    beyond = 0.5 * np.exp(-np.log(50.0) * np.maximum(tokens - mean, 0.0) / (long - mean))
    return np.asarray(np.where(tokens <= mean, below, beyond))


def _wait(busy: FloatArray, prompt_s: FloatArray, late: float) -> FloatArray:
    """How long prompts wait for one another, but for a share of them: a queue with one server."""
    mean_s = prompt_s / (2.0 * (1.0 - busy))  # of those that wait at all, which are a share ``busy``
    return np.asarray(mean_s * np.log(np.maximum(busy / late, 1.0)))


def _looked_up(values: FloatArray, batch: FloatArray) -> FloatArray:
    """Values by setting and batch (from 1), each setting at a batch of its own, interpolated."""
    place = np.clip(batch - 1.0, 0.0, values.shape[1] - 1.0)
    low = np.floor(place).astype(np.intp)
    high = np.minimum(low + 1, values.shape[1] - 1)
    row = np.arange(len(values))
    return np.asarray(values[row, low] + (place - low) * (values[row, high] - values[row, low]))
