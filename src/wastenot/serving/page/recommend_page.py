"""The page of recommendations, as HTML and as figure files: configurations as the ML.ENERGY leaderboard draws them."""

from __future__ import annotations

from typing import Any

from wastenot.pages.figure import Figure, inline, layered, specification_of, tooltips, words
from wastenot.pages.formatting import quantity
from wastenot.pages.optional_imports import load
from wastenot.pages.page import Folded, Page
from wastenot.pages.theme import CATEGORIES
from wastenot.serving.model.configurations import Recommended
from wastenot.serving.model.recommend import configuration_text
from wastenot.serving.page import recommend_words
from wastenot.serving.tables.records import ServingPoint

_WIDE = 915
_MOST_COLORED = 8  # models with a colour of their own


def recommend_figure(found: Recommended) -> Figure:
    """A point for each configuration, a line for the best ones of each model, a ring around what is chosen."""
    forecasts = any(each.evidence == "forecast" for each in found.points)
    one = len({each.model for each in found.points}) == 1
    note = (
        f"Rings: recommended, the cheapest{' within the bound' * bool(found.bounds.latencies)}. Lines join a model's best "
        "configurations: no other is both faster and cheaper. Both axes are logarithmic."
        + (" Numbers at points are batch sizes." if one else " Numbers at points are batch sizes, of every other one.")
        + (" Thin lines are forecasts of a measured configuration at other clocks." if forecasts else "")
    )
    title = f"{found.cost_title[:1].upper()}{found.cost_title[1:]} against {found.latency_title}"
    return Figure("recommendations", title, recommend_words.about(found), note, specification_of(_chart(found)))


def _chart(found: Recommended) -> Any:
    alt = load("altair")
    known = found.known()
    models = [each.point.model for each in found.chosen]
    models += [model for model in dict.fromkeys(point.model for _, _, point in known) if model not in models]
    named = models if len(models) <= _MOST_COLORED else models[: _MOST_COLORED - 1]
    other = "other models"
    domain = [*map(recommend_words.short_name, named), *([other] if len(named) < len(models) else [])]

    several_models = len(models) > 1
    if not several_models:  # colours tell its GPUs apart
        domain = list(dict.fromkeys(f"{point.gpus} × {point.gpu}" for _, _, point in known))

    def row(latency_s: float, cost: float, point: ServingPoint) -> dict[str, object]:
        return {
            "ms": 1e3 * latency_s,
            "cost": cost,
            "model": point.model,
            "shade": (recommend_words.short_name(point.model) if point.model in named else other)
            if several_models
            else f"{point.gpus} × {point.gpu}",
            "series": f"{point.model} {point.gpus} {point.gpu} {point.max_running}",
            "batch": f"{point.max_running:,}",
            "order": point.setting.core_mhz or 1e9,
            "forecast": point.evidence == "forecast",
            "evidence": point.evidence,
            "configuration": configuration_text(point),
            "time": quantity(latency_s, "s", 4),
            "price": found.cost_text(cost),
        }

    cost_of = {id(point): (latency, cost) for latency, cost, point in known}
    rows = [row(*each) for each in known]
    fronts = [row(*cost_of[id(point)], point) for each in found.chosen for point in each.frontier]
    rings = [row(each.latency_s, each.cost, each.point) for each in found.chosen]
    x = alt.X(
        "ms:Q", title=f"{found.latency_title}, ms", scale=_log([1e3 * each[0] for each in known]),
        axis=alt.Axis(tickCount=8, format="~g"),
    )  # fmt: skip
    unit = "" if found.unit == "money" else ", J"
    y = alt.Y(
        "cost:Q",
        title=f"{found.cost_title}{unit}",
        scale=_log([each[1] for each in known], spare=1.25),
        axis=alt.Axis(format="~g"),
    )
    colors = [CATEGORIES[index % len(CATEGORIES)] for index in range(len(domain))]
    color = alt.Color(
        "shade:N", title=None, sort=domain, scale=alt.Scale(domain=domain, range=colors),
        legend=alt.Legend(orient="top", columns=3, labelLimit=280) if len(domain) > 1 else None,
    )  # fmt: skip
    tip = tooltips(
        {"model:N": "model", "configuration:N": "configuration", "time:N": found.latency_title, "price:N": found.cost_title,
         "evidence:N": "evidence"}
    )  # fmt: skip
    layers = []
    bound = found.bounds.latencies.get(found.latency)
    if bound is not None and known and 0.5 * min(each[0] for each in known) < bound < 2 * max(each[0] for each in known):
        limit = alt.Chart(inline([{"ms": 1e3 * bound, "name": f"bound {quantity(bound, 's', 3)}"}])).encode(x=x)
        layers.append(limit.mark_rule(style="rule"))
        layers += words(limit.encode(y=alt.value(0), text="name:N"), "small-label", align="left", dx=5, dy=9)
    if fronts:
        if several_models:
            steps = alt.Chart(inline(fronts)).mark_line(strokeWidth=1.6, opacity=0.7, interpolate="step-after")
            layers.append(steps.encode(x=x, y=y, color=color, detail=alt.Detail("model:N"), order=alt.Order("ms:Q")))
        else:
            steps = alt.Chart(inline(fronts)).mark_line(style="curve", strokeWidth=2.0, interpolate="step-after")
            layers.append(steps.encode(x=x, y=y, order=alt.Order("ms:Q")))
    measured = [each for each in rows if not each["forecast"]]
    if len(measured) < len(rows):
        tails = alt.Chart(inline(rows))
        layers.append(
            tails.mark_line(strokeWidth=1.2, opacity=0.6).encode(
                x=x, y=y, color=color, detail=alt.Detail("series:N"), order=alt.Order("order:Q")
            )
        )
        forecast = alt.Chart(inline([each for each in rows if each["forecast"]]))
        layers.append(forecast.mark_circle(size=9, opacity=0.6).encode(x=x, y=y, color=color, tooltip=tip))
    layers.append(alt.Chart(inline(measured)).mark_circle(size=42).encode(x=x, y=y, color=color, tooltip=tip))
    if not several_models:
        layers += _batches(measured, x, y)
    if rings:
        mark = alt.Chart(inline(rings)).mark_point(size=150, strokeWidth=2.4, filled=False)
        layers.append(mark.encode(x=x, y=y, color=color, tooltip=tip))
    if several_models:
        fastest = [
            row(found.bounds.latency_of(each.fastest, found.latency) or each.latency_s, each.fastest_cost, each.fastest)
            for each in found.chosen
        ]
        layers += _ends(rings, fastest, x, y)
        layers += _batches([{**row(*cost_of[id(point)], point), "short": ""} for point in _between(found, cost_of)], x, y)
    return layered(*layers).properties(width=_WIDE, height=400)


