"""The search for a setting on a running job: energy and time at each setting tried, and which of them is held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wastenot.control.page.story import bound_text
from wastenot.control.page.time_line_figure import WIDTH, figure_of
from wastenot.control.page.trials import GIVEN_UP, HELD, outcome_words, still_held, trial_words
from wastenot.control.status import Summary, Trial
from wastenot.pages.figure import Figure, inline, layered, series_color, tooltips, words
from wastenot.pages.formatting import change, changes
from wastenot.pages.optional_imports import load

_HEIGHT = 200
_GAP = 70  # between the column of core clocks and that of power limits, with its axis
_COLORS = {HELD: "#15803d", GIVEN_UP: "#b7791f", "not decided": "#2f6fde", "saves less": "#8592a3", "too slow": "#d6483b"}


def search_figure(summary: Summary) -> Figure:
    """Energy and time by core clock, and by power limit, of what was tried."""
    compared = [each for each in summary.trials if each.energy_change is not None]
    title = f"The search: {len(summary.trials)} settings tried on the job"
    if not compared:
        return figure_of(summary, "search", title, "No setting was compared with the default clocks.")
    gone = [each.outcome for each in summary.trials if each.energy_change is None]
    slow, other = gone.count("too slow"), len(gone) - gone.count("too slow")
    early = f" {slow} more were abandoned early, as too slow." if slow else ""
    early += f" {other} more could not be compared." if other else ""
    found = ". Of the others, the one of least energy is held" if still_held(summary) is not None else ""
    note = (
        f"Dots: settings; bars: 95 % intervals. Red line: the limit of {bound_text(summary.status)}; a setting whose "
        f"interval crosses it neither certainly keeps nor certainly breaks it (not decided){found}.{early}"
    )
    return figure_of(summary, "search", title, note, _chart(summary, compared))


def _chart(summary: Summary, compared: Sequence[Trial]) -> Any:
    alt = load("altair")
    found = (
        ("core clock, MHz", [(each.core_mhz, each) for each in compared if each.core_mhz is not None]),
        ("power limit, W", [(each.power_limit_w, each) for each in compared if each.power_limit_w is not None]),
    )
    knobs = [(title, placed) for title, placed in found if placed]
    width = WIDTH if len(knobs) == 1 else (WIDTH - _GAP) // 2
    columns = [
        alt.vconcat(
            _panel(summary, placed, "energy", title, width, first=True),
            _panel(summary, placed, "time", title, width),
            spacing=16,
        )
        for title, placed in knobs
    ]
    return (columns[0] if len(columns) == 1 else alt.hconcat(*columns, spacing=24)).resolve_scale(color="shared")


def _panel(
    summary: Summary, placed: Sequence[tuple[float, Trial]], name: str, title: str, width: int, *, first: bool = False
) -> Any:
    """One change by the value of a setting; the one that is held is named in the first."""
    alt = load("altair")
    rows, kept = [], still_held(summary) is not None
    for value, trial in placed:
        estimate = trial.energy_change if name == "energy" else trial.time_change
        assert estimate is not None
        ends = (round(100.0 * each, 4) for each in (estimate.value, estimate.low, estimate.high))
        row: dict[str, object] = dict(zip(("change", "low", "high"), ends, strict=True))
        rows.append(
            row
            | {"at": value, "outcome": outcome_words(trial, kept=kept), "setting": trial_words(trial)}
            | {"shown": f"{change(estimate.value)} ({changes((estimate.low, estimate.high))})"}
        )
    x = alt.X("at:Q", title=None if first else title, scale=alt.Scale(zero=False, nice=True, padding=14),
              axis=alt.Axis(labels=not first, tickCount=6))  # fmt: skip
    y_title = f"change in {name} per iteration, %"
    y = alt.Y("change:Q", title=y_title, scale=alt.Scale(zero=True, nice=True))
    base = alt.Chart(inline(rows))
    met = {outcome_words(each, kept=kept) for each in summary.trials if each.energy_change is not None}
    colors = {outcome: color for outcome, color in _COLORS.items() if outcome in met}
    tooltip = tooltips({"setting:N": "setting", "shown:N": name, "outcome:N": " "})
    bars = base.mark_rule(style="interval", strokeWidth=1.2, opacity=0.7).encode(
        x=x, y=alt.Y("low:Q", title=y_title), y2=alt.Y2("high:Q")
    )
    dots = base.mark_circle(size=80, opacity=1.0, stroke=None).encode(
        x=x, y=y, tooltip=tooltip, color=series_color("outcome:N", colors, columnPadding=22, symbolSize=70, symbolOpacity=1)
    )
    layers = [bars, dots]
    if name == "time":
        limit = alt.Chart(inline([{"limit": 100.0 * summary.status.max_slowdown}]))
        layers.insert(0, limit.mark_rule(color=_COLORS["too slow"], strokeWidth=1.6, strokeDash=[1, 0]).encode(y="limit:Q"))
    held = [row for row in rows if row["outcome"] == HELD]
    if first and held:
        named = alt.Chart(inline(held)).encode(x=x, y=y, text=alt.Text("setting:N"))
        layers += words(named, align="left", baseline="middle", dx=10)
    return layered(*layers).properties(width=width, height=_HEIGHT)
