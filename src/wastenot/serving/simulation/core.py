"""The steps of an engine, compiled: the rules that stand in :mod:`wastenot.serving.simulation.simulate`.

:func:`run` goes on until a policy is to be asked, and can be resumed. It costs the same whatever the batch, since what all
decoding requests have in common is kept once. All of them get a token at each *event* (a step that decodes):

- A request that joined after event *j* with *c* tokens in the cache has ``c + e - j`` after event *e*, and its last event
  is known when it joins, so it waits in a calendar of events.
- It needs another block before those events at which what it has in the cache is a whole number of blocks: one residue of
  the event's number.
- Its gaps are those between events; late ones are counted for all, and the longest of those since it joined is found on a
  stack of gaps that have not been exceeded since. Only its first gap may be its own (*fresh* requests: prefilled in a step
  that did not decode).

Only where blocks run out is each request looked at, in the order of the rules.

Everything compiled stands in this file, since Numba's cache notices changes only of the file that a function stands in.
Without Numba the same code runs on lists, slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from wastenot.serving.model.compiled import by_address, compiled as by_numba, compiled_inside

Function = TypeVar("Function", bound=Callable[..., Any])

Column = Any
"""An array where the code is compiled, a list where it is not."""

BOUNDARY, STEP, IDLE = 0, 1, 2  # what is next
DONE, ASK, OUTSIDE = 0, 1, 2  # why run() returns
TO_COME, PREFILLING, DECODING, GONE = 0, 1, 2, 3  # where a request is; those that wait are still to come or preempted
KINDS = ("prefill", "decode", "mixed", "idle")


def compiled(function: Function) -> Function:
    """The function, by Numba where it is installed."""
    # Nothing is allocated in here, and without counting references it is four times as fast.
    return cast("Function", by_numba(function, nogil=True, error_model="numpy", _nrt=False))


def inside(function: Function) -> Function:
    """Likewise, for those in this file alone."""
    return cast("Function", compiled_inside(function, nogil=True, error_model="numpy", _nrt=False))


class Costs(NamedTuple):
    """An engine's tables, flat."""

    prefill_tokens: Column
    past_tokens: Column
    prefill_time_s: Column
    prefill_energy_j: Column
    batches: Column
    context_tokens: Column
    decode_time_s: Column
    decode_energy_j: Column
    idle_power_w: Column


class Rules(NamedTuple):
    """What does not change during a run."""

    requests: int
    settings: int
    block_tokens: int
    most_running: int
    most_step_tokens: int
    chunked: bool
    overhead_s: float
    switch_s: float
    tbt_s: float
    calendar: int
    gap_bins: int
    bins: int


COUNTERS = np.dtype(
    [
        *((name, np.float64) for name in (
            "now_s", "effective_s", "again_s", "hold_s", "event_s", "attention_past", "attention_context",
            "prefill_j", "decode_j", "mixed_j", "idle_j", "prefill_s", "decode_s", "mixed_s", "idle_s", "bin_s",
        )),
        *((name, np.int64) for name in (
            "next", "come", "head", "preempted", "running", "prefilling", "fresh", "free", "context", "events", "secured",
            "exempt", "first", "last", "late", "stacked", "gap_bin", "place_tokens", "place_past",
            "place_batch", "place_context", "setting", "asked", "news", "told", "switches", "step_tokens", "step_batch",
            "prefill_steps", "decode_steps", "mixed_steps",
        )),
    ]
)  # fmt: skip
"""The numbers of a run. ``next``: what is next. Requests ``head … come`` wait, after those on the stack of preempted ones;
``first`` and ``last`` of the decoding ones, in the order in which they joined; ``context``: tokens that they have in the
cache; ``secured``: the event for which they have blocks; ``exempt`` of those that would need one by their residue but have
it since they joined; ``place_…``: the interval of the tables that was last looked at."""


