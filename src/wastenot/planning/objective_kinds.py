"""The list of objectives: everything that can be minimised, and which subject offers it.

An objective is an entry that says how it is called and what it counts; for plans also whether it keeps a slowdown, and what
it asks of whatever a plan is chosen from. Nothing else asks which objective it has before it. The end of this file says what
each subject offers. An objective of several subjects is one entry, and a cost that only one subject has is an entry, too:

                waste   EDP   energy   time   carbon   price   weighted   energy within a time   time within a power
    KERNELS       x      x      x       x       x
    pipelines     x
    JOBS                        x       x                         x                x                      x
    CLUSTERS                    x               x        x
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, get_args

from wastenot.core.errors import BadInputError, InfeasibleError

if TYPE_CHECKING:
    from wastenot.core.arrays import FloatArray
    from wastenot.planning.carbon import CarbonIntensity
    from wastenot.planning.objective import Objective

ObjectiveKind = Literal["waste", "edp", "energy", "time", "carbon"]
JobObjectiveKind = Literal["weighted", "energy", "time", "energy within a time", "time within a power"]
ClusterObjectiveKind = Literal["energy", "price", "carbon"]
Scope = Literal["global", "local"]

SCOPES: tuple[Scope, ...] = get_args(Scope)
_DEAR = 1e3  # times the mean power: a second at that price is worth any energy
_BEYOND = 1e3  # times as bad as what keeps a bound, so that of those that break it the least bad is chosen
_SEARCHED = 16  # slowdowns that :func:`search` tries, evenly spaced


Found = TypeVar("Found")


class Plans(Protocol[Found]):
    """What an objective may ask of whatever a plan is chosen from.

    A slowdown bounds T/T_auto − 1, ``None`` is no bound; questions raise :class:`InfeasibleError` where none is that fast.
    """

    def least_energy(self, max_slowdown: float | None) -> Found:
        """The plan of least energy within a slowdown."""

    def least_edp(self, exponent: float, max_slowdown: float | None) -> Found:
        """The plan of least energy · time^exponent within a slowdown."""

    def least_time(self) -> Found:
        """The fastest plan."""

    def changes(self, found: Found) -> tuple[float, float]:
        """Time and energy of an answer, as changes from the default clocks."""


class JobGoal(Protocol):
    """What of a job's terms its objectives look at (:class:`wastenot.jobs.tables.records.JobTerms`)."""

    @property
    def eta(self) -> float:
        """Weight of energy against time, from 0 to 1."""

    @property
    def max_power_w(self) -> float | None:
        """Of the device, at which a second of time is priced; ``None`` for 1 W."""

    @property
    def within_s(self) -> float | None:
        """Bound on the time."""

    @property
    def power_budget_w(self) -> float | None:
        """Bound on the mean power."""


class Kind(Protocol):
    """One objective.

    Attributes:
        label: how tables call it.
        quantity: what is to be least, in words.
        saves: what it is known for saving; ``both`` where it weighs one against the other.
        per_kwh: key of what says what a kilowatt-hour costs over time; ``None`` where no such cost is minimised.
        recorded: field of a run's record that holds how much the run took.
        column: title of a column of that.
        unit: of that; empty for the currency.
    """

    label: str
    quantity: str
    saves: Literal["energy", "time", "both"] = "energy"
    per_kwh: str | None = None
    recorded: str = "energy_j"
    column: str = "Energy"
    unit: str = "J"

    def taken(self, run: object) -> float | None:
        """How much a run took, by its record; ``None`` where that was not asked for."""
        found: float | None = getattr(run, self.recorded)
        return found


class PlanKind(Kind, Protocol):
    """An objective that plans can be chosen by.

    Attributes:
        help: what it asks for, as ``--objective`` explains it.
        limit: whether it keeps a slowdown: ``needed`` (0 unless given, and then the default clocks stay where nothing does
            better), ``optional`` (none unless given), or ``none``.
        parameters: options that only this one has, fields of :class:`~wastenot.planning.objective.Objective` among them.
        scopes: that it goes with.
    """

    help: str
    limit: Literal["needed", "optional", "none"]
    parameters: tuple[str, ...] = ()
    scopes: tuple[Scope, ...] = SCOPES

    def check(self, goal: Objective) -> None:
        """Refuse parameters of its own that make no sense, with :class:`BadInputError`."""
        return

    def words(self, goal: Objective) -> str:
        """What is to be least, with its parameters."""
        return self.quantity

    def least(self, goal: Objective, plans: Plans[Found]) -> Found:
        """The best of some plans."""
        raise NotImplementedError

    def change(self, goal: Objective, time_change: float, energy_change: float) -> float:
        """Change of what is minimised, from the default clocks."""
        return energy_change

    def price_w(self, goal: Objective, time_s: float, energy_j: float) -> float:
        """Joules that one more second is worth at a plan, where no slowdown decides."""
        return 0.0

    def slowdown(self, goal: Objective, plans: Plans[Found]) -> float | None:
        """The slowdown that decides between time and energy, ``None`` where :meth:`price_w` does."""
        return goal.max_slowdown


