"""Engines behind a router, compiled: each follows the rules of :mod:`wastenot.serving.simulation.simulate`.

An engine that only decodes makes a *stretch* of steps: nothing comes or goes, the clock stays, and within one cell of its
tables the time and the energy of a step are affine in its number, so that ``k`` steps from a first one of ``a`` seconds last
``k * a + b * k * (k - 1) / 2``. A stretch is planned at its beginning and takes place at its end:

    boundary ── plan: k steps, until then ──────────────────► end: tokens, energy, gaps, blocks; next boundary
                        ▲ a request comes: k is cut to the first boundary at or after it

So each instance has one time at which something happens to it, all of them are leaves of a tree whose root is the next one,
and a request costs a handful of events however long its answer is. Steps with prompts are planned one at a time.

What all decoding requests of an instance have in common is kept once, as in the engine's core: tokens that came late, blocks
that are due by residue of the event. Requests that are in the cluster lie in *slots*, which are used again; the arrays over
all requests are read once at their arrival and written once at their end.

:func:`run` goes on until a time at which something else is due, or until something rare happens that is not decided here.
Everything compiled stands in this file, since Numba's cache notices changes only of the file that a function stands in.
Without Numba the same code runs on lists, slower.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from wastenot.serving.model.compiled import by_address, compile_ahead, compiled as by_numba, compiled_inside

Function = TypeVar("Function", bound=Callable[..., Any])

Column = Any
"""An array where the code is compiled, a list where it is not."""

IDLE, STRETCH, STEP, AWAY = 0, 1, 2, 3  # what an instance does until its next event; away ones are not in here
DONE, UNTIL, EMPTY, READY, SLOTS, BINS, OUTSIDE, MORE = 0, 1, 2, 3, 4, 5, 6, 7  # why run() returns
SERVING, DRAINING = 2, 3  # states, as in the model
LEAST_REQUESTS, POWER_OF_TWO, LEAST_TOKENS, LEAST_ENERGY = 0, 1, 2, 3
LOOKED_AT = 8
"""Instances that are compared for a request by the energy that it adds."""
BEGUN, IN_TIME, LATE = 0, 1, 2
"""Requests that wait at the router, in the order in which they are sent: those whose answers were begun before their host
failed, those that can still have their first token in time, and those that cannot."""
PENDING, GIVEN_UP = -1, -2
"""Instead of the instance that answered a request."""
BACKLOGS = 8
"""Of prompts that rules tell apart: less than one step's worth, less than 2, 4, … 64, and more."""
KINDS = ("prefill", "decode", "mixed", "idle")
_TICKET = 1 << 32
_LOW = _TICKET - 1


def compiled(function: Function) -> Function:
    """The function, by Numba where it is installed."""
    # Nothing is allocated in here, and without counting references it is several times as fast.
    return cast("Function", by_numba(function, nogil=True, error_model="numpy", _nrt=False))


def inlined(function: Function) -> Function:
    """Likewise, and into those that call it: a call would take longer than what most of these do."""
    return cast("Function", compiled_inside(function, nogil=True, error_model="numpy", _nrt=False, forceinline=True))


def inside(function: Function) -> Function:
    """Likewise, for those in this file alone."""
    return cast("Function", compiled_inside(function, nogil=True, error_model="numpy", _nrt=False))


def _record(floats: str, integers: str, small: str = "") -> np.dtype[Any]:
    kinds = ((floats, np.float64), (integers, np.int64), (small, np.int32))
    return np.dtype([(name, kind) for names, kind in kinds for name in names.split()])


NUMBERS = _record(
    "bin_s bin_begin_s bin_end_s tbt_s late_share end_to_end_s prefill_j decode_j mixed_j idle_j now_s give_up_s",
    "requests gone more next left spare unplaced last_unplaced unplaced_count predicts router drawn routed bin which leaves "
    "gap_bins ttft_classes prompt_below_0 prompt_below_1 output_below_0 output_below_1 pools switches calendar_room "
    "due_room rule_room by_deadline holds held",
)
"""The numbers of a run. ``requests`` so far, those from ``gone`` on in the arrays, and whether there are ``more``;
``left``: requests that are not answered yet; ``spare``: the first free slot; ``unplaced``: the
first request that waits at the router; ``bin``: of the timeline, now; ``leaves``: of the tree of events; ``which``: the
instance that :func:`run` returned for; ``…_room``: places of an instance in arrays of which each has a part;
``by_deadline``: whether requests carry theirs, and instances prefill them in its order; ``holds``: whether the router holds
requests back, ``held`` ones in lists by class and deadline, all that wait at the router being ``unplaced_count``."""

LAYOUT = _record(
    "overhead_s switch_s",
    "gpus cache_blocks block_tokens most_running most_step_tokens chunked decode_at contexts_at contexts prefill_at "
    "tokens_at tokens pasts_at pasts places_at last_tokens idle_at clock_at",
)
"""An engine; ``…_at`` is where its numbers begin in the tables, ``places_at`` in the intervals of numbers of tokens."""

INSTANCE = _record(
    "now_s end_s event_s effective_s step_s step_more_s step_j step_more_j lead_j tokens_left past_tokens mean_context",
    "waiting_tokens context rule",
    "layout state doing steps requests waiting head tail prefilling first_prefilling last_prefilling running "
    "fresh first_fresh free events secured exempt late gap_bin place setting asked room step_tokens "
    "step_batch tickets pool leaf",
)
"""An instance since ``now_s``: what it does lasts until ``end_s``. ``step_s``, ``step_j``: of the first of ``steps``, and
``…_more_…`` of each one after it; ``lead_j``: at idle power before each; ``requests`` there: ``waiting`` ones in a list from
``head``, preempted ones first, those whose prompts are being prefilled in another one, and ``running`` ones in a heap by
their last events; ``secured``: the event for which they have blocks; ``exempt`` of those due by their residue, since they
just joined."""

SLOT = _record(
    "arrival_s first_s last_s predicted due_s sent_s",
    "",
    "request kind prompt output to_prefill prefilled chunk made joined blocks took late_before late ticket after "
    "fresh_after",
)
"""A request in the cluster. ``kind``: its class as predicted; ``made``, ``joined``: tokens and events when it began to
decode; ``took``: the event for which it took a block; ``ticket``: its place in the order in which the instance got them;
``due_s``: of its first token, where requests are ordered by it; 0 where its answer was begun, infinite once it is late."""

POOL = _record("", "tree_at leaves members_at ready room hold")
"""Instances of a pool that serve: ``ready`` of them, from ``members_at``, their loads in a tree. ``room``: requests that
each may have for there to be room for one more; ``hold``: tokens of prompts that wait on one at and above which it gets no
further request, and its load is infinite."""

LINE = _record("", "first last blocked")
"""Requests of a class as predicted and a bound on the first token that wait at the router, the oldest first; one of these
each for ``BEGUN``, ``IN_TIME`` and ``LATE`` ones. ``blocked``: no instance takes any of them now."""

ANSWER = _record("sent_s first_s finish_s", "", "instance late")
"""What became of a request."""

KIND = _record("output_tokens", "arrivals prompt_tokens finished missed given_up")
"""Requests of a class since the controller's last visit."""

BIN = _record("energy_j clock", "")
"""A bin of the timeline; ``clock``: MHz times GPUs times seconds."""


