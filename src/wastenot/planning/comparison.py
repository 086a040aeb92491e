"""What granularity and scope are worth: Table 2 and Fig. 6 of the kernel-level DVFS paper, for any sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import ClassVar

from wastenot.core.errors import BadInputError, InfeasibleError
from wastenot.core.origin import Origin
from wastenot.core.result import HasDocument
from wastenot.planning.objective import Objective
from wastenot.planning.objective_kinds import Scope
from wastenot.planning.planner import Planner
from wastenot.planning.profiles import ProfileOutcome, profile_outcomes
from wastenot.study.coverage import Coverage
from wastenot.study.store import Source, sweep_of
from wastenot.workloads.identity import Granularity

RELAXED_BOUNDS = (0.01, 0.02, 0.05, 0.10)
CURVE_BOUNDS = tuple(step / 400 for step in range(81))  # 0 to 20 % in steps of 0.25 %


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One objective at one granularity and scope.

    Changes of the iteration are against auto; where there is no plan they are ``None``, and ``reason`` says why.
    """

    granularity: Granularity
    scope: Scope
    objective: Objective
    time_change: float | None
    energy_change: float | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Comparison(HasDocument):
    """EDP, strict waste and relaxed waste for coarse and fine, local and global; coarse granularities first.

    Attributes:
        coarse: the coarse granularity: ``pass``, or ``iteration`` where kernels have no pass.
        coverage: how far the sweeps came that the plans rest on.
        profiles: the vendor's, beside which the plans stand.
    """

    kind: ClassVar[str] = "compare"

    workload: str
    device: str
    origin: Origin
    coarse: Granularity
    rows: tuple[ComparisonRow, ...] = field(repr=False)
    coverage: Coverage | None = None
    profiles: tuple[ProfileOutcome, ...] = ()


def compare(
    source: Source,
    *,
    workload: str | None = None,
    bounds: Sequence[float] = RELAXED_BOUNDS,
    clock_tolerance_mhz: float = 0.0,
    as_measured: bool = False,
) -> Comparison:
    """Compare EDP and waste × coarse and fine × local and global, and relaxed bounds.

    Args:
        source: what the kernels cost: a study (its file name, URL or the open study) or a sweep.
        workload: its name; may be left out where the study holds only one.
        bounds: slowdowns allowed besides none.
        clock_tolerance_mhz: see :func:`wastenot.planning.planner.plan`.
        as_measured: likewise.

    Raises:
        BadInputError: a bound is out of range.
    """
    sweep = sweep_of(source, workload)
    compared = compare_with(Planner(sweep, "kernel", clock_tolerance_mhz), bounds, as_measured)
    return replace(compared, profiles=profile_outcomes(sweep))


def compare_with(planner: Planner, bounds: Sequence[float] = RELAXED_BOUNDS, as_measured: bool = False) -> Comparison:
    """See :func:`compare`; ``planner`` is of kernel granularity."""
    sweep = planner.sweep
    objectives = [
        Objective("edp", as_measured=as_measured),
        *(Objective("waste", bound, as_measured=as_measured) for bound in dict.fromkeys((0.0, *bounds))),
    ]
    coarse: Granularity = "pass" if all(kernel.pass_name for kernel in sweep.kernels) else "iteration"
    rows: list[ComparisonRow] = []
    coverage = None
    for granularity in (coarse, "kernel"):
        each: list[tuple[Scope, Objective]] = list(product(("local", "global"), objectives))
        try:
            at = planner.at(granularity)
        except BadInputError as error:
            rows += [ComparisonRow(granularity, scope, objective, None, None, str(error)) for scope, objective in each]
        else:
            coverage = at.coverage
            rows += [_row(at, scope, objective) for scope, objective in each]
    return Comparison(sweep.workload, sweep.device, sweep.origin, coarse, tuple(rows), coverage)


def _row(planner: Planner, scope: Scope, objective: Objective) -> ComparisonRow:
    try:
        chosen = planner.choose(objective, scope)
    except InfeasibleError as error:
        return ComparisonRow(planner.granularity, scope, objective, None, None, error.reason)
    stated = planner.stated(chosen, objective)
    return ComparisonRow(planner.granularity, scope, objective, stated.time_change, stated.energy_change)


