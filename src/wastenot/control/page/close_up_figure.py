"""The last iterations of a run close up: its passes, and the clocks requested for them, ahead of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wastenot.control.marker import ITERATION
from wastenot.control.page.time_line_figure import WIDTH, figure_of
from wastenot.control.status import Instant, Summary
from wastenot.pages.figure import Figure, inline, layered, series_color, tooltips
from wastenot.pages.formatting import quantity
from wastenot.pages.optional_imports import load
from wastenot.pages.theme import CATEGORIES

_ITERATIONS = 2
_STRIP, _CLOCKS, _ONE_CLOCK = 26, 130, 46
_FEW = 2  # levels, whose values the axis names
_VISIBLE = 0.002  # of the width
_NOTHING = "between"  # what runs from the begin of an iteration to its first pass


@dataclass(frozen=True, slots=True)
class Window:
    """Whole iterations: from when to when, and what happened within."""

    begins_s: float
    ends_s: float
    instants: tuple[Instant, ...]


def close_up_figure(summary: Summary) -> Figure:
    """Passes of the last two iterations at the plan's clocks, and the requests of clocks."""
    title = "Clocks set in two iterations"
    window = last_iterations(summary.close_up)
    if window is None:
        return figure_of(summary, "close-up", title, "No two iterations in a row ran at the plan's clocks.")
    if {each.marker for each in window.instants} <= {None, ITERATION}:
        return figure_of(summary, "close-up", title, "The job marks no passes within its iterations.")
    lasts = quantity(window.ends_s - window.begins_s, "s", 3)
    note = (
        f"The last two iterations at the plan's clocks, {lasts} of the first GPU. Below its passes: the clocks requested, "
        "sent early by the time a switch takes (dots); no line where the driver decides."
    )
    return figure_of(summary, "close-up", title, note, close_up_chart(window))


def last_iterations(instants: Sequence[Instant]) -> Window | None:
    """The last whole iterations in a row at the plan's clocks; ``None`` where there are none."""
    begins = [index for index, each in enumerate(instants) if each.marker == ITERATION]
    for last in range(len(begins) - 1, _ITERATIONS - 1, -1):
        first, end = begins[last - _ITERATIONS], begins[last]
        within = instants[first:end]
        if any(map(_requested, within)) and not any(each.at_default for each in within):
            return Window(instants[first].at_s, instants[end].at_s, tuple(instants[first:end]))
    return None


def _requested(instant: Instant) -> bool:
    return (instant.target_core_mhz, instant.target_memory_mhz, instant.target_power_limit_w) != (None, None, None)


def close_up_chart(window: Window) -> Any:
    """The passes of a window as bars, and below them each clock that is requested as a line over time."""
    alt = load("altair")
    factor, unit = (1e3, "ms") if window.ends_s - window.begins_s < 3.0 else (1.0, "s")
    domain = [0.0, factor * (window.ends_s - window.begins_s)]

    def x(*, title: bool) -> Any:
        axis = alt.Axis(tickCount=10, labels=title, grid=title)
        return alt.X("t:Q", title=f"time, {unit}" if title else None, scale=alt.Scale(domain=domain, nice=False), axis=axis)

    strip = _strip(window, factor, x(title=False), unit).properties(width=WIDTH, height=_STRIP)
    clocks = (
        ("target_core_mhz", "core, MHz"),
        ("target_memory_mhz", "memory, MHz"),
        ("target_power_limit_w", "power limit, W"),
    )
    # A clock that is requested once and for all is a flat line, which is only worth drawing where nothing else is.
    names = [each for each in clocks if len({getattr(instant, each[0]) for instant in window.instants}) > 1]
    names = names or [each for each in clocks if getattr(window.instants[0], each[0]) is not None] or [*clocks[:1]]
    panels = [
        _steps(window, name, title, factor, x(title=index == len(names) - 1), unit).properties(
            width=WIDTH, height=_CLOCKS if len({getattr(each, name) for each in window.instants}) > 1 else _ONE_CLOCK
        )
        for index, (name, title) in enumerate(names)
    ]
    return alt.vconcat(strip, *panels, spacing=8)


def _strip(window: Window, factor: float, x: Any, unit: str) -> Any:
    """A bar for each pass."""
    alt = load("altair")
    marked = [(each.at_s, each.marker) for each in window.instants if each.marker is not None]
    ends = [at_s for at_s, _ in marked[1:]] + [window.ends_s]
    rows = [
        {
            "t": round(factor * (at_s - window.begins_s), 4),
            "end": round(factor * (end_s - window.begins_s), 4),
            "pass": _NOTHING if name == ITERATION else name,
            "takes": quantity(end_s - at_s, "s", 3),
        }
        for (at_s, name), end_s in zip(marked, ends, strict=True)
        if end_s - at_s > _VISIBLE * (window.ends_s - window.begins_s)
    ]
    names = list(dict.fromkeys(str(row["pass"]) for row in rows))
    colors = {name: CATEGORIES[index % len(CATEGORIES)] for index, name in enumerate(names)}
    color = series_color("pass:N", colors, columnPadding=18, symbolSize=60)
    return (
        alt.Chart(inline(rows))
        .mark_bar(height=_STRIP - 6)
        .encode(
            x=x,
            x2=alt.X2("end:Q"),
            color=color,
            tooltip=tooltips({"pass:N": "pass", "takes:N": "takes", "t:Q": f"from, {unit}"}),
        )
    )


def _steps(window: Window, name: str, title: str, factor: float, x: Any, unit: str) -> Any:
    """A level line for each stretch of time with the same request, and a dot where it was made."""
    alt = load("altair")
    rows: list[dict[str, float | None]] = []
    for each in window.instants:
        t, clock = round(factor * (each.at_s - window.begins_s), 4), getattr(each, name)
        if rows and rows[-1]["mhz"] == clock:
            continue
        if rows:
            rows[-1]["end"] = t
        rows.append({"t": t, "mhz": clock})
    if rows:
        rows[-1]["end"] = round(factor * (window.ends_s - window.begins_s), 4)
    shown = [row for row in rows if row["mhz"] is not None]
    levels = sorted({row["mhz"] for row in shown if row["mhz"] is not None})
    axis = alt.Axis(values=levels) if len(levels) <= _FEW else alt.Axis()
    y = alt.Y("mhz:Q", title=title, scale=alt.Scale(zero=False, nice=True, padding=12), axis=axis)
    base = alt.Chart(inline(shown))
    lines = base.mark_rule(style="curve", strokeDash=[1, 0], strokeWidth=2.4).encode(
        x=x, x2=alt.X2("end:Q"), y=y, tooltip=tooltips({"mhz:Q": f"{title}, requested", "t:Q": f"at, {unit}"})
    )
    made = base.transform_filter("datum.t > 0").mark_point(style="dot").encode(x=x, y=y)
    return layered(lines, made)