def _between(found: Recommended, cost_of: dict[int, tuple[float, float]]) -> list[ServingPoint]:
    """Every other best configuration of each model, without the two that are named already."""
    ends = {id(point) for each in found.chosen for point in (each.point, each.fastest)}
    fronts = [sorted(each.frontier, key=lambda point: cost_of[id(point)][0]) for each in found.chosen]
    return [point for front in fronts for point in front[1::2] if id(point) not in ends]


def _batches(rows: list[dict[str, Any]], x: Any, y: Any) -> list[Any]:
    """Batch sizes beside points."""
    numbers = load("altair").Chart(inline(rows)).encode(x=x, y=y, text=load("altair").Text("batch:N"))
    return words(numbers, "small-label", align="left", baseline="bottom", dx=5, dy=-6)


def _ends(rings: list[dict[str, Any]], fastest: list[dict[str, Any]], x: Any, y: Any) -> list[Any]:
    """What savings are between, in words: lines fall to the right, so there is room above their begin and below a ring."""
    alt = load("altair")
    layers = []
    for named, place in (
        (rings, {"align": "right", "baseline": "top", "dx": -2, "dy": 9}),
        (fastest, {"align": "left", "baseline": "bottom", "dx": 3, "dy": -7}),
    ):
        texts = [{**each, "label": f"batch {each['batch']}: {each['price']}", "short": each["price"]} for each in named]
        layers += words(alt.Chart(inline(texts)).encode(x=x, y=y, text=alt.Text("label:N")), "small-label", **place)
    return layers


def _log(values: list[float], *, spare: float = 1.0) -> Any:
    room = 1.12
    low, high = (min(values), max(values)) if values else (1.0, 2.0)
    return load("altair").Scale(type="log", domain=[low / room / spare, high * room * spare], nice=False)


def recommend_page(found: Recommended) -> Page:
    """The page of recommendations.

    Args:
        found: what to show.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    models = list(dict.fromkeys(each.model for each in found.points))
    published = dict.fromkeys(each.source.partition(": ")[2] for each in found.points)  # by others, if all are
    return Page(
        verb="recommend",
        brand="recommend",
        title=(models[0] if len(models) == 1 else "What to serve", "with the lowest " + found.cost_title),
        origin=recommend_words.origin_of(found),
        effect=recommend_words.effect_text(found),
        verdict=recommend_words.verdict_text(found),
        panels=recommend_words.panels(found),
        next_step=recommend_words.next_step(found),
        figures=[recommend_figure(found)],
        tables=[("unmet", recommend_words.unmet_table(found))] if found.unmet else [],
        folded=Folded("As a table", "what is recommended", tables=[("recommendations", recommend_words.chosen_table(found))])
        if found.chosen
        else None,
        notes=recommend_words.notes(found),
        about=recommend_words.about(found),
        source=f"by others: {', '.join(published)}" if all(map(recommend_words.is_published, found.points)) else "",
        made_from=tuple(("Source", each) for each in found.sources),
    )
