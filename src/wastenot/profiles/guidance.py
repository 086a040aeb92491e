"""How many runs a kernel calls for, by its execution time: FinGraV's Table I, step 1."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from wastenot.core.errors import CannotRunError

SHORTEST_UNIT_S = 25e-6
"""Shorter executions are profiled in groups; the table begins here."""

_MAX_GROUP = 64


@dataclass(frozen=True, slots=True)
class Guidance:
    """What a profile calls for.

    Attributes:
        runs: of the burst.
        reading_each_s: part of an execution in which there should be one reading of interest (LOI).
        margin: width of a bin of execution times, as a fraction of the time.
    """

    runs: int
    reading_each_s: float
    margin: float

    def readings(self, unit_s: float) -> int:
        """Readings of interest that a unit of this time should have."""
        return max(1, math.ceil(unit_s / self.reading_each_s))


# (execution times below, guidance); above a millisecond the table, too, asks for a reading each 10 µs.
_TABLE = (
    (50e-6, Guidance(400, 5e-6, 0.05)),
    (200e-6, Guidance(200, 10e-6, 0.05)),
    (1e-3, Guidance(200, 10e-6, 0.02)),
    (math.inf, Guidance(200, 10e-6, 0.02)),
)


def guidance_for(unit_s: float, runs: int | None = None, margin: float | None = None) -> Guidance:
    """The table's guidance.

    Args:
        unit_s: time of a unit.
        runs: instead of the table's.
        margin: instead of the table's.
    """
    guidance = next(guidance for below_s, guidance in _TABLE if unit_s < below_s)
    return replace(guidance, runs=runs or guidance.runs, margin=margin or guidance.margin)


def executions_in_unit(execution_s: float, resolution_s: float) -> int:
    """Executions that together are long enough to be profiled as one unit.

    Args:
        execution_s: time of one.
        resolution_s: of the clock that gives executions their timestamps.

    Raises:
        CannotRunError: the kernel is too short for the clock.
    """
    least_s = max(SHORTEST_UNIT_S, 20.0 * resolution_s)
    group = math.ceil(least_s / execution_s * (1 - 1e-9)) if execution_s > 0.0 else _MAX_GROUP + 1
    if group > _MAX_GROUP:
        raise CannotRunError(
            f"an execution of {1e6 * execution_s:.3g} µs is too short for a clock with a resolution of "
            f"{1e6 * resolution_s:.3g} µs: even {_MAX_GROUP} in a row are less than {1e6 * least_s:.3g} µs; "
            "profile a larger kernel"
        )
    return group
