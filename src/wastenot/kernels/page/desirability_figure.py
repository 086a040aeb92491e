"""How desirable EDP and waste find a change of time and energy (paper, Fig. 2), with the plans on top."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from wastenot.kernels.page.plan_figure import SAVED, SLOWDOWN, plan_figure, saved, slowdown
from wastenot.kernels.page.tables import describe_objective
from wastenot.kernels.plan.overview import PlanOverview
from wastenot.pages.figure import Figure, inline, layered
from wastenot.pages.formatting import change
from wastenot.pages.optional_imports import load
from wastenot.planning.comparison import ComparisonRow

Desirability = Callable[[float, float], float | None]

_CELLS = 48  # of a map, each way
_OVERLAP = 1.15  # of a cell into the next, which hides the seams between them
_SIZE = 384
_LABEL_DISTANCE = 0.06  # of the reach: labels of plans closer than this would overlap
_LEAST_REACH, _MOST_REACH = 0.05, 0.60


def edp_desirability(time_change: float, energy_change: float) -> float:
    """The fraction by which E·T falls: EDP does not distinguish time from energy."""
    return 1.0 - (1.0 + time_change) * (1.0 + energy_change)


def waste_desirability(time_change: float, energy_change: float) -> float | None:
    """The fraction of energy saved; ``None`` if time is lost or energy added: strict waste rejects both (§3)."""
    return -energy_change if time_change <= 0.0 and energy_change <= 0.0 else None


def desirability_figure(overview: PlanOverview) -> Figure:
    """Two heat maps, each with a line of least energy for each slowdown and the objectives' plans."""
    each = ", with clocks for each kernel" if len(overview.kernels) > 1 else ""
    note = (
        "Colour is how each objective scores a change. EDP trades time for energy at a fixed rate, so it can accept a "
        "slower plan; waste counts only energy saved without loss of time and rejects everything else (blank). The line "
        f"is the most energy that can be saved at each slowdown{each}; the diamond is this plan."
    )
    title = "What EDP and waste optimise"
    return plan_figure(overview.plan, "desirability", title, note, _chart(overview))


def _chart(overview: PlanOverview) -> Any:
    alt = load("altair")
    rows = _plans(overview)
    headline = overview.plan.headline
    changes = [(headline.time_change, headline.energy_change)]
    changes += [
        (row.time_change, row.energy_change) for row in rows if row.time_change is not None and row.energy_change is not None
    ]
    reach = (_reach([time for time, _ in changes]), _reach([energy for _, energy in changes]))
    maps = [
        _map(overview, rows, "EDP", edp_desirability, _CELLS, reach, legend=False),
        _map(overview, rows, "Waste, strict", waste_desirability, 2, reach, legend=True),
    ]
    side_by_side = alt.hconcat(*maps, spacing=34)
    return side_by_side.resolve_scale(color="independent")


def _plans(overview: PlanOverview) -> list[ComparisonRow]:
    return [
        row
        for row in overview.comparison.rows
        if row.granularity == "kernel"
        and row.scope == "global"
        and row.time_change is not None
        and (row.objective.kind == "edp" or row.objective.max_slowdown == 0.0)
    ]


def _reach(changes: list[float]) -> float:
    """Half the width of a map, as a fraction, in steps of 5 %."""
    reach = 1.25 * max(abs(value) for value in changes)
    return min(_MOST_REACH, max(_LEAST_REACH, math.ceil(reach * 20) / 20))


def _map(
    overview: PlanOverview,
    rows: list[ComparisonRow],
    title: str,
    desirability: Desirability,
    columns: int,
    reach: tuple[float, float],
    *,
    legend: bool,
) -> Any:
    alt = load("altair")
    most = 100 * edp_desirability(-reach[0], -reach[1])
    scale = alt.Scale(domain=[-most, 0, most], range="diverging", interpolate="rgb", clamp=True)
    key = alt.Legend(gradientThickness=12, gradientLength=_SIZE - 80, format=".0f") if legend else None
    x = alt.X("x:Q", title=SLOWDOWN, scale=_scale(reach[0]))
    y = alt.Y("y:Q", title=SAVED, scale=_scale(reach[1]))
    color = alt.Color("score:Q", title="desirability, %", scale=scale, legend=key)
    field = (
        _opposite_corners(alt.Chart(inline(_cells(desirability, reach, columns=columns))), reach, columns)
        .mark_rect()
        .encode(x=x, x2=alt.X2("x2:Q"), y=y, y2=alt.Y2("y2:Q"), color=color)
    )
    labels = _rejected_labels(reach) if legend else []
    return layered(field, *labels, *_axes(), *_overlay(overview, rows, reach, x, y)).properties(
        width=_SIZE, height=_SIZE, title=alt.TitleParams(title, anchor="start", fontSize=13, offset=8)
    )


