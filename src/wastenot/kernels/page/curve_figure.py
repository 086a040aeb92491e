"""The curves of a plan: energy saved against the slowdown allowed (paper, Fig. 6), and what is left at each switching time.

The first has the plan and what could be applied today in it, the second where the device is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from wastenot.kernels.page.applicable_panels import GRANULARITY_WORDS
from wastenot.kernels.page.labelled_points import (
    LETTER_WIDTH,
    NO_LABEL,
    RULE_LABEL_HEIGHT,
    Frame,
    Label,
    LabelledPoint,
    draw_labels,
    draw_points,
)
from wastenot.kernels.page.plan_figure import SAVED, WIDE, plan_figure, saved, slowdown
from wastenot.kernels.page.verdict import is_default
from wastenot.kernels.plan.curves import Curve, SwitchingCurve
from wastenot.kernels.plan.overview import PlanOverview
from wastenot.pages.figure import Figure, inline, layered, series_color, specification_of, tooltips, words
from wastenot.pages.formatting import digits_within, percent, quantity
from wastenot.pages.narrow import NARROW_PANEL
from wastenot.pages.optional_imports import load
from wastenot.planning.applicable_today import applicable_today
from wastenot.planning.objective import DEFAULT_CONFIDENCE
from wastenot.planning.plan import Plan
from wastenot.workloads.identity import Granularity

_COLORS = {"kernel": "#2f6fde", "pass": "#e08a00", "iteration": "#0f9b8e"}
_DASHES = {"global": [1, 0], "local": [5, 3]}
_HEIGHT = 330
_FAR = 0.10  # slowdown limit at which curves end where the plan's own is less than half of it
_STRAIGHT = 5e-5  # change of time that is shown as none


def curve_figure(overview: PlanOverview) -> Figure:
    """A staircase for each granularity and scope, the plan, what could be applied today, and the fastest plans."""
    goal = overview.plan.objective
    how = "by the numbers as measured"
    if goal.corrected:
        how = f"with {percent(goal.confidence or DEFAULT_CONFIDENCE, 0)} confidence"
    far = _FAR if (goal.max_slowdown or 0.0) < 0.5 * _FAR else math.inf
    scopes = ("global", overview.plan.scope)  # others are in the table that compares them
    curves = [near for curve in overview.curves if curve.scope in scopes and (near := _until(curve, far)).points]
    note = f"Lines: the most energy that can be saved within a slowdown limit, {how}{_clocks_for(overview)}. "
    if any(curve.scope == "local" for curve in curves):
        note += "Dashed (local): each part keeps the limit by itself. "
    note += f"Diamond: the plan{_what_bars_are(overview)}. Circle: the fastest plan{_how_fast(overview)}."
    for reason in overview.why_no_curve:
        note += f" No line for the {reason}."
    chart = _chart(overview, curves) if curves else None
    return plan_figure(overview.plan, "relaxed-waste", "Energy saved by slowdown limit", note, chart)


def _until(curve: Curve, far: float) -> Curve:
    """A curve up to a slowdown limit; more is far from a plan that hardly slows down."""
    points = tuple(point for point in curve.points if point.max_slowdown <= far)
    if points and len(points) < len(curve.points):
        points += (replace(points[-1], max_slowdown=far),)
    return replace(curve, points=points)


def _how_fast(overview: PlanOverview) -> str:
    """How much less time the fastest plan takes, where it takes less."""
    changes = [curve.fastest.time_change for curve in overview.curves if curve.scope == "global"][:1]
    return f", {percent(-changes[0])} less time" if changes and changes[0] < -_STRAIGHT else ""


def _clocks_for(overview: PlanOverview) -> str:
    words = {"kernel": "each kernel", "pass": "each pass", "iteration": "the whole iteration"}
    found = list(dict.fromkeys(words[_granularity(curve, overview.plan)] for curve in overview.curves))
    return f", with clocks for {' or '.join([', '.join(found[:-1]), found[-1]] if found[1:] else found)}" if found else ""


def _what_bars_are(overview: PlanOverview) -> str:
    headline = overview.plan.headline
    bars = ", bars its 95 % intervals" if headline.energy_change_interval is not None else ""
    return f"; hollow as promised, filled as measured{bars}" if headline.source == "validation" else bars


def _chart(overview: PlanOverview, curves: Sequence[Curve]) -> Any:
    alt = load("altair")
    marks = _marks(overview)
    frame = _frame(curves, marks)
    series = [_series(curve, overview.plan) for curve in curves]
    x = alt.X(
        "x:Q", title="slowdown limit, %", axis=alt.Axis(tickCount=12), scale=alt.Scale(domain=list(frame.x), nice=False)
    )
    y = alt.Y("y:Q", title=SAVED, scale=alt.Scale(domain=list(frame.y), nice=False))
    color = series_color(
        "series:N",
        {_series(curve, overview.plan): _COLORS[_granularity(curve, overview.plan)] for curve in curves},
        symbolType="stroke",
        symbolStrokeWidth=2.5,
        symbolSize=500,
        columnPadding=24,
    )
    dashes = alt.Scale(domain=series, range=[_DASHES[curve.scope] for curve in curves])
    widths = alt.Scale(type="ordinal", domain=series, range=[2.4 if curve.scope == "global" else 1.2 for curve in curves])
    rows = [row for curve in curves for row in _rows(curve, overview.plan)]
    base = alt.Chart(inline(rows)).encode(x=x, y=y, color=color)
    lines = base.mark_line(interpolate="step-after").encode(
        strokeDash=alt.StrokeDash("series:N", sort=series, scale=dashes),
        strokeWidth=alt.StrokeWidth("series:N", sort=series, scale=widths),
    )
    tooltip = tooltips(
        {
            "series:N": "plan",
            "allowed_text:N": "slowdown limit",
            "taken_text:N": "time taken",
            "saved_text:N": "energy saved",
            "energy_text:N": "energy per iteration",
        }
    )
    targets = base.mark_point(opacity=0, size=120, filled=True).encode(tooltip=tooltip)
    sampled = {_series(curve, overview.plan) for curve in curves if not curve.exact}
    dots = alt.Chart(inline([row for row in rows if row["series"] in sampled])).mark_circle(size=15, opacity=1)
    layers = [*_rules(overview, frame), lines, dots.encode(x=x, y=y, color=color), targets]
    crossed = [*map(_steps, curves), *([(slowdown(bound), end) for end in frame.y] for bound in _bounds(overview))]
    layers += draw_labels(marks, (replace(frame, width=NARROW_PANEL), frame), crossed)
    layers += draw_points(marks, x, y)
    return layered(*layers).properties(width=frame.width, height=frame.height)


def _steps(curve: Curve) -> list[tuple[float, float]]:
    """The corners of a staircase, in per cent."""
    corners: list[tuple[float, float]] = []
    for point in curve.points:
        x, y = slowdown(point.max_slowdown), saved(point.energy_change)
        corners += [(x, corners[-1][1]), (x, y)] if corners else [(x, y)]
    return corners


def _frame(curves: Sequence[Curve], marks: Sequence[LabelledPoint]) -> Frame:
    """Axes that hold all curves, marks and intervals, with some room."""
    points = [(slowdown(point.max_slowdown), saved(point.energy_change)) for curve in curves for point in curve.points]
    points += [(mark.x, mark.y) for mark in marks]
    xs = [x for x, _ in points] + [end for mark in marks for end in mark.x_interval or ()]
    ys = [y for _, y in points] + [end for mark in marks for end in mark.y_interval or ()]
    left, right, low, high = min(0.0, *xs), max(*xs, 1.0), min(0.0, *ys), max(1.0, *ys)
    below = 0.08 * (high - low) if low < 0.0 else 0.0
    above = (2 * RULE_LABEL_HEIGHT + 10) / _HEIGHT * (high - low)
    return Frame((left - 0.03 * (right - left), right), (low - below, high + above), WIDE, _HEIGHT)


def _rules(overview: PlanOverview, frame: Frame) -> list[Any]:
    """No slowdown, and the limit of the plan where that is another."""
    alt = load("altair")
    layers = []
    for bound, text in _bounds(overview).items():
        rule = alt.Chart(inline([{"x": slowdown(bound), "text": text}]))
        layers.append(rule.mark_rule(style="rule").encode(x=alt.X("x:Q")))
        at_left = frame.pixel(slowdown(bound), 0.0)[0] / frame.width > 1.0 - LETTER_WIDTH * len(text) / NARROW_PANEL
        place = {"align": "right" if at_left else "left", "dx": -4 if at_left else 4, "baseline": "top"}
        height = 4 + (0 if bound == 0.0 else RULE_LABEL_HEIGHT)  # the room above all curves
        layers.append(
            rule.mark_text(style="small-label", **place).encode(
                x=alt.X("x:Q"), y=alt.YValue(height), text=alt.Text("text:N")
            )
        )
    return layers


def _bounds(overview: PlanOverview) -> dict[float, str]:
    """Where the rules are, and what they say."""
    limit = overview.plan.objective.max_slowdown
    return {0.0: "no slowdown"} | ({} if limit is None or not limit else {limit: f"limit {percent(limit)}"})


def _marks(overview: PlanOverview) -> list[LabelledPoint]:
    plan, headline = overview.plan, overview.plan.headline
    today = applicable_today(plan).finest
    own = today is not None and today.granularity == plan.granularity
    # The finest granularity comes first, and nothing is faster.
    marks = [_fastest_mark(curve, overview) for curve in overview.curves if curve.scope == "global"][:1]
    now = plan.today
    if now.sets_something and not own:
        how = ", by its schedule" if now.row is None else f", by {now.row.granularity}"
        text = _label("applicable today", how, now.energy_change, now.energy_change_interval)
        marks.append(_mark("applicable", overview, now.time_change, now.energy_change, text, "applicable today"))
    expected = plan.expected
    if headline.source == "validation" and expected is not None:
        marks.append(
            _mark(
                "promise", overview, expected.time_change, expected.energy_change, NO_LABEL, "this plan, as promised",
                expected.time_change_interval, expected.energy_change_interval,
            )
        )  # fmt: skip
    word = {"validation": "measured", "promise": "expected", "measurements": "as measured"}[headline.source]
    named, more = ("this plan", ", applicable today") if own else ("instant", " switching")
    text = _label(named, more, headline.energy_change, headline.energy_change_interval)
    if is_default(plan):
        text = Label("this plan: the default clocks")
    marks.append(
        _mark(
            "plan", overview, headline.time_change, headline.energy_change, text, f"this plan, {word}",
            headline.time_change_interval, headline.energy_change_interval,
        )
    )  # fmt: skip
    return marks


def _label(what: str, more: str, energy_change: float, within: tuple[float, float] | None) -> Label:
    return Label(what, more, f": {percent(-energy_change, digits_within(within))} saved")


def _fastest_mark(curve: Curve, overview: PlanOverview) -> LabelledPoint:
    fastest = curve.fastest
    faster = fastest.time_change < -_STRAIGHT
    text = NO_LABEL if faster else Label("no plan is faster than the default clocks")
    granularity = _granularity(curve, overview.plan)
    mark = _mark("dot", overview, fastest.time_change, fastest.energy_change, text, f"fastest plan by {granularity}")
    return replace(mark, color=_COLORS[granularity])


def _mark(
    style: str,
    overview: PlanOverview,
    time_change: float,
    energy_change: float,
    label: Label,
    about: str,
    time_interval: tuple[float, float] | None = None,
    energy_interval: tuple[float, float] | None = None,
) -> LabelledPoint:
    return LabelledPoint(
        style,
        slowdown(time_change),
        saved(energy_change),
        label,
        about,
        quantity(overview.plan.baseline.energy_j * (1.0 + energy_change), "J"),
        None if time_interval is None else (slowdown(time_interval[0]), slowdown(time_interval[1])),
        None if energy_interval is None else (saved(energy_interval[1]), saved(energy_interval[0])),
    )


def _granularity(curve: Curve, plan: Plan) -> Granularity:
    """What gets clocks of its own; what was measured as one is one unit, whatever it is called."""
    return plan.measured_granularity if curve.granularity == "kernel" else curve.granularity


def _series(curve: Curve, plan: Plan) -> str:
    return _granularity(curve, plan) if curve.scope == "global" else f"{_granularity(curve, plan)}, local"


def _rows(curve: Curve, plan: Plan) -> list[dict[str, object]]:
    return [
        {
            "series": _series(curve, plan),
            "x": round(slowdown(point.max_slowdown), 6),
            "y": round(saved(point.energy_change), 6),
            "allowed_text": percent(point.max_slowdown, sign=True),
            "taken_text": percent(point.time_change, sign=True),
            "saved_text": percent(-point.energy_change),
            "energy_text": quantity(point.energy_j, "J"),
        }
        for point in curve.points
    ]


_SWITCHING_TITLE = "Saving that remains at each switching time"
_SWITCHING_WIDTH, _SWITCHING_HEIGHT = 760, 260
_FAR_RIGHT_S = 0.003  # from which on the line, which falls to the right, leaves room for words on the left only
_LEAST_S = 1e-4  # where switches that take no time are drawn, on an axis of logarithms
_LINE, _OWN = "#2f6fde", "#e08a00"


def switching_figure(overview: PlanOverview) -> Figure:
    """Energy saved by the schedule at each switching time from 0 to 1 s, the device's own marked."""
    plan, curve = overview.plan, overview.switching
    subtitle = f"{plan.workload} on {plan.device} · {plan.origin} numbers"
    if curve is None:
        why = overview.why_no_coarse_maps or "no schedule is as fast as this plan was asked to be"
        return Figure("switching", _SWITCHING_TITLE, subtitle, f"There is nothing to draw: {why}.", None)
    own = ""
    if curve.own_energy_change is not None:
        row, users = plan.today.row, "which is what users get"
        if row is not None and not plan.today.whole:
            saving = percent(-plan.today.energy_change)
            users = f"while {GRANULARITY_WORDS[row.granularity]}, which is what users get, saves {saving}"
        kept = digits_within(plan.today.energy_change_interval)
        own = f" Diamond: this device{_how_slow(plan, curve)}: {percent(-curve.own_energy_change, kept)}, {users}."
    note = f"Saved by a schedule within the plan's limit, if every switch took the time shown below and was on time.{own}"
    return Figure("switching", _SWITCHING_TITLE, subtitle, note, specification_of(_switching_chart(overview)))


