"""A cluster under a load: engines behind a router, with a controller that starts, stops and steers them.

Each instance answers the requests that it is sent as the engine of :mod:`wastenot.serving.simulation.simulate` would, with a
policy of its own (:class:`Steered`) or with one that looks its clock up in the instance's :class:`ClockRule`. Around it:

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
- A host that fails takes its instances along. What they had comes to the router again: tokens that were made are not made
  again, but prefilled with the prompt. The energy of steps that were cut off is spent.
- GPUs of a failed host draw nothing, those without an instance draw ``off_power_w``.
- The run ends with the last answer. Requests that wait at the router while nothing else is left to do are given up after an
  hour; they have no instance (-1), and their times are ``nan``.

The steps are made by :mod:`wastenot.serving.cluster.simulation.core`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import BadInputError
from wastenot.serving.bench.server_metrics import ServerReading
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
    Steered,
    Stop,
    Wake,
)
from wastenot.serving.cluster.simulation import core, records, router, trees
from wastenot.serving.model.compiled import COMPILED
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine, Scheduler
from wastenot.serving.model.engine_tables import several_prompts
from wastenot.serving.model.interpolation import bilinear, fraction, interval_of
from wastenot.serving.model.requests import Requests
from wastenot.serving.model.step_costs import Column
from wastenot.serving.simulation.metrics import FIRST_EDGES_S, PROMPT_EDGES, Counted, reading
from wastenot.serving.simulation.policy import Policy, View, check_setting
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

    served = ClusterRun(iter((requests,)), cluster, controller, router, told, failures, seed, bin_s, keep).served()
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
    return ClusterRun(iter(parts), cluster, controller, router, predict, failures, seed, bin_s, answered).served()


def make_ready(cluster: Cluster) -> None:
    """Have the simulator compiled, so that processes that are started later need not, each for itself."""
    controller = cast("Controller", None)  # there are no requests to control
    core.make_ready(ClusterRun(iter(()), cluster, controller, Router.LEAST_REQUESTS, None, (), 0, 1.0, print).arrays)


def _check(cluster: Cluster, controller: Controller, failures: Sequence[Failure], bin_s: float) -> None:
    if not cluster.layouts or len(cluster.changes.start_s) != len(cluster.layouts):
        raise BadInputError("a cluster needs layouts, and `start_s` for each of them")
    for place, engine in enumerate(cluster.layouts):
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
    """Refuse a request that no cache can hold; ``before`` came before these."""
    tokens = requests.prompt_tokens + requests.output_tokens
    fits = np.zeros(len(requests), dtype=bool)
    for engine in cluster.layouts:
        fits |= -(-tokens // engine.block_tokens) <= engine.cache_blocks
    if not fits.all():
        first, most = int(np.argmin(fits)), max(each.cache_blocks * each.block_tokens for each in cluster.layouts)
        raise BadInputError(
            f"request {before + first + 1}: {requests.prompt_tokens[first]} + {requests.output_tokens[first]} tokens do not "
            f"fit into the cache of {most} tokens; leave it out or give the engine more memory"
        )


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


def _assign(column: Column, name: str, at: np.ndarray, values: np.ndarray) -> None:
    """One field of some records."""
    if COMPILED:
        column[name][at] = values
        return
    for place, value in zip(at.tolist(), values.tolist(), strict=True):
        setattr(column[place], name, value)


def _longer(column: Column, more: np.ndarray) -> Column:
    if not len(column):
        return column_of(more)
    return np.concatenate([column, more]) if COMPILED else column + column_of(more)


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
    knots, width = tables.batches, len(tables.context_tokens)
    rows = np.full((len(tables.settings), engine.most_running + 1, width, 2), math.nan)
    for quantity, values in enumerate((tables.decode_time_s, tables.decode_energy_j)):
        cells = values.reshape(len(values), -1).T  # each with all settings
        for batch in range(engine.most_running + 1):
            interval = interval_of(knots, 0, len(knots), batch, 0)
            if interval >= 0:
                along = fraction(knots, 0, len(knots), batch, interval)
                for context in range(width):
                    rows[:, batch, context, quantity] = bilinear(cells, interval * width + context, width, 1, along, 0.0)
    more = np.full_like(rows, math.nan)
    more[:, :, :-1] = np.diff(rows, axis=2) / np.diff(tables.context_tokens)[:, None]
    return np.concatenate([rows, more], axis=-1)


def _places(knots: FloatArray) -> IndexArray:
    """The interval of each whole number from 0 to the last knot; -1 before the first."""
    numbers = np.arange(int(knots[-1]) + 1)
    places = np.minimum(np.searchsorted(knots, numbers, side="right") - 1, max(len(knots) - 2, 0))
    known = (knots[0] <= numbers) & (numbers <= knots[-1])
    return np.where(known, places, -1)


@lru_cache(maxsize=16)
def _layouts(engines: tuple[Engine, ...], deadlines: Deadlines, alone: bool) -> tuple[np.ndarray, FloatArray, IndexArray]:
    """The layouts' records, and the tables and intervals that they point to; a single engine needs no rows."""
    tables, places = _Tables(), _Tables()
    tables.add(np.asarray(deadlines.ttft_s, dtype=np.float64))
    places.add(np.asarray(deadlines.prompt_below, dtype=np.int64))
    layouts = np.zeros(len(engines), dtype=records.LAYOUT)
    for lay, engine in zip(layouts, engines, strict=True):
        of = several_prompts(engine.tables)
        for name in (
            "overhead_s", "launch_s", "graph_launch_s", "most_graph_tokens", "switch_s", "gpus", "cache_blocks",
            "block_tokens", "most_running", "most_step_tokens",
        ):  # fmt: skip
            lay[name] = getattr(engine, name)
        lay["limit_w"] = engine.limit_w or 1e12
        clocks = np.array([math.nan if each.core_mhz is None else each.core_mhz for each in of.settings])
        greatest = float(np.nanmax(clocks)) if not np.isnan(clocks).all() else 0.0
        lay["chunked"], lay["last_tokens"] = engine.chunked, int(of.prefill_tokens[-1])
        lay["scheduler"] = list(Scheduler).index(engine.scheduler)
        lay["contexts"], lay["tokens"], lay["pasts"] = len(of.context_tokens), len(of.prefill_tokens), len(of.past_tokens)
        lay["decode_at"] = 0 if alone else tables.add(_rows(engine))
        lay["contexts_at"] = tables.add(of.context_tokens)
        lay["steps_at"] = tables.add(np.stack([of.decode_time_s, of.decode_energy_j], axis=-1))
        lay["batches"], lay["batches_at"] = len(of.batches), tables.add(of.batches)
        lay["prefill_at"] = tables.add(np.stack([of.prefill_time_s, of.prefill_energy_j], axis=-1))
        lay["tokens_at"], lay["pasts_at"] = tables.add(of.prefill_tokens), tables.add(of.past_tokens)
        lay["idle_at"] = tables.add(of.idle_power_w)
        lay["clock_at"] = tables.add(np.where(np.isnan(clocks), greatest, clocks))
        lay["places_at"] = places.add(_places(of.prefill_tokens))
    return layouts, np.concatenate(tables.lots).astype(np.float64), np.concatenate(places.lots).astype(np.int64)