def _scale(reach: float) -> Any:
    return load("altair").Scale(domain=[-100 * reach, 100 * reach], nice=False)


def _cells(desirability: Desirability, reach: tuple[float, float], *, columns: int) -> list[dict[str, object]]:
    """The lower left corner of each cell, and the score at its centre; rejected cells are left out."""
    width, height = 2 * reach[0] / columns, 2 * reach[1] / _CELLS
    cells: list[dict[str, object]] = []
    for column in range(columns):
        for line in range(_CELLS):
            slower, kept = -reach[0] + column * width, -reach[1] + line * height
            score = desirability(slower + width / 2, -(kept + height / 2))
            if score is not None:
                cells.append({"x": round(100 * slower, 3), "y": round(100 * kept, 3), "score": round(100 * score, 2)})
    return cells


def _opposite_corners(chart: Any, reach: tuple[float, float], columns: int) -> Any:
    """Where each cell ends: a little over the next, and not over the edge of the map."""
    over = _OVERLAP if columns == _CELLS else 1.0  # two columns meet where what is rejected begins
    width, height = 200 * reach[0] / columns * over, 200 * reach[1] / _CELLS * _OVERLAP
    return chart.transform_calculate(
        x2=f"min(datum.x + {width:.4f}, {100 * reach[0]:.4f})", y2=f"min(datum.y + {height:.4f}, {100 * reach[1]:.4f})"
    )


def _rejected_labels(reach: tuple[float, float]) -> list[Any]:
    """Labels of the regions that strict waste rejects, which have no colour."""
    alt = load("altair")
    rows = [
        {"x": 50 * reach[0], "y": -50 * reach[1], "text": "rejected: loses time"},
        {"x": -50 * reach[0], "y": -50 * reach[1], "text": "rejected: adds energy"},
    ]
    return [
        alt.Chart(inline(rows))
        .mark_text(style="small-label")
        .encode(x=alt.X("x:Q"), y=alt.Y("y:Q"), text=alt.Text("text:N"))
    ]


def _axes() -> list[Any]:
    alt = load("altair")
    zero = alt.Chart(inline([{"zero": 0.0}]))
    return [zero.mark_rule(style="rule").encode(x=alt.X("zero:Q")), zero.mark_rule(style="rule").encode(y=alt.Y("zero:Q"))]


def _overlay(overview: PlanOverview, rows: list[ComparisonRow], reach: tuple[float, float], x: Any, y: Any) -> list[Any]:
    """The line of least energy, the plans of the objectives, and this plan."""
    alt = load("altair")
    curve = next((curve.points for curve in overview.curves if curve.granularity == "kernel"), ())
    line = alt.Chart(inline([_at(point.time_change, point.energy_change) for point in curve])).mark_line(
        style="curve", clip=True, interpolate="step-after"
    )
    dots = alt.Chart(inline(_dots(rows, reach)))
    plan = overview.plan.headline
    diamond = alt.Chart(inline([_at(plan.time_change, plan.energy_change) | {"who": "this plan"}]))
    tooltip = [alt.Tooltip("who:N", title="plan"), alt.Tooltip("time:N"), alt.Tooltip("energy:N")]
    return [
        line.encode(x=x, y=y, order=alt.Order("x:Q")),
        dots.mark_point(style="dot", clip=True).encode(x=x, y=y, tooltip=tooltip),
        diamond.mark_point(style="plan", clip=True).encode(x=x, y=y, tooltip=tooltip),
        dots.mark_text(style="label", align="left", dx=8, dy=13, clip=True).encode(x=x, y=y, text=alt.Text("who:N")),
    ]


def _dots(rows: list[ComparisonRow], reach: tuple[float, float]) -> list[dict[str, object]]:
    """The objectives' plans; those that would overlap share one dot with both names."""
    dots: list[dict[str, object]] = []
    taken: list[tuple[float, float]] = []
    for row in rows:
        if row.time_change is None or row.energy_change is None:
            continue
        who = describe_objective(row.objective)
        for dot, (time_change, energy_change) in zip(dots, taken, strict=True):
            near_x = abs(row.time_change - time_change) < _LABEL_DISTANCE * reach[0]
            if near_x and abs(row.energy_change - energy_change) < _LABEL_DISTANCE * reach[1]:
                dot["who"] = f"{dot['who']} and {who}"
                break
        else:
            dots.append(_at(row.time_change, row.energy_change) | {"who": who})
            taken.append((row.time_change, row.energy_change))
    return dots


def _at(time_change: float, energy_change: float) -> dict[str, object]:
    texts = {"time": change(time_change), "energy": change(energy_change)}
    return {"x": slowdown(time_change), "y": saved(energy_change), **texts}
