"""Which classes share a pool, and on which layout: what costs least, with deadlines kept at the load that is expected.

Short prompts wait behind long ones, and long ones keep those who decode waiting, so pools that are apart carry more; but
each has whole instances, and a small one is mostly idle. Partitions are by prompts, which a router knows; answers it can
only guess.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.arrays import FloatArray
from wastenot.errors import BadInputError
from wastenot.stack.serving.cluster.classes import COUNT
from wastenot.stack.serving.cluster.frontiers import InstanceFrontier
from wastenot.stack.serving.cluster.profiles import Profiles
from wastenot.stack.serving.cluster.sharding import split

_SHORT, _MIDDLE, _LONG = (0, 1, 2), (3, 4, 5), (6, 7, 8)
PARTITIONS: tuple[tuple[tuple[int, ...], ...], ...] = (
    (_SHORT + _MIDDLE + _LONG,),
    (_SHORT + _MIDDLE, _LONG),
    (_SHORT, _MIDDLE + _LONG),
    (_SHORT, _MIDDLE, _LONG),
)
"""Classes by pool."""


@dataclass(frozen=True, slots=True, eq=False)
class PoolPlan:
    """Instances of one layout for some classes.

    Attributes:
        classes: that it takes.
        layout: of all instances.
        instances: of which there are so many.
        blend: rates of the classes, of which the ratios count; shape (9,).
        power_w: of all.
    """

    classes: tuple[int, ...]
    layout: int
    instances: int
    blend: FloatArray
    power_w: float

    def frontier(self, profiles: Profiles, instances: int) -> InstanceFrontier:
        """Of one of so many instances."""
        return profiles.frontier(self.layout, self.blend, together=instances, ladders=True)


def power_by_count(known: Callable[[int], InstanceFrontier], rate_per_s: float, upper_per_s: float, most: int) -> FloatArray:
    """Power of 0 … ``most`` instances that share a load evenly; inf where it is too much for them; shape (most + 1,).

    Args:
        known: levels of load of one of so many instances.
        rate_per_s: that is expected.
        upper_per_s: that must be possible.
        most: instances.
    """
    power = np.full(most + 1, np.inf)
    power[0] = 0.0 if upper_per_s <= 0 else np.inf
    for count in range(1, most + 1):
        each = known(count)
        if count * each.capacity_per_s >= upper_per_s * (1 - 1e-9):
            power[count] = count * float(each.power_at(rate_per_s / count))
    return power


def planned(
    profiles: Profiles,
    rate_per_s: FloatArray,
    upper_per_s: FloatArray,
    *,
    gpus: int | None = None,
    spare_gpu_w: float = 0.0,
    partitions: Sequence[tuple[tuple[int, ...], ...]] = PARTITIONS,
) -> tuple[PoolPlan, ...]:
    """Pools, layouts and instances of least power; where GPUs are too few for any, the ones that carry most.

    Args:
        profiles: of the cluster.
        rate_per_s: of each class, on average; shape (9,).
        upper_per_s: that each class' pool must be able to take; shape (9,).
        gpus: that may be used; all of the cluster by default.
        spare_gpu_w: what a GPU draws that no instance runs on.
        partitions: of the classes into pools, to choose from.

    Raises:
        BadInputError: no layout keeps the deadlines at any load.
    """
    gpus = profiles.cluster.gpus if gpus is None else gpus
    best: tuple[PoolPlan, ...] | None = None
    shrunk = 1.0
    while best is None:
        for partition in partitions:
            found = _of_partition(
                profiles, rate_per_s * shrunk, upper_per_s * shrunk, partition, gpus, spare_gpu_w
            )
            if found and (best is None or sum(each.power_w for each in found) < sum(each.power_w for each in best)):
                best = found
        shrunk *= 0.9
        if shrunk < 1e-3:
            raise BadInputError("no layout keeps the deadlines at any load; allow more time or a smaller budget of a step")
    return best


def _of_partition(
    profiles: Profiles,
    rate_per_s: FloatArray,
    upper_per_s: FloatArray,
    partition: tuple[tuple[int, ...], ...],
    gpus: int,
    spare_gpu_w: float,
) -> tuple[PoolPlan, ...]:
    """One partition, its GPUs split exactly; empty where they do not suffice."""
    pools: list[tuple[FloatArray, list[tuple[int, int]]]] = []
    blends = []
    for classes in partition:
        own = np.isin(np.arange(COUNT), classes)
        rate, upper = np.where(own, rate_per_s, 0.0), np.where(own, upper_per_s, 0.0)
        blends.append(rate if rate.sum() > 0 else own.astype(np.float64))
        load = float(rate.sum()), float(upper.sum())
        pools.append(_by_gpus(profiles, blends[-1], *load, gpus, spare_gpu_w))
    shares = split([power for power, _ in pools], gpus)
    if shares is None:
        return ()
    return tuple(
        PoolPlan(classes, *chosen[share], blend, float(power[share]))
        for classes, (power, chosen), share, blend in zip(partition, pools, shares, blends, strict=True)
    )


def _by_gpus(
    profiles: Profiles,
    blend: FloatArray,
    rate_per_s: float,
    upper_per_s: float,
    gpus: int,
    spare_gpu_w: float,
) -> tuple[FloatArray, list[tuple[int, int]]]:
    """Least power of a pool above that of spare GPUs on at most 0 … ``gpus`` GPUs, with layout and instances."""
    power = np.full(gpus + 1, np.inf)
    chosen = [(0, 0)] * (gpus + 1)
    for layout, engine in enumerate(profiles.cluster.layouts):

        def known(count: int, layout: int = layout) -> InstanceFrontier:
            return profiles.frontier(layout, blend, together=count, ladders=True)

        each = power_by_count(known, rate_per_s, upper_per_s, gpus // engine.gpus)
        each -= spare_gpu_w * engine.gpus * np.arange(len(each))
        for count in np.flatnonzero(np.isfinite(each)).tolist():
            at = count * engine.gpus
            if each[count] < power[at]:
                power[at], chosen[at] = each[count], (layout, count)
    for at in range(1, gpus + 1):
        if power[at - 1] <= power[at]:
            power[at], chosen[at] = power[at - 1], chosen[at - 1]
    return power, chosen
