"""Power over the time of a run: every reading, what was found of it, and where SSE and SSP are (FinGraV, Figs. 5 to 7)."""

from __future__ import annotations

from typing import Any

import numpy as np

from wastenot.arrays import FloatArray
from wastenot.devices.instrument import TOTAL
from wastenot.profiling.result import Profile
from wastenot.reporting.figure import Figure, inline
from wastenot.reporting.profile.marks import execution_marks, state_labels
from wastenot.reporting.profile.rows import (
    BLUE,
    FOUND_COLOR,
    MOST_POINTS,
    WIDTH,
    TimeUnit,
    altair,
    chosen_rows,
    color_of,
    figure_of,
    marks,
    span_of,
)
from wastenot.reporting.profile.words import channel_names, timed_channels, unit_word
from wastenot.reporting.words import quantity

_TOTAL_HEIGHT, _PARTS_HEIGHT = 330, 240
_GOLDEN, _OTHER, _FITTED = "reading of a golden run", "reading of another run", "found: means, and inside SSE and SSP"
_TOTAL_TITLE, _PARTS_TITLE = "total power, W", "power of components, W"
_MOST_BOUNDS = 70  # executions whose bounds are drawn
_MOST_OF_PART = 800
_WORDS = 0.16  # of the range of power, for words above it
_NARROW = 130  # pixels that a label needs


def run_figure(profile: Profile) -> Figure:
    """Total power, and that of the components under it."""
    span_s = span_of(profile)
    names = timed_channels(profile)
    shown = {
        name: chosen_rows(profile, name, span_s, most=MOST_POINTS if name == TOTAL else _MOST_OF_PART) for name in names
    }
    note = (
        "Each dot is a reading, at the middle of the time that it is the mean of; faint ones are of runs whose execution "
        f"time is not in the bin. Steps: mean power of each {unit_word(profile)} as found, its standard error as a band. "
        "After the last one come rest, and executions of longer runs. "
    )
    channel = profile.channels[0].channel
    if channel.span_s > float(profile.unit_time_s[-1]):
        if channel.lag_s:
            note += f"A reading follows power with a lag of {quantity(channel.lag_s, 's', 3)}, longer than "
        else:
            note += f"A reading is the mean over {quantity(channel.window_s, 's', 3)}, longer than "
        note += "an execution: it lies below where the window holds rest, and what was found undoes that. "
    states = [state for state in profile.states if state.name != "in context"]
    if states:
        note += "Before SSE the kernel warms up; from SSE on its time is the best, from SSP on its power is steady. "
    left = [f"{found - len(rows):,} of {found:,} of {name}" for name, (rows, found) in shown.items() if len(rows) < found]
    if left:
        note += f"So that the figure stays light, readings of some runs are left out: {', '.join(left)}. "
    levels = [name for name in channel_names(profile) if name not in names]
    if levels:
        note += f"Not drawn over time: {', '.join(levels)}, which averages over too long. "
    chart = _chart(profile, span_s, shown) if TOTAL in names else None
    if chart is None:
        note = "The sensor of total power averages over too long to be drawn over time; see the levels."
    return figure_of(profile, "profile-run", "Power over a run", note.strip(), chart)


def _chart(profile: Profile, span_s: tuple[float, float], shown: dict[str, tuple[Any, int]]) -> Any:
    alt = altair()
    unit = TimeUnit.of(span_s[1])
    x = alt.X(
        "t:Q",
        title=f"time from the first execution's begin, {unit.name}",
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
    golden = logged.golden[rows] == 1
    y = alt.Y("p:Q", title=_TOTAL_TITLE, scale=alt.Scale(domain=_room_for_words(profile, power), nice=False))
    readings = [
        {
            "t": round(float(unit.factor * t), 5),
            "p": round(float(p), 1),
            "kind": _GOLDEN if good else _OTHER,
            "run": int(run) + 1,
        }
        for t, p, good, run in zip(logged.moment_s[rows], power, golden, logged.run[rows], strict=True)
    ]
    look = marks(len(rows), MOST_POINTS)
    kinds = [_GOLDEN, _OTHER, _FITTED]
    dots = (
        alt.Chart(inline(readings))
        .mark_circle(size=look["size"], stroke=None)
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "kind:O",
                sort=kinds,
                title=None,
                scale=alt.Scale(domain=kinds, range=[BLUE, BLUE, FOUND_COLOR]),
                legend=alt.Legend(orient="top", columnPadding=22, symbolSize=60, labelLimit=400),
            ),
            opacity=alt.Opacity(
                "kind:O",
                sort=kinds,
                title=None,
                scale=alt.Scale(type="ordinal", domain=kinds, range=[look["opacity"], 0.3, 1.0]),
            ),
            tooltip=[
                alt.Tooltip("p:Q", title="W"),
                alt.Tooltip("t:Q", title=unit.name),
                alt.Tooltip("run:Q", title="run"),
                alt.Tooltip("kind:N", title=" "),
            ],
        )
    )
    fitted = _steps(profile, TOTAL, unit, x, y, _TOTAL_TITLE, FOUND_COLOR)
    fitted += _insides(profile, unit, x, y)
    return alt.layer(*execution_marks(profile, unit), dots, *fitted, *state_labels(profile, unit)).properties(
        width=WIDTH, height=_TOTAL_HEIGHT
    )