REQUEST = np.dtype(
    [
        *((name, np.float64) for name in (
            "arrival_s", "predicted", "first_s", "last_s", "finish_s", "longest_s",
        )),
        *((name, np.int64) for name in (
            "prompt", "output", "handed", "where", "to_prefill", "prefilled", "made", "joined", "blocks", "took", "since",
            "late_before", "late", "preemptions", "before", "after", "same_before", "same_after",
        )),
    ]
)  # fmt: skip
"""A request. ``handed``: 1 where its cache comes from elsewhere with its first token made; ``last_s``: of its last token,
where that was not the last event; ``made``, ``joined``: tokens and events when it began to decode; ``blocks``: when it was
admitted; ``took``: the event for which it took a block; ``since``: the first event whose gap is counted for all;
``before``, ``after``: decoding requests in the order in which they joined; ``same_…``: those that finish with the same
event."""

SLOT = np.dtype([(name, np.int64) for name in ("preempted", "prefilling", "chunk", "fresh", "order")])
"""A place in lists as long as the batch; ``order`` is scratch."""

GAP = np.dtype([("event", np.int64), ("gap_s", np.float64)])
"""A gap that was not exceeded since; the longest first."""

BIN = np.dtype(
    [
        *((name, np.float64) for name in ("energy_j", "running_s", "waiting_s", "gap_s", "longest_s")),
        *((name, np.int64) for name in ("tokens", "gaps")),
    ]
)
"""A bin of the timeline."""


@by_address
class State(NamedTuple):
    """A run between two steps.

    Attributes:
        counters: a single one.
        requests: in the order in which they come.
        batch: places of it.
        ends: the first request that finishes at each event to come.
        due: requests that need a block, by residue of the event.
        gaps: a stack of them.
        gap_edges_s: of the histogram.
        gap_counts: the histogram.
        setting_s: time at each setting.
        bins: of the timeline.
        bin_setting_s: by bin and setting.
        told: to a policy: the time, the setting, the one asked for, steps, free blocks, and how many requests run and wait.
        answer: of a policy: the setting, when it wants to be asked again, until when it holds prompts back.
    """

    counters: Column
    requests: Column
    batch: Column
    ends: Column
    due: Column
    gaps: Column
    gap_edges_s: Column
    gap_counts: Column
    setting_s: Column
    bins: Column
    bin_setting_s: Column
    told: Column
    answer: Column


@inside
def _place(knots: Column, value: float, hint: int) -> int:
    """The interval that a value lies in, looked for from where the last one was; -1 beyond the knots."""
    last = len(knots) - 1
    if not knots[0] <= value <= knots[last]:
        return -1
    if last == 0:
        return 0
    while hint > 0 and knots[hint] > value:
        hint -= 1
    while hint < last - 1 and knots[hint + 1] <= value:
        hint += 1
    return hint


@inside
def _along(knots: Column, value: float, place: int) -> float:
    if len(knots) == 1:
        return 0.0
    return (value - knots[place]) / (knots[place + 1] - knots[place])  # type: ignore[no-any-return]


@inside
def _between(values: Column, at: int, across: float) -> float:
    if across == 0.0:
        return values[at]  # type: ignore[no-any-return]
    if across == 1.0:
        return values[at + 1]  # type: ignore[no-any-return]
    return values[at] * (1 - across) + values[at + 1] * across  # type: ignore[no-any-return]


@inside
def _bilinear(values: Column, at: int, row: int, along: float, across: float) -> float:
    if along == 1.0:
        return _between(values, at + row, across)
    upper = _between(values, at, across)
    if along == 0.0:
        return upper
    return upper * (1 - along) + _between(values, at + row, across) * along


@inside
def _prefill(costs: Costs, c: Any, tokens: float, past: float) -> tuple[float, float]:
    i = _place(costs.prefill_tokens, tokens, c.place_tokens)
    j = _place(costs.past_tokens, past, c.place_past)
    if i < 0 or j < 0:
        return np.nan, np.nan
    c.place_tokens, c.place_past = i, j
    row = len(costs.past_tokens)
    at = (c.setting * len(costs.prefill_tokens) + i) * row + j
    along, across = _along(costs.prefill_tokens, tokens, i), _along(costs.past_tokens, past, j)
    return (
        _bilinear(costs.prefill_time_s, at, row, along, across),
        _bilinear(costs.prefill_energy_j, at, row, along, across),
    )


