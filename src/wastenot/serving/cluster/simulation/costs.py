"""What steps cost, by the tables of all layouts in one array."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wastenot.serving.cluster.simulation.records import State
from wastenot.serving.model.step_costs import Column, bilinear, fraction, inlined, interval_of

BURST_S = 0.02
"""What GPUs draw beyond their power limit before it slows them down, in seconds at the limit. On an H100, 80 ms of prompts
among decode steps were not slowed down, and seconds were: 0.01 s to a few tenths."""


@inlined
def decode_cost(
    tables: Column, layout: Any, setting: int, batch: int, context: float, hint: int
) -> tuple[float, float, float, float, int, int]:
    """Time and energy of a decode step, what each one after it takes more, how many there are in this cell, and which."""
    knots, last = layout.contexts_at, layout.contexts - 1
    column = interval_of(tables, knots, last + 1, context, hint)
    if column < 0:
        return np.nan, np.nan, np.nan, np.nan, 1, hint
    at = layout.decode_at + ((setting * (layout.most_running + 1) + batch) * layout.contexts + column) * 4
    beyond, steps = context - tables[knots + column], 1
    step_s, step_j, more_s, more_j = tables[at], tables[at + 1], tables[at + 2], tables[at + 3]
    if last > 0:
        left = tables[knots + column + 1] - context
        steps = int(left) + 1
        if left == 0.0:  # on the last knot, the cell before it does not count: it may be NaN
            step_s, step_j, beyond = tables[at + 4], tables[at + 5], 0.0
    if beyond > 0.0:
        step_s += more_s * beyond
        step_j += more_j * beyond
    return step_s, step_j, more_s, more_j, steps, column


@inlined
def prefill_cost(tables: Column, places: Column, layout: Any, setting: int, tokens: int, past: float) -> tuple[float, float]:
    """Time and energy of a step that prefills, with no number of tokens but whole ones; NaN beyond the tables."""
    if tokens > layout.last_tokens:
        return np.nan, np.nan
    row = places[layout.places_at + tokens]
    column = interval_of(tables, layout.pasts_at, layout.pasts, past, 0)
    if row < 0 or column < 0:
        return np.nan, np.nan
    down = 2 * layout.pasts
    at = layout.prefill_at + (setting * layout.tokens + row) * down + 2 * column
    along = fraction(tables, layout.tokens_at, layout.tokens, tokens, row)
    across = fraction(tables, layout.pasts_at, layout.pasts, past, column)
    return bilinear(tables, at, down, 2, along, across), bilinear(tables, at + 1, down, 2, along, across)


@inlined
def prompts_cost(state: State, layout: Any, instance: Any, context: float) -> tuple[float, float]:
    """Time and energy of a step with prompts."""
    tables, tokens, batch = state.tables, instance.step_tokens, instance.step_batch
    together_s, together_j = prefill_cost(
        tables, state.places, layout, instance.setting, tokens + batch, instance.past_tokens
    )
    if not batch:
        return together_s, together_j
    empty = layout.decode_at + (instance.setting * (layout.most_running + 1) + batch) * layout.contexts * 4
    empty_s, empty_j = tables[empty], tables[empty + 1]
    full_s, full_j, _, _, _, instance.place = decode_cost(tables, layout, instance.setting, batch, context, instance.place)
    return max(together_s, empty_s) + full_s - empty_s, max(together_j, empty_j) + full_j - empty_j


def slower_by(limit_w: float, over_j: float, time_s: float, energy_j: float) -> float:
    """How many times as long a step takes so that no more than a burst is drawn above the power limit.

    Voltage falls with the clock: energy goes about with it, time against it. So energy / s - limit s time = room.
    """
    room_j = BURST_S * limit_w - over_j
    if not energy_j - limit_w * time_s > room_j:
        return 1.0
    return (math.sqrt(room_j**2 + 4.0 * limit_w * time_s * energy_j) - room_j) / (2.0 * limit_w * time_s)


slower_by_inside = inlined(slower_by)


@inlined
def lasts(first: float, more: float, steps: int) -> float:
    """What the first steps of a stretch take together."""
    return first * steps + more * (0.5 * steps * (steps - 1))
