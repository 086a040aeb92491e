"""From a sweep to the plan that is best, with the proof."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, replace
from functools import cached_property

from wastenot.core.arrays import IndexArray
from wastenot.core.errors import BadInputError, InfeasibleError
from wastenot.frontiers.algebra import Frontier
from wastenot.planning.applicable import find_applicable
from wastenot.planning.choices import Choices, Optimum, plans_of
from wastenot.planning.costs import Costs, combine_repeats
from wastenot.planning.dwell import count_switches
from wastenot.planning.latency import Latency, switching_of
from wastenot.planning.natural import as_caps
from wastenot.planning.noise.confidence import choose_confidently
from wastenot.planning.noise.curves import model_of_curves
from wastenot.planning.noise.expectation import change_error, expect, total_error
from wastenot.planning.noise.optimism import Bootstrap, Optimism, optimism
from wastenot.planning.noise.posteriors import Posteriors
from wastenot.planning.noise.shrinkage import CostModel, fit_costs
from wastenot.planning.objective import DEFAULT_CONFIDENCE, Objective
from wastenot.planning.objective_kinds import ObjectiveKind, Scope
from wastenot.planning.plan import (
    SCHEMA,
    Assignment,
    Certificate,
    Expected,
    Fastest,
    Goal,
    Plan,
    Potential,
    PredictedTotal,
    Tolerance,
    Total,
    Waste,
)
from wastenot.planning.profiles import without_profiles
from wastenot.planning.schedule import Schedule
from wastenot.planning.scheduling import Scheduling
from wastenot.study.coverage import Coverage
from wastenot.study.store import Source, sweep_of
from wastenot.study.sweep import Sweep
from wastenot.workloads.identity import EnergyState, Granularity

TOLERANCE = 0.001  # slowdown below what a run can show


def plan(
    source: Source | Planner,
    objective: Objective | ObjectiveKind = "waste",
    *,
    max_slowdown: float | None = None,
    edp_exponent: float = 1.0,
    confidence: float | None = None,
    as_measured: bool = False,
    workload: str | None = None,
    state: EnergyState | None = None,
    granularity: Granularity = "kernel",
    scope: Scope = "global",
    clock_tolerance_mhz: float = 0.0,
    switch_time_s: float | None = None,
    latency: Latency | str | os.PathLike[str] | None = None,
    min_dwell_s: float = 0.0,
    device: str | None = None,
) -> Plan:
    """The best plan for a workload, and what of it could be applied today.

        >>> import wastenot as wn
        >>> plan = wn.plan("my.db", max_slowdown=0.02)
        >>> plan.headline.source, plan.headline.time_change <= 0.02
        ('promise', True)

    If the study has repeats or standard errors, the plan stays within the slowdown limit with 95 % confidence, and its
    headline is corrected for noise and selection bias. A study without them is planned by its numbers as measured.

    Args:
        source: the measurements to plan from: a study (its file name, URL or the open study), a sweep, or a planner of it,
            which keeps its estimates for further plans.
        objective: what to minimise, by name (:data:`wastenot.planning.objective_kinds.KERNELS`), or a whole
            :class:`Objective`; then omit the next four.
        max_slowdown: limit on T/T_auto − 1, such as 0.02; by default 0 for ``waste`` and none for ``edp``.
        edp_exponent: α of E·T^α.
        confidence: probability that the true slowdown is within the limit; 0.95 by default.
        as_measured: use the numbers as measured, favourable errors included; promises nothing.
        workload: its name; may be omitted if the study holds only one.
        state: in which its energies were measured; steady power by default.
        granularity: what gets its own setting.
        scope: ``global``: only the whole iteration must stay within the slowdown limit, so that units compensate for each
            other; ``local``: each unit must stay within it by itself.
        clock_tolerance_mhz: how much a kernel's core clock may differ from that of its unit, if a unit has several.
        switch_time_s: time the device takes to switch clocks, if known; decides what can be applied.
        latency: measured by ``wastenot device latency``, if that is not in the study already.
        min_dwell_s: minimum time between two clock changes of its schedule.
        device: GPU whose switching times to plan for; by default the study's.

    Raises:
        InfeasibleError: no plan is within the slowdown limit; says the least possible.
        BadInputError: an argument makes no sense, or the sweep does not have what the granularity needs.
        StudyError: the study cannot be read.
    """
    if not isinstance(objective, Objective):
        objective = Objective(objective, max_slowdown, edp_exponent, confidence, as_measured)
    elif (max_slowdown, edp_exponent, confidence, as_measured) != (None, 1.0, None, False):
        raise BadInputError(
            "`objective`: sets all of these; leave out `max_slowdown`, `edp_exponent`, `confidence` and `as_measured`"
        )
    if isinstance(source, Planner):
        planner, sweep = source.at(granularity), source.sweep
    else:
        sweep = sweep_of(source, workload, state, granularity)
        planner = Planner(sweep, granularity, clock_tolerance_mhz)
    if not 0.0 <= min_dwell_s < math.inf:
        raise BadInputError(f"`min_dwell_s` {min_dwell_s}: must be a number of seconds, such as 0.1")
    switching = switching_of(sweep, switch_time_s, latency, device)
    made = planner.planned(objective, scope)
    memory_mhz = sweep.default_memory_mhz()

    def scheduled(level: Granularity) -> Schedule | None:
        return Scheduling(planner.at(level), objective, scope, switching, min_dwell_s, memory_mhz).schedule()

    schedule = scheduled(granularity)
    applicable = find_applicable(
        made, lambda coarser: planner.at(coarser).planned(objective, scope, beside=False), switching, memory_mhz,
        lambda level: schedule if level == granularity else scheduled(level),
    )  # fmt: skip
    return made.model_copy(update={"applicable": applicable, "schedule": schedule}).sealed()


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
    return Planner(sweep_of(source, workload, state, granularity), granularity, clock_tolerance_mhz).measured.frontier


class Planner:
    """Plans of one workload at one granularity; what they share is computed once.

    Args:
        sweep: what its kernels cost.
        granularity: what gets a setting of its own.
        clock_tolerance_mhz: see :func:`plan`.
        like: another planner of the sweep, whose costs it shares.
        with_profiles: plan with workload power profiles too, as measured; by default they are left out, see
            :mod:`wastenot.planning.profiles`.

    Raises:
        BadInputError: the sweep does not have what the granularity needs.

    Attributes:
        measured: the choices by the numbers as measured.
        costs: as measured.
        units: in order of execution.
        coverage: how far the sweeps came that the plans rest on.
    """

    def __init__(
        self,
        sweep: Sweep,
        granularity: Granularity = "kernel",
        clock_tolerance_mhz: float = 0.0,
        like: Planner | None = None,
        *,
        with_profiles: bool = False,
    ) -> None:
        sweep = sweep if with_profiles or like is not None else without_profiles(sweep)
        caps = as_caps(sweep) if sweep.state == "natural" and like is None else None
        self.sweep = sweep = sweep if caps is None else caps.sweep
        self._curve_errors = None if caps is None else caps.errors
        self.granularity = granularity
        self.clock_tolerance_mhz = clock_tolerance_mhz
        self._like = like
        self.costs: Costs = combine_repeats(sweep) if like is None else like.costs
        self.coverage: Coverage = self.costs.coverage(sweep.recorded) if like is None else like.coverage
        _check_shared(sweep, self.coverage, granularity)
        self._coarser: dict[Granularity, Planner] = {}
        self._chosen: dict[tuple[Objective, Scope], Optimum] = {}
        self.measured = Choices.of(self.costs, granularity, clock_tolerance_mhz)
        self.units = self.measured.units

    def at(self, granularity: Granularity) -> Planner:
        """A planner at another granularity, which shares the costs and what was estimated from them: the dear part."""
        if granularity == self.granularity:
            return self
        if granularity not in self._coarser:
            self._coarser[granularity] = Planner(self.sweep, granularity, self.clock_tolerance_mhz, self)
        return self._coarser[granularity]

    # ---- what is known of noise --------------------------------------------------------------------------------

    @cached_property
    def cost_model(self) -> CostModel | None:
        """What the sweep says about the true costs; ``None`` where nothing says how noisy it is."""
        if self._like is not None:
            return self._like.cost_model
        if self.sweep.state == "natural":  # what is smooth over clocks was estimated with the curves
            return None if self._curve_errors is None else model_of_curves(self.costs, self._curve_errors)
        return fit_costs(self.sweep, self.costs)

    @cached_property
    def _solved(self) -> tuple[Posteriors, Bootstrap] | None:
        if self._like is not None:
            return self._like._solved
        return None if self.cost_model is None else self.cost_model.with_bootstrap()

    @property
    def posteriors(self) -> Posteriors | None:
        """Posteriors of the true costs at every setting; ``None`` where nothing says how noisy the sweep is."""
        return None if self._solved is None else self._solved[0]

    @property
    def errors_known(self) -> bool:
        """Whether repeats or standard errors say how noisy the sweep is."""
        return self.cost_model is not None and self.cost_model.known

    @property
    def bootstrap(self) -> Bootstrap:
        """What tells luck from truth; only where errors are known."""
        assert self._solved is not None
        return self._solved[1]

    @cached_property
    def believed(self) -> Choices:
        """The choices by expected numbers, corrected for noise; only where errors are known."""
        assert self.posteriors is not None
        return self.measured.with_numbers(self.posteriors.time_s.mean, self.posteriors.energy_j.mean)

    @cached_property
    def _optimisms(self) -> dict[tuple[Objective, str | None], Optimism]:
        return {}

    def optimism(self, objective: Objective, unit: int | None = None) -> Optimism:
        """By how much the expected time and energy of the best plan, of all units or one, are too low."""
        key = objective, None if unit is None else self.units[unit].name
        if key not in self._optimisms:
            believed = self.believed
            units = believed.units if unit is None else [believed.units[unit]]
            price_w = (believed.plans if unit is None else plans_of(units[0])).price_of_time(objective)
            self._optimisms[key] = optimism(units, price_w, objective.max_slowdown or 0.0, self.bootstrap)
        return self._optimisms[key]

    # ---- choosing --------------------------------------------------------------------------------------------

    def plan(self, objective: Objective, scope: Scope = "global") -> Plan:
        """The best plan; see :func:`plan`."""
        return self.planned(objective, scope).sealed()

    def planned(self, objective: Objective, scope: Scope, *, beside: bool = True) -> Plan:
        """The best plan, not sealed yet. With ``beside`` it says, too, what other numbers and limits would give."""
        return self._describe(self.choose(objective, scope), objective, scope, beside)

    def corrects(self, objective: Objective) -> bool:
        """Whether plans are chosen by numbers corrected for noise, or by the numbers as measured.

        Where a confidence is asked for, a guess of the noise from how rough the numbers are over the clocks will do.

        Raises:
            BadInputError: a confidence was asked for, and nothing says how noisy the numbers are.
        """
        if objective.as_measured:
            return False
        if objective.confidence is None:
            return self.errors_known
        if self.cost_model is None:
            raise BadInputError(
                "`confidence`: these measurements do not say how noisy they are; measure points several "
                "times, or give time_se_s and energy_se_j"
            )
        return True

    def choose(self, objective: Objective, scope: Scope = "global") -> Optimum:
        """The best option of each unit.

        Raises:
            InfeasibleError: the slowdown cannot be kept.
            BadInputError: an unknown scope, or a confidence where nothing says how noisy the numbers are.
        """
        objective.check_scope(scope)
        if (objective, scope) not in self._chosen:
            self._chosen[objective, scope] = self._choose(objective, scope)
        optimum = self._chosen[objective, scope]
        if self.sweep.state != "natural":
            return optimum
        return replace(optimum, options=tuple(map(self._without_idle_cap, range(len(self.units)), optimum.options)))

    def _without_idle_cap(self, unit: int, option: int) -> int:
        """The option, or auto where its caps change nothing: they are above the clocks that the kernels have anyway."""
        rows, costs = self.units[unit].rows, self.costs
        same = (costs.time_s[rows[option]] == costs.time_s[rows[0]]) & (
            costs.energy_j[rows[option]] == costs.energy_j[rows[0]]
        )
        return 0 if same.all() else option

    def _choose(self, objective: Objective, scope: Scope) -> Optimum:
        if not self.corrects(objective):
            return self.measured.best(objective, scope)
        if objective.max_slowdown is None:
            return self.believed.best(objective, scope)
        assert self.posteriors is not None
        confidence = objective.confidence or DEFAULT_CONFIDENCE
        try:
            options, bound, slowdown = choose_confidently(
                self.units, self.posteriors, objective, confidence, scope,
                lambda unit: self.optimism(objective, unit).time_s,
            )  # fmt: skip
        except InfeasibleError:
            self.measured.best(objective, scope)  # says by how much, where no numbers would do
            raise
        budget_s = self.believed.budget(slowdown)
        if objective.rules.limit == "needed":
            # Luck is judged for a whole plan: with it, no setting may be worth leaving the default clocks for.
            expected = self.expected(self.measured.rows(options), objective)
            late = objective.max_slowdown == 0.0 and expected is not None and expected.time_change > 0.0
            if expected is not None and (late or objective.refuses(expected.time_change, expected.energy_change)):
                return Optimum((0,) * len(options), min(bound, self.believed.baseline_energy_j), budget_s)
        return Optimum(options, bound, budget_s)

    # ---- describing ------------------------------------------------------------------------------------------

    def totals(self, rows: IndexArray) -> PredictedTotal:
        """Time and energy of an iteration at the given row of each kernel, as measured, and the changes from auto."""
        costs, base = self.costs, self.measured.baseline_rows
        time, energy = float(self.measured.exact_time(rows)), self.measured.energy(rows)
        return PredictedTotal(
            time_s=time,
            energy_j=energy,
            time_se_s=total_error(costs.count, costs.time_se_s[rows]),
            energy_se_j=total_error(costs.count, costs.energy_se_j[rows]),
            time_change=time / float(self.measured.baseline_time_s) - 1,
            energy_change=energy / self.measured.baseline_energy_j - 1,
            time_change_se=change_error(costs.count, costs.time_s, costs.time_se_s, rows, base),
            energy_change_se=change_error(costs.count, costs.energy_j, costs.energy_se_j, rows, base),
        )

    def expected(self, rows: IndexArray, objective: Objective) -> Expected | None:
        """What to expect of a plan's true time and energy; ``None`` where nothing says how noisy the numbers are."""
        if self.cost_model is None:
            return None
        if not self.corrects(objective):
            return expect(self.costs, self.cost_model.posteriors(rows), rows, objective.max_slowdown)
        assert self.posteriors is not None
        return expect(self.costs, self.posteriors, rows, objective.max_slowdown, self.optimism(objective))

    def stated(self, optimum: Optimum, objective: Objective) -> Expected | PredictedTotal:
        """Time and energy of a choice as the headline of its plan states them: expected, or as measured."""
        rows = self.measured.rows(optimum.options)
        expected = self.expected(rows, objective) if self.corrects(objective) else None
        return self.totals(rows) if expected is None else expected

    def _describe(self, optimum: Optimum, objective: Objective, scope: Scope, beside: bool) -> Plan:
        rows, corrects = self.measured.rows(optimum.options), self.corrects(objective)
        beside = beside and corrects
        predicted, baseline = self.totals(rows), self.totals(self.measured.baseline_rows)
        assignments = self._assignments(rows)
        expected = self.expected(rows, objective)
        choices, energy_j, bound = self.measured, predicted.energy_j, optimum.lower_bound_j
        if corrects and expected is not None:
            choices, energy_j = self.believed, expected.energy_j
            bound += expected.energy_j - float(choices.energy(rows))
        bound = min(bound, energy_j)
        if energy_j - bound <= 1e-12 * energy_j:
            bound = energy_j
        fastest = float(choices.frontier.least_time().exact_time_s / choices.baseline_time_s)
        return Plan(
            schema_=SCHEMA,
            origin=self.sweep.origin,
            device=self.sweep.device,
            workload=self.sweep.workload,
            state=self.sweep.state,
            measured_granularity=self.sweep.granularity,
            model=None if self.sweep.run is None else self.sweep.run.model,
            shape=None if self.sweep.run is None else self.sweep.run.shape,
            objective=Goal.of(objective, corrected=corrects),
            granularity=self.granularity,
            scope=scope,
            clock_tolerance_mhz=float(self.clock_tolerance_mhz),
            baseline=Total(**baseline.model_dump(include=set(Total.model_fields))),
            predicted=predicted,
            waste=Waste(joules=choices.waste_share * baseline.energy_j, share=choices.waste_share),
            certificate=Certificate(
                lower_bound_j=bound, gap=(energy_j - bound) / energy_j, budget_s=float(optimum.budget_s)
            ),
            fastest=Fastest(time_s=fastest * baseline.time_s, time_change=fastest - 1),
            switches=count_switches(assignments),
            assignments=assignments,
            captured_on=self.sweep.captured_on,
            coverage=self.coverage,
            expected=expected,
            potential=self._potential(objective, scope) if beside else None,
            tolerance=self._tolerance(objective, scope) if beside and objective.max_slowdown == 0.0 else None,
        )

    def _potential(self, objective: Objective, scope: Scope) -> Potential | None:
        """What the same objective seems to give by the numbers as measured."""
        try:
            optimum = self.measured.best(objective, scope)
        except InfeasibleError:
            return None
        totals = self.totals(self.measured.rows(optimum.options))
        return Potential(time_change=totals.time_change, energy_change=totals.energy_change)

    def _tolerance(self, objective: Objective, scope: Scope) -> Tolerance | None:
        """What a slowdown too small to be seen would save."""
        tolerant = replace(objective, max_slowdown=TOLERANCE)
        expected = self.expected(self.measured.rows(self.choose(tolerant, scope).options), tolerant)
        if expected is None:
            return None
        return Tolerance(
            max_slowdown=TOLERANCE,
            energy_change=expected.energy_change,
            energy_change_interval=expected.energy_change_interval,
        )

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
                    **asdict(setting),
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
        f"`granularity` {granularity}: in '{sweep.key}' {chosen} of each {sweep.granularity} separately, so they have few "
        "settings in common; sweep the grid, without `search`, or search for such plans: "
        f"`search` model, `granularity` {granularity}"
    )
