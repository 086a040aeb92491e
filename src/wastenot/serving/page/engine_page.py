"""The page of an engine's profile, as HTML and as figure files: energy per token by clock, and against latency."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from wastenot.core.setting import Setting
from wastenot.core.wording import sentence
from wastenot.pages.compared import compared_chart, compared_iteration
from wastenot.pages.figure import Figure, inline, layered, specification_of, tooltips, words
from wastenot.pages.formatting import SPACE, megahertz, percent, quantity, setting_text
from wastenot.pages.optional_imports import load
from wastenot.pages.page import Folded, Page
from wastenot.pages.theme import CATEGORIES
from wastenot.serving.model.operating_points import (
    OperatingPoint,
    PrefillPoint,
    operating_points,
    prefill_points,
    usual_context,
)
from wastenot.serving.model.profile_file import EngineProfile
from wastenot.serving.page import engine_words

_WIDE = 915
_TITLES = "energy per token", "time between tokens"
_PROMPTS = "engine-prompts"
_MOST_SERIES = 6  # batch sizes that are drawn as curves by clock


def engine_figures(
    profile: EngineProfile, points: Sequence[OperatingPoint], prefills: Sequence[PrefillPoint], context: float
) -> tuple[Figure, ...]:
    """The figures, in the order they are shown.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    subtitle = engine_words.about(profile, context)
    first = (_saving_figure(points, subtitle), _clock_figure(points, subtitle)) if points else ()
    figures = [each for each in first if each is not None]
    if points:
        figures.append(_latency_figure(points, subtitle))
    if prompts := _prefill_figure(prefills, subtitle):
        figures.append(prompts)
    return tuple(figures)


def _saving_figure(points: Sequence[OperatingPoint], subtitle: str) -> Figure | None:
    """A step at the default clocks and at those of the headline; ``None`` where no clock saves anything."""
    mine = engine_words.typical(points)
    best = engine_words.headline_point(mine)
    if mine is None or best is None:
        return None
    energy_j, time_s = mine[-1].energy_per_token_j, mine[-1].latency_s
    changes = best.energy_per_token_j / energy_j - 1.0, best.latency_s / time_s - 1.0
    quantities = compared_iteration(energy_j, time_s, changes, None, titles=_TITLES, digits=1)
    names = setting_text(mine[-1].setting, "default clocks"), setting_text(best.setting)
    title = f"What {names[1]} saves at batch size {best.batch:,.0f}: {percent(-changes[0], 1)}"
    chart = specification_of(compared_chart(names, quantities))
    return Figure("engine-saving", title, subtitle, "One step of the engine. Axes do not begin at 0.", chart)


def _latency_figure(points: Sequence[OperatingPoint], subtitle: str) -> Figure:
    note = (
        "Each coloured line is a batch size, by its number, from the maximum clock at its left to the lowest at its right. "
        "On the thick line no other point is both faster and cheaper. Both axes are logarithmic."
    )
    return Figure(
        "engine-latency",
        "Energy per token against time between tokens",
        subtitle,
        note,
        specification_of(_latency_chart(points)),
    )