@inside
def _decode(costs: Costs, c: Any, batch: float, context: float) -> tuple[float, float]:
    i = _place(costs.batches, batch, c.place_batch)
    j = _place(costs.context_tokens, context, c.place_context)
    if i < 0 or j < 0:
        return np.nan, np.nan
    c.place_batch, c.place_context = i, j
    row = len(costs.context_tokens)
    at = (c.setting * len(costs.batches) + i) * row + j
    along, across = _along(costs.batches, batch, i), _along(costs.context_tokens, context, j)
    return (
        _bilinear(costs.decode_time_s, at, row, along, across),
        _bilinear(costs.decode_energy_j, at, row, along, across),
    )


@inside
def _mixed(costs: Costs, c: Any, tokens: float, past: float, batch: float, context: float) -> tuple[float, float]:
    together_s, together_j = _prefill(costs, c, tokens + batch, past)
    empty_s, empty_j = _decode(costs, c, batch, costs.context_tokens[0])
    full_s, full_j = _decode(costs, c, batch, context)
    return max(together_s, empty_s) + full_s - empty_s, max(together_j, empty_j) + full_j - empty_j


@inside
def _coarser(s: State, rules: Rules) -> None:
    """The timeline in bins twice as wide."""
    c = s.counters[0]
    for bin_ in range(rules.bins):
        one, two, filled = 2 * bin_, 2 * bin_ + 1, 2 * bin_ + 1 < rules.bins
        s.bins[bin_].energy_j = s.bins[one].energy_j + s.bins[two].energy_j if filled else 0.0
        s.bins[bin_].running_s = s.bins[one].running_s + s.bins[two].running_s if filled else 0.0
        s.bins[bin_].waiting_s = s.bins[one].waiting_s + s.bins[two].waiting_s if filled else 0.0
        s.bins[bin_].tokens = s.bins[one].tokens + s.bins[two].tokens if filled else 0
        s.bins[bin_].gaps = s.bins[one].gaps + s.bins[two].gaps if filled else 0
        s.bins[bin_].gap_s = s.bins[one].gap_s + s.bins[two].gap_s if filled else 0.0
        s.bins[bin_].longest_s = max(s.bins[one].longest_s, s.bins[two].longest_s) if filled else 0.0
        for each in range(rules.settings):
            s.bin_setting_s[bin_ * rules.settings + each] = (
                s.bin_setting_s[one * rules.settings + each] + s.bin_setting_s[two * rules.settings + each]
                if filled
                else 0.0
            )
    c.bin_s *= 2


@inside
def _bin_of(c: Any, at_s: float) -> int:
    bin_ = int(at_s / c.bin_s)
    if (bin_ + 1) * c.bin_s <= at_s:  # rounded into the one that ends there
        bin_ += 1
    return bin_


@inside
def _draw(s: State, rules: Rules, end_s: float, power_w: float) -> None:
    """Into the timeline: from now to ``end_s``."""
    c = s.counters[0]
    while end_s >= c.bin_s * rules.bins:
        _coarser(s, rules)
    begin_s, waiting = c.now_s, c.preempted + c.come - c.head + c.prefilling
    while begin_s < end_s:
        bin_ = _bin_of(c, begin_s)
        until_s = min((bin_ + 1) * c.bin_s, end_s)
        lasted_s = until_s - begin_s
        s.bins[bin_].energy_j += power_w * lasted_s
        s.bin_setting_s[bin_ * rules.settings + c.setting] += lasted_s
        s.bins[bin_].running_s += c.running * lasted_s
        s.bins[bin_].waiting_s += waiting * lasted_s
        begin_s = until_s
    r = c.come
    while r < rules.requests and s.requests[r].arrival_s < end_s:  # those that come meanwhile
        begin_s = max(s.requests[r].arrival_s, c.now_s)
        while begin_s < end_s:
            bin_ = _bin_of(c, begin_s)
            until_s = min((bin_ + 1) * c.bin_s, end_s)
            s.bins[bin_].waiting_s += until_s - begin_s
            begin_s = until_s
        r += 1


