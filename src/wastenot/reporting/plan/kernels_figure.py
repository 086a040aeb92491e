"""The energy and time of each kernel, and what the plan does to them (paper, Fig. 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wastenot.analyses.plan_overview import KernelTotal, PlanOverview
from wastenot.reporting.figure import Figure, inline, name_axis, tooltips
from wastenot.reporting.formatting import change, fraction_of_whole, quantity, shortened
from wastenot.reporting.optional_imports import load
from wastenot.reporting.plan.plan_figure import plan_figure
from wastenot.setting import format_mhz

MOST_BARS = 48
_STEP = 21  # height of a bar with its margins, in pixels
_NAME_WIDTH, _ENERGY_WIDTH, _TIME_WIDTH = 230, 330, 270
_AXIS_OVER_BAR = 1.75  # length of the axis over the longest bar, which leaves room for the text after it


@dataclass(frozen=True, slots=True)
class _Bar:
    """One bar: a kernel, or the small kernels of a pass together."""

    name: str
    clocks: str
    members: tuple[KernelTotal, ...]

    @property
    def energy_j(self) -> tuple[float, float]:
        """At auto and with the plan."""
        return (
            math.fsum(kernel.base_energy_j for kernel in self.members),
            math.fsum(kernel.energy_j for kernel in self.members),
        )

    @property
    def time_s(self) -> tuple[float, float]:
        """At auto and with the plan."""
        return (
            math.fsum(kernel.base_time_s for kernel in self.members),
            math.fsum(kernel.time_s for kernel in self.members),
        )


def kernels_figure(overview: PlanOverview) -> Figure:
    """Bars for each kernel, pale at auto and strong with the plan, grouped by pass if passes are known."""
    passes = _grouped(overview.kernels)
    hidden = max(0, len(overview.kernels) - MOST_BARS)
    order = "by pass, in order of execution" if any(passes) else "largest energy first"
    note = (
        f"All calls of each kernel in one iteration, {order}. Pale: at default clocks (auto); strong: with the plan. Beside "
        "each bar: its fraction of the iteration at auto, and the change made by the plan. Clocks are memory / core in MHz."
    )
    if hidden:
        note += f" Shown are the {MOST_BARS} kernels that use the most energy; the other {hidden} are added together."
    return plan_figure(overview.plan, "kernels", "Where energy and time go", note, _chart(passes, overview))


def _grouped(kernels: Sequence[KernelTotal]) -> dict[str | None, list[_Bar]]:
    """Bars by pass; without passes, one group sorted by energy."""
    by_energy = sorted(range(len(kernels)), key=lambda index: -kernels[index].base_energy_j)
    kept = set(by_energy[:MOST_BARS])
    passes: dict[str | None, list[int]] = {}
    for index, kernel in enumerate(kernels):
        passes.setdefault(kernel.pass_name, []).append(index)
    if list(passes) == [None]:
        passes = {None: by_energy}
    bars: dict[str | None, list[_Bar]] = {}
    rest: list[KernelTotal] = []
    for name, members in passes.items():
        shown = [kernels[index] for index in members if index in kept]
        small = tuple(kernels[index] for index in members if index not in kept)
        if shown:
            bars[name] = [_Bar(kernel.name, _clocks(kernel), (kernel,)) for kernel in shown]
            if small:
                bars[name].append(_Bar(_others(len(small)), "", small))
        else:
            rest += small
    if rest:
        bars["other passes"] = [_Bar(_others(len(rest)), "", tuple(rest))]
    return bars


def _others(count: int) -> str:
    return f"{count} other kernel{'s' if count > 1 else ''}"


def _clocks(kernel: KernelTotal) -> str:
    setting = kernel.setting
    if setting.is_auto:
        return "auto"
    limit = "" if setting.power_limit_w is None else f", {setting.power_limit_w:g} W"
    return f"{format_mhz(setting.memory_mhz)} / {format_mhz(setting.core_mhz)}{limit}"


def _chart(passes: dict[str | None, list[_Bar]], overview: PlanOverview) -> Any:
    alt = load("altair")
    base = overview.plan.baseline
    bars = [bar for group in passes.values() for bar in group]
    energy_limit = _AXIS_OVER_BAR * 100 * max(max(bar.energy_j) for bar in bars) / base.energy_j
    time_limit = _AXIS_OVER_BAR * 100 * max(max(bar.time_s) for bar in bars) / base.time_s
    last = list(passes)[-1]
    rows = []
    for number, (name, group) in enumerate(passes.items()):
        values = [_row(index, bar, base.time_s, base.energy_j) for index, bar in enumerate(group)]
        first, lowest = number == 0, name == last
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
    shown_names = [shortened(str(row["name"]), 34) for row in values]
    sized = f"{what} of one iteration, % of auto"
    y = alt.Y("index:O", title=None, axis=name_axis(shown_names, _NAME_WIDTH) if names else None)
    x_axis = alt.Axis(labels=axis, ticks=False, domain=False, title=sized if axis else None, tickCount=5, labelBound=True)
    chart = alt.Chart(inline(values))
    tooltip = tooltips({"name:N": "kernel", "clocks:N": "memory / core", "energy_tip:N": "energy", "time_tip:N": "time"})

    def bar(state: str, size: int) -> Any:
        x = alt.X(f"{what}_{state}:Q", axis=x_axis, scale=alt.Scale(domain=[0, limit], nice=False))
        return chart.mark_bar(style=f"{state}-bar", height=size, cornerRadiusEnd=1.5).encode(x=x, y=y, tooltip=tooltip)

    text = chart.mark_text(style="small-label", align="left", dx=5).encode(
        x=alt.X(f"{what}_longest:Q"), y=y, text=f"{what}_text:N"
    )
    panel = alt.layer(bar("auto", 15), bar("plan", 7), text).properties(
        width=width, height=alt.Step(_STEP), view=alt.ViewBackground(stroke=None)
    )
    return panel.properties(title=_column_title(f"{what}: pale at auto, strong with the plan")) if top else panel


def _clock_column(values: list[dict[str, object]], *, top: bool) -> Any:
    alt = load("altair")
    column = (
        alt.Chart(inline(values))
        .mark_text(style="label", align="left", fontSize=11)
        .encode(y=alt.Y("index:O", axis=None), x=alt.value(0), text="clocks:N")
        .properties(width=110, height=alt.Step(_STEP), view=alt.ViewBackground(stroke=None))
    )
    return column.properties(title=_column_title("memory / core, MHz")) if top else column


def _column_title(text: str) -> Any:
    return load("altair").TitleParams(text, anchor="start", frame="group", fontSize=12, fontWeight="normal", offset=6)


def _row(index: int, bar: _Bar, base_time_s: float, base_energy_j: float) -> dict[str, object]:
    row: dict[str, object] = {"index": index, "name": bar.name, "clocks": bar.clocks}
    for what, (auto, plan), whole, unit in (
        ("energy", bar.energy_j, base_energy_j, "J"),
        ("time", bar.time_s, base_time_s, "s"),
    ):
        changed = change(plan / auto - 1, 1)
        row[f"{what}_auto"] = 100 * auto / whole
        row[f"{what}_plan"] = 100 * plan / whole
        row[f"{what}_longest"] = 100 * max(auto, plan) / whole
        row[f"{what}_text"] = f"{fraction_of_whole(auto / whole)}  ({changed})"
        row[f"{what}_tip"] = f"{quantity(auto, unit)} → {quantity(plan, unit)} ({changed})"
    return row
