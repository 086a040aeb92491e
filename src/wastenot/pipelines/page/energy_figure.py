"""Energy of each rank's GPUs in an iteration, working and waiting, before and after, with the difference above."""

from __future__ import annotations

from typing import Any

from wastenot.pages.figure import Figure, inline, layered, series_color, specification_of, tooltips
from wastenot.pages.formatting import MINUS, SPACE, number, percent, quantity
from wastenot.pages.optional_imports import load
from wastenot.pipelines.page.drawing import AFTER, AFTER_COLOR, BEFORE_COLOR, WIDE, about, before_text, ranks_text
from wastenot.pipelines.plan.overview import PipelineOverview

_HEIGHT, _BARS = 230, 0.38
_MOST_NAMED = 12  # ranks, beyond which their differences would touch
_ROOM_ABOVE = 1.14  # of the highest bar, for its difference


def energy_figure(overview: PipelineOverview) -> Figure:
    """A pair of bars for each rank."""
    gpus = overview.plan.gpus_per_stage
    each = "one GPU per rank" if gpus == 1 else f"{gpus} GPUs per rank"
    note = (
        f"Energy of an iteration, {each}: left at the {before_text(overview.plan)}, right under the plan; the upper part of "
        f"a bar is drawn while waiting. {_unchanged_text(overview)}"
    ).rstrip()
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
    x = alt.X("x:Q", title="rank", scale=alt.Scale(domain=[0, ranks], nice=False), axis=axis)
    most = alt.Scale(domain=[0, factor * _ROOM_ABOVE * highest], nice=False)
    y = alt.Y("y:Q", title=f"energy of an iteration, {unit}", scale=most, axis=alt.Axis(tickCount=6))
    bars = alt.Chart(inline(rows)).mark_rect()
    color = series_color("series:N", colors, columnPadding=18, symbolSize=80)
    layers = [bars.encode(x=x, x2=alt.X2("x2:Q"), y=y, y2=alt.Y2("y2:Q"), color=color, tooltip=shown)]
    if ranks <= _MOST_NAMED:
        totals = [line.working_j + line.waiting_j for line in (overview.before, overview.after)]
        named = [
            {"x": rank + 0.5, "y": round(factor * max(was_j, is_j), 6), "text": _difference_text(is_j - was_j)}
            for rank, (was_j, is_j) in enumerate(zip(*(total.tolist() for total in totals), strict=True))
        ]
        texts = alt.Chart(inline(named)).mark_text(style="label", baseline="bottom", dy=-4, tooltip=None)
        layers.append(texts.encode(x=x, y=y, text=alt.Text("text:N")))
    return layered(*layers).properties(width=WIDE, height=_HEIGHT, title=_total_title(overview))


def _total_title(overview: PipelineOverview) -> dict[str, object]:
    """Both energies of the headline, and the difference between them."""
    was_j, is_j = overview.before.energy_j, overview.after.energy_j
    ends = f"{quantity(was_j, 'J', 4)} → {quantity(is_j, 'J', 4)}"
    change = percent(overview.plan.energy_change, 1, sign=True)
    text = f"all ranks: {ends}, {_difference_text(is_j - was_j)} ({change})"
    return {"text": text, "fontSize": 13, "fontWeight": "normal", "offset": 6}


def _difference_text(joules: float) -> str:
    if abs(joules) < 0.05:
        return f"±0{SPACE}J"
    shown = number(abs(joules), 2) if abs(joules) >= 1.0 else f"{abs(joules):.1f}"
    return f"{MINUS if joules < 0.0 else '+'}{shown}{SPACE}J"


def _unchanged_text(overview: PipelineOverview) -> str:
    """Why some ranks save nothing, where settings have to last as long as a switch takes."""
    pairs = zip(overview.before.working_j.tolist(), overview.after.working_j.tolist(), strict=True)
    left = [rank for rank, (was_j, is_j) in enumerate(pairs) if was_j == is_j]
    if overview.plan.switching is None or not left or len(left) == len(overview.plan.ranks):
        return ""
    keep = f"{ranks_text(left)} {'keeps' if len(left) == 1 else 'keep'}"
    return (
        f"{keep[0].upper()}{keep[1:]} the {before_text(overview.plan)}: a lower clock has to outlast the switches to and "
        "from it, and no stretch that long was found there that could be slower without delaying the iteration."
    )