@inside
def _note_gap(s: State, rules: Rules, gap_s: float, tokens: int) -> None:
    """Into the histogram and the timeline: so many tokens came now, so long after the ones before."""
    c = s.counters[0]
    bin_ = c.gap_bin  # edges[bin - 1] <= gap < edges[bin], most often as the last time
    while bin_ > 0 and gap_s < s.gap_edges_s[bin_ - 1]:
        bin_ -= 1
    while bin_ < rules.gap_bins and gap_s >= s.gap_edges_s[bin_]:
        bin_ += 1
    c.gap_bin = bin_
    s.gap_counts[bin_] += tokens
    if rules.bins:
        at = min(int(c.now_s / c.bin_s), rules.bins - 1)
        s.bins[at].gaps += tokens
        s.bins[at].gap_s += gap_s * tokens
        s.bins[at].longest_s = max(s.bins[at].longest_s, gap_s)


@inside
def _take_effect(s: State) -> None:
    c = s.counters[0]
    if c.now_s >= c.effective_s:
        if c.setting != c.asked:
            c.switches += 1
        c.setting, c.effective_s = c.asked, np.inf


@inside
def _idle(costs: Costs, rules: Rules, s: State, until_s: float) -> None:
    c = s.counters[0]
    while c.now_s < until_s:
        end_s = min(until_s, c.effective_s) if c.effective_s > c.now_s else until_s
        power_w, lasted_s = costs.idle_power_w[c.setting], end_s - c.now_s
        if rules.bins:
            _draw(s, rules, end_s, power_w)
        c.idle_j += power_w * lasted_s
        c.idle_s += lasted_s
        s.setting_s[c.setting] += lasted_s
        c.now_s = end_s
        _take_effect(s)


@inside
def _blocks_of(tokens: int, rules: Rules) -> int:
    return (tokens + rules.block_tokens - 1) // rules.block_tokens


@inside
def _residue(s: State, rules: Rules, r: int) -> int:
    """Of the events before which a decoding request needs another block."""
    return (s.requests[r].joined + 1 - s.requests[r].to_prefill) % rules.block_tokens  # type: ignore[no-any-return]


@inside
def _join(s: State, rules: Rules, r: int, fresh: bool) -> None:
    """From now on the request decodes."""
    c = s.counters[0]
    s.requests[r].where, s.requests[r].joined, s.requests[r].took = DECODING, c.events, -1
    s.requests[r].late_before, s.requests[r].since = c.late, c.events + 1
    s.requests[r].before, s.requests[r].after = c.last, -1
    if c.last >= 0:
        s.requests[c.last].after = r
    else:
        c.first = r
    c.last = r
    end = (c.events + s.requests[r].output - s.requests[r].made) % rules.calendar
    s.requests[r].same_before, s.requests[r].same_after = -1, s.ends[end]
    if s.ends[end] >= 0:
        s.requests[s.ends[end]].same_before = r
    s.ends[end] = r
    c.running += 1
    c.context += s.requests[r].to_prefill
    s.due[_residue(s, rules, r)] += 1
    if s.requests[r].to_prefill % rules.block_tokens == 0:
        c.exempt += 1
    if fresh:
        s.batch[c.fresh].fresh = r
        c.fresh += 1
    c.news = 1


@inside
def _settle(s: State, r: int) -> None:
    """The gaps that were counted for all become the request's own."""
    c = s.counters[0]
    s.requests[r].late += c.late - s.requests[r].late_before
    low, high = 0, c.stacked
    while low < high:  # the longest gap since an event is the first on the stack that is not from before it
        middle = (low + high) // 2
        if s.gaps[middle].event < s.requests[r].since:
            low = middle + 1
        else:
            high = middle
    if low < c.stacked:
        s.requests[r].longest_s = max(s.requests[r].longest_s, s.gaps[low].gap_s)


