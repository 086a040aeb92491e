"""From a sweep to the plan that is best, with the proof."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from wastenot.arrays import IndexArray
from wastenot.errors import BadInputError, InfeasibleError
from wastenot.frontiers.algebra import Frontier, Point, sequence
from wastenot.frontiers.exact import exact_sum
from wastenot.planning.assignments import assignments
from wastenot.planning.costs import Costs, combine_repeats
from wastenot.planning.noise.confidence import choose_confidently
from wastenot.planning.noise.errors import change_error, total_error
from wastenot.planning.noise.expectation import expect
from wastenot.planning.noise.shrinkage import Posteriors, posteriors
from wastenot.planning.objective import SCOPES, Objective, Scope
from wastenot.planning.plan import (
    SCHEMA,
    Certificate,
    Fastest,
    Goal,
    Plan,
    Prediction,
    Switches,
    Total,
    Waste,
)
from wastenot.planning.switches import switches_per_iteration
from wastenot.planning.units import Unit, make_units
from wastenot.study.sweep import Sweep
from wastenot.workloads.identity import Granularity


def plan(
    sweep: Sweep,
    objective: Objective | None = None,
    *,
    granularity: Granularity = "kernel",
    scope: Scope = "global",
    clock_tolerance_mhz: float = 0.0,
) -> Plan:
    """The best plan for a workload.

    Args:
        sweep: what its kernels cost.
        objective: what is wanted; by default the least energy without any slowdown.
        granularity: what gets a setting of its own.
        scope: ``global``, only the whole iteration must keep the slowdown, so that units make up for each other;
            ``local``, each unit must keep it by itself.
        clock_tolerance_mhz: how far a kernel's core clock may be from that of its unit, where a unit has several.

    Raises:
        InfeasibleError: no plan keeps the slowdown; says the least possible.
        BadInputError: the sweep does not have what the granularity needs.
    """
    return Planner(sweep, granularity, clock_tolerance_mhz).plan(objective or Objective(), scope)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Chosen options, before they are made into a :class:`Plan`.

    Attributes:
        options: of each unit, shape (units,).
        lower_bound_j: no choice within ``budget_s`` needs less energy (with a confidence: less expected energy).
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

    Attributes:
        units: in order of execution.
        frontier: of the whole iteration.
        baseline_time_s: exact time of the iteration at auto.
    """

    def __init__(self, sweep: Sweep, granularity: Granularity = "kernel", clock_tolerance_mhz: float = 0.0) -> None:
        self.sweep = sweep
        self.granularity = granularity
        self.clock_tolerance_mhz = clock_tolerance_mhz
        self.costs: Costs = combine_repeats(sweep)
        self.units: list[Unit] = make_units(self.costs, granularity, clock_tolerance_mhz)
        self.frontier: Frontier = sequence(*(unit.frontier for unit in self.units))
        self.baseline_rows: IndexArray = self.costs.start[:-1]
        self.baseline_time_s: Fraction = self.exact_time(self.baseline_rows)
        self.baseline_energy_j = self.energy(self.baseline_rows)
        self._waste_j: float | None = None

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

    @property
    def waste_j(self) -> float:
        """What the baseline wastes (paper, Eq. 2): its energy less the least at no more time, at this granularity."""
        if self._waste_j is None:
            best = self._choose_global(Objective("waste", 0.0))
            self._waste_j = max(0.0, self.baseline_energy_j - self.energy(self.rows(best.options)))
        return self._waste_j

    # ---- choosing --------------------------------------------------------------------------------------------

    def plan(self, objective: Objective, scope: Scope = "global") -> Plan:
        """The best plan; see :func:`plan`."""
        chosen = self.choose(objective, scope)
        return self._describe(chosen, objective, scope)

    def choose(self, objective: Objective, scope: Scope = "global") -> Choice:
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
            return Choice(options, bound, self.budget(objective.max_slowdown))
        return self._choose_global(objective) if scope == "global" else self._choose_local(objective)

    def _choose_global(self, objective: Objective) -> Choice:
        budget = None if objective.max_slowdown is None else self.budget(objective.max_slowdown)
        try:
            point = _best(self.frontier, objective, budget)
        except InfeasibleError as error:
            least = float(self.exact_time(self._rows_of(self.frontier.least_time())) / self.baseline_time_s - 1)
            raise _too_fast(objective, least, "") from error
        options = _options(point)
        bound = point.lower_bound_j
        if budget is None or bound is None:
            budget = self.exact_time(self.rows(options))
            bound = self.frontier.least_energy(budget).lower_bound_j
        assert bound is not None
        return Choice(options, bound, budget)

    def _choose_local(self, objective: Objective) -> Choice:
        options: list[int] = []
        for unit in self.units:
            own_time = unit.exact_time(0)
            budget = None if objective.max_slowdown is None else own_time * (1 + Fraction(objective.max_slowdown))
            try:
                options += _options(_best(unit.frontier, objective, budget))
            except InfeasibleError as error:
                least = [
                    float(unit.exact_time(_options(unit.frontier.least_time())[0]) / unit.exact_time(0) - 1)
                    for unit in self.units
                ]
                slowest = int(np.argmax(least))
                raise _too_fast(objective, least[slowest], f" of '{self.units[slowest].name}' by itself") from error
        rows = self.rows(tuple(options))
        budget = self.exact_time(rows) if objective.max_slowdown is None else self.budget(objective.max_slowdown)
        # Each unit has its least energy within its own bound, or its own best product: nothing else was allowed.
        return Choice(tuple(options), self.energy(rows), budget)

    @cached_property
    def posteriors(self) -> Posteriors | None:
        """Posterior of the true costs; ``None`` where nothing says how noisy the sweep is."""
        return posteriors(self.sweep, self.costs)

    def _rows_of(self, point: Point) -> IndexArray:
        return self.rows(_options(point))

    # ---- describing ------------------------------------------------------------------------------------------

    def totals(self, rows: IndexArray) -> Prediction:
        """Time and energy of an iteration at the given row of each kernel, and the changes from the baseline."""
        costs, base = self.costs, self.baseline_rows
        time, energy = float(self.exact_time(rows)), self.energy(rows)
        return Prediction(
            time_s=time,
            energy_j=energy,
            time_se_s=total_error(costs.count, costs.time_se_s[rows]),
            energy_se_j=total_error(costs.count, costs.energy_se_j[rows]),
            time_change=time / float(self.baseline_time_s) - 1,
            energy_change=energy / self.baseline_energy_j - 1,
            time_change_se=change_error(costs.count, costs.time_s, costs.time_se_s, rows, base),
            energy_change_se=change_error(costs.count, costs.energy_j, costs.energy_se_j, rows, base),
        )

    def _describe(self, chosen: Choice, objective: Objective, scope: Scope) -> Plan:
        costs = self.costs
        rows = self.rows(chosen.options)
        predicted, baseline = self.totals(rows), self.totals(self.baseline_rows)
        settings = [costs.setting(int(row)) for row in rows]
        switches = switches_per_iteration(costs.kernels, settings)
        fastest_s = float(self.exact_time(self._rows_of(self.frontier.least_time())))
        expected = None
        if self.posteriors is not None:
            expected = expect(self.units, costs, self.posteriors, chosen.options, objective.max_slowdown)
        energy_j = predicted.energy_j
        if objective.confidence is not None and expected is not None:
            energy_j = expected.energy_j
        bound = min(chosen.lower_bound_j, energy_j)
        if energy_j - bound <= 1e-12 * energy_j:
            bound = energy_j
        return Plan(
            schema_=SCHEMA,
            origin=self.sweep.origin,
            device=self.sweep.device,
            workload=self.sweep.workload,
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
                budget_s=float(chosen.budget_s),
            ),
            fastest=Fastest(time_s=fastest_s, time_change=fastest_s / baseline.time_s - 1),
            switches=Switches(per_iteration=switches, mean_dwell_s=predicted.time_s / switches if switches else None),
            assignments=tuple(assignments(costs, self.units, rows)),
            expected=expected,
        ).sealed()


def _best(frontier: Frontier, objective: Objective, budget: Fraction | None) -> Point:
    match objective.kind:
        case "waste":
            return frontier.least_energy(budget)
        case "edp":
            return frontier.least_edp(objective.edp_exponent, budget)
        case "energy":
            return frontier.least_energy()
        case "time":
            return frontier.least_time()


def _options(point: Point) -> tuple[int, ...]:
    return tuple(option for option in point.choices if isinstance(option, int))


def _too_fast(objective: Objective, least_slowdown: float, whose: str) -> InfeasibleError:
    # Rounded up, so that the bound as written can be met.
    shown = np.ceil(least_slowdown * 1e6) / 1e6
    return InfeasibleError(
        f"`max_slowdown` {objective.max_slowdown:g}: no plan is that fast; the least slowdown possible{whose} is "
        f"{shown:.6f} ({shown:+.4%})",
        least_slowdown=least_slowdown,
    )
