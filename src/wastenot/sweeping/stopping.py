"""When a measurement has gone on for long enough: small objects behind one method, which say why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a measurement is.

    Attributes:
        seconds: since it began.
        relative_error: standard error of the energy of a call as a share of it; inf while unknown.
    """

    seconds: float
    relative_error: float


class StoppingCriterion(Protocol):
    """Decides whether to stop."""

    def reason(self, progress: Progress) -> str | None:
        """Why to stop now, or ``None`` to go on."""
        ...


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """Stop after a time."""

    seconds: float

    def reason(self, progress: Progress) -> str | None:
        """Why to stop now."""
        return f"time limit of {self.seconds:g} s" if progress.seconds >= self.seconds else None


@dataclass(frozen=True, slots=True)
class RelativeErrorReached:
    """Stop once the standard error is small enough, but not before a least time."""

    share: float
    least_s: float = 1.0

    def reason(self, progress: Progress) -> str | None:
        """Why to stop now."""
        if progress.seconds < self.least_s or progress.relative_error > self.share:
            return None
        return f"relative error of {self.share:.2%} reached"


def first_reason(criteria: tuple[StoppingCriterion, ...], progress: Progress) -> str | None:
    """The reason of the first criterion that has one."""
    return next((reason for criterion in criteria if (reason := criterion.reason(progress))), None)
