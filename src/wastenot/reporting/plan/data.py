"""Everything a report shows, computed once by planning: the page, the figures and the tables only draw it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.analyses.context import ContextChange
from wastenot.arrays import IndexArray
from wastenot.errors import BadInputError
from wastenot.planning.comparison import CURVE_BOUNDS, Comparison, CurvePoint, compare, relaxed_curve
from wastenot.planning.objective import Objective, Scope
from wastenot.planning.plan import Plan
from wastenot.planning.planner import Planner
from wastenot.planning.units import Unit
from wastenot.setting import Setting
from wastenot.study.sweep import Sweep
from wastenot.workloads.identity import Granularity

MOST_KERNEL_MAPS = 9  # kernels whose every setting is drawn, those where the plan saves most
_SAME = 1e-9  # relative difference of two numbers that are one number
_LARGEST_SPEED_UP = 0.02  # how far the curve goes to the left of no slowdown, where plans can
_CURVE_STEP = CURVE_BOUNDS[1] - CURVE_BOUNDS[0]


@dataclass(frozen=True, slots=True)
class Curve:
    """Least energy against the slowdown allowed (Fig. 6) at one granularity and scope."""

    granularity: Granularity
    scope: Scope
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True, slots=True)
class SettingPoint:
    """What one setting does to a kernel, or to all kernels of a pass together.

    Attributes:
        setting: the clocks; of several kernels with slightly different ones those of the lowest core clock.
        highest_core_mhz: the highest core clock among the kernels, the setting's own where they are alike.
        time_change: against auto.
        energy_change: against auto.
    """

    setting: Setting
    highest_core_mhz: float | None
    time_change: float
    energy_change: float


@dataclass(frozen=True, slots=True)
class SettingMap:
    """Every setting of a kernel, of a pass or of the iteration.

    Attributes:
        name: of the kernel or the pass, or ``iteration``.
        energy_share: of the iteration's energy at auto.
        points: one for each setting besides auto.
        plan_time_change: what the plan does to it as a whole.
        plan_energy_change: likewise.
    """

    name: str
    energy_share: float
    points: tuple[SettingPoint, ...]
    plan_time_change: float
    plan_energy_change: float


@dataclass(frozen=True, slots=True)
class KernelShare:
    """One kernel in the iteration, all its calls together, at auto and under the plan.

    Attributes:
        name: of the kernel.
        pass_name: its pass, if known.
        setting: what the plan gives it.
        base_time_s: at auto.
        base_energy_j: at auto.
        time_s: under the plan.
        energy_j: under the plan.
    """

    name: str
    pass_name: str | None
    setting: Setting
    base_time_s: float
    base_energy_j: float
    time_s: float
    energy_j: float


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything a report shows.

    Attributes:
        plan: that the report is about.
        comparison: granularities, scopes and objectives side by side (Table 2).
        curves: kernel granularity first.
        coarse_maps: every setting of each pass, or of the iteration; most energy first.
        coarse_maps_missing: why there are none, where that is so.
        kernel_maps: every setting of the kernels that the plan saves most energy in.
        shares: every kernel, in order of execution.
        context: what energies in context change, where they were measured.
    """

    plan: Plan
    comparison: Comparison
    curves: tuple[Curve, ...]
    coarse_maps: tuple[SettingMap, ...]
    coarse_maps_missing: str | None
    kernel_maps: tuple[SettingMap, ...]
    shares: tuple[KernelShare, ...]
    context: ContextChange | None = None


def collect(sweep: Sweep, plan: Plan | None = None, context: ContextChange | None = None) -> ReportData:
    """Compute everything a report shows.

    Args:
        sweep: what the kernels cost.
        plan: the plan to report, made from this sweep; by default the one that saves most energy without any
            slowdown. Its clock tolerance is used throughout.
        context: what energies in context change, where they were measured.

    Raises:
        BadInputError: the plan was made from another sweep.
    """
    planner = Planner(sweep, "kernel")
    plan = plan or planner.plan(Objective())
    shares = _shares(planner, plan)
    comparison = compare(sweep, clock_tolerance_mhz=plan.clock_tolerance_mhz)
    bounds = _bounds(plan)
    planners = [planner]
    missing = None
    try:
        planners.append(Planner(sweep, comparison.coarse, plan.clock_tolerance_mhz))
    except BadInputError as error:
        missing = str(error)
    curves = tuple(
        Curve(each.granularity, scope, relaxed_curve(each, scope, bounds)) for each in planners for scope in _scopes(each)
    )
    coarse_maps = _maps(planners[1].units, shares) if len(planners) > 1 else ()
    if not coarse_maps and missing is None:
        missing = "only auto was measured; sweep more clocks to see what they do"
    return ReportData(
        plan=plan,
        comparison=comparison,
        curves=curves,
        coarse_maps=coarse_maps,
        coarse_maps_missing=missing,
        kernel_maps=_maps(_most_saving(planner.units, shares), shares),
        shares=shares,
        context=context,
    )


