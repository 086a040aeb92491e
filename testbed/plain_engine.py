"""The rules of the simulator in their plainest form: each request an object, each step a loop over all of them."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.serving.cluster.simulation.costs import BURST_S
from wastenot.serving.model.deadlines import LITERATURE, Deadlines
from wastenot.serving.model.engine import Engine, Scheduler
from wastenot.serving.model.requests import Requests
from wastenot.serving.simulation.policy import Policy, View
from wastenot.serving.simulation.served import GAP_EDGES_S, Served


@dataclass(slots=True)
class _Request:
    index: int
    arrival_s: float
    prompt: int
    output: int
    predicted: float
    to_prefill: int  # tokens: of the prompt, and after a preemption of what was made, too
    prefilled: int = 0
    made: int = 0
    context: int = 0  # tokens in the cache
    blocks: int = 0
    first_s: float = math.nan
    last_s: float = math.nan
    finish_s: float = math.nan
    late: int = 0
    preemptions: int = 0
    due_s: float = math.nan


def plainly_served(
    requests: Requests,
    engine: Engine,
    policy: Policy,
    *,
    deadlines: Deadlines = LITERATURE,
    predicted_tokens: FloatArray | None = None,
) -> Served:
    """Run an engine until all requests are answered.

    Args:
        requests: the load.
        engine: that serves it.
        policy: that steers its clock.
        deadlines: that the policy is told, and that late tokens are counted by.
        predicted_tokens: answers' lengths as the policy is told; by default the true ones.

    Raises:
        BadInputError: a request that can never fit into the cache.
        OutsideProfileError: a step that the tables do not cover.
    """
    tables, predicted = engine.tables, requests.output_tokens if predicted_tokens is None else predicted_tokens
    cached = np.zeros(len(requests), int) if requests.cached_tokens is None else requests.cached_tokens
    to_come = deque(
        _Request(index, float(arrival), int(prompt), int(output), float(guess), int(prompt), int(has))
        for index, (arrival, prompt, output, guess, has) in enumerate(
            zip(requests.arrival_s, requests.prompt_tokens, requests.output_tokens, predicted, cached, strict=True)
        )
    )
    every = list(to_come)
    for request, due_s in zip(every, requests.arrival_s + deadlines.ttft_of(requests.prompt_tokens), strict=True):
        request.due_s = float(due_s)
        most = blocks_of(request.prompt + request.output, engine)
        if most > engine.cache_blocks:
            raise BadInputError(
                f"request {request.index + 1}: {request.prompt} + {request.output} tokens do not fit into the cache of "
                f"{engine.cache_blocks * engine.block_tokens} tokens; leave it out or give the engine more memory"
            )
    waiting: deque[_Request] = deque()
    prefilling: list[_Request] = []
    decoding: list[_Request] = []
    free, now, steps = engine.cache_blocks, 0.0, 0
    before_s = 0.0  # since the host could begin to launch the next step
    over_j = 0.0  # drawn above the power limit
    setting = policy.begin(engine, deadlines)
    asked, effective_s, again_s, news, switches = setting, math.inf, -math.inf, True, 0
    energy_j = dict.fromkeys(("prefill", "decode", "mixed", "idle"), 0.0)
    time_s, count = dict(energy_j), {"prefill": 0, "decode": 0, "mixed": 0}
    setting_s, gaps = np.zeros(len(tables.settings)), np.zeros(len(GAP_EDGES_S) + 1, dtype=np.intp)

    def draw(lasts_s: float, of_j: float) -> None:
        nonlocal over_j
        if engine.limit_w is not None:
            over_j = max(over_j + of_j - engine.limit_w * lasts_s, 0.0)

    def idle(until: float) -> None:
        nonlocal now, setting, effective_s, switches
        while now < until:
            end = min(until, effective_s) if effective_s > now else until
            energy_j["idle"] += tables.idle_power_w[setting] * (end - now)
            draw(end - now, tables.idle_power_w[setting] * (end - now))
            time_s["idle"] += end - now
            setting_s[setting] += end - now
            now = end
            take_effect()

    def take_effect() -> None:
        nonlocal setting, effective_s, switches
        if now >= effective_s:
            switches += setting != asked
            setting, effective_s = asked, math.inf

    preempted = False  # at this boundary
    by_priority = engine.scheduler == Scheduler.PRIORITY

    def rank(request: _Request) -> tuple[float, float, int]:
        return (request.due_s if by_priority else 0.0), request.arrival_s, request.index

    def preempt(request: _Request) -> None:
        nonlocal free, news, preempted
        preempted = True
        free, request.blocks, request.context, request.prefilled = free + request.blocks, 0, 0, 0
        request.to_prefill, request.preemptions = request.prompt + request.made, request.preemptions + 1
        (decoding if request in decoding else prefilling).remove(request)
        wait(request)

    def wait(request: _Request) -> None:
        nonlocal news
        news = True
        waiting.insert(sum(rank(each) < rank(request) for each in waiting), request)

    def ask() -> None:
        nonlocal asked, effective_s, again_s, news
        queue = [*prefilling, *waiting]
        view = View(
            now, setting, asked, steps, free,
            *(np.array([float(each) for each in column]) for column in (
                [request.context for request in decoding],
                [max(request.predicted - request.made, 1.0) for request in decoding],
                [request.made for request in decoding],
                [request.arrival_s for request in decoding],
                [request.first_s for request in decoding],
                [request.last_s for request in decoding],
                [request.to_prefill - request.prefilled for request in queue],
                [request.prompt for request in queue],
                [request.predicted for request in queue],
                [request.arrival_s for request in queue],
            )),
        )  # fmt: skip
        choice = policy.choose(view)
        if choice.setting != asked:
            asked = choice.setting
            effective_s = math.inf if asked == setting else now + engine.switch_s
        again_s, news = choice.again_s, False

    while to_come or waiting or prefilling or decoding:
        while to_come and to_come[0].arrival_s <= now:
            wait(to_come.popleft())
        take_effect()
        preempted = False
        if not (waiting or prefilling or decoding):
            before_s = 0.0
            if news or now >= again_s:
                ask()
                take_effect()
            idle(min(to_come[0].arrival_s, again_s if again_s > now else math.inf))
            continue

        for request in tuple(decoding):  # room for one more token each
            if request not in decoding:
                continue
            while request in decoding and blocks_of(request.context + 1, engine) > request.blocks:
                if free:
                    free, request.blocks = free - 1, request.blocks + 1
                else:
                    victim, first = max([*decoding, *prefilling], key=rank), decoding[0]
                    preempt(victim)
                    preempted = not (victim is request is first)

        chunks: list[tuple[_Request, int]] = []
        room = engine.most_step_tokens - (len(decoding) if engine.chunked else 0)
        for request in tuple(prefilling):
            left = request.to_prefill - request.prefilled
            chunk = max(min(room, left), 0) if engine.chunked else left
            while request in prefilling and blocks_of(request.prefilled + chunk, engine) > request.blocks + free:
                victim = max([*decoding, *prefilling], key=rank)
                if victim in decoding:
                    room += engine.chunked
                room += sum(tokens for each, tokens in chunks if each is victim)
                chunks = [each for each in chunks if each[0] is not victim]
                preempt(victim)
            if request in prefilling and chunk:
                more = max(blocks_of(request.prefilled + chunk, engine) - request.blocks, 0)
                free, request.blocks = free - more, request.blocks + more
                chunks.append((request, chunk))
                room -= chunk
        seats = 0 if preempted and (decoding or prefilling) else engine.most_running
        while waiting and room > 0 and len(decoding) + len(prefilling) < seats:
            request = waiting[0]
            left = request.to_prefill - request.prefilled
            whole = blocks_of(request.to_prefill + (not engine.chunked), engine)
            if whole > free or (not engine.chunked and chunks and left > room):
                break
            prefilling.append(waiting.popleft())
            chunks.append((request, min(room, left) if engine.chunked else left))
            room -= chunks[-1][1]
            request.blocks = blocks_of(request.prefilled + chunks[-1][1], engine) if engine.chunked else whole
            free -= request.blocks

        if news or now >= again_s:
            ask()
            take_effect()
        if engine.overhead_s:
            idle(now + engine.overhead_s)

        batch = decoding if engine.chunked or not chunks else []
        context = sum(request.context for request in batch) / len(batch) if batch else 0.0
        tokens = sum(chunk for _, chunk in chunks)
        if chunks:
            attention = sum(chunk * (request.prefilled + chunk / 2) for request, chunk in chunks)
            past = attention / tokens - tokens / 2
            kind = "mixed" if batch else "prefill"
            cost = (
                tables.mixed(setting, tokens, past, len(batch), context) if batch else tables.prefill(setting, tokens, past)
            )
        else:
            kind, cost = "decode", tables.decode(setting, len(batch), context)
        lasts_s, step_j, wait_j, launch_s = cost.time_s, cost.energy_j, 0.0, 0.0
        if chunks:
            launch_s = engine.graph_launch_s if tokens + len(batch) <= engine.most_graph_tokens else engine.launch_s
            lasts_s = max(lasts_s, launch_s - before_s - engine.overhead_s)
            wait_j = (lasts_s - cost.time_s) * tables.idle_power_w[setting]
            energy_j["idle"] += wait_j
            if engine.limit_w is not None:
                room_j = BURST_S * engine.limit_w - over_j
                slower = max(float(np.roots([engine.limit_w * lasts_s, room_j, -step_j]).max()), 1.0)
                lasts_s, step_j = slower * lasts_s, step_j / slower
        whole_s = engine.overhead_s + lasts_s
        before_s = min(max(before_s + whole_s - launch_s, 0.0), whole_s)
        draw(lasts_s, wait_j + step_j)
        now, steps = now + lasts_s, steps + 1
        energy_j[kind], time_s[kind], count[kind] = (
            energy_j[kind] + step_j,
            time_s[kind] + lasts_s,
            count[kind] + 1,
        )
        setting_s[setting] += lasts_s

        done = list(batch)
        for request in batch:
            request.context += 1
        for request, chunk in chunks:
            request.prefilled += chunk
            if request.prefilled == request.to_prefill:
                request.context = request.to_prefill
                prefilling.remove(request)
                decoding.append(request)
                done.append(request)
                news = True
        for request in done:  # each has one more token
            request.made += 1
            if request.made == 1:
                request.first_s = now
            else:
                gap = now - request.last_s
                request.late += gap > deadlines.tbt_s
                gaps[np.searchsorted(GAP_EDGES_S, gap, side="right")] += 1
            request.last_s = now
            if request.made == request.output:
                request.finish_s, free = now, free + request.blocks
                decoding.remove(request)
                news = True

    return Served(
        requests,
        np.array([request.first_s for request in every]),
        np.array([request.finish_s for request in every]),
        np.array([request.late for request in every], dtype=np.intp),
        np.array([request.preemptions for request in every], dtype=np.intp),
        now,
        energy_j,
        time_s,
        count,
        setting_s,
        switches,
        gaps,
        setting,
    )


def blocks_of(tokens: int, engine: Engine) -> int:
    """Blocks of the cache that so many tokens need."""
    return -(-tokens // engine.block_tokens)
