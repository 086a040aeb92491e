"""What a plan minimises, and within which slowdown; :mod:`wastenot.planning.objective_kinds` has the list of objectives.

Objective("waste", 0.02).least(plans)  ->  plans.least_energy(0.02)      plans: a frontier, plans that are sure to
Objective("edp").least(plans)          ->  plans.least_edp(1.0, None)           keep a slowdown, schedules
Objective("time").least(plans)         ->  plans.least_time()
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from wastenot.core.errors import BadInputError
from wastenot.planning.objective_kinds import KERNELS, SCOPES, Found, ObjectiveKind, PlanKind, Plans, Scope

if TYPE_CHECKING:
    from wastenot.planning.carbon import CarbonIntensity

DEFAULT_CONFIDENCE = 0.95
"""Probability with which a plan keeps its slowdown, unless another is asked for."""


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
        if self.kind not in KERNELS:
            raise BadInputError(f"objective {self.kind!r}: choose one of {', '.join(KERNELS)}")
        if self.max_slowdown is None and self.rules.limit == "needed":
            object.__setattr__(self, "max_slowdown", 0.0)
        self._check_limit()
        for field in fields(self):
            owner = next((name for name, rules in KERNELS.items() if field.name in rules.parameters), self.kind)
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
    def rules(self) -> PlanKind:
        """The entry of the list of objectives."""
        return KERNELS[self.kind]

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


def asked_for(max_slowdown: float | None) -> str:
    """A slowdown limit as it was asked for, to begin an error's text with."""
    return "`max_slowdown`" if max_slowdown is None else f"`max_slowdown` {100.0 * max_slowdown:.6g}%"
