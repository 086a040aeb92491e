"""Power inside SSE and SSP: readings of interest, and the estimate with its error."""

from __future__ import annotations

from typing import Any

import numpy as np

from wastenot.devices.instrument import TOTAL
from wastenot.pages.figure import Figure, inline, layered, series_color, tooltips
from wastenot.pages.formatting import quantity
from wastenot.profiles.page.description import channel_names, named, state_words, subject, timed_channels, unit_word
from wastenot.profiles.page.drawing import BLUE, FIT_COLOR, TimeUnit, altair, color_of, points, profile_figure, with_error
from wastenot.profiles.result import Profile, State, UnitPower

_WIDTH, _TOTAL_HEIGHT, _PARTS_HEIGHT = 435, 260, 210
_READING, _ESTIMATE = "reading", "estimate"


def inside_figure(profile: Profile) -> Figure:
    """A column for each state: total above, components below."""
    names = timed_channels(profile)
    states = _shown_states(profile)
    drawn = [state for state in states if TOTAL in names and TOTAL in state.channels]
    note = f"Estimated from all readings, those before and after the {unit_word(profile)} included. "
    total = profile.channels[0].channel
    if total.span_s > profile.states[-1].time_s:
        note += (
            f"Readings are means over {quantity(total.span_s, 's', 3)}, longer than the {unit_word(profile)}: they "
            "do not show power inside it and are left out. "
        )
    else:
        note += "Dots: readings; lines: estimates. "
    if any(not state.channels[TOTAL].resolved for state in drawn):
        note += "If the sensor does not resolve the shape, only the mean is drawn, with the error of power at any time. "
    chart = _chart(profile, drawn) if drawn else None
    if chart is None:
        note = "The sensor's averaging time is too long to resolve an execution; see the levels."
    return profile_figure(profile, "profile-inside", f"Power inside an {unit_word(profile)}", note.strip(), chart)


def _shown_states(profile: Profile) -> list[State]:
    """States, one for each distinct unit."""
    shown: dict[int, State] = {}
    for state in profile.states:
        shown.setdefault(state.unit, state)
    return list(shown.values())


def _chart(profile: Profile, states: list[State]) -> Any:
    alt = altair()
    parts = [name for name in timed_channels(profile) if name != TOTAL]
    columns = []
    width = _WIDTH if len(states) > 1 else 2 * _WIDTH + 40
    for column, state in enumerate(states):
        panels = [_panel(profile, state, [TOTAL], _TOTAL_HEIGHT, width, first=column == 0, title=_title(profile, state))]
        if any(name in state.channels for name in parts):
            title = _panel_title(f"{state.name}: components")
            panels.append(_panel(profile, state, parts, _PARTS_HEIGHT, width, first=column == 0, title=title))
        columns.append(panels)
    rows = [
        alt.hconcat(*(each[row] for each in columns), spacing=24).resolve_scale(y="shared", x="independent", color="shared")
        for row in range(len(columns[0]))
    ]
    return alt.vconcat(*rows, spacing=14).resolve_scale(color="independent", y="independent", x="independent")


def _title(profile: Profile, state: State) -> Any:
    same = [other.name for other in profile.states if other.unit == state.unit]
    inside = state.channels[TOTAL]
    known = "" if inside.resolved else ", shape not resolved"
    if state.name == "in context":
        what = subject(profile)
    else:
        what = f"{state_words(same[0])} ({' = '.join(same)}), {unit_word(profile).partition(' of ')[0]} {state.unit}"
        what = f"{what[:1].upper()}{what[1:]}"
    return _panel_title(f"{what}, mean {inside.mean_w:.0f} W{known}")


def _panel_title(text: str) -> Any:
    return altair().TitleParams(text, anchor="start", frame="group", fontSize=12.5, fontWeight="bold", offset=6)


def _panel(profile: Profile, state: State, names: list[str], height: int, width: int, *, first: bool, title: Any) -> Any:
    alt = altair()
    unit = TimeUnit.of(state.time_s)
    x = alt.X(
        "t:Q",
        title=f"time in the {unit_word(profile).partition(' of ')[0]}, {unit.name}",
        scale=alt.Scale(domain=[0.0, unit.factor * state.time_s], nice=False),
        axis=alt.Axis(tickCount=6),
    )
    total = names == [TOTAL]
    y_title = ("total power, W" if total else "power of components, W") if first else ""
    y = alt.Y("p:Q", title=y_title, scale=alt.Scale(zero=not total, nice=True))
    kinds = {_READING: BLUE, _ESTIMATE: FIT_COLOR}
    if not total:
        kinds = {named(name): color_of(name, channel_names(profile)) for name in names}
    elif _averaged(profile, state):
        kinds = {_ESTIMATE: FIT_COLOR}
    layers = []
    for name in names:
        if name in state.channels:
            layers += _layers(profile, state, name, unit, x, y, y_title, kinds)
    return layered(*layers).properties(width=width, height=height, title=title)


def _averaged(profile: Profile, state: State) -> bool:
    return profile.channels[0].channel.span_s > state.time_s


def _layers(
    profile: Profile, state: State, name: str, unit: TimeUnit, x: Any, y: Any, y_title: str, kinds: dict[str, str]
) -> list[Any]:
    alt = altair()
    inside: UnitPower = state.channels[name]
    at = unit.factor * state.time_s

    color = series_color("kind:N", kinds, columnPadding=22, symbolSize=60, symbolOpacity=1, labelLimit=400)

    def kind(what: str) -> str:
        return what if name == TOTAL else named(name)

    band = [
        {
            "t": round(float(at * share), 5),
            **with_error(power, error),
            "kind": kind(_ESTIMATE),
        }
        for share, power, error in zip(inside.share, inside.power_w, inside.error_w, strict=True)
    ]
    # Extend to the edges: the centres of the outer intervals are half an interval away from them.
    band = [band[0] | {"t": 0.0}, *band, band[-1] | {"t": at}]
    base = alt.Chart(inline(band))
    layers = []
    if not _averaged(profile, state):
        layers.append(_readings(profile, state, name, unit, kind(_READING)).encode(x=x, y=y, color=color))
    layers.append(
        base.mark_area(opacity=0.25).encode(x=x, y=alt.Y("low:Q", title=y_title), y2=alt.Y2("high:Q"), color=color)
    )
    layers.append(
        base.mark_line(strokeWidth=2.2).encode(
            color=color, x=x, y=y, tooltip=tooltips({"p:Q": f"{name}, W", "low:Q": "from", "high:Q": "to", "t:Q": unit.name})
        )
    )
    return layers


def _readings(profile: Profile, state: State, name: str, unit: TimeUnit, kind: str) -> Any:
    alt = altair()
    logged = profile.logged
    index = channel_names(profile).index(name)
    rows = np.flatnonzero((logged.channel == index) & (logged.golden == 1) & (logged.unit == state.unit))
    moment_s, kinds = logged.share[rows] * state.time_s, [kind] * len(rows)
    values = points(unit, moment_s, logged.power_w[rows], run=logged.run[rows] + 1, kind=kinds)
    return (
        alt.Chart(inline(values))
        .mark_circle(size=24 if len(rows) < 150 else 15, opacity=0.55, stroke=None)
        .encode(tooltip=[alt.Tooltip("p:Q", title=f"{name}, W"), alt.Tooltip("t:Q", title=unit.name), alt.Tooltip("run:Q")])
    )
