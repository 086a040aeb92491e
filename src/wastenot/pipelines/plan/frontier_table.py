"""The plans along a pipeline's frontier as a table."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import Final

from wastenot.pipelines.plan.plan import PipelinePlan

COLUMNS: Final = ("within_s", "time_s", "energy_j", "lower_bound_j", "time_change", "energy_change", "gap")


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


def frontier_rows(plan: PipelinePlan) -> tuple[FrontierRow, ...]:
    """The rungs of a plan, from the fastest to that of least energy."""
    waited_s = max((plan.until_s or 0.0) - plan.baseline.time_s, 0.0)
    baseline_j = plan.baseline.energy_j - plan.waiting_w * plan.gpus * waited_s
    return tuple(
        FrontierRow(
            rung.within_s,
            rung.time_s,
            rung.energy_j,
            rung.lower_bound_j,
            rung.time_s / plan.baseline.time_s - 1.0,
            rung.energy_j / baseline_j - 1.0,
            (rung.energy_j - rung.lower_bound_j) / rung.energy_j,
        )
        for rung in plan.rungs
        if not rung.stragglers_only
    )


def frontier_csv(plan: PipelinePlan) -> str:
    """The same as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([getattr(row, name) for name in COLUMNS] for row in frontier_rows(plan))
    return text.getvalue()
