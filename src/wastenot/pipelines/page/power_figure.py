"""Power of all GPUs over an iteration, before and after: it falls where the bubbles were."""

from __future__ import annotations

from typing import Any

import numpy as np

from wastenot.pages.figure import Figure, inline, layered, series_color, specification_of, tooltips
from wastenot.pages.formatting import quantity
from wastenot.pages.optional_imports import load
from wastenot.pipelines.page.drawing import AFTER, AFTER_COLOR, BEFORE_COLOR, WIDE, TimeAxis, about, before_text
from wastenot.pipelines.plan.overview import PipelineOverview, TimeLine

_MOST_STEPS = 240  # above which power is averaged over equal parts of the iteration
_HEIGHT = 230


def power_figure(overview: PipelineOverview) -> Figure:
    """Power of all GPUs of the pipeline together."""
    axis = TimeAxis.of(overview)
    averaged = any(len(line.power_w) > _MOST_STEPS for line in (overview.before, overview.after))
    mean = f", averaged over {quantity(axis.end / axis.factor / _MOST_STEPS, 's', 2)}" if averaged else ""
    gpus = overview.plan.gpus
    note = (
        f"All {gpus} GPUs of a pipeline together{mean}: what instructions draw, and "
        f"{quantity(overview.plan.waiting_w, 'W', 3)} each while waiting. "
        "The area under a line is the energy of an iteration; between the lines, what is saved."
    )
    return Figure(
        "pipeline-power", "Power over an iteration", about(overview), note, specification_of(_chart(overview, axis))
    )


def _chart(overview: PipelineOverview, axis: TimeAxis) -> Any:
    alt = load("altair")
    before = before_text(overview.plan)
    colors = {before: BEFORE_COLOR, AFTER: AFTER_COLOR}
    highest = max(float(line.power_w.max()) for line in (overview.before, overview.after))
    factor, unit = (1e-3, "kW") if highest >= 2e3 else (1.0, "W")
    rows = [
        row
        for name, line in ((before, overview.before), (AFTER, overview.after))
        for row in _rows(name, line, axis, factor, unit)
    ]
    x = axis.x("x", (0.0, round(axis.end, 9)), ticks=10, labels=True)
    y = alt.Y("y:Q", title=f"power of all GPUs, {unit}", scale=alt.Scale(zero=True, nice=True), stack=None)
    color = series_color(
        "series:N", colors, symbolType="stroke", symbolStrokeWidth=2.5, symbolSize=300, symbolOpacity=1, columnPadding=22
    )
    base = alt.Chart(inline(rows)).encode(x=x, y=y, color=color)
    shown = tooltips({"series:N": " ", "power:N": "power", "x:Q": f"from, {axis.unit}"})
    below = base.transform_filter(alt.datum.series == AFTER)
    areas = below.mark_area(interpolate="step-after", opacity=0.15, line=False)
    lines = base.mark_line(interpolate="step-after", strokeWidth=1.7)
    targets = base.mark_point(opacity=0, size=60, filled=True).encode(tooltip=shown)
    layers = [areas, lines, targets]
    if overview.plan.until_s is not None:
        own = alt.Chart(inline([{"x": round(axis.factor * overview.plan.until_s, 6), "text": "straggler is done"}]))
        layers.append(own.mark_rule(style="rule").encode(x=x))
        layers.append(
            own.mark_text(style="small-label", align="right", baseline="top", dx=-4, dy=3)
            .encode(x=x, y=alt.YValue(0), text=alt.Text("text:N"))
        )  # fmt: skip
    return layered(*layers).properties(width=WIDE, height=_HEIGHT)


def _rows(name: str, line: TimeLine, axis: TimeAxis, factor: float, unit: str) -> list[dict[str, object]]:
    edges, power = line.edges_s, line.power_w
    if len(power) > _MOST_STEPS:
        edges = np.linspace(0.0, line.lasts_s, _MOST_STEPS + 1)
        power = line.mean_power_w(edges)
    ends = [*power.tolist(), float(power[-1])]  # the last step is drawn to its end
    return [
        {
            "series": name,
            "x": round(axis.factor * at_s, 6),
            "y": round(factor * watts, 5),
            "power": f"{factor * watts:,.4g} {unit}",
        }
        for at_s, watts in zip(edges.tolist(), ends, strict=True)
    ]
