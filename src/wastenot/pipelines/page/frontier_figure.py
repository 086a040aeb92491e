"""Time and energy of an iteration: the frontier with its lower bound, the default clocks, the plan, and stragglers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wastenot.pages.figure import Figure, beside, inline, layered, series_color, specification_of, tooltips, words
from wastenot.pages.formatting import percent, quantity
from wastenot.pages.optional_imports import load
from wastenot.pipelines.page.drawing import AFTER, AFTER_COLOR, BEFORE_COLOR, BOUND_COLOR, WIDE, TimeAxis, about, before_text
from wastenot.pipelines.plan.overview import PipelineOverview

_TITLE = "Time and energy of an iteration"
_HEIGHT = 330
_OTHERS = ("#b04bb8", "#7a8699", "#8a9a00")
_FURTHEST = 1.55  # of the own time: beyond, plans are for stragglers that there hardly are
_MOST_DOTS = 60
_BELOW_CURVE = 22  # pixels from squares to the middle of their labels, clear of the curve and its bound
_NEAR = 0.08  # relative to the plan's own time, where labels would touch
_FRONTIER, _BOUND = "plans", "lower bound"


def frontier_figure(overview: PipelineOverview) -> Figure:
    """Plans at other deadlines, what none can go below, and where this one is."""
    plan = overview.plan
    points = overview.frontier
    if len(points) < 2:
        note = "The plan was made without a frontier: plan with --frontier to see what more time would save."
        if plan.until_s is None:
            return Figure("pipeline-frontier", _TITLE, about(overview), note, None)
    else:
        gap = max(point.gap for point in points)
        note = (
            f"{len(points)} plans, each with the lowest energy at its deadline, at most {percent(gap)} above the lower "
            f"bound, which no plan can go below. "
        )
        if plan.switching is not None:
            note += "Their clocks last as long as a switch takes; the bound assumes instant switching. "
    if overview.stragglers or plan.until_s is not None:
        note += (
            f"Dashed: waiting for another, slower pipeline (a straggler) at the {before_text(plan)}. Squares: finishing "
            "just in time instead. "
        )
    if overview.others:
        note += "Other solvers' points are recomputed from the same times and energies. "
    return Figure("pipeline-frontier", _TITLE, about(overview), note.strip(), specification_of(_chart(overview)))


def _chart(overview: PipelineOverview) -> Any:
    alt = load("altair")
    plan, axis = overview.plan, TimeAxis.of(overview)
    before, waiting = before_text(plan), "waiting for a straggler"
    highest = max(overview.before.energy_j, overview.after.energy_j)
    factor, unit = (1e-6, "MJ") if highest >= 2e6 else (1e-3, "kJ") if highest >= 2e4 else (1.0, "J")
    default_s = plan.baseline.time_s

    def row(series: str, time_s: float, energy_j: float, more: str = "") -> dict[str, object]:
        return {
            "series": series,
            "x": round(axis.factor * time_s, 6),
            "y": round(factor * energy_j, 6),
            "time": f"{quantity(time_s, 's', 5)} ({percent(time_s / default_s - 1.0, sign=True)})",
            "energy": quantity(energy_j, "J", 5),
            "more": more or "–",
        }

    colors = {_FRONTIER: AFTER_COLOR, _BOUND: BOUND_COLOR, waiting: BEFORE_COLOR}
    lines = [
        row(_FRONTIER, each.time_s, each.energy_j, f"{percent(each.energy_j / each.lower_bound_j - 1.0)} above the bound")
        for each in overview.frontier
    ]
    lines += [row(_BOUND, each.within_s, each.lower_bound_j, "no plan is below") for each in overview.frontier]
    default_j = plan.own_baseline_j
    others = {each.name: color for each, color in zip(overview.others, _OTHERS, strict=False)}
    stragglers = [(each.until_s, each.energy_j, each.energy_change, slower) for slower, each in overview.stragglers.items()]
    until_s = [each for each, *_ in stragglers] + ([] if plan.until_s is None else [plan.until_s])
    if until_s:
        last_s = max(until_s)
        waits_j = default_j + plan.gpus * plan.waiting_w * (last_s - default_s)
        lines += [row(waiting, default_s, default_j), row(waiting, last_s, waits_j)]
    marks = [
        row("a straggler, finishing just in time", until_s, energy_j,
            f"{percent(-change, 1)} saved against waiting for one {percent(slowdown, 0)} slower")
        | {"label": "" if plan.until_s and abs(until_s / plan.until_s - 1.0) < _NEAR else percent(change, 0, sign=True)}
        for until_s, energy_j, change, slowdown in stragglers
    ]  # fmt: skip
    own = [row("", default_s, default_j), *_own_rows(overview, row)]
    furthest = axis.factor * _FURTHEST * max(default_s, plan.predicted.time_s, plan.until_s or 0.0)
    x_domain, y_domain = _domains([each for each in [*lines, *marks, *own] if float(str(each["x"])) <= furthest])
    x = alt.X(
        "x:Q", title=f"time of an iteration, {axis.unit}", scale=alt.Scale(domain=x_domain, nice=False),
        axis=alt.Axis(tickCount=10),
    )  # fmt: skip
    y = alt.Y("y:Q", title=f"energy of all GPUs, {unit}", scale=alt.Scale(domain=y_domain, nice=True, zero=False))
    tip = tooltips({"series:N": " ", "time:N": "time", "energy:N": "energy", "more:N": "note"})
    shown = {name: color for name, color in colors.items() if any(each["series"] == name for each in lines)}
    legend: dict[str, Any] = {"symbolType": "stroke", "symbolStrokeWidth": 2.5, "symbolSize": 300, "symbolOpacity": 1}
    legend["columnPadding"] = 20
    color = series_color("series:N", shown | others, **legend)
    named = list(shown | others)
    dashed = alt.Scale(domain=named, range=[[5, 4] if name == waiting else [1, 0] for name in named])
    dashes = alt.StrokeDash("series:N", title=None, sort=None, scale=dashed, legend=alt.Legend(orient="top", **legend))
    layers: list[Any] = []
    if lines:
        layers += _curves(lines, x, y, color, dashes, tip)
    for each in overview.others:
        points = [row(each.name, time_s, energy_j, "recomputed") for time_s, energy_j in each.points]
        dots = alt.Chart(inline(points)).mark_circle(size=26, opacity=0.8, clip=True)
        layers.append(dots.encode(x=x, y=y, color=color, tooltip=tip))
    if marks:
        layers += _straggler_marks(marks, x, y, tip)
    default = alt.Chart(inline([row(before, default_s, default_j)])).encode(x=x, y=y)
    # The line of waiting begins at the default clocks and rises to the right: their name stands above it.
    layers += words(default.encode(text=alt.Text("series:N")), align="left", dx=-4, dy=-16)
    layers.append(default.mark_point(style="dot").encode(tooltip=tip))
    layers += beside("plan", alt.Chart(inline(_own_rows(overview, row))).encode(x=x, y=y), "series:N", tip)
    return layered(*layers).properties(width=WIDE, height=_HEIGHT)


def _curves(lines: Sequence[dict[str, object]], x: Any, y: Any, color: Any, dashes: Any, tip: Any) -> list[Any]:
    """The frontier, its bound below it, and the line of waiting."""
    alt = load("altair")
    base = alt.Chart(inline(lines)).encode(x=x, y=y, color=color)
    below = base.transform_filter(alt.datum.series == _BOUND).mark_line(strokeWidth=4, opacity=0.45, clip=True)
    above = base.transform_filter(alt.datum.series != _BOUND).mark_line(strokeWidth=1.8, clip=True)
    drawn = [each.encode(strokeDash=dashes, order=alt.Order("x:Q")) for each in (below, above)]
    plans = [each for each in lines if each["series"] == _FRONTIER]
    if len(plans) <= _MOST_DOTS:
        dots = alt.Chart(inline(plans)).mark_circle(size=18, opacity=1, clip=True)
        drawn.append(dots.encode(x=x, y=y, color=color, tooltip=tip))
    return [*drawn, base.mark_point(size=70, filled=True, opacity=0, clip=True).encode(tooltip=tip)]


def _straggler_marks(marks: Sequence[dict[str, object]], x: Any, y: Any, tip: Any) -> list[Any]:
    """Squares with their savings well below the curve, whichever way it goes."""
    alt = load("altair")
    base = alt.Chart(inline(marks))
    drawn = [base.mark_point(style="applicable", size=70).encode(x=x, y=y, tooltip=tip)]
    texts = base.mark_text(style="good-label", align="center", dy=_BELOW_CURVE, tooltip=None)
    return [*drawn, texts.encode(x=x, y=y, text=alt.Text("label:N"))]


def _own_rows(overview: PipelineOverview, row: Any) -> list[dict[str, object]]:
    plan = overview.plan
    saved = percent(-plan.energy_change, 1)
    return [row(AFTER, max(plan.predicted.time_s, plan.until_s or 0.0), plan.predicted.energy_j, f"{saved} saved")]


def _domains(rows: Sequence[dict[str, object]]) -> tuple[list[float], list[float]]:
    """Axes that hold all points, with some room."""
    found = []
    for name in ("x", "y"):
        values = [float(str(row[name])) for row in rows]
        room = 0.05 * (max(values) - min(values)) or 0.02 * max(values)
        found.append([min(values) - room, max(values) + room])
    return found[0], found[1]
