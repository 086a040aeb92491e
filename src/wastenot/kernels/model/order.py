"""What the order of kernels costs: what a kernel draws on top of its own after a heavier one, and what the best order saves.

Of a kernel of power P and time t after one of power P' the penalty (FinGraV, takeaway 4) is taken as

    g · max(P' - P, 0) · τ · (1 - exp(-t / τ))

a fraction g of the difference that decays with time constant τ: two numbers for a card, fitted to energies in context. In a
loop of two kernels only the lighter one pays. Readings near the power limit are left out: there one kernel also changes its
neighbour's clocks.

Only a fall in power costs energy: a kernel pays for being lighter than the one before it. A layer is a loop, so power must
fall from its heaviest kernel to its lightest once a round; the best order (FinGraV, recommendation 5) climbs from light to
heavy and falls in the cheapest way, a shortest path over the kernels by falling power. That order ignores data dependencies,
which a workload does not record, so its energy is a lower bound for any order that keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.planning.costs import combine_repeats
from wastenot.study.sweep import Sweep
from wastenot.workloads.order import loops, predecessors

_AT_LIMIT = 0.97  # of the highest power
_TIME_CONSTANTS_S = np.geomspace(2e-5, 0.2, 120)
_LEAST_LOOPS = 4


@dataclass(frozen=True, slots=True)
class CarryOver:
    """The penalty of a card.

    Attributes:
        share: g.
        share_error: its standard error, for the time constant found.
        lasts_s: τ.
        loops: pairs of kernels and settings that it was fitted to.
        scatter: root mean square of the residuals, in standard errors.
    """

    share: float
    share_error: float
    lasts_s: float
    loops: int
    scatter: float

    @property
    def known(self) -> bool:
        """Whether it differs from zero by more than noise explains."""
        return self.share > 2.0 * self.share_error * max(1.0, self.scatter)

    def penalty_j(self, before_w: FloatArray, own_w: FloatArray, time_s: FloatArray) -> FloatArray:
        """Energy that a kernel draws after another one, on top of its own."""
        return np.asarray(self.share * _decayed_j(before_w, own_w, time_s, self.lasts_s))


def fit_carry_over(alone: Sweep, within: Sweep) -> CarryOver:
    """Fit the penalty to what kernels cost in context.

    Args:
        alone: energies of kernels back to back.
        within: the same kernels each after the one that runs before it.

    Raises:
        BadInputError: too few kernels were measured in both at the same settings, below the power limit.
    """
    first, second = combine_repeats(alone), combine_repeats(within)
    before = predecessors(within.kernels)
    row_of = {(int(first.kernel[row]), first.setting(row)): row for row in range(len(first.kernel))}
    rows = []
    for row in range(len(second.kernel)):
        kernel, setting = int(second.kernel[row]), second.setting(row)
        pair = row_of.get((kernel, setting)), row_of.get((before[kernel], setting))
        if before[kernel] != kernel and None not in pair:
            rows.append((row, *pair))
    ours, own, other = np.array(rows, dtype=np.intp).reshape(-1, 3).T
    power_w = first.energy_j / first.time_s
    free = np.maximum(power_w[own], power_w[other]) < _AT_LIMIT * power_w.max()
    ours, own, other = ours[free], own[free], other[free]
    # Of the excess energies: twice that of the difference between in context and alone.
    error = 2.0 * np.hypot(second.energy_se_j[ours], first.energy_se_j[own])
    usable = error > 0
    if usable.sum() < _LEAST_LOOPS:
        raise BadInputError(
            f"workload '{within.workload}': too few kernels were measured both alone and in context at the same clocks"
        )
    ours, own, other, error = ours[usable], own[usable], other[usable], error[usable]
    excess = 2.0 * (second.energy_j[ours] - first.energy_j[own])
    lighter = np.where(power_w[own] <= power_w[other], own, other)
    heavier = np.where(power_w[own] <= power_w[other], other, own)
    best: CarryOver | None = None
    for lasts_s in _TIME_CONSTANTS_S.tolist():
        shape = _decayed_j(power_w[heavier], power_w[lighter], first.time_s[lighter], lasts_s) / error
        weight = float(shape @ shape)
        share = max(0.0, float(shape @ (excess / error)) / weight) if weight else 0.0
        scatter = float(np.sqrt(np.mean((excess / error - share * shape) ** 2)))
        if best is None or scatter < best.scatter:
            best = CarryOver(share, weight**-0.5 if weight else np.inf, lasts_s, len(ours), scatter)
    assert best is not None
    return best


def _decayed_j(before_w: FloatArray, own_w: FloatArray, time_s: FloatArray, lasts_s: float) -> FloatArray:
    return np.asarray(-np.maximum(before_w - own_w, 0.0) * lasts_s * np.expm1(-time_s / lasts_s))


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
