"""What natural clocks show: time, power and energy by clock, what kernels lose, where joules go, clocks after heavy work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wastenot.core.wording import counted
from wastenot.kernels.natural.curves import KernelCurve
from wastenot.kernels.natural.overview import BOUNDS, CapPlan, KernelAtNaturalClocks, Loss, NaturalOverview, Wake
from wastenot.kernels.natural.whole import under_each_cap
from wastenot.pages.compared import compared_chart, compared_iteration
from wastenot.pages.figure import Figure, inline, layered, name_axis, series_color, specification_of, tooltips
from wastenot.pages.formatting import (
    SPACE,
    change,
    digits_within,
    fraction_of_whole,
    megahertz,
    percent,
    quantity,
    shortened,
)
from wastenot.pages.optional_imports import load
from wastenot.pages.theme import CATEGORIES

LOSS_NAMES: dict[Loss, str] = {
    "nothing": "loses almost no time",
    "some": "loses some time",
    "all": "as much time as clock",
    "unknown": "hardly moved",
}
LOSS_COLORS = dict(zip(LOSS_NAMES.values(), ("#0f9b8e", "#e08a00", "#d6483b", "#7a8699"), strict=True))
_WIDTH, _HEIGHT, _NAME_WIDTH, _LOSS_WIDTH, _STEP = 285, 270, 250, 560, 17
_POINTS = 24
_VISIBLE = 0.01  # of the change of the clock, below which an interval is hidden by its dot
_EACH, _EACH_COLOR = "each kernel", "#aab4c0"
_WHOLE, _WHOLE_COLOR = "all, under one cap", "#7c5cff"


def subtitle(overview: NaturalOverview, *, of_caps: bool = False) -> str:
    """What the numbers are of: measured or simulated, and what is expected of caps from these."""
    return f"{overview.workload} on {overview.device} · {'expected from ' if of_caps else ''}{overview.origin} numbers"


def saving_figure(overview: NaturalOverview) -> Figure | None:
    """An iteration at the default clocks and under the cap of the headline; ``None`` where no cap saves anything."""
    plan = _of_one_cap(overview)
    if plan is None or plan.energy_change >= 0.0:
        return None
    digits, name = digits_within(plan.energy_change_interval), f"cap {plan.cap_mhz:,.0f}{SPACE}MHz"
    changed = plan.energy_change, plan.time_change
    before = overview.whole.default
    quantities = compared_iteration(before.energy_j, before.time_s, changed, plan.energy_change_interval)
    note = f"An iteration at the default clocks and with a {name.replace('cap', 'cap of', 1)}. Axes do not begin at 0."
    note += " Line: the 95 % interval." if plan.energy_change_interval is not None else ""
    title = f"What one cap would save: {percent(-plan.energy_change, digits)}"
    return Figure(
        "natural-saving", title, subtitle(overview, of_caps=True), note,
        specification_of(compared_chart(("default clocks", name), quantities)),
    )  # fmt: skip


def _of_one_cap(overview: NaturalOverview) -> CapPlan | None:
    """The plan of the headline: one cap for everything."""
    plans = [plan for plan in overview.plans if plan.granularity == "iteration" and plan.max_slowdown == BOUNDS[1]]
    return next((plan for plan in plans if plan.cap_mhz is not None), None)


def curves_figure(overview: NaturalOverview) -> Figure:
    """Time, power and energy of every kernel and of all together by clock, each against its own at its own clock."""
    note = "Thin: each kernel, at the clocks at which it was seen."
    if any(each.limited and each.high_mhz > each.auto_mhz for each in overview.kernels):
        note += " Power and energy beyond 100 %: at clocks that the power limit does not allow a kernel by default."
    whole = _whole_rows(overview)
    if whole:
        note = (
            f"Thick: a whole iteration under one cap, the highest core clock allowed; ring: the cap of the headline. {note}"
        )
        note += " Below the clocks at which a kernel was seen, its curve is extrapolated."
    colors = {_EACH: _EACH_COLOR} | ({_WHOLE: _WHOLE_COLOR} if whole else {})
    rows = [row | {"line": _EACH} for each in overview.kernels for row in _curve_rows(overview.curves[each.kernel], each)]
    plan = _of_one_cap(overview)
    return Figure(
        "natural-curves",
        "Time, power and energy by clock",
        subtitle(overview),
        note,
        specification_of(_curves_chart([*rows, *whole], colors, plan if whole else None)),
    )


def _whole_rows(overview: NaturalOverview) -> list[dict[str, Any]]:
    """A whole iteration under one cap; the caps of plans are among these."""
    changes = 1.0 + under_each_cap(overview.whole)
    rows = []
    for mhz, (time, energy) in zip(overview.whole.costs.core_mhz.tolist(), changes.tolist(), strict=True):
        of = {"time": time, "power": energy / time, "energy": energy}
        tips: dict[str, object] = {f"{name}_tip": change(each - 1.0, 1) for name, each in of.items()}
        rows.append({"kernel": _WHOLE, "line": _WHOLE, "loses": "", **_at_clock(mhz, time, of["power"]), **tips})
    return rows


def _at_clock(mhz: float, time: float, power: float) -> dict[str, object]:
    """A clock, and what time, power and energy are there, of those at the default clocks."""
    shares = {"time": 100.0 * time, "power": 100.0 * power, "energy": 100.0 * time * power}
    return {"mhz": mhz, **shares, "mhz_tip": f"{mhz:,.0f} MHz"}


def _curves_chart(rows: Sequence[dict[str, object]], colors: dict[str, str], plan: CapPlan | None) -> Any:
    """Panels of time, power and energy, side by side; what the plan of one cap does is ringed, and stands above."""
    alt = load("altair")
    rings = [] if plan is None else [row for row in rows if row["line"] == _WHOLE and row["mhz"] == plan.cap_mhz]
    changed = {} if plan is None or not rings else {
        "time": plan.time_change,
        "power": (1.0 + plan.energy_change) / (1.0 + plan.time_change) - 1.0,
        "energy": plan.energy_change,
    }  # fmt: skip
    x = alt.X(
        "mhz:Q", title="core clock, MHz", scale=alt.Scale(zero=False, nice=False, padding=6), axis=alt.Axis(tickCount=6)
    )
    base = alt.Chart(inline(rows)).encode(
        x=x,
        color=series_color("line:N", colors, columns=len(colors)),
        detail=alt.Detail("kernel:N"),
        tooltip=tooltips(
            {
                "kernel:N": "kernel",
                "loses:N": "at a lower clock",
                "mhz_tip:N": "clock",
                "time_tip:N": "time",
                "power_tip:N": "power",
                "energy_tip:N": "energy",
            }
        ),
    )
    thick = alt.condition(f"datum.line == '{_WHOLE}'", alt.value(4.0), alt.value(1.2))
    panels = []
    for what in ("time", "power", "energy"):
        y = alt.Y(f"{what}:Q", title=f"{what}, % of that at the default clocks", scale=alt.Scale(zero=False))
        ring = alt.Chart(inline(rings)).mark_point(size=150, strokeWidth=2.4, color=_WHOLE_COLOR).encode(x=x, y=y)
        lines = base.mark_line(opacity=0.8).encode(y=y, strokeWidth=thick)
        panel = layered(lines, *([ring] if rings else [])).properties(width=_WIDTH, height=_HEIGHT)
        if plan is not None and what in changed:
            text = f"{what} {change(changed[what], 1)} at {plan.cap_mhz:,.0f}{SPACE}MHz"
            panel = panel.properties(title=alt.TitleParams(text, fontSize=13, fontWeight="normal", offset=6))
        panels.append(panel)
    return alt.hconcat(*panels, spacing=22)


def _curve_rows(curve: KernelCurve, kernel: KernelAtNaturalClocks) -> list[dict[str, object]]:
    clocks = np.linspace(curve.core_mhz[0], curve.core_mhz[-1], _POINTS)
    auto = min(max(curve.auto.core_mhz, float(clocks[0])), float(clocks[-1]))
    time, power = curve.time_at(clocks), curve.power_at(clocks)
    time_ratio, power_ratio = time / curve.time_at(auto), power / curve.power_at(auto)
    return [
        {
            "kernel": curve.kernel,
            "loses": LOSS_NAMES[kernel.loses],
            **_at_clock(mhz, t, p),
            "time_tip": f"{quantity(seconds, 's')} ({change(t - 1.0, 1)})",
            "power_tip": f"{watts:.0f} W ({change(p - 1.0, 1)})",
            "energy_tip": f"{quantity(seconds * watts, 'J')} ({change(t * p - 1.0, 1)})",
        }
        for mhz, t, p, seconds, watts in zip(
            *(each.tolist() for each in (clocks, time_ratio, power_ratio, time, power)), strict=True
        )
    ]


def loss_figure(overview: NaturalOverview) -> Figure:
    """How much of a lower clock each kernel loses: from nothing to all of it, with 95 % intervals."""
    kernels = sorted(
        (each for each in overview.kernels if each.loses != "unknown"), key=lambda each: (each.slope, each.kernel)
    )
    title, stem = "How much time each kernel loses at a lower clock", "natural-losses"
    if not kernels:
        return Figure(stem, title, subtitle(overview), "No kernel was seen at clocks far enough apart.", None)
    widest = max(0.5 * (each.slope_interval[1] - each.slope_interval[0]) for each in kernels)
    bars = (
        "Bars: 95 % intervals"
        if widest > _VISIBLE
        else f"95 % intervals are at most ±{SPACE}{percent(widest, 1)}, within the dots"
    )
    note = (
        f"0: a lower clock costs no time. 100: time is inversely proportional to the clock. {bars}. Beside each: a call "
        "at the lowest clock seen, compared with the default clocks."
    )
    return Figure(stem, title, subtitle(overview), note, specification_of(_loss_chart(kernels, _colors_in(overview))))


def _loss_chart(kernels: Sequence[KernelAtNaturalClocks], colors: dict[str, str]) -> Any:
    """A dot with its interval for each kernel, names at the left."""
    alt = load("altair")
    rows = [_loss_row(index, each) for index, each in enumerate(kernels)]
    names = name_axis([shortened(each.kernel, 36) for each in kernels], _NAME_WIDTH)
    y = alt.Y("index:O", title=None, axis=names)
    scale = alt.Scale(domain=[min(-0.05, *(each.slope for each in kernels)), max(1.1, *(each.slope for each in kernels))])
    lost = "time lost per clock lost, %"
    percents = alt.Axis(labelExpr="format(100 * datum.value, 'd')", tickCount=6)
    x = alt.X("slope:Q", title=lost, scale=scale, axis=percents)
    chart = alt.Chart(inline(rows))
    color = series_color("loses:N", colors)
    tooltip = tooltips(
        {
            "kernel:N": "kernel",
            "range:N": "seen at",
            "slope_tip:N": "loses",
            "time_tip:N": "time at the lowest",
            "energy_tip:N": "energy at the lowest",
            "share_tip:N": "of the energy",
        }
    )
    bars = chart.mark_rule(strokeWidth=2.2, opacity=0.6, clip=True, strokeDash=[1, 0]).encode(
        x=alt.X("low:Q", title=lost, scale=scale), x2=alt.X2("high:Q"), y=y, color=color, tooltip=tooltip
    )
    dots = chart.mark_circle(size=64, opacity=1.0, clip=True).encode(x=x, y=y, color=color, tooltip=tooltip)
    text = chart.mark_text(style="small-label", align="left").encode(
        x=alt.XValue(_LOSS_WIDTH + 8), y=y, text=alt.Text("text:N")
    )
    return layered(bars, dots, text).properties(width=_LOSS_WIDTH, height=alt.Step(_STEP))


def _loss_row(index: int, kernel: KernelAtNaturalClocks) -> dict[str, object]:
    low, high = kernel.slope_interval
    seen = f"{kernel.low_mhz:,.0f} to {kernel.high_mhz:,.0f} MHz"
    return {
        "index": index,
        "kernel": kernel.kernel,
        "short": f"{change(kernel.energy_at_low, 0)} energy",
        "loses": LOSS_NAMES[kernel.loses],
        "slope": kernel.slope,
        "low": low,
        "high": high,
        "range": seen,
        "slope_tip": f"{percent(kernel.slope, 0)} ({percent(low, 0)} to {percent(high, 0)})",
        "time_tip": change(kernel.time_at_low, 1),
        "energy_tip": change(kernel.energy_at_low, 1),
        "share_tip": percent(kernel.energy_share, 1),
        "text": f"{change(kernel.energy_at_low, 0)} energy, {change(kernel.time_at_low, 0)} time, {kernel.low_mhz:,.0f} MHz",
    }


def _colors_in(overview: NaturalOverview) -> dict[str, str]:
    there = {LOSS_NAMES[each.loses] for each in overview.kernels}
    return {name: color for name, color in LOSS_COLORS.items() if name in there}


_MOST_BARS = 40
_JOULES_WIDTH, _JOULES_STEP = 560, 19
_KEPT, _SAVED = "left with the caps", "saved by them"
_COLORS = {_KEPT: "#2f6fde", _SAVED: "#0f9b8e"}


def joules_figure(overview: NaturalOverview) -> Figure:
    """A bar for each kernel: the energy of all its calls in an iteration, and what the plan of caps saves of it."""
    plan = overview.plan
    lines = []
    for row in plan.assignments:
        used = row.count * row.energy_j
        lines.append((row.kernel, used / (1.0 + row.energy_change), used, row.core_mhz, row.energy_change, row.time_change))
    lines.sort(key=lambda line: -line[1])
    rest = lines[_MOST_BARS:]
    if rest:
        before, used = sum(line[1] for line in rest), sum(line[2] for line in rest)
        lines = [*lines[:_MOST_BARS], (counted(len(rest), "other kernel"), before, used, None, used / before - 1.0, 0.0)]
    whole = sum(line[1] for line in lines)
    values: list[dict[str, object]] = []
    for index, (name, before, used, mhz, energy, time) in enumerate(lines):
        tip = {
            "index": index,
            "kernel": name,
            "cap": "none" if mhz is None else f"{megahertz(mhz)} MHz",
            "tip": f"{quantity(before, 'J')} → {quantity(used, 'J')} ({change(energy, 1)}), time {change(time, 1)}",
        }
        text = "" if mhz is None else f"{change(energy, 1)} at {mhz:,.0f} MHz"
        text += f"{'; ' if text else ''}{fraction_of_whole(before / whole)} of all"
        short = text.removesuffix(" of all")
        kept = {"part": _KEPT, "order": 0, "joules": min(used, before), "end": before, "text": text, "short": short}
        saved = {"part": _SAVED, "order": 1, "joules": max(0.0, before - used), "end": before, "text": "", "short": ""}
        values += [{**tip, **kept}, {**tip, **saved}]
    allowed = plan.objective.max_slowdown or 0.0
    note = (
        "All calls of each kernel in one iteration at the default clocks, and what caps would save at "
        f"{percent(allowed, 0)} slowdown if switching were free. Beside each bar: what its cap changes, and its share of "
        "the energy."
    )
    names = [shortened(line[0], 36) for line in lines]
    return Figure(
        "natural-joules",
        "Where the energy goes, and what a cap for each kernel would save if switching were free",
        subtitle(overview, of_caps=True),
        note,
        specification_of(_joules_chart(values, names, lines[0][1])),
    )


def _joules_chart(values: Sequence[dict[str, object]], names: Sequence[str], largest_j: float) -> Any:
    """A bar for each kernel, with its name and text beside it."""
    alt = load("altair")
    y = alt.Y("index:O", title=None, axis=name_axis(names, _NAME_WIDTH))
    scale = alt.Scale(domain=[0.0, 1.45 * largest_j], nice=False)
    chart = alt.Chart(inline(values))
    bars = chart.mark_bar(height=12).encode(
        x=alt.X(
            "joules:Q", title="energy of one iteration, J", scale=scale, stack="zero", axis=alt.Axis(tickCount=6, grid=False)
        ),
        y=y,
        color=series_color("part:N", _COLORS),
        order=alt.Order("order:Q"),
        tooltip=tooltips({"kernel:N": "kernel", "cap:N": "cap", "tip:N": "energy"}),
    )
    text = chart.mark_text(style="small-label", align="left", dx=5)
    text = text.encode(x=alt.X("end:Q", scale=scale), y=y, text=alt.Text("text:N"))
    return layered(bars, text).properties(width=_JOULES_WIDTH, height=alt.Step(_JOULES_STEP))


_BIN_S, _LONGEST_S = 0.004, 0.2
_MOST_KERNELS = 6
_MOST_POINTS = 1500
_WAKE_WIDTH, _WAKE_HEIGHT = 900, 280


def wake_figure(overview: NaturalOverview) -> Figure:
    """The clock by the time since products ended, while other kernels run."""
    title, stem = "The clock after matrix products have ended", "natural-wake"
    wakes = [each for each in overview.wakes if len(each.since_s) and np.ptp(each.core_mhz) > 0.0][:_MOST_KERNELS]
    if not wakes:
        return Figure(stem, title, subtitle(overview), "No kernel was run right after matrix products.", None)
    note = (
        "Matrix products make the power regulator lower the clock; it lets the clock rise again only some time after "
        "they have ended. What runs meanwhile is measured at every clock in between. Points: groups of calls, clocks by "
        "counting cycles. Lines: medians."
    )
    return Figure(stem, title, subtitle(overview), note, specification_of(_wake_chart(wakes)))


def _wake_chart(wakes: list[Wake]) -> Any:
    """Every group of calls as a point, and the medians as a line for each kernel."""
    alt = load("altair")
    colors = dict(zip((wake.kernel for wake in wakes), CATEGORIES, strict=False))
    color = series_color("kernel:N", colors, columns=_MOST_KERNELS)
    x = alt.X("ms:Q", title="since the matrix products ended, ms", scale=alt.Scale(domain=[0, 1e3 * _LONGEST_S]))
    y = alt.Y("mhz:Q", title="core clock, MHz", scale=alt.Scale(zero=False))
    points = (
        alt.Chart(inline(_wake_points(wakes))).mark_circle(size=14, opacity=0.45, clip=True).encode(x=x, y=y, color=color)
    )
    lines = (
        alt.Chart(inline([row for wake in wakes for row in _medians(wake)]))
        .mark_line(strokeWidth=2.2, clip=True)
        .encode(x=x, y=y, color=color, tooltip=tooltips({"kernel:N": "kernel", "ms:Q": "ms", "mhz:Q": "MHz"}))
    )
    return layered(points, lines).properties(width=_WAKE_WIDTH, height=_WAKE_HEIGHT)


def _wake_points(wakes: list[Wake]) -> list[dict[str, object]]:
    step = max(1, sum(len(wake.since_s) for wake in wakes) // _MOST_POINTS)
    return [
        {"kernel": wake.kernel, "ms": 1e3 * since, "mhz": mhz}
        for wake in wakes
        for since, mhz in zip(wake.since_s[::step].tolist(), wake.core_mhz[::step].tolist(), strict=True)
    ]


def _medians(wake: Wake) -> list[dict[str, object]]:
    index = (wake.since_s / _BIN_S).astype(int)
    return [
        {"kernel": wake.kernel, "ms": 1e3 * _BIN_S * (number + 0.5), "mhz": float(np.median(wake.core_mhz[index == number]))}
        for number in np.unique(index).tolist()
    ]
