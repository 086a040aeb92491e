"""Everything that a report of a plan shows, computed once: pages, figures and tables only draw it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.kernels.model.context import ContextChange
from wastenot.kernels.plan.curves import Curve, SwitchingCurve, energy_curves, switching_curve
from wastenot.planning.comparison import Comparison, compare_with
from wastenot.planning.noise.temperature import baseline_temperature_c
from wastenot.planning.objective import Objective
from wastenot.planning.plan import Plan
from wastenot.planning.planner import Planner
from wastenot.planning.units import PlanUnit
from wastenot.study.sweep import SETTING, Sweep

MOST_KERNEL_MAPS = 9  # kernels whose settings are all shown: those with the largest saving
_SAME = 1e-9  # relative difference below which two numbers are the same number


@dataclass(frozen=True, slots=True)
class SettingPoint:
    """How one setting changes a kernel, or all kernels of a pass together, against auto.

    Attributes:
        setting: the clocks; if those of several kernels differ slightly, the ones with the lowest core clock.
        highest_core_mhz: the highest core clock among the kernels, equal to the setting's own if they all agree.
        time_change: as measured, as is ``energy_change``.
        time_error: standard error of that change; ``None`` where nothing says how noisy the numbers are.
        energy_error: likewise.
        smooth_time_change: corrected for noise, as is ``smooth_energy_change``; ``None`` where that is not known.
    """

    setting: Setting
    highest_core_mhz: float | None
    time_change: float
    energy_change: float
    time_error: float | None = None
    energy_error: float | None = None
    smooth_time_change: float | None = None
    smooth_energy_change: float | None = None


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
    """One kernel in the iteration, all its calls together, at auto (``base``) and at the setting that the plan assigns.

    Attributes:
        time_error_s: standard error of the difference that the plan makes; ``None`` where nothing says how noisy it is.
        energy_error_j: likewise.
    """

    name: str
    pass_name: str | None
    setting: Setting
    base_time_s: float
    base_energy_j: float
    time_s: float
    energy_j: float
    time_error_s: float | None = None
    energy_error_j: float | None = None

    @property
    def saved_j(self) -> float:
        """Energy that the plan saves; less than 0 where it adds some."""
        return self.base_energy_j - self.energy_j


@dataclass(frozen=True, slots=True)
class Levelling:
    """At which temperatures the settings were measured, where they were corrected to one.

    Attributes:
        auto_c: of the baselines, to which all settings are corrected.
        coldest_c: at which any setting was measured.
    """

    auto_c: float
    coldest_c: float


@dataclass(frozen=True, slots=True)
class PlanOverview:
    """Everything that a report of a plan shows.

    Attributes:
        comparison: granularities, scopes and objectives side by side (Table 2).
        curves: energy saved against the slowdown allowed; kernel granularity first.
        why_no_curve: granularities that have no curve, and why.
        coarse_maps: every setting of each pass, or of the iteration; most energy first.
        why_no_coarse_maps: why there are none, else ``None``.
        kernel_maps: every setting of the kernels with the largest saving.
        kernels: every kernel, in order of execution.
        context: what energies in context change, if they were measured.
        levelling: at which temperatures the settings were measured; ``None`` where nothing was corrected for that.
        switching: what saving is left at each switching time; ``None`` where there is no schedule.
    """

    plan: Plan
    comparison: Comparison
    curves: tuple[Curve, ...]
    coarse_maps: tuple[SettingMap, ...]
    why_no_coarse_maps: str | None
    kernel_maps: tuple[SettingMap, ...]
    kernels: tuple[KernelTotal, ...]
    context: ContextChange | None = None
    why_no_curve: tuple[str, ...] = ()
    levelling: Levelling | None = None
    switching: SwitchingCurve | None = None


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
    curves, why_no_curve = energy_curves(planner, plan, as_measured=as_measured)
    corrected = None if as_measured else planner
    coarse_maps: tuple[SettingMap, ...] = ()
    missing = None
    try:
        coarse_maps = _maps(planner.at(comparison.coarse).units, kernels, corrected)
    except BadInputError as error:
        missing = str(error)
    if not coarse_maps and missing is None:
        missing = "only the default clocks were measured; sweep more clocks to see their effect"
    return PlanOverview(
        plan=plan,
        comparison=comparison,
        curves=curves,
        coarse_maps=coarse_maps,
        why_no_coarse_maps=missing,
        kernel_maps=_maps(_largest_savings(planner.units, kernels), kernels, corrected),
        kernels=kernels,
        context=context,
        why_no_curve=why_no_curve,
        levelling=None if corrected is None else _levelling(corrected),
        switching=switching_curve(planner, plan),
    )


def _levelling(planner: Planner) -> Levelling | None:
    auto_c = baseline_temperature_c(planner.sweep)
    model = planner.cost_model
    if auto_c is None or model is None or not (model.time_errors.any() or model.power_errors.any()):
        return None
    return Levelling(auto_c, float(np.nanmin(planner.sweep.temperature_c)))


def _kernel_totals(planner: Planner, plan: Plan) -> tuple[KernelTotal, ...]:
    costs = planner.costs
    same_names = [kernel.name for kernel in costs.kernels] == [row.kernel for row in plan.assignments]
    if not same_names or not math.isclose(plan.baseline.energy_j, planner.measured.baseline_energy_j, rel_tol=_SAME):
        sweep = planner.sweep
        if (plan.workload, plan.device) == (sweep.workload, sweep.device):
            raise BadInputError(
                f"the plan was not made from this sweep but from another of the same workload ('{plan.workload}', "
                f"'{plan.device}'), whose measurements differ; make a new one with 'wastenot kernel plan'"
            )
        raise BadInputError(
            f"the plan (workload '{plan.workload}', device '{plan.device}') was not made from this sweep "
            f"(workload '{sweep.workload}', device '{sweep.device}'); make a new one with 'wastenot kernel plan'"
        )
    base, rows = planner.measured.baseline_rows, _rows_of(planner, plan)
    time_error, energy_error = (
        np.where(rows == base, 0.0, costs.count * np.hypot(error[rows], error[base]))
        for error in (costs.time_se_s, costs.energy_se_j)
    )
    return tuple(
        KernelTotal(
            name=row.kernel,
            pass_name=row.pass_name,
            setting=row.setting,
            base_time_s=row.count * float(costs.time_s[base[index]]),
            base_energy_j=row.count * float(costs.energy_j[base[index]]),
            time_s=row.count * row.time_s,
            energy_j=row.count * row.energy_j,
            time_error_s=_known(time_error[index]),
            energy_error_j=_known(energy_error[index]),
        )
        for index, row in enumerate(plan.assignments)
    )


def _rows_of(planner: Planner, plan: Plan) -> IndexArray:
    """The row of the costs that the plan gives each kernel."""
    costs = planner.costs
    clocks = np.array([row.setting.numbers for row in plan.assignments], dtype=float)  # None becomes NaN
    measured = np.column_stack([getattr(costs, name) for name in SETTING])
    same = np.isclose(measured, clocks[costs.kernel], equal_nan=True).all(axis=1)
    rows = planner.measured.baseline_rows.copy()
    rows[costs.kernel[same]] = np.flatnonzero(same)
    return rows


def _known(error: float) -> float | None:
    return None if np.isnan(error) else float(error)


def _largest_savings(units: Sequence[PlanUnit], kernels: Sequence[KernelTotal]) -> list[PlanUnit]:
    """The single-kernel units with the largest saving, by energy where the plan saves nothing."""

    def saved(unit: PlanUnit) -> tuple[float, float]:
        kernel = kernels[int(unit.kernels[0])]
        return kernel.saved_j, kernel.base_energy_j

    return sorted((unit for unit in units if len(unit.rows) > 1), key=saved, reverse=True)[:MOST_KERNEL_MAPS]


def _maps(units: Sequence[PlanUnit], kernels: Sequence[KernelTotal], corrected: Planner | None) -> tuple[SettingMap, ...]:
    """Maps of the units that have more settings than auto, most energy first; ``corrected`` knows the noise, if anyone."""
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
                    points=_points(unit, corrected),
                    plan_time_change=total(unit, lambda each: each.time_s) / base_s - 1,
                    plan_energy_change=total(unit, lambda each: each.energy_j) / base_j - 1,
                )
            )
    return tuple(sorted(maps, key=lambda each: -each.energy_fraction))


def _points(unit: PlanUnit, corrected: Planner | None) -> tuple[SettingPoint, ...]:
    """Every option of a unit besides auto."""
    costs, count = unit.costs, unit.costs.count[unit.kernels].astype(np.float64)
    time, energy = unit.time_s, unit.energy_j
    errors = [
        _error_of_change(total, np.sqrt((error[unit.rows] ** 2) @ count**2))
        for total, error in ((time, costs.time_se_s), (energy, costs.energy_se_j))
    ]
    smooth: list[FloatArray | None] = [None, None]
    if corrected is not None and corrected.posteriors is not None:
        posteriors = corrected.posteriors
        rows = posteriors.index(unit.rows)
        smooth = [each.mean[rows] @ count for each in (posteriors.time_s, posteriors.energy_j)]

    def change(total: FloatArray | None, option: int) -> float | None:
        return None if total is None else float(total[option] / total[0]) - 1

    points = []
    for option in range(1, len(unit.rows)):
        own = unit.rows[option]
        core = costs.core_mhz[own]
        highest = float(core.max())
        points.append(
            SettingPoint(
                setting=costs.setting(int(own[np.argmin(core)])),
                highest_core_mhz=None if np.isnan(highest) else highest,
                time_change=float(time[option] / time[0]) - 1,
                energy_change=float(energy[option] / energy[0]) - 1,
                time_error=_known(errors[0][option]),
                energy_error=_known(errors[1][option]),
                smooth_time_change=change(smooth[0], option),
                smooth_energy_change=change(smooth[1], option),
            )
        )
    return tuple(points)


def _error_of_change(total: FloatArray, error: FloatArray) -> FloatArray:
    """Standard error of each total over the first of them, to first order."""
    return np.asarray(np.hypot(error, total / total[0] * error[0]) / total[0])
