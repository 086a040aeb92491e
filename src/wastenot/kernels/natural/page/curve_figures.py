"""Time, power and energy of kernels by clock, and how much of a lower clock each kernel loses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wastenot.kernels.natural.curves import KernelCurve
from wastenot.kernels.natural.overview import KernelAtNaturalClocks, Loss, NaturalOverview
from wastenot.pages.figure import (
    Figure,
    inline,
    layered,
    name_axis,
    series_color,
    specification_of,
    tooltips,
)
from wastenot.pages.formatting import change, percent, quantity, shortened
from wastenot.pages.optional_imports import load

LOSS_NAMES: dict[Loss, str] = {
    "nothing": "loses next to nothing",
    "some": "loses some of it",
    "all": "loses nearly all",
    "unknown": "hardly seen to move",
}
LOSS_COLORS = dict(zip(LOSS_NAMES.values(), ("#0f9b8e", "#e08a00", "#d6483b", "#7a8699"), strict=True))
_WIDTH, _HEIGHT, _NAME_WIDTH, _LOSS_WIDTH, _STEP = 285, 270, 250, 560, 17
_POINTS = 24
_LIMIT = (0.0, 1.0)


def subtitle(overview: NaturalOverview) -> str:
    """What the numbers are of, and that no clock was set."""
    return f"{overview.workload} on {overview.device} · {overview.origin} at natural clocks, none was set"


def curves_figure(overview: NaturalOverview) -> Figure:
    """Time, power and energy of every kernel by clock, each against its own at the clock that it has by itself."""
    note = (
        "Each line is a kernel, over the clocks that it was seen at and no further; it crosses 100 % at the clock it has by "
        "itself."
    )
    rows = [row for each in overview.kernels for row in _curve_rows(overview.curves[each.kernel], each)]
    return Figure(
        "natural-curves",
        "Time, power and energy by clock",
        subtitle(overview),
        note,
        specification_of(_curves_chart(rows, _colors_in(overview))),
    )


def _curves_chart(rows: Sequence[dict[str, object]], colors: dict[str, str]) -> Any:
    """Panels of time, power and energy, side by side."""
    alt = load("altair")
    x = alt.X("ghz:Q", title="SM clock, GHz", scale=alt.Scale(zero=False, nice=False, padding=6), axis=alt.Axis(tickCount=6))
    base = alt.Chart(inline(rows)).encode(
        x=x,
        color=series_color("loses:N", colors),
        detail=alt.Detail("kernel:N"),
        tooltip=tooltips({"kernel:N": "kernel", "ghz_tip:N": "clock", "time_tip:N": "time", "power_tip:N": "power",
                          "energy_tip:N": "energy"}),
    )  # fmt: skip
    panels = [
        base.mark_line(strokeWidth=1.5, opacity=0.75)
        .encode(y=alt.Y(f"{what}:Q", title=f"{what}, % of that at the default clocks", scale=alt.Scale(zero=False)))
        .properties(width=_WIDTH, height=_HEIGHT)
        for what in ("time", "power", "energy")
    ]
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
            "ghz": mhz / 1e3,
            "time": 100.0 * t,
            "power": 100.0 * p,
            "energy": 100.0 * t * p,
            "ghz_tip": f"{mhz:.0f} MHz",
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
    title, stem = "Which kernels lose next to nothing at a lower clock, and which nearly all", "natural-losses"
    if not kernels:
        return Figure(stem, title, subtitle(overview), "No kernel was seen at clocks far enough apart.", None)
    note = (
        "How steeply a call's time rises as the clock falls (log over log), over the clocks that the kernel was seen at: at "
        "0 % it takes as long as before, at 100 % time and clock multiply to a constant. Bars hold the truth with 95 %. "
        "Beside each: a call at the lowest clock seen, against the default clocks."
    )
    return Figure(stem, title, subtitle(overview), note, specification_of(_loss_chart(kernels, _colors_in(overview))))


def _loss_chart(kernels: Sequence[KernelAtNaturalClocks], colors: dict[str, str]) -> Any:
    """A dot with its interval for each kernel, names at the left."""
    alt = load("altair")
    rows = [_loss_row(index, each) for index, each in enumerate(kernels)]
    names = name_axis([shortened(each.kernel, 36) for each in kernels], _NAME_WIDTH)
    y = alt.Y("index:O", title=None, axis=names)
    scale = alt.Scale(domain=[min(-0.1, *(each.slope for each in kernels)), max(1.1, *(each.slope for each in kernels))])
    lost = "time lost for what the clock loses"
    x = alt.X("slope:Q", title=lost, scale=scale, axis=alt.Axis(format="%", tickCount=6))
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
    limits = alt.Chart(inline([{"at": limit} for limit in _LIMIT])).mark_rule(style="rule").encode(x=alt.X("at:Q"))
    text = chart.mark_text(style="small-label", align="left").encode(
        x=alt.XValue(_LOSS_WIDTH + 8), y=y, text=alt.Text("text:N")
    )
    return layered(limits, bars, dots, text).properties(width=_LOSS_WIDTH, height=alt.Step(_STEP))


def _loss_row(index: int, kernel: KernelAtNaturalClocks) -> dict[str, object]:
    low, high = kernel.slope_interval
    seen = f"{kernel.low_mhz:.0f} to {kernel.high_mhz:.0f} MHz"
    return {
        "index": index,
        "kernel": kernel.kernel,
        "short": f"{change(kernel.energy_at_low, 0)} energy, {change(kernel.time_at_low, 0)} time",
        "loses": LOSS_NAMES[kernel.loses],
        "slope": kernel.slope,
        "low": low,
        "high": high,
        "range": seen,
        "slope_tip": f"{percent(kernel.slope, 0)} ({percent(low, 0)} to {percent(high, 0)})",
        "time_tip": change(kernel.time_at_low, 1),
        "energy_tip": change(kernel.energy_at_low, 1),
        "share_tip": percent(kernel.energy_share, 1),
        "text": f"{change(kernel.energy_at_low, 0)} energy, {change(kernel.time_at_low, 0)} time, {kernel.low_mhz:.0f} MHz",
    }


def _colors_in(overview: NaturalOverview) -> dict[str, str]:
    there = {LOSS_NAMES[each.loses] for each in overview.kernels}
    return {name: color for name, color in LOSS_COLORS.items() if name in there}


def colors_of(names: Sequence[str]) -> dict[str, str]:
    """A colour for each name."""
    palette = ("#2f6fde", "#e08a00", "#0f9b8e", "#b04bb8", "#d6483b", "#7a8699", "#7c5cff", "#8a9a00")
    return {name: palette[index % len(palette)] for index, name in enumerate(names)}
