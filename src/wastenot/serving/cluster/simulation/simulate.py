"""A cluster under a load: engines behind a router, with a controller that starts, stops and steers them.

Each instance answers the requests that it is sent as the engine of :mod:`wastenot.serving.simulation.simulate` would,
with a policy that looks its clock up in the instance's :class:`ClockRule`. Around it:

- A request comes to the router and goes to an instance at once: to the first pool of its class (as predicted) in which an
  instance serves whose cache can hold it and which has room; where none has room, to the first that can. Of several that the
  router thinks equal it is the first one, by layout and then by number. Requests that nobody can take wait at the router,
  first come, first served.
- Where a route says how much may wait on an instance, it gets no more than that. Requests are held at the router until an
  instance of a pool on their route has room: at its next boundary, or when one more serves. They go in :class:`Route`'s
  order, each to the instance that the router would choose. What would be late at that instance, by the time that all prompts
  there take at the clock of its rule, is late for good.
- At the same time, requests come first, then hosts fail or are back, then the controller visits, then steps end.
- An instance that is stopped, parked or re-sharded finishes what it has first. Re-sharded ones wait for each other.
- A host that fails takes its instances along. What they had comes to the router anew: tokens that were made are not made
  again, but prefilled with the prompt. The energy of steps that were cut off is spent.
- GPUs of a failed host draw nothing, those without an instance draw ``off_power_w``.
- The run ends with the last answer. Requests that wait at the router while nothing else is left to do are given up after an
  hour, and others where a route says so; they have no instance (-1), and their times are ``nan``.

The steps are made by :mod:`wastenot.serving.cluster.simulation.core`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray
from wastenot.core.errors import BadInputError
from wastenot.serving.cluster import classes
from wastenot.serving.cluster.model import (
    Action,
    Assign,
    ClockRule,
    Cluster,
    ClusterServed,
    ClusterTimeline,
    ClusterView,
    Controller,
    Failure,
    InstanceState,
    LoggedAction,
    Park,
    Reshard,
    Route,
    Router,
    SetClock,
    Start,
    Stop,
    Wake,
)
from wastenot.serving.cluster.simulation import core
from wastenot.serving.model.compiled import COMPILED
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.requests import Requests
from wastenot.serving.simulation.served import GAP_EDGES_S

_PATIENCE_S = 3600.0
_OFF, _STARTING, _SERVING, _DRAINING, _PARKED, _WAKING, _RESHARDING, _FAILED = InstanceState
_IN_USE = (_STARTING, _SERVING, _DRAINING, _PARKED, _WAKING, _RESHARDING)
_CHANGING = (_STARTING, _WAKING, _RESHARDING)


def simulate_cluster(
    requests: Requests,
    cluster: Cluster,
    controller: Controller,
    *,
    router: Router = Router.LEAST_REQUESTS,
    predicted_tokens: FloatArray | None = None,
    failures: Sequence[Failure] = (),
    seed: int = 0,
    bin_s: float = 60.0,
) -> ClusterServed:
    """Run a cluster until all requests are answered.

    Args:
        requests: the load.
        cluster: that serves it.
        controller: that steers it.
        router: how an instance is chosen for a request.
        predicted_tokens: answers' lengths as router and controller are told; by default the true ones.
        failures: of hosts.
        seed: of what is drawn at random.
        bin_s: width of the timeline's bins.

    Raises:
        BadInputError: a request that no layout's cache can hold; layouts, failures or a period that make no run.
        OutsideProfileError: a step that the tables do not cover.
    """
    _check(cluster, controller, failures, bin_s)
    _check_fit(requests, cluster, 0)
    whole: list[Answers] = []
    told = None if predicted_tokens is None else lambda _: predicted_tokens

    def keep(_: Requests, answers: Answers) -> None:
        whole.append(answers)

    served = _Run(iter((requests,)), cluster, controller, router, told, failures, seed, bin_s, keep).served()
    return replace(served, **whole[0]._asdict()) if whole else served


class Answers(NamedTuple):
    """What became of some requests, as in :class:`ClusterServed`; each of shape (requests,)."""

    instance: IndexArray
    sent_s: FloatArray
    first_token_s: FloatArray
    finish_s: FloatArray
    late_tokens: IndexArray


def simulate_cluster_in_parts(
    parts: Iterable[Requests],
    cluster: Cluster,
    controller: Controller,
    answered: Callable[[Requests, Answers], object],
    *,
    router: Router = Router.LEAST_REQUESTS,
    predict: Callable[[Requests], FloatArray] | None = None,
    failures: Sequence[Failure] = (),
    seed: int = 0,
    bin_s: float = 60.0,
) -> ClusterServed:
    """Run a cluster under more requests than memory holds: they come in parts, and go when all of a part are answered.

    Args:
        parts: of the load, each from where the one before ended, their times counted from the beginning of the run.
        cluster: that serves it.
        controller: that steers it.
        answered: is called with each part, in their order, and what became of it.
        router: how an instance is chosen for a request.
        predict: answers' lengths of a part as router and controller are told; by default the true ones.
        failures: of hosts.
        seed: of what is drawn at random.
        bin_s: width of the timeline's bins.

    Returns:
        The run as :func:`simulate_cluster` would, but for its arrays by request, which are empty.

    Raises:
        BadInputError: as of :func:`simulate_cluster`, or a part that begins before the one before it ends.
        OutsideProfileError: a step that the tables do not cover.
    """
    _check(cluster, controller, failures, bin_s)
    return _Run(iter(parts), cluster, controller, router, predict, failures, seed, bin_s, answered).served()


def make_ready(cluster: Cluster) -> None:
    """Have the simulator compiled, so that processes that are started later need not, each for itself."""
    controller = cast("Controller", None)  # there are no requests to control
    core.make_ready(_Run(iter(()), cluster, controller, Router.LEAST_REQUESTS, None, (), 0, 1.0, print).s)


def _check(cluster: Cluster, controller: Controller, failures: Sequence[Failure], bin_s: float) -> None:
    if not cluster.layouts or len(cluster.changes.start_s) != len(cluster.layouts):
        raise BadInputError("a cluster needs layouts, and `start_s` for each of them")
    for place, engine in enumerate(cluster.layouts):
        if engine.most_running < 1 or engine.most_step_tokens < 1:
            raise BadInputError("`most_running` and `most_step_tokens` of an engine must be at least 1")
        if not 1 <= engine.gpus <= cluster.gpus_per_host:
            raise BadInputError(f"layout {place} needs {engine.gpus} GPUs; a host has {cluster.gpus_per_host}")
    if not controller.period_s > 0:
        raise BadInputError(f"`period_s` of '{controller.name}' ({controller.period_s:g}) must be above 0")
    if not 0 < bin_s < math.inf:
        raise BadInputError(f"`bin_s` ({bin_s:g}) must be above 0")
    for failure in failures:
        if not 0 <= failure.host < cluster.hosts:
            raise BadInputError(f"host {failure.host} cannot fail; there are hosts 0 to {cluster.hosts - 1}")
        if not failure.at_s >= 0 or (failure.back_s is not None and failure.back_s < failure.at_s):
            raise BadInputError("a host fails from 0 s on, and is back after it has failed")


def _check_fit(requests: Requests, cluster: Cluster, before: int) -> None:
    """Refuse a request that no cache can hold; so many came before these."""
    tokens = requests.prompt_tokens + requests.output_tokens
    fits = np.zeros(len(requests), dtype=bool)
    for engine in cluster.layouts:
        fits |= -(-tokens // engine.block_tokens) <= engine.cache_blocks
    if not fits.all():
        first = int(np.argmin(fits))
        raise BadInputError(
            f"request {before + first + 1}: {requests.prompt_tokens[first]} + {requests.output_tokens[first]} tokens do not "
            "fit into the cache of any layout; leave it out or give the engines more memory"
        )


# ---- columns: arrays where the core is compiled, lists where it is not ---------------------------------------------


def _column(values: np.ndarray) -> core.Column:
    if COMPILED:
        return np.ascontiguousarray(values)
    if names := values.dtype.names:
        return [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in values.tolist()]
    return values.tolist()


def _values(column: core.Column, name: str) -> np.ndarray:
    """One field of all records."""
    return np.asarray(column[name] if COMPILED else [getattr(row, name) for row in column])


def _row(column: core.Column, at: int) -> Any:
    """A record, its fields as attributes."""
    return column.view(np.recarray)[at] if COMPILED else column[at]


def _assign(column: core.Column, name: str, at: np.ndarray, values: np.ndarray) -> None:
    """One field of some records."""
    if COMPILED:
        column[name][at] = values
        return
    for place, value in zip(at.tolist(), values.tolist(), strict=True):
        setattr(column[place], name, value)


def _longer(column: core.Column, more: np.ndarray) -> core.Column:
    if not len(column):
        return _column(more)
    return np.concatenate([column, more]) if COMPILED else column + _column(more)


# ---- layouts as the core has them ----------------------------------------------------------------------------------


class _Tables:
    """Numbers one after the other, and where each lot begins."""

    def __init__(self) -> None:
        self.lots: list[np.ndarray] = []
        self.size = 0

    def add(self, values: np.ndarray) -> int:
        at, self.size = self.size, self.size + values.size
        self.lots.append(values.ravel())
        return at


@lru_cache(maxsize=16)  # policies try the same engine hundreds of times
def _rows(engine: Engine) -> FloatArray:
    """Time and energy of decode steps, and what both grow by with each token of context up to the next knot.

    For each batch from 0 on; shape (settings, most_running + 1, contexts, 4).
    """
    tables = engine.tables
    costs = np.stack([tables.decode_time_s, tables.decode_energy_j], axis=-1)
    knots, batch = tables.batches, np.arange(engine.most_running + 1)
    i = np.clip(np.searchsorted(knots, batch, side="right") - 1, 0, max(len(knots) - 2, 0))
    beyond = np.minimum(i + 1, len(knots) - 1)
    width = np.where(beyond > i, knots[beyond] - knots[i], 1.0)
    along = ((batch - knots[i]) / width)[None, :, None, None]
    lower, upper = costs[:, i], costs[:, beyond]
    rows = np.where(along == 0.0, lower, np.where(along == 1.0, upper, lower * (1 - along) + upper * along))
    rows[:, (batch < knots[0]) | (batch > knots[-1])] = math.nan  # on a knot, the other one does not count: it may be NaN
    more = np.full_like(rows, math.nan)
    more[:, :, :-1] = np.diff(rows, axis=2) / np.diff(tables.context_tokens)[:, None]
    return np.concatenate([rows, more], axis=-1)


def _places(knots: FloatArray) -> IndexArray:
    """The interval of each whole number from 0 to the last knot; -1 before the first."""
    numbers = np.arange(int(knots[-1]) + 1)
    places = np.minimum(np.searchsorted(knots, numbers, side="right") - 1, max(len(knots) - 2, 0))
    known = (knots[0] <= numbers) & (numbers <= knots[-1])
    return np.where(known, places, -1)


def _layouts(cluster: Cluster) -> tuple[np.ndarray, FloatArray, IndexArray]:
    """The layouts' records, and the tables and intervals that they point to."""
    tables, places = _Tables(), _Tables()
    deadlines = cluster.deadlines
    tables.add(np.asarray(deadlines.ttft_s, dtype=np.float64))
    places.add(np.asarray(deadlines.prompt_below, dtype=np.int64))
    layouts = np.zeros(len(cluster.layouts), dtype=core.LAYOUT)
    for lay, engine in zip(layouts, cluster.layouts, strict=True):
        of = engine.tables
        for name in ("overhead_s", "switch_s", "gpus", "cache_blocks", "block_tokens", "most_running", "most_step_tokens"):
            lay[name] = getattr(engine, name)
        clocks = np.array([math.nan if each.core_mhz is None else each.core_mhz for each in of.settings])
        greatest = float(np.nanmax(clocks)) if not np.isnan(clocks).all() else 0.0
        lay["chunked"], lay["last_tokens"] = engine.chunked, int(of.prefill_tokens[-1])
        lay["contexts"], lay["tokens"], lay["pasts"] = len(of.context_tokens), len(of.prefill_tokens), len(of.past_tokens)
        lay["decode_at"], lay["contexts_at"] = tables.add(_rows(engine)), tables.add(of.context_tokens)
        lay["prefill_at"] = tables.add(np.stack([of.prefill_time_s, of.prefill_energy_j], axis=-1))
        lay["tokens_at"], lay["pasts_at"] = tables.add(of.prefill_tokens), tables.add(of.past_tokens)
        lay["idle_at"], lay["clock_at"] = (
            tables.add(of.idle_power_w),
            tables.add(np.where(np.isnan(clocks), greatest, clocks)),
        )
        lay["places_at"] = places.add(_places(of.prefill_tokens))
    return layouts, np.concatenate(tables.lots).astype(np.float64), np.concatenate(places.lots).astype(np.int64)


