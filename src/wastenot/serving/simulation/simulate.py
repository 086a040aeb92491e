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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.serving.cluster.model import Action, ChangeTimes, ClockRule, Cluster, ClusterView, Router, Start, Steered
from wastenot.serving.cluster.simulation import records
from wastenot.serving.cluster.simulation.records import column_of, row_of, values_of
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
    run = _run_of(requests, engine, policy, deadlines, predicted_tokens, alone=True)
    _count(run, requests, engine, timeline_s)
    run.run()
    return _served(run, requests)


def before_first_step(requests: Requests, engine: Engine, deadlines: Deadlines, slots: int) -> records.State:
    """The state of a run with all requests to come and at most ``slots`` there at once; its clock is as its ``rules`` say.

    Raises:
        BadInputError: as of :func:`simulate`.
    """
    run = _run_of(requests, engine, Fixed(0), deadlines, None, alone=False)
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
    alone: bool,
) -> ClusterRun:
    cluster = Cluster((engine,), 1, ChangeTimes((0.0,)), engine.gpus, deadlines=deadlines)
    predict = None if predicted_tokens is None else lambda _: predicted_tokens
    begins, router = _Alone(policy), Router.LEAST_REQUESTS
    return ClusterRun(iter((requests,)), cluster, begins, router, predict, (), 0, math.inf, _ignore, alone=alone)


@dataclass(frozen=True, slots=True)
class _Alone:
    """One instance from the beginning, which a policy steers."""

    policy: Policy
    period_s: float = math.inf

    @property
    def name(self) -> str:
        return self.policy.name

    def begin(self, cluster: Cluster) -> Sequence[Action]:
        engine, policy = cluster.layouts[0], self.policy
        if not isinstance(policy, Fixed):
            return [Start(0, 0, Steered(lambda: policy))]
        setting = policy.begin(engine, cluster.deadlines)
        check_setting(setting, engine, policy)
        return [Start(0, 0, ClockRule.fixed(setting, engine))]

    def control(self, view: ClusterView) -> Sequence[Action]:
        return ()


def _ignore(*_: object) -> None:
    """Answers are read off the run."""


def _count(run: ClusterRun, requests: Requests, engine: Engine, timeline_s: float | None) -> None:
    """Have the run count what is reported of an engine alone."""
    bins, settings, numbers = 0, len(engine.tables.settings), run.fleet.numbers
    if timeline_s is not None:
        if not 0 < timeline_s < math.inf:
            raise BadInputError(f"`timeline_s` ({timeline_s:g}) must be above 0")
        last_s = float(requests.arrival_s[-1]) if len(requests) else 0.0
        bins = 2 * min(math.ceil(last_s / timeline_s) + 32, _MOST_BINS)
    numbers.drawn, numbers.drawn_s, numbers.settings = bins, timeline_s or 0.0, settings
    run.fleet.arrays = run.fleet.arrays._replace(
        preemptions=column_of(np.zeros(len(requests), dtype=np.int64)),
        setting_s=column_of(np.zeros(settings)),
        drawn=column_of(np.zeros(bins, dtype=records.DRAWN)),
        drawn_setting_s=column_of(np.zeros(bins * settings)),
    )


def _served(run: ClusterRun, requests: Requests) -> Served:
    arrays, numbers, only = run.fleet.arrays, run.fleet.numbers, row_of(run.fleet.arrays.instances, 0)
    end_s = float(only.now_s)
    return Served(
        requests,
        values_of(arrays.answers, "first_s"),
        values_of(arrays.answers, "finish_s"),
        values_of(arrays.answers, "late").astype(np.intp),
        np.asarray(arrays.preemptions, dtype=np.intp),
        end_s,
        {kind: float(getattr(numbers, f"{kind}_j")) for kind in records.KINDS},
        {kind: float(getattr(numbers, f"{kind}_s")) for kind in records.KINDS},
        {kind: int(getattr(numbers, f"{kind}_steps")) for kind in records.KINDS if kind != "idle"},
        np.asarray(arrays.setting_s, dtype=np.float64),
        int(numbers.switches),
        np.asarray(arrays.gap_counts, dtype=np.intp),
        _timeline(run, end_s) if numbers.drawn else None,
    )


def _timeline(run: ClusterRun, end_s: float) -> Timeline:
    numbers, drawn = run.fleet.numbers, run.fleet.arrays.drawn
    bin_s = float(numbers.drawn_s)
    used = math.ceil(end_s / bin_s)
    energy_j, running_s, waiting_s, longest_s, tokens = (
        values_of(drawn, name)[:used] for name in ("energy_j", "running_s", "waiting_s", "longest_s", "tokens")
    )
    setting_s = np.asarray(run.fleet.arrays.drawn_setting_s, dtype=np.float64).reshape(int(numbers.drawn), -1)[:used]
    lasted_s = setting_s.sum(axis=1)
    return Timeline(
        bin_s,
        energy_j,
        setting_s,
        np.divide(running_s, lasted_s, out=np.zeros(used), where=lasted_s > 0),
        np.divide(waiting_s, lasted_s, out=np.zeros(used), where=lasted_s > 0),
        tokens,
        longest_s,
    )