@by_address
class State(NamedTuple):
    """A run.

    Attributes:
        numbers: a single record.
        layouts: one each.
        instances: each that ever was.
        slots: requests in the cluster, and free ones in a list.
        pools: one each.
        lines: three for each class and bound on the first token.
        kinds: one for each class.
        bins: of the timeline.
        tables: of all layouts, and the bounds on the time to the first token.
        places: intervals of whole numbers of tokens in the tables; bounds of prompts' classes.
        ends: last events of decoding requests with their slots, a heap for each instance.
        due: requests that need a block, by residue of the event, for each instance.
        rules: settings by batch, then by steps' worth of prompts, for each instance.
        events: a tree over instances of when something happens to them.
        loads: a tree for each pool.
        members: of the pools.
        routes: pools by class, -1 after the last.
        gap_edges_s: of the histogram.
        gap_counts: the histogram.
        scratch: as long as the largest batch.
        arrival_s: of requests.
        prompt: likewise.
        cached: tokens of each that are not to be prefilled.
        output: likewise.
        predicted: likewise; empty where nothing is predicted.
        answers: one for each request.
    """

    numbers: Column
    layouts: Column
    instances: Column
    slots: Column
    pools: Column
    lines: Column
    kinds: Column
    bins: Column
    tables: Column
    places: Column
    ends: Column
    due: Column
    rules: Column
    events: Column
    loads: Column
    members: Column
    routes: Column
    gap_edges_s: Column
    gap_counts: Column
    scratch: Column
    arrival_s: Column
    prompt: Column
    cached: Column
    output: Column
    predicted: Column
    answers: Column


# ---- trees whose root is the least of their leaves -----------------------------------------------------------------


@inlined
def _put(tree: Column, at: int, leaves: int, leaf: int, key: float) -> None:
    node, least = leaves + leaf, key
    tree[at + node] = key
    while node > 1:
        other = tree[at + (node ^ 1)]
        if other < least:  # noqa: PLR1730 - faster than min, which thinks of NaN
            least = other
        node >>= 1
        if tree[at + node] == least:
            return
        tree[at + node] = least


@inlined
def _first(tree: Column, at: int, leaves: int) -> int:
    """The leaf with the least key; the first of several."""
    node, key = 1, tree[at + 1]
    while node < leaves:
        node *= 2
        if tree[at + node] != key:
            node += 1
    return node - leaves


@compiled
def grow_tree(tree: Column, at: int, leaves: int) -> None:
    """All nodes from the leaves."""
    for node in range(leaves - 1, 0, -1):
        tree[at + node] = min(tree[at + 2 * node], tree[at + 2 * node + 1])


# ---- what steps cost -----------------------------------------------------------------------------------------------


@inlined
def _between(tables: Column, at: int, across: float) -> float:
    if across == 0.0:
        return tables[at]  # type: ignore[no-any-return]
    if across == 1.0:
        return tables[at + 2]  # type: ignore[no-any-return]
    return tables[at] * (1 - across) + tables[at + 2] * across  # type: ignore[no-any-return]


@inlined
def _bilinear(tables: Column, at: int, row: int, along: float, across: float) -> float:
    if along == 1.0:
        return _between(tables, at + row, across)
    upper = _between(tables, at, across)
    if along == 0.0:
        return upper
    return upper * (1 - along) + _between(tables, at + row, across) * along


@inlined
def _place(tables: Column, at: int, count: int, value: float, hint: int) -> int:
    """The interval that a value lies in, looked for from where the last one was; -1 beyond the knots."""
    last = count - 1
    if not tables[at] <= value <= tables[at + last]:
        return -1
    while hint > 0 and tables[at + hint] > value:
        hint -= 1
    while hint < last - 1 and tables[at + hint + 1] <= value:
        hint += 1
    return hint


@inlined
def _decode(
    tables: Column, lay: Any, setting: int, batch: int, context: float, hint: int
) -> tuple[float, float, float, float, int, int]:
    """Time and energy of a decode step, what each one after it takes more, how many there are in this cell, and which."""
    knots, last = lay.contexts_at, lay.contexts - 1
    j = _place(tables, knots, last + 1, context, hint)
    if j < 0:
        return np.nan, np.nan, np.nan, np.nan, 1, hint
    at = lay.decode_at + ((setting * (lay.most_running + 1) + batch) * lay.contexts + j) * 4
    beyond, steps = context - tables[knots + j], 1
    step_s, step_j, more_s, more_j = tables[at], tables[at + 1], tables[at + 2], tables[at + 3]
    if last > 0:
        left = tables[knots + j + 1] - context
        steps = int(left) + 1
        if left == 0.0:  # on the last knot, the cell before it does not count: it may be NaN
            step_s, step_j, beyond = tables[at + 4], tables[at + 5], 0.0
    if beyond > 0.0:
        step_s += more_s * beyond
        step_j += more_j * beyond
    return step_s, step_j, more_s, more_j, steps, j


@inlined
def _prefill(tables: Column, places: Column, lay: Any, setting: int, tokens: int, past: float) -> tuple[float, float]:
    if tokens > lay.last_tokens:
        return np.nan, np.nan
    i = places[lay.places_at + tokens]
    j = _place(tables, lay.pasts_at, lay.pasts, past, 0)
    if i < 0 or j < 0:
        return np.nan, np.nan
    row = 2 * lay.pasts
    at = lay.prefill_at + (setting * lay.tokens + i) * row + 2 * j
    along = across = 0.0
    if lay.tokens > 1:
        low = tables[lay.tokens_at + i]
        along = (tokens - low) / (tables[lay.tokens_at + i + 1] - low)
    if lay.pasts > 1:
        low = tables[lay.pasts_at + j]
        across = (past - low) / (tables[lay.pasts_at + j + 1] - low)
    return _bilinear(tables, at, row, along, across), _bilinear(tables, at + 1, row, along, across)


@inlined
def _cost(tables: Column, places: Column, lay: Any, c: Any, context: float) -> tuple[float, float]:
    """Time and energy of a step with prompts."""
    tokens, batch = c.step_tokens, c.step_batch
    together_s, together_j = _prefill(tables, places, lay, c.setting, tokens + batch, c.past_tokens)
    if not batch:
        return together_s, together_j
    empty = lay.decode_at + (c.setting * (lay.most_running + 1) + batch) * lay.contexts * 4
    empty_s, empty_j = tables[empty], tables[empty + 1]
    full_s, full_j, _, _, _, c.place = _decode(tables, lay, c.setting, batch, context, c.place)
    return max(together_s, empty_s) + full_s - empty_s, max(together_j, empty_j) + full_j - empty_j


# ---- stretches -----------------------------------------------------------------------------------------------------


@inlined
def _lasts(first: float, more: float, steps: int) -> float:
    return first * steps + more * (0.5 * steps * (steps - 1))


@inlined
def _steps_until(first_s: float, more_s: float, most: int, time_s: float) -> int:
    """Least number of steps, from 1 to ``most``, that last at least so long; ``most`` where even they do not."""
    if most <= 1 or first_s >= time_s:
        return 1
    if _lasts(first_s, more_s, most) <= time_s:
        return most
    linear = first_s - 0.5 * more_s
    root = 2 * time_s / (linear + math.sqrt(max(linear * linear + 2 * more_s * time_s, 0.0)))
    steps = min(max(int(root), 1), most)
    # The root is rounded: what counts is the sum that the time of the boundary is made of.
    while steps > 1 and _lasts(first_s, more_s, steps - 1) >= time_s:
        steps -= 1
    while steps < most and _lasts(first_s, more_s, steps) < time_s:
        steps += 1
    return steps


@inlined
def _steps_below(first: float, more: float, begin: int, end: int, bound: float) -> int:
    """The first step from ``begin`` on that no longer is on the side of a bound that ``begin`` is on; ``end`` if none."""
    above = first + more * begin >= bound
    if more == 0.0 or (first + more * (end - 1) >= bound) == above:
        return end
    step = min(max(int((bound - first) / more), begin), end)
    while step > begin and (first + more * (step - 1) >= bound) != above:
        step -= 1
    while step < end and (first + more * step >= bound) == above:
        step += 1
    return step


@inlined
def _note_gap(edges_s: Column, counts: Column, c: Any, last: int, gap_s: float, tokens: int) -> None:
    """Into the histogram: so many tokens came so long after the ones before."""
    at = c.gap_bin  # edges[at - 1] <= gap < edges[at], most often as the last time
    while at > 0 and gap_s < edges_s[at - 1]:
        at -= 1
    while at < last and gap_s >= edges_s[at]:
        at += 1
    c.gap_bin = at
    counts[at] += tokens


