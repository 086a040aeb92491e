"""What was known of a plan's time and energy while a run went on: estimates with intervals, against bound and plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wastenot.control.page.story import bound_text
from wastenot.control.page.time_line_figure import WIDTH, Axis, figure_of
from wastenot.control.page.trials import still_held, trial_words
from wastenot.control.status import Estimate, Moment, Status, Summary
from wastenot.pages.compared import Compared, compared_chart
from wastenot.pages.figure import Figure, inline, layered, tooltips
from wastenot.pages.formatting import SPACE, change, digits_within
from wastenot.pages.optional_imports import load

_HEIGHT = 170
_TIME, _ENERGY = "#2f6fde", "#0f9b8e"
_MARGIN = 1.5  # of the settled interval, shown above and below; early intervals may be wider than a page


def estimates_figure(summary: Summary) -> Figure:
    """Time and energy of an iteration against the default clocks, as known at each moment."""
    title = "Estimates over time"
    known = [moment for moment in summary.time_line if moment.time_change is not None or moment.energy_change is not None]
    if not known:
        return figure_of(summary, "estimates", title, "The run ended before there was an estimate.")
    bound = bound_text(summary.status)
    note = (
        f"Bands: 95 % intervals from the comparisons so far, at first very few. Red: the slowdown limit of {bound}. Dotted: "
        f"what the plan predicts.{' Nothing is known before the first blocks were compared.' if known[0].at_s else ''}"
    )
    return figure_of(summary, "estimates", title, note, _chart(summary.status, known))


def saving_figure(summary: Summary) -> Figure | None:
    """An iteration at the default clocks and at those applied; ``None`` where the saving is not known."""
    proof, held = summary.status.proof, still_held(summary)
    if proof.energy_change is None or proof.time_change is None:
        return None
    name = "plan's clocks" if held is None else trial_words(held)
    quantities = [_compared(what, found) for what, found in (("energy", proof.energy_change), ("time", proof.time_change))]
    note = f"An iteration at the default clocks and at {'the ' * (held is None)}{name}. "
    note += "Axes do not begin at 0. Lines: 95 % intervals."
    return figure_of(
        summary, "saving", "An iteration, before and after", note, compared_chart(("default clocks", name), quantities)
    )


def _compared(what: str, found: Estimate) -> Compared:
    value = 100.0 * (1.0 + found.value)
    digits = digits_within((found.low, found.high))
    return Compared(
        f"{what} of an iteration, % of that at the default clocks", 100.0, value,
        (f"100{SPACE}%", f"{value:.{digits}f}{SPACE}%"), change(found.value, digits),
        (100.0 * (1.0 + found.low), 100.0 * (1.0 + found.high)),
    )  # fmt: skip


def _chart(status: Status, known: Sequence[Moment]) -> Any:
    alt = load("altair")
    axis = Axis.of(max(status.elapsed_s, known[-1].at_s))
    time = _rows(known, "time_change", axis)
    energy = _rows(known, "energy_change", axis)
    panels = []
    if time:
        levels = [("limit", status.max_slowdown), ("predicted", status.predicted_time_change)]
        panels.append(_panel(time, "change in time per iteration, %", _TIME, levels, axis, title=not energy))
    if energy:
        levels = [("predicted", status.predicted_energy_change)]
        panels.append(_panel(energy, "change in energy per iteration, %", _ENERGY, levels, axis, title=True))
    return alt.vconcat(*(panel.properties(width=WIDTH, height=_HEIGHT) for panel in panels), spacing=16)


def _rows(known: Sequence[Moment], name: str, axis: Axis) -> list[dict[str, float]]:
    """A row for each stretch of time with the same estimate, in per cent."""
    rows: list[dict[str, float]] = []
    for moment in known:
        estimate = getattr(moment, name)
        if estimate is None:
            continue
        t = round(axis.factor * moment.at_s, 5)
        row = {"t": t, "value": 100 * estimate.value, "low": 100 * estimate.low, "high": 100 * estimate.high}
        row = {key: round(value, 4) for key, value in row.items()}
        if rows:
            rows[-1]["end"] = t
        if not rows or any(rows[-1][key] != row[key] for key in ("value", "low", "high")):
            rows.append(row)
    if rows:
        rows[-1]["end"] = axis.end
    return rows


def _panel(
    rows: Sequence[dict[str, float]], name: str, color: str, levels: Sequence[tuple[str, float]], axis: Axis, *, title: bool
) -> Any:
    alt = load("altair")
    marked = [row["value"] for row in rows] + [100 * level for _, level in levels]
    reach = _MARGIN * (rows[-1]["high"] - rows[-1]["low"])
    y_scale = alt.Scale(domain=[min(marked) - reach, max(marked) + reach], zero=False, nice=True)
    x, y = axis.x(title=title), alt.Y("value:Q", title=name, scale=y_scale)
    base = alt.Chart(inline(rows))
    tooltip = tooltips({"value:Q": name, "low:Q": "from", "high:Q": "to", "t:Q": axis.unit})
    band = base.mark_rect(color=color, opacity=0.22, clip=True).encode(
        x=x, x2=alt.X2("end:Q"), y=alt.Y("low:Q", title=name, scale=y_scale), y2=alt.Y2("high:Q"), tooltip=tooltip
    )
    line = base.mark_rule(color=color, strokeWidth=2.2, strokeDash=[1, 0], clip=True).encode(x=x, x2=alt.X2("end:Q"), y=y)
    lines = [band, line]
    for what, level in levels:
        rule = alt.Chart(inline([{"value": 100 * level, "what": what}]))
        drawn: dict[str, Any] = (
            {"style": "rule"} if what == "predicted" else {"color": "#d6483b", "strokeWidth": 1.6, "strokeDash": [1, 0]}
        )
        lines.append(rule.mark_rule(**drawn).encode(y=y, tooltip=tooltips({"what:N": " ", "value:Q": "%"})))
    return layered(*lines)