@inside
def _leave(s: State, rules: Rules, r: int) -> int:
    """The request no longer decodes; the blocks that it held."""
    c = s.counters[0]
    context = s.requests[r].to_prefill + c.events - s.requests[r].joined
    held = max(s.requests[r].blocks, _blocks_of(context, rules))
    if s.requests[r].took == c.events + 1:
        held += 1
    if s.requests[r].before >= 0:
        s.requests[s.requests[r].before].after = s.requests[r].after
    else:
        c.first = s.requests[r].after
    if s.requests[r].after >= 0:
        s.requests[s.requests[r].after].before = s.requests[r].before
    else:
        c.last = s.requests[r].before
    c.running -= 1
    c.context -= context
    s.due[_residue(s, rules, r)] -= 1
    if s.requests[r].joined == c.events and s.requests[r].to_prefill % rules.block_tokens == 0:
        c.exempt -= 1
    _settle(s, r)
    c.news = 1
    return held  # type: ignore[no-any-return]


@inside
def _preempt(s: State, rules: Rules, r: int) -> None:
    """The request waits before all others, and begins anew."""
    c = s.counters[0]
    if s.requests[r].where == DECODING:
        end = (s.requests[r].joined + s.requests[r].output - s.requests[r].made) % rules.calendar
        if s.requests[r].same_before >= 0:
            s.requests[s.requests[r].same_before].same_after = s.requests[r].same_after
        else:
            s.ends[end] = s.requests[r].same_after
        if s.requests[r].same_after >= 0:
            s.requests[s.requests[r].same_after].same_before = s.requests[r].same_before
        c.free += _leave(s, rules, r)
        fresh = False
        for place in range(c.fresh):
            if fresh:
                s.batch[place - 1].fresh = s.batch[place].fresh
            elif s.batch[place].fresh == r:
                fresh = True
        if fresh:
            c.fresh -= 1
        else:
            s.requests[r].last_s = c.event_s
        s.requests[r].made += c.events - s.requests[r].joined
    else:
        c.free += s.requests[r].blocks
        left = 0
        for place in range(c.prefilling):
            if s.batch[place].prefilling != r:
                s.batch[left].prefilling = s.batch[place].prefilling
                left += 1
        c.prefilling = left
    s.requests[r].where, s.requests[r].prefilled, s.requests[r].handed = TO_COME, 0, 0
    s.requests[r].to_prefill = s.requests[r].prompt + s.requests[r].made
    s.requests[r].preemptions += 1
    s.batch[c.preempted].preempted = r
    c.preempted += 1
    c.news = 1


@inside
def _make_room(s: State, rules: Rules) -> None:
    """A block for each decoding request whose last one is full, by preemption where none is free."""
    c = s.counters[0]
    event = c.events + 1
    if c.secured == event:
        return
    c.secured = event
    needed = s.due[event % rules.block_tokens] - c.exempt
    if needed <= c.free:
        c.free -= needed
        return
    count, r = 0, c.first
    while r >= 0:
        s.batch[count].order = r
        count, r = count + 1, s.requests[r].after
    for place in range(count):
        r = s.batch[place].order
        context = s.requests[r].to_prefill + c.events - s.requests[r].joined
        if s.requests[r].where != DECODING or s.requests[r].joined == c.events or context % rules.block_tokens:
            continue
        while s.requests[r].where == DECODING and s.requests[r].took != event:
            if c.free:
                c.free -= 1
                s.requests[r].took = event
            else:
                youngest = -1
                for other in range(count):
                    if s.requests[s.batch[other].order].where == DECODING:
                        youngest = max(youngest, s.batch[other].order)
                for other in range(c.prefilling):
                    youngest = max(youngest, s.batch[other].prefilling)
                _preempt(s, rules, youngest)


@inside
def _admit(s: State, rules: Rules) -> None:
    """The prompts, or chunks of them, that the next step prefills."""
    c = s.counters[0]
    room, tokens = rules.most_step_tokens, 0
    if rules.chunked:
        room -= c.running
    for place in range(c.prefilling):  # what is left of the last one, and what was held back
        q = s.requests[s.batch[place].prefilling]
        left = q.to_prefill - q.prefilled
        if rules.chunked:
            left = max(min(room, left), 0)
        s.batch[place].chunk = left
        room -= left
        tokens += left
    while c.preempted or c.head < c.come:
        r = s.batch[c.preempted - 1].preempted if c.preempted else c.head
        if c.running + c.prefilling >= rules.most_running or (room <= 0 and not s.requests[r].handed):
            break
        need, left = _blocks_of(s.requests[r].to_prefill + 1, rules), s.requests[r].to_prefill - s.requests[r].prefilled
        if need > c.free or (not rules.chunked and not s.requests[r].handed and tokens and left > room):
            break
        if c.preempted:
            c.preempted -= 1
        else:
            c.head += 1
        c.free -= need
        s.requests[r].blocks = need
        if s.requests[r].handed:
            _join(s, rules, r, True)
            room -= rules.chunked
            continue
        s.requests[r].where = PREFILLING
        s.batch[c.prefilling].prefilling = r
        s.batch[c.prefilling].chunk = min(room, left) if rules.chunked else left
        room -= s.batch[c.prefilling].chunk
        tokens += s.batch[c.prefilling].chunk
        c.prefilling += 1


