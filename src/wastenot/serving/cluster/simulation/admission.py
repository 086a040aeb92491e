"""Which prompts, or chunks of them, the next step of an instance prefills: those begun before, and those admitted to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from wastenot.serving.cluster.simulation.compiling import inside
from wastenot.serving.cluster.simulation.records import DEADLINE, State
from wastenot.serving.cluster.simulation.requests import blocks_of, preempt
from wastenot.serving.model.step_costs import inlined


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
    """The most urgent are admitted first, also before what is left of others; the late come after all that are in time."""
    room, tokens = layout.most_step_tokens, 0
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
        before, slot = slot, request.after
    sum_chunks(state, instance)


@inside
def continue_prompts(state: State, instance: Any, layout: Any, room: int) -> int:
    """Chunks of the prompts that were begun, of at most a number of tokens, with their blocks; what is left of the room.

    Where no block is free for one, others are preempted, or it is itself.
    """
    slot = instance.first_prefilling
    while slot >= 0:
        state.slots[slot].chunk = 0
        slot = state.slots[slot].after
    slot = instance.first_prefilling
    while slot >= 0:
        request = state.slots[slot]
        after, left = request.after, request.to_prefill - request.prefilled
        chunk = max(min(room, left), 0) if layout.chunked else left
        more = blocks_of(request.prefilled + chunk, layout.block_tokens) - request.blocks
        victim = -1
        while more > instance.free and victim != slot:
            running = instance.running
            victim = preempt(state, instance, layout, True)
            if victim != slot:
                room += state.slots[victim].chunk if running == instance.running else layout.chunked
                after = request.after
        if victim != slot:
            request.chunk = chunk
            room -= chunk
            if more > 0:
                instance.free -= more
                request.blocks += more
        slot = after
    return room


@inside
def sum_chunks(state: State, instance: Any) -> None:
    """What the next step prefills: tokens of all chunks, and the past ones that each of them attends to on average."""
    tokens, attention, slot = 0, 0.0, instance.first_prefilling
    while slot >= 0:
        request = state.slots[slot]
        tokens += request.chunk
        attention += request.chunk * (request.prefilled + request.chunk / 2)
        slot = request.after
    instance.step_tokens = tokens
    instance.past_tokens = attention / tokens - tokens / 2 if tokens else 0.0


@inside
def admit(state: State, instance: Any, layout: Any) -> None:
    """The prompts, or chunks of them, that the next step prefills."""
    if layout.scheduler == DEADLINE:
        admit_by_deadline(state, instance, layout)
        return
    room = layout.most_step_tokens
    if layout.chunked:
        room -= instance.running
    begun = instance.prefilling > 0
    if begun:
        room = continue_prompts(state, instance, layout, room)
    # As in vLLM, nobody is admitted in a step that preempts, unless there would be nothing to do in it.
    while instance.head >= 0 and not (instance.preempted and instance.running + instance.prefilling):
        slot = instance.head
        request = state.slots[slot]
        if instance.running + instance.prefilling >= layout.most_running or room <= 0:
            break
        left = request.to_prefill - request.prefilled
        whole = blocks_of(request.to_prefill + (not layout.chunked), layout.block_tokens)
        if whole > instance.free or (not layout.chunked and begun and left > room):
            break
        instance.head = request.after
        if instance.head < 0:
            instance.tail = -1
        instance.waiting -= 1
        request.chunk = min(room, left) if layout.chunked else left
        request.blocks = blocks_of(request.prefilled + request.chunk, layout.block_tokens) if layout.chunked else whole
        instance.free -= request.blocks
        room -= request.chunk
        begun = True
        request.after = -1
        if instance.last_prefilling >= 0:
            state.slots[instance.last_prefilling].after = slot
        else:
            instance.first_prefilling = slot
        instance.last_prefilling = slot
        instance.prefilling += 1
    sum_chunks(state, instance)
