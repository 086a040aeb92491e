"""An instance between two steps: what it does next. What has come of what it did: ``completing.py``.

An engine that only decodes makes a *stretch* of steps: nothing comes or goes, the clock stays, and within one cell of its
tables the time and the energy of a step are affine in its number: each step adds one token to the context of every request,
thus one to their mean. So ``k`` steps from a first one of ``a`` seconds last ``k * a + b * k * (k - 1) / 2``. A stretch is
planned at its beginning and takes place at its end:

    boundary ── plan: k steps, until then ──────────────────► end: tokens, energy, gaps, blocks; next boundary
                        ▲ a request comes: k is cut to the first boundary at or after it

``k`` is the least of: steps to the next knot of the context (``decode_cost``), to the first answer that ends, until free
blocks of the cache run out (:func:`room_for`), until a new clock is in effect, and until a policy wants to be asked.

Blocks. A request needs a new block whenever its context is a multiple of ``block_tokens``. All contexts grow by one an event
(an event is a step that decodes), so that it needs one at events of one residue, for good. ``due`` counts requests by
residue, and a step asks one counter rather than each request (less ``exempt``: those that have just joined with theirs):

    event            16  17  18  19  20  21  …        block_tokens = 4, a batch of 6
    residue           0   1   2   3   0   1
    due[residue]      2   3   0   1   2   3           blocks that the batch needs at the event

Tokens that come late are counted once for all: ``instance.late`` grows by one at each late event, and a request had as many
as it grew by since the request joined. Only *fresh* requests, whose last token did not come with an event, have a first gap
of their own and are looked at one by one.

Steps with prompts are planned one at a time, and so are all where the timeline says more than energies and clocks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wastenot.serving.cluster.simulation.admission import admit
from wastenot.serving.cluster.simulation.compiling import inside
from wastenot.serving.cluster.simulation.costs import decode_cost, lasts, prompts_cost, slower_by_inside
from wastenot.serving.cluster.simulation.counting import rest, take_effect
from wastenot.serving.cluster.simulation.records import BACKLOGS, IDLE, LOW, STEP, STRETCH, State
from wastenot.serving.cluster.simulation.requests import blocks_of, make_room
from wastenot.serving.cluster.simulation.trees import put_leaf
from wastenot.serving.model.step_costs import inlined


@inlined
def steps_until(first_s: float, more_s: float, most: int, time_s: float) -> int:
    """Least number of steps, from 1 to ``most``, that last at least so long; ``most`` where even they do not.

    The positive root of a k + b k (k − 1) / 2 = t, in the form 2 t / (l + √(l² + 2 b t)) with l = a − b / 2, which does not
    cancel where b is small and is t / a where it is 0.
    """
    if most <= 1 or first_s >= time_s:
        return 1
    if lasts(first_s, more_s, most) <= time_s:
        return most
    linear = first_s - 0.5 * more_s
    root = 2 * time_s / (linear + math.sqrt(max(linear * linear + 2 * more_s * time_s, 0.0)))
    steps = min(max(int(root), 1), most)
    # The root is rounded: what counts is the sum that the time of the boundary is made of.
    while steps > 1 and lasts(first_s, more_s, steps - 1) >= time_s:
        steps -= 1
    while steps < most and lasts(first_s, more_s, steps) < time_s:
        steps += 1
    return steps


@inlined
def with_prompts(state: State, instance: Any, tokens: int) -> int:
    """The clock that an instance's rule asks for while it has a number of tokens of prompts before it.

    The level is the number of binary digits of the backlog in full steps, at most ``BACKLOGS`` − 1: 0, 1, 2–3, … 64 or more.
    """
    if instance.steered:
        return instance.asked  # type: ignore[no-any-return]
    steps, level = tokens // state.layouts[instance.layout].most_step_tokens, 0
    while steps and level < BACKLOGS - 1:
        steps, level = steps >> 1, level + 1
    return state.rules[instance.rule + state.numbers[0].rule_room - BACKLOGS + level]  # type: ignore[no-any-return]


@inlined
def wanted(state: State, instance: Any) -> int:
    """The clock that an instance's rule asks for now."""
    if instance.waiting or instance.prefilling:
        return with_prompts(state, instance, instance.waiting_tokens)
    return while_decoding(state, instance, instance.running)


