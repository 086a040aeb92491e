"""What all figures of a plan's report share: their frame, and one direction for time and energy.

Slowdown is drawn to the right and energy saved upward, in every figure.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

from wastenot.kernels.page.verdict import is_default
from wastenot.pages.figure import Figure, specification_of
from wastenot.planning.headline import LEVEL
from wastenot.planning.plan import Plan

WIDE = 935
"""Pixels of a panel that takes the whole width of a page."""

SLOWDOWN, SAVED = "slowdown, %", "energy saved, %"
REACH = NormalDist().inv_cdf(0.5 + 0.5 * LEVEL)
"""Standard errors from a value to the end of its 95 % interval."""


def plan_figure(plan: Plan, name: str, title: str, note: str, chart: Any | None) -> Figure:
    """A figure of an Altair chart, or of none; the subtitle always says where the numbers come from."""
    subtitle = f"{plan.workload} on {plan.device} · {plan.origin} numbers"
    return Figure(name, title, subtitle, note, specification_of(chart))


def if_instant(plan: Plan) -> str:
    """What is to be said of the plan itself where devices switch too slowly for it; nothing where it can be had today."""
    return "" if is_default(plan) or plan.today.whole else ", if switching were instant"


def slowdown(time_change: float) -> float:
    """Where a change of time is drawn."""
    return 100.0 * time_change


def saved(energy_change: float) -> float:
    """Where a change of energy is drawn."""
    return 0.0 - 100.0 * energy_change