# ---- a run ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Instance:
    """What is known of an instance besides its requests.

    Attributes:
        layout: its engine.
        pool: that it belongs to.
        host: that its GPUs are in.
        rule: of its clock.
        state: what it is doing.
        since_s: since when.
        room: its place in arrays of which each instance in use has a part; -1 where it has none.
        after: what happens when it is drained: ``None`` and it is off, ``_PARKED``, or a re-sharding.
    """

    layout: int
    pool: int
    host: int
    rule: ClockRule
    state: InstanceState
    since_s: float
    room: int
    after: InstanceState | _Resharding | None = None


@dataclass(slots=True, eq=False)
class _Resharding:
    """Instances on their way to become others."""

    action: Reshard
    drained: set[int] = field(default_factory=set)


class _RefusedError(Exception):
    """An action that cannot be done."""


class _Spans:
    """Times during which something was so, with a weight: GPUs, or one for a host."""

    def __init__(self) -> None:
        self.begin_s: list[float] = []
        self.end_s: list[float] = []
        self.weight: list[float] = []

    def add(self, begin_s: float, end_s: float, weight: float) -> None:
        if end_s > begin_s:
            self.begin_s.append(begin_s)
            self.end_s.append(end_s)
            self.weight.append(weight)

    def over(self, edges_s: FloatArray) -> FloatArray:
        """The weight times the time within each bin."""
        weight = np.asarray(self.weight)
        at = np.concatenate([np.asarray(self.begin_s), np.asarray(self.end_s)])
        if not len(at):
            return np.zeros(len(edges_s) - 1)
        order = np.argsort(at, kind="stable")
        at, change = at[order], np.concatenate([weight, -weight])[order]
        total = np.concatenate([[0.0], np.cumsum(np.cumsum(change)[:-1] * np.diff(at))])
        return np.diff(np.interp(edges_s, at, total))


