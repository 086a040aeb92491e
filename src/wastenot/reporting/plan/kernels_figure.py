"""Kernels by share of energy and time, and what the plan does to each (paper, Fig. 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wastenot.reporting.figure import Figure, inline, make_figure
from wastenot.reporting.optional_imports import load
from wastenot.reporting.plan.data import KernelShare, ReportData
from wastenot.reporting.words import change, clock, part, quantity, shortened

MOST_BARS = 48
_STEP = 21  # height of a bar with the room around it, in pixels
_NAME_WIDTH, _ENERGY_WIDTH, _TIME_WIDTH = 230, 330, 270
_ROOM = 1.75  # axis over longest bar: the room for the words after it


@dataclass(frozen=True, slots=True)
class _Bar:
    """One bar: a kernel, or the small ones of a pass together."""

    name: str
    clocks: str
    members: tuple[KernelShare, ...]

    @property
    def energy_j(self) -> tuple[float, float]:
        """At auto and under the plan."""
        return (
            math.fsum(share.base_energy_j for share in self.members),
            math.fsum(share.energy_j for share in self.members),
        )

    @property
    def time_s(self) -> tuple[float, float]:
        """At auto and under the plan."""
        return (
            math.fsum(share.base_time_s for share in self.members),
            math.fsum(share.time_s for share in self.members),
        )


def kernels_figure(data: ReportData) -> Figure:
    """Bars for each kernel, pale at auto and strong under the plan; by pass where passes are known."""
    passes = _grouped(data.shares)
    hidden = max(0, len(data.shares) - MOST_BARS)
    order = "by pass, in order of execution" if any(passes) else "those of most energy first"
    note = (
        f"All calls of each kernel in one iteration, {order}. Pale: at auto; strong: under the plan. Beside each bar "
        "its share of the iteration at auto, and what the plan changes. Clocks are memory / core in MHz."
    )
    if hidden:
        note += f" The {MOST_BARS} kernels of most energy are shown; the other {hidden} are summed up."
    return make_figure(data.plan, "kernels", "Where energy and time go", note, _chart(passes, data))


def _grouped(shares: Sequence[KernelShare]) -> dict[str | None, list[_Bar]]:
    """Bars by pass; without passes one group by energy."""
    by_energy = sorted(range(len(shares)), key=lambda index: -shares[index].base_energy_j)
    kept = set(by_energy[:MOST_BARS])
    passes: dict[str | None, list[int]] = {}
    for index, share in enumerate(shares):
        passes.setdefault(share.pass_name, []).append(index)
    if list(passes) == [None]:
        passes = {None: by_energy}
    bars: dict[str | None, list[_Bar]] = {}
    rest: list[KernelShare] = []
    for name, members in passes.items():
        shown = [shares[index] for index in members if index in kept]
        small = tuple(shares[index] for index in members if index not in kept)
        if shown:
            bars[name] = [_Bar(share.name, _clocks(share), (share,)) for share in shown]
            if small:
                bars[name].append(_Bar(_others(len(small)), "", small))
        else:
            rest += small
    if rest:
        bars["other passes"] = [_Bar(_others(len(rest)), "", tuple(rest))]
    return bars


def _others(count: int) -> str:
    return f"{count} other kernel{'s' if count > 1 else ''}"


def _clocks(share: KernelShare) -> str:
    setting = share.setting
    if setting.is_auto:
        return "auto"
    limit = "" if setting.power_limit_w is None else f", {setting.power_limit_w:g} W"
    return f"{clock(setting.memory_mhz)} / {clock(setting.core_mhz)}{limit}"


def _chart(passes: dict[str | None, list[_Bar]], data: ReportData) -> Any:
    alt = load("altair")
    base = data.plan.baseline
    bars = [bar for group in passes.values() for bar in group]
    energy_limit = _ROOM * 100 * max(max(bar.energy_j) for bar in bars) / base.energy_j
    time_limit = _ROOM * 100 * max(max(bar.time_s) for bar in bars) / base.time_s
    last = list(passes)[-1]
    rows = []
    for index, (name, group) in enumerate(passes.items()):
        values = [_row(place, bar, base.time_s, base.energy_j) for place, bar in enumerate(group)]
        first, lowest = index == 0, name == last
        energy = _panel(values, "energy", energy_limit, _ENERGY_WIDTH, names=True, top=first, axis=lowest)
        time = _panel(values, "time", time_limit, _TIME_WIDTH, names=False, top=first, axis=lowest)
        row = alt.hconcat(energy, time, _clock_column(values, top=first), spacing=14)
        if name is not None:
            row = row.properties(
                title=alt.TitleParams(shortened(name, 60), anchor="start", fontSize=13, offset=4, frame="bounds")
            )
        rows.append(row)
    return rows[0] if len(rows) == 1 else alt.vconcat(*rows, spacing=12)


def _panel(
    values: list[dict[str, object]], what: str, limit: float, width: int, *, names: bool, top: bool, axis: bool
) -> Any:
    alt = load("altair")
    sized = f"{what} of one iteration, % of auto"
    y = alt.Y("place:O", title=None, axis=_name_axis(values) if names else None)
    x_axis = alt.Axis(labels=axis, ticks=False, domain=False, title=sized if axis else None, tickCount=5, labelBound=True)
    chart = alt.Chart(inline(values))
    tooltip = [
        alt.Tooltip("name:N", title="kernel"),
        alt.Tooltip("clocks:N", title="memory / core"),
        alt.Tooltip("energy_tip:N", title="energy"),
        alt.Tooltip("time_tip:N", title="time"),
    ]

    def bar(state: str, size: int) -> Any:
        x = alt.X(f"{what}_{state}:Q", axis=x_axis, scale=alt.Scale(domain=[0, limit], nice=False))
        return chart.mark_bar(style=f"{state}-bar", height=size, cornerRadiusEnd=1.5).encode(x=x, y=y, tooltip=tooltip)

    share = chart.mark_text(style="small-label", align="left", dx=5).encode(
        x=alt.X(f"{what}_longest:Q"), y=y, text=f"{what}_text:N"
    )
    panel = alt.layer(bar("auto", 15), bar("plan", 7), share).properties(
        width=width, height=alt.Step(_STEP), view=alt.ViewBackground(stroke=None)
    )
    return panel.properties(title=_column_title(f"{what}: pale at auto, strong under the plan")) if top else panel


def _name_axis(values: list[dict[str, object]]) -> Any:
    # Places, not names, are the axis, so that names may repeat and keep their order; the label looks its name up.
    alt = load("altair")
    names = [shortened(str(row["name"]), 34) for row in values]
    return alt.Axis(
        labelExpr=f"{expression(names)}[datum.value]",
        labelLimit=_NAME_WIDTH,
        minExtent=_NAME_WIDTH,
        maxExtent=_NAME_WIDTH,
        ticks=False,
        domain=False,
        grid=False,
        labelPadding=8,
        labelFontSize=12,
    )


def expression(names: list[str]) -> str:
    """A list of strings in Vega's expression language; nothing in a name can end its string."""
    quoted = ("".join(f"\\u{unit:04x}" for unit in _utf16(name)) for name in names)
    return "[" + ",".join(f'"{name}"' for name in quoted) + "]"


