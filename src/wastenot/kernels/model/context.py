"""Where the kernel that runs before changes the plan: energies and plans of two states of one workload side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import IndexArray
from wastenot.core.errors import BadInputError, InfeasibleError, StudyError
from wastenot.core.setting import Setting
from wastenot.planning.costs import Costs, combine_repeats
from wastenot.planning.plan import Plan, PredictedTotal
from wastenot.planning.planner import Planner
from wastenot.study.store import Study
from wastenot.study.sweep import Sweep
from wastenot.workloads.identity import EnergyState

BEYOND = 1.96  # standard errors beyond which a difference counts


@dataclass(frozen=True, slots=True)
class KernelInContext:
    """One kernel at the setting that the first plan gives it.

    Attributes:
        first: setting in the plan of the first state.
        second: setting in the plan of the second state.
        alone_j: energy of one call at ``first`` in the first state.
        within_j: the same in the second state.
        error_j: standard error of their difference; ``None`` where one of them is unknown.
    """

    kernel: str
    count: int
    first: Setting
    second: Setting
    alone_j: float
    within_j: float
    error_j: float | None

    @property
    def change(self) -> float:
        """Second state over first, less 1."""
        return self.within_j / self.alone_j - 1.0

    @property
    def beyond_error(self) -> bool:
        """Whether the states differ by more than noise explains."""
        return self.error_j is not None and abs(self.within_j - self.alone_j) > BEYOND * self.error_j


@dataclass(frozen=True, slots=True)
class ContextChange:
    """What the second state of the energies changes.

    Attributes:
        workload: without a state.
        states: of the first plan and of the second.
        kernels: in order of execution.
        first: the first plan in the second state.
        second: the second plan in it.
    """

    workload: str
    states: tuple[EnergyState, EnergyState]
    kernels: tuple[KernelInContext, ...]
    first: PredictedTotal
    second: PredictedTotal

    @property
    def moved(self) -> tuple[KernelInContext, ...]:
        """Kernels that the plans treat differently."""
        return tuple(kernel for kernel in self.kernels if kernel.first != kernel.second)

    @property
    def differing(self) -> tuple[KernelInContext, ...]:
        """Kernels whose energy differs by more than its error."""
        return tuple(kernel for kernel in self.kernels if kernel.beyond_error)

    @property
    def energy_j(self) -> float:
        """Energy of an iteration under the second plan less that under the first, both in the second state."""
        return self.second.energy_j - self.first.energy_j


def context_change(alone: Sweep, within: Sweep, first: Plan, second: Plan) -> ContextChange:
    """Compare two states of a workload and the plans made of them.

    Args:
        alone: the first state.
        within: the second state.
        first: plan made of the first.
        second: plan made of the second.

    Raises:
        BadInputError: they are not of the same kernels, or the second state lacks a setting of a plan.
    """
    names = [kernel.name for kernel in alone.kernels]
    for what, kernels_of_it in (
        (f"workload '{within.workload}'", [kernel.name for kernel in within.kernels]),
        ("the first plan", [row.kernel for row in first.assignments]),
        ("the second plan", [row.kernel for row in second.assignments]),
    ):
        if kernels_of_it != names:
            raise BadInputError(f"{what} has different kernels from workload '{alone.workload}': nothing to compare")
    planner, costs = Planner(within), combine_repeats(alone)
    settings = [[row.setting for row in plan.assignments] for plan in (first, second)]
    ours = _rows(costs, settings[0], alone.workload)
    theirs = [_rows(planner.costs, each, within.workload) for each in settings]
    errors_j = map(math.hypot, costs.energy_se_j[ours].tolist(), planner.costs.energy_se_j[theirs[0]].tolist())
    kernels = tuple(
        KernelInContext(
            kernel=kernel.name,
            count=kernel.count,
            first=settings[0][index],
            second=settings[1][index],
            alone_j=float(costs.energy_j[ours[index]]),
            within_j=float(planner.costs.energy_j[theirs[0][index]]),
            error_j=None if math.isnan(error_j) else error_j,
        )
        for index, (kernel, error_j) in enumerate(zip(alone.kernels, errors_j, strict=True))
    )
    return ContextChange(alone.workload, (alone.state, within.state), kernels, *(planner.totals(rows) for rows in theirs))


def change_in_context(study: Study, sweep: Sweep, plan: Plan) -> ContextChange | None:
    """What energies in context change, where a study has all of them at the clocks of a sweep; otherwise ``None``.

    Args:
        study: that the sweep was read from.
        sweep: alone or in context.
        plan: made from the sweep; the other state gets one for the same objective.
    """
    try:
        alone = study.read(sweep.workload, "ssp", sweep.granularity)
        within = study.read(sweep.workload, "context", sweep.granularity)
        if any(combine_repeats(each).coverage(each.recorded).complete is False for each in (alone, within)):
            return None  # the plans would differ by what was not measured yet
        goal, scope = plan.objective.objective, plan.scope
        plans = (
            plan if each.key == sweep.key else Planner(each, plan.granularity, plan.clock_tolerance_mhz).plan(goal, scope)
            for each in (alone, within)
        )
        return context_change(alone, within, *plans)
    except (BadInputError, InfeasibleError, StudyError):  # not there, or not all kernels yet: the sweep itself was read
        return None


def _rows(costs: Costs, settings: list[Setting], workload: str) -> IndexArray:
    row_of = {(int(costs.kernel[row]), costs.setting(row)): row for row in range(len(costs.kernel))}
    rows = []
    for index, setting in enumerate(settings):
        if (index, setting) not in row_of:
            name = costs.kernels[index].name
            raise BadInputError(
                f"workload '{workload}': kernel '{name}' was not measured at {setting}; sweep the same clocks"
            )
        rows.append(row_of[index, setting])
    return np.array(rows, dtype=np.intp)