class JobKind(Kind, Protocol):
    """An objective that runs of a job are judged by."""

    def cost(self, goal: JobGoal, time_s: FloatArray, energy_j: FloatArray) -> FloatArray:
        """What is minimised, of runs that take such times and energies; any shape."""

    def needs_energy(self, goal: JobGoal) -> bool:
        """Whether a cost says nothing where no energy is known."""
        return True


class _Energy(PlanKind, JobKind):
    label, quantity, limit = "energy", "energy", "none"
    help = "lowest energy, whatever the time"

    def least(self, goal: Objective, plans: Plans[Found]) -> Found:
        return plans.least_energy(None)

    def cost(self, goal: JobGoal, time_s: FloatArray, energy_j: FloatArray) -> FloatArray:
        return energy_j


class _Time(PlanKind, JobKind):
    label, quantity, limit = "time", "time", "none"
    help = "shortest time, whatever the energy"
    saves = "time"

    def least(self, goal: Objective, plans: Plans[Found]) -> Found:
        return plans.least_time()

    def change(self, goal: Objective, time_change: float, energy_change: float) -> float:
        return time_change

    def price_w(self, goal: Objective, time_s: float, energy_j: float) -> float:
        return _DEAR * energy_j / time_s

    def cost(self, goal: JobGoal, time_s: FloatArray, energy_j: FloatArray) -> FloatArray:
        return time_s

    def needs_energy(self, goal: JobGoal) -> bool:
        return False


class _Waste(PlanKind):
    label, quantity, limit = "waste", "energy", "needed"
    help = "lowest energy within the slowdown limit"

    def least(self, goal: Objective, plans: Plans[Found]) -> Found:
        return plans.least_energy(goal.max_slowdown)


class _Edp(PlanKind):
    label, quantity, limit = "EDP", "energy × time", "optional"
    help = "lowest energy × time^A"
    parameters = ("edp_exponent",)

    def check(self, goal: Objective) -> None:
        if not (math.isfinite(goal.edp_exponent) and goal.edp_exponent >= 0.0):
            raise BadInputError(f"`edp_exponent` {goal.edp_exponent}: must be a number of at least 0")

    def words(self, goal: Objective) -> str:
        return self.quantity + ("" if goal.edp_exponent == 1.0 else f"^{goal.edp_exponent:g}")

    def least(self, goal: Objective, plans: Plans[Found]) -> Found:
        return plans.least_edp(goal.edp_exponent, goal.max_slowdown)

    def change(self, goal: Objective, time_change: float, energy_change: float) -> float:
        return (1.0 + energy_change) * math.pow(1.0 + time_change, goal.edp_exponent) - 1.0

    def price_w(self, goal: Objective, time_s: float, energy_j: float) -> float:
        return goal.edp_exponent * energy_j / time_s


class _Carbon(PlanKind):
    """Of plans that are equally fast the one of least energy emits least; so :func:`search` finds it."""

    label, quantity, limit = "carbon", "carbon", "needed"
    help = "lowest carbon emissions within the slowdown limit"
    per_kwh, recorded = "carbon_g_per_kwh", "carbon_g"
    column, unit = "CO2e", "g"
    parameters = ("carbon_g_per_kwh", "run_at", "run_time")
    scopes = ("global",)  # when a run ends depends on all of its units

    def check(self, goal: Objective) -> None:
        if goal.carbon_g_per_kwh is None:
            raise BadInputError("`carbon_g_per_kwh`: give it for objective carbon: a number, or a file by time of day")

    def words(self, goal: Objective) -> str:
        return f"{self.quantity} {_intensity(goal).when}"

    def least(self, goal: Objective, plans: Plans[Found]) -> Found:
        return plans.least_energy(self.slowdown(goal, plans))

    def change(self, goal: Objective, time_change: float, energy_change: float) -> float:
        return _intensity(goal).change(time_change, energy_change)

    def slowdown(self, goal: Objective, plans: Plans[Found]) -> float | None:
        if _intensity(goal).start_s is None or goal.max_slowdown is None:
            return goal.max_slowdown
        return search(plans, _intensity(goal).change, goal.max_slowdown)


