"""What has come of a step or a stretch of an instance, once it has taken place: tokens, energy, and answers that ended."""

from __future__ import annotations

from typing import Any

from wastenot.serving.cluster.simulation.compiling import inside
from wastenot.serving.cluster.simulation.costs import lasts
from wastenot.serving.cluster.simulation.counting import (
    bin_at,
    count_step,
    draw_gap,
    note_first,
    note_gap,
    note_gaps,
    spend,
)
from wastenot.serving.cluster.simulation.records import LOW, State
from wastenot.serving.cluster.simulation.requests import answered, begin_decoding, stop_decoding
from wastenot.serving.model.step_costs import inlined


@inlined
def decoded(state: State, number: int, instance: Any, now_s: float) -> None:
    """Each decoding request has one more token now."""
    numbers = state.numbers[0]
    instance.events += 1
    instance.exempt = 0
    instance.context += instance.running
    common, gap_s = instance.running - instance.fresh, now_s - instance.event_s
    if common:
        if gap_s > numbers.tbt_s:
            instance.late += 1
        note_gap(state, number, instance, gap_s, common)
        if numbers.drawn:
            draw_gap(state, now_s, gap_s)
    if instance.fresh:
        slot = instance.first_fresh
        while slot >= 0:
            request = state.slots[slot]
            if now_s - request.last_s > numbers.tbt_s:
                request.late += 1
            request.late_before = instance.late
            note_gap(state, number, instance, now_s - request.last_s, 1)
            if numbers.drawn:
                draw_gap(state, now_s, now_s - request.last_s)
            slot = request.fresh_after
        instance.fresh, instance.first_fresh = 0, -1


@inside
def finish_those_done(state: State, number: int, instance: Any, layout: Any) -> None:
    """Those that have all of their tokens."""
    numbers = state.numbers[0]
    heap = instance.room * numbers.calendar_room
    while instance.running and state.ends[heap] >> 32 == instance.events:
        slot = state.ends[heap] & LOW
        request = state.slots[slot]
        stop_decoding(state, instance, layout, request, 0)
        answered(state, number, instance, request, slot)


@inside
def after_stretch(state: State, number: int, instance: Any, layout: Any, steps: int, end_s: float) -> None:
    """The steps of a stretch have taken place."""
    numbers = state.numbers[0]
    running, step_s = instance.running, instance.step_s
    lasted_s = lasts(step_s, instance.step_more_s, steps)
    instance.before_s = step_s + (steps - 1) * instance.step_more_s + layout.overhead_s - instance.lead_s
    idle_j, energy_j = instance.lead_j * steps, lasts(instance.step_j, instance.step_more_j, steps)
    numbers.idle_j += idle_j
    numbers.decode_j += energy_j
    spend(state, instance, layout, instance.now_s, end_s, idle_j + energy_j)
    numbers.decode_s += lasted_s - instance.lead_s * steps
    numbers.idle_s += instance.lead_s * steps
    numbers.decode_steps += steps
    state.setting_s[instance.setting] += lasted_s
    if numbers.drawn:
        bin_at(state, end_s).tokens += running
    decoded(state, number, instance, instance.now_s + step_s)
    if steps > 1:
        note_gaps(state, number, instance, step_s, instance.step_more_s, steps)
        more, at, block = steps - 1, instance.room * numbers.due_room, layout.block_tokens
        turns = more // block  # in each turn of all residues every request takes one block
        needed, residue = turns * running, (instance.events + 1) % block
        for _ in range(more - turns * block):
            needed += state.due[at + residue]
            residue = residue + 1 if residue + 1 < block else 0
        instance.free -= needed
        instance.events += more
        instance.secured = instance.events
        instance.context += more * running
    instance.tokens_left -= steps * running
    instance.made += steps
    instance.now_s = instance.event_s = end_s


@inlined
def first_or_next_token(state: State, number: int, instance: Any, layout: Any, request: Any, slot: int) -> None:
    """A prompt is complete: the request has a token, its first or, after a preemption, its next."""
    numbers = state.numbers[0]
    request.made += 1
    instance.tokens_left -= 1
    if request.made == 1:
        request.first_s = instance.now_s
        if instance.steered:
            note_first(state, number, instance, request)
    else:  # it was preempted
        gap_s = instance.now_s - request.last_s
        if gap_s > numbers.tbt_s:
            request.late += 1
        note_gap(state, number, instance, gap_s, 1)
        if numbers.drawn:
            draw_gap(state, instance.now_s, gap_s)
    request.last_s = instance.now_s
    if numbers.drawn:
        bin_at(state, instance.now_s).tokens += 1
    if request.made == request.output:
        instance.free += request.blocks
        answered(state, number, instance, request, slot)
    else:
        begin_decoding(state, instance, layout, request, slot, instance.step_batch == 0)


@inside
def after_step(state: State, number: int, instance: Any, layout: Any) -> None:
    """A step with prompts has taken place."""
    numbers = state.numbers[0]
    numbers.idle_j += instance.lead_j
    if instance.step_batch:
        numbers.mixed_j += instance.step_j
    else:
        numbers.prefill_j += instance.step_j
    spend(state, instance, layout, instance.now_s, instance.end_s, instance.lead_j + instance.step_j)
    lasted_s = instance.step_s + layout.overhead_s
    instance.before_s = min(max(instance.before_s + lasted_s - instance.launch_s, 0.0), lasted_s)
    instance.now_s = instance.end_s
    instance.made += 1
    count_step(state, instance)
    if instance.step_batch:
        instance.tokens_left -= instance.running
        decoded(state, number, instance, instance.now_s)
        instance.event_s = instance.now_s
        finish_those_done(state, number, instance, layout)
    instance.tokens_left -= instance.step_tokens
    slot, last = instance.first_prefilling, -1
    while slot >= 0:
        request = state.slots[slot]
        after = request.after
        request.prefilled += request.chunk
        instance.waiting_tokens -= request.chunk
        if request.prefilled < request.to_prefill:
            last, slot = slot, after
            continue
        if last >= 0:
            state.slots[last].after = after
        else:
            instance.first_prefilling = after
        if after < 0:
            instance.last_prefilling = last
        instance.prefilling -= 1
        first_or_next_token(state, number, instance, layout, request, slot)
        slot = after
