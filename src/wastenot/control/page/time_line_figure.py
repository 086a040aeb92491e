"""A run over time: power and core clock, at the plan's clocks and at the default ones, and what was saved so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wastenot.control.page.story import applied_s
from wastenot.control.status import Event, Moment, Status, Summary
from wastenot.pages.figure import Figure, inline, layered, series_color, specification_of, tooltips
from wastenot.pages.formatting import percent, quantity
from wastenot.pages.narrow import NARROW_PANEL
from wastenot.pages.optional_imports import load

WIDTH = 915
PLAN, TUNED, DEFAULT = "plan's clocks", "settings tried, then the one held", "default clocks"
COLORS = {PLAN: "#2f6fde", DEFAULT: "#e08a00"}
_TUNED_COLORS = {TUNED: COLORS[PLAN], DEFAULT: COLORS[DEFAULT]}
_SAVED = "#0f9b8e"
_POWER_HEIGHT, _CLOCK_HEIGHT, _SAVED_HEIGHT = 220, 150, 150
_OUTSIDE = 0.004  # of the readings, at either end, may lie beyond a panel
_REACHED_MHZ = 10.0  # below the clock requested, up to which it counts as reached
_NEIGHBOURS_PX = 16  # below which the numbers of two events would touch
_SHOWN = ("stepped", "drift", "refused", "restored", "stopped", "note")


@dataclass(frozen=True, slots=True)
class Axis:
    """The time axis of a run: its unit, ``factor`` of which make a second, and its end in that unit."""

    unit: str
    factor: float
    end: float

    @classmethod
    def of(cls, seconds: float) -> Axis:
        """Seconds, minutes or hours, by the length of the run."""
        name, factor = ("s", 1.0) if seconds < 300.0 else ("min", 1 / 60) if seconds < 10_800.0 else ("h", 1 / 3600)
        return cls(name, factor, max(seconds * factor, 1e-9))

    def x(self, *, title: bool = True) -> Any:
        """The channel of the moments, ``t``."""
        alt = load("altair")
        return alt.X(
            "t:Q",
            title=f"time since the start, {self.unit}" if title else None,
            scale=alt.Scale(domain=[0.0, self.end], nice=False),
            axis=alt.Axis(tickCount=10, labels=title, grid=True),
        )


def subtitle(summary: Summary) -> str:
    """Of what a figure is, and where its numbers come from."""
    status = summary.status
    first = next(iter(status.gpus), None)
    comma = "" if status.tuning is None else ","
    return f"{status.workload} on {first.device if first else 'no GPU'}{comma} {how_run(status)} · {status.origin} numbers"


def how_run(status: Status) -> str:
    """How the job ran: under which plan, or tuned."""
    return f"under {Path(status.plan).name}" if status.tuning is None else "tuned while it ran"


def figure_of(summary: Summary, name: str, title: str, note: str, chart: Any = None) -> Figure:
    """A figure of a run; one without a chart says why in its note."""
    return Figure(f"applied-{name}", title, subtitle(summary), note, None if chart is None else specification_of(chart))


def time_line_figure(summary: Summary) -> Figure:
    """Power, core clock and saved energy of the first GPU, one above the other, with what happened as numbered lines."""
    moments, status = summary.time_line, summary.status
    title = "The run over time"
    if not moments:
        return figure_of(summary, "time-line", title, "The run ended before there was anything to draw.")
    events = [(number, each) for number, each in listed(status) if each.kind in _SHOWN]
    axis = Axis.of(max(status.elapsed_s, moments[-1].at_s, *(each.at_s for _, each in events), 0.0))
    note = f"Each dot is a reading of the first GPU. Level lines: requested clocks, which are ceilings{_below(moments)}. "
    if status.rehearsal is not None:
        note = (
            "Each dot is a reading of the first GPU, which is simulated and runs nothing of the program: its power is that "
            "of an idle GPU. Level lines: requested clocks. "
        )
    if status.proof.saved_j is not None:
        note += "Saved energy is an estimate and may fall; the bar at its end is the 95 % interval. "
    if events:
        note += "Numbered lines: events, listed below."
    return figure_of(summary, "time-line", title, note.strip(), _chart(summary, axis, events))


def _below(moments: Sequence[Moment]) -> str:
    """Why readings lie below the clocks requested, where many do."""
    held = [each for each in moments if each.target_core_mhz is not None and each.core_mhz is not None]
    below = [each for each in held if (each.core_mhz or 0.0) < (each.target_core_mhz or 0.0) - _REACHED_MHZ]
    if len(below) < 0.05 * len(held) or not held:
        return ""
    share = percent(len(below) / len(held), 0)
    return f": in {share} of the readings a power or thermal limit, or a pause, held the clock below"


def listed(status: Status) -> list[tuple[int, Event]]:
    """Events with their numbers; none where a run only started, was tuned and ended, which the page says elsewhere."""
    between = [each.kind for each in status.events if each.kind not in ("started", "stopped", "ended")]
    return [] if between == ["note"] * (status.tuning is not None) else _numbered(status.events)


def _numbered(events: Sequence[Event]) -> list[tuple[int, Event]]:
    """Events with their numbers, without the start at a setting right when the search for it ends: they are one."""
    pairs = zip((None, *events), events, strict=False)
    told = [each for before, each in pairs if before is None or each.kind != "started" or each.at_s > before.at_s]
    return list(enumerate(told, start=1))


def _chart(summary: Summary, axis: Axis, events: Sequence[tuple[int, Event]]) -> Any:
    alt = load("altair")
    last = summary.status.rungs - 1
    colors = COLORS if summary.status.tuning is None else _TUNED_COLORS
    rows = [_row(moment, axis, last, next(iter(colors))) for moment in summary.time_line]
    panels = [_power_panel(rows, axis, colors), _clock_panel(rows, axis, colors)]
    if any("saved" in row for row in rows):
        panels.append(_saved_panel(summary, rows, axis))
    since_s, _ = applied_s(summary.status)
    searched = [] if events or not since_s or summary.status.tuning is None else _search_end(axis, since_s)
    heights = (_POWER_HEIGHT, _CLOCK_HEIGHT, _SAVED_HEIGHT)
    drawn = [
        layered(*layers, *_event_lines(events, axis, numbers=index == 0), *searched[: 2 if index == 0 else 1]).properties(
            width=WIDTH, height=height
        )
        for index, (layers, height) in enumerate(zip(panels, heights, strict=False))
    ]
    return alt.vconcat(*drawn, spacing=16).resolve_scale(color="shared")


def _search_end(axis: Axis, at_s: float) -> list[Any]:
    """A line where the search for a setting ended, and its name above it."""
    alt = load("altair")
    chart = alt.Chart(inline([{"t": round(axis.factor * at_s, 5), "text": "the search ends"}])).encode(x=alt.X("t:Q"))
    text = chart.mark_text(style="small-label", dy=-7, baseline="bottom")
    return [chart.mark_rule(style="rule"), text.encode(y=alt.YValue(0), text=alt.Text("text:N"))]


def _row(moment: Moment, axis: Axis, last_rung: int, other: str) -> dict[str, object]:
    """A moment as a figure's row, at the default clocks or at the ``other``; what is not known is left out."""
    values: dict[str, object | None] = {
        "t": round(axis.factor * moment.at_s, 5),
        "power": None if moment.power_w is None else round(moment.power_w, 1),
        "core": moment.core_mhz,
        "target": moment.target_core_mhz,
        "arm": DEFAULT if moment.at_default or moment.rung == last_rung else other,
        "rung": moment.rung,
        "marker": moment.marker,
        "saved": moment.saved_j,
    }
    return {name: value for name, value in values.items() if value is not None}


