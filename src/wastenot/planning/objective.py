"""What a plan minimises, and how finely it may choose."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from wastenot.core.errors import BadInputError

ObjectiveKind = Literal["waste", "edp", "energy", "time"]
Scope = Literal["global", "local"]

OBJECTIVES: tuple[ObjectiveKind, ...] = get_args(ObjectiveKind)
SCOPES: tuple[Scope, ...] = get_args(Scope)
DEFAULT_CONFIDENCE = 0.95
"""Probability with which a plan keeps its slowdown, unless another is asked for."""


@dataclass(frozen=True, slots=True)
class Objective:
    """What is minimised, and the slowdown that is allowed.

    Attributes:
        kind: ``waste``, least energy within a slowdown; ``edp``, least energy times time to the ``edp_exponent``;
            ``energy`` or ``time``, the least of that, whatever the other becomes.
        max_slowdown: bound on T/T_auto − 1, above −1; negative asks for a speed-up. For ``waste`` 0 unless given
            (the paper's strict variant, §3), for ``edp`` no bound unless given.
        edp_exponent: α of E·T^α, at least 0.
        confidence: probability with which the true slowdown is to be within the bound, above 0.5 and below 1;
            ``DEFAULT_CONFIDENCE`` unless given, where the study knows how noisy it is.
        as_measured: take the study's numbers as they are, lucky ones included.

    Raises:
        BadInputError: a value is out of range, or given for an objective that does not use it.
    """

    kind: ObjectiveKind = "waste"
    max_slowdown: float | None = None
    edp_exponent: float = 1.0
    confidence: float | None = None
    as_measured: bool = False

    def __post_init__(self) -> None:
        if self.kind not in OBJECTIVES:
            raise BadInputError(f"objective {self.kind!r}: choose one of {', '.join(OBJECTIVES)}")
        if self.max_slowdown is None and self.kind == "waste":
            object.__setattr__(self, "max_slowdown", 0.0)
        bound = self.max_slowdown
        if bound is not None:
            if self.kind in ("energy", "time"):
                raise BadInputError(
                    f"`max_slowdown`: does not go with objective {self.kind}; use waste for the least "
                    "energy within a slowdown"
                )
            if not (math.isfinite(bound) and bound > -1.0):
                raise BadInputError(f"`max_slowdown` {bound}: must be a number above -1, such as 0.02 for 2 %")
        if not (math.isfinite(self.edp_exponent) and self.edp_exponent >= 0.0):
            raise BadInputError(f"`edp_exponent` {self.edp_exponent}: must be a number of at least 0")
        if self.edp_exponent != 1.0 and self.kind != "edp":
            raise BadInputError(f"`edp_exponent`: goes with objective edp only, not {self.kind}")
        if self.confidence is not None:
            if self.as_measured:
                raise BadInputError("`confidence`: numbers as measured promise nothing; leave out `as_measured`")
            if not 0.5 < self.confidence < 1.0:
                raise BadInputError(f"`confidence` {self.confidence}: must be a number above 0.5 and below 1, such as 0.95")
            if bound is None:
                raise BadInputError(f"`confidence`: objective {self.kind} has no slowdown to keep; give `max_slowdown`")

    def __str__(self) -> str:
        slowdown = "" if self.max_slowdown is None else f" within {self.max_slowdown:+.3%} time"
        slowdown += "" if self.confidence is None else f" with {self.confidence:.4g} confidence"
        slowdown += ", as measured" if self.as_measured else ""
        match self.kind:
            case "waste":
                return f"least energy{slowdown}"
            case "edp":
                power = "" if self.edp_exponent == 1.0 else f"^{self.edp_exponent:g}"
                return f"least energy × time{power}{slowdown}"
            case _:
                return f"least {self.kind}"


def asked_for(max_slowdown: float | None) -> str:
    """A slowdown limit as it was asked for, to begin an error's text with."""
    return "`max_slowdown`" if max_slowdown is None else f"`max_slowdown` {100.0 * max_slowdown:.6g}%"
