"""How DynamoLLM plans pools (HPCA'25, section IV): how many instances each class of requests gets, and of which layouts.

    class      SS     SM     …     LL
    floor      2.4 →  2      …     1.3 → 2       whole instances of its own
    remainder  0.4 →  to the next class that dominates it; the largest takes the ceiling

So no pool holds an instance that is mostly idle, but the largest, and a class with little load disappears into a larger one.

Which layouts share a load at least power is found exactly, by dynamic programming over GPUs and units of load. An *option*
is an instance of a layout at one level of load. With ``least[g, q]`` the least power of instances on at most ``g`` GPUs that
take at least ``q`` units of load,

    least[g, q] = min over options of least[g - gpus, max(q - units, 0)] + power

Rates are counted in whole units of load, options' rounded down and the load rounded up, so a plan never promises more than
its options can take. That rounding is all that parts it from the integer program, which DynamoLLM gives to a solver.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
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
        larger = next((each for each in range(number + 1, COUNT) if dominates(each, number)), None)  # that dominates it
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


UNITS = 200
"""Of a load, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Option:
    """An instance at one level of load.

    Attributes:
        layout: which.
        gpus: that it takes.
        rate_per_s: that it serves.
        power_w: that it draws.
    """

    layout: int
    gpus: int
    rate_per_s: float
    power_w: float


@dataclass(frozen=True, slots=True)
class Sharding:
    """Instances that share a load.

    Attributes:
        options: one for each instance.
        power_w: of all of them, spare GPUs included.
    """

    options: tuple[Option, ...]
    power_w: float

    @property
    def gpus(self) -> int:
        """Of all instances."""
        return sum(each.gpus for each in self.options)


@dataclass(frozen=True, slots=True, eq=False)
class Shardings:
    """Least power on any number of GPUs.

    Attributes:
        power_w: on at most that number of GPUs, inf where the load is too much for them; shape (gpus + 1,).
    """

    power_w: FloatArray
    _options: tuple[Option, ...]
    _units: IndexArray
    _choice: IndexArray

    def on(self, gpus: int) -> Sharding | None:
        """The plan on at most a number of GPUs; ``None`` where they are too few."""
        if not np.isfinite(self.power_w[gpus]):
            return None
        chosen, left, at = [], self._choice.shape[1] - 1, gpus
        while left > 0:
            option = int(self._choice[at, left])
            if option < 0:  # a GPU less does as well
                at -= 1
                continue
            chosen.append(self._options[option])
            left, at = max(left - int(self._units[option]), 0), at - self._options[option].gpus
        return Sharding(tuple(sorted(chosen, key=lambda each: (-each.gpus, -each.rate_per_s))), float(self.power_w[gpus]))


def shardings(
    options: Sequence[Option], gpus: int, rate_per_s: float, *, unit_per_s: float | None = None, spare_gpu_w: float = 0.0
) -> Shardings:
    """The least power that takes a load on every number of GPUs.

    Args:
        options: instances, at levels of load.
        gpus: at most.
        rate_per_s: the load.
        unit_per_s: of load; by default one of :data:`UNITS` that it consists of.
        spare_gpu_w: what a GPU draws that no instance runs on.

    Raises:
        BadInputError: a load or unit that is negative.
    """
    if not (0 <= rate_per_s < math.inf and gpus >= 0):
        raise BadInputError(f"a load of {rate_per_s:g} requests/s on {gpus} GPUs cannot be shared")
    unit = unit_per_s if unit_per_s is not None else max(rate_per_s, 1e-9) / UNITS
    if not unit > 0:
        raise BadInputError(f"`unit_per_s` ({unit:g}) must be above 0")
    load = math.ceil(rate_per_s / unit - 1e-9)
    units = np.array([math.floor(each.rate_per_s / unit + 1e-9) for each in options], dtype=np.intp)
    more_w = np.array([each.power_w - spare_gpu_w * each.gpus for each in options])
    usable = [place for place, each in enumerate(options) if units[place] > 0 and each.gpus <= gpus]
    before = np.maximum(np.arange(load + 1)[None, :] - units[:, None], 0)
    least = np.full((gpus + 1, load + 1), math.inf)
    choice = np.full((gpus + 1, load + 1), -1, dtype=np.intp)
    least[0, 0] = 0.0
    for count in range(gpus + 1):
        if count:
            least[count] = least[count - 1]
        for place in usable:
            if options[place].gpus > count:
                continue
            power_w = least[count - options[place].gpus][before[place]] + more_w[place]
            better = power_w < least[count]
            better[0] = False  # no load needs no instance
            least[count][better], choice[count][better] = power_w[better], place
    return Shardings(least[:, load] + spare_gpu_w * gpus, tuple(options), units, choice)


def worth_it(now_w: float, then_w: float, horizon_s: float, change_j: float) -> bool:
    """Whether a change saves more until it would be looked at again than it costs; always where there is no choice."""
    return math.isfinite(then_w) and (math.isinf(now_w) or (now_w - then_w) * horizon_s > change_j)