def _latency_chart(points: Sequence[OperatingPoint]) -> Any:
    alt = load("altair")
    across = _log([1e3 * each.latency_s for each in points], room_for_labels=1.2)
    up = _log([each.energy_per_token_j for each in points])
    x = alt.X("ms:Q", title="time between tokens, ms", scale=across, axis=_axis())
    y = alt.Y("joules:Q", title="energy per token, J", scale=up, axis=_axis())
    several = len({each.gpus for each in points}) > 1
    rows = [_row(each, several) for each in points]
    shade = "gpus" if several else "series"
    names = list(dict.fromkeys(str(row[shade]) for row in rows))
    colors = list((_colors(names) if several else _batch_colors(points)).values())
    names = names if several else list(_batch_colors(points))
    legend = alt.Legend(orient="top", title="GPUs") if several else None
    color = alt.Color(f"{shade}:N", sort=names, scale=alt.Scale(domain=names, range=colors), legend=legend)
    tip = tooltips(
        {"batch:N": "batch", "gpus:N": "GPUs", "setting:N": "clock", "time:N": "between tokens", "energy:N": "per token",
         "power:N": "power"}
    )  # fmt: skip
    base = alt.Chart(inline(rows)).encode(x=x, y=y)
    lines = base.mark_line(strokeWidth=1.4, opacity=0.6).encode(
        color=color, detail=alt.Detail("series:N"), order=alt.Order("order:Q")
    )
    dots = base.mark_circle(size=34).encode(color=color, tooltip=tip)
    frontier = alt.Chart(inline([row for row, each in zip(rows, points, strict=True) if each.on_frontier]))
    best = frontier.mark_line(style="curve", strokeWidth=2.4).encode(x=x, y=y, order=alt.Order("ms:Q"))
    # Lines end apart from each other at their lowest clocks, so that labels stand free there.
    slowest = sorted(zip(points, rows, strict=True), key=lambda pair: pair[0].latency_s)
    ends = {each.batch: row for each, row in slowest if each.gpus == points[0].gpus}
    labels = words(
        alt.Chart(inline(list(ends.values()))).encode(x=x, y=y, text=alt.Text("name:N")),
        "small-label",
        align="left",
        dx=4,
        dy=-10,
    )
    return layered(lines, best, dots, *labels).properties(width=_WIDE, height=380)


def _clock_figure(points: Sequence[OperatingPoint], subtitle: str) -> Figure | None:
    least = min((each.gpus for each in points), default=0)
    clocked = [each for each in points if each.setting.core_mhz is not None and each.gpus == least]
    if len({each.setting for each in clocked}) < 3:
        return None
    headline, chosen = engine_words.headline_point(engine_words.typical(points)), _drawn(points)
    default, rows = _parts_of_default(
        [
            (each.setting, each.batch, each.energy_per_token_j, each.latency_s, each.is_least)
            for each in points
            if each.gpus == least and each.batch in chosen
        ]
    )
    note = _least_note(rows)
    told = None
    if headline is not None and headline.setting.core_mhz is not None:
        told = f"{headline.batch:,.0f}", headline.setting.core_mhz
        note += " Strong: the headline's batch size."
    chart = specification_of(
        _curves(rows, f"energy per token, % of that at {default}", "batch", _batch_colors(points), told)
    )
    return Figure("engine-clocks", "Energy per token by clock", subtitle, note, chart)


def _prefill_figure(points: Sequence[PrefillPoint], subtitle: str) -> Figure | None:
    least = min((each.gpus for each in points), default=0)
    mine = [each for each in points if each.gpus == least]
    if len({each.setting for each in mine if each.setting.core_mhz is not None}) < 3:
        return None
    default, rows = _parts_of_default(
        [(each.setting, each.tokens, each.energy_j, each.time_s, each.is_least) for each in mine]
    )
    note = f"Colours: tokens of a prompt. {_least_note(rows)}"
    colors = _colors([f"{tokens:,.0f}" for tokens in sorted({each.tokens for each in mine})])
    chart = specification_of(_curves(rows, f"energy per prompt, % of that at {default}", "tokens", colors))
    return Figure(_PROMPTS, "Energy per prompt by clock", subtitle, note, chart)


def _least_note(rows: Sequence[dict[str, Any]]) -> str:
    """What the rings say: where the least is, and whether it might lie lower still."""
    lowest = min(row["mhz"] for row in rows)
    rings = {row["mhz"] for row in rows if row["least"]}
    ordered = sorted(rows, key=lambda row: (row["series"], row["mhz"]))
    flat = " Flat: the power limit allows no higher clock." if any(map(_same, ordered, ordered[1:])) else ""
    ring = "Ring: the lowest-energy clock"
    if rings == {lowest}:
        return f"{ring}, always the lowest one known, {megahertz(lowest)}{SPACE}MHz.{flat}"
    return f"{ring}.{flat}" if lowest in rings else f"{ring}; below it, static power drawn for longer costs more.{flat}"


