"""Switching latency as tables, for a terminal or a page, as figures, and as a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from wastenot.core.wording import sentence
from wastenot.kernels.latency.design import NAMES, UNITS
from wastenot.pages.figure import Figure, inline, layered, name_axis, series_color, specification_of, tooltips
from wastenot.pages.formatting import SPACE, duration, number, quantity
from wastenot.pages.optional_imports import load
from wastenot.pages.page import Folded, Page
from wastenot.pages.panel import Line, Next, Panel
from wastenot.pages.table import Column, Listed, Row, Table, listing
from wastenot.pages.theme import CATEGORIES
from wastenot.planning.latency import CLEAR, Indistinct, Latency, SwitchCost, TargetLatency, What
from wastenot.planning.switching import SLOW_SWITCH_S


def targets_table(found: Latency) -> Table:
    """Latency by target, whatever the start."""

    def usual(one: TargetLatency) -> str:
        low, high = map(_ms, _usual_s(one))
        return f"{low.removesuffix(f'{SPACE}ms')} to {high}"

    fields: tuple[Listed[TargetLatency], ...] = (
        Listed("To", lambda one: one.target, text_of=lambda one: f"{one.target:,g}{SPACE}{UNITS[one.what]}", numeric=False),
        Listed("Typical", lambda one: one.seconds, _ms),
        Listed("±", lambda one: one.error_s, lambda seconds: _ms(seconds, 2)),
        Listed("Two of three take", lambda one: one.jitter, text_of=usual),
        Listed("Longest", lambda one: one.longest_s, _ms),
        Listed("Switches", lambda one: one.switches, "{:,}".format),
        Listed("Outliers", lambda one: one.outliers, "{:,}".format),
    )
    note = (
        "Typical: time from the request until it is in effect (geometric mean, outliers left out), with its standard "
        "error. Outliers: switches that took so much longer or shorter than the others that they are kept apart."
    )
    targets = [each for what in NAMES for each in found.of(what)]
    return listing("By target", targets, fields, note, group=lambda one: NAMES[one.what])


def _ms(seconds: float, digits: int = 3) -> str:
    """A time in the one unit of a table, whatever its size: ``0.178 ms``, ``2,650 ms``."""
    return f"{number(1e3 * seconds, digits)}{SPACE}ms"


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
        found_s = (pairs[start, target].seconds if (start, target) in pairs else None for target in values)
        rows.append(Row(None, (f"from {start:,g}", *cells), (start, *found_s)))
    columns = (Column(f"{UNITS[what]}"), *(Column(f"to {value:,g}", True) for value in values))
    note = "same: the workload cannot distinguish these two." if overlapping else None
    return Table(f"{NAMES[what].capitalize()}, by start and target", columns, tuple(rows), note)


def cost_line(cost: SwitchCost) -> str:
    """What a switch costs beyond waiting."""
    times = f"{cost.switches:,} switches of the {NAMES[cost.what]}"
    if cost.stall_s > CLEAR * cost.stall_error_s:
        stall = f"each stops kernels for {_about(cost.stall_s, cost.stall_error_s, 's')}"
    else:
        most_s = max(cost.stall_s, 0.0) + CLEAR * cost.stall_error_s
        stall = f"each stops kernels for at most {quantity(most_s, 's', 2)}"
    if cost.energy_j is None or cost.energy_error_j is None:
        return f"{times}: {stall}; the energy is unknown, since the device does not count energy"
    if abs(cost.energy_j) > CLEAR * cost.energy_error_j:
        return f"{times}: {stall} and uses {_about(cost.energy_j, cost.energy_error_j, 'J')} more"
    most_j = max(cost.energy_j, 0.0) + CLEAR * cost.energy_error_j
    return f"{times}: {stall} and uses at most {quantity(most_j, 'J', 2)} more"


def _about(value: float, error: float, unit: str) -> str:
    return f"{quantity(value, unit, 3)} ± {quantity(error, unit, 2)}"


def indistinct_line(each: Indistinct) -> str:
    """What could not be told apart."""
    return f"{NAMES[each.what]}: {each.reason}; switches between such values are not timed"


_WIDTH, _NAME_WIDTH, _STEP = 700, 170, 22
_KERNEL_S = 1e-3
"""Few kernels take longer: a switch that does cannot give each kernel its own clock."""
_COLORS: dict[What, str] = dict(zip(NAMES, CATEGORIES, strict=False))


def latency_figures(found: Latency) -> list[Figure]:
    """The times by target, from what kernels take up to the longest switch."""
    note = (
        f"Dots: typical; bars: two of three switches; ticks, and the numbers beside them: the longest. Green: up to "
        f"{quantity(_KERNEL_S, 's', 1)}, what most kernels take; passes (forward, backward, a serving step) often take "
        "tens of milliseconds. The time axis is logarithmic."
    )
    return [Figure("latency-targets", "Switching time by target", _subtitle(found), note, specification_of(_times(found)))]


def _times(found: Latency) -> Any:
    """A row for each target on a logarithmic axis, from the time that kernels take up to the longest switch."""
    alt = load("altair")
    targets = [each for what in NAMES for each in found.of(what)]
    names = [f"{NAMES[each.what]}, {each.target:,g}{SPACE}{UNITS[each.what]}" for each in targets]
    rows = []
    for index, each in enumerate(targets):
        low_s, high_s = _usual_s(each)
        rows.append(
            {
                "index": index, "what": NAMES[each.what], "ms": 1e3 * each.seconds, "low": 1e3 * low_s, "high": 1e3 * high_s,
                "longest": 1e3 * each.longest_s, "typical": quantity(each.seconds, "s", 3), "name": names[index],
                "usual": _range((low_s, high_s)), "most": quantity(each.longest_s, "s", 3), "switches": each.switches,
            }
        )  # fmt: skip
    ends = [0.1 * _KERNEL_S, *(each.longest_s for each in targets)]
    scale = alt.Scale(type="log", domain=[1e3 * min(ends), 1.3e3 * max(ends)], nice=False)
    title = "from the request until it is in effect, ms"
    axis = alt.Axis(values=[10.0**power for power in range(-1, 6)], format=",")
    x = alt.X("ms:Q", title=title, scale=scale, axis=axis)
    y = alt.Y("index:O", title=None, axis=name_axis(names, _NAME_WIDTH))
    color = series_color("what:N", {NAMES[what]: _COLORS[what] for what in NAMES if found.of(what)})
    color.legend = None
    tip = tooltips({"name:N": "target", "typical:N": "typical", "usual:N": "two of three", "most:N": "longest",
                    "switches:Q": "switches"})  # fmt: skip
    base = alt.Chart(inline(rows)).encode(y=y, color=color, tooltip=tip)
    kernels = alt.Chart(inline([{"low": 1e3 * min(ends), "high": 1e3 * _KERNEL_S, "text": "most kernels"}]))
    zone = kernels.mark_rect(style="good-region", tooltip=None).encode(
        x=alt.X("low:Q", title=title, scale=scale), x2=alt.X2("high:Q")
    )
    named = kernels.encode(x=alt.X("low:Q", title=title, scale=scale), y=alt.YValue(0), text=alt.Text("text:N"))
    return layered(
        zone,
        named.mark_text(style="good-label", align="left", baseline="bottom", dx=2, dy=-4),
        base.mark_rule(strokeWidth=5.0, opacity=0.4, strokeDash=[1, 0]).encode(
            x=alt.X("low:Q", title=title, scale=scale), x2=alt.X2("high:Q")
        ),
        base.mark_circle(size=64, opacity=1.0).encode(x=x),
        base.mark_tick(thickness=2.0, size=11).encode(x=alt.X("longest:Q", title=title, scale=scale)),
        base.mark_text(style="small-label", align="left").encode(x=alt.XValue(_WIDTH + 8), text=alt.Text("most:N")),
    ).properties(width=_WIDTH, height=alt.Step(_STEP))


def _usual_s(one: TargetLatency) -> tuple[float, float]:
    """What two of three switches take: from one standard deviation of the logarithm below the typical time to one above."""
    return one.seconds * math.exp(-one.jitter), one.seconds * math.exp(one.jitter)


def _subtitle(found: Latency) -> str:
    return f"{found.device} · {found.origin} numbers"


def latency_page(found: Latency) -> Page:
    """The page of measured switching latencies.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    kinds = [what for what in NAMES if found.of(what)]
    indistinct = list(dict.fromkeys(map(indistinct_line, found.indistinct)))
    first = found.of(kinds[0])
    timed = f"{sum(each.switches for each in first):,}"
    return Page(
        verb="switching latency",
        brand="switching latency",
        title=(found.model, f"as {found.device}"),
        origin=found.origin,
        effect=f"The {NAMES[kinds[0]]} took up to {_longest(first)} to switch: {_use(first)}",
        verdict=f"two of three of {timed} timed switches took {_usual_span(first)}; a longer one is possible",
        panels=[_panel(found, what, said=_use(first)) for what in kinds],
        next_step=Next(
            "Make plans with these times, with the study of a sweep in place of STUDY.db",
            ("wastenot kernel plan --study STUDY.db --latency LATENCY.json",),
        ),
        figures=latency_figures(found),
        tables=[],
        folded=Folded(
            "As tables",
            "by target, and typical times by start and target",
            tables=[("targets", targets_table(found)), *((what, starts_table(found, what)) for what in kinds)],
        ),
        about=_subtitle(found),
        device=found.device,
        made_from=[
            ("Measured", found.measured_at[:16].replace("T", " ") + " UTC"),
            ("Device time", duration(found.seconds)),
        ],
        cannot_tell=(*map(sentence, indistinct), *found.not_covered),
    )


