"""What a plan minimises, and how finely it may choose.

:data:`KINDS` is the list of objectives. Each says how it is called, whether it keeps a slowdown, and what it asks of
whatever a plan is chosen from; nothing else asks which objective it has before it.

    Objective("waste", 0.02).least(plans)  ->  plans.least_energy(0.02)      plans: a frontier, plans that are sure to
    Objective("edp").least(plans)          ->  plans.least_edp(1.0, None)           keep a slowdown, schedules
    Objective("time").least(plans)         ->  plans.least_time()
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar, get_args

from wastenot.core.errors import BadInputError, InfeasibleError

if TYPE_CHECKING:
    from wastenot.planning.carbon import CarbonIntensity

ObjectiveKind = Literal["waste", "edp", "energy", "time", "carbon"]
Scope = Literal["global", "local"]

OBJECTIVES: tuple[ObjectiveKind, ...] = get_args(ObjectiveKind)
SCOPES: tuple[Scope, ...] = get_args(Scope)
DEFAULT_CONFIDENCE = 0.95
"""Probability with which a plan keeps its slowdown, unless another is asked for."""
_DEAR = 1e3  # times the mean power: a second at that price is worth any energy
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


class Kind(Protocol):
    """One objective: a line of :data:`KINDS`.

    Attributes:
        label: how tables call it.
        quantity: what is to be least, in words.
        help: what it asks for, as ``--objective`` explains it.
        limit: whether it keeps a slowdown: ``needed`` (0 unless given, and then the default clocks stay where nothing does
            better), ``optional`` (none unless given), or ``none``.
        saves: what its plans are known for saving.
        parameters: options that only this one has, fields of :class:`Objective` among them.
        scopes: that it goes with.
    """

    label: str
    quantity: str
    help: str
    limit: Literal["needed", "optional", "none"]
    saves: Literal["energy", "time"] = "energy"
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


class _Waste(Kind):
    label, quantity, limit = "waste", "energy", "needed"
    help = "lowest energy within the slowdown limit"

    def least(self, goal: Objective, plans: Plans[Found]) -> Found:
        return plans.least_energy(goal.max_slowdown)


class _Edp(Kind):
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


class _Energy(Kind):
    label, quantity, limit = "energy", "energy", "none"
    help = "lowest energy, whatever the time"

    def least(self, goal: Objective, plans: Plans[Found]) -> Found:
        return plans.least_energy(None)


class _Time(Kind):
    label, quantity, limit = "time", "time", "none"
    help = "shortest time, whatever the energy"
    saves = "time"

    def least(self, goal: Objective, plans: Plans[Found]) -> Found:
        return plans.least_time()

    def change(self, goal: Objective, time_change: float, energy_change: float) -> float:
        return time_change

    def price_w(self, goal: Objective, time_s: float, energy_j: float) -> float:
        return _DEAR * energy_j / time_s


class _Carbon(Kind):
    """Of plans that are equally fast the one of least energy emits least; so :func:`search` finds it."""

    label, quantity, limit = "carbon", "carbon", "needed"
    help = "lowest carbon emissions within the slowdown limit"
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


KINDS: dict[ObjectiveKind, Kind] = {
    "waste": _Waste(), "edp": _Edp(), "energy": _Energy(), "time": _Time(), "carbon": _Carbon(),
}  # fmt: skip
"""Every objective, by its name."""


@dataclass(frozen=True, slots=True)
class Objective:
    """What is minimised, and the slowdown limit.

    Attributes:
        kind: ``waste``, least energy within a slowdown; ``edp``, least energy times time to the ``edp_exponent``;
            ``energy`` or ``time``, the least of that, whatever the other becomes; ``carbon``, least emissions within a
            slowdown (:mod:`wastenot.planning.carbon` has the formula).
        max_slowdown: bound on T/T_auto − 1, above −1; negative asks for a speed-up. For ``waste`` and ``carbon`` 0 unless
            given (the paper's strict variant, §3), for ``edp`` no bound unless given.
        edp_exponent: α of E·T^α, at least 0.
        confidence: probability with which the true slowdown is to be within the bound, above 0.5 and below 1;
            ``DEFAULT_CONFIDENCE`` unless given, where the study knows how noisy it is.
        as_measured: use the study's numbers as measured, favourable errors included.
        carbon_g_per_kwh: for ``carbon``, of the grid: see :func:`wastenot.planning.carbon.carbon_intensity`.

    Raises:
        BadInputError: a value is out of range, or given for an objective that does not use it.
    """

    kind: ObjectiveKind = "waste"
    max_slowdown: float | None = None
    edp_exponent: float = 1.0
    confidence: float | None = None
    as_measured: bool = False
    carbon_g_per_kwh: CarbonIntensity | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInputError(f"objective {self.kind!r}: choose one of {', '.join(KINDS)}")
        if self.max_slowdown is None and self.rules.limit == "needed":
            object.__setattr__(self, "max_slowdown", 0.0)
        self._check_limit()
        for field in fields(self):
            owner = next((name for name, rules in KINDS.items() if field.name in rules.parameters), self.kind)
            if owner != self.kind and getattr(self, field.name) != field.default:
                raise BadInputError(f"`{field.name}`: is only for objective {owner}, not {self.kind}")
        self.rules.check(self)

    def _check_limit(self) -> None:
        bound = self.max_slowdown
        if bound is not None:
            if self.rules.limit == "none":
                raise BadInputError(
                    f"`max_slowdown`: cannot be used with objective {self.kind}; use waste for the "
                    "lowest energy within a slowdown limit"
                )
            if not (math.isfinite(bound) and bound > -1.0):
                raise BadInputError(f"`max_slowdown` {bound}: must be a number above -1, such as 0.02 for 2 %")
        if self.confidence is not None:
            if self.as_measured:
                raise BadInputError("`confidence`: numbers as measured promise nothing; leave out `as_measured`")
            if not 0.5 < self.confidence < 1.0:
                raise BadInputError(f"`confidence` {self.confidence}: must be a number above 0.5 and below 1, such as 0.95")
            if bound is None:
                raise BadInputError(f"`confidence`: objective {self.kind} has no slowdown limit; give `max_slowdown`")

    @property
    def rules(self) -> Kind:
        """The line of :data:`KINDS`."""
        return KINDS[self.kind]

    def check_scope(self, scope: Scope) -> None:
        """Refuse a scope that there is not, with :class:`BadInputError`."""
        if scope not in self.rules.scopes:
            of = "" if scope not in SCOPES else f" with objective {self.kind}"
            raise BadInputError(f"scope {scope!r}{of}: choose one of {', '.join(self.rules.scopes)}")

    def least(self, plans: Plans[Found]) -> Found:
        """The best of some plans; raises :class:`InfeasibleError` where none is within the slowdown limit."""
        return self.rules.least(self, plans)

    def refuses(self, time_change: float, energy_change: float) -> bool:
        """Whether the default clocks, which are within the slowdown limit anyway, do better than a plan of such changes."""
        keeps = self.rules.limit == "needed" and self.max_slowdown is not None and self.max_slowdown >= 0.0
        return keeps and self.rules.change(self, time_change, energy_change) > 0.0

    def __str__(self) -> str:
        slowdown = "" if self.max_slowdown is None else f" within {self.max_slowdown:+.3%} time"
        slowdown += "" if self.confidence is None else f" with {self.confidence:.4g} confidence"
        slowdown += ", as measured" if self.as_measured and self.rules.limit != "none" else ""
        return f"least {self.rules.words(self)}{slowdown}"


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


def asked_for(max_slowdown: float | None) -> str:
    """A slowdown limit as it was asked for, to begin an error's text with."""
    return "`max_slowdown`" if max_slowdown is None else f"`max_slowdown` {100.0 * max_slowdown:.6g}%"
