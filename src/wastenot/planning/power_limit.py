"""An iteration under a power limit: the clock that it runs at, and the plans that are best there.

    power      ▮▮▮▮         ▮▮▮▮▮▮        products, above the limit
    limit  ────────────────────────────   mean of all
                   ▮▮▮▮▮▮▮▮         ▮▮▮   light kernels, below it

The regulator is slower than kernels follow one another. So all of an iteration runs at one clock, the highest at which its
mean power is within the limit:

    sum n T(f) P(f)  =  limit * sum n T(f)

A ceiling on the clock of a kernel that owes it little speed lowers the mean, and the others may run faster: under a power
limit, waste costs speed. With a ceiling for every kernel, the regulator has nothing to do as long as

    sum n T (P - limit)  <=  0,

so the fastest plan is the choice of one clock for each kernel that has the least time among those: a multiple-choice
knapsack whose weights may be negative. The common clock need not be searched for.

The regulator's mean is over about a second. Of an iteration that lasts longer, all of this holds for each stretch of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray
from wastenot.core.errors import BadInputError, InfeasibleError
from wastenot.frontiers.algebra import Frontier, choice
from wastenot.frontiers.exact import exact_sum
from wastenot.frontiers.knapsack import cheapest_within
from wastenot.frontiers.nodes import Ways
from wastenot.workloads.order import Ordered, loops

REGULATED_S = 0.85
"""Over about this time an H200's regulator holds mean power to the limit (data/h200/natural)."""

_SAME_MHZ = 1e-6  # by which clocks differ through rounding
_ROUNDING = 1e-9  # of energies, relative


@dataclass(frozen=True, eq=False)
class ClockCosts:
    """Time and power of kernels at the same core clocks in effect, as if there were no power limit.

    Attributes:
        kernels: their names, in order of execution.
        count: how often each runs in an iteration, shape (kernels,).
        core_mhz: ascending, shape (clocks,).
        time_s: of one call, shape (kernels, clocks).
        power_w: mean power back to back, shape (kernels, clocks).
        seen: which of them were measured, or lie between measured clocks; the others are extrapolated.
        stretch: of the iteration, that each kernel runs in, from 0; ``None`` for only one; shape (kernels,).
    """

    kernels: tuple[str, ...]
    count: NDArray[np.int64]
    core_mhz: FloatArray
    time_s: FloatArray
    power_w: FloatArray
    seen: BoolArray
    stretch: IndexArray | None = None

    @cached_property
    def members(self) -> tuple[IndexArray, ...]:
        """The kernels of each stretch."""
        if self.stretch is None:
            return (np.arange(len(self.kernels)),)
        return tuple(np.flatnonzero(self.stretch == index) for index in range(int(self.stretch.max()) + 1))

    @cached_property
    def iteration_s(self) -> FloatArray:
        """Time of all calls of each kernel in an iteration, shape (kernels, clocks)."""
        return self.time_s * self.count[:, None]

    @cached_property
    def iteration_j(self) -> FloatArray:
        """Energy of all calls of each kernel in an iteration, shape (kernels, clocks)."""
        return self.iteration_s * self.power_w


@dataclass(frozen=True, slots=True, eq=False)
class Iteration:
    """A whole iteration under a power limit. Arrays have shape (kernels,).

    Attributes:
        core_mhz: the clock of every kernel whose ceiling is not lower; a mean over time where stretches differ.
        time_s: its time.
        energy_j: its energy.
        limited: whether the limit holds that clock down, in any stretch.
        kernel_mhz: clock of each kernel.
        kernel_s: time of one call of each.
        kernel_w: power of each.
        extrapolated: whether a kernel was not measured at its clock.
    """

    core_mhz: float
    time_s: float
    energy_j: float
    limited: bool
    kernel_mhz: FloatArray
    kernel_s: FloatArray
    kernel_w: FloatArray
    extrapolated: BoolArray

    @property
    def power_w(self) -> float:
        """Mean power."""
        return self.energy_j / self.time_s


@dataclass(frozen=True, slots=True, eq=False)
class LimitedPlan:
    """A ceiling for the clock of each kernel.

    Attributes:
        ceiling: the highest clock of each kernel, an index into the clocks of the costs; shape (kernels,).
        ceiling_mhz: the same in MHz; ``None`` for a kernel that may run at the highest of all.
        iteration: what it gives.
        lower_bound: no plan within the limit takes less time (fastest plan) or energy (least energy within a time).
    """

    ceiling: IndexArray
    ceiling_mhz: tuple[float | None, ...]
    iteration: Iteration
    lower_bound: float


def stretches(kernels: Sequence[Ordered], seconds: Sequence[float]) -> IndexArray:
    """The stretches of an iteration, each at least as long as the mean that a regulator takes.

    A loop, such as the layers of a pass, is not divided: its kernels alternate.

    Args:
        kernels: in order of execution.
        seconds: that all calls of each take in an iteration.

    Returns:
        The stretch of each kernel, counted from 0; shape (kernels,).
    """
    stretch = np.zeros(len(kernels), dtype=np.intp)
    index, so_far_s = 0, 0.0
    for loop in loops(kernels):
        if so_far_s >= REGULATED_S:
            index, so_far_s = index + 1, 0.0
        stretch[list(loop.members)] = index
        so_far_s += sum(seconds[kernel] for kernel in loop.members)
    if index and so_far_s < REGULATED_S:  # what is left counts as part of the last
        stretch[stretch == index] = index - 1
    return stretch