def _intensity(goal: Objective) -> CarbonIntensity:
    assert goal.carbon_g_per_kwh is not None
    return goal.carbon_g_per_kwh


class _Price(Kind):
    """What energy costs at prices that change over time."""

    label, quantity = "price", "cost"
    per_kwh, recorded = "price_per_kwh", "cost"
    column, unit = "Cost", ""


class _Weighted(JobKind):
    """η·E + (1 − η)·P·t, with P the greatest power of the device (Zeus, NSDI 2023, section 3.1, equation 2); in joules."""

    label, quantity = "weighted", "energy and time, weighted"
    saves = "both"

    def cost(self, goal: JobGoal, time_s: FloatArray, energy_j: FloatArray) -> FloatArray:
        price_w = 1.0 if goal.max_power_w is None else goal.max_power_w
        if goal.eta == 0.0:
            return price_w * time_s  # also where nothing measures energy
        return goal.eta * energy_j + (1.0 - goal.eta) * price_w * time_s

    def needs_energy(self, goal: JobGoal) -> bool:
        return goal.eta > 0.0


class _EnergyWithinTime(JobKind):
    label, quantity = "energy within a time", "energy"

    def cost(self, goal: JobGoal, time_s: FloatArray, energy_j: FloatArray) -> FloatArray:
        import numpy as np  # which the command line does without until it computes something

        assert goal.within_s is not None
        late = np.maximum(time_s / goal.within_s, 1.0)
        return np.where(late > 1.0, energy_j * _BEYOND * late, energy_j)


class _TimeWithinPower(JobKind):
    label, quantity = "time within a power", "time"
    saves = "time"

    def cost(self, goal: JobGoal, time_s: FloatArray, energy_j: FloatArray) -> FloatArray:
        import numpy as np

        assert goal.power_budget_w is not None
        above = np.maximum(energy_j / time_s / goal.power_budget_w, 1.0)
        return np.where(above > 1.0, time_s * _BEYOND * above, time_s)


def search(plans: Plans[Found], change: Callable[[float, float], float], max_slowdown: float) -> float:
    """The slowdown within which the plan of least energy is best by a measure that no question answers by itself.

    Where the measure prefers less energy of two equally fast plans, the best plan has the least energy within its own time.
    So it is looked for among the plans of least energy within evenly spaced slowdowns, from that of the fastest plan to the
    one allowed: what is found is no worse than the best plan would be if it were slower by one step.

    Args:
        plans: to choose from.
        change: of what is to be least, by the changes of time and energy.
        max_slowdown: that is allowed.

    Raises:
        InfeasibleError: none is within the slowdown limit.
    """
    best, least = max_slowdown, change(*plans.changes(plans.least_energy(max_slowdown)))
    fastest, _ = plans.changes(plans.least_time())
    for step in range(1, _SEARCHED):
        slowdown = max_slowdown + step / _SEARCHED * (fastest - max_slowdown)
        try:
            value = change(*plans.changes(plans.least_energy(slowdown)))
        except InfeasibleError:
            break  # of plans that must be sure, the fastest may not be
        if value < least:
            best, least = slowdown, value
    return best


_ENERGY, _TIME, _CARBON = _Energy(), _Time(), _Carbon()
KERNELS: dict[ObjectiveKind, PlanKind] = {
    "waste": _Waste(), "edp": _Edp(), "energy": _ENERGY, "time": _TIME, "carbon": _CARBON,
}  # fmt: skip
"""What plans of kernels may minimise, by its name in commands and files; plans of pipelines minimise ``waste``."""
JOBS: dict[JobObjectiveKind, JobKind] = {
    "weighted": _Weighted(),
    "energy": _ENERGY,
    "time": _TIME,
    "energy within a time": _EnergyWithinTime(),
    "time within a power": _TimeWithinPower(),
}
"""What a recurring job may minimise; which of them follows from its terms."""
CLUSTERS: dict[ClusterObjectiveKind, Kind] = {"energy": _ENERGY, "price": _Price(), "carbon": _CARBON}
"""What policies of a cluster may minimise, by its name in a scenario."""
