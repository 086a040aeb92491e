"""Requests of an instance: they begin to decode, are preempted, and go when they have all their tokens.

What all decoding requests have in common is kept once: tokens that came late, and blocks that are due by residue of the
event (a step that decodes). Only where blocks run out is each of them looked at.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wastenot.serving.cluster.simulation.compiling import inside
from wastenot.serving.cluster.simulation.records import LEAST_TOKENS, LOW, PRIORITY, TICKET, State
from wastenot.serving.cluster.simulation.trees import into_heap, out_of_heap, put_leaf
from wastenot.serving.model.step_costs import inlined


@inlined
def blocks_of(tokens: int, block: int) -> int:
    """Blocks of the cache that hold a number of tokens."""
    return (tokens + block - 1) // block


@inlined
def has_room(request: Any, layout: Any, context: int) -> bool:
    """Whether a request that is due a block, having filled its last one, got one when it was admitted."""
    return context % layout.block_tokens == 0 and request.blocks * layout.block_tokens > context  # type: ignore[no-any-return]


@inlined
def begin_decoding(state: State, instance: Any, layout: Any, request: Any, slot: int, fresh: bool) -> None:
    """From now on the request decodes."""
    numbers = state.numbers[0]
    request.joined, request.took, request.late_before, request.place = instance.events, -1, instance.late, instance.joins
    instance.joins += 1
    instance.news = 1
    into_heap(
        state.ends,
        instance.room * numbers.calendar_room,
        instance.running,
        (instance.events + request.output - request.made) * TICKET + slot,
    )
    instance.running += 1
    instance.context += request.to_prefill
    state.due[instance.room * numbers.due_room + (request.joined + 1 - request.to_prefill) % layout.block_tokens] += 1
    if has_room(request, layout, request.to_prefill):
        instance.exempt += 1
    if fresh:
        request.fresh_after = instance.first_fresh
        instance.first_fresh = slot
        instance.fresh += 1


@inlined
def stop_decoding(state: State, instance: Any, layout: Any, request: Any, place: int) -> None:
    """The request no longer decodes; its blocks are free."""
    numbers = state.numbers[0]
    out_of_heap(state.ends, instance.room * numbers.calendar_room, instance.running, place)
    context = request.to_prefill + instance.events - request.joined
    instance.free += max(request.blocks, blocks_of(context, layout.block_tokens))
    if request.took == instance.events + 1:
        instance.free += 1
    instance.running -= 1
    instance.context -= context
    state.due[instance.room * numbers.due_room + (request.joined + 1 - request.to_prefill) % layout.block_tokens] -= 1
    if request.joined == instance.events and has_room(request, layout, request.to_prefill):
        instance.exempt -= 1
    request.late += instance.late - request.late_before


@inlined
def tell_load(state: State, number: int, instance: Any) -> None:
    """The router learns of an instance's load."""
    if instance.leaf >= 0:
        pool = state.pools[instance.pool]
        load = instance.tokens_left if state.numbers[0].router == LEAST_TOKENS else float(instance.requests)
        if instance.waiting_tokens >= pool.hold:
            load = np.inf
        put_leaf(state.loads, pool.tree_at, pool.leaves, instance.leaf, load)


@inlined
def bound_of(state: State, request: Any) -> int:
    """Which of the bounds on the time to the first token is a request's."""
    at = 0
    while at < state.numbers[0].ttft_classes - 1 and request.prompt >= state.places[at]:
        at += 1
    return at


@inlined
def ttft_s_of(state: State, request: Any) -> float:
    """The bound on the time to a request's first token."""
    return state.tables[bound_of(state, request)]  # type: ignore[no-any-return]


@inlined
def answered(state: State, number: int, instance: Any, request: Any, slot: int) -> None:
    """The request is answered."""
    numbers = state.numbers[0]
    answer = state.answers[request.number - numbers.gone]
    answer.sent_s, answer.first_s, answer.finish_s = request.sent_s, request.first_s, instance.now_s
    answer.instance, answer.late, answer.preemptions = number, request.late, request.preemptions
    state.kinds[request.kind].finished += 1
    if (
        request.first_s - request.arrival_s > ttft_s_of(state, request)
        or request.late > numbers.late_share * (request.output - 1) + 1e-9  # as `Deadlines.late_allowed` rounds
        or instance.now_s - request.arrival_s > numbers.end_to_end_s
    ):
        state.kinds[request.kind].missed += 1
    instance.requests -= 1
    instance.news = 1
    instance.tokens_left += request.output - request.predicted
    numbers.left -= 1
    request.after = numbers.spare
    numbers.spare = slot


@inside
def was_fresh(state: State, instance: Any, slot: int) -> bool:
    """Whether a request had no token since it began to decode; it is taken from the list of those."""
    fresh, last = instance.first_fresh, -1
    while fresh >= 0 and fresh != slot:
        last, fresh = fresh, state.slots[fresh].fresh_after
    if fresh < 0:
        return False
    if last >= 0:
        state.slots[last].fresh_after = state.slots[slot].fresh_after
    else:
        instance.first_fresh = state.slots[slot].fresh_after
    instance.fresh -= 1
    return True


@inlined
def comes_after(state: State, one: int, other: int) -> bool:
    """Whether a request is due later than another, or as late and came to the instance later."""
    this, that = state.slots[one], state.slots[other]
    return this.due_s > that.due_s or (this.due_s == that.due_s and this.ticket > that.ticket)  # type: ignore[no-any-return]


