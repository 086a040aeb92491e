"""Engines behind a router, compiled: each follows the rules of :mod:`wastenot.serving.simulation.simulate`.

A discrete-event simulation with two sources of events: requests that arrive, in an array by time, and instances, each with
one time ``end_s`` at which what it does is over (``instances.py``). A tournament tree has the least of these times at its
root, ``events[1]``; a change of one leaf takes log₂(instances) comparisons (``trees.py``):

    arrival_s[next]             events[1] = 4.2                  the earlier of both is next; if equal, the request
         │                     ┌──────┴──────┐
         │                    4.2           5.0
         │                 ┌───┴───┐     ┌───┴───┐
         │                9.1     4.2   5.0      ∞                leaves: end_s of instance 0, 1, 2, 3 (idle)
         ▼                         ▼
      `arrive`                 `advance`(1)
      router: a slot,          what it did has taken place (tokens, energy, answers) ─► held requests are released
      an instance, `cut`       ─► what it does next is planned, up to a new end_s

An instance that only decodes makes many steps in one event, so that a long answer costs no more events than a short one.

Requests that are in the cluster lie in *slots*, which are used again; the arrays over all requests are read once at their
arrival and written once at their end. Lists of requests are chains of slot numbers through ``after``, ended by −1.

:func:`run_until` continues until a time at which something else is due (a controller's visit, a host that fails:
:mod:`simulate <wastenot.serving.cluster.simulation.simulate>` does these), or until something rare happens that is not
decided here. It then returns why, leaves all state where it is, and is called again. Without Numba the same code runs on
lists, slower.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wastenot.serving.cluster.simulation.compiling import compiled, inside
from wastenot.serving.cluster.simulation.completing import after_step, after_stretch, finish_those_done
from wastenot.serving.cluster.simulation.costs import lasts
from wastenot.serving.cluster.simulation.counting import rest, spend
from wastenot.serving.cluster.simulation.instances import ask_clock, cut, look_into, plan, prepare, steps_until, wanted
from wastenot.serving.cluster.simulation.records import (
    ASK,
    AWAY,
    BINS,
    DONE,
    DRAINING,
    EMPTY,
    IDLE,
    LEAST_TOKENS,
    MORE,
    OUTSIDE,
    READY,
    SERVING,
    SLOTS,
    STEP,
    STRETCH,
    UNTIL,
    State,
)
from wastenot.serving.cluster.simulation.requests import preempt, tell_load
from wastenot.serving.cluster.simulation.router import arrive, look_held, place, release, wait_at_router
from wastenot.serving.cluster.simulation.trees import grow_tree, least_leaf, put_leaf
from wastenot.serving.model.compiled import compile_ahead
from wastenot.serving.model.step_costs import Column, inlined

RUN, PLACE, BEGIN, LEAVE, SETTLE, HEED, FAIL, LOOK_INTO = range(8)


@inside
def advance(state: State, number: int) -> int:
    """What an instance did until now has taken place; what it does next. ``DONE``, or why :func:`run_until` returns."""
    numbers = state.numbers[0]
    instance = state.instances[number]
    numbers.which = number
    if instance.doing == AWAY:
        return READY
    layout = state.layouts[instance.layout]
    requests = instance.requests
    if instance.doing == STRETCH:
        after_stretch(state, number, instance, layout, instance.steps, instance.end_s)
        finish_those_done(state, number, instance, layout)
    elif instance.doing == STEP:
        after_step(state, number, instance, layout)
    elif instance.doing == IDLE:
        rest(state, instance, layout, instance.end_s)
    if numbers.held and instance.leaf >= 0:  # before its next step is planned, so that it has what it is sent
        tell_load(state, number, instance)
        release(state, instance.now_s)
    if instance.steered and not (numbers.left or numbers.more):  # the last answer was given
        instance.doing, instance.end_s = IDLE, np.inf
        return DONE
    if prepare(state, instance, layout):
        numbers.asked = 1
        look_into(state, number)
        return ASK
    return go_on(state, number, instance, layout, instance.requests != requests)


@inlined
def go_on(state: State, number: int, instance: Any, layout: Any, changed: bool) -> int:
    """The instance begins what it does next; whether the number of its requests has changed."""
    numbers = state.numbers[0]
    if not plan(state, number, instance, layout):
        return OUTSIDE
    put_leaf(state.events, 0, numbers.leaves, number, instance.end_s)
    if changed or numbers.router == LEAST_TOKENS or numbers.holds:
        tell_load(state, number, instance)
    if instance.state == DRAINING and not instance.requests:
        return EMPTY
    return DONE


@inside
def heed_answer(state: State) -> int:
    """Do what the policy of an instance answered; then as :func:`run_until` returns."""
    numbers = state.numbers[0]
    instance = state.instances[numbers.which]
    layout = state.layouts[instance.layout]
    numbers.asked = 0
    instance.again_s, instance.news = state.answer[1], 0
    ask_clock(state, instance, layout, int(state.answer[0]))
    return go_on(state, numbers.which, instance, layout, True)


@inside
def run_until(state: State, until_s: float) -> int:  # noqa: PLR0911 - all that it returns for
    """Go on until all requests are answered (``DONE``), a time has come (``UNTIL``), or something is not decided here.

    ``ASK``: a policy is to be asked, and what it is to see is told; its answer is heeded at the next call. ``EMPTY``: an
    instance that drains has nothing left; ``READY``: one that was away is back; ``SLOTS``, ``BINS``: more are needed;
    ``OUTSIDE``: the tables do not cover a step; ``MORE``: it needs the requests that come next. Requests come before
    instances' boundaries at the same time.
    """
    numbers = state.numbers[0]
    if numbers.asked:
        why = heed_answer(state)
        if why:
            return why
    while numbers.left or numbers.more:
        arrival_s = np.inf
        if numbers.next < numbers.requests:
            arrival_s = state.arrival_s[numbers.next - numbers.gone]
        elif numbers.more:
            return MORE
        event_s = state.events[1]
        if arrival_s <= event_s:
            if arrival_s > until_s or arrival_s == np.inf:
                return UNTIL
            if numbers.spare < 0:
                return SLOTS
            numbers.now_s = arrival_s
            arrive(state)
            continue
        if event_s >= until_s:
            return UNTIL
        if event_s >= numbers.bin_s * (len(state.bins) - 1):
            return BINS
        numbers.now_s = event_s
        why = advance(state, least_leaf(state.events, 0, numbers.leaves))
        if why:
            return why
    return DONE


@inside
def begin(state: State, number: int, now_s: float) -> None:
    """An instance serves from now on, with nothing to do."""
    numbers = state.numbers[0]
    instance = state.instances[number]
    layout = state.layouts[instance.layout]
    instance.now_s, instance.effective_s, instance.state = now_s, np.inf, SERVING
    instance.setting = instance.asked = state.rules[instance.rule]
    instance.head = instance.tail = instance.first_prefilling = instance.last_prefilling = instance.first_fresh = -1
    instance.requests = instance.waiting = instance.waiting_tokens = instance.prefilling = instance.running = (
        instance.context
    ) = instance.fresh = 0
    instance.events = instance.exempt = instance.late = instance.place = 0
    instance.secured, instance.free, instance.tokens_left = -1, layout.cache_blocks, 0.0
    instance.news, instance.again_s = 1, -np.inf
    for residue in range(numbers.due_room):
        state.due[instance.room * numbers.due_room + residue] = 0
    instance.doing, instance.end_s = IDLE, now_s if instance.steered else np.inf
    put_leaf(state.events, 0, numbers.leaves, number, instance.end_s)


@inside
def leave(state: State, number: int, now_s: float, until_s: float) -> None:
    """An instance that has nothing to do is away from now on, until a time."""
    instance = state.instances[number]
    if instance.doing == IDLE:
        rest(state, instance, state.layouts[instance.layout], now_s)
    instance.doing, instance.end_s, instance.leaf = AWAY, until_s, -1
    put_leaf(state.events, 0, state.numbers[0].leaves, number, until_s)


@inside
def settle(state: State, number: int, now_s: float) -> None:
    """The energy that an idle instance used until now."""
    instance = state.instances[number]
    if instance.doing == IDLE:
        rest(state, instance, state.layouts[instance.layout], now_s)


@inside
def heed(state: State, number: int, now_s: float) -> None:
    """An instance has another rule for its clock, which it heeds at its next boundary: a stretch of steps ends there."""
    instance = state.instances[number]
    instance.news = 1
    if instance.doing != AWAY and (instance.steered or wanted(state, instance) != instance.asked):
        cut(state, number, now_s)


@inside
def progress(state: State, number: int, now_s: float) -> int:
    """Steps of its stretch that an instance has made by now."""
    instance = state.instances[number]
    if instance.doing != STRETCH:
        return 0
    # `steps_until` rounds up, to a boundary at or after now; the last of these steps counts only if it ended by now.
    steps = steps_until(instance.step_s, instance.step_more_s, instance.steps, now_s - instance.now_s)
    if instance.now_s + lasts(instance.step_s, instance.step_more_s, steps) > now_s:
        steps -= 1
    return steps


@inside
def fail(state: State, number: int, now_s: float) -> int:
    """An instance is no more; what it had comes to the router again. Returns how many requests that were.

    Tokens that readers have are not made again; they are prefilled with the prompt elsewhere, as after a preemption.
    """
    numbers = state.numbers[0]
    instance = state.instances[number]
    layout = state.layouts[instance.layout]
    if instance.doing == AWAY:
        instance.end_s = np.inf
        put_leaf(state.events, 0, numbers.leaves, number, np.inf)
        return 0
    done = progress(state, number, now_s)
    if done:
        after_stretch(
            state, number, instance, layout, done, instance.now_s + lasts(instance.step_s, instance.step_more_s, done)
        )
    if instance.doing == IDLE:
        rest(state, instance, layout, now_s)
    else:  # the step that it was in: its energy, as far as it got; its tokens are lost
        step_s, step_j = instance.step_s + done * instance.step_more_s, instance.step_j + done * instance.step_more_j
        share = max(now_s - instance.now_s, 0.0) / step_s if step_s > 0 else 0.0
        numbers.idle_j += instance.lead_j * share
        if instance.doing == STRETCH:
            numbers.decode_j += step_j * share
        elif instance.step_batch:
            numbers.mixed_j += step_j * share
        else:
            numbers.prefill_j += step_j * share
        spend(state, instance, layout, instance.now_s, now_s, (instance.lead_j + step_j) * share)
    while instance.running or instance.prefilling:
        preempt(state, instance, layout, False)
    lost, slot = instance.requests, instance.head  # now all of them, the oldest first
    while slot >= 0:
        after = state.slots[slot].after
        wait_at_router(state, slot)
        slot = after
    instance.requests = instance.waiting = instance.waiting_tokens = 0
    instance.doing, instance.end_s, instance.leaf = AWAY, np.inf, -1
    put_leaf(state.events, 0, numbers.leaves, number, np.inf)
    return lost  # type: ignore[no-any-return]


@compiled
def act(what: int, state: State, number: int, now_s: float, until_s: float) -> int:
    """One of all that Python asks for, by its name in capitals.

    Each function that Python calls has machine code of its own of all that it calls. With one for all it is compiled once.
    """
    if what == RUN:
        return run_until(state, until_s)
    if what == FAIL:
        return fail(state, number, now_s)
    if what == PLACE:
        place(state, now_s)
    elif what == BEGIN:
        begin(state, number, now_s)
    elif what == LEAVE:
        leave(state, number, now_s, until_s)
    elif what == SETTLE:
        settle(state, number, now_s)
    elif what == HEED:
        heed(state, number, now_s)
    elif what == LOOK_INTO:
        look_into(state, number)
    return 0


def run(state: State, until_s: float) -> int:
    """As :func:`run_until`."""
    return act(RUN, state, 0, 0.0, until_s)


@compiled
def look(
    state: State, now_s: float, setting: Column, running: Column, waiting: Column, waiting_tokens: Column, context: Column
) -> None:
    """What a controller sees of each instance, in the order of its view."""
    for number in range(len(running)):
        instance = state.instances[number]
        running[number], waiting[number] = instance.running, instance.waiting + instance.prefilling
        waiting_tokens[number] = instance.waiting_tokens
        context[number] = instance.context + instance.running * progress(state, number, now_s)
        setting[number] = instance.asked if instance.effective_s <= now_s else instance.setting


def make_ready(state: State) -> None:
    """Have all that is called from without compiled: what this process compiles, others find kept."""
    compile_ahead(act, RUN, state, 0, 0.0, 0.0)
    compile_ahead(grow_tree, state.loads, 0, 0)
    compile_ahead(look, state, 0.0, *[state.ends] * 5)
    compile_ahead(look_held, state, 0.0, *[state.ends] * 2)
