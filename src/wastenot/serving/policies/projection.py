"""What lies ahead of an engine if its clock stays: batch, cache and time of every step to come, as throttLL'eM projects it.

    batch   ▏3▕▏3▕▏4▕▏4▕▏4▕▏3▕▏2▕▏1▕      a prompt joins when it is prefilled; an answer of predicted length leaves
    cache   ▏rises with every token, falls with every answer that is done

Stretches in which nothing joins or leaves are taken in one go: the time of a step is nearly straight in the tokens in the
cache, so a stretch lasts as long as its steps do on average between its first and its last.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.serving.model.compiled import compiled
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.step_costs import USES, FlatTables, decode_within, mixed_within
from wastenot.serving.simulation.policy import View


class Limits(NamedTuple):
    """What an engine holds, and the bound between two tokens."""

    blocks: float
    block_tokens: float
    most_running: int
    most_step_tokens: float
    chunked: bool
    overhead_s: float
    tbt_s: float


def limits_of(engine: Engine, deadlines: Deadlines) -> Limits:
    """What an engine holds, and the bound between two tokens."""
    return Limits(
        float(engine.cache_blocks),
        float(engine.block_tokens),
        engine.most_running,
        float(engine.most_step_tokens),
        engine.chunked,
        engine.overhead_s,
        deadlines.tbt_s,
    )


def keeps(
    view: View, table: FlatTables, setting: int, limits: Limits, deadlines: Deadlines, *, inflate: float = 1.0
) -> bool:
    """Whether all that is there now keeps its deadlines if the engine stays at one setting.

    Args:
        view: of the engine.
        table: what its steps cost, with every cell known.
        setting: that it stays at.
        limits: of the engine.
        deadlines: to be kept.
        inflate: what predicted lengths are multiplied with, to be on the safe side of their errors.
    """
    made = view.running_made
    left = np.maximum(np.ceil((view.running_left + made) * inflate - made), 1.0)
    end_to_end = np.inf if deadlines.end_to_end_s is None else deadlines.end_to_end_s
    prompts = view.waiting_prompt.astype(np.intp)
    room = np.zeros(len(prompts))  # for those that will have been prefilled
    return _keeps(
        table,
        setting,
        limits,
        view.now_s,
        len(made),
        np.concatenate([view.running_context, room]),
        np.concatenate([left, room]),
        np.concatenate([view.running_arrival_s + end_to_end, room]),
        view.waiting_tokens.astype(float),
        np.maximum(view.waiting_prompt - view.waiting_tokens, 0.0),
        np.maximum(np.ceil(view.waiting_output * inflate), 1.0),
        view.waiting_arrival_s + deadlines.ttft_of(prompts),
        view.waiting_arrival_s + end_to_end,
    )


@partial(compiled, uses=USES, error_model="numpy")
def _keeps(  # noqa: PLR0912, PLR0915 - one loop over the steps, as the engine makes them
    table: FlatTables,
    setting: int,
    limits: Limits,
    now_s: float,
    batch: int,
    context: FloatArray,
    left: FloatArray,
    due: FloatArray,
    to_prefill: FloatArray,
    prefilled: FloatArray,
    output: FloatArray,
    first_due_s: FloatArray,
    last_due_s: FloatArray,
) -> bool:
    """Steps until all that is there is done or a deadline is missed.

    What is there is changed on the way; ``context``, ``left`` and ``due`` of those that decode have room for all.
    """
    prompts = len(to_prefill)
    waited_s = 0.0  # since the last token of those that decode
    head, admitted, held = 0, 0, 0.0  # the first prompt not done, the first not admitted, blocks of those between
    while batch > 0 or head < prompts:
        total, least = 0.0, np.inf
        for each in range(batch):
            total += context[each]
            least = min(least, left[each])
        free = limits.blocks - (total / limits.block_tokens + 0.5 * batch) - held
        room = limits.most_step_tokens - (batch if limits.chunked else 0)
        tokens, attention, first, chunk = 0.0, 0.0, head, 0.0
        while first < prompts and room > 0:
            if first >= admitted:
                need = (to_prefill[first] + prefilled[first]) / limits.block_tokens + 1.0
                full = batch + first - head >= limits.most_running or need > free
                if full or (not limits.chunked and tokens > 0 and to_prefill[first] > room):
                    break
                admitted, free, held = first + 1, free - need, held + need
            chunk = min(room, to_prefill[first]) if limits.chunked else to_prefill[first]
            attention += chunk * (prefilled[first] + chunk / 2)
            tokens, room = tokens + chunk, room - chunk
            to_prefill[first], prefilled[first] = to_prefill[first] - chunk, prefilled[first] + chunk
            if to_prefill[first] > 0:
                break
            first += 1
        if tokens > 0:  # one step with prompts in it
            beside = batch if limits.chunked else 0
            mean = total / batch if batch > 0 else 0.0
            past = attention / tokens - tokens / 2
            step_s = limits.overhead_s + mixed_within(table, setting, tokens, past, float(beside), mean)[0]
            steps = 1.0 if beside > 0 else 0.0
        elif batch > 0:  # as many as nothing leaves before
            steps, beside = least, batch
            begin_s = decode_within(table, setting, float(batch), total / batch)[0]
            step_s = decode_within(table, setting, float(batch), total / batch + steps - 1)[0]
            now_s += (steps - 1) * (limits.overhead_s + 0.5 * (begin_s + step_s))
            step_s += limits.overhead_s
        else:
            return True  # a prompt that never fits: no clock helps it
        now_s += step_s
        if batch > 0:
            waited_s += step_s
            if steps > 0:
                if waited_s > limits.tbt_s:
                    return False
                waited_s = 0.0
        still = 0
        for each in range(batch):
            context[each], left[each] = context[each] + steps, left[each] - steps
            if left[each] > 0:
                context[still], left[still], due[still] = context[each], left[each], due[each]
                still += 1
            elif now_s > due[each]:
                return False
        batch = still
        while head < first:
            if now_s > first_due_s[head]:
                return False
            held -= prefilled[head] / limits.block_tokens + 1.0
            if output[head] > 1:
                context[batch], left[batch], due[batch] = prefilled[head], output[head] - 1, last_due_s[head]
                batch += 1
            elif now_s > last_due_s[head]:
                return False
            head += 1
    return True