@inside
def _note_gaps(s: State, c: Any, first_s: float, more_s: float, end: int) -> None:
    """Those of all steps of a stretch but the first one."""
    n = s.numbers[0]
    tokens, step, last, at, edges_s = c.running, 1, n.gap_bins, c.gap_bin, s.gap_edges_s
    while step < end:
        gap_s, after = first_s + more_s * step, end
        while at > 0 and gap_s < edges_s[at - 1]:
            at -= 1
        while at < last and gap_s >= edges_s[at]:
            at += 1
        if more_s > 0.0 and at < last:
            after = _steps_below(first_s, more_s, step, end, edges_s[at])
        elif more_s < 0.0 and at > 0:
            after = _steps_below(first_s, more_s, step, end, edges_s[at - 1])
        s.gap_counts[at] += tokens * (after - step)
        step = after
    c.gap_bin = at
    last_s, tbt_s = first_s + more_s * (end - 1), n.tbt_s
    first_s += more_s
    if first_s > tbt_s or last_s > tbt_s:
        after = _steps_above(first_s, more_s, 0, end - 1, tbt_s)
        c.late += after if first_s > tbt_s else end - 1 - after


@inlined
def _steps_above(first: float, more: float, begin: int, end: int, bound: float) -> int:
    """As :func:`_steps_below`, but what is at the bound counts as below it."""
    above = first + more * begin > bound
    if more == 0.0 or (first + more * (end - 1) > bound) == above:
        return end
    step = min(max(int((bound - first) / more), begin), end)
    while step > begin and (first + more * (step - 1) > bound) != above:
        step -= 1
    while step < end and (first + more * step > bound) == above:
        step += 1
    return step


@inlined
def _spend(s: State, c: Any, lay: Any, begin_s: float, end_s: float, energy_j: float) -> None:
    """Into the timeline."""
    n = s.numbers[0]
    clock = s.tables[lay.clock_at + c.setting] * lay.gpus
    if begin_s >= n.bin_begin_s and end_s <= n.bin_end_s:
        s.bins[n.bin].energy_j += energy_j
        s.bins[n.bin].clock += clock * (end_s - begin_s)
    else:
        _spread(s.bins, n, clock, begin_s, end_s, energy_j)


@inside
def _spread(bins: Column, n: Any, clock: float, begin_s: float, end_s: float, energy_j: float) -> None:
    """Over several bins of the timeline, or into another one than the last time."""
    last = len(bins) - 1
    if end_s > n.bin_end_s:
        n.bin = min(int(end_s / n.bin_s), last)
        n.bin_begin_s, n.bin_end_s = n.bin * n.bin_s, (n.bin + 1) * n.bin_s
    power_w = energy_j / (end_s - begin_s) if end_s > begin_s else 0.0
    at, from_s, left_j = min(int(begin_s / n.bin_s), last), begin_s, energy_j
    while at < last and (at + 1) * n.bin_s < end_s:
        until_s = max((at + 1) * n.bin_s, from_s)
        bins[at].energy_j += power_w * (until_s - from_s)
        bins[at].clock += clock * (until_s - from_s)
        left_j -= power_w * (until_s - from_s)
        at, from_s = at + 1, until_s
    bins[at].energy_j += left_j
    bins[at].clock += clock * (end_s - from_s)


@inlined
def _take_effect(s: State, c: Any) -> None:
    if c.now_s >= c.effective_s:
        if c.setting != c.asked:
            s.numbers[0].switches += 1
        c.setting, c.effective_s = c.asked, np.inf


@inside
def _rest(s: State, c: Any, lay: Any, until_s: float) -> None:
    """At idle power."""
    n = s.numbers[0]
    while c.now_s < until_s:
        end_s = min(until_s, c.effective_s) if c.effective_s > c.now_s else until_s
        energy_j = s.tables[lay.idle_at + c.setting] * (end_s - c.now_s)
        n.idle_j += energy_j
        _spend(s, c, lay, c.now_s, end_s, energy_j)
        c.now_s = end_s
        _take_effect(s, c)


# ---- requests of an instance ---------------------------------------------------------------------------------------


@inlined
def _blocks_of(tokens: int, block: int) -> int:
    return (tokens + block - 1) // block


@inlined
def _heap_in(ends: Column, at: int, count: int, key: int) -> None:
    place = count
    while place > 0:
        up = (place - 1) >> 1
        if ends[at + up] <= key:
            break
        ends[at + place] = ends[at + up]
        place = up
    ends[at + place] = key


@inlined
def _heap_out(ends: Column, at: int, count: int, place: int) -> None:
    """Without what lies at a place of a heap that had so many."""
    key, count = ends[at + count - 1], count - 1
    if place == count:
        return
    while place > 0:
        up = (place - 1) >> 1
        if ends[at + up] <= key:
            break
        ends[at + place] = ends[at + up]
        place = up
    while True:
        down = 2 * place + 1
        if down >= count:
            break
        if down + 1 < count and ends[at + down + 1] < ends[at + down]:
            down += 1
        if ends[at + down] >= key:
            break
        ends[at + place] = ends[at + down]
        place = down
    ends[at + place] = key


@inlined
def _join(s: State, c: Any, lay: Any, q: Any, slot: int, fresh: bool) -> None:
    """From now on the request decodes."""
    n = s.numbers[0]
    q.joined, q.took, q.late_before = c.events, -1, c.late
    _heap_in(s.ends, c.room * n.calendar_room, c.running, (c.events + q.output - q.made) * _TICKET + slot)
    c.running += 1
    c.context += q.to_prefill
    s.due[c.room * n.due_room + (q.joined + 1 - q.to_prefill) % lay.block_tokens] += 1
    if q.to_prefill % lay.block_tokens == 0:
        c.exempt += 1
    if fresh:
        q.fresh_after = c.first_fresh
        c.first_fresh = slot
        c.fresh += 1


@inlined
def _leave(s: State, c: Any, lay: Any, q: Any, place: int) -> None:
    """The request no longer decodes; its blocks are free."""
    n = s.numbers[0]
    _heap_out(s.ends, c.room * n.calendar_room, c.running, place)
    context = q.to_prefill + c.events - q.joined
    c.free += max(q.blocks, _blocks_of(context, lay.block_tokens))
    if q.took == c.events + 1:
        c.free += 1
    c.running -= 1
    c.context -= context
    s.due[c.room * n.due_room + (q.joined + 1 - q.to_prefill) % lay.block_tokens] -= 1
    if q.joined == c.events and q.to_prefill % lay.block_tokens == 0:
        c.exempt -= 1
    q.late += c.late - q.late_before


@inlined
def _load(s: State, i: int, c: Any) -> None:
    """The router learns of an instance's load."""
    if c.leaf >= 0:
        p = s.pools[c.pool]
        load = c.tokens_left if s.numbers[0].router == LEAST_TOKENS else float(c.requests)
        if c.waiting_tokens >= p.hold:
            load = np.inf
        _put(s.loads, p.tree_at, p.leaves, c.leaf, load)


@inlined
def _bound(s: State, q: Any) -> int:
    """Which of the bounds on the time to the first token is a request's."""
    at = 0
    while at < s.numbers[0].ttft_classes - 1 and q.prompt >= s.places[at]:
        at += 1
    return at


@inlined
def _ttft(s: State, q: Any) -> float:
    """The bound on the time to a request's first token."""
    return s.tables[_bound(s, q)]  # type: ignore[no-any-return]


@inlined
def _finish(s: State, i: int, c: Any, q: Any, slot: int) -> None:
    """The request is answered."""
    n = s.numbers[0]
    answer = s.answers[q.request - n.gone]
    answer.sent_s, answer.first_s, answer.finish_s, answer.instance, answer.late = q.sent_s, q.first_s, c.now_s, i, q.late
    s.kinds[q.kind].finished += 1
    if (
        q.first_s - q.arrival_s > _ttft(s, q)
        or q.late > n.late_share * (q.output - 1)
        or c.now_s - q.arrival_s > n.end_to_end_s
    ):
        s.kinds[q.kind].missed += 1
    c.requests -= 1
    c.tokens_left += q.output - q.predicted
    n.left -= 1
    q.after = n.spare
    n.spare = slot


