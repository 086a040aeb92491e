"""``wastenot serve recommend``: what to serve a model with, of the configurations that are known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from wastenot.core.errors import InfeasibleError
from wastenot.core.wording import counted
from wastenot.pages.formatting import percent, quantity
from wastenot.terminal import quantities
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import AssumedClocksOption, FiguresOption, JsonOption, PageOption, PriceOptions

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.serving.model.configurations import Recommended
    from wastenot.serving.model.recommend import Percentile, Recommendation, Unmet

_LATENCIES = {"itl": "ITL", "ttft": "TTFT", "end_to_end": "E2E"}  # as a heading
_NEAREST = 3  # models in an error that says what would keep a bound


def recommend(
    price_options: PriceOptions,
    sources: Annotated[
        list[str] | None, argument("Studies of servers, or tables of the ML.ENERGY leaderboard.", "[SOURCE...]")
    ] = None,
    study: Annotated[str | None, option("A study of servers, as for other commands.", "FILE|URL")] = None,
    itl: Annotated[
        float | None, option("Bound on the time between tokens, such as 50ms.", "TIME", parser=quantities.seconds)
    ] = None,
    ttft: Annotated[float | None, option("Bound on the time to the first token.", "TIME", parser=quantities.seconds)] = None,
    end_to_end: Annotated[
        float | None, option("Bound on the time to the last token.", "TIME", flag="--e2e", parser=quantities.seconds)
    ] = None,
    percentile: Annotated[
        Literal["mean", "median", "p90", "p95", "p99"],
        option("Which statistic of the latencies is bounded.", "mean|median|p90|p95|p99"),
    ] = "median",
    energy_budget: Annotated[float | None, option("Bound on the energy per token, in joules.", "J")] = None,
    model: Annotated[str | None, option("Only models whose names contain this.", "NAME")] = None,
    gpu: Annotated[str | None, option("Only these GPUs, such as H100.", "NAME,...")] = None,
    gpus: Annotated[int | None, option("At most N GPUs.", "N")] = None,
    task: Annotated[str | None, option("Only this task or load.", "NAME")] = None,
    unit: Annotated[
        Literal["token", "request", "money"],
        option("What to minimise: energy per token, energy per request, or cost.", "token|request|money"),
    ] = "token",
    gpu_hour: Annotated[float, option("Price of a GPU-hour besides electricity, for --unit money.", "P")] = 0.0,
    clocks: Annotated[
        Path | None, option("Also forecast other clocks, using a profile of the same model.", "ENGINE.json")
    ] = None,
    assumed_clocks: AssumedClocksOption = False,
    context: Annotated[float | None, option("Mean cached tokens per request, for --clocks; default: 1024.", "N")] = None,
    page: PageOption = None,
    figures: FiguresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Recommend what to serve a model with, within latency bounds.

    For each model, the lowest-energy configuration (GPUs, batch, clocks) that meets the latency bounds; what the
    fastest one costs in comparison, and what a looser or tighter bound would change.
    """
    from wastenot.serving.model.configurations import CONTEXT, Only, recommend as recommended
    from wastenot.serving.model.recommend import Bounds, Prices
    from wastenot.terminal.output import console, print_json, say

    prices = Prices(price_options.price_per_kwh, gpu_hour, price_options.currency) if unit == "money" else None
    named: Percentile = "p50" if percentile == "median" else percentile
    listed = [*(sources or ()), *([study] if study else ())]
    found = recommended(
        listed,
        Bounds(itl, ttft, end_to_end, named, energy_budget),
        only=Only(model, None if gpu is None else gpu.split(","), gpus, task),
        unit=unit,
        prices=prices,
        clocks=clocks,
        context=CONTEXT if context is None else context,
        assumed_clocks=assumed_clocks,
    )
    chosen = found.chosen
    if found.left_at_auto:
        say(found.left_at_auto)
    if (page is not None or figures is not None) and chosen:
        from wastenot.terminal.output import typed_command
        from wastenot.terminal.written_page import write_page

        write_page(found.drawn(), page, figures, command=typed_command(listed[0]) if len(listed) == 1 else None)
    if as_json:
        print_json("recommend", found.document())
    elif chosen:
        console().print(_text(found))
    if not chosen:
        raise InfeasibleError(_nothing_fits(found.unmet), asked="no configuration fits")


def _nothing_fits(unmet: Sequence[Unmet]) -> str:
    """Why no model keeps the bounds: the models that are nearest to it, which come first."""
    if len(unmet) > 1 and len({each.why for each in unmet}) == 1:
        return f"of {counted(len(unmet), 'model')}, {unmet[0].why}"
    more = f"; and {counted(len(unmet) - _NEAREST, 'more model')}" if len(unmet) > _NEAREST else ""
    return "; ".join(f"{each.model}: {each.why}" for each in unmet[:_NEAREST]) + more


def _text(found: Recommended) -> RenderableType:
    from wastenot.serving.model.recommend import called
    from wastenot.serving.page.recommend_words import chosen_table, notes, unmet_table
    from wastenot.terminal.tables import Group, Text, rich_table

    within = ", ".join(f"{_LATENCIES[key]} within {1e3 * value:g} ms" for key, value in found.bounds.latencies.items())
    evidence = ", ".join(dict.fromkeys(each.point.evidence for each in found.chosen))
    rests = f", {within or 'no latency bound'} ({called(found.bounds.percentile)}; {evidence})"
    head = Text.assemble((f"Lowest {found.cost_title}", "bold"), rests)
    parts: list[RenderableType] = [head, "", rich_table(chosen_table(found), ("At the fastest", "Cost there")), ""]
    parts += [Text(text) for text in (*(_price(found, found.chosen[0]) if len(found.chosen) == 1 else ()), *notes(found))]
    if found.unmet:
        parts += ["", f"{counted(len(found.unmet), 'model')} cannot meet the bounds:", rich_table(unmet_table(found))]
    return Group(*parts)


def _price(found: Recommended, best: Recommendation) -> list[str]:
    """What other bounds would do, for one model."""
    from wastenot.serving.model.recommend import configuration_text

    took_s = found.at(best.fastest, found.bounds.percentile)
    lines = [] if took_s is None else [f"Fastest: {configuration_text(best.fastest)}, {quantity(took_s, 's', 3)}."]
    if (step := best.looser) is not None:
        lines.append(
            f"With {quantity(step.latency_s, 's', 3)}: {percent(step.saved, 1)} less, {configuration_text(step.point)}."
        )
    if (step := best.tighter) is not None:
        with_it = f"{configuration_text(step.point)} ({quantity(step.latency_s, 's', 3)})"
        lines.append(f"Below {quantity(best.latency_s, 's', 3)}: {percent(-step.saved, 1)} more, {with_it}.")
    if best.price_per_s > 0.0:
        lines.append(f"Each extra millisecond is worth about {found.cost_text(best.price_per_s / 1e3)} here.")
    return lines
