"""The router: it chooses an instance for each request, and holds back those that none takes.

    a request ──► `chosen`: the pools on the route of its class, in order; in each the instance by the router's rule
                     │                                                    (least load: the root of the pool's tree)
                     ├─ one takes it ──► `send`: to its end of the queue, or by deadline; its stretch of steps is `cut`
                     └─ none ──► `wait_at_router`
                                    ├─ without ``hold``: one list, first come, first served, until `place` is called
                                    └─ with it: `line_up`; `release` at each event of an instance

Held requests wait in lines: one for each class × bound on the first token × BEGUN, IN_TIME, LATE. All in a line have the
same bound, so that the oldest is due first, and the most urgent of all is the least of the lines' heads (`most_urgent`): no
sorting. BEGUN lines go before IN_TIME ones, these before LATE ones. That a request is late is found out when it would be
sent: if by then its first token would come too late, it moves to the LATE line instead. A line is ``blocked`` for the rest
of a `release` once nobody takes any of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wastenot.serving.cluster.simulation.choosing import chosen
from wastenot.serving.cluster.simulation.compiling import compiled, inside
from wastenot.serving.cluster.simulation.costs import decode_cost, prefill_cost
from wastenot.serving.cluster.simulation.counting import draw
from wastenot.serving.cluster.simulation.instances import cut, with_prompts
from wastenot.serving.cluster.simulation.records import BEGUN, FCFS, IDLE, IN_TIME, LATE, PRIORITY, State
from wastenot.serving.cluster.simulation.requests import bound_of, insert_by_deadline, tell_load, ttft_s_of
from wastenot.serving.model.step_costs import Column, inlined


@inside
def send(state: State, slot: int, number: int, now_s: float) -> None:
    """A request goes to an instance."""
    request, instance = state.slots[slot], state.instances[number]
    request.ticket, request.after, request.sent_s = instance.tickets, -1, now_s
    instance.tickets += 1
    ordered = state.layouts[instance.layout].scheduler != FCFS
    if ordered and instance.tail >= 0 and request.due_s < state.slots[instance.tail].due_s:
        insert_by_deadline(state, instance, slot)
    elif instance.tail >= 0:
        state.slots[instance.tail].after = slot
        instance.tail = slot
    else:
        instance.head = instance.tail = slot
    if state.numbers[0].drawn and instance.doing != IDLE:  # the step under way counts it as there from its beginning on
        draw(state, instance.now_s, now_s, 0, -1)
        draw(state, now_s, instance.now_s, 0, 1)
    instance.waiting += 1
    instance.requests += 1
    instance.news = 1
    instance.waiting_tokens += request.to_prefill - request.prefilled
    instance.tokens_left += request.to_prefill - request.prefilled + request.predicted - request.made
    tell_load(state, number, instance)
    cut(state, number, now_s)


@inside
def route(state: State, slot: int, now_s: float) -> bool:
    """Send a request to an instance; whether there was one."""
    number = chosen(state, state.slots[slot])
    if number < 0:
        return False
    send(state, slot, number, now_s)
    return True


@inlined
def wait_at_router(state: State, slot: int) -> None:
    """A request that nobody takes waits at the router."""
    numbers = state.numbers[0]
    numbers.unplaced_count += 1
    if numbers.holds:
        numbers.held += 1
        line_up(state, slot, BEGUN if state.slots[slot].made else IN_TIME)
        return
    state.slots[slot].after = -1
    if numbers.last_unplaced >= 0:
        state.slots[numbers.last_unplaced].after = slot
    else:
        numbers.unplaced = slot
    numbers.last_unplaced = slot


@inside
def line_up(state: State, slot: int, which: int) -> None:
    """A request waits behind those of its kind that came before it."""
    request = state.slots[slot]
    line = state.lines[3 * (request.kind * state.numbers[0].ttft_classes + bound_of(state, request)) + which]
    before, after = line.last, -1
    if before >= 0 and state.slots[before].arrival_s > request.arrival_s:  # its host failed
        before, after = -1, line.first
        while state.slots[after].arrival_s <= request.arrival_s:
            before, after = after, state.slots[after].after
    link(state, line, before, slot)
    request.after = after
    if after < 0:
        line.last = slot


@inlined
def link(state: State, line: Any, before: int, slot: int) -> None:
    """What comes after a request in a line, or first."""
    if before >= 0:
        state.slots[before].after = slot
    else:
        line.first = slot


@inside
def unlink(state: State, line: Any, before: int, slot: int) -> None:
    """A request waits in its line no longer."""
    link(state, line, before, state.slots[slot].after)
    if line.last == slot:
        line.last = before


@inlined
def due_s_of(state: State, slot: int) -> float:
    """When a request's first token is due."""
    request = state.slots[slot]
    return request.arrival_s + ttft_s_of(state, request)  # type: ignore[no-any-return]