@inside
def _push(s: State, rules: Rules, gap_s: float) -> None:
    """A gap onto the stack of those that were not exceeded since."""
    c = s.counters[0]
    while c.stacked and s.gaps[c.stacked - 1].gap_s <= gap_s:
        c.stacked -= 1
    if c.stacked == len(s.gaps):  # move those that a request may still ask for to the beginning
        kept = 0
        for place in range(c.stacked):
            if s.gaps[place].event > c.events - rules.calendar:
                s.gaps[kept].event, s.gaps[kept].gap_s = s.gaps[place].event, s.gaps[place].gap_s
                kept += 1
        c.stacked = kept
    s.gaps[c.stacked].event, s.gaps[c.stacked].gap_s = c.events, gap_s
    c.stacked += 1


@inside
def _event(s: State, rules: Rules) -> None:
    """Each decoding request has one more token."""
    c = s.counters[0]
    c.events += 1
    c.exempt = 0
    c.context += c.running
    common = c.running - c.fresh
    if common:
        gap_s = c.now_s - c.event_s
        if gap_s > rules.tbt_s:
            c.late += 1
        _push(s, rules, gap_s)
        _note_gap(s, rules, gap_s, common)
    for place in range(c.fresh):
        r = s.batch[place].fresh
        gap_s = c.now_s - s.requests[r].last_s
        if gap_s > rules.tbt_s:
            s.requests[r].late += 1
        s.requests[r].longest_s = max(s.requests[r].longest_s, gap_s)
        s.requests[r].late_before, s.requests[r].since = c.late, c.events + 1
        _note_gap(s, rules, gap_s, 1)
    c.fresh, c.event_s = 0, c.now_s
    _finish(s, rules)


@inside
def _finish(s: State, rules: Rules) -> None:
    """Those that have all of their tokens go."""
    c = s.counters[0]
    end = c.events % rules.calendar
    r = s.ends[end]
    s.ends[end] = -1
    while r >= 0:
        c.free += _leave(s, rules, r)
        s.requests[r].where, s.requests[r].finish_s = GONE, c.now_s
        r = s.requests[r].same_after


@inside
def _prefilled(s: State, rules: Rules, decoded: bool) -> None:
    """Chunks are done; a request whose prompt is complete has a token and decodes, or goes if that was all."""
    c = s.counters[0]
    left = 0
    for place in range(c.prefilling):
        r = s.batch[place].prefilling
        s.requests[r].prefilled += s.batch[place].chunk
        if s.requests[r].prefilled < s.requests[r].to_prefill:
            s.batch[left].prefilling = r
            left += 1
            continue
        s.requests[r].made += 1
        if s.requests[r].made == 1:
            s.requests[r].first_s = c.now_s
        else:  # it was preempted
            gap_s = c.now_s - s.requests[r].last_s
            if gap_s > rules.tbt_s:
                s.requests[r].late += 1
            s.requests[r].longest_s = max(s.requests[r].longest_s, gap_s)
            _note_gap(s, rules, gap_s, 1)
        s.requests[r].last_s = c.now_s
        c.news = 1
        if s.requests[r].made == s.requests[r].output:
            s.requests[r].where, s.requests[r].finish_s = GONE, c.now_s
            c.free += s.requests[r].blocks
        else:
            _join(s, rules, r, not decoded)
        if rules.bins:
            s.bins[min(int(c.now_s / c.bin_s), rules.bins - 1)].tokens += 1
    c.prefilling = left


