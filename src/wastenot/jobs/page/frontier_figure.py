"""Every pair of a batch size and a setting in time and energy to the target: frontier, default and choice."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from wastenot.core.wording import counted, listed
from wastenot.jobs.model.frontier import Pair
from wastenot.jobs.page.drawing import WIDE, about, energy_unit, scale_of, time_unit
from wastenot.jobs.page.words import cost_beside_default, time_text
from wastenot.jobs.plan.overview import JobOverview
from wastenot.pages.figure import Figure, beside, inline, layered, specification_of, tooltips, words
from wastenot.pages.formatting import percent, quantity, setting_text
from wastenot.pages.narrow import NARROW_PANEL
from wastenot.pages.optional_imports import load
from wastenot.pages.theme import CATEGORIES

_TITLE = "Time and energy to the target"
_HEIGHT = 360
_GAP, _LETTER, _HALF_HEIGHT = 8, 6.5, 8  # pixels from a dot to its label, of a letter, and of half a line of text
_STEPS = 60  # along a piece of a line, where it is looked at
_ROOM_ON_THE_LEFT = 0.12  # of the times shown: what a label takes there


def frontier_figure(overview: JobOverview) -> Figure:
    """Pairs, those that no other beats, the default and the next one."""
    known = [pair for pair in overview.pairs if pair.energy_j is not None]
    # A forecast far off would squeeze what was run: it is drawn only where default or next run rest on it, or all is one.
    marked = {each.batch_size for each in (overview.default, overview.next_pair) if each is not None}
    drawn = [pair for pair in known if not pair.forecast or pair.batch_size in marked] or known
    if not known:
        lacks = "energy is not measured on this device" if overview.pairs else "no run has reached the target yet"
        if overview.reached and not overview.pairs:
            lacks = "the time of an epoch is not known yet"
        return Figure("job-frontier", _TITLE, about(overview), f"There is no frontier: {lacks}.", None)
    note = (
        "A dot is a batch size at a power limit or clock; a thin line joins those of a batch size, named at its left end. "
        "On the thick line no dot is beaten by another in both time and energy."
    )
    if any(pair.forecast for pair in drawn):
        note += " Faint: a forecast, as no run with this batch size has reached the target yet."
    absent = [f"{size:,}" for size in overview.terms.batch_sizes if size not in {pair.batch_size for pair in drawn}]
    if absent:
        note += f" Not drawn, as no run with it has reached the target: batch {listed(absent)}."
    return Figure("job-frontier", _TITLE, about(overview), note, specification_of(_chart(overview, drawn)))


def _chart(overview: JobOverview, pairs: list[Pair]) -> Any:
    alt = load("altair")
    (unit, factor), (joule, share) = (
        time_unit(max(pair.time_s for pair in pairs)), energy_unit(max(pair.energy_j or 0.0 for pair in pairs))
    )  # fmt: skip

    def row(pair: Pair, label: str = "") -> dict[str, object]:
        runs = "forecast" if pair.forecast else f"{pair.epochs.mean:.1f}, from {counted(pair.epochs.reached, 'run')}"
        return {
            "size": f"{pair.batch_size:,}",
            "x": factor * pair.time_s,
            "y": share * (pair.energy_j or 0.0),
            "setting": setting_text(pair.setting),
            "time": time_text(pair.time_s),
            "energy": quantity(pair.energy_j or 0.0, "J", 4),
            "cost": cost_beside_default(overview, pair.cost(overview.terms), 4),
            "epochs": runs,
            "forecast": pair.forecast,
            "label": label,
        }

    x = alt.X(
        "x:Q", title=f"time to the target, {unit}", scale=scale_of([factor * pair.time_s for pair in pairs]),
        axis=alt.Axis(tickCount=10),
    )  # fmt: skip
    y = alt.Y(
        "y:Q", title=f"energy to the target, {joule}", scale=scale_of([share * (pair.energy_j or 0.0) for pair in pairs])
    )
    tip = tooltips(
        {
            "size:N": "batch size", "setting:N": "setting", "time:N": "time", "energy:N": "energy", "cost:N": "cost",
            "epochs:N": "epochs",
        }
    )  # fmt: skip
    sizes = _sizes(pairs)
    colors = [CATEGORIES[index % len(CATEGORIES)] for index in range(len(sizes))]
    color = alt.Color("size:N", scale=alt.Scale(domain=[f"{size:,}" for size in sizes], range=colors), legend=None)
    base = alt.Chart(inline([row(pair) for pair in pairs])).encode(x=x, y=y)
    faint = alt.condition("datum.forecast", alt.value(0.35), alt.value(1.0))
    line_opacity = alt.condition("datum.forecast", alt.value(0.2), alt.value(0.55))
    by_size = base.mark_line(strokeWidth=1.5).encode(
        color=color, detail=alt.Detail("size:N"), order=alt.Order("x:Q"), opacity=line_opacity
    )
    dots = base.mark_circle(size=48).encode(color=color, opacity=faint, tooltip=tip)
    names: list[Any] = []
    marked = (overview.default, overview.next_pair)
    narrow = _narrow_names(pairs, marked)
    for end, align, dx in ((min, "right", -8), (max, "left", 8)):
        ends = [end((p for p in pairs if p.batch_size == size), key=lambda p: p.time_s) for size in sizes]
        # A pair that is marked has its batch size in the mark's own label.
        free, kept = [pair for pair in ends if pair not in marked], narrow["fastest"] if end is min else []
        labelled = [
            row(pair) | {"label": _end_text(pair, end is min), "short": f"{pair.batch_size:,}" if pair in kept else ""}
            for pair in free
        ]
        named = alt.Chart(inline(labelled)).encode(x=x, y=y, text=alt.Text("label:N"))
        names += words(named, "small-label", align=align, dx=dx, fontSize=11)
    if narrow["slowest"]:
        moved = alt.Chart(inline([row(pair) | {"short": f"{pair.batch_size:,}"} for pair in narrow["slowest"]]))
        below = moved.encode(x=x, y=y, text=alt.Text("label:N"))
        names += words(below, "small-label", align="left", dx=3, dy=11, fontSize=11)
    layers = [by_size]
    if len(overview.pareto) > 1:
        pareto = alt.Chart(inline([row(pair) for pair in overview.pareto]))
        layers.append(pareto.mark_line(style="curve", strokeWidth=2.4).encode(x=x, y=y, order=alt.Order("x:Q")))
    layers += [dots, *names, *_difference(overview, row, x, y)]
    styles = [(overview.default, "dot", "default"), (overview.next_pair, "plan", "next")]
    if overview.default is not None and overview.default == overview.next_pair:
        styles = [(overview.default, "plan", "default and next")]
    for pair, style, label in styles:
        if pair is not None and pair.energy_j is not None:
            mark = alt.Chart(inline([row(pair, f"{_label(pair)}, {label}") | {"short": label}])).encode(x=x, y=y)
            layers += (
                _marked(mark, style, tip) if _stands_free_on_the_left(pair, pairs) else beside(style, mark, "label:N", tip)
            )
    return layered(*layers).properties(width=WIDE, height=_HEIGHT)


def _difference(overview: JobOverview, row: Callable[..., dict[str, object]], x: Any, y: Any) -> list[Any]:
    """A line from the default to the next pair, with both energies and what is between them."""
    default, following = overview.default, overview.next_pair
    if default is None or following is None or default == following or not default.energy_j or following.energy_j is None:
        return []
    alt = load("altair")
    ends = [row(default), row(following)]
    line = alt.Chart(inline([ends[0] | {"x2": ends[1]["x"], "y2": ends[1]["y"]}]))
    change = percent(following.energy_j / default.energy_j - 1.0, 1, sign=True)
    values = f"{quantity(default.energy_j, 'J', 3)} → {quantity(following.energy_j, 'J', 3)}"
    middle = {name: 0.5 * sum(float(str(end[name])) for end in ends) for name in ("x", "y")}
    text = alt.Chart(inline([ends[1] | middle | {"label": f"{values}, {change}", "short": change}]))
    return [
        line.mark_rule(style="leader", tooltip=None).encode(x=x, y=y, x2=alt.X2("x2:Q"), y2=alt.Y2("y2:Q")),
        *words(text.encode(x=x, y=y, text=alt.Text("label:N")), align="right", dx=-7),
    ]


def _stands_free_on_the_left(pair: Pair, pairs: list[Pair]) -> bool:
    """Whether a pair is the left end of its line, and far enough from the left edge of the figure for a label."""
    first, last = (choose(each.time_s for each in pairs) for choose in (min, max))
    is_end = pair.time_s <= min(each.time_s for each in pairs if each.batch_size == pair.batch_size)
    return is_end and pair.time_s > first + _ROOM_ON_THE_LEFT * (last - first)


def _marked(mark: Any, style: str, tip: Any) -> list[Any]:
    """A mark with its label on the left."""
    texts = words(mark.encode(text=load("altair").Text("label:N")), align="right", baseline="middle", dx=-11, dy=-1)
    return [*texts, mark.mark_point(style=style).encode(tooltip=tip)]


def _label(pair: Pair) -> str:
    """A marked pair: ``batch 20 at 134 W``."""
    return f"batch {pair.batch_size:,}" + ("" if pair.setting.is_auto else f" at {setting_text(pair.setting)}")


def _end_text(pair: Pair, is_fastest: bool) -> str:
    """What stands beside an end of a line on wide pages: the batch size at the fastest, the setting at the slowest."""
    if is_fastest:
        return f"batch {pair.batch_size:,}"
    return "" if pair.setting.is_auto else setting_text(pair.setting)


def _narrow_names(pairs: list[Pair], marked: tuple[Pair | None, ...]) -> dict[str, list[Pair]]:
    """Beside which pairs the batch sizes stand on narrow pages: at the fastest end, unless another line runs there."""
    names: dict[str, list[Pair]] = {"fastest": [], "slowest": []}
    for size in _sizes(pairs):
        own = sorted((each for each in pairs if each.batch_size == size), key=lambda each: each.time_s)
        if own[0] in marked:
            continue
        moved = own[-1] not in marked and len(own) > 1 and _is_crossed(own[0], pairs)
        names["slowest" if moved else "fastest"].append(own[-1 if moved else 0])
    return names


def _is_crossed(pair: Pair, pairs: list[Pair]) -> bool:
    """Whether the line of another batch size runs through the place left of a pair, on a narrow page."""
    across = _placed([each.time_s for each in pairs], NARROW_PANEL)
    up = _placed([_energy_j(each) for each in pairs], _HEIGHT)
    right, middle = across(pair.time_s) - _GAP, up(_energy_j(pair))
    left = right - _LETTER * len(f"{pair.batch_size:,}")
    for size in _sizes(pairs):
        line = sorted((each for each in pairs if each.batch_size == size != pair.batch_size), key=lambda each: each.time_s)
        for one, other in pairwise(line):
            x = np.linspace(across(one.time_s), across(other.time_s), _STEPS)
            y = np.linspace(up(_energy_j(one)), up(_energy_j(other)), _STEPS)
            if ((left < x) & (x < right) & (abs(y - middle) < _HALF_HEIGHT)).any():
                return True
    return False


def _placed(values: list[float], pixels: int) -> Callable[[float], float]:
    """Where a value is on an axis that is as long as this, by its scale."""
    scale = scale_of(values)
    by = math.log if scale.type == "log" else float
    low, high = map(by, scale.domain)
    return lambda value: pixels * (by(value) - low) / (high - low)


def _energy_j(pair: Pair) -> float:
    return pair.energy_j or 0.0


def _sizes(pairs: list[Pair]) -> list[int]:
    return sorted({pair.batch_size for pair in pairs})
