"""What saving is left at each switching time, and where the device is."""

from __future__ import annotations

from typing import Any

from wastenot.kernels.page.plan_figure import SAVED, saved
from wastenot.kernels.plan.overview import PlanOverview
from wastenot.pages.figure import Figure, inline, layered, specification_of
from wastenot.pages.formatting import percent, quantity
from wastenot.pages.optional_imports import load

_TITLE = "What saving is left at each switching time"
_WIDTH, _HEIGHT = 760, 260
_LEAST_S = 1e-4  # where switches that take no time are drawn, on an axis of logarithms
_LINE, _OWN = "#2f6fde", "#e08a00"


def switching_figure(overview: PlanOverview) -> Figure:
    """Energy saved by the schedule at each switching time from 0 to 1 s, the device's own marked."""
    plan, curve = overview.plan, overview.switching
    subtitle = f"{plan.workload} on {plan.device} · {plan.origin} numbers"
    if curve is None:
        why = overview.why_no_coarse_maps or "no schedule is as fast as this plan was asked to be"
        return Figure("switching", _TITLE, subtitle, f"There is nothing to draw: {why}.", None)
    own = "" if curve.own_energy_change is None else (
        f"The device's own switches are marked, with their jitter and slower memory clocks: "
        f"{percent(-curve.own_energy_change)} saved, which is what users can have. "
    )  # fmt: skip
    note = (
        "A schedule changes settings only as often as switches allow, at the least energy within the plan's limit. Line: "
        f"all switches take the time below and arrive on time. {own}What is higher further left is what vendors could give."
    )
    return Figure("switching", _TITLE, subtitle, note, specification_of(_chart(overview)))


def _chart(overview: PlanOverview) -> Any:
    alt, curve = load("altair"), overview.switching
    assert curve is not None
    rows = [
        {
            "x": max(_LEAST_S, point.switch_s),
            "y": round(saved(point.energy_change), 6),
            "switch": quantity(point.switch_s, "s", 2) if point.switch_s else "no time",
            "saved_text": percent(-point.energy_change),
            "time_text": percent(point.time_change, sign=True),
            "switches": f"{point.switches:,} an iteration",
        }
        for point in curve.points
    ]
    ticks = [_LEAST_S, 0.001, 0.01, 0.1, 1.0]
    label = f"datum.value < {2 * _LEAST_S} ? '0' : datum.value < 1 ? format(1000 * datum.value, 'd') + ' ms' : '1 s'"
    axis = alt.Axis(values=ticks, labelExpr=label)
    scale = alt.Scale(type="log", domain=[_LEAST_S, 1.0])
    x = alt.X("x:Q", title="time that a switch takes", scale=scale, axis=axis)
    y = alt.Y("y:Q", title=SAVED)
    tooltip = [
        alt.Tooltip("switch:N", title="a switch takes"),
        alt.Tooltip("saved_text:N", title="energy saved"),
        alt.Tooltip("time_text:N", title="time"),
        alt.Tooltip("switches:N", title="switches"),
    ]
    line = alt.Chart(inline(rows)).encode(x=x, y=y, tooltip=tooltip)
    layers = [line.mark_line(color=_LINE, strokeWidth=2), line.mark_point(filled=True, size=60, color=_LINE)]
    if curve.own_s is not None and curve.own_energy_change is not None:
        own = [{
            "x": max(_LEAST_S, curve.own_s), "y": round(saved(curve.own_energy_change), 6),
            "switch": quantity(curve.own_s, "s", 3) if curve.own_s else "no time",
            "saved_text": percent(-curve.own_energy_change), "time_text": "", "switches": "this device",
        }]  # fmt: skip
        mark = alt.Chart(inline(own)).encode(x=x, y=y, tooltip=tooltip)
        layers += [
            mark.mark_rule(color=_OWN, strokeDash=[4, 3]).encode(x=x, y=alt.YValue(0), y2=alt.Y2Value(_HEIGHT)),
            mark.mark_point(filled=True, size=130, color=_OWN, shape="diamond"),
        ]
    return layered(*layers).properties(width=_WIDTH, height=_HEIGHT)
