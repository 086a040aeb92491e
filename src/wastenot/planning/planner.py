"""From a sweep to the plan that is best, with the proof."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from wastenot.arrays import IndexArray
from wastenot.errors import BadInputError, InfeasibleError
from wastenot.frontiers.algebra import Frontier, Point
from wastenot.frontiers.exact import exact_sum
from wastenot.planning.applicable import find_applicable
from wastenot.planning.costs import Costs, combine_repeats
from wastenot.planning.dwell import count_switches
from wastenot.planning.noise.confidence import choose_confidently
from wastenot.planning.noise.expectation import change_error, expect, total_error
from wastenot.planning.noise.shrinkage import CostModel, Posteriors, fit_costs
from wastenot.planning.objective import SCOPES, Objective, ObjectiveKind, Scope
from wastenot.planning.plan import (
    SCHEMA,
    Assignment,
    Certificate,
    Fastest,
    Goal,
    Plan,
    PredictedTotal,
    Total,
    Waste,
)
from wastenot.planning.switching import switch_time
from wastenot.planning.units import PlanUnit, iteration_frontier, make_units
from wastenot.study.coverage import Coverage
from wastenot.study.store import Source, sweep_of
from wastenot.study.sweep import Sweep
from wastenot.workloads.identity import EnergyState, Granularity

LARGEST_EXACT = 2048  # units; the least energy of more is found to within ``GAP_AT_SCALE``, which the certificate states
GAP_AT_SCALE = 1e-9  # relative; proving the rest takes half a minute for 10,000 kernels


def plan(
    source: Source,
    objective: Objective | ObjectiveKind = "waste",
    *,
    max_slowdown: float | None = None,
    edp_exponent: float = 1.0,
    confidence: float | None = None,
    workload: str | None = None,
    state: EnergyState | None = None,
    granularity: Granularity = "kernel",
    scope: Scope = "global",
    clock_tolerance_mhz: float = 0.0,
    switch_time_s: float | None = None,
) -> Plan:
    """The best plan for a workload, and what of it could be applied today.

        >>> import wastenot as wn
        >>> plan = wn.plan("my.db", max_slowdown=0.02)
        >>> plan.predicted.time_change <= 0.02, plan.certificate.gap
        (True, 0.0)

    Args:
        source: what its kernels cost: a study (its file name, URL or the open study) or a sweep.
        objective: what to minimise: ``waste`` (energy within a slowdown), ``edp``, ``energy`` or ``time``; or all of it as
            an :class:`Objective`; then omit the next three.
        max_slowdown: bound on T/T_auto − 1, such as 0.02; for ``waste`` 0 unless given, for ``edp`` none.
        edp_exponent: α of E·T^α.
        confidence: probability with which the true slowdown is to be within the bound, such as 0.95.
        workload: its name; may be left out where the study holds only one.
        state: that its energies were measured in; by default steady power.
        granularity: what gets a setting of its own.
        scope: ``global``, only the whole iteration must keep the slowdown, so that units compensate for each other;
            ``local``, each unit must keep it by itself.
        clock_tolerance_mhz: how far a kernel's core clock may be from that of its unit, where a unit has several.
        switch_time_s: that the device takes to switch clocks, where you measured it; it decides what can be applied.

    Raises:
        InfeasibleError: no plan keeps the slowdown; says the least possible.
        BadInputError: an argument makes no sense, or the sweep does not have what the granularity needs.
        StudyError: the study cannot be read.
    """
    if not isinstance(objective, Objective):
        objective = Objective(objective, max_slowdown, edp_exponent, confidence)
    elif (max_slowdown, edp_exponent, confidence) != (None, 1.0, None):
        raise BadInputError("`objective`: says all of it; leave out `max_slowdown`, `edp_exponent` and `confidence`")
    sweep = sweep_of(source, workload, state, granularity)
    switching = switch_time(sweep.device, switch_time_s)
    planner = Planner(sweep, granularity, clock_tolerance_mhz)
    made = planner.plan(objective, scope)
    applicable = find_applicable(
        made, lambda coarser: planner.at(coarser).plan(objective, scope), switching, _default_memory_mhz(sweep)
    )
    return made.model_copy(update={"applicable": applicable}).sealed()


def frontier(
    source: Source,
    *,
    workload: str | None = None,
    state: EnergyState | None = None,
    granularity: Granularity = "kernel",
    clock_tolerance_mhz: float = 0.0,
) -> Frontier:
    """The time-energy frontier of a workload's iteration, to compose with others and to ask questions of.

    Each choice is labelled with a :class:`~wastenot.frontiers.nodes.KernelSetting`. Ten training iterations and an
    evaluation after them, where only the whole must keep to 3 % more than the fastest possible time:

        >>> import wastenot as wn
        >>> training, evaluation = wn.frontier("training.db"), wn.frontier("evaluation.db", granularity="iteration")
        >>> whole = wn.sequence(wn.repeat(training, 10), evaluation)
        >>> best = whole.least_energy(within_s=1.03 * whole.least_time().time_s)
        >>> best.energy_j < whole.least_time().energy_j
        True
        >>> print(best.choices[0])  # of the training's first kernel
        gemm at core 1410, memory 9501
        >>> whole.price_of_time(best.time_s) > 0  # joules that one more second would save
        True

    Args:
        source: what its kernels cost: a study (its file name, URL or the open study) or a sweep.
        workload: its name; may be left out where the study holds only one.
        state: that its energies were measured in; by default steady power.
        granularity: what gets a setting of its own; kernels that share one are tied.
        clock_tolerance_mhz: how far a kernel's core clock may be from that of its unit, where a unit has several.

    Raises:
        BadInputError: the sweep does not have what the granularity needs.
        StudyError: the study cannot be read.
    """
    return Planner(sweep_of(source, workload, state, granularity), granularity, clock_tolerance_mhz).frontier


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """The best option of each unit, before a :class:`Plan` is made of them.

    Attributes:
        options: of each unit, shape (units,).
        lower_bound_j: no options within ``budget_s`` needs less energy (with a confidence: less expected energy).
        budget_s: the time budget, exact.
    """

    options: tuple[int, ...]
    lower_bound_j: float
    budget_s: Fraction


class Planner:
    """Plans of one workload at one granularity; what they share is computed once.

    Args:
        sweep: what its kernels cost.
        granularity: what gets a setting of its own.
        clock_tolerance_mhz: see :func:`plan`.
        like: another planner of the sweep, whose costs it shares.

    Raises:
        BadInputError: the sweep does not have what the granularity needs.

    Attributes:
        units: in order of execution.
        coverage: how far the sweeps came that the plans rest on.
        frontier: of the whole iteration.
        baseline_time_s: exact time of the iteration at auto.
    """

    def __init__(
        self,
        sweep: Sweep,
        granularity: Granularity = "kernel",
        clock_tolerance_mhz: float = 0.0,
        like: Planner | None = None,
    ) -> None:
        self.sweep = sweep
        self.granularity = granularity
        self.clock_tolerance_mhz = clock_tolerance_mhz
        self.costs: Costs = combine_repeats(sweep) if like is None else like.costs
        self.coverage: Coverage = self.costs.coverage(sweep.recorded) if like is None else like.coverage
        _check_shared(sweep, self.coverage, granularity)
        self.units: list[PlanUnit] = make_units(self.costs, granularity, clock_tolerance_mhz)
        self.frontier: Frontier = iteration_frontier(self.costs, self.units, granularity)
        self.baseline_rows: IndexArray = self.costs.start[:-1]
        self.baseline_time_s: Fraction = self.exact_time(self.baseline_rows)
        self.baseline_energy_j = self.energy(self.baseline_rows)
        self._gap_tolerance = 0.0 if len(self.units) <= LARGEST_EXACT else GAP_AT_SCALE

    def at(self, granularity: Granularity) -> Planner:
        """A planner at another granularity, which shares the costs and what was estimated from them: the dear part."""
        other = Planner(self.sweep, granularity, self.clock_tolerance_mhz, self)
        other.cost_model = self.cost_model
        if "posteriors" in vars(self):
            other.posteriors = self.posteriors
        return other

    # ---- totals of one row for each kernel -------------------------------------------------------------------

    def exact_time(self, rows: IndexArray) -> Fraction:
        """Time of an iteration at the given row of each kernel, without rounding."""
        return exact_sum(zip(self.costs.count.tolist(), self.costs.time_s[rows].tolist(), strict=True))

    def energy(self, rows: IndexArray) -> float:
        """Energy of an iteration at the given row of each kernel."""
        return float(exact_sum(zip(self.costs.count.tolist(), self.costs.energy_j[rows].tolist(), strict=True)))

    def rows(self, options: tuple[int, ...]) -> IndexArray:
        """The row of each kernel under the chosen option of each unit."""
        rows = np.empty(len(self.costs.kernels), dtype=np.intp)
        for unit, option in zip(self.units, options, strict=True):
            rows[unit.kernels] = unit.rows[option]
        return rows

    def budget(self, slowdown: float) -> Fraction:
        """The exact time that a slowdown allows."""
        return self.baseline_time_s * (1 + Fraction(slowdown))

    @cached_property
    def waste_j(self) -> float:
        """What the baseline wastes (paper, Eq. 2): its energy less the least at no more time, at this granularity."""
        return max(0.0, self.baseline_energy_j - self.energy(self.rows(tuple(self._strict.options.tolist()))))

    @cached_property
    def _strict(self) -> Point:
        """The least energy at no more time than the baseline."""
        return self.frontier.least_energy(self.baseline_time_s, self._gap_tolerance)

    # ---- choosing --------------------------------------------------------------------------------------------

    def plan(self, objective: Objective, scope: Scope = "global") -> Plan:
        """The best plan; see :func:`plan`."""
        return self._describe(self.choose(objective, scope), objective, scope)

    def choose(self, objective: Objective, scope: Scope = "global") -> Optimum:
        """The best option of each unit.

        Raises:
            InfeasibleError: the slowdown cannot be kept.
            BadInputError: an unknown scope.
        """
        if scope not in SCOPES:
            raise BadInputError(f"scope {scope!r}: choose one of {', '.join(SCOPES)}")
        if objective.confidence is not None:
            options, bound = choose_confidently(self.units, self.posteriors, objective, scope)
            assert objective.max_slowdown is not None
            return Optimum(options, bound, self.budget(objective.max_slowdown))
        return self._choose_global(objective) if scope == "global" else self._choose_local(objective)

    def _choose_global(self, objective: Objective) -> Optimum:
        budget = None if objective.max_slowdown is None else self.budget(objective.max_slowdown)
        try:
            strict = objective.kind == "waste" and budget == self.baseline_time_s
            point = self._strict if strict else _best(self.frontier, objective, budget, self._gap_tolerance)
        except InfeasibleError as error:
            least = float(self.frontier.least_time().exact_time_s / self.baseline_time_s - 1)
            raise _too_fast(objective, least, "") from error
        bound = point.lower_bound_j
        if budget is None or bound is None:
            budget = point.exact_time_s
            bound = self.frontier.least_energy(budget, self._gap_tolerance).lower_bound_j
        assert bound is not None
        return Optimum(tuple(point.options.tolist()), bound, budget)

    def _choose_local(self, objective: Objective) -> Optimum:
        best: list[Point] = []
        for unit in self.units:
            own_s = unit.baseline_time_s
            budget = None if objective.max_slowdown is None else own_s * (1 + Fraction(objective.max_slowdown))
            try:
                best.append(_best(unit.frontier, objective, budget))
            except InfeasibleError as error:
                least = [float(unit.frontier.least_time().exact_time_s / unit.baseline_time_s - 1) for unit in self.units]
                slowest = int(np.argmax(least))
                raise _too_fast(objective, least[slowest], f" of '{self.units[slowest].name}' by itself") from error
        options = tuple(int(point.options[0]) for point in best)
        time_s = sum((point.exact_time_s for point in best), Fraction(0))
        budget = time_s if objective.max_slowdown is None else self.budget(objective.max_slowdown)
        # Each unit has its least energy within its own bound, or its own best product: nothing else was allowed.
        return Optimum(options, self.energy(self.rows(options)), budget)

    @cached_property
    def cost_model(self) -> CostModel | None:
        """What the sweep says about the true costs; ``None`` where nothing says how noisy it is."""
        return fit_costs(self.sweep, self.costs)

    @cached_property
    def posteriors(self) -> Posteriors | None:
        """Posteriors of the true costs at every setting; ``None`` where nothing says how noisy the sweep is."""
        return None if self.cost_model is None else self.cost_model.posteriors()

    # ---- describing ------------------------------------------------------------------------------------------

    def totals(self, rows: IndexArray) -> PredictedTotal:
        """Time and energy of an iteration at the given row of each kernel, and the changes from the baseline."""
        costs, base = self.costs, self.baseline_rows
        time, energy = float(self.exact_time(rows)), self.energy(rows)
        return PredictedTotal(
            time_s=time,
            energy_j=energy,
            time_se_s=total_error(costs.count, costs.time_se_s[rows]),
            energy_se_j=total_error(costs.count, costs.energy_se_j[rows]),
            time_change=time / float(self.baseline_time_s) - 1,
            energy_change=energy / self.baseline_energy_j - 1,
            time_change_se=change_error(costs.count, costs.time_s, costs.time_se_s, rows, base),
            energy_change_se=change_error(costs.count, costs.energy_j, costs.energy_se_j, rows, base),
        )

    def _describe(self, optimum: Optimum, objective: Objective, scope: Scope) -> Plan:
        costs = self.costs
        rows = self.rows(optimum.options)
        predicted, baseline = self.totals(rows), self.totals(self.baseline_rows)
        assignments = self._assignments(rows)
        fastest_s = self.frontier.least_time().time_s
        expected = None
        if self.cost_model is not None:
            posteriors = self.cost_model.posteriors(rows) if objective.confidence is None else self.posteriors
            assert posteriors is not None
            expected = expect(costs, posteriors, rows, objective.max_slowdown)
        energy_j = predicted.energy_j
        if objective.confidence is not None and expected is not None:
            energy_j = expected.energy_j
        bound = min(optimum.lower_bound_j, energy_j)
        if energy_j - bound <= 1e-12 * energy_j:
            bound = energy_j
        return Plan(
            schema_=SCHEMA,
            origin=self.sweep.origin,
            device=self.sweep.device,
            workload=self.sweep.workload,
            state=self.sweep.state,
            measured_granularity=self.sweep.granularity,
            model=None if self.sweep.run is None else self.sweep.run.model,
            shape=None if self.sweep.run is None else self.sweep.run.shape,
            objective=Goal(
                kind=objective.kind,
                max_slowdown=objective.max_slowdown,
                edp_exponent=objective.edp_exponent if objective.kind == "edp" else None,
                confidence=objective.confidence,
            ),
            granularity=self.granularity,
            scope=scope,
            clock_tolerance_mhz=float(self.clock_tolerance_mhz),
            baseline=Total(
                time_s=baseline.time_s,
                energy_j=baseline.energy_j,
                time_se_s=baseline.time_se_s,
                energy_se_j=baseline.energy_se_j,
            ),
            predicted=predicted,
            waste=Waste(joules=self.waste_j, share=self.waste_j / self.baseline_energy_j),
            certificate=Certificate(
                lower_bound_j=bound,
                gap=(energy_j - bound) / energy_j,
                budget_s=float(optimum.budget_s),
            ),
            fastest=Fastest(time_s=fastest_s, time_change=fastest_s / baseline.time_s - 1),
            switches=count_switches(assignments),
            assignments=assignments,
            captured_on=self.sweep.captured_on,
            coverage=self.coverage,
            expected=expected,
        ).sealed()

    def _assignments(self, rows: IndexArray) -> tuple[Assignment, ...]:
        """One line for each kernel, in order of execution."""
        costs = self.costs
        unit_of = {int(kernel): unit.name for unit in self.units for kernel in unit.kernels}
        lines = []
        for index, (kernel, row) in enumerate(zip(costs.kernels, rows.tolist(), strict=True)):
            base, setting = int(costs.start[index]), costs.setting(row)
            time_s, energy_j = float(costs.time_s[row]), float(costs.energy_j[row])
            lines.append(
                Assignment(
                    kernel=kernel.name,
                    pass_name=kernel.pass_name,
                    block=kernel.block,
                    unit=unit_of[index],
                    count=kernel.count,
                    core_mhz=setting.core_mhz,
                    memory_mhz=setting.memory_mhz,
                    power_limit_w=setting.power_limit_w,
                    time_s=time_s,
                    energy_j=energy_j,
                    time_change=time_s / float(costs.time_s[base]) - 1,
                    energy_change=energy_j / float(costs.energy_j[base]) - 1,
                )
            )
        return tuple(lines)


def _check_shared(sweep: Sweep, coverage: Coverage, granularity: Granularity) -> None:
    """Refuse to give kernels one setting where each was measured at settings of its own."""
    if coverage.shares_settings or granularity in ("kernel", sweep.granularity):
        return
    chosen = "a search chose the points" if coverage.kind == "search" else "only a plan's finalists were measured"
    raise BadInputError(
        f"`granularity` {granularity}: in '{sweep.key}' {chosen} of each {sweep.granularity} for itself, so that they share "
        "few settings; sweep the grid, without `search`, or search for such plans: "
        f"`search` model, `granularity` {granularity}"
    )


def _default_memory_mhz(sweep: Sweep) -> float | None:
    """The memory clock in effect at the default clocks, if it was recorded and the same for all kernels."""
    auto = np.isnan(sweep.core_mhz) & np.isnan(sweep.memory_mhz) & np.isnan(sweep.power_limit_w)
    clocks = np.unique(sweep.effective_memory_mhz[auto])
    return float(clocks[0]) if len(clocks) == 1 and np.isfinite(clocks[0]) else None


def _best(frontier: Frontier, objective: Objective, budget: Fraction | None, gap_tolerance: float = 0.0) -> Point:
    match objective.kind:
        case "waste":
            return frontier.least_energy(budget, gap_tolerance)
        case "edp":
            return frontier.least_edp(objective.edp_exponent, budget)
        case "energy":
            return frontier.least_energy()
        case "time":
            return frontier.least_time()


def _too_fast(objective: Objective, least_slowdown: float, unit: str) -> InfeasibleError:
    # Rounded up, so that the bound as written can be met.
    shown = np.ceil(least_slowdown * 1e6) / 1e6
    return InfeasibleError(
        f"`max_slowdown` {objective.max_slowdown:g}: no plan is that fast; the least slowdown possible{unit} is "
        f"{shown:.6f} ({shown:+.4%})",
        least_slowdown=least_slowdown,
    )
