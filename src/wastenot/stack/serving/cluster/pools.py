"""Which classes share a pool, and on which layout: what costs least, with deadlines kept at the load that is expected.

Short prompts wait behind long ones, and long ones keep those who decode waiting, so pools that are apart carry more; but
each has whole instances, and a small one is mostly idle. Partitions are by prompts, which a router knows; answers it can
only guess.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        frontier: of each.
        rate_per_s: that all take, on average.
        power_w: of all.
    """

    classes: tuple[int, ...]
    layout: int
    instances: int
    frontier: InstanceFrontier
    rate_per_s: float
    power_w: float


def instances_power_w(known: InstanceFrontier, rate_per_s: float, most: int) -> FloatArray:
    """Power of 0 … ``most`` instances that share a rate evenly; inf where it is too much for them; shape (most + 1,)."""
    count = np.arange(most + 1, dtype=np.float64)
    each = np.divide(rate_per_s, count, out=np.full(most + 1, np.inf), where=count > 0)
    power = np.where(np.isfinite(each), count * known.power_at(np.where(np.isfinite(each), each, 0.0)), np.inf)
    power[0] = 0.0 if rate_per_s <= 0 else np.inf
    return power


def cheapest_count(known: InstanceFrontier, rate_per_s: float, upper_per_s: float, most: int, spare_w: float) -> int:
    """Instances that draw least at a rate, among the numbers that could take a higher one.

    Args:
        known: an instance's levels of load.
        rate_per_s: that is expected.
        upper_per_s: that must be possible.
        most: instances that there are; the answer where even they are too few.
        spare_w: that each instance draws that is not one of them.
    """
    power = instances_power_w(known, rate_per_s, most) + spare_w * (most - np.arange(most + 1))
    power[np.arange(most + 1) * known.capacity_per_s < upper_per_s * (1 - 1e-9)] = np.inf
    return int(power.argmin()) if np.isfinite(power).any() else most


def planned(
    profiles: Profiles,
    rate_per_s: FloatArray,
    upper_per_s: FloatArray,
    *,
    gpus: int | None = None,
    spare_gpu_w: float = 0.0,
    partitions: Sequence[tuple[tuple[int, ...], ...]] = PARTITIONS,
    full_speed: bool = False,
) -> tuple[PoolPlan, ...]:
    """Pools, layouts and instances of least power; where GPUs are too few for any, the ones that carry most.

    Args:
        profiles: of the cluster.
        rate_per_s: of each class, on average; shape (9,).
        upper_per_s: that each class' pool must be able to take; shape (9,).
        gpus: that may be used; all of the cluster by default.
        spare_gpu_w: what a GPU draws that no instance runs on.
        partitions: of the classes into pools, to choose from.
        full_speed: at the greatest clock only.

    Raises:
        BadInputError: no layout keeps the deadlines at any load.
    """
    gpus = profiles.cluster.gpus if gpus is None else gpus
    best: tuple[PoolPlan, ...] | None = None
    shrunk = 1.0
    while best is None:
        for partition in partitions:
            found = _of_partition(
                profiles, rate_per_s * shrunk, upper_per_s * shrunk, partition, gpus, spare_gpu_w, full_speed
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
    full_speed: bool,
) -> tuple[PoolPlan, ...]:
    """One partition, its GPUs split exactly; empty where they do not suffice."""
    pools: list[tuple[FloatArray, list[tuple[int, int]]]] = []
    for classes in partition:
        own = np.isin(np.arange(COUNT), classes)
        pools.append(
            _by_gpus(
                profiles, np.where(own, rate_per_s, 0.0), np.where(own, upper_per_s, 0.0), gpus, spare_gpu_w, full_speed
            )
        )
    shares = split([power for power, _ in pools], gpus)
    if shares is None:
        return ()
    found = []
    for classes, (power, chosen), share in zip(partition, pools, shares, strict=True):
        layout, count = chosen[share]
        own = np.isin(np.arange(COUNT), classes)
        rate = np.where(own, rate_per_s, 0.0)
        blend = rate if rate.sum() > 0 else own.astype(np.float64)
        known = profiles.frontier(layout, blend, full_speed=full_speed)
        found.append(PoolPlan(classes, layout, count, known, float(rate.sum()), float(power[share])))
    return tuple(found)


def _by_gpus(
    profiles: Profiles, rate_per_s: FloatArray, upper_per_s: FloatArray, gpus: int, spare_gpu_w: float, full_speed: bool
) -> tuple[FloatArray, list[tuple[int, int]]]:
    """Least power of a pool above that of spare GPUs on at most 0 … ``gpus`` GPUs, with layout and instances."""
    total, upper = float(rate_per_s.sum()), float(upper_per_s.sum())
    power = np.full(gpus + 1, np.inf)
    chosen = [(0, 0)] * (gpus + 1)
    if total <= 0:
        return np.zeros(gpus + 1), chosen
    for layout, engine in enumerate(profiles.cluster.layouts):
        known = profiles.frontier(layout, rate_per_s, full_speed=full_speed)
        most = gpus // engine.gpus
        each = instances_power_w(known, total, most) - spare_gpu_w * engine.gpus * np.arange(most + 1)
        each[np.arange(most + 1) * known.capacity_per_s < upper * (1 - 1e-9)] = np.inf
        for count in np.flatnonzero(np.isfinite(each)).tolist():
            at = count * engine.gpus
            if each[count] < power[at]:
                power[at], chosen[at] = each[count], (layout, count)
    for at in range(1, gpus + 1):
        if power[at - 1] <= power[at]:
            power[at], chosen[at] = power[at - 1], chosen[at - 1]
    return power, chosen
