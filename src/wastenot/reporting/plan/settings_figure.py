"""Every setting as time saved against energy saved, for passes and for kernels (paper, Figs. 3 and 4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from wastenot.analyses.plan_overview import PlanOverview, SettingMap, SettingPoint
from wastenot.reporting.figure import Figure, inline, tooltips
from wastenot.reporting.formatting import change, fraction_of_whole, percent, shortened
from wastenot.reporting.optional_imports import load
from wastenot.reporting.plan.clipping import Point, Window, window_around
from wastenot.reporting.plan.plan_figure import plan_figure
from wastenot.setting import format_mhz

MOST_COARSE_MAPS = 4
_LEAST_FRACTION = 0.005  # of the energy: a pass below it is not worth a map
_WIDTH_FOR_LABEL = 300  # of a map in pixels, below which its corner cannot hold a label


def coarse_figure(overview: PlanOverview) -> Figure:
    """One map for each of the largest passes, or one for the iteration."""
    maps = [each for each in overview.coarse_maps if each.energy_fraction >= _LEAST_FRACTION][:MOST_COARSE_MAPS]
    by_pass = overview.comparison.coarse == "pass"
    title = f"Every setting of {'each pass' if by_pass else 'the whole iteration'}"
    if not maps:
        why = overview.why_no_coarse_maps
        return plan_figure(overview.plan, "settings-coarse", title, f"There is nothing to draw: {why}.", None)
    note = (
        f"One point for each setting at which all kernels {'of a pass' if by_pass else ''} were measured; a line joins "
        "the core clocks of one memory clock. Settings in the shaded corner save energy at no loss of time. The diamond "
        f"is the plan ({overview.plan.granularity} granularity)."
    ).replace("kernels  were", "kernels were")
    if by_pass and len(overview.coarse_maps) > len(maps):
        omitted = [each.name for each in overview.coarse_maps[len(maps) :]]
        names = ", ".join(omitted[:6]) + (", …" if len(omitted) > 6 else "")
        note += f" Smaller passes are not shown: {names}."
    size = {1: (935, 400), 3: (262, 240)}.get(len(maps), (420, 290))
    columns = 3 if len(maps) == 3 else 2
    return plan_figure(overview.plan, "settings-coarse", title, note, _maps_chart(maps, columns=columns, size=size))


def kernel_figure(overview: PlanOverview) -> Figure:
    """Small maps for the kernels with the largest saving."""
    title = "Every setting of the kernels with the largest saving"
    maps = overview.kernel_maps
    if not maps:
        why = "only the default clocks were measured; sweep more clocks to see what they do"
        return plan_figure(overview.plan, "settings-kernel", title, f"There is nothing to draw: {why}.", None)
    fraction = sum(each.energy_fraction for each in maps)
    note = (
        f"The {len(maps)} kernels where the plan saves the most joules ({percent(fraction, 0)} of the iteration's energy), "
        "each with its own axes. Settings in the shaded corner save energy at no loss of time. "
        "The diamond is the setting that the plan gives the kernel; a global plan may slow one kernel down and "
        "compensate with another."
        if len(maps) > 1
        else "The diamond is the setting that the plan gives the kernel."
    )
    size = (935, 400) if len(maps) == 1 else (262, 195)
    return plan_figure(overview.plan, "settings-kernel", title, note, _maps_chart(maps, columns=3, size=size))


def _maps_chart(maps: Sequence[SettingMap], *, columns: int, size: tuple[int, int]) -> Any:
    alt = load("altair")
    clocks = {point.setting.memory_mhz for each in maps for point in each.points}
    memory = [format_mhz(mhz) for mhz in sorted(clocks, key=lambda mhz: -(mhz or 0.0))]
    charts = [_map_chart(each, memory, size) for each in maps]
    if len(charts) == 1:
        return charts[0]
    return alt.concat(*charts, columns=columns, spacing=26)


def _map_chart(each: SettingMap, memory: list[str], size: tuple[int, int]) -> Any:
    alt = load("altair")
    plan = (-100 * each.plan_time_change, -100 * each.plan_energy_change)
    window = window_around([_coordinates(point) for point in each.points], plan)
    x = alt.X("gain:Q", title="time saved, % (negative: slower)", scale=_scale(window.x))
    y = alt.Y("saved:Q", title="energy saved, %", scale=_scale(window.y), axis=alt.Axis(labelBound=True))
    colour = alt.Color(
        "memory:N",
        title="memory clock, MHz",
        scale=alt.Scale(domain=memory),
        legend=alt.Legend(orient="top", symbolType="circle", symbolSize=90, symbolStrokeWidth=0, symbolOpacity=1),
    )
    rows = [_row(point) for point in each.points if window.holds(_coordinates(point))]
    lines = alt.Chart(inline(_line_rows(each.points, window))).encode(x=x, y=y, color=colour, detail="piece:N")
    base = alt.Chart(inline(rows)).encode(x=x, y=y, color=colour)
    line = lines.mark_line(strokeWidth=1.4, opacity=0.75).encode(order="order:Q")
    dots = base.mark_point(filled=True, size=38, opacity=1).encode(
        tooltip=[
            alt.Tooltip("core_text:N", title="core"),
            alt.Tooltip("memory_text:N", title="memory"),
            *([alt.Tooltip("limit:N", title="power limit")] if any(row["limit"] for row in rows) else []),
            alt.Tooltip("time_text:N", title="time"),
            alt.Tooltip("energy_text:N", title="energy"),
        ]
    )
    diamond = alt.Chart(
        inline(
            [
                {
                    "gain": plan[0],
                    "saved": plan[1],
                    "who": "the plan",
                    "time_text": change(each.plan_time_change),
                    "energy_text": change(each.plan_energy_change),
                }
            ]
        )
    ).mark_point(style="plan")
    diamond = diamond.encode(x=x, y=y, tooltip=tooltips({"who:N": " ", "time_text:N": "time", "energy_text:N": "energy"}))
    name = shortened(each.name, max(12, size[0] // 8))
    subtitle = f"{fraction_of_whole(each.energy_fraction)} of the energy"
    if len(rows) < len(each.points):
        subtitle += f" · {len(each.points) - len(rows)} of {len(each.points)} settings outside the map"
    title = alt.TitleParams(name, subtitle=subtitle, anchor="start", fontSize=13, subtitleFontSize=11, offset=8)
    layers = alt.layer(*_corner(window, size), line, dots, diamond)
    return layers.properties(width=size[0], height=size[1], title=title)


def _corner(window: Window, size: tuple[int, int]) -> list[Any]:
    """The shaded region of settings that waste nothing, the axes through auto, and their labels."""
    alt = load("altair")
    right, top = window.x[1], window.y[1]
    zero = alt.Chart(inline([{"x": 0.0, "y": 0.0, "x2": right, "y2": top, "text": "auto"}]))
    region = zero.mark_rect(style="good-region").encode(x="x:Q", x2="x2:Q", y="y:Q", y2="y2:Q")
    marks = [
        region,
        zero.mark_rule(style="rule").encode(x="x:Q"),
        zero.mark_rule(style="rule").encode(y="y:Q"),
        zero.mark_text(style="small-label", align="left", dx=5, dy=10).encode(x="x:Q", y="y:Q", text="text:N"),
    ]
    if size[0] < _WIDTH_FOR_LABEL:
        return marks
    label = alt.Chart(inline([{"x": right, "y": top, "text": "saves energy,\nloses no time"}]))
    corner = label.mark_text(style="good-label", align="right", baseline="top", dx=-6, dy=6, lineBreak="\n")
    return [*marks, corner.encode(x="x:Q", y="y:Q", text="text:N")]


def _scale(span: tuple[float, float]) -> Any:
    return load("altair").Scale(domain=list(span), nice=False, zero=False)


def _coordinates(point: SettingPoint) -> Point:
    return -100 * point.time_change, -100 * point.energy_change


def _line_rows(points: Sequence[SettingPoint], window: Window) -> list[dict[str, object]]:
    """Lines through the core clocks of each memory clock and power limit; auto comes after the highest."""
    lines: dict[tuple[float | None, float | None], list[SettingPoint]] = {}
    for point in points:
        lines.setdefault((point.setting.memory_mhz, point.setting.power_limit_w), []).append(point)
    rows: list[dict[str, object]] = []
    pieces = 0
    for (memory_mhz, _), members in lines.items():
        members.sort(key=lambda point: point.setting.core_mhz or math.inf)
        for piece in window.clip([_coordinates(point) for point in members]):
            pieces += 1
            rows += [
                {"gain": gain, "saved": saved, "memory": format_mhz(memory_mhz), "piece": pieces, "order": order}
                for order, (gain, saved) in enumerate(piece)
            ]
    return rows


def _row(point: SettingPoint) -> dict[str, object]:
    setting = point.setting
    core = format_mhz(setting.core_mhz)
    if point.highest_core_mhz != setting.core_mhz:
        core += f" to {format_mhz(point.highest_core_mhz)}"
    return {
        "gain": -100 * point.time_change,
        "saved": -100 * point.energy_change,
        "memory": format_mhz(setting.memory_mhz),
        "limit": "" if setting.power_limit_w is None else f"{setting.power_limit_w:g} W",
        "core_text": f"{core} MHz" if setting.core_mhz is not None else core,
        "memory_text": f"{format_mhz(setting.memory_mhz)} MHz" if setting.memory_mhz is not None else "auto",
        "time_text": change(point.time_change),
        "energy_text": change(point.energy_change),
    }