@inside
def _was_fresh(s: State, c: Any, slot: int) -> bool:
    """Whether a request had no token since it began to decode; it is taken from the list of those."""
    fresh, last = c.first_fresh, -1
    while fresh >= 0 and fresh != slot:
        last, fresh = fresh, s.slots[fresh].fresh_after
    if fresh < 0:
        return False
    if last >= 0:
        s.slots[last].fresh_after = s.slots[slot].fresh_after
    else:
        c.first_fresh = s.slots[slot].fresh_after
    c.fresh -= 1
    return True


@inside
def _preempt(s: State, c: Any, lay: Any) -> None:
    """The request that began last waits before all others, and begins anew."""
    n = s.numbers[0]
    heap, youngest, slot, place = c.room * n.calendar_room, -1, -1, -1
    for index in range(c.running):
        other = s.ends[heap + index] & _LOW
        if s.slots[other].ticket > youngest:
            youngest, slot, place = s.slots[other].ticket, other, index
    other, before = c.first_prefilling, -1
    last = -1
    while other >= 0:
        if s.slots[other].ticket > youngest:
            youngest, slot, place, before = s.slots[other].ticket, other, -1, last
        last, other = other, s.slots[other].after
    q = s.slots[slot]
    if place >= 0:
        _leave(s, c, lay, q, place)
        if not _was_fresh(s, c, slot):
            q.last_s = c.event_s
        q.made += c.events - q.joined
    else:
        c.free += q.blocks
        if before >= 0:
            s.slots[before].after = q.after
        else:
            c.first_prefilling = q.after
        if c.last_prefilling == slot:
            c.last_prefilling = before
        c.prefilling -= 1
    left = q.to_prefill - q.prefilled
    q.took, q.prefilled, q.to_prefill = -1, 0, q.prompt + q.made
    if q.made:
        q.due_s = 0.0
    c.waiting_tokens += q.to_prefill - left
    c.tokens_left += q.to_prefill - left
    q.after = c.head
    c.head = slot
    if c.tail < 0:
        c.tail = slot
    c.waiting += 1


@inside
def _make_room(s: State, c: Any, lay: Any) -> None:
    """A block for each decoding request whose last one is full, by preemption where none is free."""
    n = s.numbers[0]
    event = c.events + 1
    if c.secured == event:
        return
    c.secured = event
    needed = s.due[c.room * n.due_room + event % lay.block_tokens] - c.exempt
    if needed <= c.free:
        c.free -= needed
    else:
        _make_room_by_force(s, c, lay)


@inside
def _make_room_by_force(s: State, c: Any, lay: Any) -> None:
    n = s.numbers[0]
    event, heap, count = c.events + 1, c.room * n.calendar_room, 0
    for index in range(c.running):  # those in need, in the order in which they joined, which is that of their tickets
        slot = s.ends[heap + index] & _LOW
        q = s.slots[slot]
        if q.joined == c.events or (q.to_prefill + c.events - q.joined) % lay.block_tokens:
            continue
        place = count
        while place > 0 and s.slots[s.scratch[place - 1]].ticket > q.ticket:
            s.scratch[place] = s.scratch[place - 1]
            place -= 1
        s.scratch[place] = slot
        count += 1
    for place in range(count):
        q = s.slots[s.scratch[place]]
        while q.prefilled and q.took != event:  # a preempted one has nothing prefilled
            if c.free:
                c.free -= 1
                q.took = event
            else:
                _preempt(s, c, lay)


@inside
def _admit_by_deadline(s: State, c: Any, lay: Any) -> None:
    """Likewise, the most urgent first, also before what is left of others; those that are late come after all in time."""
    room, tokens, attention = lay.most_step_tokens, 0, 0.0
    if lay.chunked:
        room -= c.running
    slot, before, full = c.first_prefilling, -1, False
    while True:
        while c.head >= 0 and s.slots[c.head].made == 0 and s.slots[c.head].due_s < c.now_s:
            late = c.head
            s.slots[late].due_s = np.inf
            if late != c.tail:
                c.head, s.slots[late].after = s.slots[late].after, -1
                s.slots[c.tail].after = late
                c.tail = late
        first = -1 if full else c.head
        if first >= 0 and (slot < 0 or s.slots[first].due_s < s.slots[slot].due_s):
            q = s.slots[first]
            need = _blocks_of(q.to_prefill + 1, lay.block_tokens)
            if (
                c.running + c.prefilling >= lay.most_running
                or room <= 0
                or need > c.free
                or (not lay.chunked and tokens and q.to_prefill - q.prefilled > room)
            ):
                full = True
                continue
            c.head = q.after
            if c.head < 0:
                c.tail = -1
            c.waiting -= 1
            c.free -= need
            c.prefilling += 1
            q.blocks, q.after = need, slot
            if before >= 0:
                s.slots[before].after = first
            else:
                c.first_prefilling = first
            if slot < 0:
                c.last_prefilling = first
            slot = first
        if slot < 0:
            break
        q = s.slots[slot]
        left = q.to_prefill - q.prefilled
        q.chunk = max(min(room, left), 0) if lay.chunked else left
        room -= q.chunk
        tokens += q.chunk
        attention += q.chunk * (q.prefilled + q.chunk / 2)
        before, slot = slot, q.after
    c.step_tokens = tokens
    c.past_tokens = max(attention / tokens - tokens / 2, 0.0) if tokens else 0.0


@inside
def _admit(s: State, c: Any, lay: Any) -> None:
    """The prompts, or chunks of them, that the next step prefills."""
    if s.numbers[0].by_deadline:
        _admit_by_deadline(s, c, lay)
        return
    room, tokens, attention = lay.most_step_tokens, 0, 0.0
    if lay.chunked:
        room -= c.running
    slot = c.first_prefilling
    while slot >= 0:  # what is left of the last one
        q = s.slots[slot]
        left = q.to_prefill - q.prefilled
        if lay.chunked:
            left = max(min(room, left), 0)
        q.chunk = left
        room -= left
        tokens += left
        attention += left * (q.prefilled + left / 2)
        slot = q.after
    while c.head >= 0:
        slot = c.head
        q = s.slots[slot]
        if c.running + c.prefilling >= lay.most_running or room <= 0:
            break
        need, left = _blocks_of(q.to_prefill + 1, lay.block_tokens), q.to_prefill - q.prefilled
        if need > c.free or (not lay.chunked and tokens and left > room):
            break
        c.head = q.after
        if c.head < 0:
            c.tail = -1
        c.waiting -= 1
        c.free -= need
        q.blocks = need
        q.chunk = min(room, left) if lay.chunked else left
        room -= q.chunk
        tokens += q.chunk
        attention += q.chunk * (q.prefilled + q.chunk / 2)
        q.after = -1
        if c.last_prefilling >= 0:
            s.slots[c.last_prefilling].after = slot
        else:
            c.first_prefilling = slot
        c.last_prefilling = slot
        c.prefilling += 1
    c.step_tokens = tokens
    c.past_tokens = max(attention / tokens - tokens / 2, 0.0) if tokens else 0.0


# ---- an instance at a boundary -------------------------------------------------------------------------------------


@inlined
def _with_prompts(s: State, c: Any, tokens: int) -> int:
    """The clock that an instance's rule asks for while it has so many tokens of prompts before it."""
    steps, level = tokens // s.layouts[c.layout].most_step_tokens, 0
    while steps and level < BACKLOGS - 1:
        steps, level = steps >> 1, level + 1
    return s.rules[c.rule + s.numbers[0].rule_room - BACKLOGS + level]  # type: ignore[no-any-return]


