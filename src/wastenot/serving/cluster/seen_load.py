"""Which clocks carry the load that an instance is seen to have: its rates and mean lengths, as metrics tell them.

What requests are like is made up from their means and their 99th percentile; :mod:`wastenot.serving.cluster.levels`
says what each clock does with them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray
from wastenot.serving.cluster.levels import Levels, decode_step_s, levels
from wastenot.serving.cluster.mixes import Mix
from wastenot.serving.cluster.model import ClockRule
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.step_costs import StepCosts

_SPREAD = 2.0
"""Roots of a number of requests that it may grow by before the next reading."""
_MARGIN = 3.0
"""The same of the mean batch, beyond which there is more load than was seen: a Poisson count is, once in 740 times
at most."""
# A distribution by some of its quantiles: each stands in the middle of the share of requests that it speaks for, the last of
# prompts at the 99th percentile, which metrics tell.
_PROMPT_RANKS = np.array([0.125, 0.375, 0.625, 0.825, 0.94, 0.99])
_PROMPT_SHARES = np.array([0.25, 0.25, 0.25, 0.15, 0.08, 0.02])
_OUTPUT_RANKS = np.array([0.1, 0.3, 0.5, 0.7, 0.9])


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

    def mix(self) -> Mix:
        """Requests with these lengths.

        Half of the prompts are spread evenly below the mean, and the others fall off exponentially to the 99th percentile,
        which lies log(0.5 / 0.01) = log 50 decay lengths beyond the middle;
        answers are distributed exponentially, as those of a process that may end with each token.
        """
        mean, long = max(self.prompt_tokens, 1.0), max(self.long_prompt_tokens, self.prompt_tokens + 1.0)
        beyond = mean + (long - mean) * np.log(0.5 / (1.0 - _PROMPT_RANKS)) / np.log(50.0)
        prompts = np.where(_PROMPT_RANKS < 0.5, 2.0 * mean * _PROMPT_RANKS, beyond)
        prompts = np.maximum(prompts * mean / float(prompts @ _PROMPT_SHARES), 1.0)
        outputs = -np.log(1.0 - _OUTPUT_RANKS)
        outputs = np.maximum(outputs * self.output_tokens / outputs.mean(), 1.0)
        share = np.repeat(_PROMPT_SHARES, len(outputs)) / len(outputs)
        return Mix(np.repeat(prompts, len(outputs)), np.tile(outputs, len(prompts)), share / share.sum())


def carried(
    load: SeenLoad, engine: Engine, deadlines: Deadlines, *, headroom: float = 0.15, rate_per_s: FloatArray | None = None
) -> Levels:
    """The steady state of a load at each clock, judged by deadlines that are tighter by a head-room.

    Args:
        load: of the instance.
        engine: that serves it.
        deadlines: to be kept.
        headroom: share of each deadline that is to be left over.
        rate_per_s: rates to look at, ascending, instead of the load's own; shape (rates,).
    """
    return levels(
        engine, load.mix(), _tighter(deadlines, headroom), np.array([load.rate_per_s]) if rate_per_s is None else rate_per_s
    )


def rule_of(
    load: SeenLoad | None, engine: Engine, deadlines: Deadlines, *, waiting: float = 0.0, headroom: float = 0.15
) -> ClockRule:
    """The cheapest clock of each batch that keeps the deadlines, and that of prompts that wait; else the greatest.

    A batch larger than the load explains means that there is more of it than was seen, and takes the greatest, too.

    Args:
        load: that is seen; ``None`` where it is not known, and only the maximum clock is safe.
        engine: that serves it.
        deadlines: to be kept.
        waiting: requests that wait now.
        headroom: share of each deadline that is to be left over.
    """
    top = len(engine.tables.settings) - 1
    if load is None:
        return ClockRule.fixed(top, engine)
    state = carried(load, engine, deadlines, headroom=headroom)
    keeps, power_w, tighter = state.kept[:, 0] >= deadlines.share, state.power_w[:, 0], _tighter(deadlines, headroom)
    batch = np.arange(engine.most_running + 1, dtype=np.float64)
    crowded = np.minimum(np.ceil(batch + _SPREAD * np.sqrt(batch) + 1.0).astype(np.intp), engine.most_running)
    step_s = decode_step_s(engine, max(load.context, state.mix.context))[:, crowded]
    usual = state.batch[:, 0] + _MARGIN * np.sqrt(state.batch[:, 0]) + _MARGIN
    good = keeps[:, None] & (step_s <= tighter.tbt_s) & (batch <= usual[:, None])
    prompt_s = StepCosts(engine.tables).prefill(load.prompt_tokens, 0.0)[0] + engine.overhead_s
    clears = keeps & ((waiting + 1.0) * prompt_s <= bound_s(tighter, load.prompt_tokens))
    return ClockRule(_cheapest(good, power_w, top), int(_cheapest(clears[:, None], power_w, top)[0]))


def bound_s(deadlines: Deadlines, prompt_tokens: float) -> float:
    """The bound on the first token of prompts of a length."""
    return float(deadlines.ttft_of(np.array([round(prompt_tokens)]))[0])


def _tighter(deadlines: Deadlines, headroom: float) -> Deadlines:
    within = 1.0 - headroom
    return replace(deadlines, ttft_s=tuple(within * each for each in deadlines.ttft_s), tbt_s=within * deadlines.tbt_s)


def _cheapest(good: BoolArray, power_w: FloatArray, otherwise: int) -> IndexArray:
    """The setting of least power of those that are good, in each column."""
    found = np.where(good, power_w[:, None], np.inf).argmin(axis=0)
    return np.where(good.any(axis=0), found, otherwise).astype(np.intp)
