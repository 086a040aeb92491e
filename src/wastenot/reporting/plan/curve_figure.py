"""Energy saved against the slowdown allowed (paper, Fig. 6)."""

from __future__ import annotations

from typing import Any

from wastenot.analyses.plan_overview import Curve, PlanOverview
from wastenot.planning.objective import DEFAULT_CONFIDENCE
from wastenot.reporting.figure import Figure, inline, series_color, tooltips
from wastenot.reporting.formatting import percent, quantity
from wastenot.reporting.optional_imports import load
from wastenot.reporting.plan.plan_figure import plan_figure

_WIDTH, _HEIGHT = 935, 340
_DASHES = {"global": [1, 0], "local": [5, 3]}


def curve_figure(overview: PlanOverview) -> Figure:
    """A line for each granularity and scope, a dotted rule at no slowdown, and the plan."""
    goal = overview.plan.objective
    how = "every point is an exact optimum of the numbers as measured. "
    if goal.corrected:
        sure = percent(goal.confidence or DEFAULT_CONFIDENCE, 0)
        how = f"every plan keeps its slowdown with {sure} confidence, and its saving is corrected for noise. "
    note = (
        f"Each line is the most energy that can be saved within the slowdown allowed; {how}"
        "Global: kernels may compensate for each other's slowdown; local: each must keep the limit by itself. The dotted "
        "line marks no slowdown."
    )
    if overview.plan.fastest.time_change < 0:
        note += f" No clocks save more than {percent(-overview.plan.fastest.time_change)} of the time."
    return plan_figure(
        overview.plan,
        "relaxed-waste",
        "Energy saved against the slowdown allowed",
        note,
        _chart(overview) if overview.curves else None,
    )


def _chart(overview: PlanOverview) -> Any:
    alt = load("altair")
    curves = [curve for curve in overview.curves if curve.points]
    series = [_series(curve) for curve in curves]
    fine = [curve.granularity == "kernel" for curve in curves]
    base = alt.Chart(inline([row for curve in curves for row in _rows(curve)])).encode(
        x=alt.X(
            "allowed:Q",
            title="slowdown allowed, %",
            axis=alt.Axis(tickCount=12),
            scale=alt.Scale(domain=_x_limits(overview), nice=False),
        ),
        y=alt.Y("saved:Q", title="energy saved, %", scale=alt.Scale(domain=_y_limits(overview), nice=True)),
    )
    lines = base.mark_line().encode(
        color=series_color(
            "series:N",
            {name: "#2f6fde" if kernel else "#7a8699" for name, kernel in zip(series, fine, strict=True)},
            symbolStrokeWidth=2.5,
            symbolSize=500,
            columnPadding=24,
        ),
        strokeDash=alt.StrokeDash(
            "series:N", sort=series, scale=alt.Scale(domain=series, range=[_DASHES[curve.scope] for curve in curves])
        ),
        strokeWidth=alt.StrokeWidth(
            "series:N",
            sort=series,
            scale=alt.Scale(type="ordinal", domain=series, range=[2.5 if kernel else 1.2 for kernel in fine]),
        ),
    )
    points = base.mark_point(opacity=0, size=120, filled=True).encode(
        tooltip=tooltips(
            {
                "series:N": "plan",
                "allowed_text:N": "slowdown allowed",
                "taken_text:N": "time taken",
                "saved_text:N": "energy saved",
                "energy_text:N": "energy per iteration",
            }
        )
    )
    strict = alt.Chart(inline([{"x": 0.0}])).mark_rule(style="rule").encode(x="x:Q")
    layers = alt.layer(strict, lines, points, *_plan_marks(overview))
    return layers.properties(width=_WIDTH, height=_HEIGHT)


def _plan_marks(overview: PlanOverview) -> list[Any]:
    alt = load("altair")
    plan = overview.plan
    bound = plan.objective.max_slowdown
    headline = plan.headline
    at = headline.time_change if bound is None else bound
    last = max((curve.points[-1].max_slowdown for curve in overview.curves if curve.points), default=0.0)
    to_the_left = at > 0.6 * last
    row = {
        "allowed": 100 * at,
        "saved": -100 * headline.energy_change,
        "text": f"this plan: {percent(-headline.energy_change)} saved",
        "time": percent(headline.time_change, sign=True),
        "energy": quantity(plan.baseline.energy_j * (1.0 + headline.energy_change), "J"),
    }
    mark = alt.Chart(inline([row])).encode(x="allowed:Q", y="saved:Q")
    tooltip = tooltips({"text:N": "plan", "time:N": "time", "energy:N": "energy per iteration"})
    label = {"align": "right" if to_the_left else "left", "dx": -12 if to_the_left else 12, "dy": 18, "fontWeight": "bold"}
    return [
        mark.mark_text(style="halo", **label).encode(text="text:N"),
        mark.mark_text(style="label", **label).encode(text="text:N"),
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


def _x_limits(overview: PlanOverview) -> list[float]:
    """Limits of the x axis in per cent: those of the curves, with room for the plan's mark at no slowdown."""
    allowed = [100 * point.max_slowdown for curve in overview.curves for point in curve.points] or [0.0, 1.0]
    return [min(allowed) - 0.02 * max(allowed), max(allowed)]


def _y_limits(overview: PlanOverview) -> list[float]:
    """Limits of the y axis in per cent: from 0, or lower if a speed-up or the plan costs energy, to the most saved."""
    saved = [-100 * point.energy_change for curve in overview.curves for point in curve.points]
    saved.append(-100 * overview.plan.headline.energy_change)
    return [min(0.0, *saved), max(1.0, *saved)]
