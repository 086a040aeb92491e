"""DynamoLLM's three levels as they are published (HPCA'25), and each of its knobs alone.

    cluster   30 min   instances by class for the peak that is expected     plans with the largest layout at full speed
    pool       5 min   layouts on the GPUs of a pool                        plans at full speed
    instance     5 s   the clock                                            by the batch of the moment

A pool holds its GPUs in *units*, as many as the largest layout has, each on one host: an instance of the largest layout or
several smaller ones. New instances are asked for when their period begins and serve when they have started. Units that a
failed host takes along are asked for again at once, or when there are GPUs for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.serving.cluster.classes import COUNT
from wastenot.serving.cluster.controllers.fixed import room_of, taken, with_somewhere
from wastenot.serving.cluster.demand import Demand
from wastenot.serving.cluster.frontiers import InstanceFrontier, greatest
from wastenot.serving.cluster.model import (
    Action,
    Assign,
    ClockRule,
    Cluster,
    ClusterView,
    InstanceState,
    Reshard,
    Route,
    SetClock,
    Start,
    Stop,
)
from wastenot.serving.cluster.profiles import Profiles
from wastenot.serving.cluster.sharding import Option, Sharding, Sizing, shardings, sized, worth_it

CLUSTER_S, POOL_S, INSTANCE_S = 1800.0, 300.0, 5.0
"""Periods of the three levels."""
_CROWDED = 2.0
"""Steps' worth of prompts that wait: the highest clock, whatever was planned."""


