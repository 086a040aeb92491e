"""The hosts and instances of a simulated cluster: they come, change, fail and go."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.serving.bench.server_metrics import ServerReading
from wastenot.serving.cluster import classes
from wastenot.serving.cluster.model import ClockRule, Cluster, Failure, InstanceState, LoggedAction, Reshard, Steered
from wastenot.serving.cluster.simulation import core, records, trees
from wastenot.serving.cluster.simulation.records import assign, column_of, longer, row_of, values_of
from wastenot.serving.model.compiled import COMPILED
from wastenot.serving.simulation.metrics import FIRST_EDGES_S, PROMPT_EDGES, reading
from wastenot.serving.simulation.policy import Policy, View, check_setting
from wastenot.serving.simulation.served import GAP_EDGES_S

OFF, STARTING, SERVING, DRAINING, PARKED, WAKING, RESHARDING, FAILED = InstanceState
IN_USE = (STARTING, SERVING, DRAINING, PARKED, WAKING, RESHARDING)


@dataclass(slots=True, eq=False)
class Instance:
    """What is known of an instance besides its requests."""

    layout: int  # its engine
    pool: int  # that it belongs to
    host: int  # that its GPUs are in
    clock: ClockRule | Steered  # the rule that it follows, or what it is steered by
    state: InstanceState  # what it is doing
    since_s: float  # since when
    room: int  # its place in arrays of which each instance in use has a part; -1 where it has none
    policy: Policy | None = None  # that steers it
    # what happens when it is drained: ``None`` and it is off, ``PARKED``, or a re-sharding
    after: InstanceState | Resharding | None = None


@dataclass(slots=True, eq=False)
class Resharding:
    """Instances on their way to become others."""

    action: Reshard
    drained: set[int] = field(default_factory=set)


class Spans:
    """Times during which something was so, with a weight: GPUs, or one for a host."""

    def __init__(self) -> None:
        self.begin_s: list[float] = []
        self.end_s: list[float] = []
        self.weight: list[float] = []

    def add(self, begin_s: float, end_s: float, weight: float) -> None:
        """One more; none where it is empty."""
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


class Fleet:
    """Hosts and instances; what is between these and their requests is the core's.

    Args:
        cluster: whose they are.
        failures: of hosts.
        arrays: the state of the run as the core has it.

    Attributes:
        instances: each that ever was, by its number.
        known: state, layout, pool and host of each, in rows.
        free: GPUs of each host that no instance has.
        failed: hosts that have failed and are not back, with the time since when.
        spans: GPUs by the state that their instances were in.
        serving: instances that served, by layout.
        host_spans: hosts in use.
        timers: what is due of failures.
        log: of actions and failures.
        routes, room, hold: as of the latest :class:`Route`.
        stale: whether the router does not know yet which instances serve.
    """

    def __init__(self, cluster: Cluster, failures: Sequence[Failure], arrays: records.State) -> None:
        self.cluster, self.arrays = cluster, arrays
        self.instances: list[Instance] = []
        self.known = np.zeros((4, 8), dtype=np.intp)
        self._rooms: list[int] = []
        self.free = np.full(cluster.hosts, cluster.gpus_per_host, dtype=np.intp)
        self.failed: dict[int, float] = {}
        self._used_since: dict[int, float] = {}
        self._on_host = np.zeros(cluster.hosts, dtype=np.intp)
        self.spans = {state: Spans() for state in InstanceState}
        self.serving = [Spans() for _ in cluster.layouts]
        self.host_spans = Spans()
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

    @property
    def numbers(self) -> Any:
        """The numbers of the run."""
        return row_of(self.arrays.numbers, 0)

    def look_into(self) -> View:
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
        running, waiting = int(instance.running), int(instance.waiting + instance.prefilling)
        return reading(engine, running, waiting, int(instance.free), gaps, first, prompts, int(instance.prompt_tokens))

    def arrange(self, now_s: float) -> None:
        """The instances that serve, by pool, for the router."""
        if not self.stale:
            return
        self.stale = False
        state, layout, pool, _ = self.known[:, : len(self.instances)]
        count = 1 + max(int(pool.max(initial=0)), max((max(each, default=0) for each in self.routes or ()), default=0))
        serving = np.flatnonzero(state == SERVING)
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
        assign(self.arrays.instances, "leaf", everyone, np.full(len(everyone), -1))
        assign(self.arrays.instances, "leaf", members, leaf)
        assign(self.arrays.instances, "pool", everyone, pool)
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

    def new(
        self, layout: int, pool: int, host: int, clock: ClockRule | Steered | None, state: InstanceState, now_s: float
    ) -> int:
        """One more instance; its number."""
        engine, number = self.cluster.layouts[layout], len(self.instances)
        clock = ClockRule.fixed(len(engine.tables.settings) - 1, engine) if clock is None else clock
        if not self._rooms:
            self._more_rooms()
        room = self._rooms.pop()
        self.instances.append(Instance(layout, pool, host, clock, state, now_s, room))
        if number >= len(self.arrays.instances):
            self._more_instances()
        if number >= self.known.shape[1]:
            self.known = np.concatenate([self.known, np.zeros_like(self.known)], axis=1)
        self.known[:, number] = state, layout, pool, host
        instance = row_of(self.arrays.instances, number)
        instance.layout, instance.pool, instance.room, instance.rule = layout, pool, room, room * int(self.numbers.rule_room)
        instance.leaf, instance.doing = -1, records.AWAY
        self.set_clock(number, clock)
        self.free[host] -= engine.gpus
        self._on_host[host] += 1
        if self._on_host[host] == 1:
            self._used_since[host] = now_s
        self.stale = True
        return number

    def _more_rooms(self) -> None:
        numbers = self.numbers
        had = len(self.arrays.due) // int(numbers.due_room)
        more = max(had, 8)
        self.arrays = self.arrays._replace(
            ends=longer(self.arrays.ends, np.zeros(more * int(numbers.calendar_room), dtype=np.int64)),
            due=longer(self.arrays.due, np.zeros(more * int(numbers.due_room), dtype=np.int32)),
            rules=longer(self.arrays.rules, np.zeros(more * int(numbers.rule_room), dtype=np.int16)),
        )
        self._rooms.extend(range(had + more - 1, had - 1, -1))

    def _more_instances(self) -> None:
        had = len(self.arrays.instances)
        instances = longer(self.arrays.instances, np.zeros(max(had, 8), dtype=records.INSTANCE))
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
            own_gap_counts=longer(arrays.own_gap_counts, np.zeros(more * (len(GAP_EDGES_S) + 1), dtype=np.int64)),
            first_counts=longer(arrays.first_counts, np.zeros(more * (len(FIRST_EDGES_S) + 1), dtype=np.int64)),
            prompt_counts=longer(arrays.prompt_counts, np.zeros(more * (len(PROMPT_EDGES) + 1), dtype=np.int64)),
        )

    def set_clock(self, number: int, clock: ClockRule | Steered) -> None:
        """An instance follows a rule, or a policy of its own, from now on."""
        each, rule = self.instances[number], clock
        engine = self.cluster.layouts[each.layout]
        each.clock, each.policy = clock, None
        if isinstance(rule, Steered):
            each.policy = rule.make()
            begins = each.policy.begin(engine, self.cluster.deadlines)
            check_setting(begins, engine, each.policy)
            rule = ClockRule.fixed(begins, engine)
        row_of(self.arrays.instances, number).steered = each.policy is not None
        at, room, rules = int(row_of(self.arrays.instances, number).rule), int(self.numbers.rule_room), self.arrays.rules
        whole = np.empty(room, dtype=np.int16)
        batches, backlog = len(rule.by_batch), (*rule.backlog, *(rule.backlog or (rule.prompts,))[-1:] * records.BACKLOGS)
        whole[:batches], whole[batches : -records.BACKLOGS] = rule.by_batch, 0
        whole[-records.BACKLOGS :] = (rule.prompts, *backlog)[: records.BACKLOGS]
        rules[at : at + room] = whole if COMPILED else whole.tolist()

    def turn(self, number: int, state: InstanceState, now_s: float) -> None:
        """An instance is in another state from now on."""
        each = self.instances[number]
        gpus = self.cluster.layouts[each.layout].gpus
        self._span(each, now_s)
        was, each.state, each.since_s = each.state, state, now_s
        self.known[0, number] = state
        row_of(self.arrays.instances, number).state = int(state)
        self.stale = True
        if was in IN_USE and state not in IN_USE:
            self._on_host[each.host] -= 1
            if not self._on_host[each.host]:
                self.host_spans.add(self._used_since.pop(each.host), now_s, 1.0)
            if each.host not in self.failed:
                self.free[each.host] += gpus
            self._rooms.append(each.room)
            each.room = -1

    def _span(self, each: Instance, now_s: float) -> None:
        gpus = self.cluster.layouts[each.layout].gpus
        self.spans[each.state].add(each.since_s, now_s, gpus)
        if each.state == SERVING:
            self.serving[each.layout].add(each.since_s, now_s, 1.0)

    def begin(self, number: int, now_s: float) -> None:
        """An instance serves from now on."""
        self.turn(number, SERVING, now_s)
        core.act(core.BEGIN, self.arrays, number, now_s, 0.0)

    def away(self, number: int, state: InstanceState, now_s: float, until_s: float = math.inf) -> None:
        """An instance that has nothing to do is in a state in which it serves nobody, until a time."""
        core.act(core.LEAVE, self.arrays, number, now_s, until_s)
        self.turn(number, state, now_s)

    def emptied(self, number: int, now_s: float) -> None:
        """An instance that drains has nothing left."""
        after = self.instances[number].after
        if isinstance(after, Resharding):
            after.drained.add(number)
            if len(after.drained) == len(after.action.instances):
                self._reshard(after.action, now_s)
        elif after is None:
            self.away(number, OFF, now_s)
        else:
            self.away(number, after, now_s)

    def _reshard(self, action: Reshard, now_s: float) -> None:
        host = self.instances[action.instances[0]].host
        for number in action.instances:
            self.away(number, OFF, now_s)
        for layout in action.layouts:
            number = self.new(layout, action.pool, host, None, RESHARDING, now_s)
            core.act(core.LEAVE, self.arrays, number, now_s, now_s + self.cluster.changes.reshard_s)

    def drain(self, number: int, after: InstanceState | Resharding | None, now_s: float) -> None:
        """An instance finishes what it has; what happens then is as for :class:`Instance`."""
        self.instances[number].after = after
        self.turn(number, DRAINING, now_s)
        if not row_of(self.arrays.instances, number).requests:
            self.emptied(number, now_s)

    def fail_or_back(self, now_s: float) -> None:
        """What is due of failures."""
        _, order, failure = heapq.heappop(self.timers)
        host = failure.host
        if order % 2:
            if self.failed.get(host) == failure.at_s:
                self.spans[FAILED].add(self.failed.pop(host), now_s, self.cluster.gpus_per_host)
                self.free[host] = self.cluster.gpus_per_host
            return
        if host in self.failed:
            return
        self.failed[host], rerouted = now_s, 0
        self.free[host] = 0
        for number, each in enumerate(self.instances):
            if each.host != host or each.state not in IN_USE:
                continue
            rerouted += core.act(core.FAIL, self.arrays, number, now_s, 0.0)
            self.turn(number, FAILED, now_s)
        self.log.append(LoggedAction(now_s, failure, rerouted=rerouted))
        self.stale = True

    def settle(self, end_s: float) -> None:
        """The run has ended: what lasts until then is counted."""
        for number, each in enumerate(self.instances):
            core.act(core.SETTLE, self.arrays, number, end_s, 0.0)
            if each.state in IN_USE:
                self._span(each, end_s)
        for since_s in self.failed.values():
            self.spans[FAILED].add(since_s, end_s, self.cluster.gpus_per_host)
        for since_s in self._used_since.values():
            self.host_spans.add(since_s, end_s, 1.0)