@inside
def insert_by_deadline(state: State, instance: Any, slot: int) -> None:
    """A request waits before all that are due later."""
    before, at = -1, instance.head
    while at >= 0 and comes_after(state, slot, at):
        before, at = at, state.slots[at].after
    state.slots[slot].after = at
    if before >= 0:
        state.slots[before].after = slot
    else:
        instance.head = slot
    if at < 0:
        instance.tail = slot


@inlined
def goes_first(state: State, layout: Any, one: int, other: int) -> bool:
    """Whether a request is preempted before another: the last to come, or the least urgent by vLLM's priority."""
    if layout.scheduler == PRIORITY:
        return comes_after(state, one, other)
    return state.slots[one].ticket > state.slots[other].ticket  # type: ignore[no-any-return]


@inside
def victim_of(state: State, instance: Any, layout: Any) -> tuple[int, int, int]:
    """Who is preempted first: its slot; its place in the heap of those that decode, or -1; who is before it otherwise."""
    heap, slot, place = instance.room * state.numbers[0].calendar_room, -1, -1
    for index in range(instance.running):
        other = state.ends[heap + index] & LOW
        if slot < 0 or goes_first(state, layout, other, slot):
            slot, place = other, index
    other, before = instance.first_prefilling, -1
    last = -1
    while other >= 0:
        if slot < 0 or goes_first(state, layout, other, slot):
            slot, place, before = other, -1, last
        last, other = other, state.slots[other].after
    return slot, place, before


@inside
def preempt(state: State, instance: Any, layout: Any, secured: bool) -> int:
    """A request gives up its blocks for others; it waits before those that came after it, and starts over. Returns its slot.

    ``secured``: whether all decoding requests have the blocks that they need for their next token already.
    """
    slot, place, before = victim_of(state, instance, layout)
    request = state.slots[slot]
    if place >= 0:
        context = request.to_prefill + instance.events - request.joined
        if secured and context % layout.block_tokens == 0 and not has_room(request, layout, context):
            request.took = instance.events + 1
        stop_decoding(state, instance, layout, request, place)
        if not was_fresh(state, instance, slot):
            request.last_s = instance.event_s
        request.made += instance.events - request.joined
        if not instance.running:
            instance.secured = -1
    else:
        instance.free += request.blocks
        if before >= 0:
            state.slots[before].after = request.after
        else:
            instance.first_prefilling = request.after
        if instance.last_prefilling == slot:
            instance.last_prefilling = before
        instance.prefilling -= 1
    left = request.to_prefill - request.prefilled
    request.took, request.prefilled, request.to_prefill = -1, 0, request.prompt + request.made
    request.preemptions += 1
    instance.waiting_tokens += request.to_prefill - left
    instance.tokens_left += request.to_prefill - left
    instance.news = instance.preempted = 1
    instance.waiting += 1
    if layout.scheduler == PRIORITY:
        insert_by_deadline(state, instance, slot)
        return slot
    if request.made:
        request.due_s = 0.0
    request.after = instance.head
    instance.head = slot
    if instance.tail < 0:
        instance.tail = slot
    return slot


@inside
def make_room(state: State, instance: Any, layout: Any) -> None:
    """A block for each decoding request whose last one is full, by preemption where none is free."""
    numbers = state.numbers[0]
    event = instance.events + 1
    if instance.secured == event:
        return
    instance.secured = event
    needed = state.due[instance.room * numbers.due_room + event % layout.block_tokens] - instance.exempt
    if needed <= instance.free:
        instance.free -= needed
    else:
        make_room_by_force(state, instance, layout)


@inlined
def first_to_decode(state: State, instance: Any) -> int:
    """The request that began to decode before all others; -1 where there is none."""
    heap, first = instance.room * state.numbers[0].calendar_room, -1
    for index in range(instance.running):
        slot = state.ends[heap + index] & LOW
        if first < 0 or state.slots[slot].place < state.slots[first].place:
            first = slot
    return first


@inside
def make_room_by_force(state: State, instance: Any, layout: Any) -> None:
    """The same where blocks do not suffice: request by request, by preemption.

    A request that is preempted for want of a block of its own ends vLLM's step there. Where it is the first, that step is
    empty and takes no time, and in the one after it nobody was preempted.
    """
    numbers = state.numbers[0]
    event, heap, count = instance.events + 1, instance.room * numbers.calendar_room, 0
    for index in range(instance.running):  # those in need, in the order in which they joined
        slot = state.ends[heap + index] & LOW
        request = state.slots[slot]
        context = request.to_prefill + instance.events - request.joined
        if context % layout.block_tokens or has_room(request, layout, context):
            continue
        place = count
        while place > 0 and state.slots[state.scratch[place - 1]].place > request.place:
            state.scratch[place] = state.scratch[place - 1]
            place -= 1
        state.scratch[place] = slot
        count += 1
    for place in range(count):
        request = state.slots[state.scratch[place]]
        while request.prefilled and request.took != event:  # a preempted one has nothing prefilled
            if instance.free:
                instance.free -= 1
                request.took = event
            else:
                first = first_to_decode(state, instance)
                if preempt(state, instance, layout, False) == first and first == state.scratch[place]:
                    instance.preempted = 0
