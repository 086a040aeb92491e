"""Energy saved against the slowdown allowed (paper, Fig. 6)."""

from __future__ import annotations

from typing import Any

from wastenot.reporting.figure import Figure, inline, make_figure
from wastenot.reporting.optional_imports import load
from wastenot.reporting.plan.data import Curve, ReportData
from wastenot.reporting.words import percent, quantity

_WIDTH, _HEIGHT = 935, 340
_DASHES = {"global": [1, 0], "local": [5, 3]}


def curve_figure(data: ReportData) -> Figure:
    """Lines for each granularity and scope, no slowdown as a dotted rule, and the plan."""
    note = (
        "Each line is the most energy that can be saved within the slowdown allowed, one exact plan for each point. "
        "Global: kernels make up for each other's losses; local: each keeps the slowdown by itself. The dotted line "
        "is no slowdown at all."
    )
    if data.plan.fastest.time_change < 0:
        note += f" No clocks save more than {percent(-data.plan.fastest.time_change)} time."
    return make_figure(
        data.plan, "relaxed-waste", "Energy saved against slowdown allowed", note, _chart(data) if data.curves else None
    )


def _chart(data: ReportData) -> Any:
    alt = load("altair")
    curves = [curve for curve in data.curves if curve.points]
    series = [_series(curve) for curve in curves]
    fine = [curve.granularity == "kernel" for curve in curves]
    base = alt.Chart(inline([row for curve in curves for row in _rows(curve)])).encode(
        x=alt.X(
            "allowed:Q",
            title="slowdown allowed, %",
            axis=alt.Axis(tickCount=12),
            scale=alt.Scale(domain=_span(data), nice=False),
        ),
        y=alt.Y("saved:Q", title="energy saved, %", scale=alt.Scale(domain=_height(data), nice=True)),
    )
    lines = base.mark_line().encode(
        color=alt.Color(
            "series:N",
            title=None,
            sort=series,
            scale=alt.Scale(domain=series, range=["#2f6fde" if kernel else "#7a8699" for kernel in fine]),
            legend=alt.Legend(orient="top", symbolStrokeWidth=2.5, symbolSize=500, columnPadding=24),
        ),
        strokeDash=alt.StrokeDash(
            "series:N",
            sort=series,
            scale=alt.Scale(domain=series, range=[_DASHES[curve.scope] for curve in curves]),
        ),
        strokeWidth=alt.StrokeWidth(
            "series:N",
            sort=series,
            scale=alt.Scale(type="ordinal", domain=series, range=[2.5 if kernel else 1.2 for kernel in fine]),
        ),
    )
    points = base.mark_point(opacity=0, size=120, filled=True).encode(
        tooltip=[
            alt.Tooltip("series:N", title="plan"),
            alt.Tooltip("allowed_text:N", title="slowdown allowed"),
            alt.Tooltip("taken_text:N", title="time taken"),
            alt.Tooltip("saved_text:N", title="energy saved"),
            alt.Tooltip("energy_text:N", title="energy of an iteration"),
        ]
    )
    strict = alt.Chart(inline([{"x": 0.0}])).mark_rule(style="rule").encode(x="x:Q")
    layers = alt.layer(strict, lines, points, *_plan_marks(data))
    return layers.properties(width=_WIDTH, height=_HEIGHT)


def _plan_marks(data: ReportData) -> list[Any]:
    alt = load("altair")
    plan = data.plan
    bound = plan.objective.max_slowdown
    at = plan.predicted.time_change if bound is None else bound
    last = max((curve.points[-1].max_slowdown for curve in data.curves if curve.points), default=0.0)
    to_the_left = at > 0.6 * last
    row = {
        "allowed": 100 * at,
        "saved": -100 * plan.predicted.energy_change,
        "text": f"this plan: {percent(-plan.predicted.energy_change)} saved",
        "time": percent(plan.predicted.time_change, sign=True),
        "energy": quantity(plan.predicted.energy_j, "J"),
    }
    mark = alt.Chart(inline([row])).encode(x="allowed:Q", y="saved:Q")
    tooltip = [
        alt.Tooltip("text:N", title="plan"),
        alt.Tooltip("time:N", title="time"),
        alt.Tooltip("energy:N", title="energy of an iteration"),
    ]
    place = {
        "align": "right" if to_the_left else "left",
        "dx": -12 if to_the_left else 12,
        "dy": 18,
        "fontWeight": "bold",
    }
    return [
        mark.mark_text(style="halo", **place).encode(text="text:N"),
        mark.mark_text(style="label", **place).encode(text="text:N"),
        mark.mark_point(style="plan").encode(tooltip=tooltip),
    ]


def _series(curve: Curve) -> str:
    return f"{curve.granularity}, {curve.scope}"


def _rows(curve: Curve) -> list[dict[str, object]]:
    return [
        {
            "series": _series(curve),
            "allowed": 100 * point.max_slowdown,
            "saved": -100 * point.energy_change,
            "allowed_text": percent(point.max_slowdown, sign=True),
            "taken_text": percent(point.time_change, sign=True),
            "saved_text": percent(-point.energy_change),
            "energy_text": quantity(point.energy_j, "J"),
        }
        for point in curve.points
    ]


def _span(data: ReportData) -> list[float]:
    """The ends of the axis in per cent: of the curves, with room for the plan's mark at no slowdown."""
    allowed = [100 * point.max_slowdown for curve in data.curves for point in curve.points] or [0.0, 1.0]
    return [min(allowed) - 0.02 * max(allowed), max(allowed)]


def _height(data: ReportData) -> list[float]:
    """The ends of the axis in per cent: 0, or lower where a speed-up or the plan costs energy, to the most saved."""
    saved = [-100 * point.energy_change for curve in data.curves for point in curve.points]
    saved.append(-100 * data.plan.predicted.energy_change)
    return [min(0.0, *saved), max(1.0, *saved)]
