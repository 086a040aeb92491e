"""What would be saved in other shapes: by number of micro-batches, of stages, and by imbalance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wastenot.core.wording import counted
from wastenot.pages.figure import Figure, inline, layered, specification_of, tooltips
from wastenot.pages.formatting import percent
from wastenot.pages.optional_imports import load
from wastenot.pipelines.page.drawing import AFTER_COLOR, WIDE, about, before_text
from wastenot.pipelines.plan.overview import PipelineOverview
from wastenot.pipelines.plan.savings import Saving

_TITLE = "Savings in other shapes"
_HEIGHT, _GAP = 190, 30
_FEWEST = 3  # points that make a line


def savings_figure(overview: PipelineOverview) -> Figure | None:
    """A panel for each thing that is varied; ``None`` where it was not looked at."""
    savings = overview.savings
    if savings is None or not (savings.micro_batches or savings.stages or savings.imbalance):
        return None
    at = counted(savings.at_micro_batches, "micro-batch")
    note = (
        f"Energy saved without any slowdown against the {before_text(overview.plan)}, a forecast for instant switching "
        "without measurement errors; diamond: this pipeline."
    )
    if len(savings.stages) >= _FEWEST:
        note += f" Fewer stages: neighbours merged, {at}."
    if savings.imbalance:
        note += f" Last stage: all others equal, {at}."
    return Figure("pipeline-savings", _TITLE, about(overview), note, specification_of(_chart(overview)))


def _chart(overview: PipelineOverview) -> Any:
    alt = load("altair")
    savings = overview.savings
    assert savings is not None
    panels: list[tuple[str, Sequence[Saving], bool]] = [
        ("micro-batches", savings.micro_batches, False),
        ("stages", savings.stages, False),
        ("last stage longer than the mean", savings.imbalance, True),
    ]
    panels = [each for each in panels if len(each[1]) >= _FEWEST] or [each for each in panels if each[1]]
    every = [each.saved for _, points, _ in panels for each in points]
    domain = [min(0.0, 100.0 * min(every)), 100.0 * max(every) * 1.1 or 1.0]
    width = (WIDE - 50 - _GAP * (len(panels) - 1)) // len(panels)
    drawn = [
        _panel(title, points, domain, relative=relative, first=not index).properties(width=width, height=_HEIGHT)
        for index, (title, points, relative) in enumerate(panels)
    ]
    return alt.hconcat(*drawn, spacing=_GAP)


def _panel(title: str, points: Sequence[Saving], domain: list[float], *, relative: bool, first: bool) -> Any:
    alt = load("altair")
    rows = [
        {
            "x": f"+{100.0 * each.value:.0f} %" if relative else f"{each.value:g}",
            "y": round(100.0 * each.saved, 4),
            "own": each.own,
            "saved": percent(each.saved, 1),
        }
        for each in points
    ]
    x = alt.X("x:N", title=title, sort=None, scale=alt.Scale(type="point", padding=0.4), axis=alt.Axis(labelAngle=0))
    y = alt.Y("y:Q", title="energy saved, %" if first else None, scale=alt.Scale(domain=domain, nice=True))
    tip = tooltips({"x:N": title, "saved:N": "energy saved"})
    base = alt.Chart(inline(rows)).encode(x=x, y=y)
    own = base.transform_filter("datum.own").mark_point(style="plan").encode(tooltip=tip)
    layers = [
        base.mark_line(color=AFTER_COLOR, strokeWidth=1.8),
        base.mark_circle(color=AFTER_COLOR, size=45, opacity=1).encode(tooltip=tip),
    ]
    return layered(*layers, *([own] if any(each.own for each in points) else []))
