"""Energy of each rank's GPUs in an iteration, working and waiting, before and after."""

from __future__ import annotations

from typing import Any

from wastenot.pages.figure import Figure, inline, series_color, specification_of, tooltips
from wastenot.pages.formatting import percent, quantity
from wastenot.pages.optional_imports import load
from wastenot.pipelines.page.drawing import AFTER, AFTER_COLOR, BEFORE_COLOR, WIDE, about, before_text
from wastenot.pipelines.plan.overview import PipelineOverview

_HEIGHT, _BARS = 230, 0.38


def energy_figure(overview: PipelineOverview) -> Figure:
    """A pair of bars for each rank."""
    gpus = overview.plan.gpus_per_stage
    each = "one GPU per rank" if gpus == 1 else f"{gpus} GPUs per rank"
    note = (
        f"Energy of an iteration, {each}: left at the {before_text(overview.plan)}, right under the plan; the upper part of "
        "a bar is drawn while waiting."
    )
    return Figure("pipeline-energy", "Energy of each rank", about(overview), note, specification_of(_chart(overview)))


def _chart(overview: PipelineOverview) -> Any:
    alt = load("altair")
    before = before_text(overview.plan)
    names = [f"{before}, working", f"{before}, waiting", f"{AFTER}, working", f"{AFTER}, waiting"]
    colors = dict(zip(names, (BEFORE_COLOR, "#f0c078", AFTER_COLOR, "#a3c0f2"), strict=True))
    highest = float((overview.before.working_j + overview.before.waiting_j).max())
    factor, unit = (1e-3, "kJ") if highest >= 2e4 else (1.0, "J")
    rows: list[dict[str, object]] = []
    for place, (name, line) in enumerate(((before, overview.before), (AFTER, overview.after))):
        for rank, (working_j, waiting_j) in enumerate(zip(line.working_j.tolist(), line.waiting_j.tolist(), strict=True)):
            low = 0.0
            change = (working_j + waiting_j) / float(overview.before.working_j[rank] + overview.before.waiting_j[rank]) - 1.0
            for what, energy_j in (("working", working_j), ("waiting", waiting_j)):
                left = rank + 0.5 + (place - 1) * _BARS
                rows.append(
                    {
                        "series": f"{name}, {what}",
                        "rank": rank,
                        "x": round(left + 0.02, 4),
                        "x2": round(left + _BARS - 0.02, 4),
                        "y": round(factor * low, 6),
                        "y2": round(factor * (low + energy_j), 6),
                        "energy": quantity(energy_j, "J", 4),
                        "change": percent(change, 1, sign=True) if place else "–",
                    }
                )
                low += energy_j
    ranks = len(overview.plan.ranks)
    every = max(1, -(-ranks // 32))
    axis = alt.Axis(
        values=[rank + 0.5 for rank in range(0, ranks, every)], labelExpr="floor(datum.value)",
        ticks=False, grid=False, labelPadding=6,
    )  # fmt: skip
    shown = tooltips({"series:N": " ", "rank:Q": "rank", "energy:N": "energy", "change:N": "the rank's change"})
    return (
        alt.Chart(inline(rows))
        .mark_rect()
        .encode(
            x=alt.X("x:Q", title="rank", scale=alt.Scale(domain=[0, ranks], nice=False), axis=axis),
            x2=alt.X2("x2:Q"),
            y=alt.Y("y:Q", title=f"energy of an iteration, {unit}", scale=alt.Scale(zero=True, nice=True)),
            y2=alt.Y2("y2:Q"),
            color=series_color("series:N", colors, columnPadding=18, symbolSize=80),
            tooltip=shown,
        )
        .properties(width=WIDE, height=_HEIGHT)
    )
