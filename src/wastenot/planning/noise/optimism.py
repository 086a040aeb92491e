"""How far a plan chosen by posterior means is too good to be true, estimated without the prior.

Posterior means are free of selection bias only as far as their prior is right. Where kernels come in groups of equals, say,
each is shrunk too little towards its equals, and the plan takes the lucky ones. The coupled bootstrap tells: choose with a
little more noise, judge with measurements whose noise is independent of that
(:func:`wastenot.planning.noise.surface.posterior`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.planning.units import PlanUnit

_DRAWS = (4, 32)  # fewest and most
_NUMBERS = 1 << 19  # of all rows and draws together
_TOGETHER = 256  # units that are looked at at once


@dataclass(frozen=True, slots=True, eq=False)
class Bootstrap:
    """Draws of the coupled bootstrap, relative to each row's expected value; shape (rows, draws).

    Attributes:
        time_moved: by how much the expected time moves with the noise added; ``energy_moved`` the expected energy.
        time_left: the independent measurement less the expected time, as is ``energy_left``.
    """

    time_moved: FloatArray
    energy_moved: FloatArray
    time_left: FloatArray
    energy_left: FloatArray


@dataclass(frozen=True, slots=True)
class Optimism:
    """By how much a plan's expected time and energy are too low, at least 0; of one iteration."""

    time_s: float = 0.0
    energy_j: float = 0.0


def standard_draws(rows: int) -> tuple[FloatArray, FloatArray]:
    """Two arrays of standard normal numbers, shape (rows, draws), always the same, each draw with its negative.

    So what a plan that no draw changes is judged by has no error of so few draws.
    """
    pairs = int(np.clip(_NUMBERS // rows, *_DRAWS)) // 2
    first, second = np.random.default_rng(0).standard_normal((2, rows, pairs))
    return np.concatenate([first, -first], axis=1), np.concatenate([second, -second], axis=1)


def optimism(units: Sequence[PlanUnit], price_w: float, slowdown: float, draws: Bootstrap) -> Optimism:
    """The optimism of the plan that is best at a price of time.

    In each draw every unit takes the option of least energy + price · time, which at the price of time is the plan of least
    energy within a budget.

    Args:
        units: with expected costs.
        price_w: joules that a second is worth.
        slowdown: that is allowed: time is judged over the budget, which is itself measured.
        draws: of the coupled bootstrap.
    """
    each = np.arange(draws.time_moved.shape[1])
    time, energy = np.zeros(len(each)), np.zeros(len(each))
    for some, start in _together(units):
        counts = [unit.costs.count[unit.kernels].astype(np.float64) for unit in some]
        count = np.concatenate([np.broadcast_to(own, unit.rows.shape) for own, unit in zip(counts, some, strict=True)])
        rows, costs = np.concatenate([unit.rows for unit in some]), some[0].costs
        time_s, energy_j = costs.time_s[rows] * count, costs.energy_j[rows] * count
        value = np.einsum("ok,okd->od", energy_j, 1.0 + draws.energy_moved[rows])
        value += price_w * np.einsum("ok,okd->od", time_s, 1.0 + draws.time_moved[rows])
        least = np.repeat(np.minimum.reduceat(value, start[:-1]), np.diff(start), axis=0)
        option = np.where(value == least, np.arange(len(value))[:, None], len(value))
        taken = np.minimum.reduceat(option, start[:-1])
        beyond = np.einsum("ok,okd->od", time_s, draws.time_left[rows])
        time += (beyond[taken, each] - (1.0 + slowdown) * beyond[start[:-1]]).sum(axis=0)
        beyond = np.einsum("ok,okd->od", energy_j, draws.energy_left[rows])
        energy += (beyond[taken, each] - beyond[start[:-1]]).sum(axis=0)
    return Optimism(max(0.0, float(time.mean())), max(0.0, float(energy.mean())))


def _together(units: Sequence[PlanUnit]) -> Iterator[tuple[Sequence[PlanUnit], IndexArray]]:
    """Units of equally many kernels, some at a time, and where the options of each begin among theirs."""
    for _, alike in groupby(units, lambda unit: len(unit.kernels)):
        members = list(alike)
        for first in range(0, len(members), _TOGETHER):
            some = members[first : first + _TOGETHER]
            yield some, np.cumsum([0, *(len(unit.rows) for unit in some)])
