"""Which instance a request goes to, by the router's rule."""

from __future__ import annotations

from typing import Any

import numpy as np

from wastenot.serving.cluster.simulation.compiling import inside
from wastenot.serving.cluster.simulation.costs import decode_cost, prefill_cost
from wastenot.serving.cluster.simulation.instances import while_decoding, with_prompts
from wastenot.serving.cluster.simulation.records import IDLE, LEAST_ENERGY, LOOKED_AT, POWER_OF_TWO, State
from wastenot.serving.cluster.simulation.requests import blocks_of, ttft_s_of
from wastenot.serving.cluster.simulation.trees import least_leaf
from wastenot.serving.model.step_costs import inlined


@inlined
def scattered(value: int) -> int:
    """32 bits that look random, of 32 bits; products stay below 2**63, with and without the compiler alike.

    A step of a linear congruential generator and the output permutation RXS-M-XS of PCG, with its constants (O'Neill, *PCG*,
    2014; as a hash: Jarzynski and Olano, JCGT 9, 2020). Runs of one seed repeat.
    """
    value = (value * 747796405 + 2891336453) & 0xFFFFFFFF
    value = (((value >> ((value >> 28) + 4)) ^ value) * 277803737) & 0xFFFFFFFF
    return (value >> 22) ^ value


@inlined
def fits(state: State, number: int, request: Any) -> bool:
    """Whether the cache of an instance can hold all of a request."""
    layout = state.layouts[state.instances[number].layout]
    return blocks_of(request.prompt + request.output, layout.block_tokens) <= layout.cache_blocks  # type: ignore[no-any-return]


@inside
def least_that_fits(state: State, pool: Any, request: Any) -> int:
    """The instance with the least load of those whose cache can hold a request; -1 where there is none."""
    best, least = -1, np.inf
    for member in range(pool.ready):
        load = state.loads[pool.tree_at + pool.leaves + member]
        if load < least and fits(state, state.members[pool.members_at + member], request):
            best, least = state.members[pool.members_at + member], load
    return best


@inside
def added_energy(state: State, number: int, request: Any) -> float:
    """Energy that a step of an instance takes more with one more request; infinite where deadlines would hardly be kept.

    Waiting requests count as if they decoded already, at the clock of the instance's rule for that batch. The first
    token comes after the step under way and all prompts before it, prefilled in steps as large as may be.

    An idle instance saves its idle power for the time of the step. Contexts beyond the tables count as their edges: an
    estimate is wanted, not a refusal.
    """
    numbers = state.numbers[0]
    instance = state.instances[number]
    layout = state.layouts[instance.layout]
    batch = instance.requests + 1
    if batch > layout.most_running:
        return np.inf
    setting, tokens = (
        while_decoding(state, instance, batch),
        instance.waiting_tokens + request.to_prefill - request.prefilled,
    )
    low, high = state.tables[layout.contexts_at], state.tables[layout.contexts_at + layout.contexts - 1]
    context = min(max((instance.context + tokens + request.prefilled) / batch, low), high)
    step_s, step_j, _, _, _, _ = decode_cost(state.tables, layout, setting, batch, context, instance.place)
    if instance.requests:
        before = min(max((instance.context + instance.waiting_tokens) / instance.requests, low), high)
        _, before_j, _, _, _, _ = decode_cost(state.tables, layout, setting, instance.requests, before, instance.place)
    else:
        before_j = state.tables[layout.idle_at + setting] * step_s
    at_once = min(tokens, layout.most_step_tokens)
    prompt_s, _ = prefill_cost(state.tables, state.places, layout, with_prompts(state, instance, tokens), at_once, 0.0)
    first_s = prompt_s * ((tokens + at_once - 1) // at_once) + (instance.step_s if instance.doing != IDLE else 0.0)
    if step_s + layout.overhead_s <= numbers.tbt_s and first_s <= ttft_s_of(state, request):
        return step_j - before_j
    return np.inf


@inside
def least_energy(state: State, pool: Any, request: Any) -> int:
    """The instance to which a request adds least energy, of all in a small pool, of some drawn at random in a large one.

    Where none keeps the deadlines, the one with the fewest requests; -1 where there is none that can hold it and has room.
    """
    numbers = state.numbers[0]
    best, least_j, short, fewest = -1, np.inf, -1, np.inf
    for member in range(min(pool.ready, LOOKED_AT)):
        place = member
        if pool.ready > LOOKED_AT:
            numbers.random = scattered((numbers.random + numbers.routed) & 0xFFFFFFFF)
            numbers.routed += 1
            place = numbers.random % pool.ready
        number = state.members[pool.members_at + place]
        instance = state.instances[number]
        if not fits(state, number, request) or instance.requests >= pool.room or instance.waiting_tokens >= pool.hold:
            continue
        added_j = added_energy(state, number, request)
        if added_j < least_j:
            best, least_j = number, added_j
        if state.instances[number].requests < fewest:
            short, fewest = number, float(state.instances[number].requests)
    return best if best >= 0 else short


@inside
def chosen(state: State, request: Any) -> int:
    """The instance for a request; -1 where there is none.

    The first with room on the route; where all pools are full, the one that the first pool with any would have chosen. With
    `POWER_OF_TWO`, the less loaded of two drawn at random, with replacement (Mitzenmacher, IEEE TPDS 12, 2001).
    """
    numbers, full = state.numbers[0], -1
    for place in range(numbers.pools):
        which_pool = state.routes[request.kind * numbers.pools + place]
        if which_pool < 0:
            break
        pool = state.pools[which_pool]
        if state.loads[pool.tree_at + 1] == np.inf:  # nobody serves, or all have as many prompts as they may have
            continue
        if numbers.router == LEAST_ENERGY:
            number = least_energy(state, pool, request)
            if number >= 0:
                return number
        if numbers.router == POWER_OF_TWO:
            numbers.random = scattered((numbers.random + numbers.routed) & 0xFFFFFFFF)
            numbers.routed += 1
            one = state.members[pool.members_at + numbers.random % pool.ready]
            # The second draw: bits flipped and hashed again. Any constant would do; this one is MurmurHash2's multiplier.
            other = state.members[pool.members_at + scattered(numbers.random ^ 0x5BD1E995) % pool.ready]
            number = other if state.instances[other].requests < state.instances[one].requests else one
            if state.instances[number].waiting_tokens >= pool.hold:
                number = state.members[pool.members_at + least_leaf(state.loads, pool.tree_at, pool.leaves)]
        else:
            number = state.members[pool.members_at + least_leaf(state.loads, pool.tree_at, pool.leaves)]
        if not fits(state, number, request):
            number = least_that_fits(state, pool, request)
            if number < 0:
                continue
        if state.instances[number].requests < pool.room:
            return number
        if full < 0:
            full = number
    return full
