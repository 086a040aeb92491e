"""What putting light kernels before heavy ones would save (FinGraV, recommendation 5).

Only a fall in power costs energy: a kernel pays for being lighter than the one before it. A layer is a loop, so power must
fall from its heaviest kernel to its lightest once a round; the best order climbs from light to heavy and falls in the
cheapest way, a shortest path over the kernels by falling power. That order ignores data dependencies, which a workload does
not record, so its energy is a lower bound for any order that keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.kernels.model.carry_over import CarryOver
from wastenot.planning.costs import combine_repeats
from wastenot.study.sweep import Sweep
from wastenot.workloads.order import loops


@dataclass(frozen=True, slots=True)
class LoopOrder:
    """A loop of kernels, such as a transformer layer's forward pass, in the order it runs and in the best one.

    Attributes:
        name: block and pass.
        times: that it runs in an iteration.
        given: kernels in the order they run.
        best: the same in the order of least penalty.
        given_j: penalty of one round in the given order.
        best_j: the least of any order.
    """

    name: str
    times: int
    given: tuple[str, ...]
    best: tuple[str, ...]
    given_j: float
    best_j: float

    @property
    def saved_j(self) -> float:
        """Most that another order can save in an iteration; entering and leaving the loop is not counted."""
        return self.times * (self.given_j - self.best_j)


def light_first(sweep: Sweep, carry_over: CarryOver) -> tuple[LoopOrder, ...]:
    """The loops of a workload in the given order and in the best one, at auto, by the card's penalty."""
    costs = combine_repeats(sweep)
    base = costs.start[:-1]
    power_w, time_s = costs.energy_j[base] / costs.time_s[base], costs.time_s[base]
    orders = []
    for loop in loops(sweep.kernels):
        if len(loop.members) < 2:
            continue
        members = np.array(loop.members)
        own_w = power_w[members]
        descent = carry_over.penalty_j(own_w[:, None], own_w, time_s[members])
        best, best_j = best_order(own_w, descent)
        names = [sweep.kernels[index].name for index in members]
        given_j = float(sum(descent[index - 1, index] for index in range(len(members))))
        first = sweep.kernels[loop.members[0]]
        label = " ".join(part for part in (first.block, first.pass_name) if part)
        orders.append(LoopOrder(label, loop.times, tuple(names), tuple(names[index] for index in best), given_j, best_j))
    return tuple(orders)


def best_order(power_w: FloatArray, descent_j: FloatArray) -> tuple[tuple[int, ...], float]:
    """The cyclic order of least penalty: light to heavy, then down again over a shortest path.

    Args:
        power_w: of each kernel, shape (kernels,).
        descent_j: penalty of the second kernel after the first, shape (kernels, kernels); 0 where it is the heavier one.

    Returns:
        The order, the lightest first, and the penalty of a round.
    """
    falling = np.argsort(-power_w, kind="stable").tolist()
    least = {falling[0]: 0.0}
    previous: dict[int, int] = {}
    for rank, kernel in enumerate(falling[1:], 1):
        previous[kernel] = min(falling[:rank], key=lambda above: least[above] + descent_j[above, kernel])
        least[kernel] = least[previous[kernel]] + float(descent_j[previous[kernel], kernel])
    down = [falling[-1]]
    while down[-1] != falling[0]:
        down.append(previous[down[-1]])
    between = down[1:-1][::-1]  # passed on the way down, after the heaviest
    order = [kernel for kernel in falling[::-1] if kernel not in between] + between
    return tuple(order), least[falling[-1]]