@dataclass(frozen=True, slots=True)
class Vertex:
    """A plan that is best for some price of time, a vertex of the lower hull of all plans; changes are against auto."""

    time_s: float
    energy_j: float
    time_change: float
    energy_change: float


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The plan of least energy within one slowdown, and the gap of its certificate; changes are against auto."""

    max_slowdown: float
    time_s: float
    energy_j: float
    time_change: float
    energy_change: float
    gap: float


def relaxed_curve(
    planner: Planner, scope: Scope, bounds: Sequence[float] = CURVE_BOUNDS, *, as_measured: bool = False
) -> tuple[CurvePoint, ...]:
    """Energy against the slowdown allowed (Fig. 6), one plan for each bound; bounds that no plan keeps are left out.

    Args:
        planner: of the workload.
        scope: who must stay within the slowdown limit.
        bounds: slowdowns allowed.
        as_measured: see :func:`wastenot.planning.planner.plan`.
    """
    points = []
    for bound in bounds:
        objective = Objective("waste", bound, as_measured=as_measured)
        try:
            chosen = planner.choose(objective, scope)
        except InfeasibleError:
            continue
        totals = planner.stated(chosen, objective)
        gap = max(0.0, 1.0 - chosen.lower_bound_j / totals.energy_j)
        changes = totals.time_s, totals.energy_j, totals.time_change, totals.energy_change
        points.append(CurvePoint(bound, *changes, gap if gap > 1e-12 else 0.0))
    return tuple(points)


@dataclass(frozen=True, slots=True)
class WholeFrontier(HasDocument):
    """The frontier of an iteration, by the numbers as measured.

    Attributes:
        hull: every vertex, by rising time.
        bounds: the exact optimum at each slowdown bound asked for that a plan can keep.
        impossible_bounds: those that no plan keeps.
        least_slowdown: of any plan.
        coverage: how far the sweeps came that the frontier rests on.
    """

    kind: ClassVar[str] = "frontier"

    workload: str
    device: str
    origin: Origin
    granularity: Granularity
    auto_time_s: float
    auto_energy_j: float
    hull: tuple[Vertex, ...] = field(repr=False)
    bounds: tuple[CurvePoint, ...] = field(repr=False)
    impossible_bounds: tuple[float, ...]
    least_slowdown: float
    coverage: Coverage


def whole_frontier(
    source: Source,
    bounds: Sequence[float],
    *,
    workload: str | None = None,
    granularity: Granularity = "kernel",
    clock_tolerance_mhz: float = 0.0,
) -> WholeFrontier:
    """The frontier of a workload's iteration: all hull vertices in one pass, and an exact plan at each bound.

    Args:
        source: what the kernels cost: a study (its file name, URL or the open study) or a sweep.
        bounds: slowdowns to solve exactly.
        workload: its name; may be left out where the study holds only one.
        granularity: what gets a setting of its own.
        clock_tolerance_mhz: see :func:`wastenot.planning.planner.plan`.
    """
    sweep = sweep_of(source, workload)
    planner = Planner(sweep, granularity, clock_tolerance_mhz)
    hull = planner.measured.frontier.hull()
    time, energy = float(planner.measured.baseline_time_s), planner.measured.baseline_energy_j
    vertices = tuple(
        Vertex(vertex_s, vertex_j, vertex_s / time - 1, vertex_j / energy - 1)
        for vertex_s, vertex_j in zip(hull.time_s.tolist(), hull.energy_j.tolist(), strict=True)
    )
    solved = relaxed_curve(planner, "global", bounds, as_measured=True)
    return WholeFrontier(
        workload=sweep.workload,
        device=sweep.device,
        origin=sweep.origin,
        granularity=granularity,
        auto_time_s=time,
        auto_energy_j=energy,
        hull=vertices,
        bounds=solved,
        impossible_bounds=tuple(bound for bound in bounds if bound not in {point.max_slowdown for point in solved}),
        least_slowdown=vertices[0].time_change,
        coverage=planner.coverage,
    )
