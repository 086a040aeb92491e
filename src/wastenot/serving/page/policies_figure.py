"""Policies as points: energy of a token against the share of requests that keep their deadlines."""

from __future__ import annotations

from typing import Any

from wastenot.pages.figure import Figure, inline, layered, series_color, specification_of, tooltips
from wastenot.pages.formatting import percent, quantity
from wastenot.pages.optional_imports import load
from wastenot.pages.theme import CATEGORIES
from wastenot.serving.model.steering import Steering
from wastenot.serving.page.steer_words import about

_WIDE, _HEIGHT = 915, 300


def policy_colors(found: Steering) -> dict[str, str]:
    """A colour for each policy, the same in all figures."""
    return {run.result.policy: CATEGORIES[index % len(CATEGORIES)] for index, run in enumerate(found.runs)}


def policies_figure(found: Steering) -> Figure:
    """A point for each policy."""
    note = (
        f"Down is less energy, right is more requests in time; the line is at the {percent(found.share, 0)} that are asked "
        "for. Left of it a policy pays with its readers' time."
    )
    return Figure("serving-policies", "Energy and deadlines by policy", about(found), note, specification_of(_chart(found)))


def _chart(found: Steering) -> Any:
    alt = load("altair")
    rows: list[dict[str, object]] = [
        {
            "policy": run.result.policy,
            "late": 1.0 - run.result.attainment,
            "kept": 100.0 * run.result.attainment,
            "energy": run.result.energy_per_token_j,
            "in_time": percent(run.result.attainment, 2),
            "per_token": quantity(run.result.energy_per_token_j, "J", 4),
            "saved": percent(found.saved(run), 1),
        }
        for run in found.runs
    ]
    low = min(100.0 * found.share, *(100.0 * run.result.attainment for run in found.runs))
    energies = [run.result.energy_per_token_j for run in found.runs]
    spread = (max(energies) - min(energies)) or 0.1 * max(energies)
    x = alt.X(
        "kept:Q",
        title="requests in time, %",
        scale=alt.Scale(
            domain=[max(low - 0.08 * (100.0 - low) - 0.05, 0.0), 100.0 + 0.04 * (100.0 - low) + 0.05], nice=False
        ),
        axis=alt.Axis(tickCount=8),
    )
    y = alt.Y(
        "energy:Q",
        title="energy of a token, J",
        scale=alt.Scale(domain=[min(energies) - 0.12 * spread, max(energies) + 0.12 * spread], nice=False, zero=False),
    )
    color = series_color("policy:N", policy_colors(found), symbolSize=90, labelLimit=300)
    tip = tooltips({"policy:N": "policy", "in_time:N": "in time", "per_token:N": "energy of a token", "saved:N": "saved"})
    asked = alt.Chart(inline([{"kept": 100.0 * found.share}])).mark_rule(style="rule").encode(x=x)
    points = alt.Chart(inline(rows)).mark_circle(size=150, opacity=0.9).encode(x=x, y=y, color=color, tooltip=tip)
    return layered(asked, points).properties(width=_WIDE, height=_HEIGHT)