def _same(row: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether a step is the same at two clocks of a series, as where the power limit allows neither."""
    return all(row[name] == after[name] for name in ("series", "time", "energy")) and row["mhz"] != after["mhz"]


def _parts_of_default(points: Sequence[tuple[Setting, float, float, float, bool]]) -> tuple[str, list[dict[str, Any]]]:
    """The default clocks, or else the maximum clock, and the energies of each series as parts of that there.

    Args:
        points: setting, series, energy in J, time in s, and whether it is the least of its series.
    """
    default = max((setting for setting, *_ in points), key=lambda setting: setting.core_mhz or math.inf)
    against = {series: energy_j for setting, series, energy_j, *_ in points if setting == default}
    return setting_text(default, "the default clocks"), [
        {
            "mhz": setting.core_mhz,
            "part": 100.0 * energy_j / against[series],
            "series": f"{series:,.0f}",
            "setting": setting_text(setting),
            "energy": quantity(energy_j, "J", 3),
            "against": quantity(against[series], "J", 3),
            "time": quantity(time_s, "s", 4),
            "change": percent(energy_j / against[series] - 1.0, 1, sign=True),
            "least": is_least,
        }
        for setting, series, energy_j, time_s, is_least in points
        if series in against and setting.core_mhz is not None
    ]


def _colors(series: Sequence[str]) -> dict[str, str]:
    """A colour for each series, the same in all figures of what these are."""
    return {each: CATEGORIES[index % len(CATEGORIES)] for index, each in enumerate(series)}


def _drawn(points: Sequence[OperatingPoint]) -> list[float]:
    """Batch sizes that are drawn as curves by clock: some of all, and that of the headline."""
    batches, headline = sorted({each.batch for each in points}), engine_words.headline_point(engine_words.typical(points))
    some = batches[:: -max(-(-len(batches) // _MOST_SERIES), 1)]
    return sorted({*some, *(() if headline is None else (headline.batch,))})


def _batch_colors(points: Sequence[OperatingPoint]) -> dict[str, str]:
    """A colour for each batch size; those that are drawn as curves by clock come first, so that theirs differ."""
    return _colors([f"{batch:,.0f}" for batch in dict.fromkeys((*_drawn(points), *sorted({p.batch for p in points})))])


def _curves(
    rows: list[dict[str, Any]], title: str, series: str, colors: Mapping[str, str], told: tuple[str, float] | None = None
) -> Any:
    """A curve over the clock for each series, its least marked, and the point that the headline is of."""
    alt = load("altair")
    names = list(dict.fromkeys(str(row["series"]) for row in rows))
    x = alt.X("mhz:Q", title="core clock, MHz", scale=alt.Scale(zero=False, nice=False, padding=14), axis=_axis(form=",d"))
    y = alt.Y("part:Q", title=title, scale=alt.Scale(zero=False))
    scale = alt.Scale(domain=names, range=[colors[name] for name in names])
    color = alt.Color("series:N", title=series, sort=names, scale=scale, legend=alt.Legend(orient="top"))
    tip = tooltips({"series:N": series, "setting:N": "clock", "energy:N": "energy", "time:N": "time", "change:N": "change"})
    base = alt.Chart(inline(rows)).encode(x=x, y=y, color=color)
    strong = alt.value(1.0) if told is None else alt.condition(alt.datum.series == told[0], alt.value(1.0), alt.value(0.4))
    lines = base.mark_line(strokeWidth=1.8).encode(order=alt.Order("mhz:Q"), opacity=strong)
    dots = base.mark_circle(size=30).encode(tooltip=tip, opacity=strong)
    least = (
        alt.Chart(inline([row for row in rows if row["least"]]))
        .mark_point(size=130, strokeWidth=2)
        .encode(x=x, y=y, color=color)
    )
    chosen = [row for row in rows if (row["series"], row["mhz"]) == told]
    layers = [lines, dots, least]
    if chosen:
        best = chosen[0]
        (before, unit), (after, same) = (best[each].split(SPACE) for each in ("against", "energy"))
        values = f"{before}{'' if unit == same else SPACE + unit} → {after}{SPACE}{same}, {best['change']}"
        named = {**best, "label": values, "short": best["change"]}
        point = alt.Chart(inline([named])).encode(x=x, y=y)
        # Curves rise to the right, those of larger batches above: there is room above and to the left of the point.
        layers += words(point.encode(text=alt.Text("label:N")), align="right", baseline="bottom", dx=-6, dy=-11)
        layers.append(point.mark_point(style="plan").encode(tooltip=tip))
    return layered(*layers).properties(width=_WIDE, height=300)


def _row(each: OperatingPoint, several: bool) -> dict[str, object]:
    return {
        "series": f"{each.gpus}{SPACE}× {each.batch:g}" if several else f"{each.batch:g}",
        "batch": f"{each.batch:,.0f}",
        "name": f"batch {each.batch:,.0f}",
        "short": f"{each.batch:,.0f}",
        "gpus": str(each.gpus),
        "ms": 1e3 * each.latency_s,
        "joules": each.energy_per_token_j,
        "order": each.setting.core_mhz or 1e9,
        "setting": setting_text(each.setting),
        "time": quantity(each.latency_s, "s", 4),
        "energy": quantity(each.energy_per_token_j, "J", 4),
        "power": quantity(each.power_w, "W", 4),
    }


def _log(values: Sequence[float], *, room_for_labels: float = 1.0) -> Any:
    room = 1.08
    return load("altair").Scale(type="log", domain=[min(values) / room, max(values) * room * room_for_labels], nice=False)


def _axis(*, form: str = "~g") -> Any:
    return load("altair").Axis(tickCount=8, format=form)


def engine_page(profile: EngineProfile, *, context: float | None = None, assumed_clocks: bool = False) -> Page:
    """The page of an engine's profile.

    Args:
        profile: what to show.
        context: tokens in the cache of each sequence that decodes; 1,024 by default.
        assumed_clocks: also show clocks that were neither measured nor fitted.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    context = usual_context(profile) if context is None else context
    points = operating_points(profile, context=context, assumed_clocks=assumed_clocks)
    prefills = prefill_points(profile, assumed_clocks=assumed_clocks)
    model, device = engine_words.name_of(profile)
    figures = engine_figures(profile, points, prefills, context)
    tables = [
        ("best", engine_words.frontier_table(points, ends_only=True)),
        *((f"clocks-{each.gpus}", engine_words.clocks_table(points, each.gpus)) for each in profile.engines),
        ("prompts", engine_words.prefill_table(prefills)),
    ]
    return Page(
        verb="engine",
        brand="engine",
        title=(model, f"on {device}"),
        origin=engine_words.origin_of(profile),
        effect=engine_words.effect_text(points),
        verdict=engine_words.verdict_text(profile, points),
        tone="promised" if figures and figures[0].name == "engine-saving" else "neutral",
        panels=engine_words.panels(profile, points),
        next_step=engine_words.next_step(profile, points, context),
        figures=[each for each in figures if each.name != _PROMPTS or len(figures) == 1],
        tables=[("errors", engine_words.errors_table(profile))],
        folded=Folded(
            "Prompts, and tables",
            "energy per prompt by clock, the best choices, and energy by clock",
            [each for each in figures if each.name == _PROMPTS and len(figures) > 1],
            [table for table in tables if table[1]],
        ),
        notes=[sentence(note) for note in engine_words.profile_notes(profile, assumed_clocks=assumed_clocks)],
        about=engine_words.about(profile, context),
        device=device,
        made_from=[
            *((each.label, each.text) for each in engine_words.engine_lines(profile)),
            ("Based on", engine_words.source_text(profile)),
        ],
    )