def arm_color(colors: Mapping[str, str] = COLORS) -> Any:
    """A colour for the plan's clocks, and one for the default ones."""
    return series_color("arm:N", colors, columnPadding=22, symbolOpacity=1, symbolSize=60, labelLimit=300)


def _power_panel(rows: Sequence[dict[str, object]], axis: Axis, colors: Mapping[str, str]) -> list[Any]:
    alt = load("altair")
    read = [row for row in rows if "power" in row]
    return [
        alt.Chart(inline(read))
        .mark_circle(size=16 if len(read) < 1500 else 9, opacity=0.65, stroke=None, clip=True)
        .encode(
            x=axis.x(title=False),
            y=alt.Y("power:Q", title="power, W", scale=_most_of([float(str(row["power"])) for row in read])),
            color=arm_color(colors),
            tooltip=tooltips({"power:Q": "W", "t:Q": axis.unit, "marker:N": "at", "rung:Q": "rung", "arm:N": " "}),
        )
    ]


def _most_of(values: Sequence[float]) -> Any:
    """A scale for all values but a few at the ends, such as a GPU's power before its job has begun."""
    alt = load("altair")
    if not values:
        return alt.Scale(zero=False)
    ordered = sorted(values)
    cut = int(_OUTSIDE * len(ordered))
    low, high = ordered[cut], ordered[-1 - cut]
    margin = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    return alt.Scale(domain=[low - margin, high + margin], zero=False, nice=True)


