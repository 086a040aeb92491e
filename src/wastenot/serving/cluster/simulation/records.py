"""What a simulated cluster is made of: records of numbers, and the arrays of them that compiled code works on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from wastenot.serving.model.compiled import COMPILED, by_address
from wastenot.serving.model.engine import Scheduler
from wastenot.serving.model.step_costs import Column

IDLE, STRETCH, STEP, AWAY = range(4)  # what an instance does until its next event; away ones are not in here
DONE, UNTIL, EMPTY, READY, SLOTS, BINS, OUTSIDE, MORE, ASK = range(9)  # why run() returns
SERVING, DRAINING = 2, 3  # states, as in the model
LEAST_REQUESTS, POWER_OF_TWO, LEAST_TOKENS, LEAST_ENERGY = 0, 1, 2, 3
FCFS, PRIORITY, DEADLINE = range(len(Scheduler))  # in its order
LOOKED_AT = 8
"""Instances that are compared for a request by the energy that it adds."""
BEGUN, IN_TIME, LATE = 0, 1, 2
"""Requests that wait at the router, in the order in which they are sent: those whose answers were begun before their host
failed, those that can still have their first token in time, and those that cannot."""
PENDING = -1
"""Instead of the instance that answered a request."""
BACKLOGS = 8
"""Of prompts that rules tell apart: less than one step's worth, less than 2, 4, … 64, and more."""
KINDS = ("prefill", "decode", "mixed", "idle")
TICKET = 1 << 32
"""A key of a heap is an event times this, and a slot."""
LOW = TICKET - 1


def _record(floats: str, integers: str, small: str = "") -> np.dtype[Any]:
    kinds = ((floats, np.float64), (integers, np.int64), (small, np.int32))
    return np.dtype([(name, kind) for names, kind in kinds for name in names.split()])


NUMBERS = _record(
    "bin_s bin_begin_s bin_end_s tbt_s late_share end_to_end_s prefill_j decode_j mixed_j idle_j now_s "
    "prefill_s decode_s mixed_s idle_s",
    "requests gone more next left spare unplaced last_unplaced unplaced_count predicts router random routed bin which "
    "leaves gap_bins first_bins prompt_bins ttft_classes prompt_below_0 prompt_below_1 output_below_0 output_below_1 pools "
    "switches calendar_room due_room rule_room holds held "
    "asked prefill_steps decode_steps mixed_steps drawn",
)
"""The numbers of a run. ``requests`` so far, those from ``gone`` on in the arrays, and whether there are ``more``;
``left``: requests that are not answered yet; ``spare``: the first free slot; ``unplaced``: the
first request that waits at the router; ``bin``: of the timeline, now; ``leaves``: of the tree of events; ``which``: the
instance that :func:`run` returned for; ``…_room``: places of an instance in arrays of which each has a part;
``holds``: whether the router holds requests back, ``held`` ones in lists by class and deadline, all that wait at the router
being ``unplaced_count``.

``asked``: whether the policy of ``which`` was asked, and its answer is to be heeded.

``drawn``: whether the timeline also says how many requests were there, how many tokens they had and how long they waited
for one, for which instances make their steps one by one."""

LAYOUT = _record(
    "overhead_s launch_s graph_launch_s limit_w switch_s",
    "gpus most_graph_tokens cache_blocks block_tokens most_running most_step_tokens chunked scheduler decode_at contexts_at "
    "contexts prefill_at tokens_at tokens pasts_at pasts places_at last_tokens idle_at clock_at",
)
"""An engine; ``scheduler`` is one of those above, ``…_at`` is where its numbers begin in the tables, ``places_at`` in the
intervals of numbers of tokens."""

INSTANCE = _record(
    "now_s end_s event_s effective_s step_s step_more_s step_j step_more_j lead_s lead_j tokens_left past_tokens "
    "mean_context again_s launch_s before_s over_j",
    "waiting_tokens context rule made joins prompt_tokens",
    "layout state doing steps requests waiting head tail prefilling first_prefilling last_prefilling running "
    "fresh first_fresh free events secured exempt late gap_bin place setting asked room step_tokens "
    "step_batch tickets pool leaf steered news preempted",
)
"""An instance since ``now_s``: what it does lasts until ``end_s``. ``step_s``, ``step_j``: of the first of ``steps``, and
``…_more_…`` of each one after it; ``lead_s``: of each, on the host, and ``lead_j`` at idle power; ``launch_s``: of a step
with prompts on the host,
``before_s``: since that could begin; ``over_j``: drawn above the power limit, and not made up for since; ``requests`` there:
``waiting`` ones in a list from ``head``, preempted ones first, those whose prompts are being prefilled in another one, and
``running`` ones in a heap by their last events; ``secured``: the event for which they have blocks; ``exempt`` of those due
by their residue, since they just joined. ``steered``: by a policy, which is asked at boundaries with ``news`` and from
``again_s`` on, and holds prompts back until ``hold_s``; ``preempted``: whether a request was at this boundary; ``made``:
steps so far; ``joins``: requests that began to decode so far; ``prompt_tokens``: of those with a first token while it is
steered."""