@inside
def tokens_before(state: State, instance: Any, request: Any) -> int:
    """Of prompts that an instance would prefill before that of one more request."""
    scheduler = state.layouts[instance.layout].scheduler
    if scheduler == FCFS:
        return instance.waiting_tokens  # type: ignore[no-any-return]
    tokens, due_s = 0, request.arrival_s + ttft_s_of(state, request)
    for begun, first in ((True, instance.first_prefilling), (False, instance.head)):
        slot = first
        while slot >= 0:
            other = state.slots[slot]
            if other.due_s <= due_s or (begun and scheduler == PRIORITY):
                tokens += other.to_prefill - other.prefilled
            slot = other.after
    return tokens


@inside
def first_token_s(state: State, number: int, request: Any, now_s: float) -> float:
    """When a request would about have its first token if an instance got it now; NaN beyond the tables.

    After the step under way and all prompts before it, in steps as large as may be at the clock of the rule:

        now ─ rest of the step ─ full ─ full ─ … ─ full ─ last       ``full`` steps of ``at_once`` tokens, and what is left

    Where prompts are prefilled in chunks, a step has room for as many tokens less as there are decoding requests. It takes
    the longer of its tokens' time and that of decoding alone with empty contexts, plus what contexts add (``more_s``), as in
    :func:`~wastenot.serving.cluster.simulation.costs.prompts_cost`. Past tokens of the prompts are left out, so it errs on
    the short side.
    """
    instance = state.instances[number]
    layout = state.layouts[instance.layout]
    own, batch = request.to_prefill - request.prefilled, instance.running if layout.chunked else 0
    tokens = tokens_before(state, instance, request) + own
    setting = with_prompts(state, instance, instance.waiting_tokens + own)
    at_once = max(layout.most_step_tokens - batch, 1)
    full = (tokens - 1) // at_once
    full_s, _ = prefill_cost(state.tables, state.places, layout, setting, at_once + batch, 0.0)
    last_s, _ = prefill_cost(state.tables, state.places, layout, setting, tokens - full * at_once + batch, 0.0)
    more_s = layout.overhead_s
    if batch:
        low, high = state.tables[layout.contexts_at], state.tables[layout.contexts_at + layout.contexts - 1]
        step_s, _, _, _, _, _ = decode_cost(
            state.tables, layout, setting, batch, min(max(instance.context / batch, low), high), instance.place
        )
        empty_s = state.tables[layout.decode_at + (setting * (layout.most_running + 1) + batch) * layout.contexts * 4]
        more_s += step_s - empty_s
        full_s = max(full_s, empty_s)
        last_s = max(last_s, empty_s)
    if full:
        last_s += full * (full_s + more_s)
    under_way_s = 0.0 if instance.doing == IDLE else max(min(instance.end_s - now_s, instance.step_s), 0.0)
    return now_s + under_way_s + last_s + more_s  # type: ignore[no-any-return]


@inside
def takes(state: State, kind: int) -> bool:
    """Whether an instance of a pool on the route of a class takes requests now."""
    pools = state.numbers[0].pools
    for place in range(pools):
        which_pool = state.routes[kind * pools + place]
        if which_pool < 0:
            return False
        if state.loads[state.pools[which_pool].tree_at + 1] < np.inf:
            return True
    return False