@inlined
def _wanted(s: State, c: Any) -> int:
    """The clock that an instance's rule asks for now."""
    if c.waiting or c.prefilling:
        return _with_prompts(s, c, c.waiting_tokens)
    return s.rules[c.rule + c.running]  # type: ignore[no-any-return]


@inlined
def _ask_clock(s: State, c: Any, lay: Any) -> None:
    setting = _wanted(s, c)
    if setting != c.asked:
        c.asked, c.effective_s = setting, np.inf if setting == c.setting else c.now_s + lay.switch_s
    if c.effective_s < np.inf:
        _take_effect(s, c)


@inside
def _plan(s: State, i: int, c: Any, lay: Any) -> bool:  # noqa: PLR0912 - the rules, in their order
    """What the instance does next, from a boundary between two steps on; whether the tables cover it."""
    n = s.numbers[0]
    if c.effective_s < np.inf:
        _take_effect(s, c)
    if not c.requests:
        _ask_clock(s, c, lay)
        c.doing, c.end_s = IDLE, np.inf
        return True
    if c.running:
        _make_room(s, c, lay)
    if c.waiting or c.prefilling:
        _admit(s, c, lay)
    else:
        c.step_tokens = 0
    _ask_clock(s, c, lay)
    lead_s, alone = lay.overhead_s, False
    c.lead_j = 0.0
    if lead_s > 0:
        if c.effective_s <= c.now_s + lead_s:  # the clock changes before the step begins
            _rest(s, c, lay, c.now_s + lead_s)
            alone = True
        else:
            c.lead_j = lead_s * s.tables[lay.idle_at + c.setting]
    c.step_batch = c.running if lay.chunked or not c.step_tokens else 0
    context = c.context / c.step_batch if c.step_batch else 0.0
    c.steps = 1
    if c.step_tokens:
        c.doing = STEP
        c.step_s, c.step_j = _cost(s.tables, s.places, lay, c, context)
        c.step_more_s = c.step_more_j = 0.0
    else:
        c.doing = STRETCH
        c.step_s, c.step_j, c.step_more_s, c.step_more_j, steps, c.place = _decode(
            s.tables, lay, c.setting, c.step_batch, context, c.place
        )
        if not alone and c.step_more_s == c.step_more_s and c.step_more_j == c.step_more_j:
            c.steps = _room_for(s, c, lay, min(steps, (s.ends[c.room * n.calendar_room] >> 32) - c.events))
    if not c.step_s >= 0:
        c.mean_context = context
        return False
    if not alone:
        c.step_s += lead_s
    if c.effective_s < np.inf:
        c.steps = _steps_until(c.step_s, c.step_more_s, c.steps, c.effective_s - lead_s - c.now_s)
    c.end_s = c.now_s + _lasts(c.step_s, c.step_more_s, c.steps)
    return True


@inside
def _room_for(s: State, c: Any, lay: Any, steps: int) -> int:
    """How many steps of a stretch the free blocks suffice for; the first one has what it needs."""
    more = steps - 1
    if c.running * _blocks_of(more, lay.block_tokens) <= c.free:
        return steps
    needed, at, residue = 0, c.room * s.numbers[0].due_room, (c.events + 2) % lay.block_tokens
    for step in range(1, steps):
        needed += s.due[at + residue]
        if needed > c.free:
            return step
        residue = residue + 1 if residue + 1 < lay.block_tokens else 0
    return steps


@inlined
def _decoded(s: State, c: Any, now_s: float) -> None:
    """Each decoding request has one more token now."""
    n = s.numbers[0]
    c.events += 1
    c.exempt = 0
    c.context += c.running
    common, gap_s = c.running - c.fresh, now_s - c.event_s
    if common:
        if gap_s > n.tbt_s:
            c.late += 1
        _note_gap(s.gap_edges_s, s.gap_counts, c, n.gap_bins, gap_s, common)
    if c.fresh:
        slot = c.first_fresh
        while slot >= 0:
            q = s.slots[slot]
            if now_s - q.last_s > n.tbt_s:
                q.late += 1
            q.late_before = c.late
            _note_gap(s.gap_edges_s, s.gap_counts, c, n.gap_bins, now_s - q.last_s, 1)
            slot = q.fresh_after
        c.fresh, c.first_fresh = 0, -1


@inside
def _go(s: State, i: int, c: Any, lay: Any) -> None:
    """Those that have all of their tokens."""
    n = s.numbers[0]
    heap = c.room * n.calendar_room
    while c.running and s.ends[heap] >> 32 == c.events:
        slot = s.ends[heap] & _LOW
        q = s.slots[slot]
        _leave(s, c, lay, q, 0)
        _finish(s, i, c, q, slot)


@inside
def _stretch(s: State, i: int, c: Any, lay: Any, steps: int, end_s: float) -> None:
    """The steps of a stretch have taken place."""
    n = s.numbers[0]
    running, step_s = c.running, c.step_s
    idle_j, energy_j = c.lead_j * steps, _lasts(c.step_j, c.step_more_j, steps)
    n.idle_j += idle_j
    n.decode_j += energy_j
    _spend(s, c, lay, c.now_s, end_s, idle_j + energy_j)
    _decoded(s, c, c.now_s + step_s)
    if steps > 1:
        _note_gaps(s, c, step_s, c.step_more_s, steps)
        more, at, block = steps - 1, c.room * n.due_room, lay.block_tokens
        turns = more // block
        needed, residue = turns * running, (c.events + 1) % block
        for _ in range(more - turns * block):
            needed += s.due[at + residue]
            residue = residue + 1 if residue + 1 < block else 0
        c.free -= needed
        c.events += more
        c.secured = c.events
        c.context += more * running
    c.tokens_left -= steps * running
    c.now_s = c.event_s = end_s


@inside
def _step(s: State, i: int, c: Any, lay: Any) -> None:  # noqa: PLR0912 - the rules, in their order
    """A step with prompts has taken place."""
    n = s.numbers[0]
    n.idle_j += c.lead_j
    if c.step_batch:
        n.mixed_j += c.step_j
    else:
        n.prefill_j += c.step_j
    _spend(s, c, lay, c.now_s, c.end_s, c.lead_j + c.step_j)
    c.now_s = c.end_s
    if c.step_batch:
        c.tokens_left -= c.running
        _decoded(s, c, c.now_s)
        c.event_s = c.now_s
        _go(s, i, c, lay)
    c.tokens_left -= c.step_tokens
    slot, last = c.first_prefilling, -1
    while slot >= 0:
        q = s.slots[slot]
        after = q.after
        q.prefilled += q.chunk
        c.waiting_tokens -= q.chunk
        if q.prefilled < q.to_prefill:
            last, slot = slot, after
            continue
        if last >= 0:
            s.slots[last].after = after
        else:
            c.first_prefilling = after
        if after < 0:
            c.last_prefilling = last
        c.prefilling -= 1
        q.made += 1
        c.tokens_left -= 1
        if q.made == 1:
            q.first_s = c.now_s
        else:  # it was preempted
            gap_s = c.now_s - q.last_s
            if gap_s > n.tbt_s:
                q.late += 1
            _note_gap(s.gap_edges_s, s.gap_counts, c, n.gap_bins, gap_s, 1)
        q.last_s = c.now_s
        if q.made == q.output:
            c.free += q.blocks
            _finish(s, i, c, q, slot)
        else:
            _join(s, c, lay, q, slot, c.step_batch == 0)
        slot = after


