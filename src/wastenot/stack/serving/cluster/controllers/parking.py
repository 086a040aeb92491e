"""Our controller: deadlines are the constraint, energy the objective, and what is not needed now is parked, not stopped.

    plan      pools and layouts of least power at clocks that keep the deadlines, for the load that is forecast
    5 min     instances that are there: enough for what is forecast until new ones could have started, and head-room
    5 s       instances that serve: the number of least power for the load of the moment, the others parked or woken
    a step    the clock: by a rule that follows the batch, for the rate that each instance has

A parked instance is back in tens of milliseconds and a new one in minutes, so mistakes of the forecast cost little where
some are parked. More serve as soon as more are needed, fewer only when fewer were enough for a while. When prompts pile up
or instances fail, all that are parked are woken, as many are started as the load of the moment needs, and clocks are at their
greatest until it is over. Few prompts wait on an instance: the others are held at the router, and late ones come last.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from wastenot.arrays import FloatArray, IndexArray
from wastenot.stack.serving.cluster.classes import COUNT
from wastenot.stack.serving.cluster.clock_rules import greatest, rule_at
from wastenot.stack.serving.cluster.controllers.fixed import taken
from wastenot.stack.serving.cluster.demand import Demand
from wastenot.stack.serving.cluster.frontiers import InstanceFrontier
from wastenot.stack.serving.cluster.model import (
    Action,
    Assign,
    Cluster,
    ClusterView,
    InstanceState,
    Park,
    Route,
    SetClock,
    Start,
    Stop,
    Wake,
)
from wastenot.stack.serving.cluster.objective import Tariff
from wastenot.stack.serving.cluster.pools import PoolPlan, planned, power_by_count
from wastenot.stack.serving.cluster.profiles import Profiles

PATIENCE = 0.6
"""Of the time to the first token that prompts which wait may take of an instance before it is an emergency."""
REMEMBERED_S = 600.0
"""Time over which misses are counted."""
NEAR = 0.02
"""A load that is so little above a level is taken for it."""
WINDOWS_S = (20.0, 60.0)
"""Over which the load of the moment is averaged."""
FEW = 200.0
"""Requests of a class of which a miss more or less says little."""
HOLD_STEPS = 1.0
"""Steps' worth of prompts that wait on an instance before it gets no more."""
LATE = 0.05
"""Of the requests that came since the last visit: so many that are held and late are an emergency at once."""
EMERGENCY_S = 10.0
"""Over which the load of the moment is averaged in an emergency."""
EMERGENCY_ROOM = 0.25
"""Of the load that instances could take in an emergency, above that of the moment."""
PLAN_S = 300.0
"""Between two looks at how many instances are to be there."""
_THERE = (
    InstanceState.STARTING,
    InstanceState.SERVING,
    InstanceState.DRAINING,
    InstanceState.PARKED,
    InstanceState.WAKING,
)
_ALIKE = Tariff.hourly(1.0)
"""Energy costs the same at all times."""


