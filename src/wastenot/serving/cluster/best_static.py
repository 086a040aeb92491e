"""The best plan that is never changed, chosen in hindsight: pools, layouts, instances and clocks.

Pools do not meet, so each is tried alone: candidates by the estimate of their energy, and of each as few instances as keep
the deadlines of all classes. Of a long load some stretches are tried, evenly over all of it, and the plan that is found then
has to keep the deadlines of the whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.serving.cluster.classes import COUNT, class_of
from wastenot.serving.cluster.controllers.fixed import Fixed, Placed
from wastenot.serving.cluster.levels import Levels, levels
from wastenot.serving.cluster.mixes import mix_of
from wastenot.serving.cluster.model import ClockRule, Cluster, Router
from wastenot.serving.cluster.pools import PARTITIONS
from wastenot.serving.cluster.results import Tally, tally_of
from wastenot.serving.cluster.simulation.simulate import ClusterRun, simulate_cluster
from wastenot.serving.cluster.trials import Trial
from wastenot.serving.model.requests import Requests, joined

CANDIDATES = 4
"""Layouts and clocks of a pool that are simulated."""
TRIED = 3_000_000
"""Requests that plans are tried on, or fewer; of longer loads some stretches."""
STRETCH_S = 600.0
"""Length of these stretches."""
_SLOT_S = 300.0
_RATES = 64
_TRIES = 6


@dataclass(frozen=True, slots=True)
class _Tried:
    placed: Placed
    energy_j: float


def best_static(
    parts: Callable[[], Iterable[Requests]],
    cluster: Cluster,
    *,
    share: float = 0.99,
    router: Router = Router.LEAST_REQUESTS,
    candidates: int = CANDIDATES,
    one_pool: bool = False,
) -> Fixed:
    """The plan of least energy that keeps the deadlines of a share of each class on this very load.

    Args:
        parts: of the load that judges, as often as they are asked for.
        cluster: that serves them.
        share: of the requests of each class that are to keep their deadlines.
        router: of the runs.
        candidates: layouts and clocks of a pool that are simulated.
        one_pool: for all classes, whose requests go where there are fewest tokens, as with our own controller.

    Raises:
        BadInputError: no candidate keeps the deadlines on the GPUs that there are.
    """
    every = max(math.ceil(sum(len(each) for each in parts()) / TRIED), 1)
    requests, some = joined([_stretches(part, every) if every > 1 else part for part in parts()]), every > 1
    trial = _Trial(cluster, share, router, one_pool)
    number = class_of(requests.prompt_tokens, requests.output_tokens)
    tried: dict[tuple[int, ...], _Tried | None] = {}
    best: tuple[float, tuple[tuple[int, ...], ...]] | None = None
    for partition in PARTITIONS[:1] if one_pool else PARTITIONS:
        for classes in partition:
            if classes not in tried:
                own = np.isin(number, classes)
                tried[classes] = trial.best(requests.only(own), candidates) if own.any() else None
        found = [tried[classes] for classes in partition]
        there = [each for each in found if each is not None]
        gpus = sum(each.placed.count * cluster.layouts[each.placed.layout].gpus for each in there)
        energy_j = sum(each.energy_j for each in there)
        if all(each.placed.count for each in there) and gpus <= cluster.gpus and (best is None or energy_j < best[0]):
            best = energy_j, partition
    if best is None:
        raise BadInputError("no fixed plan meets the deadlines on these GPUs; reduce the load")
    placed: list[Placed] = []
    pools: list[tuple[int, ...]] = [()] * COUNT
    for pool, classes in enumerate(best[1]):
        one = tried[classes]
        if one is not None:
            placed.append(replace(one.placed, pool=pool))
        for each in classes:
            pools[each] = (pool,)
    plan = Fixed("best static in one pool" if one_pool else "best static", tuple(placed), tuple(pools), (), one_pool)
    return _kept_by(plan, parts, cluster, share, router) if some else plan


def _stretches(part: Requests, every: int) -> Requests:
    """One of a number of stretches, one after the other."""
    stretch = (part.arrival_s / STRETCH_S).astype(np.intp)
    chosen = stretch % every == every // 2
    some, stretch = part.only(chosen), stretch[chosen]
    return replace(some, arrival_s=some.arrival_s - (stretch - stretch // every) * STRETCH_S)


def _kept_by(plan: Fixed, parts: Callable[[], Iterable[Requests]], cluster: Cluster, share: float, router: Router) -> Fixed:
    """The plan with as many more instances as the whole load needs."""
    for _ in range(_TRIES):
        tally = Tally(cluster)
        ClusterRun(parts(), cluster, plan, tally.add, router=router).served()
        late = {plan.pools[number][0] for number, kept in enumerate(tally.by_class()) if kept < share}
        if not late:
            break
        more = tuple(replace(each, count=each.count + (each.pool in late)) for each in plan.placed)
        plan = Fixed(plan.name, more, plan.pools, plan.room, plan.by_tokens)
    return plan


@dataclass(frozen=True, slots=True)
class _Trial:
    """How plans of one pool are tried."""

    cluster: Cluster
    share: float
    router: Router
    one_pool: bool

    def best(self, requests: Requests, candidates: int) -> _Tried:
        """Of the candidates, the one that takes least energy; with no instances where none keeps the deadlines."""
        best = _Tried(Placed(0, 0, 0), math.inf)
        for placed in self._candidates(requests, candidates):
            found = self._fewest(requests, placed)
            if found is not None and found.energy_j < best.energy_j:
                best = found
        return best

    def _candidates(self, requests: Requests, candidates: int) -> list[Placed]:
        """By estimated energy, each with instances for the busiest minutes."""
        mix, lasts_s = mix_of(requests), float(requests.arrival_s[-1]) + 1e-9
        slots = max(int(lasts_s / _SLOT_S), 1)
        rate = np.bincount(np.minimum((requests.arrival_s / lasts_s * slots).astype(np.intp), slots - 1)) * slots / lasts_s
        found = []
        for layout, engine in enumerate(self.cluster.layouts):
            most, greatest = self.cluster.most(layout), float(rate.max())
            rates = np.geomspace(greatest / most / 4, greatest * 1.01, _RATES)
            known = levels(engine, mix, self.cluster.deadlines, rates)
            for setting, capacity in enumerate(self._capacities(known)):
                if capacity <= 0:
                    continue
                count = min(max(math.ceil(greatest / capacity), 1), most)
                power_w = float(count * np.interp(rate / count, known.rate_per_s, known.power_w[setting]).mean())
                found.append((power_w, Placed(0, layout, count, setting)))
        return [placed for _, placed in sorted(found, key=lambda each: each[0])[:candidates]]

    def _capacities(self, known: Levels) -> FloatArray:
        """Of an instance at each setting; by estimate, or by trial where there is none."""
        if not self.one_pool:
            return known.capacity(self.share)
        trial = Trial(known.engine, known.mix, self.cluster.deadlines, self.share, 4, by_tokens=True)
        settings = range(len(known.engine.tables.settings))
        return np.array([trial.capacity(ClockRule.fixed(each, known.engine), trial.most_per_s / 2) for each in settings])

    def _fewest(self, requests: Requests, placed: Placed) -> _Tried | None:
        """As few instances as keep the deadlines, looked for from a number on; ``None`` where none near it do."""
        most = self.cluster.most(placed.layout)
        step = max(placed.count // 16, 1)  # many are looked at in steps

        def tried(count: int) -> _Tried | None:
            plan = replace(placed, count=count)
            fixed = Fixed("", (plan,), ((0,),) * COUNT, (), self.one_pool)
            served = simulate_cluster(requests, self.cluster, fixed, router=self.router)
            good = np.nanmin(tally_of(served, requests, self.cluster).by_class()) >= self.share
            return _Tried(plan, served.total_energy_j) if good else None

        found = tried(placed.count)
        if found is None:
            more = range(placed.count + step, min(placed.count + _TRIES * step, most) + 1, step)
            found = next((each for each in map(tried, more) if each is not None), None)
        while found is not None and step:
            while found.placed.count > step and (fewer := tried(found.placed.count - step)) is not None:
                found = fewer
            step //= 2
        return found
