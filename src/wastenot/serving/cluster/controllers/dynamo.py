"""DynamoLLM's three levels as they are published (HPCA'25), and each of its knobs alone.

    cluster   30 min   instances by class for the peak that is expected     plans with the largest layout at full speed
    pool       5 min   layouts on the GPUs of a pool                        plans at full speed
    instance     5 s   the clock                                            by the batch of the moment

A pool holds its GPUs in *units*, as many as the largest layout has, each on one host: an instance of the largest layout or
several smaller ones. New instances are asked for in time to serve when they will be needed. Units that a failed host
takes along are asked for again at once, or when there are GPUs for them.

Emergencies (section IV). While prompts pile up in a pool or it misses deadlines, each visit takes one more stage:

    1    the maximum clock on all of its instances
    2    few prompts wait on an instance. The others wait at the router, which sends them by deadline to whoever has room
         first, in a larger pool too; those that are late come after all that can still be in time
    3    the upper levels plan again, for the load of the moment: more instances, none stopped

The paper reorders an engine's own queue and moves what waits there. A stock engine does neither; holding requests at the
router, before an engine has them, comes to the same. Late requests are put off and not rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.planning.tariff import WEEK_S
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
_HELD_STEPS = 4
"""Steps' worth of prompts that may wait on an instance in an emergency, before others are held at the router."""
_FREE = 1 << 40
"""The same in calm times: any number."""
_MISSED = 0.05
"""Of the requests answered between two visits: if that many missed a deadline, it is an emergency."""
_FEW = 20
"""Requests of which a miss more or less says little: that is the least count."""
_OVER = 6
"""Visits without a sign of it before an emergency is over: half a minute."""
_MOMENT_S = 60.0
"""Over which the load of the moment is averaged, for which the upper levels plan in an emergency."""


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
        emergencies: whether there are the stages above.
    """

    profiles: Profiles
    demand: Demand
    name: str = "DynamoLLM"
    instances: bool = True
    shards: bool = True
    clocks: bool = True
    head_room: float = 0.0
    lasts_s: float = WEEK_S
    period_s: float = INSTANCE_S
    emergencies: bool = True
    _sizing: Sizing = field(init=False, repr=False)
    _next_s: list[float] = field(init=False, repr=False)
    _set: dict[int, int] = field(init=False, repr=False)
    _stage: list[int] = field(init=False, repr=False)
    _calm: list[int] = field(init=False, repr=False)

    def begin(self, cluster: Cluster) -> Sequence[Action]:
        """The pools of the first period, sharded for its beginning."""
        self._next_s, self._set = [CLUSTER_S, POOL_S], {}
        self._stage, self._calm = [0] * COUNT, [0] * COUNT
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
        actions: list[Action] = list(self._escalate(view)) if self.emergencies else []
        if view.now_s >= self._next_s[0] - 1e-9:
            self._next_s[0] += CLUSTER_S
            if self.instances:
                actions += self._size(view, self._sized(view.now_s))
        elif view.now_s >= self._next_s[1] - 1e-9:
            self._next_s[1] += POOL_S
            if self.shards:
                actions += self._shard(view)
        elif (view.state == InstanceState.FAILED).any():
            actions += self._restart(view)
        elif self.instances and max(self._stage) >= 3:
            actions += self._size(view, self._sized(view.now_s, self.demand.recent(_MOMENT_S)), grows=True)
        if self.clocks:
            actions += self._clock(view)
        return actions

    # ---- instances --------------------------------------------------------------------------------------------------

    @property
    def _unit(self) -> int:
        """GPUs that pools are counted in."""
        return self.profiles.cluster.layouts[-1].gpus

    def _sized(self, now_s: float, least_per_s: FloatArray | float = 0.0) -> Sizing:
        """For the peak until the next period's instances can serve, or for more."""
        start_s = self.profiles.cluster.changes.start_s[-1]
        until_s = now_s + CLUSTER_S + start_s if self.instances else self.lasts_s
        peak = np.maximum(self.demand.peak(now_s, until_s), least_per_s) * (1 + self.head_room)
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
        held = _HELD_STEPS * self.profiles.cluster.layouts[-1].most_step_tokens
        hold = tuple(held if stage >= 2 else _FREE for stage in self._stage) if max(self._stage) >= 2 else ()
        return Route(with_somewhere(self._sizing.pools), room_of(self.profiles, self._sizing), hold=hold)

    def _size(self, view: ClusterView, sizing: Sizing, *, grows: bool = False) -> Iterator[Action]:
        """Units go from pools that shrink to those that grow; what is left is stopped, what is missing started.

        In an emergency pools only grow, by what there are GPUs for.
        """
        before, self._sizing = self._sizing, sizing
        spare: list[tuple[int, ...]] = []
        missing: list[int] = []
        for pool, count in enumerate(self._sizing.instances):
            own = list(self._groups(view, pool))
            coming = self._coming(view, pool)
            if len(own) + coming > count and not grows:
                spare += own[max(count - coming, 0) :]
            missing += [pool] * max(count - len(own) - coming, 0)
        if grows:
            missing = missing[: int((view.free_gpus // self._unit).sum())]
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

    def _coming(self, view: ClusterView, pool: int) -> int:
        """Units of a pool that start or are being re-sharded."""
        soon = (view.pool == pool) & np.isin(view.state, (InstanceState.STARTING, InstanceState.RESHARDING))
        gpus = np.array([each.gpus for each in self.profiles.cluster.layouts])
        return int(gpus[view.layout[soon]].sum()) // self._unit

    # ---- emergencies ------------------------------------------------------------------------------------------------

    def _escalate(self, view: ClusterView) -> Iterator[Action]:
        """One more stage for each pool in trouble, none for those that were calm for a while."""
        before = [stage >= 2 for stage in self._stage]
        for pool in range(COUNT):
            if self._at_risk(view, pool):
                self._stage[pool], self._calm[pool] = min(self._stage[pool] + 1, 3), 0
            elif self._stage[pool]:
                self._calm[pool] += 1
                if self._calm[pool] >= _OVER:
                    self._stage[pool] = 0
        if before != [stage >= 2 for stage in self._stage]:
            yield self._route()

    def _at_risk(self, view: ClusterView, pool: int) -> bool:
        """Whether prompts pile up on an instance, wait at the router, or too many deadlines were missed."""
        own = np.flatnonzero((view.pool == pool) & (view.state == InstanceState.SERVING))
        most = np.array([each.most_step_tokens for each in self.profiles.cluster.layouts])
        if (view.waiting_tokens[own] > 2 * _CROWDED * most[view.layout[own]]).any():
            return True
        classes = [each for each, pools in enumerate(with_somewhere(self._sizing.pools)) if pools and pools[0] == pool]
        finished, missed = float(view.finished[classes].sum()), float(view.missed[classes].sum())
        return bool(view.held[classes].any()) or missed > _MISSED * max(finished, _FEW)

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
        idle_w = self.profiles.cluster.layouts[0].idle_gpu_w
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
        """One unit of a pool after another, so that the others serve meanwhile; the next at a later visit."""
        cluster, rates = self.profiles.cluster, self._rates(view.now_s)
        for pool in range(COUNT):
            if ((view.pool == pool) & np.isin(view.state, (InstanceState.DRAINING, InstanceState.RESHARDING))).any():
                self._next_s[1] = view.now_s + self.period_s
                continue
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
                for group, layouts in zip(moved[:1], wanted, strict=False):
                    yield Reshard(group, layouts, pool)
                if len(moved) > 1:
                    self._next_s[1] = view.now_s + self.period_s

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
            top = len(engine.tables.settings) - 1
            setting = top if self._stage[pool] else self._setting(known[pool, layout], view, instance)
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