@inside
def _advance(s: State, i: int) -> int:
    """What an instance did until now has taken place; what it does next."""
    n = s.numbers[0]
    c = s.instances[i]
    n.which = i
    if c.doing == AWAY:
        return READY
    lay = s.layouts[c.layout]
    requests = c.requests
    if c.doing == STRETCH:
        _stretch(s, i, c, lay, c.steps, c.end_s)
        _go(s, i, c, lay)
    elif c.doing == STEP:
        _step(s, i, c, lay)
    else:
        _rest(s, c, lay, c.end_s)
    if n.held and c.leaf >= 0:  # before its next step is planned, so that it has what it is sent
        _load(s, i, c)
        _release(s, c.now_s)
    if not _plan(s, i, c, lay):
        return OUTSIDE
    _put(s.events, 0, n.leaves, i, c.end_s)
    if c.requests != requests or n.router == LEAST_TOKENS or n.holds:
        _load(s, i, c)
    if c.state == DRAINING and not c.requests:
        return EMPTY
    return DONE


@inlined
def cut(s: State, i: int, now_s: float) -> None:
    """What an instance does ends at the first boundary from now on."""
    n = s.numbers[0]
    c = s.instances[i]
    if c.doing == STRETCH:
        if c.steps > 1:
            steps = _steps_until(c.step_s, c.step_more_s, c.steps, now_s - c.now_s)
            if steps < c.steps:
                c.steps = steps
                c.end_s = c.now_s + _lasts(c.step_s, c.step_more_s, steps)
                _put(s.events, 0, n.leaves, i, c.end_s)
    elif c.doing == IDLE and c.end_s > now_s:
        c.end_s = now_s
        _put(s.events, 0, n.leaves, i, now_s)


# ---- the router ----------------------------------------------------------------------------------------------------


@inlined
def _scattered(value: int) -> int:
    """32 bits that look random, of 32 bits; products stay below 2**63, with and without the compiler alike."""
    value = (value * 747796405 + 2891336453) & 0xFFFFFFFF
    value = (((value >> ((value >> 28) + 4)) ^ value) * 277803737) & 0xFFFFFFFF
    return (value >> 22) ^ value


@inlined
def _fits(s: State, i: int, q: Any) -> bool:
    lay = s.layouts[s.instances[i].layout]
    return _blocks_of(q.prompt + q.output, lay.block_tokens) <= lay.cache_blocks  # type: ignore[no-any-return]


@inside
def _least_that_fits(s: State, p: Any, q: Any) -> int:
    """The instance with the least load of those whose cache can hold a request; -1 where there is none."""
    best, least = -1, np.inf
    for member in range(p.ready):
        load = s.loads[p.tree_at + p.leaves + member]
        if load < least and _fits(s, s.members[p.members_at + member], q):
            best, least = s.members[p.members_at + member], load
    return best