def _room_for_words(profile: Profile, power_w: FloatArray) -> list[float]:
    """The ends of the axis of total power: the words at the top hide nothing."""
    found = [
        inside.power_w for state in profile.states if (inside := state.channels.get(TOTAL)) is not None and inside.resolved
    ]
    means = next(found.mean_w for found in profile.channels if found.channel.name == TOTAL)
    every = np.concatenate([power_w, means, *found])
    reach = float(np.ptp(every))
    return [max(float(every.min()) - 0.06 * reach, 0.0), float(every.max()) + _WORDS * reach]


def _parts_panel(profile: Profile, unit: TimeUnit, x: Any, shown: dict[str, Any]) -> Any:
    alt = altair()
    logged, names = profile.logged, channel_names(profile)
    y = alt.Y("p:Q", title=_PARTS_TITLE, scale=alt.Scale(zero=True))
    dots = []
    for name, rows in shown.items():
        values = [
            {"t": round(float(unit.factor * t), 5), "p": round(float(p), 1), "golden": bool(good), "name": name}
            for t, p, good in zip(logged.moment_s[rows], logged.power_w[rows], logged.golden[rows], strict=True)
        ]
        dots += values
    parts = list(shown)
    look = marks(len(dots), MOST_POINTS)
    points = (
        alt.Chart(inline(dots))
        .mark_circle(size=look["size"], stroke=None)
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "name:N",
                title=None,
                sort=parts,
                scale=alt.Scale(domain=parts, range=[color_of(name, names) for name in parts]),
                legend=alt.Legend(orient="top", columnPadding=22, symbolOpacity=1, symbolSize=60),
            ),
            opacity=alt.condition("datum.golden", alt.value(0.6), alt.value(0.2)),
            tooltip=[alt.Tooltip("name:N", title=" "), alt.Tooltip("p:Q", title="W"), alt.Tooltip("t:Q", title=unit.name)],
        )
    )
    fitted = [layer for name in parts for layer in _steps(profile, name, unit, x, y, _PARTS_TITLE, None)]
    return alt.layer(*execution_marks(profile, unit), points, *fitted).properties(width=WIDTH, height=_PARTS_HEIGHT)


def _steps(profile: Profile, name: str, unit: TimeUnit, x: Any, y: Any, title: str, color: str | None) -> list[Any]:
    """Mean power of each unit as a step with its band; ink on components, whose dots have the colours."""
    alt = altair()
    found = next(found for found in profile.channels if found.channel.name == name)
    number = min(len(found.mean_w), len(profile.unit_begin_s))
    begin = unit.factor * profile.unit_begin_s[:number]
    end = unit.factor * (profile.unit_begin_s + profile.unit_time_s)[:number]
    values = [
        {
            "t": round(float(begin[place]), 5),
            "end": round(float(end[place]), 5),
            "p": round(float(found.mean_w[place]), 2),
            "low": round(float(found.mean_w[place] - found.error_w[place]), 2),
            "high": round(float(found.mean_w[place] + found.error_w[place]), 2),
            "execution": place + 1,
        }
        for place in range(number)
    ]
    base = alt.Chart(inline(values))
    drawn: dict[str, Any] = {} if color is None else {"color": color}
    style: dict[str, Any] = {"style": "curve"} if color is None else {}
    tooltip = [
        alt.Tooltip("execution:Q", title=unit_word(profile)),
        alt.Tooltip("p:Q", title=f"{name}, W"),
        alt.Tooltip("low:Q", title="from"),
        alt.Tooltip("high:Q", title="to"),
    ]
    band = base.mark_rect(opacity=0.3, **drawn).encode(x=x, x2="end:Q", y=alt.Y("low:Q", title=title), y2="high:Q")
    line = base.mark_rule(strokeWidth=2.4, opacity=1, strokeDash=[1, 0], **style, **drawn).encode(
        x=x, x2="end:Q", y=y, tooltip=tooltip
    )
    return [band, line]


def _insides(profile: Profile, unit: TimeUnit, x: Any, y: Any) -> list[Any]:
    """Total power inside the units that the profile is about, where it is known."""
    alt = altair()
    layers = []
    for state in profile.states:
        inside = state.channels.get(TOTAL)
        if inside is None or not inside.resolved:
            continue
        begin, time = profile.unit_begin_s[state.unit - 1], profile.unit_time_s[state.unit - 1]
        values = [
            {"t": round(float(unit.factor * (begin + share * time)), 5), "p": round(float(power), 2)}
            for share, power in zip(inside.share, inside.power_w, strict=True)
        ]
        layers.append(alt.Chart(inline(values)).mark_line(color=FOUND_COLOR, strokeWidth=2.2, opacity=1).encode(x=x, y=y))
    return layers