SLOT = _record(
    "arrival_s first_s last_s predicted due_s sent_s",
    "number kind prompt output to_prefill prefilled chunk made joined blocks took late_before late ticket after "
    "fresh_after place preemptions",
)
"""A request in the cluster, by its ``number``. ``kind``: its class as predicted; ``made``, ``joined``: tokens and events
when it began to decode; ``took``: the event for which it took a block; ``place``: in the order in which requests began to
decode; ``ticket``: in the order in which the instance got them; ``due_s``: of its first token, by which all schedulers but
``FCFS`` order; 0 where its answer was begun, infinite once it is late."""

POOL = _record("", "tree_at leaves members_at ready room hold")
"""Instances of a pool that serve: ``ready`` of them, from ``members_at``, their loads in a tree. ``room``: requests that
each may have for there to be room for one more; ``hold``: tokens of prompts that wait on one at and above which it gets no
further request, and its load is infinite."""

LINE = _record("", "first last blocked")
"""Requests of a class as predicted and a bound on the first token that wait at the router, the oldest first; one of these
each for ``BEGUN``, ``IN_TIME`` and ``LATE`` ones. ``blocked``: no instance takes any of them now."""

ANSWER = _record("sent_s first_s finish_s", "", "instance late preemptions")
"""What became of a request."""

KIND = _record("output_tokens", "arrivals prompt_tokens finished missed")
"""Requests of a class since the controller's last visit."""

BIN = _record("energy_j clock running_s waiting_s longest_s", "tokens")
"""A bin of the timeline; ``clock``: MHz times GPUs times seconds; the others where they are ``drawn``."""


@by_address
class State(NamedTuple):
    """A run."""

    numbers: Column  # a single record
    layouts: Column  # one each
    instances: Column  # each that ever was
    slots: Column  # requests in the cluster, and free ones in a list
    pools: Column  # one each
    lines: Column  # three for each class and bound on the first token
    kinds: Column  # one for each class
    bins: Column  # of the timeline
    tables: Column  # of all layouts, and the bounds on the time to the first token
    places: Column  # intervals of whole numbers of tokens in the tables; bounds of prompts' classes
    ends: Column  # last events of decoding requests with their slots, a heap for each instance
    due: Column  # requests that need a block, by residue of the event, for each instance
    rules: Column  # settings by batch, then by steps' worth of prompts, for each instance
    events: Column  # a tree over instances of when something happens to them
    loads: Column  # a tree for each pool
    members: Column  # of the pools
    routes: Column  # pools by class, -1 after the last
    gap_edges_s: Column  # of the histogram of gaps between tokens
    gap_counts: Column  # that histogram
    own_gap_counts: Column  # the same for each instance, as far as it is steered
    first_edges_s: Column  # upper ends of the ranges of times from an instance to the first token, but for the last
    first_counts: Column  # requests by range, likewise
    prompt_edges: Column  # the same of prompts' tokens
    prompt_counts: Column  # requests by range, likewise
    scratch: Column  # as long as the largest batch
    arrival_s: Column  # of requests
    prompt: Column  # likewise
    cached: Column  # tokens of each that are not to be prefilled
    output: Column  # likewise
    predicted: Column  # likewise; empty where nothing is predicted
    answers: Column  # one for each request
    setting_s: Column  # time at each setting
    # to a policy: its instance, the time, the setting, the one asked for, steps, free blocks, and how many requests run and
    # wait
    told: Column
    running: Column  # of those that run, in the order in which they began to, six rows of numbers one after the other
    waiting: Column  # of those that wait, four rows; empty where they have no room here
    answer: Column  # of a policy: the setting, and when it wants to be asked again


# ---- columns: arrays where the core is compiled, lists where it is not ---------------------------------------------


def column_of(values: np.ndarray) -> Column:
    """An array for compiled code; otherwise a list of numbers or of objects, which Python is faster with."""
    if COMPILED:
        return np.ascontiguousarray(values)
    if names := values.dtype.names:
        return [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in values.tolist()]
    return values.tolist()


def values_of(column: Column, name: str) -> np.ndarray:
    """One field of all records."""
    return np.asarray(column[name] if COMPILED else [getattr(row, name) for row in column])


def row_of(column: Column, at: int) -> Any:
    """A record, its fields as attributes."""
    return column.view(np.recarray)[at] if COMPILED else column[at]


def assign(column: Column, name: str, at: np.ndarray, values: np.ndarray) -> None:
    """One field of some records."""
    if COMPILED:
        column[name][at] = values
        return
    for place, value in zip(at.tolist(), values.tolist(), strict=True):
        setattr(column[place], name, value)


def longer(column: Column, more: np.ndarray) -> Column:
    """The same with more values at its end."""
    if not len(column):
        return column_of(more)
    return np.concatenate([column, more]) if COMPILED else column + column_of(more)