def _how_slow(plan: Plan, curve: SwitchingCurve) -> str:
    """In what this device's switches differ from those of the line, and what remains of the saving after each."""
    switching = None if plan.schedule is None else plan.schedule.switching
    if switching is None:
        return ""
    on_time = curve.on_time_energy_change
    remains = f" (leaves {percent(-on_time, 1)})" if on_time is not None and switching.jitter > 0.0 else ""
    said = [f"memory clocks take {quantity(switching.memory_s, 's', 2)}{remains}"] * (switching.memory_s > switching.core_s)
    said += [f"switches vary by {percent(switching.jitter, 0)}"] * (switching.jitter > 0.0)
    return f", whose {' and whose '.join(said)}" if said else ""


def _switching_chart(overview: PlanOverview) -> Any:
    alt, curve = load("altair"), overview.switching
    assert curve is not None
    rows = [
        {
            "x": max(_LEAST_S, point.switch_s),
            "y": round(saved(point.energy_change), 6),
            "switch": quantity(point.switch_s, "s", 2) if point.switch_s else "no time",
            "saved_text": percent(-point.energy_change),
            "time_text": percent(point.time_change, sign=True),
            "switches": f"{point.switches:,} per iteration",
        }
        for point in curve.points
    ]
    ticks = [_LEAST_S, 0.001, 0.01, 0.1, 1.0]
    label = f"datum.value < {2 * _LEAST_S} ? '0' : datum.value < 1 ? format(1000 * datum.value, 'd') + ' ms' : '1 s'"
    axis = alt.Axis(values=ticks, labelExpr=label)
    scale = alt.Scale(type="log", domain=[_LEAST_S, 1.0])
    x = alt.X("x:Q", title="switching time", scale=scale, axis=axis)
    y = alt.Y("y:Q", title=SAVED)
    tooltip = tooltips(
        {"switch:N": "switching time", "saved_text:N": "energy saved", "time_text:N": "time", "switches:N": "switches"}
    )
    line = alt.Chart(inline(rows)).encode(x=x, y=y, tooltip=tooltip)
    layers = [line.mark_line(color=_LINE, strokeWidth=2), line.mark_point(filled=True, size=60, color=_LINE)]
    if curve.own_s is not None and curve.own_energy_change is not None:
        digits = digits_within(overview.plan.today.energy_change_interval)
        own_time, applicable = quantity(curve.own_s, "s", 2), overview.plan.applicable
        if applicable is not None and applicable.switching.memory_s > applicable.switching.core_s:
            own_time += f", memory clocks {quantity(applicable.switching.memory_s, 's', 2)}"
        own = [{
            "x": max(_LEAST_S, curve.own_s), "y": round(saved(curve.own_energy_change), 6),
            "switch": quantity(curve.own_s, "s", 3) if curve.own_s else "no time",
            "saved_text": percent(-curve.own_energy_change), "time_text": "", "switches": "this device",
            "label": f"this device, {own_time}: {percent(-curve.own_energy_change, digits)} saved",
            "short": f"this device: {percent(-curve.own_energy_change, digits)}",
        }]  # fmt: skip
        beside_it: dict[str, Any] = (
            {"align": "right", "dx": -9} if curve.own_s > _FAR_RIGHT_S else {"align": "left", "dx": 9}
        )
        mark = alt.Chart(inline(own)).encode(x=x, y=y, tooltip=tooltip)
        layers += [
            mark.mark_rule(color=_OWN, strokeDash=[4, 3]).encode(x=x, y=alt.YValue(0), y2=alt.Y2Value(_SWITCHING_HEIGHT)),
            mark.mark_point(filled=True, size=130, color=_OWN, shape="diamond"),
            *words(mark.encode(text=alt.Text("label:N")), baseline="top", dy=5, **beside_it),
        ]
    return layered(*layers).properties(width=_SWITCHING_WIDTH, height=_SWITCHING_HEIGHT)