def run_iteration(costs: ClockCosts, limit_w: float, ceiling: IndexArray | None = None) -> Iteration:
    """An iteration whose clocks a power limit holds down together.

    Between two clocks the regulator alternates, so that the mean power of both meets the limit.

    Args:
        costs: of its kernels.
        limit_w: mean power that the regulator allows.
        ceiling: highest clock of each kernel, as an index into the clocks; the highest of all by default; shape (kernels,).

    Raises:
        BadInputError: the limit is not a power.
    """
    if not 0.0 < limit_w < np.inf:
        raise BadInputError(f"`power_limit_w` {limit_w:g}: must be a number of watts above 0")
    highest = len(costs.core_mhz) - 1
    ceilings = np.full(len(costs.kernels), highest) if ceiling is None else np.asarray(ceiling)
    call_s, call_j, kernel_mhz = (np.empty(len(costs.kernels)) for _ in range(3))
    extrapolated = np.zeros(len(costs.kernels), dtype=bool)
    seconds, clocks, limited = [], [], False
    for rows in costs.members:
        low, high, share = _common_clock(costs, rows, ceilings[rows], limit_w)
        mix = np.array([1.0 - share, share])
        both = np.minimum([low, high], ceilings[rows, None])
        at = rows[:, None], both
        call_s[rows] = costs.time_s[at] @ mix
        call_j[rows] = (costs.time_s[at] * costs.power_w[at]) @ mix
        kernel_mhz[rows] = costs.core_mhz[both] @ mix
        extrapolated[rows] = ~costs.seen[at][:, : 2 if share > 0.0 else 1].all(axis=1)
        seconds.append(float(costs.count[rows] @ call_s[rows]))
        clocks.append(float(costs.core_mhz[[low, high]] @ mix))
        limited |= low < highest
    return Iteration(
        core_mhz=float(np.average(clocks, weights=seconds)),
        time_s=float(costs.count @ call_s),
        energy_j=float(costs.count @ call_j),
        limited=limited,
        kernel_mhz=kernel_mhz,
        kernel_s=call_s,
        kernel_w=call_j / call_s,
        extrapolated=extrapolated,
    )


def _common_clock(costs: ClockCosts, rows: IndexArray, ceiling: IndexArray, limit_w: float) -> tuple[int, int, float]:
    """Two neighbouring clocks that a stretch alternates between, and the share of iterations at the higher one."""
    clocks = np.arange(len(costs.core_mhz))
    at = rows[:, None], np.minimum(clocks, ceiling[:, None])  # where each kernel is when the common clock is each of them
    time, energy = costs.iteration_s[at], costs.iteration_j[at]
    excess = (energy - limit_w * time).sum(axis=0)
    within = np.flatnonzero(excess <= _ROUNDING * limit_w * time.sum(axis=0))
    if not len(within):  # at the lowest the regulator can do no more
        return 0, 0, 0.0
    low = int(within[-1])
    if low == clocks[-1]:
        return low, low, 0.0
    return low, low + 1, float(excess[low] / (excess[low] - excess[low + 1]))


def fastest_plan(costs: ClockCosts, limit_w: float) -> LimitedPlan:
    """The ceilings of least time within a power limit, exact over the clocks of the costs.

    A kernel may have any clock at which it was measured, and those from there to the clock that the iteration has without
    ceilings.

    Raises:
        BadInputError: the limit is not a power.
        InfeasibleError: even the plan of least power is above the limit.
    """
    free = run_iteration(costs, limit_w)
    options = _Options.of(costs, free)
    excess = options.energy_j - limit_w * options.time_s
    chosen, bound_s = np.empty(len(costs.kernels), dtype=np.intp), 0.0
    for rows in costs.members:
        points, start = options.of_kernels(rows)
        try:
            best = cheapest_within(options.time_s[points], excess[points], start, 0.0)
        except InfeasibleError as error:
            lowest = options.start[:-1][rows]
            least_w = float(options.energy_j[lowest].sum() / options.time_s[lowest].sum())
            raise InfeasibleError(
                f"`power_limit_w` {limit_w:g}: at the lowest clocks known, the iteration draws {least_w:.0f} W"
            ) from error
        chosen[rows] = best.options
        bound_s += best.lower_bound
    return _plan(costs, limit_w, options, chosen, bound_s)


