"""Switching latency as tables, for a terminal or a page, as figures, and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wastenot.core.wording import sentence
from wastenot.kernels.latency.design import NAMES, UNITS
from wastenot.pages.figure import Figure, inline, layered, specification_of, tooltips
from wastenot.pages.formatting import SPACE, duration, quantity
from wastenot.pages.optional_imports import load
from wastenot.pages.page import Page
from wastenot.pages.panel import Line, Next, Panel
from wastenot.pages.table import Column, Listed, Row, Table, listing
from wastenot.planning.latency import CLEAR, Indistinct, Latency, SwitchCost, TargetLatency, What


def targets_table(found: Latency) -> Table:
    """Latency by target, whatever the start."""
    fields: tuple[Listed[TargetLatency], ...] = (
        Listed("To", lambda one: one.target, text_of=lambda one: f"{one.target:g}{SPACE}{UNITS[one.what]}", numeric=False),
        Listed("Latency", lambda one: one.seconds, text_of=lambda one: quantity(one.seconds, "s", 3)),
        Listed("±", lambda one: one.error_s, text_of=lambda one: quantity(one.error_s, "s", 2)),
        Listed("Jitter", lambda one: one.jitter, text_of=lambda one: f"{100.0 * one.jitter:.0f}{SPACE}%"),
        Listed("Longest", lambda one: one.longest_s, text_of=lambda one: quantity(one.longest_s, "s", 3)),
        Listed("Switches", lambda one: one.switches, "{:,}".format),
        Listed("Outliers", lambda one: one.outliers, "{:,}".format),
    )
    note = (
        "Latency: typical time from the request until it is in effect (geometric mean, outliers left out), with its "
        "standard error. Jitter: standard deviation of its logarithm."
    )
    targets = [each for what in NAMES for each in found.of(what)]
    return listing("By target", targets, fields, note, group=lambda one: NAMES[one.what])


def starts_table(found: Latency, what: What) -> Table | None:
    """Latency by start (rows) and target (columns); ``None`` where there is nothing of the kind."""
    pairs = {(each.start, each.target): each for each in found.pairs if each.what == what}
    if not pairs:
        return None
    overlapping = {(each.start, each.target) for each in found.indistinct if each.what == what}
    values = sorted({value for pair in (*pairs, *overlapping) for value in pair if value is not None})
    rows = []
    for start in values:
        cells = []
        for target in values:
            pair = pairs.get((start, target))
            cells.append(quantity(pair.seconds, "s", 3) if pair else "same" if (start, target) in overlapping else "")
        rows.append(
            Row(None, (f"from {start:g}", *cells), (start, *(_seconds(pairs.get((start, target))) for target in values)))
        )
    columns = (Column(f"{UNITS[what]}"), *(Column(f"to {value:g}", True) for value in values))
    note = "same: the workload cannot distinguish these two." if overlapping else None
    return Table(f"{NAMES[what].capitalize()}, by start and target", columns, tuple(rows), note)


def _seconds(pair: TargetLatency | None) -> float | None:
    return None if pair is None else pair.seconds


def cost_line(cost: SwitchCost) -> str:
    """What a switch costs beyond waiting."""
    times = f"{cost.switches:,} switches of the {NAMES[cost.what]}"
    if cost.stall_s > CLEAR * cost.stall_error_s:
        stall = f"kernels pause for {_about(cost.stall_s, cost.stall_error_s, 's')}"
    else:
        most_s = max(cost.stall_s, 0.0) + CLEAR * cost.stall_error_s
        stall = f"kernels do not pause for more than {quantity(most_s, 's', 2)}"
    if cost.energy_j is None or cost.energy_error_j is None:
        return f"{times}: {stall} at each; the energy is unknown, since the device does not count energy"
    if abs(cost.energy_j) > CLEAR * cost.energy_error_j:
        return f"{times}: {stall} at each, which uses {_about(cost.energy_j, cost.energy_error_j, 'J')}"
    most_j = max(cost.energy_j, 0.0) + CLEAR * cost.energy_error_j
    return f"{times}: {stall} at each, which uses no more than {quantity(most_j, 'J', 2)}"


def _about(value: float, error: float, unit: str) -> str:
    return f"{quantity(value, unit, 3)} ± {quantity(error, unit, 2)}"


def indistinct_line(each: Indistinct) -> str:
    """What could not be told apart."""
    return f"{NAMES[each.what]}: {each.reason}; switches between such values are not timed"


_CELL = 64
_DARK = 0.5  # fraction of the range of colours from which on text is white


def latency_figures(found: Latency) -> list[Figure]:
    """A figure for each kind of switch that has at least two starts or targets."""
    figures = []
    for what in NAMES:
        pairs = [each for each in found.pairs if each.what == what]
        if len(pairs) > 1:
            figures.append(_figure(found, what, pairs))
    return figures


def _figure(found: Latency, what: What, pairs: list[TargetLatency]) -> Figure:
    title = f"Latency of the {NAMES[what]} by start and target"
    note = (
        "Typical time from the request until it is in effect, in milliseconds. Where columns differ, the target "
        "matters; where rows differ, the start does."
    )
    if any(each.what == what for each in found.indistinct):
        note += " Pairs without a colour cannot be distinguished."
    return Figure(f"latency-{what.replace('_', '-')}", title, _subtitle(found), note, specification_of(_chart(what, pairs)))


def _chart(what: What, pairs: list[TargetLatency]) -> Any:
    alt = load("altair")
    values = sorted({value for each in pairs for value in (each.start, each.target) if value is not None})
    high = max(each.seconds for each in pairs)
    rows = [
        {
            "start": f"{each.start:g}",
            "target": f"{each.target:g}",
            "ms": 1e3 * each.seconds,
            "text": f"{1e3 * each.seconds:.3g}",
            "error": 1e3 * each.error_s,
            "switches": each.switches,
            "outliers": each.outliers,
            "dark": each.seconds > _DARK * high,
        }
        for each in pairs
    ]
    order = [f"{value:g}" for value in values]
    side = _CELL * len(order)
    x = alt.X("target:O", title=f"to, {UNITS[what]}", sort=order, scale=alt.Scale(domain=order), axis=alt.Axis(labelAngle=0))
    y = alt.Y("start:O", title=f"from, {UNITS[what]}", sort=order[::-1], scale=alt.Scale(domain=order[::-1]))
    color = alt.Color("ms:Q", title="ms", scale=alt.Scale(scheme="blues", domain=[0.0, 1e3 * high]), legend=None)
    tips = tooltips(
        {
            "start:O": "from",
            "target:O": "to",
            "ms:Q": "ms",
            "error:Q": "± ms",
            "switches:Q": "switches",
            "outliers:Q": "outliers",
        }
    )
    chart = alt.Chart(inline(rows))
    cells = chart.mark_rect(stroke="white", strokeWidth=2).encode(x=x, y=y, color=color, tooltip=tips)
    ink = alt.condition("datum.dark", alt.value("white"), alt.value("#222222"))
    texts = chart.mark_text(fontSize=12).encode(x=x, y=y, text=alt.Text("text:N"), color=ink)
    return layered(cells, texts).properties(width=side, height=side)


def _subtitle(found: Latency) -> str:
    return f"{found.device} · {found.origin} numbers"


def latency_page(found: Latency) -> Page:
    """The page of measured switching latencies.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    kinds = [what for what in NAMES if found.of(what)]
    switches, longest_s = sum(each.switches for each in found.targets), max(each.longest_s for each in found.targets)
    indistinct = list(dict.fromkeys(map(indistinct_line, found.indistinct)))
    return Page(
        verb="switching latency",
        brand="switching latency",
        title=(found.model, f"as {found.device}"),
        origin=found.origin,
        effect=f"Switching takes {', '.join(f'{_range(found.of(what))} for the {NAMES[what]}' for what in kinds)}",
        verdict=f"typical times of {switches:,} switches by target; the longest took {quantity(longest_s, 's', 3)}",
        panels=[_panel(found, what) for what in kinds],
        next_step=Next(
            "Make plans with these times, from the study of a sweep",
            ("wastenot kernel plan --study STUDY.db --latency LATENCY.json",),
        ),
        figures=latency_figures(found),
        tables=[("targets", targets_table(found))],
        notes=[sentence(line) for line in indistinct],
        about=_subtitle(found),
        device=found.device,
        made_from=[("Measured", found.measured_at), ("Device time", duration(found.seconds))],
        cannot_tell=found.not_covered,
    )


def _panel(found: Latency, what: What) -> Panel:
    targets = found.of(what)
    cost = next((cost_line(each) for each in found.costs if each.what == what), None)
    lines = [
        Line("Longest", quantity(max(each.longest_s for each in targets), "s", 3)),
        Line("Jitter", f"{100.0 * max(each.jitter for each in targets):.0f}{SPACE}%"),
        *([] if cost is None else [Line("Cost", cost)]),
    ]
    unit, values = UNITS[what], [each.target for each in targets]
    return Panel(
        NAMES[what].capitalize(),
        _range(targets),
        f"from the request, for targets of {values[0]:g} to {values[-1]:g}{SPACE}{unit}.",
        lines=tuple(lines),
    )


def _range(targets: Sequence[TargetLatency]) -> str:
    """Typical latencies over targets: ``14.8 to 22.4 ms``."""
    low, high = (quantity(choose(each.seconds for each in targets), "s", 3) for choose in (min, max))
    unit = SPACE + high.rpartition(SPACE)[2]
    return low if low == high else f"{low.removesuffix(unit)} to {high}"