@inlined
def while_decoding(state: State, instance: Any, batch: int) -> int:
    """The clock that an instance's rule asks for while it decodes a batch and no prompt waits."""
    return instance.asked if instance.steered else state.rules[instance.rule + batch]  # type: ignore[no-any-return]


@inlined
def ask_clock(state: State, instance: Any, layout: Any, setting: int) -> None:
    """Ask for a clock, which is in effect at once where a switch takes no time."""
    if setting != instance.asked:
        instance.asked, instance.effective_s = (
            setting,
            np.inf if setting == instance.setting else instance.now_s + layout.switch_s,
        )
    if instance.effective_s < np.inf:
        take_effect(state, instance)


@inlined
def prepare(state: State, instance: Any, layout: Any) -> bool:
    """What the next step may do, at a boundary; whether the policy that steers the instance is to be asked before it."""
    if instance.effective_s < np.inf:
        take_effect(state, instance)
    instance.step_tokens = instance.preempted = 0
    if instance.requests:
        if instance.running:
            make_room(state, instance, layout)
        if instance.waiting or instance.prefilling:
            admit(state, instance, layout)
    if instance.steered:
        return instance.news != 0 or instance.now_s >= instance.again_s  # type: ignore[no-any-return]
    ask_clock(state, instance, layout, wanted(state, instance))
    return False


@inlined
def lead(state: State, instance: Any, layout: Any) -> None:
    """The host's time before the next step, at idle power.

    Before prompts, and where the clock changes meanwhile, it is spent here, by itself; otherwise it is part of each step.
    """
    instance.lead_s = layout.overhead_s
    if instance.lead_s > 0 and (instance.step_tokens or instance.effective_s <= instance.now_s + instance.lead_s):
        instance.lead_s, instance.doing = 0.0, STEP
        rest(state, instance, layout, instance.now_s + layout.overhead_s)
    instance.lead_j = instance.lead_s * state.tables[layout.idle_at + instance.setting]


@inlined
def plan(state: State, number: int, instance: Any, layout: Any) -> bool:
    """What the instance does next, from a boundary between two steps on; whether the tables cover it."""
    if not instance.requests:
        instance.doing, instance.end_s, instance.before_s = IDLE, np.inf, 0.0
        if instance.steered and instance.again_s > instance.now_s:
            instance.end_s = instance.again_s
        return True
    lead(state, instance, layout)
    instance.step_batch = instance.running if layout.chunked or not instance.step_tokens else 0
    instance.steps = 1
    if not cost_next(state, instance, layout):
        return False
    instance.step_s += instance.lead_s
    if instance.effective_s < np.inf:
        instance.steps = steps_until(
            instance.step_s,
            instance.step_more_s,
            instance.steps,
            instance.effective_s - layout.overhead_s - instance.now_s,
        )
    if instance.steered:
        instance.steps = steps_until(
            instance.step_s, instance.step_more_s, instance.steps, instance.again_s - instance.now_s
        )
    instance.end_s = instance.now_s + lasts(instance.step_s, instance.step_more_s, instance.steps)
    return True


@inlined
def cost_next(state: State, instance: Any, layout: Any) -> bool:
    """What the next step costs, or a stretch of as many as may be in one go; whether the tables cover it."""
    context = instance.context / instance.step_batch if instance.step_batch else 0.0
    if instance.step_tokens:
        instance.doing = STEP
        instance.step_s, instance.step_j = prompts_cost(state, layout, instance, context)
        instance.step_more_s = instance.step_more_j = 0.0
        graph = instance.step_tokens + instance.step_batch <= layout.most_graph_tokens
        instance.launch_s = layout.graph_launch_s if graph else layout.launch_s
        wait_s = instance.launch_s - instance.before_s - layout.overhead_s - instance.step_s
        if wait_s > 0.0:  # the host has not launched it by the time that the GPUs could be done
            instance.step_s += wait_s
            instance.lead_j += wait_s * state.tables[layout.idle_at + instance.setting]
        slower = slower_by_inside(layout.limit_w, instance.over_j, instance.step_s, instance.step_j)
        instance.step_s *= slower
        instance.step_j /= slower
    else:
        instance.doing = STRETCH
        instance.step_s, instance.step_j, instance.step_more_s, instance.step_more_j, steps, instance.place = decode_cost(
            state.tables, layout, instance.setting, instance.step_batch, context, instance.place
        )
        single = instance.lead_s < layout.overhead_s or state.numbers[0].drawn
        if not single and instance.step_more_s == instance.step_more_s and instance.step_more_j == instance.step_more_j:
            # The root of a heap: the event at which the first answer ends, in the upper 32 bits of the key.
            first_end = state.ends[instance.room * state.numbers[0].calendar_room] >> 32
            instance.steps = room_for(state, instance, layout, min(steps, first_end - instance.events))
    if not instance.step_s >= 0:
        instance.mean_context = context
        return False
    return True


