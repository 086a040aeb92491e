"""What in a plan follows from the rest of it, by which an edit is noticed and its field named."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from wastenot.frontiers.exact import exact_sum

if TYPE_CHECKING:
    from wastenot.planning.plan import Plan


def recomputed(plan: Plan) -> Iterable[tuple[tuple[int | str, ...], float, float]]:
    """Fields of a plan that follow from others: (field, as stated, as it should be)."""
    base, found = plan.baseline, plan.predicted
    for index, row in enumerate(plan.assignments):
        if row.time_change <= -1.0 or row.energy_change <= -1.0:
            yield ("assignments", index, "time_change"), row.time_change, 0.0
            return
    rows = plan.assignments
    yield ("predicted", "time_s"), found.time_s, float(exact_sum((row.count, row.time_s) for row in rows))
    yield (
        ("predicted", "energy_j"),
        found.energy_j,
        float(exact_sum((row.count, row.energy_j) for row in rows)),
    )
    yield ("predicted", "time_change"), found.time_change, found.time_s / base.time_s - 1
    yield ("predicted", "energy_change"), found.energy_change, found.energy_j / base.energy_j - 1
    yield (
        ("baseline", "time_s"),
        base.time_s,
        math.fsum(row.count * row.time_s / (1 + row.time_change) for row in rows),
    )
    yield (
        ("baseline", "energy_j"),
        base.energy_j,
        math.fsum(row.count * row.energy_j / (1 + row.energy_change) for row in rows),
    )
    yield ("fastest", "time_change"), plan.fastest.time_change, plan.fastest.time_s / base.time_s - 1
    yield ("waste", "share"), plan.waste.share, plan.waste.joules / base.energy_j
    energy_j = found.energy_j
    expected = plan.expected
    if expected is not None:
        energy_j = energy_j if plan.objective.confidence is None else expected.energy_j
        for name, (low, high), middle in (
            ("time_change_interval", expected.time_change_interval, expected.time_change),
            ("energy_change_interval", expected.energy_change_interval, expected.energy_change),
        ):
            yield ("expected", name), 0.5 * (low + high), middle
    yield (
        ("certificate", "gap"),
        plan.certificate.gap,
        (energy_j - plan.certificate.lower_bound_j) / energy_j,
    )
    if plan.validation is not None:
        yield ("validation", "pairs"), plan.validation.pairs, plan.validation.repeats**2
