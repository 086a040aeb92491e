"""Every setting as slowdown against energy saved, for passes and for kernels (paper, Figs. 3 and 4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from wastenot.core.setting import Setting
from wastenot.core.wording import counted
from wastenot.kernels.page.clipping import Point, Window, window_around
from wastenot.kernels.page.plan_figure import REACH, SAVED, SLOWDOWN, WIDE, if_instant, plan_figure, saved, slowdown
from wastenot.kernels.plan.overview import PlanOverview, SettingMap, SettingPoint
from wastenot.pages.figure import Figure, inline, layered, tooltips
from wastenot.pages.formatting import change, fraction_of_whole, megahertz, percent, shortened
from wastenot.pages.optional_imports import load

MOST_COARSE_MAPS = 4
_LEAST_FRACTION = 0.005  # of the energy: a pass below it is not worth a map
_WIDTH_FOR_LABEL = 250  # of a map in pixels, below which its corner cannot hold a label
_TITLE_WIDTH = 260  # of the legend
_VAST = 1e3  # per cent, from which an axis has labels such as 2k


def coarse_figure(overview: PlanOverview) -> Figure:
    """One map for each of the largest passes, or one for the iteration."""
    maps = [each for each in overview.coarse_maps if each.energy_fraction >= _LEAST_FRACTION][:MOST_COARSE_MAPS]
    by_pass = overview.comparison.coarse == "pass"
    title = f"Every setting of {'each pass' if by_pass else 'the whole iteration'}"
    if len(overview.kernels) == 1:
        title = "Every setting of the kernel"
    if not maps:
        why = overview.why_no_coarse_maps
        return plan_figure(overview.plan, "settings-coarse", title, f"There is nothing to draw: {why}.", None)
    note = (
        f"One point for each setting at which all kernels{' of a pass' if by_pass else ''} were measured; the diamond is "
        f"the plan{if_instant(overview.plan)}. {_how_to_read(overview, maps)}"
    )
    rest = overview.coarse_maps[len(maps) :]
    if by_pass and rest:
        names = ", ".join(each.name for each in rest[:6]) + (", …" if len(rest) > 6 else "")
        together = fraction_of_whole(math.fsum(each.energy_fraction for each in rest))
        note += f" Smaller passes are not shown: {names} ({together} of the energy in total)."
    size = {1: (WIDE, 400), 3: (262, 240)}.get(len(maps), (420, 290))
    chart = _maps_chart(maps, columns=3 if len(maps) == 3 else 2, size=size)
    return plan_figure(overview.plan, "settings-coarse", title, note, chart)


def kernel_figure(overview: PlanOverview) -> Figure:
    """Small maps for the kernels with the largest saving."""
    title = "Every setting of the kernels with the largest saving"
    maps = overview.kernel_maps
    if not maps:
        why = "only the default clocks were measured; sweep more clocks to see their effect"
        return plan_figure(overview.plan, "settings-kernel", title, f"There is nothing to draw: {why}.", None)
    if len(overview.kernels) == 1 and overview.coarse_maps:
        only = "There is nothing more to draw: this workload is a single kernel, whose settings are above."
        return plan_figure(overview.plan, "settings-kernel", title, only, None)
    fraction = sum(each.energy_fraction for each in maps)
    instant, how = if_instant(overview.plan), _how_to_read(overview, maps)
    note = (
        f"The {len(maps)} kernels where the plan saves the most joules ({percent(fraction, 0)} of the energy), each with "
        f"its own axes; the diamond is the plan's setting{instant}. {how}{_others(overview)}"
        if len(maps) > 1
        else f"The diamond is the setting that the plan gives the kernel{instant}. {how}"
    )
    size = (WIDE, 400) if len(maps) == 1 else (262, 195)
    return plan_figure(overview.plan, "settings-kernel", title, note, _maps_chart(maps, columns=3, size=size))


def _others(overview: PlanOverview) -> str:
    others = len(overview.kernels) - len(overview.kernel_maps)
    return f" The table also has the other {counted(others, 'kernel')}." if others > 0 else ""


def _how_to_read(overview: PlanOverview, maps: Sequence[SettingMap]) -> str:
    points = [point for each in maps for point in each.points]
    text = ""
    if any(_reach(point) is not None for point in points):
        text += "Bars: 95 % intervals. "
    joined = "the core clocks of one memory clock"
    if any(point.setting.power_limit_w is not None for point in points):
        joined = "the power limits of one memory clock, or its core clocks under one limit"
    if any(point.smooth_time_change is not None for point in points):
        text += f"Lines: {joined}, corrected for noise{_warmth(overview)}. "
    else:
        text += f"Thin lines join {joined}, noise included. "
    return text.strip()


def _warmth(overview: PlanOverview) -> str:
    """Why lines lie below points that were measured on a colder GPU."""
    levelling = overview.levelling
    if levelling is None:
        return ""
    default, coldest = f"{levelling.auto_c:.0f} °C", f"{levelling.coldest_c:.0f} °C"
    return (
        f" and to {default}, the temperature at the default clocks; low clocks were measured colder (down to {coldest}), "
        "where less leaks"
    )


def _placed(each: SettingMap) -> tuple[Window, list[Point]]:
    """The window of a map, and where its points are."""
    places = [(slowdown(point.time_change), saved(point.energy_change)) for point in each.points]
    return window_around(places, (slowdown(each.plan_time_change), saved(each.plan_energy_change))), places


def _maps_chart(maps: Sequence[SettingMap], *, columns: int, size: tuple[int, int]) -> Any:
    alt = load("altair")
    settings = {point.setting for each in maps for point in _seen(each)}
    ordered = sorted(settings, key=lambda each: (-(each.memory_mhz or 0.0), -(each.power_limit_w or math.inf)))
    families = list(dict.fromkeys(_family(setting) for setting in ordered))
    charts = [_map_chart(each, families, size) for each in maps]
    if len(charts) == 1:
        return charts[0]
    return alt.concat(*charts, columns=columns, spacing=26)


def _seen(each: SettingMap) -> list[SettingPoint]:
    """The points of a map that are drawn, or whose line is."""
    window, places = _placed(each)
    corrected = all(point.smooth_time_change is not None for point in each.points)
    lines = {row["memory"] for row in _line_rows(each.points, window, corrected=corrected)}
    pairs = zip(each.points, places, strict=True)
    return [point for point, place in pairs if window.holds(place) or _family(point.setting) in lines]


def _family(setting: Setting) -> str:
    """What a colour and a line stand for: a memory clock, a power limit there, or all limits with the core at auto."""
    memory = megahertz(setting.memory_mhz)
    if setting.power_limit_w is None:
        return memory
    return f"{memory}, power limits" if setting.core_mhz is None else f"{memory}, {setting.power_limit_w:g} W"


def _map_chart(each: SettingMap, families: list[str], size: tuple[int, int]) -> Any:
    alt = load("altair")
    window, places = _placed(each)
    x = alt.X("slower:Q", title=SLOWDOWN, scale=_scale(window.x), axis=alt.Axis(labelOverlap=True))
    vast = {"format": "~s"} if max(map(abs, window.y)) >= _VAST else {}
    y = alt.Y("saved:Q", title=SAVED, scale=_scale(window.y), axis=alt.Axis(labelBound=True, **vast))
    colour = alt.Color(
        "memory:N",
        title="memory clock, MHz" + (", and power limit" if any(", " in family for family in families) else ""),
        scale=alt.Scale(domain=families),
        legend=alt.Legend(
            orient="top", symbolType="circle", symbolSize=90, symbolStrokeWidth=0, symbolOpacity=1, titleLimit=_TITLE_WIDTH
        ),
    )
    corrected = all(point.smooth_time_change is not None for point in each.points)
    lines = alt.Chart(inline(_line_rows(each.points, window, corrected=corrected)))
    line = lines.mark_line(style="corrected-line" if corrected else "pale-line").encode(
        x=x, y=y, color=colour, detail=alt.Detail("piece:N"), order=alt.Order("order:Q")
    )
    inside = [(point, place) for point, place in zip(each.points, places, strict=True) if window.holds(place)]
    rows = [_row(point, place, window) for point, place in inside]
    base = alt.Chart(inline(rows)).encode(color=colour)
    dots = base.mark_point(filled=True, size=30, opacity=1).encode(
        x=x,
        y=y,
        tooltip=[
            alt.Tooltip("clocks:N", title="core / memory"),
            *([alt.Tooltip("limit:N", title="power limit")] if any(row["limit"] for row in rows) else []),
            alt.Tooltip("time_text:N", title="time"),
            alt.Tooltip("energy_text:N", title="energy"),
        ],
    )
    bars = []
    if any("left" in row for row in rows):
        measured = alt.Chart(inline([row for row in rows if "left" in row])).encode(color=colour)
        style = {"size": 1.2, "opacity": 0.7}  # thin bars: rules are dashed, which the legend would show
        bars = [
            measured.mark_bar(orient="horizontal", **style).encode(
                x=alt.X("left:Q", title=SLOWDOWN), x2=alt.X2("right:Q"), y=y
            ),
            measured.mark_bar(orient="vertical", **style).encode(x=x, y=alt.Y("low:Q", title=SAVED), y2=alt.Y2("high:Q")),
        ]
    diamond = {
        "slower": slowdown(each.plan_time_change),
        "saved": saved(each.plan_energy_change),
        "who": "the plan",
        "time_text": change(each.plan_time_change),
        "energy_text": change(each.plan_energy_change),
    }
    plan = alt.Chart(inline([diamond])).mark_point(style="plan")
    plan = plan.encode(x=x, y=y, tooltip=tooltips({"who:N": " ", "time_text:N": "time", "energy_text:N": "energy"}))
    name = shortened(each.name, max(12, size[0] // 8))
    beyond = _outside_text(window, places, each.points)
    subtitle = " · ".join([f"{fraction_of_whole(each.energy_fraction)} of energy", *beyond])
    title = alt.TitleParams(name, subtitle=subtitle, anchor="start", fontSize=13, subtitleFontSize=11, offset=8)
    layers = [*_corner(window, size), line, *bars, dots, plan]
    return layered(*layers).properties(width=size[0], height=size[1], title=title)


def _outside_text(window: Window, places: Sequence[Point], points: Sequence[SettingPoint]) -> list[str]:
    """How many settings are outside of the map, and how far they go."""
    beyond = [point for point, place in zip(points, places, strict=True) if not window.holds(place)]
    furthest = max((point.time_change for point in beyond), default=0.0)
    how_far = f", up to {percent(furthest, 0, sign=True)} time" if furthest > 0.0 else ""
    return [f"{len(beyond)} of {len(points)} not shown{how_far}"] if beyond else []


def _corner(window: Window, size: tuple[int, int]) -> list[Any]:
    """The shaded region of settings that waste nothing, the axes through auto, and their labels."""
    alt = load("altair")
    left, top = window.x[0], window.y[1]
    zero = alt.Chart(inline([{"x": 0.0, "y": 0.0, "x2": left, "y2": top, "text": "default"}]))
    x, y, text = alt.X("x:Q"), alt.Y("y:Q"), alt.Text("text:N")
    region = zero.mark_rect(style="good-region").encode(x=x, x2=alt.X2("x2:Q"), y=y, y2=alt.Y2("y2:Q"))
    marks = [
        region,
        zero.mark_rule(style="rule").encode(x=x),
        zero.mark_rule(style="rule").encode(y=y),
        zero.mark_text(style="small-label", align="right", dx=-5, dy=10).encode(x=x, y=y, text=text),
    ]
    corner_width = size[0] * -left / (window.x[1] - left)
    if corner_width < _WIDTH_FOR_LABEL / 2:
        return marks
    label = alt.Chart(inline([{"x": left, "y": top, "text": "saves energy,\nloses no time"}]))
    corner = label.mark_text(style="good-label", align="left", baseline="top", dx=6, dy=6, lineBreak="\n")
    return [*marks, corner.encode(x=x, y=y, text=text)]


def _scale(span: tuple[float, float]) -> Any:
    return load("altair").Scale(domain=list(span), nice=False, zero=False, padding=0)


def _line_rows(points: Sequence[SettingPoint], window: Window, *, corrected: bool) -> list[dict[str, object]]:
    """Lines through the settings of each family, by core clock or else power limit; auto comes after the highest."""
    lines: dict[str, list[SettingPoint]] = {}
    for point in points:
        lines.setdefault(_family(point.setting), []).append(point)
    rows: list[dict[str, object]] = []
    pieces = 0
    for family, members in lines.items():
        members.sort(key=lambda point: (point.setting.core_mhz or math.inf, point.setting.power_limit_w or math.inf))
        for piece in window.clip([_on_line(point, corrected=corrected) for point in members]):
            pieces += 1
            rows += [
                {"slower": round(slower, 4), "saved": round(kept, 4), "memory": family, "piece": pieces, "order": order}
                for order, (slower, kept) in enumerate(piece)
            ]
    return rows


def _on_line(point: SettingPoint, *, corrected: bool) -> Point:
    time_change, energy_change = point.time_change, point.energy_change
    if corrected and point.smooth_time_change is not None and point.smooth_energy_change is not None:
        time_change, energy_change = point.smooth_time_change, point.smooth_energy_change
    return slowdown(time_change), saved(energy_change)


def _reach(point: SettingPoint) -> Point | None:
    """Half the 95 % intervals of a point, in per cent; ``None`` where nothing says how noisy it is."""
    if point.time_error is None or point.energy_error is None:
        return None
    return 100 * REACH * point.time_error, 100 * REACH * point.energy_error


def _row(point: SettingPoint, place: Point, window: Window) -> dict[str, object]:
    setting, reach = point.setting, _reach(point)
    row: dict[str, object] = {
        "slower": round(place[0], 4),
        "saved": round(place[1], 4),
        "memory": _family(setting),
        "limit": "" if setting.power_limit_w is None else f"{setting.power_limit_w:g} W",
        "clocks": _clocks(point),
        "time_text": change(point.time_change),
        "energy_text": change(point.energy_change),
    }
    if reach is not None:
        (left, right), (low, high) = window.clip_bar(place, reach)
        row |= {"left": round(left, 4), "right": round(right, 4), "low": round(low, 4), "high": round(high, 4)}
        row["time_text"] = f"{row['time_text']} ± {reach[0]:.2f}"
        row["energy_text"] = f"{row['energy_text']} ± {reach[1]:.2f}"
    return row


def _clocks(point: SettingPoint) -> str:
    """Core and memory clock, in this order everywhere."""
    setting = point.setting
    core = megahertz(setting.core_mhz)
    if point.highest_core_mhz != setting.core_mhz:
        core += f" to {megahertz(point.highest_core_mhz)}"
    return f"{core} / {megahertz(setting.memory_mhz)}"