def _added(counts: IndexArray, at: IndexArray) -> IndexArray:
    """Counts by bin and class, with some more."""
    size = (max(len(counts), int(at.max(initial=0)) + 1) + classes.COUNT - 1) // classes.COUNT * classes.COUNT
    return np.bincount(at, minlength=size) + np.pad(counts, (0, size - len(counts)))


class _Run:
    """Hosts, instances and their states; what is between them and their requests is the core's."""

    def __init__(
        self,
        later: Iterator[Requests],
        cluster: Cluster,
        controller: Controller,
        router: Router,
        predict: Callable[[Requests], FloatArray] | None,
        failures: Sequence[Failure],
        seed: int,
        bin_s: float,
        answered: Callable[[Requests, Answers], object],
    ) -> None:
        self.later, self.cluster, self.controller = later, cluster, controller
        self.predict, self.router, self.bin_s, self.answered = predict, router, bin_s, answered
        self.parts: list[Requests] = []
        self.last_s = 0.0
        self.arrivals = self.missed = np.zeros(0, dtype=np.intp)
        self.instances: list[_Instance] = []
        self.known = np.zeros((4, 8), dtype=np.intp)
        self.rooms: list[int] = []
        self.checked: dict[int, ClockRule] = {}
        self.free = np.full(cluster.hosts, cluster.gpus_per_host, dtype=np.intp)
        self.failed: dict[int, float] = {}
        self.used_since: dict[int, float] = {}
        self.on_host = np.zeros(cluster.hosts, dtype=np.intp)
        self.spans = {state: _Spans() for state in InstanceState}
        self.serving = [_Spans() for _ in cluster.layouts]
        self.host_spans = _Spans()
        self.log: list[LoggedAction] = []
        self.routes: tuple[tuple[int, ...], ...] | None = None
        self.room: tuple[int, ...] = ()
        self.hold: tuple[int, ...] = ()
        self.stale = True
        self.timers: list[tuple[float, int, Failure]] = []
        for order, failure in enumerate(failures):
            heapq.heappush(self.timers, (failure.at_s, 2 * order, failure))
            if failure.back_s is not None:
                heapq.heappush(self.timers, (failure.back_s, 2 * order + 1, failure))
        self.s = self._state(seed)

    def _state(self, seed: int) -> core.State:
        cluster = self.cluster
        layouts, tables, places = _layouts(cluster)
        deadlines = cluster.deadlines
        numbers = np.zeros(1, dtype=core.NUMBERS)
        n = numbers[0]
        n["bin_s"] = n["bin_end_s"] = self.bin_s
        n["tbt_s"], n["late_share"] = deadlines.tbt_s, 1 - deadlines.share
        n["end_to_end_s"] = math.inf if deadlines.end_to_end_s is None else deadlines.end_to_end_s
        n["more"], n["give_up_s"] = 1, math.inf
        n["spare"] = n["unplaced"] = n["last_unplaced"] = -1
        n["predicts"], n["router"], n["drawn"] = self.predict is not None, int(self.router), seed & 0xFFFFFFFF
        n["ttft_classes"], n["gap_bins"], n["leaves"] = len(deadlines.ttft_s), len(GAP_EDGES_S), 1
        n["prompt_below_0"], n["prompt_below_1"] = cluster.classes.prompt_below
        n["output_below_0"], n["output_below_1"] = cluster.classes.output_below
        n["calendar_room"] = max(each.most_running for each in cluster.layouts) + 1
        n["rule_room"] = self.rule_room = int(n["calendar_room"]) + core.BACKLOGS
        n["due_room"] = max(each.block_tokens for each in cluster.layouts)
        none = np.zeros(0, dtype=np.int64)
        lines = np.zeros(3 * classes.COUNT * len(deadlines.ttft_s), dtype=core.LINE)
        lines["first"] = lines["last"] = -1
        return core.State(
            numbers=_column(numbers),
            layouts=_column(layouts),
            instances=_column(np.zeros(0, dtype=core.INSTANCE)),
            slots=_column(np.zeros(0, dtype=core.SLOT)),
            pools=_column(np.zeros(0, dtype=core.POOL)),
            lines=_column(lines),
            kinds=_column(np.zeros(classes.COUNT, dtype=core.KIND)),
            bins=_column(np.zeros(16, dtype=core.BIN)),
            tables=_column(tables),
            places=_column(places),
            ends=_column(none),
            due=_column(np.zeros(0, dtype=np.int32)),
            rules=_column(np.zeros(0, dtype=np.int16)),
            events=_column(np.full(2, math.inf)),
            loads=_column(np.full(2, math.inf)),
            members=_column(none),
            routes=_column(none),
            gap_edges_s=_column(GAP_EDGES_S.astype(np.float64)),
            gap_counts=_column(np.zeros(len(GAP_EDGES_S) + 1, dtype=np.int64)),
            scratch=_column(np.zeros(int(n["calendar_room"]), dtype=np.int64)),
            arrival_s=_column(np.zeros(0)),
            prompt=_column(none),
            cached=_column(none),
            output=_column(none),
            predicted=_column(np.zeros(0)),
            answers=_column(np.zeros(0, dtype=core.ANSWER)),
        )

    @property
    def _numbers(self) -> Any:
        return _row(self.s.numbers, 0)

    # ---- the run

    def served(self) -> ClusterServed:
        """Run, and what came of it."""
        n = self._numbers
        self._act(0.0, self.controller.begin(self.cluster), begins=True)
        visits, visit_s, stuck_s = 0, self.controller.period_s, math.inf
        while True:
            self._arrange(float(n.now_s))
            until_s = min(visit_s, self.timers[0][0] if self.timers else math.inf)
            why = core.run(self.s, until_s)
            if why == core.DONE:
                break
            if why == core.UNTIL:
                if until_s == math.inf:
                    break
                n.now_s = until_s
                self._cover(until_s)
                if self.timers and self.timers[0][0] == until_s:
                    self._fail_or_back(until_s)
                    continue
                idle = n.next == n.requests and not n.more and n.left == n.unplaced_count
                stuck_s = min(stuck_s, until_s) if idle else math.inf
                if until_s - stuck_s > _PATIENCE_S:
                    break
                visits += 1
                visit_s = (visits + 1) * self.controller.period_s
                self._act(until_s, self.controller.control(self._view(until_s)))
            elif why == core.EMPTY:
                self._emptied(int(n.which), float(n.now_s))
            elif why == core.READY:
                self._begin(int(n.which), float(n.now_s))
            elif why == core.SLOTS:
                self._more_slots()
            elif why == core.MORE:
                self._next_part()
            elif why == core.BINS:
                self._cover(2 * len(self.s.bins) * self.bin_s)
            else:
                self._refuse(int(n.which))
        return self._served(float(n.now_s))

    def _next_part(self) -> None:
        """The requests that come next; those whose part is answered go."""
        self._hand_over(False)
        n, part = self._numbers, next(self.later, None)
        if part is None:
            n.more = 0
            return
        if not len(part):
            return
        _check_fit(part, self.cluster, int(n.requests))
        if part.arrival_s[0] < self.last_s:
            raise BadInputError("a part of the requests begins before the one before it ends; hand them over in order")
        self.last_s = float(part.arrival_s[-1])
        self.parts.append(part)
        self._cover(self.last_s)
        answers = np.zeros(len(part), dtype=core.ANSWER)
        answers["sent_s"] = answers["first_s"] = answers["finish_s"] = math.nan
        answers["instance"] = core.PENDING
        cached = np.zeros(len(part), dtype=np.int64) if part.cached_tokens is None else part.cached_tokens
        s = self.s
        self.s = s._replace(
            arrival_s=_longer(s.arrival_s, part.arrival_s.astype(np.float64, copy=False)),
            prompt=_longer(s.prompt, part.prompt_tokens.astype(np.int64, copy=False)),
            cached=_longer(s.cached, cached.astype(np.int64, copy=False)),
            output=_longer(s.output, part.output_tokens.astype(np.int64, copy=False)),
            answers=_longer(s.answers, answers),
        )
        if self.predict is not None:
            told = np.asarray(self.predict(part), dtype=np.float64)
            self.s = self.s._replace(predicted=_longer(s.predicted, told))
        n.requests += len(part)
        n.left += len(part)

    def _hand_over(self, all_of_them: bool) -> None:
        """Parts of the requests that are answered."""
        while self.parts:
            part, s = self.parts[0], self.s
            count = len(part)
            head = s.answers[:count]
            instance = _values(head, "instance").astype(np.intp)
            if not all_of_them and (instance == core.PENDING).any():
                return
            sent_s, first_s, finish_s = (_values(head, name).copy() for name in ("sent_s", "first_s", "finish_s"))
            late = _values(head, "late").astype(np.intp)
            answers = Answers(np.maximum(instance, -1), sent_s, first_s, finish_s, late)
            at = (part.arrival_s / self.bin_s).astype(np.intp) * classes.COUNT
            at += self.cluster.classes.of(part.prompt_tokens, part.output_tokens)
            self.arrivals = _added(self.arrivals, at)
            self.missed = _added(self.missed, at[self._missed(part, answers)])
            self.answered(part, answers)
            del self.parts[0]
            self._numbers.gone += count
            self.s = s._replace(
                arrival_s=s.arrival_s[count:],
                prompt=s.prompt[count:],
                cached=s.cached[count:],
                output=s.output[count:],
                predicted=s.predicted[count:],
                answers=s.answers[count:],
            )

    def _cover(self, until_s: float) -> None:
        """The timeline reaches beyond a time."""
        missing = int(until_s / self.bin_s) + 3 - len(self.s.bins)
        if missing > 0:
            more = np.zeros(max(missing, len(self.s.bins)), dtype=core.BIN)
            self.s = self.s._replace(bins=_longer(self.s.bins, more))

    def _more_slots(self) -> None:
        had = len(self.s.slots)
        more = np.zeros(max(had, 1024), dtype=core.SLOT)
        more["after"] = np.arange(had + 1, had + len(more) + 1)
        more["after"][-1] = -1
        self.s = self.s._replace(slots=_longer(self.s.slots, more))
        self._numbers.spare = had

    def _refuse(self, which: int) -> None:
        """Say of which step the tables know nothing."""
        c = _row(self.s.instances, which)
        tables = self.cluster.layouts[self.instances[which].layout].tables
        setting, tokens, batch = int(c.setting), int(c.step_tokens), int(c.step_batch)
        past, context = float(c.past_tokens), float(c.mean_context)
        if tokens and batch:
            tables.mixed(setting, tokens, past, batch, context)
        elif tokens:
            tables.prefill(setting, tokens, past)
        else:
            tables.decode(setting, batch, context)
        raise AssertionError("the tables cover a step that the simulator could not make")

    def _view(self, now_s: float) -> ClusterView:
        count, s, n = len(self.instances), self.s, self._numbers
        seen = [_column(np.zeros(count, dtype=np.int64)) for _ in range(5)]
        core.look(s, now_s, *seen)
        running, waiting, waiting_tokens, context, setting = (np.asarray(each, dtype=np.intp) for each in seen)
        at_router = [_column(np.zeros(classes.COUNT, dtype=np.int64)) for _ in range(3)]
        if n.unplaced_count:
            core.give_up(s, now_s)
            core.look_held(s, now_s, *at_router)
        held, held_tokens, held_late = (np.asarray(each, dtype=np.intp) for each in at_router)
        state, layout, pool, host = self.known[:, :count].copy()
        kinds = {name: _values(s.kinds, name).copy() for name in core.KIND.names or ()}
        for name in kinds:
            _assign(s.kinds, name, np.arange(classes.COUNT), np.zeros(classes.COUNT, dtype=core.KIND[name]))
        return ClusterView(
            now_s,
            state,
            layout,
            pool,
            host,
            setting,
            running,
            waiting,
            waiting_tokens,
            context,
            self.free.copy(),
            kinds["arrivals"],
            kinds["prompt_tokens"],
            kinds["output_tokens"],
            kinds["finished"],
            kinds["missed"],
            int(n.unplaced_count),
            held,
            held_tokens,
            held_late,
            kinds["given_up"],
        )

    # ---- who serves

    def _arrange(self, now_s: float) -> None:
        """The instances that serve, by pool, for the router."""
        if not self.stale:
            return
        self.stale = False
        state, layout, pool, _ = self.known[:, : len(self.instances)]
        count = 1 + max(int(pool.max(initial=0)), max((max(each, default=0) for each in self.routes or ()), default=0))
        serving = np.flatnonzero(state == _SERVING)
        members = serving[np.lexsort((serving, layout[serving], pool[serving]))]
        ready = np.bincount(pool[members], minlength=count)
        begins = np.concatenate([[0], np.cumsum(ready)[:-1]])
        leaves = 1 << np.ceil(np.log2(np.maximum(ready, 1))).astype(np.int64)
        trees = np.concatenate([[0], np.cumsum(2 * leaves)])
        leaf = np.arange(len(members)) - begins[pool[members]]
        loads = np.full(int(trees[-1]), math.inf)
        name = "tokens_left" if self._numbers.router == core.LEAST_TOKENS else "requests"
        pools = np.zeros(count, dtype=core.POOL)
        for limit, of_pools in (("room", self.room), ("hold", self.hold)):
            pools[limit] = np.iinfo(np.int64).max
            pools[limit][: len(of_pools)] = of_pools[:count]
        full = _values(self.s.instances, "waiting_tokens")[members] >= pools["hold"][pool[members]]
        load = np.where(full, math.inf, _values(self.s.instances, name)[members])
        loads[trees[pool[members]] + leaves[pool[members]] + leaf] = load
        pools["tree_at"], pools["leaves"], pools["members_at"], pools["ready"] = trees[:-1], leaves, begins, ready
        everyone = np.arange(len(self.instances))
        _assign(self.s.instances, "leaf", everyone, np.full(len(everyone), -1))
        _assign(self.s.instances, "leaf", members, leaf)
        _assign(self.s.instances, "pool", everyone, pool)
        routes = np.full((classes.COUNT, count), -1, dtype=np.int64)
        for kind in range(classes.COUNT):
            named = range(count) if self.routes is None else self.routes[kind]
            routes[kind, : len(named)] = named
        loads_column = _column(loads)
        for each in range(count):
            core.grow_tree(loads_column, int(trees[each]), int(leaves[each]))
        self._numbers.pools = count
        self.s = self.s._replace(
            pools=_column(pools),
            loads=loads_column,
            members=_column(members.astype(np.int64)),
            routes=_column(routes.ravel()),
        )
        core.place(self.s, now_s)

    # ---- instances come, change and go

    def _new(self, layout: int, pool: int, host: int, rule: ClockRule | None, state: InstanceState, now_s: float) -> int:
        """One more instance; its number."""
        engine, number = self.cluster.layouts[layout], len(self.instances)
        rule = ClockRule.fixed(len(engine.tables.settings) - 1, engine) if rule is None else rule
        if not self.rooms:
            self._more_rooms()
        room = self.rooms.pop()
        self.instances.append(_Instance(layout, pool, host, rule, state, now_s, room))
        if number >= len(self.s.instances):
            self._more_instances()
        if number >= self.known.shape[1]:
            self.known = np.concatenate([self.known, np.zeros_like(self.known)], axis=1)
        self.known[:, number] = state, layout, pool, host
        c = _row(self.s.instances, number)
        c.layout, c.pool, c.room, c.rule, c.leaf, c.doing = (
            layout,
            pool,
            room,
            room * int(self._numbers.rule_room),
            -1,
            core.AWAY,
        )
        self._set_rule(number, rule)
        self.free[host] -= engine.gpus
        self.on_host[host] += 1
        if self.on_host[host] == 1:
            self.used_since[host] = now_s
        self.stale = True
        return number

    def _more_rooms(self) -> None:
        n = self._numbers
        had = len(self.s.due) // int(n.due_room)
        more = max(had, 8)
        self.s = self.s._replace(
            ends=_longer(self.s.ends, np.zeros(more * int(n.calendar_room), dtype=np.int64)),
            due=_longer(self.s.due, np.zeros(more * int(n.due_room), dtype=np.int32)),
            rules=_longer(self.s.rules, np.zeros(more * int(n.rule_room), dtype=np.int16)),
        )
        self.rooms.extend(range(had + more - 1, had - 1, -1))

    def _more_instances(self) -> None:
        had = len(self.s.instances)
        instances = _longer(self.s.instances, np.zeros(max(had, 8), dtype=core.INSTANCE))
        count = len(instances)
        leaves = 1 << (count - 1).bit_length()
        events = np.full(2 * leaves, math.inf)
        events[leaves : leaves + had] = self.s.events[int(self._numbers.leaves) :][:had]
        column = _column(events)
        core.grow_tree(column, 0, leaves)
        self._numbers.leaves = leaves
        self.s = self.s._replace(instances=instances, events=column)

    def _set_rule(self, number: int, rule: ClockRule) -> None:
        at, room, rules = int(_row(self.s.instances, number).rule), self.rule_room, self.s.rules
        whole = np.empty(room, dtype=np.int16)
        batches, backlog = len(rule.by_batch), (*rule.backlog, *(rule.backlog or (rule.prompts,))[-1:] * core.BACKLOGS)
        whole[:batches], whole[batches : -core.BACKLOGS] = rule.by_batch, 0
        whole[-core.BACKLOGS :] = (rule.prompts, *backlog)[: core.BACKLOGS]
        rules[at : at + room] = whole if COMPILED else whole.tolist()
        self.instances[number].rule = rule

    def _turn(self, number: int, state: InstanceState, now_s: float) -> None:
        """An instance is in another state from now on."""
        each = self.instances[number]
        gpus = self.cluster.layouts[each.layout].gpus
        self._span(each, now_s)
        was, each.state, each.since_s = each.state, state, now_s
        self.known[0, number] = state
        _row(self.s.instances, number).state = int(state)
        self.stale = True
        if was in _IN_USE and state not in _IN_USE:
            self.on_host[each.host] -= 1
            if not self.on_host[each.host]:
                self.host_spans.add(self.used_since.pop(each.host), now_s, 1.0)
            if each.host not in self.failed:
                self.free[each.host] += gpus
            self.rooms.append(each.room)
            each.room = -1

    def _span(self, each: _Instance, now_s: float) -> None:
        gpus = self.cluster.layouts[each.layout].gpus
        self.spans[each.state].add(each.since_s, now_s, gpus)
        if each.state == _SERVING:
            self.serving[each.layout].add(each.since_s, now_s, 1.0)

    def _begin(self, number: int, now_s: float) -> None:
        """An instance serves from now on."""
        self._turn(number, _SERVING, now_s)
        core.begin(self.s, number, now_s)

    def _away(self, number: int, state: InstanceState, now_s: float, until_s: float = math.inf) -> None:
        """An instance that has nothing to do is in a state in which it serves nobody, until a time."""
        core.leave(self.s, number, now_s, until_s)
        self._turn(number, state, now_s)

    def _emptied(self, number: int, now_s: float) -> None:
        """An instance that drains has nothing left."""
        after = self.instances[number].after
        if isinstance(after, _Resharding):
            after.drained.add(number)
            if len(after.drained) == len(after.action.instances):
                self._reshard(after.action, now_s)
        elif after is None:
            self._away(number, _OFF, now_s)
        else:
            self._away(number, after, now_s)

    def _reshard(self, action: Reshard, now_s: float) -> None:
        host = self.instances[action.instances[0]].host
        for number in action.instances:
            self._away(number, _OFF, now_s)
        for layout in action.layouts:
            number = self._new(layout, action.pool, host, None, _RESHARDING, now_s)
            core.leave(self.s, number, now_s, now_s + self.cluster.changes.reshard_s)

    def _drain(self, number: int, after: InstanceState | _Resharding | None, now_s: float) -> None:
        self.instances[number].after = after
        self._turn(number, _DRAINING, now_s)
        if not _row(self.s.instances, number).requests:
            self._emptied(number, now_s)

    def _fail_or_back(self, now_s: float) -> None:
        """What is due of failures."""
        _, order, failure = heapq.heappop(self.timers)
        host = failure.host
        if order % 2:
            if self.failed.get(host) == failure.at_s:
                self.spans[_FAILED].add(self.failed.pop(host), now_s, self.cluster.gpus_per_host)
                self.free[host] = self.cluster.gpus_per_host
            return
        if host in self.failed:
            return
        self.failed[host], rerouted = now_s, 0
        self.free[host] = 0
        for number, each in enumerate(self.instances):
            if each.host != host or each.state not in _IN_USE:
                continue
            rerouted += core.fail(self.s, number, now_s)
            self._turn(number, _FAILED, now_s)
        self.log.append(LoggedAction(now_s, failure, rerouted=rerouted))
        self.stale = True

    # ---- what a controller asks for

    def _act(self, now_s: float, actions: Sequence[Action], *, begins: bool = False) -> None:
        for action in actions:
            refused = ""
            try:
                self._do(action, now_s, begins)
            except _RefusedError as why:
                refused = str(why)
            self.log.append(LoggedAction(now_s, action, refused))

    def _do(self, action: Action, now_s: float, begins: bool) -> None:  # noqa: PLR0912 - one case for each action
        match action:
            case Start():
                self._start(action, now_s, begins)
            case Stop():
                each = self._of(action.instance, _SERVING, _PARKED, _DRAINING, _STARTING, _WAKING)
                if isinstance(each.after, _Resharding):
                    raise _RefusedError(f"instance {action.instance} is being re-sharded")
                if each.state == _SERVING:
                    self._drain(action.instance, None, now_s)
                elif each.state == _DRAINING:
                    each.after = None
                else:
                    self._away(action.instance, _OFF, now_s)
            case Park():
                each = self._of(action.instance, _SERVING)
                self._drain(action.instance, _PARKED, now_s)
            case Wake():
                each = self._of(action.instance, _PARKED, _DRAINING)
                if each.state == _DRAINING:
                    if each.after != _PARKED:
                        raise _RefusedError(f"instance {action.instance} does not drain in order to be parked")
                    each.after = None
                    self._turn(action.instance, _SERVING, now_s)
                else:
                    self._away(action.instance, _WAKING, now_s, now_s + self.cluster.changes.wake_s)
            case Reshard():
                self._begin_reshard(action, now_s)
            case Assign():
                each = self._of(action.instance, *_IN_USE)
                self._check_pool(action.pool)
                each.pool = self.known[2, action.instance] = action.pool
                self.stale = True
            case SetClock():
                each = self._of(action.instance, *_IN_USE)
                self._check_rule(action.clock, each.layout)
                self._set_rule(action.instance, action.clock)
                core.heed(self.s, action.instance, now_s)
            case Route():
                self._set_route(action)

    def _set_route(self, route: Route) -> None:
        if len(route.pools) != classes.COUNT:
            raise _RefusedError(f"routes for {len(route.pools)} classes; there are {classes.COUNT}")
        for pools in route.pools:
            for pool in pools:
                self._check_pool(pool)
        if any(each < 0 for each in route.room):
            raise _RefusedError("room for fewer than no requests")
        if any(each < 1 for each in route.hold):
            raise _RefusedError("instances that hold before the first token of a prompt waits")
        if route.give_up_s is not None and not route.give_up_s >= 0:
            raise _RefusedError("requests given up before they are late")
        self.routes, self.room, self.hold, self.stale = route.pools, route.room, route.hold, True
        n = self._numbers
        n.by_deadline, n.holds = route.by_deadline, bool(route.hold) or route.give_up_s is not None
        n.give_up_s = math.inf if route.give_up_s is None else route.give_up_s
        n.router = int(self.router if route.router is None else route.router)

    def _of(self, number: int, *states: InstanceState) -> _Instance:
        """An instance that is in one of these states."""
        if not 0 <= number < len(self.instances):
            raise _RefusedError(f"there is no instance {number}")
        each = self.instances[number]
        if each.state not in states:
            raise _RefusedError(f"instance {number} is {each.state.name.lower()}")
        return each

    def _check_pool(self, pool: int) -> None:
        if not 0 <= pool < 1 << 16:
            raise _RefusedError(f"there can be no pool {pool}")

    def _check_layout(self, layout: int) -> Engine:
        if not 0 <= layout < len(self.cluster.layouts):
            raise _RefusedError(f"there is no layout {layout}")
        return self.cluster.layouts[layout]

    def _check_rule(self, rule: ClockRule, layout: int) -> None:
        if self.checked.get(layout) is rule:
            return
        engine = self.cluster.layouts[layout]
        settings = len(engine.tables.settings)
        if len(rule.by_batch) != engine.most_running + 1:
            raise _RefusedError(
                f"a clock rule for batches up to {len(rule.by_batch) - 1}; layout {layout} has {engine.most_running}"
            )
        named = (*rule.by_batch, rule.prompts, *rule.backlog)
        if not (min(named) >= 0 and max(named) < settings):
            raise _RefusedError(f"a clock rule with a setting that is none; there are settings 0 to {settings - 1}")
        self.checked[layout] = rule

    def _start(self, action: Start, now_s: float, begins: bool) -> None:
        engine = self._check_layout(action.layout)
        self._check_pool(action.pool)
        if action.clock is not None:
            self._check_rule(action.clock, action.layout)
        # The fullest host that has room, so that others stay whole.
        room = np.where(self.free >= engine.gpus, self.free, self.cluster.gpus_per_host + 1)
        host = int(np.argmin(room))
        if room[host] > self.cluster.gpus_per_host:
            raise _RefusedError(f"no host has {engine.gpus} free GPUs")
        number = self._new(action.layout, action.pool, host, action.clock, _STARTING, now_s)
        if begins:
            self._begin(number, now_s)
        else:
            core.leave(self.s, number, now_s, now_s + self.cluster.changes.start_s[action.layout])

    def _begin_reshard(self, action: Reshard, now_s: float) -> None:
        self._check_pool(action.pool)
        if not action.instances or not action.layouts or len(set(action.instances)) != len(action.instances):
            raise _RefusedError("re-sharding takes at least one instance, each of them once, and makes at least one")
        each = [self._of(number, _SERVING) for number in action.instances]
        if len({one.host for one in each}) > 1:
            raise _RefusedError("instances of several hosts cannot be re-sharded together")
        gpus = sum(self.cluster.layouts[one.layout].gpus for one in each)
        wanted = sum(self._check_layout(layout).gpus for layout in action.layouts)
        if wanted > gpus:
            raise _RefusedError(f"{wanted} GPUs are wanted of instances that have {gpus}")
        resharding = _Resharding(action)
        for number in action.instances:
            self._drain(number, resharding, now_s)

    # ---- what came of it

    def _served(self, end_s: float) -> ClusterServed:
        self._cover(end_s)
        s, n, changes = self.s, self._numbers, self.cluster.changes
        for number, each in enumerate(self.instances):
            core.settle(s, number, end_s)
            if each.state in _IN_USE:
                self._span(each, end_s)
        for since_s in self.failed.values():
            self.spans[_FAILED].add(since_s, end_s, self.cluster.gpus_per_host)
        for since_s in self.used_since.values():
            self.host_spans.add(since_s, end_s, 1.0)
        bins = max(math.ceil(end_s / self.bin_s), 1)
        edges_s = np.minimum(np.arange(bins + 1) * self.bin_s, end_s)
        gpus = np.stack([self.spans[state].over(edges_s) for state in InstanceState], axis=1)
        gpus[:, _OFF] = self.cluster.gpus * np.diff(edges_s) - gpus[:, 1:].sum(axis=1)
        used = {
            "parked": changes.parked_power_w * gpus[:, _PARKED],
            "changing": changes.start_power_w * gpus[:, _CHANGING].sum(axis=1),
            "off": changes.off_power_w * gpus[:, _OFF],
            "hosts": changes.host_power_w * self.host_spans.over(edges_s),
        }
        energy_j = {kind: float(getattr(n, f"{kind}_j")) for kind in core.KINDS}
        energy_j |= {kind: float(each.sum()) for kind, each in used.items()}
        self._hand_over(True)
        none, never = np.zeros(0, dtype=np.intp), np.zeros(0)
        return ClusterServed(
            self.controller.name,
            none,
            never,
            never,
            never,
            none,
            end_s,
            energy_j,
            np.asarray(s.gap_counts, dtype=np.intp),
            int(n.switches),
            self._timeline(edges_s, gpus, sum(used.values(), np.zeros(bins))),
            self.log,
        )

    def _missed(self, requests: Requests, answers: Answers) -> BoolArray:
        """Whether each request missed a deadline; those without an answer did."""
        deadlines = self.cluster.deadlines
        kept = answers.first_token_s - requests.arrival_s <= deadlines.ttft_of(requests.prompt_tokens)
        kept &= answers.late_tokens <= (1 - deadlines.share) * (requests.output_tokens - 1)
        kept &= np.isfinite(answers.finish_s)
        if deadlines.end_to_end_s is not None:
            kept &= answers.finish_s - requests.arrival_s <= deadlines.end_to_end_s
        return np.asarray(~kept)

    def _timeline(self, edges_s: FloatArray, gpus: FloatArray, used_j: FloatArray) -> ClusterTimeline:
        s, bins = self.s, len(used_j)
        width_s = np.diff(edges_s)
        lasted_s = np.where(width_s > 0, width_s, 1.0)
        energy_j = used_j.copy()
        drawn_j, clock = _values(s.bins, "energy_j"), _values(s.bins, "clock")
        energy_j += drawn_j[:bins]
        energy_j[-1] += drawn_j[bins:].sum()  # rounded into the bin after the end
        at_work = gpus[:, _SERVING] + gpus[:, _DRAINING]

        def by_class(counts: IndexArray) -> IndexArray:
            whole = np.zeros((bins, classes.COUNT), dtype=np.intp)
            rows = counts[: len(counts) // classes.COUNT * classes.COUNT].reshape(-1, classes.COUNT)
            whole[: len(rows)] += rows[:bins]
            whole[-1] += rows[bins:].sum(axis=0)  # rounded into the bin after the end
            return whole

        return ClusterTimeline(
            self.bin_s,
            energy_j,
            gpus / lasted_s[:, None],
            np.stack([each.over(edges_s) for each in self.serving], axis=1) / lasted_s[:, None],
            np.divide(clock[:bins], at_work, out=np.full(bins, math.nan), where=at_work > 0),
            by_class(self.arrivals),
            by_class(self.missed),
        )