@inside
def room_for(state: State, instance: Any, layout: Any, steps: int) -> int:
    """How many steps of a stretch the free blocks suffice for; the first one has what it needs."""
    more = steps - 1
    if instance.running * blocks_of(more, layout.block_tokens) <= instance.free:  # enough even if all need them at once
        return steps
    needed, at, residue = 0, instance.room * state.numbers[0].due_room, (instance.events + 2) % layout.block_tokens
    for step in range(1, steps):
        needed += state.due[at + residue]
        if needed > instance.free:
            return step
        residue = residue + 1 if residue + 1 < layout.block_tokens else 0
    return steps


@inside
def by_joining(state: State, instance: Any) -> None:
    """Slots of decoding requests, in the order in which they began to, into ``scratch``.

    By insertion, as only policies that steer an instance ask for it.
    """
    heap = instance.room * state.numbers[0].calendar_room
    for index in range(instance.running):
        slot, at = state.ends[heap + index] & LOW, index
        while at > 0 and state.slots[state.scratch[at - 1]].place > state.slots[slot].place:
            state.scratch[at] = state.scratch[at - 1]
            at -= 1
        state.scratch[at] = slot


@inside
def look_into(state: State, number: int) -> None:
    """Tell what the policy of an instance is to see."""
    instance = state.instances[number]
    runs, waits = instance.running, instance.waiting + instance.prefilling
    state.told[0], state.told[1], state.told[2] = number, instance.now_s, instance.setting
    state.told[3] = instance.asked if instance.effective_s < np.inf else instance.setting
    state.told[4], state.told[5], state.told[6], state.told[7] = instance.made, instance.free, runs, waits
    by_joining(state, instance)
    for at in range(runs):
        request = state.slots[state.scratch[at]]
        events = instance.events - request.joined
        made = request.made + events
        state.running[at] = request.to_prefill + events
        state.running[runs + at] = max(request.predicted - made, 1.0)
        state.running[2 * runs + at] = made
        state.running[3 * runs + at] = request.arrival_s
        state.running[4 * runs + at] = request.first_s
        state.running[5 * runs + at] = instance.event_s if events else request.last_s
    if 4 * waits > len(state.waiting):
        return
    at = 0
    for first in (instance.first_prefilling, instance.head):
        slot = first
        while slot >= 0:
            request = state.slots[slot]
            state.waiting[at] = request.to_prefill - request.prefilled
            state.waiting[waits + at] = request.prompt
            state.waiting[2 * waits + at] = request.predicted
            state.waiting[3 * waits + at] = request.arrival_s
            at, slot = at + 1, request.after


@inlined
def cut(state: State, number: int, now_s: float) -> None:
    """What an instance does ends at the first boundary from now on."""
    numbers = state.numbers[0]
    instance = state.instances[number]
    if instance.doing == STRETCH:
        if instance.steps > 1:
            steps = steps_until(instance.step_s, instance.step_more_s, instance.steps, now_s - instance.now_s)
            if steps < instance.steps:
                instance.steps = steps
                instance.end_s = instance.now_s + lasts(instance.step_s, instance.step_more_s, steps)
                put_leaf(state.events, 0, numbers.leaves, number, instance.end_s)
    elif instance.doing == IDLE and instance.end_s > now_s:
        instance.end_s = now_s
        put_leaf(state.events, 0, numbers.leaves, number, now_s)
