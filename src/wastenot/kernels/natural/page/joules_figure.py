"""Where the joules of an iteration go, and which of them a plan of caps would save."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wastenot.core.setting import format_mhz
from wastenot.core.wording import counted
from wastenot.kernels.natural.overview import NaturalOverview
from wastenot.kernels.natural.page.curve_figures import subtitle
from wastenot.pages.figure import (
    Figure,
    inline,
    layered,
    name_axis,
    series_color,
    specification_of,
    tooltips,
)
from wastenot.pages.formatting import change, fraction_of_whole, percent, quantity, shortened
from wastenot.pages.optional_imports import load

_MOST_BARS = 40
_NAME_WIDTH, _WIDTH, _STEP = 250, 560, 19
_KEPT, _SAVED = "used with the plan", "saved by it"
_COLORS = {_KEPT: "#2f6fde", _SAVED: "#0f9b8e"}


def joules_figure(overview: NaturalOverview) -> Figure:
    """A bar for each kernel: the energy of all its calls in an iteration, and what the plan of caps saves of it."""
    plan = overview.plan
    lines = []
    for row in plan.assignments:
        used = row.count * row.energy_j
        lines.append((row.kernel, used / (1.0 + row.energy_change), used, row.core_mhz, row.energy_change, row.time_change))
    lines.sort(key=lambda line: -line[1])
    rest = lines[_MOST_BARS:]
    if rest:
        before, used = sum(line[1] for line in rest), sum(line[2] for line in rest)
        lines = [*lines[:_MOST_BARS], (counted(len(rest), "other kernel"), before, used, None, used / before - 1.0, 0.0)]
    whole = sum(line[1] for line in lines)
    values: list[dict[str, object]] = []
    for index, (name, before, used, mhz, energy, time) in enumerate(lines):
        tip = {
            "index": index,
            "kernel": name,
            "cap": "none" if mhz is None else f"{format_mhz(mhz)} MHz",
            "tip": f"{quantity(before, 'J')} → {quantity(used, 'J')} ({change(energy, 1)}), time {change(time, 1)}",
        }
        text = f"{fraction_of_whole(before / whole)}" + ("" if mhz is None else f", cap {mhz:.0f} MHz: {change(energy, 1)}")
        short = text.replace("cap ", "")
        kept = {"part": _KEPT, "order": 0, "joules": min(used, before), "end": before, "text": text, "short": short}
        saved = {"part": _SAVED, "order": 1, "joules": max(0.0, before - used), "end": before, "text": "", "short": ""}
        values += [{**tip, **kept}, {**tip, **saved}]
    allowed = plan.objective.max_slowdown or 0.0
    note = (
        "All calls of each kernel in one iteration at the default clocks, kernel by kernel, and what caps within the clocks "
        f"seen would save at {percent(allowed, 0)} slowdown: a plan, no clock was set. Beside each bar: its share of the "
        "energy, its cap, and what that changes."
    )
    names = [shortened(line[0], 36) for line in lines]
    return Figure(
        "natural-joules",
        "Where the joules go",
        subtitle(overview),
        note,
        specification_of(_chart(values, names, lines[0][1])),
    )


def _chart(values: Sequence[dict[str, object]], names: Sequence[str], largest_j: float) -> Any:
    """A bar for each kernel, with its name and text beside it."""
    alt = load("altair")
    y = alt.Y("index:O", title=None, axis=name_axis(names, _NAME_WIDTH))
    scale = alt.Scale(domain=[0.0, 1.55 * largest_j], nice=False)
    chart = alt.Chart(inline(values))
    bars = chart.mark_bar(height=12).encode(
        x=alt.X("joules:Q", title="energy of one iteration, J", scale=scale, stack="zero", axis=alt.Axis(tickCount=6)),
        y=y,
        color=series_color("part:N", _COLORS),
        order=alt.Order("order:Q"),
        tooltip=tooltips({"kernel:N": "kernel", "cap:N": "cap", "tip:N": "energy"}),
    )
    text = chart.mark_text(style="small-label", align="left", dx=5)
    text = text.encode(x=alt.X("end:Q", scale=scale), y=y, text=alt.Text("text:N"))
    return layered(bars, text).properties(width=_WIDTH, height=alt.Step(_STEP))
