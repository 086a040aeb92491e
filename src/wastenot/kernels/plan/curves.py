"""Curves of a plan: energy saved against the slowdown allowed, and what saving is left at each switching time.

The first is a staircase, since the number of settings is finite. Between two slowdowns at which plans were computed, at
least the saving of the lower one is possible. For few units, such as the passes, enough plans are computed that every
step wider than ``STEP`` is where it belongs. The second says what users can have, and what vendors could give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from wastenot.core.errors import BadInputError, InfeasibleError
from wastenot.planning.comparison import CURVE_BOUNDS, CurvePoint, relaxed_curve
from wastenot.planning.objective_kinds import Scope
from wastenot.planning.plan import Plan
from wastenot.planning.planner import Planner
from wastenot.planning.scheduling import best_rungs
from wastenot.planning.switching import SwitchTime
from wastenot.workloads.identity import Granularity

STEP = 0.0005
"""Of the slowdown: how precisely the steps of an exact curve are located."""

_FEW_UNITS = 8  # up to which a plan takes milliseconds
_COARSE = tuple(step / 100 for step in range(21))
# Where each plan is kept with a confidence it takes longer: dense where most readers look.
_CORRECTED = (0.0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.10, 0.12, 0.15, 0.20)
_MORE = 4  # further plans where the curve is steepest
_SPEED_UPS = (0.8, 0.4)  # of the largest speed-up, at which plans are computed


@dataclass(frozen=True, slots=True)
class FastestPlan:
    """The plan of least time, whatever its energy; changes are against auto."""

    time_change: float
    energy_change: float


@dataclass(frozen=True, slots=True)
class Curve:
    """The most energy that can be saved within each slowdown (Fig. 6), at one granularity and scope.

    Attributes:
        points: by rising slowdown; each is where a step begins, and the last is where the curve ends.
        exact: whether steps are where they belong; otherwise there may be more of them between the points.
        fastest: the fastest plan of this granularity.
    """

    granularity: Granularity
    scope: Scope
    points: tuple[CurvePoint, ...]
    exact: bool
    fastest: FastestPlan


def energy_curves(planner: Planner, plan: Plan, *, as_measured: bool) -> tuple[tuple[Curve, ...], tuple[str, ...]]:
    """The curves of all granularities that differ from each other, and why others have none.

    Args:
        planner: of kernel granularity.
        plan: that the curves are to reach.
        as_measured: see :func:`wastenot.planning.planner.plan`.
    """
    planners, missing = [planner], []
    for granularity in _coarser(planner):
        try:
            planners.append(planner.at(granularity))
        except BadInputError as error:
            missing.append(str(error))
    reach = max(plan.headline.time_change, plan.objective.max_slowdown or 0.0) * 1.1
    stretch = max(1.0, reach / CURVE_BOUNDS[-1])
    curves = [
        _curve(each, scope, stretch, plan.objective.max_slowdown, as_measured=as_measured)
        for each in planners
        for scope in _scopes(each)
    ]
    return tuple(_with_coarser(curve, curves[index + 1 :]) for index, curve in enumerate(curves)), tuple(missing)


def _with_coarser(curve: Curve, coarser: Sequence[Curve]) -> Curve:
    """A curve with the plans of coarser granularities, which are plans of its own too, where they save more."""
    if curve.scope == "local":
        return curve
    points = [point for each in (curve, *coarser) if each.scope == "global" for point in each.points]
    return replace(curve, points=_steps(sorted(points, key=lambda point: point.max_slowdown)))


def _coarser(planner: Planner) -> tuple[Granularity, ...]:
    """Coarser granularities that differ from each other."""
    kernels = planner.sweep.kernels
    passes = {kernel.pass_name for kernel in kernels}
    if len(kernels) == 1:
        return ()
    return ("pass", "iteration") if None not in passes and 1 < len(passes) < len(kernels) else ("iteration",)


def _scopes(planner: Planner) -> tuple[Scope, ...]:
    # A single unit has no other to compensate for it: both scopes give the same plan.
    return ("global", "local") if len(planner.units) > 1 else ("global",)


def _curve(planner: Planner, scope: Scope, stretch: float, bound: float | None, *, as_measured: bool) -> Curve:
    def solve(bounds: Iterable[float]) -> list[CurvePoint]:
        return list(relaxed_curve(planner, scope, tuple(bounds), as_measured=as_measured))

    fastest = _fastest(planner, as_measured=as_measured)
    exact = len(planner.units) <= _FEW_UNITS and scope == "global"
    grid = _COARSE if exact else CURVE_BOUNDS if as_measured else _CORRECTED
    bounds = {share * fastest.time_change for share in _SPEED_UPS if fastest.time_change < -STEP}
    bounds |= {each * stretch for each in grid} | ({bound} if bound is not None else set())
    points = solve(sorted(bounds))
    if exact:
        points = _refined(points, solve, min(fastest.time_change, 0.0))
    elif not as_measured and scope == "global":
        points = _denser(points, solve)
    return Curve(planner.granularity, scope, _steps(points), exact, fastest)


def _denser(points: list[CurvePoint], solve: Callable[[Iterable[float]], list[CurvePoint]]) -> list[CurvePoint]:
    """A few more points, each in the middle of the highest step."""
    points = list(points)
    for _ in range(_MORE if len(points) > 1 else 0):
        index = max(range(1, len(points)), key=lambda each: points[each - 1].energy_j - points[each].energy_j)
        points[index:index] = solve([0.5 * (points[index - 1].max_slowdown + points[index].max_slowdown)])
    return points


def _refined(
    points: Sequence[CurvePoint], solve: Callable[[Iterable[float]], list[CurvePoint]], least: float
) -> list[CurvePoint]:
    """More points where the curve rises, until every step is known to within ``STEP``; it starts above ``least``."""
    found = list(points)
    # Where the curve starts: no plan is faster than the fastest, and to be sure takes a little more.
    gaps = [(least, points[0])] if points else []
    gaps += [(low.max_slowdown, high) for low, high in pairwise(points) if high.energy_j < low.energy_j]
    lower = {high.max_slowdown: low for low, high in pairwise(points)}
    todo = [(lower.get(high.max_slowdown), start, high) for start, high in gaps]
    while todo:
        low, start, high = todo.pop()
        if high.max_slowdown - start <= STEP:
            continue
        middle = 0.5 * (start + high.max_slowdown)
        between = next(iter(solve([middle])), None)
        if between is None:
            todo.append((None, middle, high))
            continue
        found.append(between)
        if low is None or between.energy_j < low.energy_j:
            todo.append((low, start, between))
        if high.energy_j < between.energy_j:
            todo.append((between, middle, high))
    return sorted(found, key=lambda point: point.max_slowdown)


def _steps(points: Sequence[CurvePoint]) -> tuple[CurvePoint, ...]:
    """The points at which the best plan so far changes, and one at the end: a plan keeps every larger slowdown too."""
    steps: list[CurvePoint] = []
    for point in points:
        if not steps or point.energy_j < steps[-1].energy_j:
            steps.append(point)
    if steps and steps[-1].max_slowdown < points[-1].max_slowdown:
        last = steps[-1]
        changes = last.time_s, last.energy_j, last.time_change, last.energy_change
        steps.append(CurvePoint(points[-1].max_slowdown, *changes, last.gap))
    return tuple(steps)


def _fastest(planner: Planner, *, as_measured: bool) -> FastestPlan:
    choices = planner.measured if as_measured else planner.believed
    point = choices.frontier.least_time()
    time = float(point.exact_time_s / choices.baseline_time_s) - 1
    return FastestPlan(time, point.energy_j / choices.baseline_energy_j - 1)


SWITCH_TIMES_S = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True, slots=True)
class SwitchingPoint:
    """The schedule at one switching time.

    Attributes:
        switch_s: to change any clock.
        energy_change: of the schedule against the default clocks.
        time_change: likewise.
        switches: in an iteration.
    """

    switch_s: float
    energy_change: float
    time_change: float
    switches: int


@dataclass(frozen=True, slots=True)
class SwitchingCurve:
    """What a plan's objective gives at each switching time.

    Attributes:
        points: by rising switching time, of a device whose switches all take that long and on time.
        own_s: the device's own switching time of core clocks; ``None`` where the plan has no schedule.
        own_energy_change: of the plan's schedule, with the device's own switches.
        on_time_energy_change: of the best schedule if the device's own switches did not vary.
    """

    points: tuple[SwitchingPoint, ...]
    own_s: float | None
    own_energy_change: float | None
    on_time_energy_change: float | None = None


def switching_curve(planner: Planner, plan: Plan) -> SwitchingCurve | None:
    """Saving that remains at each switching time; ``None`` where only auto was measured or no schedule is fast enough.

    Args:
        planner: of the plan's sweep.
        plan: whose objective, scope and granularity count.
    """
    if all(len(unit.rows) == 1 for unit in planner.units):
        return None
    switchings = [
        SwitchTime(core_s=seconds, memory_s=seconds, basis="given", source="examined") for seconds in SWITCH_TIMES_S
    ]
    own = None if plan.schedule is None else plan.schedule.switching
    asked = [*switchings, *([] if own is None else [own.model_copy(update={"jitter": 0.0})])]
    try:
        rungs = best_rungs(planner.at(plan.granularity), plan.objective.objective, plan.scope, asked)
    except InfeasibleError:
        return None
    on_time = rungs.pop().energy_change if own is not None else None
    if not plan.objective.saves_time:  # what slower switches can follow, faster ones can as well
        for index in range(len(rungs) - 2, -1, -1):
            rungs[index] = min(rungs[index : index + 2], key=lambda rung: rung.energy_change)
    points = tuple(
        SwitchingPoint(seconds, rung.energy_change, rung.time_change, rung.switches)
        for seconds, rung in zip(SWITCH_TIMES_S, rungs, strict=True)
    )
    if plan.schedule is None:
        return SwitchingCurve(points, None, None)
    return SwitchingCurve(points, plan.schedule.switching.core_s, plan.schedule.rungs[0].energy_change, on_time)
