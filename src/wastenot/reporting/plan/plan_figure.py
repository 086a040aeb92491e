"""What all figures of a plan's report share."""

from __future__ import annotations

from typing import Any

from wastenot.planning.plan import Plan
from wastenot.reporting.figure import Figure, specification_of


def plan_figure(plan: Plan, name: str, title: str, note: str, chart: Any | None) -> Figure:
    """A figure of an Altair chart, or of none; the subtitle always says where the numbers come from."""
    subtitle = f"{plan.workload} on {plan.device} · {plan.origin} numbers"
    return Figure(name, title, subtitle, note, specification_of(chart))