def _panel(found: Latency, what: What, *, said: str) -> Panel:
    """A card of a clock or limit; what it is good for only where the headline has not ``said`` that."""
    targets = found.of(what)
    use = _use(targets)
    cost = next((cost_line(each) for each in found.costs if each.what == what), None)
    typical_s = [each.seconds for each in targets]
    lines = [
        Line("Two of three switches take", _usual_span(targets)),
        Line("Typical, by target", _range((min(typical_s), max(typical_s)))),
        Line("Switches timed", f"{sum(each.switches for each in targets):,}"),
        *([] if cost is None else [Line("Cost", cost)]),
    ]
    unit, values = UNITS[what], [each.target for each in targets]
    span = f"{values[0]:,g} to {values[-1]:,g}{SPACE}{unit}"
    text = f"from the request until it is in effect, for targets of {span}{'' if use == said else f': {use}'}."
    return Panel(NAMES[what].capitalize(), f"up to {_longest(targets)}", text, lines=tuple(lines))


def _use(targets: Sequence[TargetLatency]) -> str:
    """What a switch that takes so long is good for."""
    longest_s = max(each.seconds for each in targets)
    if longest_s <= _KERNEL_S:
        return "fast enough for a clock for each kernel"
    if longest_s >= SLOW_SWITCH_S:
        return "to be set once for a run"
    return "fast enough for passes longer than that, too slow for single kernels"


def _longest(targets: Sequence[TargetLatency]) -> str:
    return quantity(max(each.longest_s for each in targets), "s", 3)


def _usual_span(targets: Sequence[TargetLatency]) -> str:
    """What two of three switches take, over targets."""
    usual_s = [_usual_s(each) for each in targets]
    return _range((min(low for low, _ in usual_s), max(high for _, high in usual_s)))


def _range(ends_s: tuple[float, float]) -> str:
    """Two times with one unit where they share it: ``14.8 to 22.4 ms``."""
    low, high = (quantity(end, "s", 3) for end in ends_s)
    unit = SPACE + high.rpartition(SPACE)[2]
    return low if low == high else f"{low.removesuffix(unit)} to {high}"
