"""Plans that are kept: SinglePool, MultiPool, and any other, each instance with its clock.

Nothing changes but what a failed host takes along: its instances are started again, where there are GPUs for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.serving.cluster.classes import COUNT
from wastenot.serving.cluster.model import (
    Action,
    ClockRule,
    Cluster,
    ClusterView,
    InstanceState,
    Route,
    Router,
    Start,
    Steered,
)
from wastenot.serving.cluster.profiles import Profiles
from wastenot.serving.cluster.sharding import Sizing, sized
from wastenot.serving.simulation.policy import Policy


@dataclass(frozen=True, slots=True)
class Placed:
    """Instances of a layout in a pool.

    Attributes:
        pool: which.
        layout: which.
        count: of them.
        setting: of their clocks; ``None`` is the greatest.
        clock: a rule that they follow instead, or what steers each of them.
    """

    pool: int
    layout: int
    count: int
    setting: int | None = None
    clock: ClockRule | Steered | None = None


@dataclass(slots=True, eq=False)
class Fixed:
    """A plan that is kept.

    Attributes:
        name: for tables and pictures.
        placed: instances.
        pools: that take the requests of each class, in order.
        room: of each pool, requests that an instance may have for it to take one more before the next pool.
        by_tokens: whether requests go where there are fewest tokens, however the run's router chooses.
        period_s: between two visits, at which it looks for instances that failed.
    """

    name: str
    placed: tuple[Placed, ...]
    pools: tuple[tuple[int, ...], ...]
    room: tuple[int, ...] = ()
    by_tokens: bool = False
    period_s: float = 5.0
    _cluster: Cluster = field(init=False, repr=False)
    _instances: list[Start] = field(init=False, repr=False)
    _failed: set[int] = field(init=False, repr=False)

    def begin(self, cluster: Cluster) -> Sequence[Action]:
        """Start all instances."""
        self._cluster, self._instances, self._failed = cluster, [], set()
        asked, free = starts(cluster, self.placed), np.full(cluster.hosts, cluster.gpus_per_host)
        for each in asked:
            self._start(each, free)
        return [*asked, Route(self.pools, self.room, router=Router.LEAST_TOKENS if self.by_tokens else None)]

    def control(self, view: ClusterView) -> Sequence[Action]:
        """Start instances that failed again, as soon as there are GPUs for them."""
        free, again = np.asarray(view.free_gpus).copy(), []
        for number in np.flatnonzero(view.state == InstanceState.FAILED).tolist():
            lost = self._instances[number]
            if number not in self._failed and self._start(lost, free):
                self._failed.add(number)
                again.append(lost)
        return again

    def _start(self, action: Start, free: IndexArray) -> bool:
        """Whether a host has GPUs for an instance, as the cluster would find one; then it takes the next number."""
        found = taken(free, self._cluster.layouts[action.layout].gpus)
        if found:
            self._instances.append(action)
        return found


def taken(free: IndexArray, gpus: int) -> bool:
    """Take GPUs of the fullest host that has enough free ones; whether there is one. ``free`` by host, shape (hosts,)."""
    room = np.flatnonzero(free >= gpus)
    if not len(room):
        return False
    free[room[free[room].argmin()]] -= gpus
    return True


def starts(cluster: Cluster, placed: Sequence[Placed]) -> list[Start]:
    """Starts of instances, large ones first, which hosts have room for only while they are empty."""
    actions: list[Start] = []
    for each in sorted(placed, key=lambda some: -cluster.layouts[some.layout].gpus):
        engine = cluster.layouts[each.layout]
        setting = len(engine.tables.settings) - 1 if each.setting is None else each.setting
        actions += [Start(each.layout, each.pool, each.clock or ClockRule.fixed(setting, engine))] * each.count
    return actions


def all_on(cluster: Cluster, layout: int) -> Fixed:
    """As many instances of a layout as there are GPUs for, all on at the maximum clock."""
    return Fixed("AllOn", (Placed(0, layout, cluster.most(layout)),), ((0,),) * COUNT)


def single_pool(profiles: Profiles, peak_per_s: FloatArray, *, head_room: float = 0.0) -> Fixed:
    """All classes on instances of the largest layout at the maximum clock, as many as the peak needs.

    Args:
        profiles: of the cluster.
        peak_per_s: of each class, all at once; shape (9,).
        head_room: of the capacity, above the peak.
    """
    layout = len(profiles.cluster.layouts) - 1
    capacity = profiles.frontier(layout, peak_per_s, full_speed=True, fine=True).capacity_per_s
    count = _within(profiles.cluster, layout, float(peak_per_s.sum()) * (1 + head_room), capacity)
    return Fixed("SinglePool", (Placed(0, layout, count),), ((0,),) * COUNT)


def steered(plan: Fixed, make: Callable[[], Policy]) -> Fixed:
    """A plan, each of its instances with a policy of its own that ``make`` makes, whose name is the plan's."""
    return replace(plan, name=make().name, placed=tuple(replace(each, clock=Steered(make)) for each in plan.placed))


def multi_pool(profiles: Profiles, peak_per_s: FloatArray, *, head_room: float = 0.0) -> Fixed:
    """A pool for each class that fills whole instances; otherwise as :func:`single_pool`."""
    layout = len(profiles.cluster.layouts) - 1
    sizing = sized(peak_per_s * (1 + head_room), profiles.capacity_by_class(layout))
    placed = tuple(Placed(pool, layout, count) for pool, count in enumerate(sizing.instances) if count)
    return Fixed("MultiPool", placed, with_somewhere(sizing.pools), room_of(profiles, sizing))


def room_of(profiles: Profiles, sizing: Sizing) -> tuple[int, ...]:
    """Requests that an instance of each pool has at its capacity, at the maximum clock: more go to the next pool."""
    layout = len(profiles.cluster.layouts) - 1
    found = []
    for pool in range(COUNT):
        rate = sizing.rate_per_s[pool]
        batch = profiles.frontier(layout, rate, full_speed=True).batch if rate.sum() > 0 else np.zeros(0)
        found.append(math.ceil(batch[-1]) + 1 if len(batch) else profiles.cluster.layouts[layout].most_running)
    return tuple(found)


def with_somewhere(pools: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """Routes in which a class that nothing was planned for goes to the pool of the largest class that has one."""
    last = max((pool for each in pools for pool in each), default=0)
    return tuple(each or (last,) for each in pools)


def _within(cluster: Cluster, layout: int, rate_per_s: float, capacity_per_s: float) -> int:
    """Instances for a rate, as many as there are GPUs for."""
    most = cluster.most(layout)
    if not capacity_per_s > 0:
        return most
    return max(min(math.ceil(rate_per_s / capacity_per_s), most), 1)
