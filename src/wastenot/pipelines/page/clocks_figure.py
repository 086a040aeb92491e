"""Which core clocks the plan gives the instructions of each stage."""

from __future__ import annotations

from typing import Any

from wastenot.pages.figure import Figure, inline, layered, specification_of, tooltips
from wastenot.pages.formatting import percent
from wastenot.pages.optional_imports import load
from wastenot.pipelines.model.schedule import NAMES
from wastenot.pipelines.page.drawing import WIDE, about, instruction_text, mhz_text
from wastenot.pipelines.page.schedule_figure import clock_color
from wastenot.pipelines.plan.overview import PipelineOverview

_TITLE = "Clocks of each stage"
_ROW, _MOST_HEIGHT = 26, 460


def clocks_figure(overview: PipelineOverview) -> Figure | None:
    """A dot for each stage and clock, as large as it is frequent, by instruction; ``None`` where there is but one clock."""
    known = [each for each in overview.clocks if each.core_mhz is not None]
    if len({each.core_mhz for each in known}) < 2:
        return None
    left = len(overview.clocks) - len(known)
    note = (
        "Each dot is a core clock of the plan; its area shows how many of the instruction's micro-batches run at "
        "it. The further left, the more time there is to spare."
    )
    if any(len(box.clocks) > 1 for box in overview.after.boxes):
        note += " Instructions that change clocks within themselves are at their mean over time."
    if left:
        note += " Grey, on the right: left to the GPU."
    return Figure("pipeline-clocks", _TITLE, about(overview), note, specification_of(_chart(overview)))


def _chart(overview: PipelineOverview) -> Any:
    alt = load("altair")
    known = [each for each in overview.clocks if each.core_mhz is not None]
    names = [name for name in NAMES if any(each.name == name for each in overview.clocks)]
    boxes = [box.core_mhz for line in (overview.before, overview.after) for box in line.boxes if box.core_mhz is not None]
    span = (min(boxes), max(boxes))
    room = 0.06 * (span[1] - span[0]) or 10.0
    auto = span[1] + 1.5 * room if len(known) < len(overview.clocks) else None
    scale = alt.Scale(domain=[span[0] - room, (auto or span[1]) + room], nice=False, zero=False)
    stages = overview.plan.stages
    height = int(max(min(_ROW * stages, _MOST_HEIGHT), 60))
    every = max(1, -(-stages * 12 // height))
    width = (WIDE - 24 * (len(names) - 1)) // len(names)
    panels = []
    for index, name in enumerate(names):
        rows = [
            {
                "x": round(each.core_mhz if each.core_mhz is not None else auto or 0.0, 1),
                "auto": each.core_mhz is None,
                "stage": each.stage,
                "share": each.times / each.of,
                "clock": mhz_text(each.core_mhz),
                "times": f"{each.times:,} of {each.of:,} ({percent(each.times / each.of, 1)})",
            }
            for each in overview.clocks
            if each.name == name
        ]
        axis = alt.Axis(
            values=list(range(0, stages, every)), labelExpr="'stage ' + datum.value", ticks=False, domain=False, grid=True,
            labels=not index, labelPadding=6,
        )  # fmt: skip
        title = {"text": instruction_text(name), "fontSize": 12, "fontWeight": "normal"}
        base = (
            alt.Chart(inline(rows))
            .encode(
                x=alt.X("x:Q", title="core clock, MHz", scale=scale,
                        axis=alt.Axis(tickCount=6, format=",.0f")),
                y=alt.Y("stage:Q", title=None, axis=axis, scale=alt.Scale(domain=[stages - 0.5, -0.5], nice=False)),
                size=alt.Size("share:Q", legend=None, scale=alt.Scale(type="linear", domain=[0, 1], range=[14, 330])),
                tooltip=tooltips({"stage:Q": "stage", "clock:N": "core clock", "times:N": "micro-batches"}),
            )
        )  # fmt: skip
        dots = base.transform_filter("!datum.auto").mark_circle(style="box", opacity=1, strokeWidth=0.6)
        color = clock_color(span, "x:Q")
        color.legend = None  # the axis says it
        layers = [dots.encode(color=color)]
        if auto is not None:
            layers.append(base.transform_filter("datum.auto").mark_circle(style="auto-box", opacity=1, strokeWidth=0.6))
            word = alt.Chart(inline([{"x": round(auto, 1)}])).mark_text(style="small-label", baseline="bottom", dy=-3)
            layers.append(word.encode(x=alt.X("x:Q", scale=scale), y=alt.YValue(0), text=alt.TextValue("auto")))
        panels.append(layered(*layers).properties(width=width, height=height, title=title))
    return alt.hconcat(*panels, spacing=24).resolve_scale(color="shared", size="shared")