@inside
def _added_energy(s: State, i: int, q: Any) -> float:
    """Energy that a step of an instance takes more with one more request; infinite where deadlines would hardly be kept.

    Waiting requests count as if they decoded already, at the clock of the instance's rule for so many. The first token comes
    after the step under way and all prompts before it, prefilled in steps as large as may be.
    """
    n = s.numbers[0]
    c = s.instances[i]
    lay = s.layouts[c.layout]
    batch = c.requests + 1
    if batch > lay.most_running:
        return np.inf
    setting, tokens = s.rules[c.rule + batch], c.waiting_tokens + q.to_prefill - q.prefilled
    low, high = s.tables[lay.contexts_at], s.tables[lay.contexts_at + lay.contexts - 1]
    context = min(max((c.context + tokens + q.prefilled) / batch, low), high)
    step_s, step_j, _, _, _, _ = _decode(s.tables, lay, setting, batch, context, c.place)
    if c.requests:
        before = min(max((c.context + c.waiting_tokens) / c.requests, low), high)
        _, before_j, _, _, _, _ = _decode(s.tables, lay, setting, c.requests, before, c.place)
    else:
        before_j = s.tables[lay.idle_at + setting] * step_s
    at_once = min(tokens, lay.most_step_tokens)
    prompt_s, _ = _prefill(s.tables, s.places, lay, _with_prompts(s, c, tokens), at_once, 0.0)
    first_s = prompt_s * ((tokens + at_once - 1) // at_once) + (c.step_s if c.doing != IDLE else 0.0)
    if step_s + lay.overhead_s <= n.tbt_s and first_s <= _ttft(s, q):
        return step_j - before_j
    return np.inf


@inside
def _least_energy(s: State, p: Any, q: Any) -> int:
    """The instance to which a request adds least energy, of all in a small pool, of some drawn at random in a large one.

    Where none keeps the deadlines, the one with the fewest requests; -1 where there is none that can hold it and has room.
    """
    n = s.numbers[0]
    best, least_j, short, fewest = -1, np.inf, -1, np.inf
    for member in range(min(p.ready, LOOKED_AT)):
        place = member
        if p.ready > LOOKED_AT:
            n.drawn = _scattered((n.drawn + n.routed) & 0xFFFFFFFF)
            n.routed += 1
            place = n.drawn % p.ready
        i = s.members[p.members_at + place]
        c = s.instances[i]
        if not _fits(s, i, q) or c.requests >= p.room or c.waiting_tokens >= p.hold:
            continue
        added_j = _added_energy(s, i, q)
        if added_j < least_j:
            best, least_j = i, added_j
        if s.instances[i].requests < fewest:
            short, fewest = i, float(s.instances[i].requests)
    return best if best >= 0 else short


@inside
def _chosen(s: State, q: Any) -> int:
    """The instance for a request; -1 where there is none."""
    n, full = s.numbers[0], -1
    for place in range(n.pools):
        pool = s.routes[q.kind * n.pools + place]
        if pool < 0:
            break
        p = s.pools[pool]
        if s.loads[p.tree_at + 1] == np.inf:  # nobody serves, or all have as many prompts as they may have
            continue
        if n.router == LEAST_ENERGY:
            i = _least_energy(s, p, q)
            if i >= 0:
                return i
        if n.router == POWER_OF_TWO:
            n.drawn = _scattered((n.drawn + n.routed) & 0xFFFFFFFF)
            n.routed += 1
            one = s.members[p.members_at + n.drawn % p.ready]
            other = s.members[p.members_at + _scattered(n.drawn ^ 0x5BD1E995) % p.ready]
            i = other if s.instances[other].requests < s.instances[one].requests else one
            if s.instances[i].waiting_tokens >= p.hold:
                i = s.members[p.members_at + _first(s.loads, p.tree_at, p.leaves)]
        else:
            i = s.members[p.members_at + _first(s.loads, p.tree_at, p.leaves)]
        if not _fits(s, i, q):
            i = _least_that_fits(s, p, q)
            if i < 0:
                continue
        if s.instances[i].requests < p.room:
            return i
        if full < 0:
            full = i
    return full


@inside
def _insert(s: State, c: Any, slot: int, q: Any) -> None:
    """A request waits before all that are due later, of which there is one."""
    before, at = -1, c.head
    while s.slots[at].due_s <= q.due_s:
        before, at = at, s.slots[at].after
    q.after = at
    if before >= 0:
        s.slots[before].after = slot
    else:
        c.head = slot


@inside
def _send(s: State, slot: int, i: int, now_s: float) -> None:
    """A request goes to an instance."""
    q, c = s.slots[slot], s.instances[i]
    q.ticket, q.after, q.sent_s = c.tickets, -1, now_s
    c.tickets += 1
    if s.numbers[0].by_deadline and c.tail >= 0 and q.due_s < s.slots[c.tail].due_s:
        _insert(s, c, slot, q)
    elif c.tail >= 0:
        s.slots[c.tail].after = slot
        c.tail = slot
    else:
        c.head = c.tail = slot
    c.waiting += 1
    c.requests += 1
    c.waiting_tokens += q.to_prefill - q.prefilled
    c.tokens_left += q.to_prefill - q.prefilled + q.predicted - q.made
    _load(s, i, c)
    cut(s, i, now_s)


@inside
def _route(s: State, slot: int, now_s: float) -> bool:
    """Send a request to an instance; whether there was one."""
    i = _chosen(s, s.slots[slot])
    if i < 0:
        return False
    _send(s, slot, i, now_s)
    return True


# ---- requests that wait at the router ------------------------------------------------------------------------------


@inlined
def _wait(s: State, slot: int) -> None:
    """A request that nobody takes waits at the router."""
    n = s.numbers[0]
    n.unplaced_count += 1
    if n.holds:
        n.held += 1
        _line_up(s, slot, BEGUN if s.slots[slot].made else IN_TIME)
        return
    s.slots[slot].after = -1
    if n.last_unplaced >= 0:
        s.slots[n.last_unplaced].after = slot
    else:
        n.unplaced = slot
    n.last_unplaced = slot


@inside
def _line_up(s: State, slot: int, which: int) -> None:
    """A request waits behind those of its kind that came before it."""
    q = s.slots[slot]
    line = s.lines[3 * (q.kind * s.numbers[0].ttft_classes + _bound(s, q)) + which]
    before, after = line.last, -1
    if before >= 0 and s.slots[before].arrival_s > q.arrival_s:  # its host failed
        before, after = -1, line.first
        while s.slots[after].arrival_s <= q.arrival_s:
            before, after = after, s.slots[after].after
    _link(s, line, before, slot)
    q.after = after
    if after < 0:
        line.last = slot


@inlined
def _link(s: State, line: Any, before: int, slot: int) -> None:
    """What comes after a request in a line, or first."""
    if before >= 0:
        s.slots[before].after = slot
    else:
        line.first = slot


@inside
def _unlink(s: State, line: Any, before: int, slot: int) -> None:
    _link(s, line, before, s.slots[slot].after)
    if line.last == slot:
        line.last = before


@inlined
def _due(s: State, slot: int) -> float:
    """When a request's first token is due."""
    q = s.slots[slot]
    return q.arrival_s + _ttft(s, q)  # type: ignore[no-any-return]


@inside
def _tokens_before(s: State, c: Any, q: Any) -> int:
    """Of prompts that an instance would prefill before that of one more request."""
    if not s.numbers[0].by_deadline:
        return c.waiting_tokens  # type: ignore[no-any-return]
    tokens, due_s = 0, q.arrival_s + _ttft(s, q)
    for first in (c.first_prefilling, c.head):
        slot = first
        while slot >= 0:
            other = s.slots[slot]
            if other.due_s <= due_s:
                tokens += other.to_prefill - other.prefilled
            slot = other.after
    return tokens


@inside
def _first_token_s(s: State, i: int, q: Any, now_s: float) -> float:
    """When a request would about have its first token if an instance got it now; NaN beyond the tables.

    After the step under way and all prompts before it, in steps as large as may be at the clock of the rule.
    """
    c = s.instances[i]
    lay = s.layouts[c.layout]
    own, batch = q.to_prefill - q.prefilled, c.running if lay.chunked else 0
    tokens, setting = _tokens_before(s, c, q) + own, _with_prompts(s, c, c.waiting_tokens + own)
    at_once = max(lay.most_step_tokens - batch, 1)
    full = (tokens - 1) // at_once
    full_s, _ = _prefill(s.tables, s.places, lay, setting, at_once + batch, 0.0)
    last_s, _ = _prefill(s.tables, s.places, lay, setting, tokens - full * at_once + batch, 0.0)
    more_s = lay.overhead_s
    if batch:
        low, high = s.tables[lay.contexts_at], s.tables[lay.contexts_at + lay.contexts - 1]
        step_s, _, _, _, _, _ = _decode(s.tables, lay, setting, batch, min(max(c.context / batch, low), high), c.place)
        empty_s = s.tables[lay.decode_at + (setting * (lay.most_running + 1) + batch) * lay.contexts * 4]
        more_s += step_s - empty_s
        full_s = max(full_s, empty_s)
        last_s = max(last_s, empty_s)
    if full:
        last_s += full * (full_s + more_s)
    under_way_s = 0.0 if c.doing == IDLE else max(min(c.end_s - now_s, c.step_s), 0.0)
    return now_s + under_way_s + last_s + more_s  # type: ignore[no-any-return]


@inside
def _takes(s: State, kind: int) -> bool:
    """Whether an instance of a pool on the route of a class takes requests now."""
    pools = s.numbers[0].pools
    for place in range(pools):
        pool = s.routes[kind * pools + place]
        if pool < 0:
            return False
        if s.loads[s.pools[pool].tree_at + 1] < np.inf:
            return True
    return False


@inside
def _most_urgent(s: State) -> int:
    """The line whose first request is to be sent next; -1 where there is none that somebody takes."""
    for which in range(3):
        best, least_s = -1, np.inf
        for at in range(which, len(s.lines), 3):
            line = s.lines[at]
            if line.first >= 0 and not line.blocked:
                due_s = _due(s, line.first)
                if due_s < least_s:
                    best, least_s = at, due_s
        if best >= 0:
            return best
    return -1


@inside
def _release(s: State, now_s: float) -> None:
    """Send those that are held to instances, as far as these have room, by deadline; what is late comes last."""
    n = s.numbers[0]
    if n.give_up_s < np.inf:
        give_up(s, now_s)
    for at in range(len(s.lines)):
        s.lines[at].blocked = 0
    while n.held:
        at = _most_urgent(s)
        if at < 0:
            return
        line, before, i = s.lines[at], -1, -1
        slot = line.first
        if _takes(s, s.slots[slot].kind):
            while slot >= 0:  # a cache may be too small for some
                i = _chosen(s, s.slots[slot])
                if i >= 0:
                    break
                before, slot = slot, s.slots[slot].after
        if i < 0:
            line.blocked = 1
            continue
        q, which, due_s = s.slots[slot], at % 3, _due(s, slot)
        _unlink(s, line, before, slot)
        if which == IN_TIME and _first_token_s(s, i, q, now_s) > due_s:
            _line_up(s, slot, LATE)
            continue
        n.held -= 1
        n.unplaced_count -= 1
        if n.by_deadline:
            q.due_s = 0.0 if which == BEGUN else due_s if which == IN_TIME else np.inf
        _send(s, slot, i, now_s)


@compiled
def give_up(s: State, now_s: float) -> None:
    """Those that are held and have been late for so long that nobody waits for them any more."""
    n = s.numbers[0]
    for at in range(len(s.lines)):
        line = s.lines[at]
        while at % 3 != BEGUN and line.first >= 0 and _due(s, line.first) + n.give_up_s <= now_s:
            slot = line.first
            q = s.slots[slot]
            _unlink(s, line, -1, slot)
            s.answers[q.request - n.gone].instance = GIVEN_UP
            s.kinds[q.kind].given_up += 1
            n.held -= 1
            n.unplaced_count -= 1
            n.left -= 1
            q.after = n.spare
            n.spare = slot


@compiled
def place(s: State, now_s: float) -> None:
    """Send those that wait at the router to instances, in their order, as far as there are some now."""
    n = s.numbers[0]
    if n.held:
        _release(s, now_s)
    slot = n.unplaced
    n.unplaced = n.last_unplaced = -1
    while slot >= 0:
        after = s.slots[slot].after
        n.unplaced_count -= 1
        if not _route(s, slot, now_s):
            _wait(s, slot)
        slot = after
    if n.held and not n.holds:
        _unhold(s)


@inside
def _unhold(s: State) -> None:
    """Those that are held wait first come, first served from now on."""
    n = s.numbers[0]
    for _ in range(n.held):
        first = -1
        for at in range(len(s.lines)):
            slot = s.lines[at].first
            if slot >= 0 and (first < 0 or s.slots[slot].arrival_s < s.slots[s.lines[first].first].arrival_s):
                first = at
        line = s.lines[first]
        slot = line.first
        _unlink(s, line, -1, slot)
        n.held -= 1
        n.unplaced_count -= 1
        _wait(s, slot)


@compiled
def look_held(s: State, now_s: float, held: Column, tokens: Column, late: Column) -> None:
    """What waits at the router, by class: requests, tokens of their prompts, and those that are late."""
    for at in range(-1, len(s.lines)):
        slot = s.numbers[0].unplaced if at < 0 else s.lines[at].first
        while slot >= 0:
            q = s.slots[slot]
            held[q.kind] += 1
            tokens[q.kind] += q.to_prefill - q.prefilled
            late[q.kind] += not q.made and _due(s, slot) < now_s
            slot = q.after


@inside
def _come(s: State) -> None:
    """The next request."""
    n = s.numbers[0]
    r, slot = n.next - n.gone, n.spare
    q = s.slots[slot]
    q.request = n.next
    n.next += 1
    n.spare = q.after
    q.arrival_s, q.prompt, q.output = s.arrival_s[r], s.prompt[r], s.output[r]
    q.predicted = s.predicted[r] if n.predicts else float(q.output)
    q.to_prefill, q.prefilled, q.made, q.late, q.took = q.prompt, s.cached[r], 0, 0, -1
    size = 0 if q.prompt < n.prompt_below_0 else 1 if q.prompt < n.prompt_below_1 else 2
    length = 0 if q.predicted < n.output_below_0 else 1 if q.predicted < n.output_below_1 else 2
    q.kind = 3 * size + length
    q.due_s = q.arrival_s + _ttft(s, q) if n.by_deadline else 0.0
    kind = s.kinds[q.kind]
    kind.arrivals += 1
    kind.prompt_tokens += q.prompt
    kind.output_tokens += q.predicted
    if not _route(s, slot, q.arrival_s):
        _wait(s, slot)


# ---- what is called from without -----------------------------------------------------------------------------------


@compiled
def run(s: State, until_s: float) -> int:  # noqa: PLR0911 - all that it returns for
    """Go on until all requests are answered (``DONE``), a time has come (``UNTIL``), or something is not decided here.

    ``EMPTY``: an instance that drains has nothing left; ``READY``: one that was away is back; ``SLOTS``, ``BINS``: more are
    needed; ``OUTSIDE``: the tables do not cover a step; ``MORE``: it needs the requests that come next. Requests come before
    instances' boundaries at the same time.
    """
    n = s.numbers[0]
    while n.left or n.more:
        arrival_s = np.inf
        if n.next < n.requests:
            arrival_s = s.arrival_s[n.next - n.gone]
        elif n.more:
            return MORE
        event_s = s.events[1]
        if arrival_s <= event_s:
            if arrival_s > until_s or arrival_s == np.inf:
                return UNTIL
            if n.spare < 0:
                return SLOTS
            n.now_s = arrival_s
            _come(s)
            continue
        if event_s >= until_s:
            return UNTIL
        if event_s >= n.bin_s * (len(s.bins) - 1):
            return BINS
        n.now_s = event_s
        why = _advance(s, _first(s.events, 0, n.leaves))
        if why:
            return why
    return DONE


@compiled
def begin(s: State, i: int, now_s: float) -> None:
    """An instance serves from now on, with nothing to do."""
    n = s.numbers[0]
    c = s.instances[i]
    lay = s.layouts[c.layout]
    c.now_s, c.effective_s, c.state = now_s, np.inf, SERVING
    c.setting = c.asked = s.rules[c.rule]
    c.head = c.tail = c.first_prefilling = c.last_prefilling = c.first_fresh = -1
    c.requests = c.waiting = c.waiting_tokens = c.prefilling = c.running = c.context = c.fresh = 0
    c.events = c.exempt = c.late = c.place = 0
    c.secured, c.free, c.tokens_left = -1, lay.cache_blocks, 0.0
    for residue in range(n.due_room):
        s.due[c.room * n.due_room + residue] = 0
    c.doing, c.end_s = IDLE, np.inf
    _put(s.events, 0, n.leaves, i, np.inf)


@compiled
def leave(s: State, i: int, now_s: float, until_s: float) -> None:
    """An instance that has nothing to do is away from now on, until a time."""
    c = s.instances[i]
    if c.doing == IDLE:
        _rest(s, c, s.layouts[c.layout], now_s)
    c.doing, c.end_s, c.leaf = AWAY, until_s, -1
    _put(s.events, 0, s.numbers[0].leaves, i, until_s)


@compiled
def settle(s: State, i: int, now_s: float) -> None:
    """The energy that an idle instance used until now."""
    c = s.instances[i]
    if c.doing == IDLE:
        _rest(s, c, s.layouts[c.layout], now_s)


@compiled
def heed(s: State, i: int, now_s: float) -> None:
    """An instance has another rule for its clock, which it looks at at its next boundary."""
    c = s.instances[i]
    if c.doing != AWAY and _wanted(s, c) != c.asked:
        cut(s, i, now_s)


@compiled
def progress(s: State, i: int, now_s: float) -> int:
    """Steps of its stretch that an instance has made by now."""
    c = s.instances[i]
    if c.doing != STRETCH:
        return 0
    steps = _steps_until(c.step_s, c.step_more_s, c.steps, now_s - c.now_s)
    if c.now_s + _lasts(c.step_s, c.step_more_s, steps) > now_s:
        steps -= 1
    return steps


@compiled
def fail(s: State, i: int, now_s: float) -> int:
    """An instance is no more; what it had comes to the router anew. Returns how many requests that were.

    Tokens that readers have are not made again; they are prefilled with the prompt elsewhere, as after a preemption.
    """
    n = s.numbers[0]
    c = s.instances[i]
    lay = s.layouts[c.layout]
    if c.doing == AWAY:
        c.end_s = np.inf
        _put(s.events, 0, n.leaves, i, np.inf)
        return 0
    done = progress(s, i, now_s)
    if done:
        _stretch(s, i, c, lay, done, c.now_s + _lasts(c.step_s, c.step_more_s, done))
    if c.doing == IDLE:
        _rest(s, c, lay, now_s)
    else:  # the step that it was in
        step_s, step_j = c.step_s + done * c.step_more_s, c.step_j + done * c.step_more_j
        share = max(now_s - c.now_s, 0.0) / step_s if step_s > 0 else 0.0
        n.idle_j += c.lead_j * share
        if c.doing == STRETCH:
            n.decode_j += step_j * share
        elif c.step_batch:
            n.mixed_j += step_j * share
        else:
            n.prefill_j += step_j * share
        _spend(s, c, lay, c.now_s, now_s, (c.lead_j + step_j) * share)
    while c.running or c.prefilling:
        _preempt(s, c, lay)
    lost, slot = c.requests, c.head  # now all of them, the oldest first
    while slot >= 0:
        after = s.slots[slot].after
        _wait(s, slot)
        slot = after
    c.requests = c.waiting = c.waiting_tokens = 0
    c.doing, c.end_s, c.leaf = AWAY, np.inf, -1
    _put(s.events, 0, n.leaves, i, np.inf)
    return lost  # type: ignore[no-any-return]


@compiled
def look(
    s: State, now_s: float, running: Column, waiting: Column, waiting_tokens: Column, context: Column, setting: Column
) -> None:
    """What a controller sees of each instance."""
    for i in range(len(running)):
        c = s.instances[i]
        running[i], waiting[i], waiting_tokens[i] = c.running, c.waiting + c.prefilling, c.waiting_tokens
        context[i] = c.context + c.running * progress(s, i, now_s)
        setting[i] = c.asked if c.effective_s <= now_s else c.setting


def make_ready(s: State) -> None:
    """Have all that is called from without compiled: what this process compiles, others find kept."""
    of_an_instance: tuple[Callable[..., object], ...] = (begin, settle, heed, progress, fail)
    for function in of_an_instance:
        compile_ahead(function, s, 0, 0.0)
    of_all: tuple[Callable[..., object], ...] = (run, place, give_up)
    for function in of_all:
        compile_ahead(function, s, 0.0)
    compile_ahead(leave, s, 0, 0.0, 0.0)
    compile_ahead(grow_tree, s.loads, 0, 0)
    compile_ahead(look, s, 0.0, *[s.ends] * 5)
    compile_ahead(look_held, s, 0.0, *[s.ends] * 3)
