"""The plans to choose from on one set of numbers, and the best of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import InfeasibleError
from wastenot.frontiers.algebra import Frontier
from wastenot.frontiers.exact import exact_sum
from wastenot.frontiers.nodes import Point
from wastenot.planning.costs import Costs
from wastenot.planning.objective import Objective, asked_for
from wastenot.planning.objective_kinds import Scope
from wastenot.planning.units import PlanUnit, iteration_frontier, make_units
from wastenot.workloads.identity import Granularity

LARGEST_EXACT = 2048  # units; the least energy of more is found to within ``GAP_AT_SCALE``, which the certificate states
GAP_AT_SCALE = 1e-7  # relative; for 10,000 kernels 1e-9 takes fifty times as long, and proving the rest half a minute


class Answer(NamedTuple):
    """A point of a frontier, and the time within which none needs less energy than its lower bound; ``None``: its own."""

    point: Point
    within_s: Fraction | None


@dataclass(frozen=True, eq=False)
class FrontierPlans:
    """A frontier, as an objective asks it (:class:`wastenot.planning.objective_kinds.Plans`).

    Attributes:
        frontier: of an iteration or a unit.
        baseline_time_s: at auto, exact.
        baseline_energy_j: at auto.
        gap_tolerance: within which the least energy is enough.
    """

    frontier: Frontier
    baseline_time_s: Fraction
    baseline_energy_j: float
    gap_tolerance: float = 0.0
    _of_least_energy: dict[float | None, Answer] = field(default_factory=dict)

    def budget(self, max_slowdown: float | None) -> Fraction | None:
        """The exact time that a slowdown allows."""
        return None if max_slowdown is None else self.baseline_time_s * (1 + Fraction(max_slowdown))

    def least_energy(self, max_slowdown: float | None) -> Answer:
        """The point of least energy within a slowdown."""
        if max_slowdown not in self._of_least_energy:
            budget = self.budget(max_slowdown)
            self._of_least_energy[max_slowdown] = Answer(self.frontier.least_energy(budget, self.gap_tolerance), budget)
        return self._of_least_energy[max_slowdown]

    def least_edp(self, exponent: float, max_slowdown: float | None) -> Answer:
        """The point of least energy · time^exponent within a slowdown."""
        return Answer(self.frontier.least_edp(exponent, self.budget(max_slowdown)), None)

    def least_time(self) -> Answer:
        """The fastest point."""
        return Answer(self.frontier.least_time(), None)

    def changes(self, found: Answer) -> tuple[float, float]:
        """Time and energy of a point, as changes from auto."""
        point = found.point
        return float(point.exact_time_s / self.baseline_time_s - 1), point.energy_j / self.baseline_energy_j - 1.0

    def price_of_time(self, objective: Objective) -> float:
        """Joules that one more second is worth where an objective is reached."""
        slowdown = objective.rules.slowdown(objective, self)
        if slowdown is None:
            point = objective.least(self).point
            return objective.rules.price_w(objective, point.time_s, point.energy_j)
        fastest_s, budget_s = self.frontier.least_time().exact_time_s, self.baseline_time_s * (1 + Fraction(slowdown))
        return self.frontier.price_of_time(float(max(fastest_s, budget_s)))


def plans_of(unit: PlanUnit) -> FrontierPlans:
    """The frontier of a unit alone."""
    return FrontierPlans(unit.frontier, unit.baseline_time_s, float(unit.energy_j[0]))


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """The best option of each unit, before a plan is made of them.

    Attributes:
        options: of each unit, shape (units,).
        lower_bound_j: no options within ``budget_s`` needs less energy (with a confidence: less expected energy).
        budget_s: the time budget, exact.
    """

    options: tuple[int, ...]
    lower_bound_j: float
    budget_s: Fraction


@dataclass(frozen=True, eq=False)
class Choices:
    """A setting for every unit of an iteration, on one set of numbers.

    Attributes:
        costs: of the kernels.
        units: in order of execution.
        granularity: what gets a setting of its own.
    """

    costs: Costs
    units: list[PlanUnit]
    granularity: Granularity

    @classmethod
    def of(cls, costs: Costs, granularity: Granularity, clock_tolerance_mhz: float) -> Self:
        """The choices at one granularity; raises what :func:`wastenot.planning.units.make_units` does."""
        return cls(costs, make_units(costs, granularity, clock_tolerance_mhz), granularity)

    def with_numbers(self, time_s: FloatArray, energy_j: FloatArray) -> Self:
        """The same choices with other times and energies, shape (rows,)."""
        costs = replace(self.costs, time_s=time_s, energy_j=energy_j)
        return replace(self, costs=costs, units=[replace(unit, costs=costs) for unit in self.units])

    @cached_property
    def frontier(self) -> Frontier:
        """Of the whole iteration."""
        return iteration_frontier(self.costs, self.units, self.granularity)

    @property
    def baseline_rows(self) -> IndexArray:
        """The row of each kernel at auto."""
        return self.costs.start[:-1]

    @cached_property
    def baseline_time_s(self) -> Fraction:
        """Exact time of the iteration at auto."""
        return self.exact_time(self.baseline_rows)

    @cached_property
    def baseline_energy_j(self) -> float:
        """Energy of the iteration at auto."""
        return self.energy(self.baseline_rows)

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
    def waste_share(self) -> float:
        """What the baseline wastes (paper, Eq. 2) of its energy: the least energy at no more time is that much less."""
        least_j = self.energy(self.rows(tuple(self.plans.least_energy(0.0).point.options.tolist())))
        return max(0.0, 1.0 - least_j / self.baseline_energy_j)

    @cached_property
    def plans(self) -> FrontierPlans:
        """The whole iteration, to be asked by an objective."""
        gap_tolerance = 0.0 if len(self.units) <= LARGEST_EXACT else GAP_AT_SCALE
        return FrontierPlans(self.frontier, self.baseline_time_s, self.baseline_energy_j, gap_tolerance)

    def best(self, objective: Objective, scope: Scope) -> Optimum:
        """The best option of each unit, taking the numbers as they are.

        Raises:
            InfeasibleError: the slowdown cannot be kept.
        """
        return self._best_global(objective) if scope == "global" else self._best_local(objective)

    def _best_global(self, objective: Objective) -> Optimum:
        try:
            point, budget = objective.least(self.plans)
        except InfeasibleError as error:
            least = float(self.frontier.least_time().exact_time_s / self.baseline_time_s - 1)
            raise _too_fast(objective, least, "") from error
        bound = point.lower_bound_j
        if budget is None or bound is None:
            budget = point.exact_time_s
            bound = self.frontier.least_energy(budget, self.plans.gap_tolerance).lower_bound_j
        assert bound is not None
        return Optimum(tuple(point.options.tolist()), bound, budget)

    def _best_local(self, objective: Objective) -> Optimum:
        best: list[Point] = []
        for unit in self.units:
            try:
                best.append(objective.least(plans_of(unit)).point)
            except InfeasibleError as error:
                least = [float(unit.frontier.least_time().exact_time_s / unit.baseline_time_s - 1) for unit in self.units]
                slowest = int(np.argmax(least))
                raise _too_fast(objective, least[slowest], f" of '{self.units[slowest].name}' by itself") from error
        options = tuple(int(point.options[0]) for point in best)
        time_s = sum((point.exact_time_s for point in best), Fraction(0))
        budget = time_s if objective.max_slowdown is None else self.budget(objective.max_slowdown)
        # Each unit has its least energy within its own bound, or its own best product: nothing else was allowed.
        return Optimum(options, self.energy(self.rows(options)), budget)


def _too_fast(objective: Objective, least_slowdown: float, unit: str) -> InfeasibleError:
    # Rounded towards slower, so that the bound as written can be met.
    speed_up = np.floor(-least_slowdown * 1e4) / 1e2
    possible = f"at most {speed_up:.2f} % faster is" if speed_up > 0.0 else "no speed-up of even 0.01 % is"
    return InfeasibleError(
        f"by the numbers as measured, {possible} possible{unit}",
        least_slowdown=least_slowdown,
        asked=asked_for(objective.max_slowdown),
    )
