"""An engine under a load, one step after the other.

At the boundary between two steps, at time *t*:

1. Requests that have come by *t* are waiting, first come, first served; one that was preempted waits before all others.
2. Each request that decodes needs room for one more token. Where its last block is full and no block is free, the
   request that began last is preempted: its blocks are freed, and its prompt with all tokens made so far is to be
   prefilled again.
3. Waiting requests are admitted while the batch has room (``most_running``), the step has (``most_step_tokens``) and
   the cache has blocks for all of the prompt and one more token. With chunks, a request that is being prefilled is in
   the batch already and goes on first, and prompts fill what the decoding requests leave of the step. Without, the step
   is a prefill of whole prompts if any can be admitted (the first of them however long it is), and decoding requests
   wait.
4. If something came, began to decode or went since the policy was last asked, or it wanted to be, it is asked. A switch
   asked for at *t* is in effect for steps that begin at *t* + ``switch_s`` or later; a step runs at one clock. While the
   policy holds prompts back and others decode, the step prefills nothing (what was admitted stays admitted).
5. The step lasts as the tables say, and ``overhead_s`` before it at idle power. Prompts of one step cost what one
   prompt of all their tokens would, on top of as many past tokens as make their attention the same.
6. At its end each decoding request has one more token, and each whose prefill is complete has its first (a preempted
   one its next). A request that has made all its tokens goes, and its blocks are free.

With nothing to do, the engine idles until the next request comes, and the clock may switch meanwhile.

Requests whose prompts were prefilled elsewhere (``first_token_s``) come with their caches: they are admitted in their turn
where the batch and the cache have room, take no part of a step's prompts, and decode from that step on.

The steps themselves are made by :mod:`wastenot.serving.simulation.core`.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.serving.model.compiled import COMPILED
from wastenot.serving.model.deadlines import LITERATURE, Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.requests import Requests
from wastenot.serving.simulation import core
from wastenot.serving.simulation.policy import Fixed, Policy, View
from wastenot.serving.simulation.served import GAP_EDGES_S, Served, Timeline

_MOST_BINS = 1_000_000


def simulate(
    requests: Requests,
    engine: Engine,
    policy: Policy,
    *,
    deadlines: Deadlines = LITERATURE,
    predicted_tokens: FloatArray | None = None,
    first_token_s: FloatArray | None = None,
    timeline_s: float | None = None,
) -> Served:
    """Run an engine until all requests are answered.

    Args:
        requests: the load.
        engine: that serves it.
        policy: that steers its clock.
        deadlines: that the policy is told, and that late tokens are counted by.
        predicted_tokens: answers' lengths as the policy is told; by default the true ones.
        first_token_s: when each had its first token elsewhere; its arrival is then that of its cache, its ``output_tokens``
            count the first token, too, and are at least 2.
        timeline_s: width of the bins of a timeline; doubled as often as a run needs that lasts far beyond its last arrival.

    Raises:
        BadInputError: a request that can never fit into the cache; a setting that is none.
        OutsideProfileError: a step that the tables do not cover.
    """
    _check(requests, engine, first_token_s)
    costs = _costs(engine)
    rules = _rules(requests, engine, deadlines, timeline_s)
    setting = policy.begin(engine, deadlines)
    _check_setting(setting, engine, policy)
    state = _state(requests, engine, rules, setting, predicted_tokens, first_token_s, timeline_s)
    asks = not isinstance(policy, Fixed)
    while (why := core.run(costs, rules, state, asks)) == core.ASK:
        choice = policy.choose(_view(state))
        _check_setting(choice.setting, engine, policy)
        state.answer[0], state.answer[1], state.answer[2] = choice
    if why == core.OUTSIDE:
        _refuse(engine, state)
    return _served(requests, engine, rules, state)


def _check(requests: Requests, engine: Engine, first_token_s: FloatArray | None) -> None:
    tokens = requests.prompt_tokens + requests.output_tokens
    too_long = np.flatnonzero(-(-tokens // engine.block_tokens) > engine.cache_blocks)
    if len(too_long):
        first = too_long[0]
        raise BadInputError(
            f"request {first + 1}: {requests.prompt_tokens[first]} + {requests.output_tokens[first]} tokens do not fit into "
            f"the cache of {engine.cache_blocks * engine.block_tokens} tokens; leave it out or give the engine more memory"
        )
    if engine.most_running < 1 or engine.most_step_tokens < 1:
        raise BadInputError("`most_running` and `most_step_tokens` of an engine must be at least 1")
    if first_token_s is not None:
        if requests.cached_tokens is not None:
            raise BadInputError("requests whose prompts were prefilled elsewhere have no use for `cached_tokens`")
        if (requests.output_tokens < 2).any():
            raise BadInputError("a request whose only token was made elsewhere has nothing to decode; leave it out")
        if not (first_token_s <= requests.arrival_s).all():
            raise BadInputError("`first_token_s`: a cache cannot come before the first token that was made with it")


def _check_setting(setting: int, engine: Engine, policy: Policy) -> None:
    settings = len(engine.tables.settings)
    if not 0 <= setting < settings:
        raise BadInputError(f"the policy '{policy.name}' asks for setting {setting}; there are settings 0 to {settings - 1}")


def _column(values: np.ndarray) -> core.Column:
    """An array for compiled code; otherwise a list of numbers or of objects, which Python is faster with."""
    if COMPILED:
        return np.ascontiguousarray(values)
    if names := values.dtype.names:
        return [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in values.tolist()]
    return values.tolist()


def _values(column: core.Column, name: str) -> np.ndarray:
    """One field of all records."""
    return np.asarray(column[name] if COMPILED else [getattr(row, name) for row in column])


def _costs(engine: Engine) -> core.Costs:
    tables = engine.tables
    return core.Costs(*(_column(np.asarray(getattr(tables, name), dtype=np.float64).ravel()) for name in core.Costs._fields))


def _number(state: core.State, name: str) -> float:
    """One of the numbers of a run."""
    return float(_values(state.counters, name)[0])


def _rules(requests: Requests, engine: Engine, deadlines: Deadlines, timeline_s: float | None) -> core.Rules:
    bins = 0
    if timeline_s is not None:
        if not 0 < timeline_s < math.inf:
            raise BadInputError(f"`timeline_s` ({timeline_s:g}) must be above 0")
        last_s = float(requests.arrival_s[-1]) if len(requests) else 0.0
        bins = 2 * min(math.ceil(last_s / timeline_s) + 32, _MOST_BINS)
    return core.Rules(
        len(requests),
        len(engine.tables.settings),
        int(engine.block_tokens),
        int(engine.most_running),
        int(engine.most_step_tokens),
        bool(engine.chunked),
        float(engine.overhead_s),
        float(engine.switch_s),
        float(deadlines.tbt_s),
        int(requests.output_tokens.max(initial=1)) + 2,
        len(GAP_EDGES_S),
        bins,
    )


def _state(
    requests: Requests,
    engine: Engine,
    rules: core.Rules,
    setting: int,
    predicted_tokens: FloatArray | None,
    first_token_s: FloatArray | None,
    timeline_s: float | None,
) -> core.State:
    count, batch = len(requests), min(rules.most_running, len(requests)) + 1
    each = np.zeros(count, dtype=core.REQUEST)
    each["arrival_s"], each["prompt"], each["output"] = requests.arrival_s, requests.prompt_tokens, requests.output_tokens
    each["predicted"] = requests.output_tokens if predicted_tokens is None else predicted_tokens
    each["to_prefill"] = requests.prompt_tokens
    each["prefilled"] = 0 if requests.cached_tokens is None else requests.cached_tokens
    each["finish_s"] = math.nan
    each["first_s"] = each["last_s"] = math.nan if first_token_s is None else first_token_s
    each["handed"] = each["made"] = first_token_s is not None
    counters = np.zeros(1, dtype=core.COUNTERS)
    counters["effective_s"] = math.inf
    counters["again_s"] = counters["hold_s"] = -math.inf
    counters["setting"] = counters["asked"] = setting
    counters["first"] = counters["last"] = -1
    counters["news"], counters["free"], counters["bin_s"] = 1, engine.cache_blocks, timeline_s or 0.0
    return core.State(
        counters=_column(counters),
        requests=_column(each),
        batch=_column(np.zeros(batch, dtype=core.SLOT)),
        ends=_column(np.full(rules.calendar, -1, dtype=np.int64)),
        due=_column(np.zeros(rules.block_tokens, dtype=np.int64)),
        gaps=_column(np.zeros(2 * rules.calendar, dtype=core.GAP)),
        gap_edges_s=_column(GAP_EDGES_S.astype(np.float64)),
        gap_counts=_column(np.zeros(rules.gap_bins + 1, dtype=np.int64)),
        setting_s=_column(np.zeros(rules.settings)),
        bins=_column(np.zeros(rules.bins, dtype=core.BIN)),
        bin_setting_s=_column(np.zeros(rules.bins * rules.settings)),
        told=_column(np.zeros(7)),
        answer=_column(np.zeros(3)),
    )


def _view(state: core.State) -> View:
    now_s, setting, asked, steps, free, runs, waits = map(float, state.told)
    running, waiting = np.empty((6, int(runs))), np.empty((4, int(waits)))
    core.look(state, running, waiting)
    return View(now_s, int(setting), int(asked), int(steps), int(free), *running, *waiting)


def _refuse(engine: Engine, state: core.State) -> None:
    """Say of which step the tables know nothing."""
    tables = engine.tables
    setting, tokens, batch = (int(_number(state, name)) for name in ("setting", "step_tokens", "step_batch"))
    past, context = _number(state, "attention_past"), _number(state, "attention_context")
    if tokens and batch:
        tables.mixed(setting, tokens, past, batch, context)
    elif tokens:
        tables.prefill(setting, tokens, past)
    else:
        tables.decode(setting, batch, context)
    raise AssertionError("the tables cover a step that the simulator could not make")


def _served(requests: Requests, engine: Engine, rules: core.Rules, state: core.State) -> Served:
    return Served(
        requests,
        _values(state.requests, "first_s"),
        _values(state.requests, "finish_s"),
        _values(state.requests, "late"),
        _values(state.requests, "longest_s"),
        _values(state.requests, "preemptions"),
        _number(state, "now_s"),
        {kind: _number(state, f"{kind}_j") for kind in core.KINDS},
        {kind: _number(state, f"{kind}_s") for kind in core.KINDS},
        {kind: int(_number(state, f"{kind}_steps")) for kind in core.KINDS if kind != "idle"},
        np.asarray(state.setting_s),
        int(_number(state, "switches")),
        np.asarray(state.gap_counts, dtype=np.intp),
        int(_number(state, "setting")),
        _timeline(rules, state) if rules.bins else None,
    )


def _timeline(rules: core.Rules, state: core.State) -> Timeline:
    bin_s = _number(state, "bin_s")
    used = math.ceil(_number(state, "now_s") / bin_s)
    energy_j, running_s, waiting_s, gap_s, longest_s, tokens, gaps = (
        _values(state.bins, name)[:used]
        for name in ("energy_j", "running_s", "waiting_s", "gap_s", "longest_s", "tokens", "gaps")
    )
    setting_s = np.asarray(state.bin_setting_s, dtype=np.float64).reshape(rules.bins, -1)[:used]
    lasted_s = setting_s.sum(axis=1)
    return Timeline(
        bin_s,
        energy_j,
        setting_s,
        np.divide(running_s, lasted_s, out=np.zeros(used), where=lasted_s > 0),
        np.divide(waiting_s, lasted_s, out=np.zeros(used), where=lasted_s > 0),
        tokens,
        np.divide(gap_s, gaps, out=np.full(used, math.nan), where=gaps > 0),
        longest_s,
    )
