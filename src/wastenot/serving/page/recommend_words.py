"""What the page of recommendations says: what to run each model with, what that saves, and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from wastenot.core.origin import Origin
from wastenot.core.result import HasDocument, HasPage
from wastenot.pages.formatting import SPACE, number, percent, quantity
from wastenot.pages.panel import Line, Next, Panel
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
        low, high = (percent(choose(each.saved for each in found.chosen), 0) for choose in (min, max))
        less = low if low == high else f"{low.removesuffix(f'{SPACE}%')} to {high}"
        verb, what = ("cost", "") if found.unit == "money" else ("use", " energy")
        return f"Served as recommended, {len(found.chosen)} models {verb} {less} less{what} than at their fastest"
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
    if len(found.chosen) > 1 and found.unmet:
        bounds = f"{bounds} ({len(found.unmet)} more cannot be served within that)"
    return f"{bounds or 'no latency bound'}, of {len(found.points):,} configurations ({which})"


_MOST_PANELS = 3


def panels(found: Recommended) -> tuple[Panel, ...]:
    """What to serve each of the first models with; of a single model also the fastest, and what other bounds would do."""
    if not found.chosen:
        return ()
    if len(found.chosen) > 1:
        return tuple(_model_panel(found, each) for each in found.chosen[:_MOST_PANELS])
    (best,) = found.chosen
    cheapest = Panel(
        "Recommended",
        _full_cost(found, best.cost),
        f"with {configuration_text(best.point)}.",
        lines=_lines(found, best.point),
    )
    fastest = Panel(
        "Fastest, for comparison", _full_cost(found, best.fastest_cost), f"with {configuration_text(best.fastest)}.",
        lines=_lines(found, best.fastest),
    )  # fmt: skip
    return tuple(filter(None, (cheapest, fastest, _bounds_panel(found, best))))


def _model_panel(found: Recommended, best: Recommendation) -> Panel:
    than = f"{percent(best.saved, 1)} less than the fastest, {configuration_text(best.fastest)}"
    text = f"{_full_cost(found, best.cost)}, {than if best.saved > 0 else 'and nothing is faster'}."
    # The owner is in the table; here the model itself is what matters.
    return Panel(best.point.model.split("/")[-1], configuration_text(best.point), text, lines=_lines(found, best.point))


def _full_cost(found: Recommended, cost: float) -> str:
    return found.cost_text(cost) if found.unit == "money" else f"{found.cost_text(cost)} per {found.unit}"


def _bounds_panel(found: Recommended, best: Recommendation) -> Panel | None:
    """What a looser or a tighter bound would change; ``None`` where neither is known."""
    others = []
    if best.looser is not None:
        others.append((percent(best.looser.saved, 1) + " less", f"with {quantity(best.looser.latency_s, 's', 3)} allowed"))
    if best.tighter is not None:
        others.append((percent(-best.tighter.saved, 1) + " more", f"if below {quantity(best.latency_s, 's', 3)}"))
    if not others:
        return None
    (value, text), *rest = others
    price = best.price_per_s / 1e3
    lines = [Line("Each extra millisecond saves", f"{found.cost_text(price)}, at the bound")] if price else []
    lines += [Line(each[1][:1].upper() + each[1][1:], each[0]) for each in rest]
    return Panel("With another bound", value, f"{text}.", lines=tuple(lines))


def _lines(found: Recommended, point: ServingPoint) -> tuple[Line, ...]:
    latency = found.bounds.latency_of(point, found.latency)
    mixed = len({each.evidence for each in found.points}) > 1
    lines = [Line("Evidence", point.evidence)] if mixed else []
    if latency is not None:
        lines.append(Line(_sentence(found.latency_title), quantity(latency, "s", 3)))
    if point.power_w is not None:
        lines.append(Line("Power", quantity(point.power_w, "W", 3)))
    lines.append(Line("Throughput", f"{number(point.tokens_per_s, 3)}{SPACE}tokens/s"))
    return tuple(lines)


def next_step(found: Recommended) -> Next | None:
    """How to see whether what is recommended holds on one's own server; ``None`` where nothing is."""
    if not found.chosen:
        return None
    point = found.chosen[0].point
    model = point.model.split("/")[-1]
    text = f"Serve {model} with {configuration_text(point)}, and measure your own server at that batch size"
    knobs = (("--core", point.setting.core_mhz), ("--memory", point.setting.memory_mhz),
             ("--power-limit", point.setting.power_limit_w))  # fmt: skip
    clocks = "".join(f" {name} {value:g}" for name, value in knobs if value is not None)
    clocks += " --allow-clock-control" if clocks else ""
    return Next(text, (f"wastenot serve bench http://HOST:PORT --batch {point.max_running}{clocks} --study SERVER.db",))


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
