"""Which layout serves a load at least power, and on how many instances, with deadlines kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.serving.cluster.classes import COUNT
from wastenot.serving.cluster.frontiers import InstanceFrontier
from wastenot.serving.cluster.profiles import TOGETHER, Profiles

_SHORT, _MIDDLE, _LONG = (0, 1, 2), (3, 4, 5), (6, 7, 8)
PARTITIONS: tuple[tuple[tuple[int, ...], ...], ...] = (
    (_SHORT + _MIDDLE + _LONG,),
    (_SHORT + _MIDDLE, _LONG),
    (_SHORT, _MIDDLE + _LONG),
    (_SHORT, _MIDDLE, _LONG),
)
"""Classes by pool, by the lengths of prompts, which a router knows; those of answers it can only guess."""

SWING = (0.6, 0.7, 0.8, 0.9, 1.0, 1.1)
"""Multiples of a load between which it varies, unless more is known: small instances can follow it, large ones less so."""


@dataclass(frozen=True, slots=True, eq=False)
class PoolPlan:
    """Instances of one layout that share a load, clocks climbing with their backlog of prompts.

    Attributes:
        layout: of all instances.
        instances: their number.
        blend: rates of the classes, of which the ratios count; shape (9,).
        power_w: of all.
    """

    layout: int
    instances: int
    blend: FloatArray
    power_w: float

    def frontier(self, profiles: Profiles, instances: int) -> InstanceFrontier:
        """Of one of a number of instances."""
        return profiles.frontier(self.layout, self.blend, together=instances, ladders=True)


def power_by_count(known: Callable[[int], InstanceFrontier], rate_per_s: float, upper_per_s: float, most: int) -> FloatArray:
    """Power of 0 … ``most`` instances that share a load evenly; inf where it is too much for them; shape (most + 1,).

    Args:
        known: levels of load of one of a number of instances; with more of them each can take no less.
        rate_per_s: that is expected.
        upper_per_s: that must be possible.
        most: instances.
    """
    power = np.full(most + 1, np.inf)
    power[0] = 0.0 if upper_per_s <= 0 else np.inf
    if not most:
        return power
    counts = np.arange(1, most + 1)
    kinds = TOGETHER[np.searchsorted(TOGETHER, counts, side="right") - 1]
    for kind in np.unique(kinds)[::-1].tolist():
        each = known(kind)
        enough = counts * each.capacity_per_s >= upper_per_s * (1 - 1e-9)
        own = counts[(kinds == kind) & enough]
        power[own] = own * each.power_at(rate_per_s / own)
        if not enough[kinds < kind].any():  # fewer are too few
            break
    return power


def planned(
    profiles: Profiles,
    rate_per_s: FloatArray,
    upper_per_s: FloatArray,
    *,
    spare_gpu_w: float = 0.0,
    swing: Sequence[float] = SWING,
    all_awake: bool = False,
) -> PoolPlan:
    """The layout of least power while its instances follow the load; where GPUs are too few, the one that carries most.

    Args:
        profiles: of the cluster.
        rate_per_s: of each class, on average; shape (9,).
        upper_per_s: that must be possible at this rate, and the same above others; shape (9,).
        spare_gpu_w: what a GPU draws that no instance runs on.
        swing: multiples of the load between which it varies; the plan's instances are those for the load itself.
        all_awake: instances that are not needed take what the others have no room for at once, so that the load of each is
            as even as that of all.

    Raises:
        BadInputError: no layout keeps the deadlines at any load.
    """
    cluster = profiles.cluster
    blend = rate_per_s if rate_per_s.sum() > 0 else np.ones(COUNT)
    rate, upper = float(rate_per_s.sum()), float(upper_per_s.sum())
    plans: list[tuple[FloatArray, PoolPlan]] = []
    takes: list[tuple[float, PoolPlan]] = []
    for layout, engine in enumerate(cluster.layouts):
        most = cluster.most(layout)

        def known(count: int, layout: int = layout, most: int = most) -> InstanceFrontier:
            return profiles.frontier(layout, blend, together=most if all_awake else count, ladders=True)

        if not most:
            continue
        spare_w = spare_gpu_w * (cluster.gpus - engine.gpus * np.arange(most + 1))
        power = power_by_count(known, rate, upper, most) + spare_w
        count, full = int(power.argmin()), known(most)
        if np.isfinite(power[count]):
            swung_w = [(power_by_count(known, each * rate, each * upper, most) + spare_w).min() for each in swing]
            plans.append((np.array(swung_w), PoolPlan(layout, count, blend, float(power[count]))))
        if full.capacity_per_s:
            plan = PoolPlan(layout, most, blend, most * float(full.power_w[-1]))
            takes.append((-most * full.capacity_per_s, plan))
    if not plans and not takes:
        raise BadInputError("no layout meets the deadlines at any load; allow more time or fewer tokens per step")
    if not plans:
        return min(takes, key=lambda each: each[0])[1]
    can = np.isfinite([swung_w for swung_w, _ in plans]).all(axis=0)  # a load that one cannot take says nothing of power
    return min(plans, key=lambda each: float(each[0][can].mean()) if can.any() else float(each[1].power_w))[1]
