"""Where the plan saves: the joules and the time of each kernel, the largest saving first (paper, Fig. 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wastenot.core.wording import counted
from wastenot.kernels.page.plan_figure import REACH, if_instant, plan_figure
from wastenot.kernels.plan.overview import KernelTotal, PlanOverview
from wastenot.pages.figure import Figure, inline, layered, name_axis, series_color, tooltips
from wastenot.pages.formatting import change, clocks_text, percent, quantity, shortened
from wastenot.pages.optional_imports import load
from wastenot.pages.theme import CATEGORIES

MOST_BARS, _LEAST_BARS = 20, 8
_ENOUGH = 0.95  # of all joules saved or added, beyond which kernels are added together
_STEP = 24  # height of a bar with its margins, in pixels
_NAME_WIDTH, _ENERGY_WIDTH, _TIME_WIDTH, _CLOCKS_WIDTH = 200, 310, 270, 110
_ROOM = 0.55  # of the longest bar, for the text after it
_TIME_UNITS = ((1.0, "s"), (1e3, "ms"), (1e6, "µs"))
_SEVERAL, _NO_PASS = "several passes", "kernels"


@dataclass(frozen=True, slots=True)
class _Bar:
    """One bar: a kernel, or small kernels together."""

    name: str
    pass_name: str
    clocks: str
    members: tuple[KernelTotal, ...]

    @property
    def saved_j(self) -> float:
        """Energy that the plan saves of it."""
        return math.fsum(kernel.saved_j for kernel in self.members)

    @property
    def added_s(self) -> float:
        """Time that the plan adds to it."""
        return math.fsum(kernel.time_s - kernel.base_time_s for kernel in self.members)

    @property
    def base_j(self) -> float:
        """Energy at auto."""
        return math.fsum(kernel.base_energy_j for kernel in self.members)

    @property
    def base_s(self) -> float:
        """Time at auto."""
        return math.fsum(kernel.base_time_s for kernel in self.members)


def kernels_figure(overview: PlanOverview) -> Figure:
    """A bar for each kernel that matters, and one for all others together."""
    bars = _bars(overview.kernels)
    others = bars[-1].members if len(bars[-1].members) > 1 else ()
    note = (
        "All calls of each kernel in one iteration, by the numbers as measured; in brackets, per cent of the kernel's "
        "own energy and time."
    )
    if any(kernel.energy_error_j for kernel in overview.kernels):
        note += " Thin lines: 95 % intervals."
    if others:
        share = percent(bars[-1].saved_j / whole_j, 0) if (whole_j := math.fsum(bar.saved_j for bar in bars)) else "none"
        note += f" The last bar adds up the other {len(others)} kernels, {share} of the saving; the table has them all."
    title = f"Where the plan saves energy, and where it takes time{if_instant(overview.plan)}"
    return plan_figure(overview.plan, "kernels", title, note, _chart(bars, overview))


def _bars(kernels: Sequence[KernelTotal]) -> list[_Bar]:
    """The kernels that make up nearly all joules saved or added, most saved first; the others together at the end."""
    by_size = sorted(kernels, key=lambda kernel: (-abs(kernel.saved_j), -kernel.base_energy_j))
    enough = _ENOUGH * math.fsum(abs(kernel.saved_j) for kernel in kernels)
    shown, covered = 0, 0.0
    while shown < len(by_size) and shown < MOST_BARS and (covered < enough or shown < _LEAST_BARS):
        covered += abs(by_size[shown].saved_j)
        shown += 1
    if shown == len(by_size) - 1:  # one other kernel takes no more room than a bar for "others"
        shown += 1
    top = sorted(by_size[:shown], key=lambda kernel: (-kernel.saved_j, -kernel.base_energy_j))
    bars = [_Bar(kernel.name, kernel.pass_name or _NO_PASS, _clocks(kernel), (kernel,)) for kernel in top]
    rest = tuple(by_size[shown:])
    if rest:
        passes = {kernel.pass_name or _NO_PASS for kernel in rest}
        bars.append(_Bar(counted(len(rest), "other kernel"), passes.pop() if len(passes) == 1 else _SEVERAL, "", rest))
    return bars


def _clocks(kernel: KernelTotal) -> str:
    return "default" if kernel.setting.is_auto else clocks_text(kernel.setting)


def _chart(bars: Sequence[_Bar], overview: PlanOverview) -> Any:
    """Joules saved, time added and clocks, side by side."""
    alt = load("altair")
    factor, unit = _time_unit(bars)
    rows = _rows(bars, factor)
    names = [shortened(bar.name, 30) for bar in bars]
    y = alt.Y("index:O", title=None, axis=name_axis(names, _NAME_WIDTH))
    color = _color(bars)
    energy = _panel(rows, "saved", "energy saved per iteration, J", y, color)
    time = _panel(rows, "added", f"time added per iteration, {unit}", alt.Y("index:O", axis=None), color)
    plain = alt.ViewBackground(stroke=None)
    clocks = (
        alt.Chart(inline(rows))
        .mark_text(style="label", align="left", fontSize=11)
        .encode(y=alt.Y("index:O", axis=None), x=alt.XValue(0), text=alt.Text("clocks:N"))
        .properties(width=_CLOCKS_WIDTH, height=alt.Step(_STEP), view=plain, title=_column_title("core / memory, MHz"))
    )
    return alt.hconcat(
        energy.properties(width=_ENERGY_WIDTH, height=alt.Step(_STEP), view=plain, title=_column_title("energy saved")),
        time.properties(width=_TIME_WIDTH, height=alt.Step(_STEP), view=plain, title=_column_title("time added")),
        clocks,
        spacing=14,
    )


def _panel(rows: Sequence[dict[str, Any]], what: str, title: str, y: Any, color: Any) -> Any:
    """Bars from zero with intervals where they are known, and text after them."""
    alt = load("altair")
    low = min(0.0, *(row[f"{what}_low"] for row in rows))
    high = max(0.0, *(row[f"{what}_high"] for row in rows))
    reach = (high - low) or 1.0
    scale = alt.Scale(domain=[low - 0.02 * reach, high + _ROOM * reach], nice=False)
    axis = alt.Axis(ticks=False, domain=False, tickCount=5, labelBound=True)
    x = alt.X(f"{what}:Q", title=title, scale=scale, axis=axis)
    chart = alt.Chart(inline(rows))
    tooltip = tooltips(
        {"kernel:N": "kernel", "pass:N": "pass", "clocks:N": "core / memory", "saved_tip:N": "energy", "added_tip:N": "time"}
    )
    bar = chart.mark_bar(height=13, cornerRadiusEnd=1.5).encode(x=x, y=y, color=color, tooltip=tooltip)
    known = [row for row in rows if row[f"{what}_low"] < row[f"{what}_high"] and row["errors"]]
    intervals = [
        alt.Chart(inline(known))
        .mark_rule(style="interval")
        .encode(x=alt.X(f"{what}_from:Q", title=title, scale=scale, axis=axis), x2=alt.X2(f"{what}_to:Q"), y=y)
    ]
    zero = alt.Chart(inline([{"zero": 0.0}])).mark_rule(style="rule").encode(x=alt.X("zero:Q"))
    text = chart.mark_text(style="small-label", align="left", dx=5).encode(
        x=alt.X(f"{what}_high:Q", title=title, scale=scale, axis=axis), y=y, text=alt.Text(f"{what}_text:N")
    )
    return layered(zero, bar, *(intervals if known else []), text)


def _color(bars: Sequence[_Bar]) -> Any:
    """A colour for each pass, in the order of the bars; none of their own where there are no passes."""
    alt = load("altair")
    names = [name for name in dict.fromkeys(bar.pass_name for bar in bars) if name != _SEVERAL]
    if names == [_NO_PASS]:
        return alt.ColorValue(CATEGORIES[0])
    colors = {name: CATEGORIES[index % len(CATEGORIES)] for index, name in enumerate(names)}
    if any(bar.pass_name == _SEVERAL for bar in bars):
        colors[_SEVERAL] = "#7a8699"
    return series_color("pass:N", colors, symbolType="square", labelLimit=150)


def _column_title(text: str) -> Any:
    return load("altair").TitleParams(text, anchor="start", frame="group", fontSize=12, fontWeight="bold", offset=6)


def _time_unit(bars: Sequence[_Bar]) -> tuple[float, str]:
    """The unit in which the largest time is easy to read, and how many of it make a second."""
    most_s = max(abs(bar.added_s) for bar in bars)
    return next((each for each in _TIME_UNITS if most_s * each[0] >= 1.0), _TIME_UNITS[-1])


def _rows(bars: Sequence[_Bar], time_factor: float) -> list[dict[str, Any]]:
    rows = []
    for index, bar in enumerate(bars):
        energy_error, time_error = (
            _together([getattr(kernel, name) for kernel in bar.members]) for name in ("energy_error_j", "time_error_s")
        )
        saved_change, added_change = change(-bar.saved_j / bar.base_j, 1), change(bar.added_s / bar.base_s, 1)
        row: dict[str, Any] = {
            "index": index,
            "kernel": bar.name,
            "pass": bar.pass_name,
            "clocks": bar.clocks,
            "errors": energy_error is not None and time_error is not None,
            "saved_text": f"{quantity(bar.saved_j, 'J', 3)} ({saved_change})",
            "added_text": f"{'+' if bar.added_s > 0.0 else ''}{quantity(bar.added_s, 's', 3)} ({added_change})",
            "saved_tip": f"{quantity(bar.base_j, 'J')} → {quantity(bar.base_j - bar.saved_j, 'J')} ({saved_change})",
            "added_tip": f"{quantity(bar.base_s, 's')} → {quantity(bar.base_s + bar.added_s, 's')} ({added_change})",
        }
        row |= _span("saved", bar.saved_j, energy_error)
        row |= _span("added", time_factor * bar.added_s, time_error and time_factor * time_error)
        rows.append(row)
    return rows


def _together(errors: Sequence[float | None]) -> float | None:
    """The standard error of a sum; ``None`` where one is not known."""
    return None if any(error is None for error in errors) else math.hypot(*(error or 0.0 for error in errors))


def _span(what: str, value: float, error: float | None) -> dict[str, float]:
    """A bar, its interval, and from where to where both of them reach."""
    start, end = value - REACH * (error or 0.0), value + REACH * (error or 0.0)
    return {
        what: value,
        f"{what}_from": start,
        f"{what}_to": end,
        f"{what}_low": min(0.0, start),
        f"{what}_high": max(0.0, end),
    }
