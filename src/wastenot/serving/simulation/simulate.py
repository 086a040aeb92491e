"""An engine under a load, one step after the other.

At the boundary between two steps, at time *t*:

1. Requests that have come by *t* are waiting, first come, first served; one that was preempted waits before all others.
2. Each request that decodes needs room for one more token, and each whose prompt was begun for its next chunk. Where its
   last block is full and no block is free, the request that began last is preempted: its blocks are freed, and its prompt
   with all tokens made so far is to be prefilled again.
3. Unless somebody was preempted, waiting requests are admitted while the batch has room (``most_running``), the step has
   (``most_step_tokens``) and the cache has free blocks for all of the prompt; it takes those of its chunk. With chunks, a
   request that is being prefilled is in the batch already and continues first, and prompts fill what the decoding requests
   leave of the step. Without, the step is a prefill of whole prompts if any can be admitted (the first of them however long
   it is), and decoding requests wait.
4. If something came, began to decode or went since the policy was last asked, or it wanted to be, it is asked. A switch
   asked for at *t* is in effect for steps that begin at *t* + ``switch_s`` or later; a step runs at one clock.
5. The step lasts as the tables say, and ``overhead_s`` before it at idle power. One with prompts ends no sooner than
   the host has launched it (``launch_s``, ``graph_launch_s``), while the step before runs and once that is launched: its
   GPUs wait at idle power. It lasts longer where it would exceed ``limit_w`` for more than a moment. Prompts of one step
   cost what one prompt of all their tokens would, on top of as many past tokens as make their attention the same (with
   chunks of several prompts below 0: :mod:`wastenot.serving.model.engine_tables`).
6. At its end each decoding request has one more token, and each whose prefill is complete has its first (a preempted
   one its next). A request that has made all its tokens goes, and its blocks are free.

These are the rules of vLLM's scheduler (V1, 0.32), step by step those of its records. :class:`Scheduler
<wastenot.serving.model.engine.Scheduler>` names the other orders that an engine may have.

With nothing to do, the engine idles until the next request comes, and the clock may switch meanwhile.

An engine is a cluster of one: its steps are made by :mod:`wastenot.serving.cluster.simulation.core`.
"""

from __future__ import annotations

import math

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.serving.cluster.model import Alike, ChangeTimes, ClockRule, Cluster, Steered
from wastenot.serving.cluster.simulation import records
from wastenot.serving.cluster.simulation.records import row_of, values_of
from wastenot.serving.cluster.simulation.simulate import ClusterRun
from wastenot.serving.model.deadlines import LITERATURE, Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.requests import Requests
from wastenot.serving.simulation.policy import Fixed, Policy, check_setting
from wastenot.serving.simulation.served import Served, Timeline

_MOST_BINS = 1_000_000


def simulate(
    requests: Requests,
    engine: Engine,
    policy: Policy,
    *,
    deadlines: Deadlines = LITERATURE,
    predicted_tokens: FloatArray | None = None,
    timeline_s: float | None = None,
) -> Served:
    """Run an engine until all requests are answered.

    Args:
        requests: the load.
        engine: that serves it.
        policy: that steers its clock.
        deadlines: that the policy is told, and that late tokens are counted by.
        predicted_tokens: answers' lengths as the policy is told; by default the true ones.
        timeline_s: width of the bins of a timeline; doubled as often as a run needs that lasts far beyond its last arrival.

    Raises:
        BadInputError: a request that can never fit into the cache; a setting that is none.
        OutsideProfileError: a step that the tables do not cover.
    """
    if timeline_s is not None and not 0 < timeline_s < math.inf:
        raise BadInputError(f"`timeline_s` ({timeline_s:g}) must be above 0")
    last_s = float(requests.arrival_s[-1]) if len(requests) else 0.0
    while timeline_s is not None and last_s / timeline_s > _MOST_BINS:
        timeline_s *= 2
    run = _run_of(requests, engine, policy, deadlines, predicted_tokens, timeline_s or math.inf)
    run.fleet.numbers.drawn = timeline_s is not None
    run.run()
    most = 0 if timeline_s is None else 2 * (math.ceil(last_s / timeline_s) + 32)
    return _served(run, requests, most)


