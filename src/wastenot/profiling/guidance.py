"""How many runs a kernel calls for, by its execution time: FinGraV's Table I, its step 1."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from wastenot.errors import CannotRunError

SHORTEST_UNIT_S = 25e-6
"""Under this a group of back-to-back executions is profiled as one unit; the table begins here."""

_MOST_IN_GROUP = 64


@dataclass(frozen=True, slots=True)
class Guidance:
    """What a profile calls for.

    Attributes:
        runs: of the burst.
        reading_each_s: stretch of an execution for which there should be one reading of interest (LOI).
        margin: width of a bin of execution times, as a share of the time.
    """

    runs: int
    reading_each_s: float
    margin: float

    def readings(self, unit_s: float) -> int:
        """Readings of interest that a unit of so long should have."""
        return max(1, math.ceil(unit_s / self.reading_each_s))


# (execution times below, what they call for); above a millisecond the table asks for a reading each 10 µs as well.
_TABLE = (
    (50e-6, Guidance(400, 5e-6, 0.05)),
    (200e-6, Guidance(200, 10e-6, 0.05)),
    (1e-3, Guidance(200, 10e-6, 0.02)),
    (math.inf, Guidance(200, 10e-6, 0.02)),
)


def guidance_for(unit_s: float, runs: int | None = None, margin: float | None = None) -> Guidance:
    """What a unit calls for.

    Args:
        unit_s: its time.
        runs: instead of the table's.
        margin: instead of the table's.
    """
    found = next(guidance for below_s, guidance in _TABLE if unit_s < below_s)
    return replace(found, runs=runs or found.runs, margin=margin or found.margin)


def executions_in_unit(execution_s: float, resolution_s: float) -> int:
    """Executions that make a unit which is long enough to be profiled.

    Args:
        execution_s: time of one.
        resolution_s: of the clock that executions are stamped by.

    Raises:
        CannotRunError: the kernel is too short for the clock.
    """
    longest_s = max(SHORTEST_UNIT_S, 20.0 * resolution_s)
    group = math.ceil(longest_s / execution_s * (1 - 1e-9)) if execution_s > 0.0 else _MOST_IN_GROUP + 1
    if group > _MOST_IN_GROUP:
        raise CannotRunError(
            f"an execution of {1e6 * execution_s:.3g} µs is too short for a clock that tells {1e6 * resolution_s:.3g} µs "
            f"apart: even {_MOST_IN_GROUP} in a row are less than {1e6 * longest_s:.3g} µs; profile a larger kernel"
        )
    return group