@inside
def most_urgent(state: State) -> int:
    """The line whose first request is to be sent next; -1 where there is none that somebody takes."""
    for which in range(3):
        best, least_s = -1, np.inf
        for at in range(which, len(state.lines), 3):
            line = state.lines[at]
            if line.first >= 0 and not line.blocked:
                due_s = due_s_of(state, line.first)
                if due_s < least_s:
                    best, least_s = at, due_s
        if best >= 0:
            return best
    return -1


@inside
def release(state: State, now_s: float) -> None:
    """Send those that are held to instances, as far as these have room, by deadline; what is late comes last."""
    numbers = state.numbers[0]
    for at in range(len(state.lines)):
        state.lines[at].blocked = 0
    while numbers.held:
        at = most_urgent(state)
        if at < 0:
            return
        line, before, number = state.lines[at], -1, -1
        slot = line.first
        if takes(state, state.slots[slot].kind):
            while slot >= 0:  # a cache may be too small for some
                number = chosen(state, state.slots[slot])
                if number >= 0:
                    break
                before, slot = slot, state.slots[slot].after
        if number < 0:
            line.blocked = 1
            continue
        request, which, due_s = state.slots[slot], at % 3, due_s_of(state, slot)
        unlink(state, line, before, slot)
        if which == IN_TIME and first_token_s(state, number, request, now_s) > due_s:
            line_up(state, slot, LATE)
            continue
        numbers.held -= 1
        numbers.unplaced_count -= 1
        request.due_s = 0.0 if which == BEGUN else due_s if which == IN_TIME else np.inf
        send(state, slot, number, now_s)


@inside
def place(state: State, now_s: float) -> None:
    """Send those that wait at the router to instances, in their order, as far as there are some now."""
    numbers = state.numbers[0]
    if numbers.held:
        release(state, now_s)
    slot = numbers.unplaced
    numbers.unplaced = numbers.last_unplaced = -1
    while slot >= 0:
        after = state.slots[slot].after
        numbers.unplaced_count -= 1
        if not route(state, slot, now_s):
            wait_at_router(state, slot)
        slot = after
    if numbers.held and not numbers.holds:
        unhold(state)


@inside
def unhold(state: State) -> None:
    """Those that are held wait first come, first served from now on."""
    numbers = state.numbers[0]
    for _ in range(numbers.held):
        first = -1
        for at in range(len(state.lines)):
            slot = state.lines[at].first
            if slot >= 0 and (first < 0 or state.slots[slot].arrival_s < state.slots[state.lines[first].first].arrival_s):
                first = at
        line = state.lines[first]
        slot = line.first
        unlink(state, line, -1, slot)
        numbers.held -= 1
        numbers.unplaced_count -= 1
        wait_at_router(state, slot)


@compiled
def look_held(state: State, now_s: float, held: Column, late: Column) -> None:
    """What waits at the router, by class: requests, and those that are late."""
    for at in range(-1, len(state.lines)):
        slot = state.numbers[0].unplaced if at < 0 else state.lines[at].first
        while slot >= 0:
            request = state.slots[slot]
            held[request.kind] += 1
            late[request.kind] += not request.made and due_s_of(state, slot) < now_s
            slot = request.after


@inside
def arrive(state: State) -> None:
    """The next request."""
    numbers = state.numbers[0]
    at, slot = numbers.next - numbers.gone, numbers.spare
    request = state.slots[slot]
    request.number = numbers.next
    numbers.next += 1
    numbers.spare = request.after
    request.arrival_s, request.prompt, request.output = state.arrival_s[at], state.prompt[at], state.output[at]
    request.predicted = state.predicted[at] if numbers.predicts else float(request.output)
    request.to_prefill, request.prefilled = request.prompt, state.cached[at]
    request.made, request.late, request.took, request.preemptions = 0, 0, -1, 0
    request.due_s = due_s_of(state, slot)
    size = 0 if request.prompt < numbers.prompt_below_0 else 1 if request.prompt < numbers.prompt_below_1 else 2
    length = 0 if request.predicted < numbers.output_below_0 else 1 if request.predicted < numbers.output_below_1 else 2
    request.kind = 3 * size + length
    kind = state.kinds[request.kind]
    kind.arrivals += 1
    kind.prompt_tokens += request.prompt
    kind.output_tokens += request.predicted
    if not route(state, slot, request.arrival_s):
        wait_at_router(state, slot)