def before_first_step(requests: Requests, engine: Engine, deadlines: Deadlines, slots: int) -> records.State:
    """The state of a run with all requests to come and at most ``slots`` there at once; its clock is as its ``rules`` say.

    Raises:
        BadInputError: as of :func:`simulate`.
    """
    run = _run_of(requests, engine, Fixed(0), deadlines, None, math.inf)
    run.get_ready(slots)
    arrays, numbers = run.fleet.arrays, run.fleet.numbers
    return arrays._replace(
        instances=arrays.instances[:1],
        ends=arrays.ends[: int(numbers.calendar_room)],
        due=arrays.due[: int(numbers.due_room)],
        rules=arrays.rules[: int(numbers.rule_room)],
    )


def _run_of(
    requests: Requests,
    engine: Engine,
    policy: Policy,
    deadlines: Deadlines,
    predicted_tokens: FloatArray | None,
    bin_s: float,
) -> ClusterRun:
    cluster = Cluster((engine,), 1, ChangeTimes((0.0,)), engine.gpus, deadlines=deadlines)
    predict = None if predicted_tokens is None else lambda _: predicted_tokens
    clock: ClockRule | Steered = Steered(lambda: policy)
    if isinstance(policy, Fixed):  # need not be asked
        setting = policy.begin(engine, deadlines)
        check_setting(setting, engine, policy)
        clock = ClockRule.fixed(setting, engine)
    # answers are read off it
    return ClusterRun((requests,), cluster, Alike(1, clock), lambda *_: None, predict=predict, bin_s=bin_s)


def _served(run: ClusterRun, requests: Requests, most: int) -> Served:
    """What came of a run, with a timeline of at most a number of bins; none for 0."""
    arrays, numbers, only = run.fleet.arrays, run.fleet.numbers, row_of(run.fleet.arrays.instances, 0)
    end_s = float(only.now_s)
    return Served(
        requests,
        values_of(arrays.answers, "first_s"),
        values_of(arrays.answers, "finish_s"),
        values_of(arrays.answers, "late").astype(np.intp),
        values_of(arrays.answers, "preemptions").astype(np.intp),
        end_s,
        {kind: float(getattr(numbers, f"{kind}_j")) for kind in records.KINDS},
        {kind: float(getattr(numbers, f"{kind}_s")) for kind in records.KINDS},
        {kind: int(getattr(numbers, f"{kind}_steps")) for kind in records.KINDS if kind != "idle"},
        np.asarray(arrays.setting_s, dtype=np.float64),
        int(numbers.switches),
        np.asarray(arrays.gap_counts, dtype=np.intp),
        _timeline(run, end_s, most) if most else None,
    )


def _timeline(run: ClusterRun, end_s: float, most: int) -> Timeline:
    names = ("energy_j", "clock", "running_s", "waiting_s", "tokens", "longest_s")
    bin_s, columns = run.bin_s, [values_of(run.fleet.arrays.bins, name) for name in names]
    while end_s >= bin_s * most:  # two become one
        bin_s *= 2
        pairs = [np.pad(each, (0, len(each) % 2)).reshape(-1, 2) for each in columns]
        columns = [*(each.sum(axis=1) for each in pairs[:-1]), pairs[-1].max(axis=1)]
    used = math.ceil(end_s / bin_s)
    lasted_s = np.minimum(end_s - bin_s * np.arange(used), bin_s)
    energy_j, clock, running_s, waiting_s, tokens, longest_s = (each[:used] for each in columns)
    gpus = run.cluster.layouts[0].gpus
    return Timeline(
        bin_s, energy_j, clock / (gpus * lasted_s), running_s / lasted_s, waiting_s / lasted_s, tokens, longest_s, lasted_s
    )
