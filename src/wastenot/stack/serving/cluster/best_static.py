"""The best plan that is never changed, chosen in hindsight: pools, layouts, instances and clocks.

Pools do not meet, so each is simulated alone: candidates by the estimate of their energy, and of each as few instances as
keep the deadlines of all classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.errors import BadInputError
from wastenot.stack.serving.cluster.classes import COUNT
from wastenot.stack.serving.cluster.controllers.fixed import Fixed, Placed
from wastenot.stack.serving.cluster.levels import levels
from wastenot.stack.serving.cluster.mixes import mix_of
from wastenot.stack.serving.cluster.model import Cluster, Router
from wastenot.stack.serving.cluster.pools import PARTITIONS
from wastenot.stack.serving.cluster.results import attainment_by_class
from wastenot.stack.serving.cluster.simulation.simulate import simulate_cluster
from wastenot.stack.serving.requests import Requests

CANDIDATES = 4
"""Layouts and clocks of a pool that are simulated."""
_RATES = 64
_TRIES = 6


@dataclass(frozen=True, slots=True)
class _Tried:
    placed: Placed
    energy_j: float


def best_static(
    requests: Requests,
    cluster: Cluster,
    *,
    share: float = 0.99,
    router: Router = Router.LEAST_REQUESTS,
    partitions: Sequence[tuple[tuple[int, ...], ...]] = PARTITIONS,
    candidates: int = CANDIDATES,
) -> Fixed:
    """The plan of least energy that keeps the deadlines of a share of each class on this very load.

    Args:
        requests: that judge.
        cluster: that serves them.
        share: of the requests of each class that are to keep their deadlines.
        router: of the runs.
        partitions: of the classes into pools, to choose from.
        candidates: layouts and clocks of a pool that are simulated.

    Raises:
        BadInputError: no candidate keeps the deadlines on the GPUs that there are.
    """
    number = cluster.classes.of(requests.prompt_tokens, requests.output_tokens)
    tried: dict[tuple[int, ...], _Tried | None] = {}
    best: tuple[float, tuple[tuple[int, ...], ...]] | None = None
    for partition in partitions:
        for classes in partition:
            if classes not in tried:
                own = np.isin(number, classes)
                part = requests.only(own)
                tried[classes] = _best_of_pool(part, cluster, share, router, candidates) if own.any() else None
        found = [tried[classes] for classes in partition]
        there = [each for each in found if each is not None]
        gpus = sum(each.placed.count * cluster.layouts[each.placed.layout].gpus for each in there)
        energy_j = sum(each.energy_j for each in there)
        if all(each.placed.count for each in there) and gpus <= cluster.gpus and (best is None or energy_j < best[0]):
            best = energy_j, partition
    if best is None:
        raise BadInputError("no fixed plan keeps the deadlines on these GPUs; try less load")
    placed: list[Placed] = []
    pools: list[tuple[int, ...]] = [()] * COUNT
    for pool, classes in enumerate(best[1]):
        one = tried[classes]
        if one is not None:
            placed.append(Placed(pool, one.placed.layout, one.placed.count, one.placed.setting))
        for each in classes:
            pools[each] = (pool,)
    return Fixed("best static", tuple(placed), tuple(pools))


def _best_of_pool(requests: Requests, cluster: Cluster, share: float, router: Router, candidates: int) -> _Tried:
    """Of the candidates, the one that takes least energy; with no instances where none keeps the deadlines."""
    best = _Tried(Placed(0, 0, 0), math.inf)
    for placed in _candidates(requests, cluster, share, candidates):
        found = _fewest(requests, cluster, placed, share, router)
        if found is not None and found.energy_j < best.energy_j:
            best = found
    return best


def _candidates(requests: Requests, cluster: Cluster, share: float, candidates: int) -> list[Placed]:
    """By estimated energy, each with instances for the busiest minutes."""
    mix, lasts_s = mix_of(requests), float(requests.arrival_s[-1]) + 1e-9
    slots = max(int(lasts_s / 300.0), 1)
    rate = np.bincount(np.minimum((requests.arrival_s / lasts_s * slots).astype(np.intp), slots - 1)) * slots / lasts_s
    found = []
    for layout, engine in enumerate(cluster.layouts):
        most = cluster.hosts * (cluster.gpus_per_host // engine.gpus)
        greatest = float(rate.max())
        known = levels(engine, mix, cluster.deadlines, np.geomspace(greatest / most / 4, greatest * 1.01, _RATES))
        for setting, capacity in enumerate(known.capacity(share)):
            if capacity <= 0:
                continue
            count = min(max(math.ceil(greatest / capacity), 1), most)
            power_w = float(count * np.interp(rate / count, known.rate_per_s, known.power_w[setting]).mean())
            found.append((power_w, Placed(0, layout, count, setting)))
    return [placed for _, placed in sorted(found, key=lambda each: each[0])[:candidates]]


def _fewest(requests: Requests, cluster: Cluster, placed: Placed, share: float, router: Router) -> _Tried | None:
    """As few instances as keep the deadlines, looked for from a number on; ``None`` where none near it do."""
    most = cluster.hosts * (cluster.gpus_per_host // cluster.layouts[placed.layout].gpus)

    def tried(count: int) -> _Tried | None:
        plan = Placed(0, placed.layout, count, placed.setting)
        served = simulate_cluster(requests, cluster, Fixed("", (plan,), ((0,),) * COUNT), router=router)
        good = np.nanmin(attainment_by_class(served, requests, cluster)) >= share
        return _Tried(plan, served.total_energy_j) if good else None

    found = tried(placed.count)
    if found is None:
        more = range(placed.count + 1, min(placed.count + _TRIES, most) + 1)
        return next((each for each in map(tried, more) if each is not None), None)
    while found.placed.count > 1 and (fewer := tried(found.placed.count - 1)) is not None:
        found = fewer
    return found
