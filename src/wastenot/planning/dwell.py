"""How often a plan switches clocks in an iteration, and how long it stays at a setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from wastenot.core.documents import Positive, SparsePart
from wastenot.core.setting import Setting
from wastenot.frontiers.exact import exact_sum
from wastenot.workloads.order import shortest_stay, switches

if TYPE_CHECKING:
    from wastenot.planning.plan import Assignment


class Switches(SparsePart):
    """How often clocks change when iterations follow each other, and how long they stay between changes.

    Attributes:
        shortest_dwell_s: the shortest stay at a setting; ``None`` where nothing changes, or in files written before it
            was stated.
        shortest_dwell_unit: the unit that it begins with.
    """

    per_iteration: Annotated[int, Field(ge=0)]
    mean_dwell_s: Positive | None
    shortest_dwell_s: Positive | None = None
    shortest_dwell_unit: str | None = None


def unit_settings(assignments: Sequence[Assignment]) -> list[Setting]:
    """The setting of each kernel's unit.

    It is that of the kernel which runs longest in the unit: with a clock tolerance, kernels of a unit that were not measured
    at its setting are planned with one near it.
    """
    longest: dict[str, Assignment] = {}
    for row in assignments:
        other = longest.setdefault(row.unit, row)
        if row.count * row.time_s > other.count * other.time_s:
            longest[row.unit] = row
    return [longest[row.unit].setting for row in assignments]


def count_switches(assignments: Sequence[Assignment]) -> Switches:
    """How often the settings of an iteration change, and how long they stay between changes."""
    settings = unit_settings(assignments)
    shortest = shortest_stay(assignments, settings, [row.time_s for row in assignments])
    if shortest is None:
        return Switches(per_iteration=0, mean_dwell_s=None)
    changes = switches(assignments, settings)
    return Switches(
        per_iteration=changes,
        mean_dwell_s=float(exact_sum((row.count, row.time_s) for row in assignments)) / changes,
        shortest_dwell_s=shortest.seconds,
        shortest_dwell_unit=assignments[shortest.first].unit,
    )
