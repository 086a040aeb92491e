"""What the next prompts may do to deadlines when they arrive at a clock that takes time to change.

Prompts are taken to be like those seen lately, and to come independently of each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.step_costs import StepCosts

WITHIN = 0.99
"""Of the bound between two tokens: a step that is projected to take longer counts as late, as tables interpolate;
by hand."""


@dataclass(frozen=True, slots=True, eq=False)
class Risks:
    """What an arrival puts at risk, by the clock and the batch that it comes upon.

    Attributes:
        engine: that serves.
        deadlines: of the requests.
        costs: of its steps.
        prompts: tokens of those seen lately; shape (prompts,).
        rate_per_s: at which they come.
        context: tokens in the cache of a running request, on average.
    """

    engine: Engine
    deadlines: Deadlines
    costs: StepCosts
    prompts: FloatArray
    rate_per_s: float
    context: float

    def arrival(self, batches: FloatArray, context: float | None = None) -> FloatArray:
        """How many late steps an arrival brings those that decode; shape (settings, batches)."""
        return np.asarray(self._met(batches, self.context if context is None else context)[0].mean(axis=-1))

    def first_tokens(self, batches: FloatArray) -> FloatArray:
        """How many deadlines of first tokens an arrival puts at risk more than at the best clock; (settings, batches).

        Its own, and that of one that comes behind it.
        """
        _, prefill_s = self._met(batches, self.context)
        limit_s = self.deadlines.ttft_of(self.prompts.astype(np.intp))
        wait_s = self._decode_s(batches, self.context)[..., None]
        own = np.clip((prefill_s + wait_s - limit_s) / np.maximum(wait_s, 1e-4), 0.0, 1.0).mean(axis=-1)
        behind_s = prefill_s[..., :, None] + (self.whole_s() + self.shared_s()[-1] - limit_s)
        # In place: a new array of all pairs of prompts takes as long as what is done with it.
        np.maximum(behind_s, 0.0, out=behind_s)
        behind_s *= -self.rate_per_s
        behind = np.subtract(1.0, np.exp(behind_s, out=behind_s), out=behind_s).mean(axis=(-1, -2))
        busy = min(float(self.busy()[-1]), 0.9)
        risk = own + behind / (1 - busy) ** 2
        return np.asarray(risk - risk.min(axis=0))

    def _met(self, batches: FloatArray, context: float) -> tuple[FloatArray, FloatArray]:
        """Late steps of each prompt, and the time to prefill it; both of shape (settings, batches, prompts).

        Those of its steps count that begin before another clock is in effect; prompts that come until then fill them up.
        """
        switch_s, prompts = self.engine.switch_s, self.prompts
        bound: FloatArray | float = WITHIN * self.deadlines.tbt_s - self.engine.overhead_s
        step_s, chunk = self._first_step_s(batches, prompts, context)
        chunks = np.maximum(prompts / chunk, 1.0)
        fast_s = step_s[-1] * chunks
        if not switch_s:
            return np.zeros_like(step_s), np.broadcast_to(fast_s, step_s.shape)
        decode_s = self._decode_s(batches, context)[..., None]
        if not self.engine.chunked:  # those that decode wait for it, and for a step of their own
            bound = bound - decode_s
        alone = step_s > bound
        full_s = self._first_step_s(batches, prompts, context, float(self.engine.most_step_tokens))[0]
        more = np.minimum(np.ceil(prompts / chunk) - 1, np.ceil(switch_s / step_s) - 1).clip(0)
        late = alone + more * (full_s > bound)
        meets = 1 - np.exp(-self.rate_per_s * (decode_s + np.maximum(step_s, switch_s)))
        shifts = sorted({1, len(prompts) // 3, len(prompts) // 2} - {0})
        for shift in shifts:
            both = self._first_step_s(batches, prompts + np.roll(prompts, shift), context)[0] > bound
            late = late + meets * (both & ~alone) / len(shifts)
        slow = np.minimum(chunks, np.ceil(switch_s / step_s))
        return late, step_s * slow + fast_s / chunks * (chunks - slow)

    def whole_s(self) -> FloatArray:
        """Time to prefill each prompt alone at the maximum clock; shape (prompts,)."""
        return np.asarray(self._whole()[0][-1])

    def busy(self) -> FloatArray:
        """Share of the time that prompts take, by setting; shape (settings,)."""
        return np.asarray(self.rate_per_s * self._whole()[0].mean(axis=-1))

    def shared_s(self) -> FloatArray:
        """Time that a prompt waits for others that are prefilled in the same step, on average; shape (settings,)."""
        full_s = self.costs.prefill(float(self.engine.most_step_tokens), 0.0)[0]
        return np.asarray(0.5 * np.minimum(self.busy(), 1.0) * full_s)

    def whole_j(self) -> FloatArray:
        """Energy of the same; shape (prompts,)."""
        return np.asarray(self._whole()[1][-1])

    def _whole(self) -> tuple[FloatArray, FloatArray]:
        size = float(self.engine.most_step_tokens)
        full = np.floor(self.prompts / size)
        rest_s, rest_j = self.costs.prefill(np.maximum(self.prompts - full * size, 1.0), full * size)
        full_s, full_j = self.costs.prefill(np.full_like(full, size), (full - 1).clip(0) * size / 2)
        return np.asarray(full * full_s + rest_s), np.asarray(full * full_j + rest_j)

    def _first_step_s(
        self, batches: FloatArray, prompts: FloatArray, context: float, past: float = 0.0
    ) -> tuple[FloatArray, FloatArray]:
        """Time of the first step of prompts (settings, batches, prompts), and the tokens of them in that step."""
        if self.engine.chunked:
            chunk = np.minimum(prompts, np.maximum(self.engine.most_step_tokens - batches[:, None], 1.0))
            batch = np.broadcast_to(batches[:, None], chunk.shape)
        else:
            chunk = np.broadcast_to(prompts, (len(batches), len(prompts)))
            batch = np.zeros(chunk.shape)
        return self.costs.mixed_s(chunk, np.full_like(chunk, past), batch, np.full_like(chunk, context)), chunk

    def _decode_s(self, batches: FloatArray, context: float) -> FloatArray:
        time_s = self.costs.decode(np.maximum(batches, 1.0), np.full_like(batches, context))[0]
        return np.asarray(time_s * (batches > 0))
