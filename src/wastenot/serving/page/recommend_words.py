"""What the page of recommendations says: what to run each model with, what that saves, and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from wastenot.core.origin import Origin
from wastenot.core.result import HasDocument, HasPage
from wastenot.pages.formatting import SPACE, number, percent, quantity
from wastenot.pages.panel import Line, Panel
from wastenot.pages.table import Column, Listed, Table, listing
from wastenot.serving.model.recommend import (
    LATENCY_NAMES,
    Bounds,
    Prices,
    Recommendation,
    Unit,
    Unmet,
    configuration_text,
    cost_function,
)
from wastenot.serving.tables.records import ServingPoint


@dataclass(frozen=True, slots=True, eq=False)
class Recommended(HasDocument, HasPage):
    """What was asked and what came of it.

    Attributes:
        points: that there was to choose from.
        chosen: for each model that can keep the bounds, the cheapest first.
        unmet: the other models.
        bounds: that were to be kept.
        unit: of the cost.
        prices: where the unit is money.
        without_clocks: cost by model of what is chosen without forecasts of clocks, where there are any.
        sources: names of the studies and tables that the points are of.
        left_at_auto: which points were not forecast at other clocks, although that was asked for, and why; empty for none.
    """

    drawn_by: ClassVar[str] = "wastenot.serving.page.recommend_page:recommend_page"

    points: Sequence[ServingPoint]
    chosen: Sequence[Recommendation]
    unmet: Sequence[Unmet]
    bounds: Bounds
    unit: Unit = "token"
    prices: Prices | None = None
    without_clocks: Sequence[Recommendation] = ()
    sources: Sequence[str] = ()
    left_at_auto: str = ""

    @property
    def latency(self) -> str:
        """Name of the latency that is bounded first."""
        return next(iter(self.bounds.latencies), "itl")

    @property
    def latency_title(self) -> str:
        """The same for a reader."""
        percentile = {"p50": "median", "mean": "mean"}.get(self.bounds.percentile, self.bounds.percentile.upper())
        return f"{percentile} {LATENCY_NAMES[self.latency]}"

    @property
    def cost_title(self) -> str:
        """What is to be least."""
        if self.unit == "money":
            return f"{self.prices.currency if self.prices else ''} per million tokens".strip()
        return f"energy per {self.unit}"

    def cost_text(self, cost: float) -> str:
        """A cost with its unit."""
        return f"{number(cost, 3)}{SPACE}{self.cost_title}" if self.unit == "money" else quantity(cost, "J", 3)

    def document(self) -> dict[str, Any]:
        """What was found, as JSON values."""
        from wastenot.serving.documents import recommendation_document

        return recommendation_document(self)

    def known(self) -> list[tuple[float, float, ServingPoint]]:
        """Latency, cost and point of those of which both are known, steady states only."""
        cost_of = cost_function(self.unit, self.prices)
        return [
            (latency, cost, point)
            for point in self.points
            if point.is_stable
            and (latency := self.bounds.latency_of(point, self.latency)) is not None
            and (cost := cost_of(point)) is not None
        ]


def origin_of(found: Recommended) -> Origin:
    """Of the least that any number shown rests on: a forecast if one is chosen from."""
    evidence = {each.evidence for each in found.points}
    for origin in ("forecast", "simulated", "measured"):
        if origin in evidence:
            return origin
    return "measured"


def about(found: Recommended) -> str:
    """Of what a figure is."""
    evidence = dict.fromkeys(each.evidence for each in found.points)
    counts = [f"{sum(each.evidence == one for each in found.points):,}{SPACE}{one}" for one in evidence]
    gpus = ", ".join(sorted({each.gpu for each in found.points}))
    tasks = ", ".join(dict.fromkeys(each.task for each in found.points if each.task))
    return " · ".join(filter(None, (tasks, gpus, f"configurations: {' and '.join(counts)}")))


def effect_text(found: Recommended) -> str:
    """The headline."""
    if not found.chosen:
        return "No configuration meets the bounds"
    if len(found.chosen) > 1:
        return f"{len(found.chosen)} of {len(found.chosen) + len(found.unmet)} models can be served within the bounds"
    (best,) = found.chosen
    saved = best.saved
    than = f"saves {percent(saved, 1)} compared with the fastest" if saved > 0 else "is also the fastest"
    return f"{_sentence(configuration_text(best.point))} {than}"


def verdict_text(found: Recommended) -> str:
    """What the headline rests on."""
    bounds = " and ".join(
        f"{LATENCY_NAMES[name]} within {quantity(value, 's', 3)}" for name, value in found.bounds.latencies.items()
    )
    which = "including forecasts, marked" if origin_of(found) == "forecast" else f"all {origin_of(found)}"
    return f"{bounds or 'no latency bound'}, of {len(found.points):,} configurations ({which})"


def panels(found: Recommended) -> tuple[Panel, ...]:
    """The cheapest, the fastest beside it, and what other bounds would do."""
    if not found.chosen:
        return ()
    best = found.chosen[0]
    others = []
    if best.looser is not None:
        others.append(Line(f"With {quantity(best.looser.latency_s, 's', 3)}", f"{percent(best.looser.saved, 1)} less"))
    if best.tighter is not None:
        others.append(Line(f"Below {quantity(best.latency_s, 's', 3)}", f"{percent(-best.tighter.saved, 1)} more"))
    price = best.price_per_s / 1e3
    return (
        Panel(
            "Lowest cost", found.cost_text(best.cost), f"{best.point.model}: {configuration_text(best.point)}.",
            lines=_lines(found, best.point),
        ),
        Panel(
            "Fastest", found.cost_text(best.fastest_cost), f"{configuration_text(best.fastest)}.",
            lines=_lines(found, best.fastest),
        ),
        Panel(
            "Each extra millisecond", f"{found.cost_text(price)}" if price else "saves nothing",
            "saved at the bound, between configurations of the frontier." if price else "", lines=tuple(others),
        ),
    )  # fmt: skip


def _lines(found: Recommended, point: ServingPoint) -> tuple[Line, ...]:
    latency = found.bounds.latency_of(point, found.latency)
    lines = [Line("Evidence", point.evidence)]
    if latency is not None:
        lines.append(Line(_sentence(found.latency_title), quantity(latency, "s", 3)))
    if point.power_w is not None:
        lines.append(Line("Power", quantity(point.power_w, "W", 3)))
    lines.append(Line("Tokens/s", number(point.tokens_per_s, 3)))
    return tuple(lines)


def notes(found: Recommended) -> list[str]:
    """What to know of what is recommended."""
    texts = dict.fromkeys(note for each in found.chosen for note in each.point.notes)
    return [_sentence(text) + "." for text in texts]


def chosen_table(found: Recommended) -> Table:
    """A row for each model."""
    measured = {each.point.model: each for each in found.without_clocks}
    columns: list[Listed[Recommendation]] = [
        Listed("Model", lambda each: each.point.model, numeric=False),
        Listed("Run on", lambda each: configuration_text(each.point), numeric=False),
        Listed("Evidence", lambda each: each.point.evidence, numeric=False),
        Listed(_sentence(found.cost_title), lambda each: each.cost, found.cost_text),
        Listed(_sentence(found.latency_title), lambda each: each.latency_s, lambda value: quantity(value, "s", 3)),
        Listed("Fastest", lambda each: each.fastest_cost, found.cost_text),
        Listed("Saved", lambda each: each.saved, lambda value: percent(value, 1)),
    ]
    table = listing("Recommendations", found.chosen, columns, "Saved: compared with the fastest configuration of the model.")
    if not found.without_clocks:
        return table
    rows = []
    for row, each in zip(table.rows, found.chosen, strict=True):
        other = measured.get(each.point.model)
        text = "–" if other is None else configuration_text(other.point)
        cost = "–" if other is None else found.cost_text(other.cost)
        values = (None, None) if other is None else (text, other.cost)
        rows.append(replace(row, texts=(*row.texts, text, cost), values=(*row.values, *values)))
    more = (Column("At the default clocks"), Column("Cost there", numeric=True))
    return replace(table, columns=(*table.columns, *more), rows=tuple(rows))


def unmet_table(found: Recommended) -> Table:
    """Models that cannot keep the bounds."""
    columns: tuple[Listed[Unmet], ...] = (
        Listed("Model", lambda each: each.model, numeric=False),
        Listed("Why, and what would be possible", lambda each: each.why, numeric=False),
    )
    return listing("Models that cannot meet the bounds", found.unmet, columns)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