def least_energy_plan(costs: ClockCosts, limit_w: float, within_s: float, fastest: LimitedPlan | None = None) -> LimitedPlan:
    """The ceilings of least energy within a time and a power limit.

    Where more time never costs energy, as between the best plans, a plan of least energy within a time that the limit
    allows is itself within the limit. If it is not, because a stretch of it is faster than the limit allows, the best of two
    plans within the limit is returned: the fastest, and the one of least energy with every stretch in the time that it
    takes without ceilings. The bound says how much better a plan could be.

    Args:
        costs: of its kernels.
        limit_w: mean power that the regulator allows.
        within_s: time that the iteration may take.
        fastest: what :func:`fastest_plan` says of the same costs and limit, where that is known already.

    Raises:
        BadInputError: the limit is not a power.
        InfeasibleError: no plan within the limit is that fast; says how fast one can be.
    """
    fastest = fastest or fastest_plan(costs, limit_w)
    if within_s < fastest.iteration.time_s * (1.0 - _ROUNDING):
        raise InfeasibleError(
            f"`within_s` {within_s:g}: within {limit_w:g} W, the fastest plan takes {fastest.iteration.time_s:.6g} s"
        )
    free = run_iteration(costs, limit_w)
    options = _Options.of(costs, free)
    exact_s = exact_sum((1, each) for each in options.time_s[options.chosen(fastest.ceiling)].tolist())
    best = options.frontier().least_energy(max(Fraction(within_s), exact_s))
    assert best.lower_bound_j is not None
    if _within(costs, options, best.options, limit_w):
        return _plan(costs, limit_w, options, best.options, best.lower_bound_j)
    plans = [fastest]
    stretches = np.empty(len(costs.kernels), dtype=np.intp)
    for rows in costs.members:
        own_s = exact_sum((1, each) for each in options.time_s[options.chosen(fastest.ceiling)[rows]].tolist())
        free_s = Fraction(float(costs.count[rows] @ free.kernel_s[rows]))
        stretches[rows] = options.frontier(rows).least_energy(max(own_s, free_s)).options
    if _within(costs, options, stretches, limit_w):
        plans.append(_plan(costs, limit_w, options, stretches, best.lower_bound_j))
    kept = [plan for plan in plans if plan.iteration.time_s <= within_s * (1.0 + _ROUNDING)]
    chosen = min(kept or [fastest], key=lambda plan: plan.iteration.energy_j)
    return LimitedPlan(chosen.ceiling, chosen.ceiling_mhz, chosen.iteration, best.lower_bound_j)


@dataclass(frozen=True, eq=False)
class _Options:
    """The clocks that each kernel may have, laid end to end, with the time and energy of all of its calls."""

    column: IndexArray
    start: IndexArray
    time_s: FloatArray
    energy_j: FloatArray

    @classmethod
    def of(cls, costs: ClockCosts, free: Iteration) -> _Options:
        """Those measured, and those from there to the clock of the iteration without ceilings."""
        below = np.searchsorted(costs.core_mhz, free.kernel_mhz + _SAME_MHZ, side="right") - 1
        above = np.searchsorted(costs.core_mhz, free.kernel_mhz - _SAME_MHZ)
        allowed = costs.seen.copy()
        for row in range(len(costs.kernels)):
            known = np.flatnonzero(costs.seen[row])
            allowed[row, min(known[0], below[row]) : max(known[-1], above[row]) + 1] = True
        kernel, column = allowed.nonzero()
        return cls(
            column,
            np.searchsorted(kernel, np.arange(len(costs.kernels) + 1)),
            costs.iteration_s[kernel, column],
            costs.iteration_j[kernel, column],
        )

    def of_kernels(self, rows: IndexArray) -> tuple[IndexArray, IndexArray]:
        """The options of some kernels, and where each one's begin among them."""
        ranges = [np.arange(self.start[row], self.start[row + 1]) for row in rows.tolist()]
        return np.concatenate(ranges), np.cumsum([0, *map(len, ranges)])

    def frontier(self, rows: IndexArray | None = None) -> Frontier:
        """Of an iteration with a clock for each kernel, or of some of its kernels."""
        if rows is None:
            return choice(Ways(self.time_s, self.energy_j, start=self.start))
        points, start = self.of_kernels(rows)
        return choice(Ways(self.time_s[points], self.energy_j[points], start=start))

    def chosen(self, columns: IndexArray) -> IndexArray:
        """The options that stand for the given clock of each kernel, counted from the very first."""
        return np.array([
            begin + int(np.searchsorted(self.column[begin:end], column))
            for begin, end, column in zip(self.start[:-1], self.start[1:], columns, strict=True)
        ])  # fmt: skip


def _plan(costs: ClockCosts, limit_w: float, options: _Options, chosen: IndexArray, bound: float) -> LimitedPlan:
    ceiling = options.column[options.start[:-1] + chosen]
    highest = len(costs.core_mhz) - 1
    megahertz = tuple(None if each == highest else float(costs.core_mhz[each]) for each in ceiling.tolist())
    return LimitedPlan(ceiling, megahertz, run_iteration(costs, limit_w, ceiling), bound)


def _within(costs: ClockCosts, options: _Options, chosen: IndexArray, limit_w: float) -> bool:
    """Whether a plan is within the limit in every stretch, to rounding."""
    points = options.start[:-1] + chosen
    energy, time = options.energy_j[points], options.time_s[points]
    return all(energy[rows].sum() <= limit_w * time[rows].sum() * (1.0 + _ROUNDING) for rows in costs.members)