def _scopes(planner: Planner) -> tuple[Scope, ...]:
    # A single unit has nobody to make up for it: both scopes are the same plan.
    return ("global", "local") if len(planner.units) > 1 else ("global",)


def _bounds(plan: Plan) -> list[float]:
    """Slowdowns of the curve: some of less than none, then far enough to have the plan on it."""
    reach = max(plan.predicted.time_change, plan.objective.max_slowdown or 0.0) * 1.1
    stretch = max(1.0, reach / CURVE_BOUNDS[-1])
    faster = min(_LARGEST_SPEED_UP, -plan.fastest.time_change)
    steps = int(faster / _CURVE_STEP)
    return [-_CURVE_STEP * step for step in range(steps, 0, -1)] + [bound * stretch for bound in CURVE_BOUNDS]


def _shares(planner: Planner, plan: Plan) -> tuple[KernelShare, ...]:
    costs = planner.costs
    same_names = [kernel.name for kernel in costs.kernels] == [row.kernel for row in plan.assignments]
    if not same_names or not math.isclose(plan.baseline.energy_j, planner.baseline_energy_j, rel_tol=_SAME):
        raise BadInputError(
            f"the plan (workload '{plan.workload}', device '{plan.device}') was not made from this sweep "
            f"(workload '{planner.sweep.workload}', device '{planner.sweep.device}'); plan anew with 'wastenot plan'"
        )
    base = planner.baseline_rows
    return tuple(
        KernelShare(
            name=row.kernel,
            pass_name=row.pass_name,
            setting=row.setting,
            base_time_s=row.count * float(costs.time_s[base[index]]),
            base_energy_j=row.count * float(costs.energy_j[base[index]]),
            time_s=row.count * row.time_s,
            energy_j=row.count * row.energy_j,
        )
        for index, row in enumerate(plan.assignments)
    )


def _most_saving(units: Sequence[Unit], shares: Sequence[KernelShare]) -> list[Unit]:
    """The units of single kernels that the plan saves most energy in; those of most energy where it saves none."""

    def saved(unit: Unit) -> tuple[float, float]:
        share = shares[int(unit.kernels[0])]
        return share.base_energy_j - share.energy_j, share.base_energy_j

    return sorted((unit for unit in units if len(unit.rows) > 1), key=saved, reverse=True)[:MOST_KERNEL_MAPS]


def _maps(units: Sequence[Unit], shares: Sequence[KernelShare]) -> tuple[SettingMap, ...]:
    """Maps of the units that have more settings than auto, most energy first."""
    whole_j = math.fsum(share.base_energy_j for share in shares)

    def total(unit: Unit, of: Callable[[KernelShare], float]) -> float:
        return math.fsum(of(shares[kernel]) for kernel in unit.kernels.tolist())

    found = []
    for unit in units:
        if len(unit.rows) > 1:
            base_s, base_j = total(unit, lambda each: each.base_time_s), total(unit, lambda each: each.base_energy_j)
            found.append(
                SettingMap(
                    name=unit.name,
                    energy_share=base_j / whole_j,
                    points=tuple(_point(unit, option) for option in range(1, len(unit.rows))),
                    plan_time_change=total(unit, lambda each: each.time_s) / base_s - 1,
                    plan_energy_change=total(unit, lambda each: each.energy_j) / base_j - 1,
                )
            )
    return tuple(sorted(found, key=lambda each: -each.energy_share))


def _point(unit: Unit, option: int) -> SettingPoint:
    rows: IndexArray = unit.rows[option]
    core = unit.costs.core_mhz[rows]
    lowest, highest = int(rows[np.argmin(core)]), float(core.max())
    return SettingPoint(
        setting=unit.costs.setting(lowest),
        highest_core_mhz=None if np.isnan(highest) else highest,
        time_change=float(unit.time_s[option] / unit.time_s[0]) - 1,
        energy_change=float(unit.energy_j[option] / unit.energy_j[0]) - 1,
    )