# ---- a run ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Instance:
    """What is known of an instance besides its requests."""

    layout: int  # its engine
    pool: int  # that it belongs to
    host: int  # that its GPUs are in
    clock: ClockRule | Steered  # the rule that it follows, or what it is steered by
    state: InstanceState  # what it is doing
    since_s: float  # since when
    room: int  # its place in arrays of which each instance in use has a part; -1 where it has none
    policy: Policy | None = None  # that steers it
    # what happens when it is drained: ``None`` and it is off, ``_PARKED``, or a re-sharding
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


class ClusterRun:
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
        *,
        alone: bool = False,
    ) -> None:
        self.alone = alone
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
        self.arrays = self._state(seed)

    def _state(self, seed: int) -> records.State:
        cluster = self.cluster
        layouts, tables, places = _layouts(cluster.layouts, cluster.deadlines, self.alone)
        deadlines = cluster.deadlines
        numbers = self._first_numbers(seed)
        calendar_room = int(numbers["calendar_room"][0])
        self.rule_room = int(numbers["rule_room"][0])
        lines = np.zeros(3 * classes.COUNT * len(deadlines.ttft_s), dtype=records.LINE)
        lines["first"] = lines["last"] = -1
        empty: dict[str, Any] = {
            "instances": records.INSTANCE,
            "slots": records.SLOT,
            "pools": records.POOL,
            "answers": records.ANSWER,
        }
        empty |= {"drawn": records.DRAWN, "due": np.int32, "rules": np.int16}
        empty |= dict.fromkeys(("arrival_s", "predicted", "setting_s", "drawn_setting_s"), np.float64)
        filled = {
            "numbers": numbers,
            "layouts": layouts,
            "lines": lines,
            "kinds": np.zeros(classes.COUNT, dtype=records.KIND),
            "bins": np.zeros(16, dtype=records.BIN),
            "tables": tables,
            "places": places,
            "events": np.full(2, math.inf),
            "loads": np.full(2, math.inf),
            "gap_edges_s": GAP_EDGES_S.astype(np.float64),
            "gap_counts": np.zeros(len(GAP_EDGES_S) + 1, dtype=np.int64),
            "first_edges_s": FIRST_EDGES_S,
            "prompt_edges": PROMPT_EDGES,
            "scratch": np.zeros(calendar_room, dtype=np.int64),
            "told": np.zeros(8),
            "running": np.zeros(6 * calendar_room),
            "waiting": np.zeros(256),
            "answer": np.zeros(2),
        }
        return records.State(
            *(
                column_of(filled[name] if name in filled else np.zeros(0, dtype=empty.get(name, np.int64)))
                for name in records.State._fields
            )
        )

    def _first_numbers(self, seed: int) -> np.ndarray:
        cluster, deadlines = self.cluster, self.cluster.deadlines
        one = np.zeros(1, dtype=records.NUMBERS)
        numbers = one[0]
        numbers["bin_s"] = numbers["bin_end_s"] = self.bin_s
        numbers["tbt_s"], numbers["late_share"] = deadlines.tbt_s, 1 - deadlines.share
        numbers["end_to_end_s"] = math.inf if deadlines.end_to_end_s is None else deadlines.end_to_end_s
        numbers["more"], numbers["alone"] = 1, self.alone
        numbers["spare"] = numbers["unplaced"] = numbers["last_unplaced"] = -1
        numbers["predicts"], numbers["router"] = self.predict is not None, int(self.router)
        numbers["random"] = seed & 0xFFFFFFFF
        numbers["ttft_classes"], numbers["gap_bins"], numbers["leaves"] = len(deadlines.ttft_s), len(GAP_EDGES_S), 1
        numbers["first_bins"], numbers["prompt_bins"] = len(FIRST_EDGES_S) + 1, len(PROMPT_EDGES) + 1
        numbers["prompt_below_0"], numbers["prompt_below_1"] = classes.PROMPT_BELOW
        numbers["output_below_0"], numbers["output_below_1"] = classes.OUTPUT_BELOW
        numbers["calendar_room"] = max(each.most_running for each in cluster.layouts) + 1
        numbers["rule_room"] = int(numbers["calendar_room"]) + records.BACKLOGS
        numbers["due_room"] = max(each.block_tokens for each in cluster.layouts)
        return one

    @property
    def numbers(self) -> Any:
        """The numbers of the run."""
        return row_of(self.arrays.numbers, 0)

    # ---- the run

    def served(self) -> ClusterServed:
        """Run, and what came of it."""
        self.run()
        return self._served(float(self.numbers.now_s))

    def get_ready(self, slots: int) -> None:
        """Have the controller begin, all requests come, and room for a number of them in the cluster at once."""
        self._act(0.0, self.controller.begin(self.cluster), begins=True)
        self._arrange(0.0)
        while self.numbers.more:
            self._next_part()
        self._more_slots(slots)

    def run(self) -> None:
        """Go on until all requests are answered, or nothing can be done for those that are left."""
        numbers = self.numbers
        self._act(0.0, self.controller.begin(self.cluster), begins=True)
        visits, visit_s, stuck_s = 0, self.controller.period_s, math.inf
        while True:
            self._arrange(float(numbers.now_s))
            until_s = min(visit_s, self.timers[0][0] if self.timers else math.inf)
            why = self._run(until_s)
            if why == records.DONE:
                break
            if why == records.UNTIL:
                if until_s == math.inf:
                    break
                numbers.now_s = until_s
                self._cover(until_s)
                if self.timers and self.timers[0][0] == until_s:
                    self._fail_or_back(until_s)
                    continue
                idle = numbers.next == numbers.requests and not numbers.more and numbers.left == numbers.unplaced_count
                stuck_s = min(stuck_s, until_s) if idle else math.inf
                if until_s - stuck_s > _PATIENCE_S:
                    break
                visits += 1
                visit_s = (visits + 1) * self.controller.period_s
                self._act(until_s, self.controller.control(self._view(until_s)))
            elif why == records.EMPTY:
                self._emptied(int(numbers.which), float(numbers.now_s))
            elif why == records.READY:
                self._begin(int(numbers.which), float(numbers.now_s))
            elif why == records.SLOTS:
                self._more_slots()
            elif why == records.MORE:
                self._next_part()
            elif why == records.BINS:
                self._cover(2 * len(self.arrays.bins) * self.bin_s)
            else:
                self._refuse(int(numbers.which))

    def _run(self, until_s: float) -> int:
        """As :func:`core.run`, and policies are asked on the way."""
        while (why := core.run(self.arrays, until_s)) == records.ASK:
            each = self.instances[int(self.arrays.told[0])]
            policy, answer = each.policy, self.arrays.answer
            assert policy is not None, "only steered instances ask their policy"
            choice = policy.choose(self._look_into())
            check_setting(choice.setting, self.cluster.layouts[each.layout], policy)
            answer[0], answer[1] = choice
        return why

    def _look_into(self) -> View:
        """An instance as its policy sees it."""
        arrays = self.arrays
        number, now_s, setting, asked, made, free, runs, waits = map(float, arrays.told)
        if 4 * waits > len(arrays.waiting):
            self.arrays = arrays = arrays._replace(waiting=column_of(np.zeros(8 * int(waits))))
            core.act(core.LOOK_INTO, arrays, int(number), 0.0, 0.0)
        running, waiting = (
            np.array(values[: rows * int(count)], dtype=np.float64).reshape(rows, -1)
            for values, rows, count in ((arrays.running, 6, runs), (arrays.waiting, 4, waits))
        )
        told = partial(self._reading, int(number))
        return View(now_s, int(setting), int(asked), int(made), int(free), *running, *waiting, reading=told)

    def _reading(self, number: int) -> ServerReading:
        """What an instance says of itself."""
        instance, arrays = row_of(self.arrays.instances, number), self.arrays
        engine = self.cluster.layouts[self.instances[number].layout]
        gaps, first, prompts = (
            np.asarray(counts[number * width : (number + 1) * width], dtype=np.intp)
            for counts, width in (
                (arrays.own_gap_counts, len(GAP_EDGES_S) + 1),
                (arrays.first_counts, len(FIRST_EDGES_S) + 1),
                (arrays.prompt_counts, len(PROMPT_EDGES) + 1),
            )
        )
        counted = Counted(gaps, first, prompts, int(instance.prompt_tokens))
        return reading(
            engine, int(instance.running), int(instance.waiting + instance.prefilling), int(instance.free), counted
        )

    def _next_part(self) -> None:
        """The requests that come next; those whose part is answered go."""
        self._hand_over(False)
        numbers, part = self.numbers, next(self.later, None)
        if part is None:
            numbers.more = 0
            return
        if not len(part):
            return
        _check_fit(part, self.cluster, int(numbers.requests))
        if part.arrival_s[0] < self.last_s:
            raise BadInputError("a part of the requests begins before the previous one ends; pass them in order")
        self.last_s = float(part.arrival_s[-1])
        self.parts.append(part)
        self._cover(self.last_s)
        answers = np.zeros(len(part), dtype=records.ANSWER)
        answers["sent_s"] = answers["first_s"] = answers["finish_s"] = math.nan
        answers["instance"] = records.PENDING
        cached = np.zeros(len(part), dtype=np.int64) if part.cached_tokens is None else part.cached_tokens
        arrays = self.arrays
        self.arrays = arrays._replace(
            arrival_s=_longer(arrays.arrival_s, part.arrival_s.astype(np.float64, copy=False)),
            prompt=_longer(arrays.prompt, part.prompt_tokens.astype(np.int64, copy=False)),
            cached=_longer(arrays.cached, cached.astype(np.int64, copy=False)),
            output=_longer(arrays.output, part.output_tokens.astype(np.int64, copy=False)),
            answers=_longer(arrays.answers, answers),
        )
        if self.predict is not None:
            told = np.asarray(self.predict(part), dtype=np.float64)
            self.arrays = self.arrays._replace(predicted=_longer(arrays.predicted, told))
        numbers.requests += len(part)
        numbers.left += len(part)

    def _hand_over(self, all_of_them: bool) -> None:
        """Parts of the requests that are answered."""
        while self.parts:
            part, arrays = self.parts[0], self.arrays
            count = len(part)
            head = arrays.answers[:count]
            instance = values_of(head, "instance").astype(np.intp)
            if not all_of_them and (instance == records.PENDING).any():
                return
            sent_s, first_s, finish_s = (values_of(head, name).copy() for name in ("sent_s", "first_s", "finish_s"))
            late = values_of(head, "late").astype(np.intp)
            answers = Answers(instance, sent_s, first_s, finish_s, late)
            at = (part.arrival_s / self.bin_s).astype(np.intp) * classes.COUNT
            at += classes.class_of(part.prompt_tokens, part.output_tokens)
            self.arrivals = _added(self.arrivals, at)
            self.missed = _added(self.missed, at[~self.cluster.deadlines.kept(part, answers)])
            self.answered(part, answers)
            del self.parts[0]
            self.numbers.gone += count
            self.arrays = arrays._replace(
                arrival_s=arrays.arrival_s[count:],
                prompt=arrays.prompt[count:],
                cached=arrays.cached[count:],
                output=arrays.output[count:],
                predicted=arrays.predicted[count:],
                answers=arrays.answers[count:],
            )

    def _cover(self, until_s: float) -> None:
        """The timeline reaches beyond a time."""
        missing = int(until_s / self.bin_s) + 3 - len(self.arrays.bins)
        if missing > 0:
            more = np.zeros(max(missing, len(self.arrays.bins)), dtype=records.BIN)
            self.arrays = self.arrays._replace(bins=_longer(self.arrays.bins, more))

    def _more_slots(self, least: int = 1024) -> None:
        had = len(self.arrays.slots)
        more = np.zeros(max(had, least), dtype=records.SLOT)
        more["after"] = np.arange(had + 1, had + len(more) + 1)
        more["after"][-1] = -1
        self.arrays = self.arrays._replace(slots=_longer(self.arrays.slots, more))
        self.numbers.spare = had

    def _refuse(self, which: int) -> None:
        """Say of which step the tables know nothing."""
        instance = row_of(self.arrays.instances, which)
        tables = self.cluster.layouts[self.instances[which].layout].tables
        setting, tokens, batch = int(instance.setting), int(instance.step_tokens), int(instance.step_batch)
        past, context = float(instance.past_tokens), float(instance.mean_context)
        if tokens and batch:
            tables.mixed(setting, tokens, past, batch, context)
        elif tokens:
            tables.prefill(setting, tokens, past)
        else:
            tables.decode(setting, batch, context)
        raise AssertionError("the tables cover a step that the simulator could not make")

    def _view(self, now_s: float) -> ClusterView:
        count, arrays, numbers = len(self.instances), self.arrays, self.numbers
        seen = [column_of(np.zeros(count, dtype=np.int64)) for _ in range(5)]
        core.look(arrays, now_s, *seen)
        at_router = [column_of(np.zeros(classes.COUNT, dtype=np.int64)) for _ in range(2)]
        if numbers.unplaced_count:
            router.look_held(arrays, now_s, *at_router)
        kinds = {name: values_of(arrays.kinds, name).copy() for name in records.KIND.names or ()}
        for name in kinds:
            _assign(arrays.kinds, name, np.arange(classes.COUNT), np.zeros(classes.COUNT, dtype=records.KIND[name]))
        state, layout, pool, host = self.known[:, :count].copy()
        setting, running, waiting, waiting_tokens, context = (np.asarray(each, dtype=np.intp) for each in seen)
        held, held_late = (np.asarray(each, dtype=np.intp) for each in at_router)
        return ClusterView(
            now_s, state, layout, pool, host, setting, running, waiting, waiting_tokens, context, self.free.copy(),
            kinds["arrivals"], kinds["prompt_tokens"], kinds["output_tokens"], kinds["finished"], kinds["missed"],
            int(numbers.unplaced_count), held, held_late,
        )  # fmt: skip

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
        tree_at = np.concatenate([[0], np.cumsum(2 * leaves)])
        leaf = np.arange(len(members)) - begins[pool[members]]
        loads = np.full(int(tree_at[-1]), math.inf)
        name = "tokens_left" if self.numbers.router == records.LEAST_TOKENS else "requests"
        pools = np.zeros(count, dtype=records.POOL)
        for limit, of_pools in (("room", self.room), ("hold", self.hold)):
            pools[limit] = np.iinfo(np.int64).max
            pools[limit][: len(of_pools)] = of_pools[:count]
        full = values_of(self.arrays.instances, "waiting_tokens")[members] >= pools["hold"][pool[members]]
        load = np.where(full, math.inf, values_of(self.arrays.instances, name)[members])
        loads[tree_at[pool[members]] + leaves[pool[members]] + leaf] = load
        pools["tree_at"], pools["leaves"], pools["members_at"], pools["ready"] = tree_at[:-1], leaves, begins, ready
        everyone = np.arange(len(self.instances))
        _assign(self.arrays.instances, "leaf", everyone, np.full(len(everyone), -1))
        _assign(self.arrays.instances, "leaf", members, leaf)
        _assign(self.arrays.instances, "pool", everyone, pool)
        routes = np.full((classes.COUNT, count), -1, dtype=np.int64)
        for kind in range(classes.COUNT):
            named = range(count) if self.routes is None else self.routes[kind]
            routes[kind, : len(named)] = named
        loads_column = column_of(loads)
        for each in range(count):
            trees.grow_tree(loads_column, int(tree_at[each]), int(leaves[each]))
        self.numbers.pools = count
        self.arrays = self.arrays._replace(
            pools=column_of(pools),
            loads=loads_column,
            members=column_of(members.astype(np.int64)),
            routes=column_of(routes.ravel()),
        )
        core.act(core.PLACE, self.arrays, 0, now_s, 0.0)

    # ---- instances come, change and go

    def _new(
        self, layout: int, pool: int, host: int, clock: ClockRule | Steered | None, state: InstanceState, now_s: float
    ) -> int:
        """One more instance; its number."""
        engine, number = self.cluster.layouts[layout], len(self.instances)
        clock = ClockRule.fixed(len(engine.tables.settings) - 1, engine) if clock is None else clock
        if not self.rooms:
            self._more_rooms()
        room = self.rooms.pop()
        self.instances.append(_Instance(layout, pool, host, clock, state, now_s, room))
        if number >= len(self.arrays.instances):
            self._more_instances()
        if number >= self.known.shape[1]:
            self.known = np.concatenate([self.known, np.zeros_like(self.known)], axis=1)
        self.known[:, number] = state, layout, pool, host
        instance = row_of(self.arrays.instances, number)
        instance.layout, instance.pool, instance.room, instance.rule = layout, pool, room, room * self.rule_room
        instance.leaf, instance.doing = -1, records.AWAY
        self._set_clock(number, clock)
        self.free[host] -= engine.gpus
        self.on_host[host] += 1
        if self.on_host[host] == 1:
            self.used_since[host] = now_s
        self.stale = True
        return number

    def _more_rooms(self) -> None:
        numbers = self.numbers
        had = len(self.arrays.due) // int(numbers.due_room)
        more = max(had, 8)
        self.arrays = self.arrays._replace(
            ends=_longer(self.arrays.ends, np.zeros(more * int(numbers.calendar_room), dtype=np.int64)),
            due=_longer(self.arrays.due, np.zeros(more * int(numbers.due_room), dtype=np.int32)),
            rules=_longer(self.arrays.rules, np.zeros(more * int(numbers.rule_room), dtype=np.int16)),
        )
        self.rooms.extend(range(had + more - 1, had - 1, -1))

    def _more_instances(self) -> None:
        had = len(self.arrays.instances)
        instances = _longer(self.arrays.instances, np.zeros(max(had, 8), dtype=records.INSTANCE))
        count = len(instances)
        leaves = 1 << (count - 1).bit_length()
        events = np.full(2 * leaves, math.inf)
        events[leaves : leaves + had] = self.arrays.events[int(self.numbers.leaves) :][:had]
        column = column_of(events)
        trees.grow_tree(column, 0, leaves)
        self.numbers.leaves = leaves
        more, arrays = count - had, self.arrays
        self.arrays = arrays._replace(
            instances=instances,
            events=column,
            own_gap_counts=_longer(arrays.own_gap_counts, np.zeros(more * (len(GAP_EDGES_S) + 1), dtype=np.int64)),
            first_counts=_longer(arrays.first_counts, np.zeros(more * (len(FIRST_EDGES_S) + 1), dtype=np.int64)),
            prompt_counts=_longer(arrays.prompt_counts, np.zeros(more * (len(PROMPT_EDGES) + 1), dtype=np.int64)),
        )

    def _set_clock(self, number: int, clock: ClockRule | Steered) -> None:
        each, rule = self.instances[number], clock
        engine = self.cluster.layouts[each.layout]
        each.clock, each.policy = clock, None
        if isinstance(rule, Steered):
            each.policy = rule.make()
            begins = each.policy.begin(engine, self.cluster.deadlines)
            check_setting(begins, engine, each.policy)
            rule = ClockRule.fixed(begins, engine)
        row_of(self.arrays.instances, number).steered = each.policy is not None
        at, room, rules = int(row_of(self.arrays.instances, number).rule), self.rule_room, self.arrays.rules
        whole = np.empty(room, dtype=np.int16)
        batches, backlog = len(rule.by_batch), (*rule.backlog, *(rule.backlog or (rule.prompts,))[-1:] * records.BACKLOGS)
        whole[:batches], whole[batches : -records.BACKLOGS] = rule.by_batch, 0
        whole[-records.BACKLOGS :] = (rule.prompts, *backlog)[: records.BACKLOGS]
        rules[at : at + room] = whole if COMPILED else whole.tolist()

    def _turn(self, number: int, state: InstanceState, now_s: float) -> None:
        """An instance is in another state from now on."""
        each = self.instances[number]
        gpus = self.cluster.layouts[each.layout].gpus
        self._span(each, now_s)
        was, each.state, each.since_s = each.state, state, now_s
        self.known[0, number] = state
        row_of(self.arrays.instances, number).state = int(state)
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
        core.act(core.BEGIN, self.arrays, number, now_s, 0.0)

    def _away(self, number: int, state: InstanceState, now_s: float, until_s: float = math.inf) -> None:
        """An instance that has nothing to do is in a state in which it serves nobody, until a time."""
        core.act(core.LEAVE, self.arrays, number, now_s, until_s)
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
            core.act(core.LEAVE, self.arrays, number, now_s, now_s + self.cluster.changes.reshard_s)

    def _drain(self, number: int, after: InstanceState | _Resharding | None, now_s: float) -> None:
        self.instances[number].after = after
        self._turn(number, _DRAINING, now_s)
        if not row_of(self.arrays.instances, number).requests:
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
            rerouted += core.act(core.FAIL, self.arrays, number, now_s, 0.0)
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
                        raise _RefusedError(f"instance {action.instance} is not draining to be parked")
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
                self._set_clock(action.instance, action.clock)
                core.act(core.HEED, self.arrays, action.instance, now_s, 0.0)
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
        self.routes, self.room, self.hold, self.stale = route.pools, route.room, route.hold, True
        numbers = self.numbers
        numbers.holds = bool(route.hold)
        numbers.router = int(self.router if route.router is None else route.router)

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

    def _check_rule(self, rule: ClockRule | Steered, layout: int) -> None:
        if self.checked.get(layout) is rule or isinstance(rule, Steered):
            return
        engine = self.cluster.layouts[layout]
        settings = len(engine.tables.settings)
        if len(rule.by_batch) != engine.most_running + 1:
            raise _RefusedError(
                f"a clock rule for batches up to {len(rule.by_batch) - 1}; layout {layout} has {engine.most_running}"
            )
        named = (*rule.by_batch, rule.prompts, *rule.backlog)
        if not (min(named) >= 0 and max(named) < settings):
            raise _RefusedError(f"a clock rule with an unknown setting; settings are 0 to {settings - 1}")
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
            core.act(core.LEAVE, self.arrays, number, now_s, now_s + self.cluster.changes.start_s[action.layout])

    def _begin_reshard(self, action: Reshard, now_s: float) -> None:
        self._check_pool(action.pool)
        if not action.instances or not action.layouts or len(set(action.instances)) != len(action.instances):
            raise _RefusedError("re-sharding takes at least one instance, each at most once, and makes at least one")
        each = [self._of(number, _SERVING) for number in action.instances]
        if len({one.host for one in each}) > 1:
            raise _RefusedError("instances of several hosts cannot be re-sharded together")
        gpus = sum(self.cluster.layouts[one.layout].gpus for one in each)
        wanted = sum(self._check_layout(layout).gpus for layout in action.layouts)
        if wanted > gpus:
            raise _RefusedError(f"{wanted} GPUs are requested from instances that have {gpus}")
        resharding = _Resharding(action)
        for number in action.instances:
            self._drain(number, resharding, now_s)

    # ---- what came of it

    def _served(self, end_s: float) -> ClusterServed:
        self._cover(end_s)
        arrays, numbers, changes = self.arrays, self.numbers, self.cluster.changes
        for number, each in enumerate(self.instances):
            core.act(core.SETTLE, arrays, number, end_s, 0.0)
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
        energy_j = {kind: float(getattr(numbers, f"{kind}_j")) for kind in records.KINDS}
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
            np.asarray(arrays.gap_counts, dtype=np.intp),
            int(numbers.switches),
            self._timeline(edges_s, gpus, sum(used.values(), np.zeros(bins))),
            self.log,
        )

    def _timeline(self, edges_s: FloatArray, gpus: FloatArray, used_j: FloatArray) -> ClusterTimeline:
        arrays, bins = self.arrays, len(used_j)
        width_s = np.diff(edges_s)
        lasted_s = np.where(width_s > 0, width_s, 1.0)
        energy_j = used_j.copy()
        drawn_j, clock = values_of(arrays.bins, "energy_j"), values_of(arrays.bins, "clock")
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