@dataclass(slots=True, eq=False)
class Parking:
    """Pools of instances that are woken and parked as the load goes, at the cheapest clocks that keep the deadlines.

    Attributes:
        profiles: of the cluster.
        demand: that is expected.
        name: for tables and pictures.
        margin: of the load that clocks are chosen for, above that of the moment; it grows when deadlines are missed.
        head_room: of the load that serving instances could take, above that of the moment.
        reserve: of the load that instances which are there could take, above what is forecast.
        lasts_s: that fewer instances must have been enough before some are parked.
        alarm_s: that an emergency lasts after its last sign.
        tariff: what energy costs over time, which decides when a start is worth its cost; the same at all times by default.
    """

    profiles: Profiles
    demand: Demand
    name: str = "ours"
    margin: float = 0.05
    head_room: float = 0.15
    reserve: float = 0.1
    lasts_s: float = 60.0
    alarm_s: float = 10.0
    period_s: float = 5.0
    tariff: Tariff | None = None
    _pools: tuple[PoolPlan, ...] = field(init=False, repr=False)
    _needed: list[deque[tuple[float, int]]] = field(init=False, repr=False)
    _alarm_s: list[float] = field(init=False, repr=False)
    _outcome: FloatArray = field(init=False, repr=False)
    _recent: list[FloatArray] = field(init=False, repr=False)
    _piled: list[bool] = field(init=False, repr=False)
    _frontiers: dict[tuple[int, int], InstanceFrontier] = field(init=False, repr=False)
    _failed: FloatArray = field(init=False, repr=False)
    _short: float = field(init=False, repr=False)
    _rule: dict[int, int] = field(init=False, repr=False)
    _plan_s: float = field(init=False, repr=False)

    def begin(self, cluster: Cluster) -> Sequence[Action]:
        """Pools for the load that is forecast for the first minutes, all instances awake."""
        first = self._ahead_s(min(len(cluster.layouts) - 1, 0))
        peak = self.demand.peak(0.0, first)
        mean = self.demand.peak(0.0, 1.0)
        self._pools = planned(
            self.profiles,
            mean,
            peak * (1 + self.reserve),
            spare_gpu_w=cluster.changes.parked_power_w,
        )
        self._needed, self._alarm_s = [deque() for _ in self._pools], [-math.inf] * len(self._pools)
        self._outcome = np.zeros((2, COUNT))
        self._piled, self._frontiers = [False] * len(self._pools), {}
        self._failed, self._short = np.zeros(len(self._pools)), math.inf
        self._rule, self._plan_s = {}, PLAN_S
        placed = sorted(enumerate(self._pools), key=lambda each: -cluster.layouts[each[1].layout].gpus)
        actions: list[Action] = []
        for pool, plan in placed:
            actions += [Start(plan.layout, pool, greatest(cluster.layouts[plan.layout]))] * self._there(pool, peak)
        hold = tuple(int(HOLD_STEPS * cluster.layouts[each.layout].most_step_tokens) for each in self._pools)
        return [*actions, Route(self._routes(), hold=hold)]

    def control(self, view: ClusterView) -> Sequence[Action]:
        """What the load of the moment asks for, and every five minutes what is forecast."""
        self.demand.see(view)
        self._recent = [self.demand.recent(window_s) for window_s in WINDOWS_S]
        keep = math.exp(-self.period_s / REMEMBERED_S)
        self._outcome = keep * self._outcome + np.stack([view.finished, view.missed])
        actions: list[Action] = []
        failed = np.bincount(view.pool[view.state == InstanceState.FAILED], minlength=len(self._pools))
        lost, self._failed = failed > self._failed, failed
        free = np.asarray(view.free_gpus).copy()
        if view.now_s >= self._plan_s - 1e-9 or lost.any() or free.sum() > self._short:
            self._plan_s = view.now_s + PLAN_S
            actions += self._resize(view, free)
        lent: set[int] = set()
        for pool in range(len(self._pools)):
            actions += self._steer(view, pool, lent, free, bool(lost[pool]))
        return actions

    # ---- instances that are there -----------------------------------------------------------------------------------

    def _ahead_s(self, layout: int) -> float:
        return self.profiles.cluster.changes.start_s[layout] + 2 * PLAN_S

    def _own(self, pool: int, rate_per_s: FloatArray) -> float:
        return float(rate_per_s[list(self._pools[pool].classes)].sum())

    def _lately(self, pool: int) -> float:
        """The load of the moment: what came in the last minute, or in a shorter time if that is more."""
        return max(self._own(pool, rate) for rate in self._recent)

    def _there(self, pool: int, peak_per_s: FloatArray) -> int:
        """Instances that a pool is to have for a peak: those of least power, the others off."""
        layout, rate = self._pools[pool].layout, self._own(pool, peak_per_s)
        most = self.profiles.cluster.gpus // self.profiles.cluster.layouts[layout].gpus
        return max(self._fewest_watts(pool, rate, rate * (1 + self.reserve), most, 0.0), 1)

    def _known(self, pool: int, instances: int) -> InstanceFrontier:
        key = pool, instances
        if key not in self._frontiers:
            self._frontiers[key] = self._pools[pool].frontier(self.profiles, instances)
        return self._frontiers[key]

    def _routes(self) -> tuple[tuple[int, ...], ...]:
        """Each class to its own pool, then to those of longer prompts, then to the others."""
        found = []
        for number in range(COUNT):
            own = next(pool for pool, plan in enumerate(self._pools) if number in plan.classes)
            found.append((own, *range(own + 1, len(self._pools)), *range(own - 1, -1, -1)))
        return tuple(found)

    def _resize(self, view: ClusterView, free: IndexArray) -> Iterator[Action]:
        """Start what will be needed by the time that it serves; stop what stays parked longer than a start is worth."""
        cluster = self.profiles.cluster
        self._short = math.inf
        for pool, plan in enumerate(self._pools):
            start_s = cluster.changes.start_s[plan.layout]
            soon = self._there(pool, self.demand.peak(view.now_s, view.now_s + start_s + PLAN_S))
            powers_w = max(cluster.changes.parked_power_w, 1.0), cluster.changes.start_power_w
            pays_s = start_s + (self.tariff or _ALIKE).start_outweighed_s(view.now_s, *powers_w, start_s)
            later = self._there(pool, self.demand.peak(view.now_s, view.now_s + pays_s + PLAN_S))
            own = np.flatnonzero((view.pool == pool) & np.isin(view.state, _THERE))
            yield from self._started(pool, soon - len(own), free)
            parked = own[view.state[own] == InstanceState.PARKED]
            for instance in parked[: max(len(own) - max(soon, later), 0)].tolist():
                yield Stop(instance)

    def _started(self, pool: int, count: int, free: IndexArray) -> Iterator[Action]:
        """So many more instances, as far as there are GPUs; where there are too few, it is looked at again once more are free."""
        layout = self._pools[pool].layout
        engine = self.profiles.cluster.layouts[layout]
        for _ in range(count):
            if not taken(free, engine.gpus):
                self._short = float(free.sum())
                break
            yield Start(layout, pool, greatest(engine))

    def _reinforced(self, view: ClusterView, pool: int, free: IndexArray) -> Iterator[Action]:
        """Instances for the load of the moment, in an emergency."""
        rate = max(self._lately(pool), self._own(pool, self.demand.recent(EMERGENCY_S))) * (1 + EMERGENCY_ROOM)
        there = int(((view.pool == pool) & np.isin(view.state, _THERE)).sum())
        most = self.profiles.cluster.gpus // self.profiles.cluster.layouts[self._pools[pool].layout].gpus
        count = there
        while count < most and count * self._known(pool, max(count, 1)).capacity_per_s < rate:
            count += 1
        yield from self._started(pool, count - there, free)

    # ---- instances that serve ---------------------------------------------------------------------------------------

    def _steer(
        self, view: ClusterView, pool: int, lent: set[int], free: IndexArray, lost: bool
    ) -> Iterator[Action]:
        mine = view.pool == pool
        mine[list(lent)] = False
        serving = np.flatnonzero(mine & (view.state == InstanceState.SERVING))
        parked = np.flatnonzero(mine & ((view.state == InstanceState.PARKED) | (view.state == InstanceState.DRAINING)))
        waking = int((mine & (view.state == InstanceState.WAKING)).sum())
        rate = self._lately(pool)
        alarm = self._alarmed(view, pool, serving, lost)
        if alarm:
            yield from self._reinforced(view, pool, free)
        most = len(serving) + waking + len(parked)
        parked_w = self.profiles.cluster.changes.parked_power_w
        rate *= self._raised(pool)
        upper = rate * (1 + self.head_room)
        target = most if alarm else self._fewest_watts(pool, rate, upper, most, parked_w)
        target = self._held(view.now_s, pool, max(target, min(most, 1)))
        awake = len(serving) + waking
        if target > awake:
            back = sorted(parked.tolist(), key=lambda each: (view.state[each] == InstanceState.PARKED, each))
            for instance in back[: target - awake]:
                yield Wake(instance)
        elif target < awake:
            quiet = sorted(serving.tolist(), key=lambda each: (view.running[each] + view.waiting[each], -each))
            for instance in quiet[: min(awake - target, len(serving) - 1)]:
                yield Park(instance)
            serving = np.array(sorted(set(serving.tolist()) - set(quiet[: awake - target])), dtype=np.intp)
        elif target == most and most * self._known(pool, max(most, 1)).capacity_per_s < upper:
            yield from self._borrow(view, pool, lent)
        yield from self._clock(pool, serving, max(target, 1), alarm)

    def _borrow(self, view: ClusterView, pool: int, lent: set[int]) -> Iterator[Action]:
        """One of the parked instances of other pools, where a pool has too few of its own."""
        alike = (view.pool != pool) & (view.layout == self._pools[pool].layout) & (view.state == InstanceState.PARKED)
        there = [each for each in np.flatnonzero(alike).tolist() if each not in lent]
        if there:
            lent.add(there[0])
            yield Assign(there[0], pool)
            yield Wake(there[0])

    def _fewest_watts(self, pool: int, rate: float, upper: float, most: int, spare_gpu_w: float) -> int:
        """Instances that draw least at a rate, of those that could take a higher one; all where they are too few."""
        plan = self._pools[pool]
        power = power_by_count(lambda count: self._known(pool, count), rate, upper, most)
        power -= spare_gpu_w * self.profiles.cluster.layouts[plan.layout].gpus * np.arange(most + 1)
        return int(power.argmin()) if np.isfinite(power).any() else most

    def _held(self, now_s: float, pool: int, target: int) -> int:
        """The most instances that were needed lately."""
        needed = self._needed[pool]
        while needed and (needed[0][0] <= now_s - self.lasts_s or needed[0][1] <= target):
            needed.popleft()
        while needed and needed[-1][1] <= target:
            needed.pop()
        needed.append((now_s, target))
        return needed[0][1]

    def _alarmed(self, view: ClusterView, pool: int, serving: IndexArray, lost: bool) -> bool:
        """Whether prompts pile up for longer than a visit, are held until they are late, or instances failed a moment ago."""
        plan = self._pools[pool]
        own = list(plan.classes)
        tokens = view.waiting_tokens[serving].max(initial=0) + view.held_tokens[own].sum() / max(len(serving), 1)
        patience_s = self.profiles.cluster.deadlines.ttft_s[min(plan.classes) // 3]
        piled = tokens * self._token_s(plan) > PATIENCE * patience_s
        self._piled[pool], lasting = piled, piled and self._piled[pool]
        late = view.held_late[own].sum() > LATE * max(view.arrivals[own].sum(), 1)
        if lasting or late or lost:
            self._alarm_s[pool] = view.now_s + self.alarm_s
        return view.now_s < self._alarm_s[pool]

    def _token_s(self, plan: PoolPlan) -> float:
        """Of a token of a prompt at the greatest clock, in full steps."""
        engine = self.profiles.cluster.layouts[plan.layout]
        tokens = float(min(engine.most_step_tokens, engine.tables.prefill_tokens[-1]))
        return engine.tables.prefill(len(engine.tables.settings) - 1, tokens).time_s / tokens

    def _raised(self, pool: int) -> float:
        """What the load of the moment is multiplied with, to be on the safe side of it."""
        finished, missed = self._outcome[:, list(self._pools[pool].classes)]
        allowed = 1 - self.profiles.cluster.deadlines.share
        used = float((missed / np.maximum(finished, FEW)).max()) / allowed  # of the misses that are allowed to a class
        return 1 + self.margin * (1 + min(max(3 * used - 0.5, 0.0), 3.0))

    def _clock(self, pool: int, serving: IndexArray, count: int, alarm: bool) -> Iterator[Action]:
        """A rule for the rate that each instance has."""
        known = self._known(pool, count)
        rate = self._lately(pool) * self._raised(pool)
        level = int(np.searchsorted(known.rate_per_s * (1 + NEAR), rate / count))
        level = len(known.rate_per_s) if alarm else level
        rule = None
        for instance in serving.tolist():
            if self._rule.get(instance) != level:
                self._rule[instance] = level
                rule = rule or (greatest(known.engine) if alarm else rule_at(known, rate / count / (1 + NEAR)))
                yield SetClock(instance, rule)
