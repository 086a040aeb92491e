"""Units: what a plan gives one setting, be it a kernel, a pass or the whole iteration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise, product
from typing import overload

import numpy as np
from numpy.typing import NDArray

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import BadInputError
from wastenot.core.wording import counted
from wastenot.frontiers.algebra import Frontier, choice, sequence
from wastenot.frontiers.exact import exact_sum
from wastenot.frontiers.nodes import KernelSetting, Tied, Ways
from wastenot.planning.costs import Costs
from wastenot.workloads.identity import GRANULARITIES, Granularity


class _Labels(Sequence[KernelSetting]):
    """The kernel and setting of some rows, made when asked for."""

    def __init__(self, costs: Costs, rows: IndexArray | None = None) -> None:
        self._costs = costs
        self._rows = rows

    def __len__(self) -> int:
        return len(self._costs.kernel) if self._rows is None else len(self._rows)

    @overload
    def __getitem__(self, index: int) -> KernelSetting: ...
    @overload
    def __getitem__(self, index: slice) -> list[KernelSetting]: ...
    def __getitem__(self, index: int | slice) -> KernelSetting | list[KernelSetting]:
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        row = index if self._rows is None else int(self._rows[index])
        return KernelSetting(self._costs.kernels[self._costs.kernel[row]].name, self._costs.setting(row))


@dataclass(frozen=True, eq=False)
class PlanUnit:
    """Kernels that share a setting, and the settings they have in common.

    Attributes:
        name: of the kernel, the pass, or ``iteration``.
        costs: what ``rows`` points into.
        kernels: indices of its kernels, shape (kernels,).
        rows: for each option the row of each kernel, shape (options, kernels). Option 0 is auto.
    """

    name: str
    costs: Costs
    kernels: IndexArray
    rows: NDArray[np.intp]

    @property
    def time_s(self) -> FloatArray:
        """Time of the unit in one iteration at each option, counts included; shape (options,)."""
        return self.costs.time_s[self.rows] @ self.costs.count[self.kernels].astype(np.float64)

    @property
    def energy_j(self) -> FloatArray:
        """Energy of the unit in one iteration at each option, counts included; shape (options,)."""
        return self.costs.energy_j[self.rows] @ self.costs.count[self.kernels].astype(np.float64)

    @property
    def baseline_time_s(self) -> Fraction:
        """Time of the unit in one iteration at auto, without rounding."""
        times = self.costs.time_s[self.rows[0]].tolist()
        return exact_sum(zip(self.costs.count[self.kernels].tolist(), times, strict=True))

    @cached_property
    def frontier(self) -> Frontier:
        """The unit's frontier: its kernels tied, as often as each runs."""
        options, kernels = self.rows.shape
        row = self.rows.T.ravel()
        start = None if kernels == 1 else np.arange(kernels + 1) * options
        count = self.costs.count[self.kernels]
        ways = Ways(self.costs.time_s[row], self.costs.energy_j[row], _Labels(self.costs, row), start, count)
        if kernels == 1:
            return choice(ways)
        return Frontier((Tied(ways, np.broadcast_to(np.arange(options)[:, None], self.rows.shape)),))


def iteration_frontier(costs: Costs, units: Sequence[PlanUnit], granularity: Granularity) -> Frontier:
    """The frontier of an iteration: its units in sequence, each at a setting of its own."""
    if granularity == "kernel":  # all rows in one piece
        return choice(Ways(costs.time_s, costs.energy_j, _Labels(costs), costs.start, costs.count))
    return sequence(*(unit.frontier for unit in units))


def make_units(costs: Costs, granularity: Granularity, clock_tolerance_mhz: float = 0.0) -> list[PlanUnit]:
    """The units of a workload, in order of execution.

    Args:
        costs: of the workload's kernels.
        granularity: one unit for the iteration, one for each pass, or one for each kernel.
        clock_tolerance_mhz: how far a kernel's core clock may be from that of its unit.

    Raises:
        BadInputError: an unknown granularity, a negative tolerance, pass granularity where kernels have no pass, or
            kernels of a unit that share no setting besides auto.
    """
    if not 0.0 <= clock_tolerance_mhz < np.inf:
        raise BadInputError(f"`clock_tolerance_mhz` {clock_tolerance_mhz}: must be a number of at least 0 MHz")
    match granularity:
        case "kernel":
            return [
                PlanUnit(kernel.name, costs, np.array([index]), np.arange(begin, end)[:, None])
                for index, (kernel, (begin, end)) in enumerate(zip(costs.kernels, pairwise(costs.start), strict=True))
            ]
        case "pass":
            members: dict[str, list[int]] = {}
            for index, kernel in enumerate(costs.kernels):
                if kernel.pass_name is None:
                    raise BadInputError(
                        f"granularity pass: kernel '{kernel.name}' has no pass; add a 'pass' column to "
                        "the sweep, or plan by kernel or iteration"
                    )
                members.setdefault(kernel.pass_name, []).append(index)
            return [_shared_unit(name, costs, np.array(kernels), clock_tolerance_mhz) for name, kernels in members.items()]
        case "iteration":
            return [_shared_unit("iteration", costs, np.arange(len(costs.kernels)), clock_tolerance_mhz)]
    raise BadInputError(f"granularity {granularity!r}: choose one of {', '.join(GRANULARITIES)}")


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """Core clocks tried together with one memory clock, power limit and profile."""

    core_mhz: FloatArray  # those that occur, shape (levels,)
    row: NDArray[np.intp]  # that each kernel would take, −1 where it has none near enough; shape (levels, kernels)
    nearest_mhz: FloatArray  # how far the nearest row of each kernel is, inf where there is none; shape (levels, kernels)
    memory_mhz: float  # NaN for auto