@inside
def _step(costs: Costs, rules: Rules, s: State, prefills: bool) -> bool:
    """One step; whether the tables cover it."""
    c = s.counters[0]
    tokens, attention = 0, 0.0
    for place in range(c.prefilling if prefills else 0):
        tokens += s.batch[place].chunk
        attention += s.batch[place].chunk * (s.requests[s.batch[place].prefilling].prefilled + s.batch[place].chunk / 2)
    batch = c.running if rules.chunked or not tokens else 0
    context = c.context / batch if batch else 0.0
    past = max(attention / tokens - tokens / 2, 0.0) if tokens else 0.0
    if tokens and batch:
        lasted_s, energy_j = _mixed(costs, c, tokens, past, batch, context)
    elif tokens:
        lasted_s, energy_j = _prefill(costs, c, tokens, past)
    else:
        lasted_s, energy_j = _decode(costs, c, batch, context)
    if not lasted_s >= 0:
        c.step_tokens, c.attention_past, c.step_batch, c.attention_context = tokens, past, batch, context
        return False
    if rules.bins:
        _draw(s, rules, c.now_s + lasted_s, energy_j / lasted_s if lasted_s else 0.0)
    c.now_s += lasted_s
    s.setting_s[c.setting] += lasted_s
    if tokens and batch:
        c.mixed_j, c.mixed_s, c.mixed_steps = c.mixed_j + energy_j, c.mixed_s + lasted_s, c.mixed_steps + 1
    elif tokens:
        c.prefill_j, c.prefill_s, c.prefill_steps = c.prefill_j + energy_j, c.prefill_s + lasted_s, c.prefill_steps + 1
    else:
        c.decode_j, c.decode_s, c.decode_steps = c.decode_j + energy_j, c.decode_s + lasted_s, c.decode_steps + 1
    if batch:
        if rules.bins:
            s.bins[min(int(c.now_s / c.bin_s), rules.bins - 1)].tokens += batch
        _event(s, rules)
    if tokens:
        _prefilled(s, rules, batch > 0)
    return True


@inside
def _glide(costs: Costs, rules: Rules, s: State, asks: bool) -> bool:
    """Steps that only decode, while nothing comes or goes and blocks suffice; whether there was one.

    As such steps are most of all, they are made here with what they have in common looked up once.
    """
    c = s.counters[0]
    if not c.running or c.prefilling or c.fresh or rules.bins or rules.overhead_s > 0 or c.effective_s < np.inf:
        return False
    until_s = s.requests[c.come].arrival_s if c.come < rules.requests else np.inf
    if asks:
        until_s = min(until_s, c.again_s)
    batch, knots = c.running, costs.context_tokens
    i, j = _place(costs.batches, batch, c.place_batch), _place(knots, c.context / batch, c.place_context)
    if i < 0 or j < 0 or len(knots) == 1:
        return False
    row = len(knots)
    at, along = (c.setting * len(costs.batches) + i) * row + j, _along(costs.batches, batch, i)
    low, high = knots[j], knots[j + 1]
    residue, end, steps = (c.events + 1) % rules.block_tokens, (c.events + 1) % rules.calendar, 0
    while True:
        context = c.context / batch
        if not context < high:
            break
        if c.secured != c.events + 1:
            if s.due[residue] > c.free:
                break
            c.free -= s.due[residue]
            c.secured = c.events + 1
        across = (context - low) / (high - low)
        lasted_s = _bilinear(costs.decode_time_s, at, row, along, across)
        energy_j = _bilinear(costs.decode_energy_j, at, row, along, across)
        if not lasted_s >= 0:
            break
        c.now_s += lasted_s
        s.setting_s[c.setting] += lasted_s
        c.decode_j += energy_j
        c.decode_s += lasted_s
        c.events += 1
        c.context += batch
        steps += 1
        gap_s = c.now_s - c.event_s
        c.event_s = c.now_s
        if gap_s > rules.tbt_s:
            c.late += 1
        _push(s, rules, gap_s)
        _note_gap(s, rules, gap_s, batch)
        if s.ends[end] >= 0:
            _finish(s, rules)
            break
        if c.now_s >= until_s:
            break
        residue = residue + 1 if residue + 1 < rules.block_tokens else 0
        end = end + 1 if end + 1 < rules.calendar else 0
    c.decode_steps += steps
    if steps:
        c.exempt = 0
    return steps > 0


