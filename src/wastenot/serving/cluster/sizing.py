"""How many instances each class of requests gets, as DynamoLLM's cluster manager has it (HPCA'25, section IV).

    class      SS     SM     …     LL
    floor      2.4 →  2      …     1.3 → 2       whole instances of its own
    remainder  0.4 →  to the next class that dominates it; the largest takes the ceiling

So no pool holds an instance that is mostly idle, but the largest, and a class with little load disappears into a larger one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.serving.cluster.classes import COUNT, dominates


@dataclass(frozen=True, slots=True, eq=False)
class Sizing:
    """Pools by class.

    Attributes:
        instances: of each class' pool; shape (9,).
        rate_per_s: of each class that each pool is to take; shape (9 pools, 9 classes).
        pools: that take each class' requests, in order: its own if there is one, and those that dominate it.
    """

    instances: tuple[int, ...]
    rate_per_s: FloatArray
    pools: tuple[tuple[int, ...], ...]

    def shares(self) -> FloatArray:
        """Of each class' requests, the part that each pool is to take; shape (9 pools, 9 classes)."""
        total = self.rate_per_s.sum(axis=0)
        return np.asarray(self.rate_per_s / np.where(total > 0, total, 1.0))


def sized(rate_per_s: FloatArray, capacity_per_s: FloatArray) -> Sizing:
    """Instances for the greatest load of each class.

    Args:
        rate_per_s: greatest load of each class; shape (9,).
        capacity_per_s: of an instance for requests of each class; shape (9,).

    Raises:
        BadInputError: a class with requests that no instance can take.
    """
    rate = np.diag(np.asarray(rate_per_s, dtype=np.float64))  # of each pool, by the class that it comes from
    instances = [0] * COUNT
    for number in range(COUNT):
        total = float(rate[number].sum())
        if total <= 0:
            continue
        if not capacity_per_s[number] > 0:
            raise BadInputError(f"class {number}: an instance can take none of its requests, but there are some")
        wanted = total / float(capacity_per_s[number])
        larger = _next_larger(number)
        if larger is None:
            instances[number] = math.ceil(wanted - 1e-9)
            continue
        instances[number] = math.floor(wanted + 1e-9)
        own = min(instances[number] / wanted, 1.0) if instances[number] else 0.0
        rate[larger] += (1 - own) * rate[number]
        rate[number] *= own
    there = [number for number in range(COUNT) if instances[number]]
    pools = tuple(tuple(each for each in there if dominates(each, number)) for number in range(COUNT))
    return Sizing(tuple(instances), rate, pools)


def _next_larger(number: int) -> int | None:
    """The next class that dominates one."""
    return next((each for each in range(number + 1, COUNT) if dominates(each, number)), None)