@dataclass(slots=True, eq=False)
class Dynamo:
    """Instances, layouts and clocks, each level planned as if those below were at full performance.

    Attributes:
        profiles: of the cluster.
        demand: that is expected.
        name: for tables and pictures.
        instances: whether pools are sized again; otherwise they stay as they were for the peak of all times.
        shards: whether layouts are changed; otherwise all instances have the largest.
        clocks: whether clocks are; otherwise all have the greatest.
        head_room: above the load that is expected.
        lasts_s: of the service, the time whose peak pools are sized for where they are not sized again.
    """

    profiles: Profiles
    demand: Demand
    name: str = "DynamoLLM"
    instances: bool = True
    shards: bool = True
    clocks: bool = True
    head_room: float = 0.0
    lasts_s: float = 7 * 86_400.0
    period_s: float = INSTANCE_S
    _sizing: Sizing = field(init=False, repr=False)
    _next_s: list[float] = field(init=False, repr=False)
    _set: dict[int, int] = field(init=False, repr=False)

    def begin(self, cluster: Cluster) -> Sequence[Action]:
        """The pools of the first period, sharded for its beginning."""
        self._next_s, self._set = [CLUSTER_S, POOL_S], {}
        self._sizing = self._sized(0.0)
        actions: list[Action] = []
        for pool, count in enumerate(self._sizing.instances):
            plan = self._plan(pool, count * self._unit, self._rates(0.0)) if self.shards and count else None
            for unit in self._units_of(plan, count):
                actions += [Start(layout, pool, greatest(cluster.layouts[layout])) for layout in unit]
        actions.sort(key=lambda each: -cluster.layouts[each.layout].gpus if isinstance(each, Start) else 0)
        return [*actions, self._route()]

    def control(self, view: ClusterView) -> Sequence[Action]:
        """The levels whose periods are over, from the top."""
        self.demand.see(view)
        actions: list[Action] = []
        if view.now_s >= self._next_s[0] - 1e-9:
            self._next_s[0] += CLUSTER_S
            if self.instances:
                actions += self._size(view)
        elif view.now_s >= self._next_s[1] - 1e-9:
            self._next_s[1] += POOL_S
            if self.shards:
                actions += self._shard(view)
        elif (view.state == InstanceState.FAILED).any():
            actions += self._restart(view)
        if self.clocks:
            actions += self._clock(view)
        return actions

    # ---- instances --------------------------------------------------------------------------------------------------

    @property
    def _unit(self) -> int:
        """GPUs that pools are counted in."""
        return self.profiles.cluster.layouts[-1].gpus

    def _sized(self, now_s: float) -> Sizing:
        until_s = now_s + CLUSTER_S if self.instances else self.lasts_s
        peak = self.demand.peak(now_s, until_s) * (1 + self.head_room)
        found = sized(peak, self.profiles.capacity_by_class(len(self.profiles.cluster.layouts) - 1))
        most = self.profiles.cluster.gpus // self._unit
        if sum(found.instances) <= most:
            return found
        scale = most / sum(found.instances)
        while True:  # as much of the load as there are GPUs for
            found = sized(peak * scale, self.profiles.capacity_by_class(len(self.profiles.cluster.layouts) - 1))
            if sum(found.instances) <= most:
                return found
            scale *= 0.97

    def _route(self) -> Route:
        return Route(with_somewhere(self._sizing.pools), room_of(self.profiles, self._sizing))

    def _size(self, view: ClusterView) -> Iterator[Action]:
        """Units go from pools that shrink to those that grow; what is left is stopped, what is missing started."""
        before, self._sizing = self._sizing, self._sized(view.now_s)
        spare: list[tuple[int, ...]] = []
        missing: list[int] = []
        for pool, count in enumerate(self._sizing.instances):
            own = list(self._groups(view, pool))
            coming = int(((view.pool == pool) & (view.state == InstanceState.STARTING)).sum())
            if len(own) + coming > count:
                spare += own[max(count - coming, 0) :]
            missing += [pool] * max(count - len(own) - coming, 0)
        for pool in missing:
            if spare:
                for instance in spare.pop():
                    yield Assign(instance, pool)
            else:
                layout = len(self.profiles.cluster.layouts) - 1
                yield Start(layout, pool, greatest(self.profiles.cluster.layouts[layout]))
        for group in spare:
            for instance in group:
                yield Stop(instance)
        if self._sizing.pools != before.pools:
            yield self._route()

    def _restart(self, view: ClusterView) -> Iterator[Action]:
        """Whole units that pools have lost, with the largest layout, as far as there are GPUs."""
        layouts, free = self.profiles.cluster.layouts, np.asarray(view.free_gpus).copy()
        gpus = np.array([each.gpus for each in layouts])[view.layout]
        gone = np.isin(view.state, (InstanceState.FAILED, InstanceState.OFF))
        there = np.bincount(view.pool[~gone], weights=gpus[~gone], minlength=COUNT)
        for pool, count in enumerate(self._sizing.instances):
            for _ in range(count - int(there[pool]) // self._unit):
                if taken(free, self._unit):
                    yield Start(len(layouts) - 1, pool, greatest(layouts[-1]))

    # ---- layouts ----------------------------------------------------------------------------------------------------

    def _rates(self, now_s: float) -> FloatArray:
        """Of each class in each pool, over the next period of a pool; shape (9 pools, 9 classes)."""
        expected = np.maximum(self.demand.recent(POOL_S), 0.0) if now_s else self.demand.peak(0.0, POOL_S)
        return self._sizing.shares() * expected * (1 + self.head_room)

    def _options(self, rate_per_s: FloatArray) -> list[Option]:
        found = []
        for layout, engine in enumerate(self.profiles.cluster.layouts):
            known = self.profiles.frontier(layout, rate_per_s, full_speed=True)
            found += [
                Option(layout, engine.gpus, float(rate), float(power))
                for rate, power in zip(known.rate_per_s, known.power_w, strict=True)
            ]
        return found

    def _plan(self, pool: int, gpus: int, rates: FloatArray) -> Sharding | None:
        """Least power on the GPUs of a pool; ``None`` where they cannot take the load or the largest layout does as well."""
        if not rates[pool].sum() > 0:
            return None
        idle_w = float(self.profiles.cluster.layouts[0].tables.idle_power_w.min()) / self.profiles.cluster.layouts[0].gpus
        load = float(rates[pool].sum())
        found = shardings(self._options(rates[pool]), gpus, load, spare_gpu_w=idle_w).on(gpus)
        if found is None:
            return None
        # Spare GPUs are not off, and a router spreads requests over all instances: no plan where the largest layout alone
        # does as well.
        count = gpus // self._unit
        shared_w, largest_w = (self._spread_w(self._units_of(plan, count), rates[pool]) for plan in (found, None))
        return Sharding(found.options, shared_w) if shared_w < largest_w else None

    def _spread_w(self, units: Sequence[tuple[int, ...]], rate_per_s: FloatArray) -> float:
        """Power of instances that get requests by what they can take; inf where that is too little."""
        counts = self._counts(units)
        known = [self.profiles.frontier(layout, rate_per_s, full_speed=True) for layout in range(len(counts))]
        total = sum(count * each.capacity_per_s for count, each in zip(counts, known, strict=True))
        share = float(rate_per_s.sum()) / total if total else np.inf
        if share > 1:
            return float("inf")
        return sum(
            count * float(each.power_at(share * each.capacity_per_s)) for count, each in zip(counts, known, strict=True)
        )

    def _counts(self, units: Sequence[tuple[int, ...]]) -> list[int]:
        """Instances of each layout."""
        return [sum(each.count(layout) for each in units) for layout in range(len(self.profiles.cluster.layouts))]

    def _units_of(self, plan: Sharding | None, count: int) -> list[tuple[int, ...]]:
        """Layouts of each unit; without a plan the largest, and spare GPUs have instances of the smallest."""
        layouts = self.profiles.cluster.layouts
        if plan is None:
            return [(len(layouts) - 1,)] * count
        sizes = sorted((each.layout for each in plan.options), key=lambda layout: -layouts[layout].gpus)
        sizes += [0] * ((count * self._unit - plan.gpus) // layouts[0].gpus)
        units: list[list[int]] = [[]]
        for layout in sizes:
            if sum(layouts[each].gpus for each in units[-1]) + layouts[layout].gpus > self._unit:
                units.append([])
            units[-1].append(layout)
        return [tuple(sorted(each)) for each in units if each]

    def _groups(self, view: ClusterView, pool: int) -> Iterator[tuple[int, ...]]:
        """Units of a pool: its instances on each host that serve, together as many GPUs as a unit has."""
        layouts = self.profiles.cluster.layouts
        own = np.flatnonzero((view.pool == pool) & (view.state == InstanceState.SERVING))
        for host in np.unique(view.host[own]):
            here = sorted(own[view.host[own] == host].tolist(), key=lambda each: (-layouts[view.layout[each]].gpus, each))
            group: list[int] = []
            for instance in here:
                group.append(instance)
                if sum(layouts[view.layout[each]].gpus for each in group) >= self._unit:
                    yield tuple(group)
                    group = []

    def _shard(self, view: ClusterView) -> Iterator[Action]:
        cluster, rates = self.profiles.cluster, self._rates(view.now_s)
        for pool in range(COUNT):
            groups = list(self._groups(view, pool))
            plan = self._plan(pool, len(groups) * self._unit, rates) if groups else None
            if plan is None:
                continue
            there = [tuple(sorted(int(view.layout[each]) for each in group)) for group in groups]
            wanted = self._units_of(plan, len(groups))
            moved = []
            for group, layouts in zip(groups, there, strict=True):
                if layouts in wanted:
                    wanted.remove(layouts)
                else:
                    moved.append(group)
            now_w = self._spread_w(there, rates[pool])
            change_j = len(moved) * self._unit * cluster.changes.start_power_w * cluster.changes.reshard_s
            if worth_it(now_w, plan.power_w, POOL_S, change_j):
                for group, layouts in zip(moved, wanted, strict=False):
                    yield Reshard(group, layouts, pool)

    # ---- clocks -----------------------------------------------------------------------------------------------------

    def _clock(self, view: ClusterView) -> Iterator[Action]:
        known: dict[tuple[int, int], InstanceFrontier] = {}
        rates = self._sizing.rate_per_s
        for instance in np.flatnonzero(view.state == InstanceState.SERVING).tolist():
            pool, layout = int(view.pool[instance]), int(view.layout[instance])
            engine = self.profiles.cluster.layouts[layout]
            if (pool, layout) not in known:
                blend = rates[pool] if rates[pool].sum() > 0 else rates.sum(axis=0)
                known[pool, layout] = self.profiles.frontier(layout, blend)
            setting = self._setting(known[pool, layout], view, instance)
            if self._set.get(instance) != setting:
                self._set[instance] = setting
                yield SetClock(instance, ClockRule.fixed(setting, engine))

    @staticmethod
    def _setting(known: InstanceFrontier, view: ClusterView, instance: int) -> int:
        """Of the level of load that a batch of this size is usual for."""
        top = len(known.engine.tables.settings) - 1
        if not len(known.batch) or view.waiting_tokens[instance] > _CROWDED * known.engine.most_step_tokens:
            return top
        level = int(np.searchsorted(known.batch, view.running[instance] + view.waiting[instance]))
        return int(known.setting[level]) if level < len(known.setting) else top