@inside
def _tell(s: State) -> None:
    c = s.counters[0]
    s.told[0], s.told[1], s.told[2] = c.now_s, c.setting, c.asked
    s.told[3], s.told[4] = c.prefill_steps + c.decode_steps + c.mixed_steps, c.free
    s.told[5], s.told[6] = c.running, c.prefilling + c.preempted + c.come - c.head


@inside
def _heed(rules: Rules, s: State) -> None:
    """Do what the policy answered."""
    c = s.counters[0]
    setting = int(s.answer[0])
    if setting != c.asked:
        c.asked, c.effective_s = setting, np.inf if setting == c.setting else c.now_s + rules.switch_s
    c.again_s, c.hold_s, c.news, c.told = s.answer[1], s.answer[2], 0, 0


@compiled
def run(costs: Costs, rules: Rules, s: State, asks: bool) -> int:  # noqa: PLR0912 - the rules, in their order
    """Go on until all requests are answered, a policy is to be asked (``asks``), or the tables do not cover a step."""
    c = s.counters[0]
    if c.told:
        _heed(rules, s)
    while True:
        if c.next == BOUNDARY:
            if c.come == rules.requests and c.head == c.come and not (c.preempted or c.prefilling or c.running):
                return DONE
            while c.come < rules.requests and s.requests[c.come].arrival_s <= c.now_s:
                c.come += 1
                c.news = 1
            _take_effect(s)
            if c.head < c.come or c.preempted or c.prefilling or c.running:
                _make_room(s, rules)
                _admit(s, rules)
                c.next = STEP
            else:
                c.next = IDLE
            if asks and (c.news or c.now_s >= c.again_s):
                c.told = 1
                _tell(s)
                return ASK
        _take_effect(s)
        if c.next == STEP:
            if _glide(costs, rules, s, asks):
                c.next = BOUNDARY
                continue
            prefills = not c.running or c.now_s >= c.hold_s
            if rules.overhead_s > 0:
                _idle(costs, rules, s, c.now_s + rules.overhead_s)
            if not _step(costs, rules, s, prefills):
                return OUTSIDE
        else:
            _idle(
                costs, rules, s,
                min(s.requests[c.come].arrival_s, c.again_s) if c.again_s > c.now_s else s.requests[c.come].arrival_s,
            )  # fmt: skip
        c.next = BOUNDARY


@compiled
def look(s: State, running: Column, waiting: Column) -> None:
    """What a policy sees, into the rows of two arrays."""
    c = s.counters[0]
    place, r = 0, c.first
    while r >= 0:
        events = c.events - s.requests[r].joined
        made = s.requests[r].made + events
        running[0, place] = s.requests[r].to_prefill + events
        running[1, place] = max(s.requests[r].predicted - made, 1.0)
        running[2, place] = made
        running[3, place] = s.requests[r].arrival_s
        running[4, place] = s.requests[r].first_s
        running[5, place] = c.event_s
        place, r = place + 1, s.requests[r].after
    place = 0
    for fresh in range(c.fresh):  # in the order in which they joined, the last of all
        running[5, c.running - c.fresh + fresh] = s.requests[s.batch[fresh].fresh].last_s
    for index in range(c.prefilling):
        _look_at(s, waiting, place, s.batch[index].prefilling)
        place += 1
    for index in range(c.preempted - 1, -1, -1):
        _look_at(s, waiting, place, s.batch[index].preempted)
        place += 1
    for r in range(c.head, c.come):
        _look_at(s, waiting, place, r)
        place += 1


@inside
def _look_at(s: State, waiting: Column, place: int, r: int) -> None:
    waiting[0, place] = 0 if s.requests[r].handed else s.requests[r].to_prefill - s.requests[r].prefilled
    waiting[1, place] = s.requests[r].prompt
    waiting[2, place] = s.requests[r].predicted
    waiting[3, place] = s.requests[r].arrival_s
