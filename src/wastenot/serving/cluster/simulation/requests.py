"""Requests of an instance: they are admitted, begin to decode, are preempted, and go when they have all their tokens.

What all decoding requests have in common is kept once: tokens that came late, and blocks that are due by residue of the
event (a step that decodes). Only where blocks run out is each of them looked at.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wastenot.serving.cluster.simulation.compiling import inside
from wastenot.serving.cluster.simulation.counting import find_longest_gap
from wastenot.serving.cluster.simulation.records import LEAST_TOKENS, LOW, TICKET, State
from wastenot.serving.cluster.simulation.trees import into_heap, out_of_heap, put_leaf
from wastenot.serving.model.step_costs import inlined


@inlined
def blocks_of(tokens: int, block: int) -> int:
    """Blocks of the cache that hold a number of tokens."""
    return (tokens + block - 1) // block


@inlined
def begin_decoding(state: State, instance: Any, layout: Any, request: Any, slot: int, fresh: bool) -> None:
    """From now on the request decodes."""
    numbers = state.numbers[0]
    request.joined, request.took, request.late_before, request.place = instance.events, -1, instance.late, instance.joins
    request.since = instance.events + 1
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
    if request.to_prefill % layout.block_tokens == 0:
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
    if request.joined == instance.events and request.to_prefill % layout.block_tokens == 0:
        instance.exempt -= 1
    request.late += instance.late - request.late_before
    if numbers.alone:
        find_longest_gap(state, request)


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
    answer.sent_s, answer.first_s, answer.finish_s, answer.instance, answer.late = (
        request.sent_s,
        request.first_s,
        instance.now_s,
        number,
        request.late,
    )
    state.kinds[request.kind].finished += 1
    if numbers.alone:
        state.longest_s[request.number], state.preemptions[request.number] = request.longest_s, request.preemptions
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


@inside
def preempt(state: State, instance: Any, layout: Any) -> None:
    """The request that began last waits before all others, and starts over."""
    numbers = state.numbers[0]
    heap, youngest, slot, place = instance.room * numbers.calendar_room, -1, -1, -1
    for index in range(instance.running):
        other = state.ends[heap + index] & LOW
        if state.slots[other].ticket > youngest:
            youngest, slot, place = state.slots[other].ticket, other, index
    other, before = instance.first_prefilling, -1
    last = -1
    while other >= 0:
        if state.slots[other].ticket > youngest:
            youngest, slot, place, before = state.slots[other].ticket, other, -1, last
        last, other = other, state.slots[other].after
    request = state.slots[slot]
    if place >= 0:
        stop_decoding(state, instance, layout, request, place)
        if not was_fresh(state, instance, slot):
            request.last_s = instance.event_s
        request.made += instance.events - request.joined
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
    request.took, request.prefilled, request.to_prefill, request.handed = -1, 0, request.prompt + request.made, 0
    request.preemptions += 1
    if request.made:
        request.due_s = 0.0
    instance.waiting_tokens += request.to_prefill - left
    instance.tokens_left += request.to_prefill - left
    request.after = instance.head
    instance.head = slot
    instance.news = 1
    if instance.tail < 0:
        instance.tail = slot
    instance.waiting += 1


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
def joined_after(state: State, one: Any, other: Any) -> bool:
    """Whether a request counts as one that began to decode later than another."""
    if state.numbers[0].alone:
        return one.place > other.place  # type: ignore[no-any-return]
    return one.ticket > other.ticket  # type: ignore[no-any-return]


@inside
def make_room_by_force(state: State, instance: Any, layout: Any) -> None:
    """The same where blocks do not suffice: request by request, by preemption."""
    numbers = state.numbers[0]
    event, heap, count = instance.events + 1, instance.room * numbers.calendar_room, 0
    for index in range(instance.running):  # those in need, in the order in which they joined, which is that of their tickets
        slot = state.ends[heap + index] & LOW
        request = state.slots[slot]
        if (
            request.joined == instance.events
            or (request.to_prefill + instance.events - request.joined) % layout.block_tokens
        ):
            continue
        place = count
        while place > 0 and joined_after(state, state.slots[state.scratch[place - 1]], request):
            state.scratch[place] = state.scratch[place - 1]
            place -= 1
        state.scratch[place] = slot
        count += 1
    for place in range(count):
        request = state.slots[state.scratch[place]]
        while (request.prefilled or request.handed) and request.took != event:  # a preempted one has nothing prefilled
            if instance.free:
                instance.free -= 1
                request.took = event
            else:
                preempt(state, instance, layout)


@inlined
def postpone_late(state: State, instance: Any) -> None:
    """Requests that wait and can no longer have their first tokens in time come after all others."""
    while instance.head >= 0:
        late = instance.head
        request = state.slots[late]
        if request.made or not request.due_s < instance.now_s:
            return
        request.due_s = np.inf
        if late != instance.tail:
            instance.head, request.after = request.after, -1
            state.slots[instance.tail].after = late
            instance.tail = late


@inside
def admit_by_deadline(state: State, instance: Any, layout: Any) -> None:
    """Likewise, the most urgent first, also before what is left of others; those that are late come after all in time."""
    room, tokens, attention = layout.most_step_tokens, 0, 0.0
    if layout.chunked:
        room -= instance.running
    slot, before, full = instance.first_prefilling, -1, False
    while True:
        postpone_late(state, instance)
        first = -1 if full else instance.head
        if first >= 0 and (slot < 0 or state.slots[first].due_s < state.slots[slot].due_s):
            request = state.slots[first]
            need = blocks_of(request.to_prefill + 1, layout.block_tokens)
            if (
                instance.running + instance.prefilling >= layout.most_running
                or room <= 0
                or need > instance.free
                or (not layout.chunked and tokens and request.to_prefill - request.prefilled > room)
            ):
                full = True
                continue
            instance.head = request.after
            if instance.head < 0:
                instance.tail = -1
            instance.waiting -= 1
            instance.free -= need
            instance.prefilling += 1
            request.blocks, request.after = need, slot
            if before >= 0:
                state.slots[before].after = first
            else:
                instance.first_prefilling = first
            if slot < 0:
                instance.last_prefilling = first
            slot = first
        if slot < 0:
            break
        request = state.slots[slot]
        left = request.to_prefill - request.prefilled
        request.chunk = max(min(room, left), 0) if layout.chunked else left
        room -= request.chunk
        tokens += request.chunk
        attention += request.chunk * (request.prefilled + request.chunk / 2)
        before, slot = slot, request.after
    instance.step_tokens = tokens
    instance.past_tokens = max(attention / tokens - tokens / 2, 0.0) if tokens else 0.0


@inside
def admit(state: State, instance: Any, layout: Any) -> None:
    """The prompts, or chunks of them, that the next step prefills."""
    if state.numbers[0].by_deadline:
        admit_by_deadline(state, instance, layout)
        return
    room, tokens, attention = layout.most_step_tokens, 0, 0.0
    if layout.chunked:
        room -= instance.running
    slot = instance.first_prefilling
    while slot >= 0:  # what is left of the last one
        request = state.slots[slot]
        left = request.to_prefill - request.prefilled
        if layout.chunked:
            left = max(min(room, left), 0)
        request.chunk = left
        room -= left
        tokens += left
        attention += left * (request.prefilled + left / 2)
        slot = request.after
    while instance.head >= 0:
        slot = instance.head
        request = state.slots[slot]
        if instance.running + instance.prefilling >= layout.most_running or (room <= 0 and not request.handed):
            break
        need, left = blocks_of(request.to_prefill + 1, layout.block_tokens), request.to_prefill - request.prefilled
        if need > instance.free or (not layout.chunked and tokens and left > room and not request.handed):
            break
        instance.head = request.after
        if instance.head < 0:
            instance.tail = -1
        instance.waiting -= 1
        instance.free -= need
        request.blocks = need
        if request.handed:
            instance.waiting_tokens -= left
            begin_decoding(state, instance, layout, request, slot, True)
            room -= layout.chunked
            continue
        request.chunk = min(room, left) if layout.chunked else left
        room -= request.chunk
        tokens += request.chunk
        attention += request.chunk * (request.prefilled + request.chunk / 2)
        request.after = -1
        if instance.last_prefilling >= 0:
            state.slots[instance.last_prefilling].after = slot
        else:
            instance.first_prefilling = slot
        instance.last_prefilling = slot
        instance.prefilling += 1
    instance.step_tokens = tokens
    instance.past_tokens = max(attention / tokens - tokens / 2, 0.0) if tokens else 0.0
