"""What an engine does under a steady load of a mix, by clock and rate: an estimate from its tables, all at once.

The batch is taken for a chain whose states are the numbers of requests that decode. Requests come at the rate and go at

    batch x share of the time left by prompts / (answer's tokens x time of a decode step)

which has a closed form, and one that does not depend on how answers' lengths are distributed (a queue whose server is shared
by all that are in it). Prompts take the time by which the steps that prefill them are longer than decode steps. They wait
for one another as in a queue with one server, whose wait has an exponential tail.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincc

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.serving.cluster.mixes import Mix
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.step_costs import StepCosts

_KNOTS = (0, 1, 4, 16, 64, 128, 256)
"""Batches beside which the steps of prompts are looked up; straight lines between."""
_MOST_BUSY = 0.98


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """An engine under one mix.

    Attributes:
        engine: that serves it.
        mix: of the requests.
        rate_per_s: ascending; shape (rates,).
        power_w: mean, of the whole engine; shape (settings, rates).
        kept: share of each class' requests that keep all deadlines, in the class with the least; shape (settings, rates).
        batch: requests that decode, on average; shape (settings, rates).
        ttft_s: mean time to the first token; shape (settings, rates).
        tbt_s: mean time between tokens; shape (settings, rates).
    """

    engine: Engine
    mix: Mix
    rate_per_s: FloatArray
    power_w: FloatArray
    kept: FloatArray
    batch: FloatArray
    ttft_s: FloatArray
    tbt_s: FloatArray

    def capacity(self, share: float = 0.99) -> FloatArray:
        """The greatest rate up to which each setting keeps the deadlines of a share, or 0; shape (settings,)."""
        up_to = np.cumprod(self.kept >= share, axis=1).sum(axis=1)
        return np.where(up_to > 0, self.rate_per_s[np.maximum(up_to - 1, 0)], 0.0)

    def cheapest(self, share: float = 0.99) -> IndexArray:
        """The setting of least power among those that keep the deadlines, at each rate; -1 where none does; (rates,)."""
        power = np.where(self.kept >= share, self.power_w, np.inf)
        return np.where(np.isfinite(power).any(axis=0), power.argmin(axis=0), -1).astype(np.intp)


def levels(engine: Engine, mix: Mix, deadlines: Deadlines, rate_per_s: FloatArray) -> Levels:
    """The steady state at each rate and setting.

    Args:
        engine: that serves.
        mix: what the requests are like.
        deadlines: to be kept.
        rate_per_s: ascending, above 0; shape (rates,).
    """
    costs = StepCosts(engine.tables)
    states = _states(engine, mix)
    batch = np.arange(states, dtype=np.float64)
    decode_s, decode_j = costs.decode(np.maximum(batch, 1.0), np.full(states, mix.context))
    decode_s = decode_s + engine.overhead_s
    prompts = _Prompts.of(engine, mix, deadlines, costs, decode_s, decode_j, states)

    rate = np.asarray(rate_per_s, dtype=np.float64)
    # (settings, rates, states): a prompt's own steps where few come, full ones shared by several where many do
    crowded = np.minimum(rate[None, :, None] * prompts.full_s[:, None], 1.0)
    taken_s = (1 - crowded) * prompts.alone_s[:, None] + crowded * prompts.full_s[:, None]
    busy = np.minimum(rate[None, :, None] * taken_s, _MOST_BUSY)
    more = max(mix.output - 1.0, 0.1)
    leave = (batch / (more * decode_s))[:, None] * (1 - busy)
    share = _stationary(rate, leave)
    over = rate[None, :, None] * taken_s > _MOST_BUSY  # prompts alone are too much there

    decoding_w = np.where(batch > 0, decode_j / decode_s, engine.tables.idle_power_w[:, None])
    taken_j = (1 - crowded) * prompts.alone_j[:, None] + crowded * prompts.full_j[:, None]
    power_w = (share * ((1 - busy) * decoding_w[:, None] + rate[None, :, None] * taken_j)).sum(axis=2)
    mean_batch, mean_busy = (share * batch).sum(axis=2), (share * busy).sum(axis=2)
    full = (share * over).sum(axis=2) + share[:, :, -1] * (states - 1 < mean_batch * 4 + 16)
    token_s = (share[:, :, 1:] * (decode_s[:, None, 1:] / (1 - busy[:, :, 1:]))).sum(axis=2) / np.maximum(
        1 - share[:, :, 0], 1e-12
    )
    first = prompts.first_tokens(rate, mean_batch, mean_busy)
    between = prompts.between_tokens(rate, mean_batch, token_s, share, decode_s)
    kept = prompts.least_class((1 - first) * (1 - between)) * (1 - np.minimum(full, 1.0))
    return Levels(engine, mix, rate, power_w, kept, mean_batch, prompts.mean_first_s(rate, mean_batch, mean_busy), token_s)


def decode_step_s(engine: Engine, context: float) -> FloatArray:
    """The time of a decode step, by setting and batch, at a context; shape (settings, most_running + 1)."""
    batch = np.maximum(np.arange(engine.most_running + 1, dtype=np.float64), 1.0)
    return StepCosts(engine.tables).decode(batch, np.full(len(batch), context))[0] + engine.overhead_s


def _states(engine: Engine, mix: Mix) -> int:
    """Batches that fit: into the engine, its cache and its tables."""
    fits = engine.cache_blocks * engine.block_tokens / (mix.context + engine.block_tokens)
    return int(max(min(engine.most_running, engine.tables.batches[-1], fits), 1)) + 1


def _stationary(rate: FloatArray, leave: FloatArray) -> FloatArray:
    """Share of the time in each state; shape (settings, rates, states)."""
    logs = np.zeros_like(leave)
    np.cumsum(np.log(rate[None, :, None] / leave[:, :, 1:]), axis=2, out=logs[:, :, 1:])
    share = np.exp(logs - logs.max(axis=2, keepdims=True))
    return np.asarray(share / share.sum(axis=2, keepdims=True))


@dataclass(frozen=True, slots=True, eq=False)
class _Prompts:
    """What prompts cost beside a batch, alone in their steps and in full steps shared with others."""

    mix: Mix
    deadlines: Deadlines
    knots: FloatArray
    alone_s: FloatArray  # mean time by which a prompt's own steps are longer than decode steps; shape (settings, states)
    alone_j: FloatArray  # energy, likewise
    full_s: FloatArray  # the same in full steps
    full_j: FloatArray  # energy, likewise
    own_s: FloatArray  # time of the steps of a prompt of each kind at some batches; shape (settings, knots, kinds)
    late: FloatArray  # its steps that keep those who decode waiting too long; shape (settings, knots, kinds)
    decode_s: FloatArray

    @classmethod
    def of(
        cls,
        engine: Engine,
        mix: Mix,
        deadlines: Deadlines,
        costs: StepCosts,
        decode_s: FloatArray,
        decode_j: FloatArray,
        states: int,
    ) -> _Prompts:
        knots = np.array([each for each in _KNOTS if each < states] or [0], dtype=np.float64)
        prompt, of_kind = np.unique(mix.prompt_tokens, return_inverse=True)
        share = np.bincount(of_kind, mix.share)
        most = float(min(engine.most_step_tokens, engine.tables.prefill_tokens[-1]))
        every, at = np.arange(states, dtype=np.float64), knots.astype(np.intp)
        beside = knots[:, None] * engine.chunked
        room = np.maximum(most - beside, 1.0)
        plain_s, plain_j = ((beside[:, 0] > 0) * each[:, at] for each in (decode_s, decode_j))
        past = np.zeros((len(knots), len(prompt)))
        own_s, late, more_s, more_j = np.zeros((4, len(engine.tables.settings), *past.shape))
        while (left := prompt - past).max() > 0:  # all knots and lengths at once, chunk by chunk
            chunk = np.minimum(left, room)
            some = chunk > 0
            time_s, energy_j = costs.mixed(np.maximum(chunk, 1.0), past, beside, mix.context)
            time_s = time_s + engine.overhead_s
            own_s += some * time_s
            more_s += some * (time_s - plain_s[..., None])
            more_j += some * (energy_j - plain_j[..., None])
            late += some * (time_s > deadlines.tbt_s)
            past = past + chunk
        if not engine.chunked:  # those that decode wait for all of it, and a step
            late += own_s + decode_s[:, at, None] > deadlines.tbt_s
        before = float(mix.share @ mix.prompt_tokens**2 / mix.prompt / 2)
        room, beside = room[:, 0], beside[:, 0]
        step_s, step_j = costs.mixed(room, np.maximum(before - room / 2, 0.0), beside, mix.context)
        parts = mix.prompt / room
        full = (step_s + engine.overhead_s - plain_s) * parts, (step_j - plain_j) * parts
        alone_s, alone_j, full_s, full_j = (
            np.stack([np.interp(every, knots, row) for row in each]) for each in (more_s @ share, more_j @ share, *full)
        )
        full_s, full_j = np.minimum(alone_s, full_s), np.minimum(alone_j, full_j)
        own_s, late = own_s[..., of_kind], late[..., of_kind]
        return cls(mix, deadlines, knots, alone_s, alone_j, full_s, full_j, own_s, late, decode_s)

    def at(self, values: FloatArray, batch: FloatArray) -> FloatArray:
        """Values by setting, knot and kind, looked up at batches by setting and rate; shape (settings, rates, kinds)."""
        if len(self.knots) == 1:
            return np.repeat(values[:, :1], batch.shape[1], axis=1)
        place = np.clip(np.searchsorted(self.knots, batch, side="right") - 1, 0, len(self.knots) - 2)
        along = np.clip((batch - self.knots[place]) / (self.knots[place + 1] - self.knots[place]), 0.0, 1.0)[..., None]
        row = np.arange(len(values))[:, None]
        return np.asarray(values[row, place] * (1 - along) + values[row, place + 1] * along)

    def _waits(self, rate: FloatArray, batch: FloatArray, busy: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """A prompt's own steps by kind, the step that it comes into, and the mean wait for others."""
        own_s = self.at(self.own_s, batch)
        step_s = np.take_along_axis(self.decode_s, np.rint(batch).astype(np.intp), axis=1) * np.minimum(batch, 1.0)
        square = np.einsum("srk,k->sr", own_s**2, self.mix.share)
        mean = np.einsum("srk,k->sr", own_s, self.mix.share)
        wait_s = rate * square / (2 * (1 - busy)) * np.minimum(busy / np.maximum(rate * mean, 1e-12), 1.0)
        return own_s, step_s, wait_s

    def mean_first_s(self, rate: FloatArray, batch: FloatArray, busy: FloatArray) -> FloatArray:
        """Mean time to the first token."""
        own_s, step_s, wait_s = self._waits(rate, batch, busy)
        return np.asarray(np.einsum("srk,k->sr", own_s, self.mix.share) + step_s / 2 + wait_s)

    def first_tokens(self, rate: FloatArray, batch: FloatArray, busy: FloatArray) -> FloatArray:
        """Share of each kind that waits too long for the first token; shape (settings, rates, kinds)."""
        own_s, step_s, wait_s = self._waits(rate, batch, busy)
        limit_s = self.deadlines.ttft_of(np.rint(self.mix.prompt_tokens).astype(np.intp))
        left_s = limit_s - own_s - step_s[..., None]
        share = np.minimum(busy, 1.0)[..., None]
        late = share * np.exp(-left_s.clip(0) * share / np.maximum(wait_s, 1e-12)[..., None])
        return np.where(left_s < 0, 1.0, late)

    def between_tokens(
        self, rate: FloatArray, batch: FloatArray, token_s: FloatArray, share: FloatArray, decode_s: FloatArray
    ) -> FloatArray:
        """Share of each kind that has more late tokens than it may; shape (settings, rates, kinds)."""
        outputs = self.mix.output_tokens
        allowed = np.floor((1 - self.deadlines.share) * np.maximum(outputs - 1, 0.0) + 1e-9)
        late = np.einsum("srk,k->sr", self.at(self.late, batch), self.mix.share)
        slow = (share * (decode_s > self.deadlines.tbt_s)[:, None]).sum(axis=2)
        expected = (rate * late * token_s)[..., None] * outputs + slow[..., None] * outputs
        missed = 1 - gammaincc(allowed + 1, np.maximum(expected, 1e-12))
        return np.asarray(np.where(outputs > 1, missed, 0.0))

    def least_class(self, kept: FloatArray) -> FloatArray:
        """The mean over the kinds of each class, in the class with the least."""
        classes = self.mix.classes()
        found = np.ones(kept.shape[:2])
        for each in np.unique(classes):
            share = self.mix.share * (classes == each)
            if share.sum() > 0:
                found = np.minimum(found, np.einsum("srk,k->sr", kept, share / share.sum()))
        return found