def _utf16(text: str) -> list[int]:
    encoded = text.encode("utf-16-be", errors="surrogatepass")
    return [int.from_bytes(encoded[place : place + 2], "big") for place in range(0, len(encoded), 2)]


def _clock_column(values: list[dict[str, object]], *, top: bool) -> Any:
    alt = load("altair")
    column = (
        alt.Chart(inline(values))
        .mark_text(style="label", align="left", fontSize=11)
        .encode(y=alt.Y("place:O", axis=None), x=alt.value(0), text="clocks:N")
        .properties(width=110, height=alt.Step(_STEP), view=alt.ViewBackground(stroke=None))
    )
    return column.properties(title=_column_title("memory / core, MHz")) if top else column


def _column_title(text: str) -> Any:
    return load("altair").TitleParams(text, anchor="start", frame="group", fontSize=12, fontWeight="normal", offset=6)


def _row(place: int, bar: _Bar, base_time_s: float, base_energy_j: float) -> dict[str, object]:
    row: dict[str, object] = {"place": place, "name": bar.name, "clocks": bar.clocks}
    for what, (auto, plan), whole, unit in (
        ("energy", bar.energy_j, base_energy_j, "J"),
        ("time", bar.time_s, base_time_s, "s"),
    ):
        changed = change(plan / auto - 1, 1)
        row[f"{what}_auto"] = 100 * auto / whole
        row[f"{what}_plan"] = 100 * plan / whole
        row[f"{what}_longest"] = 100 * max(auto, plan) / whole
        row[f"{what}_text"] = f"{part(auto / whole)}  ({changed})"
        row[f"{what}_tip"] = f"{quantity(auto, unit)} → {quantity(plan, unit)} ({changed})"
    return row
