"""Power over the time of a run: every reading, the estimate made from them, and SSE and SSP (FinGraV, Figs. 5 to 7)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.devices.instrument import TOTAL
from wastenot.pages.figure import Figure, inline, layered, series_color, series_opacity, tooltips, words
from wastenot.pages.formatting import quantity
from wastenot.pages.narrow import NARROW_PANEL
from wastenot.profiles.page.description import (
    channel_names,
    named,
    shown_before,
    state_words,
    steady,
    timed_channels,
    unit_word,
)
from wastenot.profiles.page.drawing import (
    BLUE,
    FIT_COLOR,
    MOST_POINTS,
    WIDTH,
    TimeUnit,
    altair,
    color_of,
    drawn_readings,
    point_style,
    points,
    profile_figure,
    span_of,
    with_error,
)
from wastenot.profiles.result import Profile

_TOTAL_HEIGHT, _PARTS_HEIGHT = 330, 240
_GOLDEN, _OTHER = "reading", "reading of a run that is left out"
_TOTAL_TITLE, _PARTS_TITLE = "total power, W", "power of components, W"
_MOST_BOUNDS = 70  # executions, above which their bounds are not drawn
_MOST_OF_PART = 800  # readings of a component that are drawn
_LABEL_ROOM = 0.28  # of the range of power, for labels above it
_BRACKET_PX, _STATES_PX = 20, 27  # from the top: the line that spans the warm-up, and the states' labels
_LABEL_WIDTH = 130  # pixels that a label needs


def run_figure(profile: Profile) -> Figure:
    """Total power, with the components below."""
    span_s = span_of(profile)
    names = timed_channels(profile)
    shown = {
        name: drawn_readings(profile, name, span_s, most=MOST_POINTS if name == TOTAL else _MOST_OF_PART) for name in names
    }
    note = (
        "Dots: readings, faint from runs whose execution times differ. Orange or thin steps: estimated mean "
        f"power of each {unit_word(profile)}. "
    )
    channel = profile.channels[0].channel
    if channel.span_s > float(profile.unit_time_s[-1]):
        if channel.lag_s:
            note += f"A reading lags power by {quantity(channel.lag_s, 's', 3)}, longer than "
        else:
            note += f"A reading is the mean over {quantity(channel.window_s, 's', 3)}, longer than "
        note += "an execution: it is too low if its window includes idle time, which the estimate corrects. "
    states = [state for state in profile.states if state.name != "in context"]
    if states:
        note += "From SSE (steady-state execution) on, time is steady; from SSP (steady-state power) on, power is. "
        if _later_w(profile) is not None:
            note += "Dashed: the mean of all later executions. "
    drawn, all_of = (sum(each) for each in zip(*((len(rows), total) for rows, total in shown.values()), strict=True))
    if drawn < all_of:
        note += f"{drawn:,} of {all_of:,} readings are drawn. "
    levels = [name for name in channel_names(profile) if name not in names]
    if levels:
        note += f"Not drawn over time: {', '.join(levels)}, whose averaging time is too long. "
    chart = _chart(profile, span_s, shown) if TOTAL in names else None
    if chart is None:
        note = "The averaging time of the total-power sensor is too long to draw its readings over time; see the levels."
    return profile_figure(profile, "profile-run", "Power over a run", note.strip(), chart)


def _chart(profile: Profile, span_s: tuple[float, float], shown: dict[str, tuple[Any, int]]) -> Any:
    alt = altair()
    unit = TimeUnit.of(span_s[1])
    x = alt.X(
        "t:Q",
        title=f"time since the start of the first execution, {unit.name}",
        scale=alt.Scale(domain=[unit.factor * end for end in span_s], nice=False),
        axis=alt.Axis(tickCount=10),
    )
    total = _total_panel(profile, unit, x, shown[TOTAL][0])
    parts = [name for name in shown if name != TOTAL]
    if not parts:
        return total
    below = _parts_panel(profile, unit, x, {name: shown[name][0] for name in parts})
    return alt.vconcat(total, below, spacing=22).resolve_scale(color="independent", opacity="independent")


def _total_panel(profile: Profile, unit: TimeUnit, x: Any, rows: Any) -> Any:
    alt = altair()
    logged = profile.logged
    power = logged.power_w[rows]
    y = alt.Y("p:Q", title=_TOTAL_TITLE, scale=alt.Scale(domain=_total_power_limits(profile, power), nice=False))
    kinds = [_GOLDEN if good else _OTHER for good in logged.golden[rows] == 1]
    readings = points(unit, logged.moment_s[rows], power, kind=kinds, run=logged.run[rows] + 1)
    style = point_style(len(rows), MOST_POINTS)
    colors, opacities = {_GOLDEN: BLUE, _OTHER: BLUE}, {_GOLDEN: style["opacity"], _OTHER: 0.3}
    dots = (
        alt.Chart(inline(readings))
        .mark_circle(size=style["size"], stroke=None)
        .encode(
            x=x,
            y=y,
            color=series_color("kind:O", colors, columnPadding=22, symbolSize=60, labelLimit=400),
            opacity=series_opacity("kind:O", opacities),
            tooltip=tooltips({"p:Q": "W", "t:Q": unit.name, "run:Q": "run", "kind:N": " "}),
        )
    )
    fitted = _steps(profile, TOTAL, unit, x, y, _TOTAL_TITLE, FIT_COLOR)
    fitted += [*_inside_lines(profile, unit, x, y), *_later_line(profile, unit, x, y)]
    return layered(*_execution_bounds(profile, unit), dots, *fitted, *_state_labels(profile, unit)).properties(
        width=WIDTH, height=_TOTAL_HEIGHT
    )


def _total_power_limits(profile: Profile, power_w: FloatArray) -> list[float]:
    """Limits of the axis of total power, with room for labels at the top."""
    estimates = [
        inside.power_w for state in profile.states if (inside := state.channels.get(TOTAL)) is not None and inside.resolved
    ]
    means = next(each.mean_w for each in profile.channels if each.channel.name == TOTAL)
    every = np.concatenate([power_w, means, *estimates])
    reach = float(np.ptp(every))
    return [max(float(every.min()) - 0.06 * reach, 0.0), float(every.max()) + _LABEL_ROOM * reach]


def _parts_panel(profile: Profile, unit: TimeUnit, x: Any, shown: dict[str, Any]) -> Any:
    alt = altair()
    logged, names = profile.logged, channel_names(profile)
    y = alt.Y("p:Q", title=_PARTS_TITLE, scale=alt.Scale(zero=True))
    dots = []
    for name, rows in shown.items():
        golden, names_of = logged.golden[rows] == 1, [named(name)] * len(rows)
        dots += points(unit, logged.moment_s[rows], logged.power_w[rows], golden=golden, name=names_of)
    colors = {named(name): color_of(name, names) for name in shown}
    style = point_style(len(dots), MOST_POINTS)
    drawn = (
        alt.Chart(inline(dots))
        .mark_circle(size=style["size"], stroke=None)
        .encode(
            x=x,
            y=y,
            color=series_color("name:N", colors, columnPadding=22, symbolOpacity=1, symbolSize=60, labelLimit=300),
            opacity=alt.condition("datum.golden", alt.value(0.6), alt.value(0.2)),
            tooltip=tooltips({"name:N": " ", "p:Q": "W", "t:Q": unit.name}),
        )
    )
    fitted = [layer for name in shown for layer in _steps(profile, name, unit, x, y, _PARTS_TITLE, None)]
    parts = layered(*_execution_bounds(profile, unit), drawn, *fitted)
    return parts.properties(width=WIDTH, height=_PARTS_HEIGHT)


def _execution_bounds(profile: Profile, unit: TimeUnit) -> list[Any]:
    """Bounds of the executions, with SSE and SSP shaded."""
    alt = altair()
    begin, time = profile.unit_begin_s, profile.unit_time_s
    units = {state.unit: state.name for state in profile.states}
    areas = [
        {"t": unit.factor * float(begin[number - 1]), "end": unit.factor * float(begin[number - 1] + time[number - 1])}
        for number in units
    ]
    layers = [alt.Chart(inline(areas)).mark_rect(style="good-region").encode(x=alt.X("t:Q"), x2=alt.X2("end:Q"))]
    if len(begin) <= _MOST_BOUNDS:
        bounds = np.unique(np.concatenate([begin, [begin[-1] + time[-1]]]))
        rules = [{"t": unit.factor * float(bound)} for bound in bounds]
        layers.append(alt.Chart(inline(rules)).mark_rule(style="rule", opacity=0.45, strokeWidth=0.8).encode(x=alt.X("t:Q")))
    return layers


def _later_w(profile: Profile) -> float | None:
    """Mean total power of all executions from SSP on, where runs were long enough to tell; else ``None``."""
    later_w = next(each.steady_w for each in profile.channels if each.channel.name == TOTAL)
    return later_w if len(profile.states) > 1 and math.isfinite(later_w) else None


def _later_line(profile: Profile, unit: TimeUnit, x: Any, y: Any) -> list[Any]:
    """The power of all later executions, from SSP to the right edge, which shows how steady SSP is."""
    later_w = _later_w(profile)
    if later_w is None:
        return []
    begin_s = float(profile.unit_begin_s[steady(profile).unit - 1])
    row = {"t": unit.factor * begin_s, "end": unit.factor * span_of(profile)[1], "p": round(later_w, 2)}
    rule = altair().Chart(inline([row])).mark_rule(style="curve", strokeWidth=1.6, strokeDash=[5, 4])
    return [rule.encode(x=x, x2=altair().X2("end:Q"), y=y, tooltip=tooltips({"p:Q": "all later executions, W"}))]


def _state_labels(profile: Profile, unit: TimeUnit) -> list[Any]:
    """Labels at the top: a line over the warm-up, then the states with their power, on two lines where they are close."""
    alt = altair()
    span, states = span_of(profile), profile.states
    pixels = NARROW_PANEL / (span[1] - span[0])
    end_s = float(profile.unit_begin_s[-1] + profile.unit_time_s[-1])
    layers: list[Any] = []
    if shown_before(profile) and profile.unit_begin_s[0] > 0.0:
        layers += _bracket(unit, 0.0, float(profile.unit_begin_s[0]), profile.before)
    elif states[-1].unit > 1:
        warm_s = float(profile.unit_begin_s[states[-1].unit - 1])
        layers += _bracket(unit, 0.0, warm_s, f"warm-up: {quantity(warm_s, 's', 2)}")
    last_s = -math.inf
    shown = {state.unit: state for state in reversed(states)}
    for state in sorted(shown.values(), key=lambda each: each.unit):
        moment_s = float(profile.unit_begin_s[state.unit - 1])
        inside = state.channels.get(TOTAL)
        power = "" if inside is None else f": {inside.mean_w:.0f} W"
        if state.name == "in context":
            name = profile.kernel
        else:
            same = [other.name for other in states if other.unit == state.unit]
            name = f"{state_words(same[0])} ({' = '.join(same)})"
        flush = pixels * (span[1] - moment_s) < _LABEL_WIDTH
        close = pixels * (moment_s - last_s) < _LABEL_WIDTH * (2 if flush else 1)
        # If there is no room to the right, the label ends where the execution does.
        at_s, side = (end_s, "right") if flush else (moment_s, "left")
        row = {"t": unit.factor * at_s, "text": f"{name}{power}", "short": f"{state.name}{power}"}
        chart = alt.Chart(inline([row])).encode(x=alt.X("t:Q"), y=alt.YValue(_STATES_PX), text=alt.Text("text:N"))
        place = {"align": side, "baseline": "top", "dx": 0 if flush else 3, "dy": 16 if close and not flush else 0}
        layers += words(chart, "label", **place)
        last_s = moment_s
    return layers


def _bracket(unit: TimeUnit, begin_s: float, end_s: float, text: str) -> list[Any]:
    """A line over a stretch of time, named above it."""
    alt = altair()
    begin, end = unit.factor * begin_s, unit.factor * end_s
    row = {"t": begin, "end": end, "middle": 0.5 * (begin + end), "text": text}
    base = alt.Chart(inline([row]))
    line = base.mark_rule(style="curve", strokeWidth=1.6, strokeDash=[1, 0]).encode(
        x=alt.X("t:Q"), x2=alt.X2("end:Q"), y=alt.YValue(_BRACKET_PX)
    )
    label = base.encode(x=alt.X("middle:Q"), y=alt.YValue(_BRACKET_PX), text=alt.Text("text:N"))
    return [line, *words(label, "label", align="center", baseline="bottom", dy=-3)]


def _steps(profile: Profile, name: str, unit: TimeUnit, x: Any, y: Any, title: str, color: str | None) -> list[Any]:
    """Mean power of each unit as a step with its error band; black on components, whose dots have the colours."""
    alt = altair()
    channel = next(each for each in profile.channels if each.channel.name == name)
    number = min(len(channel.mean_w), len(profile.unit_begin_s))
    begin = unit.factor * profile.unit_begin_s[:number]
    end = unit.factor * (profile.unit_begin_s + profile.unit_time_s)[:number]
    values = [
        {
            "t": round(float(begin[index]), 5),
            "end": round(float(end[index]), 5),
            **with_error(channel.mean_w[index], channel.error_w[index]),
            "execution": index + 1,
        }
        for index in range(number)
    ]
    base = alt.Chart(inline(values))
    drawn: dict[str, Any] = {} if color is None else {"color": color}
    ink: dict[str, Any] = {"style": "curve", "strokeWidth": 1.4} if color is None else {"strokeWidth": 2.4}
    tooltip = tooltips({"execution:Q": unit_word(profile), "p:Q": f"{name}, W", "low:Q": "from", "high:Q": "to"})
    band = base.mark_rect(opacity=0.3, **drawn).encode(
        x=x, x2=alt.X2("end:Q"), y=alt.Y("low:Q", title=title), y2=alt.Y2("high:Q")
    )
    line = base.mark_rule(opacity=1, strokeDash=[1, 0], **ink, **drawn).encode(x=x, x2=alt.X2("end:Q"), y=y, tooltip=tooltip)
    return [band, line]


def _inside_lines(profile: Profile, unit: TimeUnit, x: Any, y: Any) -> list[Any]:
    """Total power inside SSE and SSP, if resolved."""
    alt = altair()
    layers = []
    for state in profile.states:
        inside = state.channels.get(TOTAL)
        if inside is None or not inside.resolved:
            continue
        begin, time = profile.unit_begin_s[state.unit - 1], profile.unit_time_s[state.unit - 1]
        values = points(unit, begin + inside.share * time, inside.power_w, 2)
        layers.append(alt.Chart(inline(values)).mark_line(color=FIT_COLOR, strokeWidth=2.2, opacity=1).encode(x=x, y=y))
    return layers
