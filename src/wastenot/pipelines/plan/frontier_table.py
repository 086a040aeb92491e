"""The plans along a pipeline's frontier as a table."""

from __future__ import annotations

import csv
import io
from dataclasses import astuple, dataclass, fields

from wastenot.pipelines.plan.plan import PipelinePlan


@dataclass(frozen=True, slots=True)
class FrontierRow:
    """A plan of the frontier; energies are of all GPUs of one pipeline, changes from the baseline without a straggler."""

    within_s: float
    time_s: float
    energy_j: float
    lower_bound_j: float
    time_change: float
    energy_change: float
    gap: float


def frontier_rows(plan: PipelinePlan, *, for_stragglers: bool = False) -> tuple[FrontierRow, ...]:
    """The rungs of a plan, from the fastest to that of least energy; those that only stragglers make worth it, if asked."""
    return tuple(
        FrontierRow(
            rung.within_s,
            rung.time_s,
            rung.energy_j,
            rung.lower_bound_j,
            rung.time_s / plan.baseline.time_s - 1.0,
            rung.energy_j / plan.own_baseline_j - 1.0,
            (rung.energy_j - rung.lower_bound_j) / rung.energy_j,
        )
        for rung in plan.rungs
        if for_stragglers or not rung.stragglers_only
    )


def frontier_csv(plan: PipelinePlan) -> str:
    """The same as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in fields(FrontierRow))
    writer.writerows(map(astuple, frontier_rows(plan)))
    return text.getvalue()