def _shared_unit(name: str, costs: Costs, kernels: IndexArray, tolerance_mhz: float) -> PlanUnit:
    auto = costs.start[kernels][None, :]
    levels = list(_levels(costs, kernels, tolerance_mhz))
    rows = [level.row[(level.row >= 0).all(axis=1)] for level in levels]
    shared = np.concatenate([auto, *rows])
    if len(shared) == 1 and levels and len(kernels) > 1:
        raise BadInputError(_nothing_shared(name, costs, kernels, levels, tolerance_mhz))
    _, first = np.unique(shared, axis=0, return_index=True)
    return PlanUnit(name, costs, kernels, shared[np.sort(first)])


def _levels(costs: Costs, kernels: IndexArray, tolerance_mhz: float) -> Iterator[_Level]:
    of_unit = np.isin(np.arange(len(costs.kernels)), kernels)[costs.kernel]
    of_unit[costs.start[kernels]] = False
    rows = np.flatnonzero(of_unit)
    columns = (costs.profile, costs.power_limit_w, costs.memory_mhz)
    profiles, limits, memories = (np.nan_to_num(column[rows], nan=-1.0) for column in columns)
    for profile, limit, memory in product(np.unique(profiles), np.unique(limits), np.unique(memories)):
        here = rows[(profiles == profile) & (limits == limit) & (memories == memory)]
        for free in (False, True):  # an auto core clock is a level of its own, near to nothing but itself
            chosen = here[np.isnan(costs.core_mhz[here]) == free]
            if len(chosen):
                core = np.nan_to_num(costs.core_mhz, nan=0.0)
                wanted = np.unique(core[chosen])
                row, distance = _nearest_of_each(core, costs.kernel, kernels, chosen, wanted)
                row = np.where(distance <= tolerance_mhz, row, -1)
                yield _Level(
                    np.full(len(wanted), np.nan) if free else wanted, row, distance, float(costs.memory_mhz[chosen[0]])
                )


def _nearest_of_each(
    core_mhz: FloatArray, kernel: IndexArray, kernels: IndexArray, rows: IndexArray, wanted: FloatArray
) -> tuple[IndexArray, FloatArray]:
    """The row of each kernel nearest each wanted clock, and its distance; shape (wanted, kernels) each."""
    begin, end = (np.searchsorted(kernel[rows], kernels, side) for side in ("left", "right"))
    clocks = core_mhz[rows].reshape(len(kernels), -1) if np.all(end - begin == len(wanted)) else None
    if clocks is not None and (clocks == wanted).all():  # a grid
        return rows.reshape(clocks.shape).T, np.zeros(clocks.shape[::-1])
    columns = [_nearest(core_mhz, rows[each], wanted) for each in map(slice, begin, end)]
    return np.column_stack([column[0] for column in columns]), np.column_stack([column[1] for column in columns])


def _nearest(core_mhz: FloatArray, rows: IndexArray, wanted: FloatArray) -> tuple[IndexArray, FloatArray]:
    """The row nearest each wanted clock, the lower on a tie, and its distance."""
    if not len(rows):
        return np.full(len(wanted), -1), np.full(len(wanted), np.inf)
    clocks = core_mhz[rows]  # rising, since rows are sorted by setting
    above = np.searchsorted(clocks, wanted).clip(0, len(rows) - 1)
    below = (above - 1).clip(0)
    lower = np.abs(clocks[below] - wanted) <= np.abs(clocks[above] - wanted)
    nearest = np.where(lower, below, above)
    return rows[nearest], np.abs(clocks[nearest] - wanted)


def _nothing_shared(name: str, costs: Costs, kernels: IndexArray, levels: list[_Level], tolerance_mhz: float) -> str:
    level = max(levels, key=lambda level: int((level.row >= 0).sum(axis=1).max()))
    best = int((level.row >= 0).sum(axis=1).argmax())
    missing = [costs.kernels[kernels[index]].name for index in np.flatnonzero(level.row[best] < 0)]
    listed = ", ".join(f"'{kernel}'" for kernel in missing[:3]) + (", ..." if len(missing) > 3 else "")
    clocks = f"core {_mhz(level.core_mhz[best])}, memory {_mhz(level.memory_mhz)}"
    needed = min((float(level.nearest_mhz.max(axis=1).min()) for level in levels), default=np.inf)
    fix = f"`clock_tolerance_mhz` {needed:g} is enough, or " if np.isfinite(needed) else ""
    return (
        f"{name}: no setting besides auto is common to its {counted(len(kernels), 'kernel')} within {tolerance_mhz:g} MHz; "
        f"the nearest to it, {clocks}, is missing for {len(missing)}: {listed}; {fix}measure what is missing"
    )


def _mhz(clock: float) -> str:
    return "auto" if np.isnan(clock) else f"{clock:g} MHz"