def _clock_panel(rows: Sequence[dict[str, object]], axis: Axis, colors: Mapping[str, str]) -> list[Any]:
    """Clocks in effect as dots, those requested as short level lines, each until the next moment."""
    alt = load("altair")
    read = [row for row in rows if "core" in row]
    clocks = [float(str(row[name])) for row in rows for name in ("core", "target") if name in row]
    y = alt.Y("core:Q", title="core clock, MHz", scale=_most_of(clocks))
    asked: list[dict[str, object]] = []
    for row in rows:
        if asked and "end" not in asked[-1]:
            asked[-1]["end"] = row["t"]
        same = asked and asked[-1]["end"] == row["t"] and asked[-1]["core"] == row.get("target")
        if same:
            del asked[-1]["end"]
        elif "target" in row:
            asked.append({"t": row["t"], "core": row["target"]})
    if asked and "end" not in asked[-1]:
        asked[-1]["end"] = rows[-1]["t"]
    x = axis.x(title=not any("saved" in row for row in rows))
    dots = (
        alt.Chart(inline(read))
        .mark_circle(size=16 if len(read) < 1500 else 9, opacity=0.65, stroke=None, clip=True)
        .encode(
            x=x,
            y=y,
            color=arm_color(colors),
            tooltip=tooltips({"core:Q": "MHz in effect", "target:Q": "MHz requested", "t:Q": axis.unit, "marker:N": "at"}),
        )
    )
    lines = alt.Chart(inline(asked)).mark_rule(style="curve", strokeDash=[1, 0]).encode(x=x, x2=alt.X2("end:Q"), y=y)
    return [lines, dots] if asked else [dots]


def _saved_panel(summary: Summary, rows: Sequence[dict[str, object]], axis: Axis) -> list[Any]:
    alt = load("altair")
    estimate = summary.status.proof.saved_j
    known = [row for row in rows if "saved" in row]
    last = max(abs(float(str(row["saved"]))) for row in known)
    factor, unit = (1e-6, "MJ") if last >= 1e6 else (1e-3, "kJ") if last >= 1e3 else (1.0, "J")
    scaled = [{"t": row["t"], "saved": round(factor * float(str(row["saved"])), 5)} for row in known]
    x = axis.x()
    y = alt.Y("saved:Q", title=f"saved, {unit}", scale=alt.Scale(zero=True))
    line = (
        alt.Chart(inline(scaled))
        .mark_line(color=_SAVED, strokeWidth=2.2, interpolate="step-after")
        .encode(x=x, y=y, tooltip=tooltips({"saved:Q": f"{unit} saved", "t:Q": axis.unit}))
    )
    if estimate is None:
        return [line]
    ends = {"t": axis.end, "low": factor * estimate.low, "high": factor * estimate.high,
            "tip": f"{quantity(estimate.low, 'J', 3)} to {quantity(estimate.high, 'J', 3)}"}  # fmt: skip
    bar = (
        alt.Chart(inline([ends]))
        .mark_rule(style="interval", strokeWidth=3, xOffset=-2)
        .encode(x=x, y=alt.Y("low:Q", title=f"saved, {unit}"), y2=alt.Y2("high:Q"), tooltip=tooltips({"tip:N": "95 %"}))
    )
    return [line, bar]


def _event_lines(events: Sequence[tuple[int, Event]], axis: Axis, *, numbers: bool) -> list[Any]:
    """A line for each event; the first panel has their numbers above, as far as they do not touch."""
    if not events:
        return []
    alt = load("altair")
    at = [axis.factor * event.at_s for _, event in events]
    shown, shown_on_phones = (_apart([t / axis.end * width for t in at]) for width in (WIDTH, NARROW_PANEL))
    rows: list[dict[str, object]] = [
        {
            "t": round(t, 5),
            "number": str(number) if index in shown else "",
            "short": str(number) if index in shown_on_phones else "",
            "text": event.text,
            "kind": event.kind,
        }
        for index, (t, (number, event)) in enumerate(zip(at, events, strict=True))
    ]
    chart = alt.Chart(inline(rows))
    tooltip = tooltips({"number:N": "number", "kind:N": "what", "text:N": "details"})
    rules = chart.mark_rule(style="rule").encode(x=alt.X("t:Q"), tooltip=tooltip)
    if not numbers:
        return [rules]
    return [
        rules,
        chart.mark_text(style="small-label", dy=-7, baseline="bottom").encode(
            x=alt.X("t:Q"), y=alt.YValue(0), text=alt.Text("number:N")
        ),
    ]


def _apart(places_px: Sequence[float]) -> list[int]:
    """Indices of places that are far enough from the one before for a number."""
    kept: list[int] = []
    for index, place in enumerate(places_px):
        if not kept or place - places_px[kept[-1]] >= _NEIGHBOURS_PX:
            kept.append(index)
    return kept
