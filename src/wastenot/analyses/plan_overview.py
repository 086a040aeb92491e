"""Everything that a report of a plan shows, computed once: pages, figures and tables only draw it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.analyses.context import ContextChange
from wastenot.arrays import IndexArray
from wastenot.errors import BadInputError
from wastenot.planning.comparison import CURVE_BOUNDS, Comparison, CurvePoint, compare_with, relaxed_curve
from wastenot.planning.objective import Objective, Scope
from wastenot.planning.plan import Plan
from wastenot.planning.planner import Planner
from wastenot.planning.units import PlanUnit
from wastenot.setting import Setting
from wastenot.study.sweep import Sweep
from wastenot.workloads.identity import Granularity

MOST_KERNEL_MAPS = 9  # kernels whose settings are all shown: those with the largest saving
_SAME = 1e-9  # relative difference below which two numbers are the same number
_LARGEST_SPEED_UP = 0.02  # how far the curve extends to the left of no slowdown, if plans can
_CURVE_STEP = CURVE_BOUNDS[1] - CURVE_BOUNDS[0]
_CORRECTED_STEPS = 4  # of the curve that one step is worth where each plan is kept with a confidence, which takes longer


@dataclass(frozen=True, slots=True)
class Curve:
    """Least energy against the slowdown allowed (Fig. 6) at one granularity and scope."""

    granularity: Granularity
    scope: Scope
    points: tuple[CurvePoint, ...]


@dataclass(frozen=True, slots=True)
class SettingPoint:
    """How one setting changes a kernel, or all kernels of a pass together, against auto.

    Attributes:
        setting: the clocks; if those of several kernels differ slightly, the ones with the lowest core clock.
        highest_core_mhz: the highest core clock among the kernels, equal to the setting's own if they all agree.
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
        energy_fraction: its fraction of the iteration's energy at auto.
        points: one for each setting besides auto.
        plan_time_change: what the plan does to it, as does ``plan_energy_change``.
    """

    name: str
    energy_fraction: float
    points: tuple[SettingPoint, ...]
    plan_time_change: float
    plan_energy_change: float


@dataclass(frozen=True, slots=True)
class KernelTotal:
    """One kernel in the iteration, all its calls together, at auto (``base``) and at the setting that the plan assigns."""

    name: str
    pass_name: str | None
    setting: Setting
    base_time_s: float
    base_energy_j: float
    time_s: float
    energy_j: float


@dataclass(frozen=True, slots=True)
class PlanOverview:
    """Everything that a report of a plan shows.

    Attributes:
        comparison: granularities, scopes and objectives side by side (Table 2).
        curves: kernel granularity first.
        coarse_maps: every setting of each pass, or of the iteration; most energy first.
        why_no_coarse_maps: why there are none, else ``None``.
        kernel_maps: every setting of the kernels with the largest saving.
        kernels: every kernel, in order of execution.
        context: what energies in context change, if they were measured.
    """

    plan: Plan
    comparison: Comparison
    curves: tuple[Curve, ...]
    coarse_maps: tuple[SettingMap, ...]
    why_no_coarse_maps: str | None
    kernel_maps: tuple[SettingMap, ...]
    kernels: tuple[KernelTotal, ...]
    context: ContextChange | None = None


def make_overview(
    sweep: Sweep, plan: Plan | None = None, context: ContextChange | None = None, planner: Planner | None = None
) -> PlanOverview:
    """Compute everything that a report of a plan shows.

    Args:
        sweep: what the kernels cost.
        plan: the plan to report, made from this sweep; by default the one that saves the most energy with no
            slowdown. Its clock tolerance is used throughout.
        context: what energies in context change, if they were measured.
        planner: of the sweep by kernel, with the plan's clock tolerance, where there is one already: what it has estimated
            and chosen is not done again.

    Raises:
        BadInputError: the plan was made from another sweep.
    """
    planner = planner or Planner(sweep, "kernel", 0.0 if plan is None else plan.clock_tolerance_mhz)
    plan = plan or planner.plan(Objective())
    kernels = _kernel_totals(planner, plan)
    as_measured = not (plan.objective.corrected and planner.errors_known)
    comparison = compare_with(planner, as_measured=as_measured)
    bounds = _bounds(plan, 1 if as_measured else _CORRECTED_STEPS)
    planners = [planner]
    missing = None
    try:
        planners.append(planner.at(comparison.coarse))
    except BadInputError as error:
        missing = str(error)
    curves = tuple(
        Curve(each.granularity, scope, relaxed_curve(each, scope, bounds, as_measured=as_measured))
        for each in planners
        for scope in _scopes(each)
    )
    coarse_maps = _maps(planners[1].units, kernels) if len(planners) > 1 else ()
    if not coarse_maps and missing is None:
        missing = "only the default clocks were measured; sweep more clocks to see what they do"
    return PlanOverview(
        plan=plan,
        comparison=comparison,
        curves=curves,
        coarse_maps=coarse_maps,
        why_no_coarse_maps=missing,
        kernel_maps=_maps(_largest_savings(planner.units, kernels), kernels),
        kernels=kernels,
        context=context,
    )


def _scopes(planner: Planner) -> tuple[Scope, ...]:
    # A single unit has no other to compensate for it: both scopes give the same plan.
    return ("global", "local") if len(planner.units) > 1 else ("global",)


def _bounds(plan: Plan, steps_apart: int) -> list[float]:
    """Slowdowns of the curve: some negative ones, then far enough to include the plan."""
    reach = max(plan.headline.time_change, plan.objective.max_slowdown or 0.0) * 1.1
    stretch = max(1.0, reach / CURVE_BOUNDS[-1])
    faster = min(_LARGEST_SPEED_UP, -plan.fastest.time_change)
    step = _CURVE_STEP * steps_apart
    faster_bounds = [-step * number for number in range(int(faster / step), 0, -1)]
    return faster_bounds + [bound * stretch for bound in CURVE_BOUNDS[::steps_apart]]


def _kernel_totals(planner: Planner, plan: Plan) -> tuple[KernelTotal, ...]:
    costs = planner.costs
    same_names = [kernel.name for kernel in costs.kernels] == [row.kernel for row in plan.assignments]
    if not same_names or not math.isclose(plan.baseline.energy_j, planner.baseline_energy_j, rel_tol=_SAME):
        raise BadInputError(
            f"the plan (workload '{plan.workload}', device '{plan.device}') was not made from this sweep "
            f"(workload '{planner.sweep.workload}', device '{planner.sweep.device}'); make a new one with 'wastenot plan'"
        )
    base = planner.baseline_rows
    return tuple(
        KernelTotal(
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


def _largest_savings(units: Sequence[PlanUnit], kernels: Sequence[KernelTotal]) -> list[PlanUnit]:
    """The single-kernel units with the largest saving, by energy where the plan saves nothing."""

    def saved(unit: PlanUnit) -> tuple[float, float]:
        kernel = kernels[int(unit.kernels[0])]
        return kernel.base_energy_j - kernel.energy_j, kernel.base_energy_j

    return sorted((unit for unit in units if len(unit.rows) > 1), key=saved, reverse=True)[:MOST_KERNEL_MAPS]


def _maps(units: Sequence[PlanUnit], kernels: Sequence[KernelTotal]) -> tuple[SettingMap, ...]:
    """Maps of the units that have more settings than auto, most energy first."""
    whole_j = math.fsum(kernel.base_energy_j for kernel in kernels)

    def total(unit: PlanUnit, of: Callable[[KernelTotal], float]) -> float:
        return math.fsum(of(kernels[index]) for index in unit.kernels.tolist())

    maps = []
    for unit in units:
        if len(unit.rows) > 1:
            base_s, base_j = total(unit, lambda each: each.base_time_s), total(unit, lambda each: each.base_energy_j)
            maps.append(
                SettingMap(
                    name=unit.name,
                    energy_fraction=base_j / whole_j,
                    points=tuple(_point(unit, option) for option in range(1, len(unit.rows))),
                    plan_time_change=total(unit, lambda each: each.time_s) / base_s - 1,
                    plan_energy_change=total(unit, lambda each: each.energy_j) / base_j - 1,
                )
            )
    return tuple(sorted(maps, key=lambda each: -each.energy_fraction))


def _point(unit: PlanUnit, option: int) -> SettingPoint:
    rows: IndexArray = unit.rows[option]
    core = unit.costs.core_mhz[rows]
    lowest, highest = int(rows[np.argmin(core)]), float(core.max())
    return SettingPoint(
        setting=unit.costs.setting(lowest),
        highest_core_mhz=None if np.isnan(highest) else highest,
        time_change=float(unit.time_s[option] / unit.time_s[0]) - 1,
        energy_change=float(unit.energy_j[option] / unit.energy_j[0]) - 1,
    )
