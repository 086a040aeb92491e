"""What the page of recommendations says: what to run each model with, what that saves, and what it rests on."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from wastenot.core.origin import Origin
from wastenot.core.wording import counted, listed
from wastenot.pages.formatting import SPACE, number, percent, quantity
from wastenot.pages.panel import Line, Next, Panel
from wastenot.pages.table import Column, Listed, Table, listing
from wastenot.serving.model.benchmark_files import PUBLISHED
from wastenot.serving.model.configurations import Recommended
from wastenot.serving.model.recommend import (
    LATENCY_NAMES,
    Percentile,
    Recommendation,
    Unmet,
    called,
    configuration_text,
)
from wastenot.serving.page.engine_words import clock_options
from wastenot.serving.tables.records import ServingPoint


def short_name(model: str) -> str:
    """A model without its owner."""
    return model.rsplit("/", maxsplit=1)[-1]


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
    return " · ".join(filter(None, (tasks, gpus, f"{' and '.join(counts)} configurations")))


def effect_text(found: Recommended) -> str:
    """The headline: what is saved, compared with what, and what it costs in latency."""
    if not found.chosen:
        return "No configuration meets the bounds"
    bound = found.bounds.latencies.get(found.latency)
    within = "" if bound is None else f"within a {found.latency_title} of {quantity(bound, 's', 3)}"
    if bound is not None and found.latency == "itl":
        within = f"within a {called(found.bounds.percentile)} of {quantity(bound, 's', 3)} between tokens"
    if len(found.chosen) > 1:
        if _only_batches(found):
            names = _told_apart([short_name(each.point.model) for each in found.chosen])
            batches = [f"{each.point.max_running:,} ({name})" for each, name in zip(found.chosen, names, strict=True)]
            what = f"{found.cost_title} {'is' if found.unit != 'money' else 'are'} lowest at batch {listed(batches)}"
            return _sentence(f"{within}, {what}" if within else what)
        low, high = (found.cost_text(choose(each.cost for each in found.chosen)) for choose in (min, max))
        verb, per = ("cost", "") if found.unit == "money" else ("use", f" per {found.unit}")
        models = f"{len(found.chosen)} models {verb} {low} to {high}{per}"
        return _sentence(f"{within}, {models}" if within else models)
    (best,) = found.chosen
    if best.saved <= 0:
        return f"{_sentence(configuration_text(best.point))} is also the fastest"
    takes = f"{found.latency_title} {_latency(found, best.point, found.bounds.percentile)}"
    least = f"the lowest{f' {within}' if within else ''}"
    return f"{_sentence(configuration_text(best.point))}: {_full_cost(found, best.cost)}, {least}; {takes}"


def _told_apart(names: Sequence[str]) -> list[str]:
    """Names as short as still tells them apart: ``8B`` and ``70B`` of two models of a family."""
    parts = [name.split("-") for name in names]
    same = sum(1 for _ in takewhile(lambda each: len(set(each)) == 1, zip(*parts, strict=False)))
    short = [each[same] if len(each) > same else "" for each in parts]
    return short if len(set(short)) == len(names) and all(short) else list(names)


def verdict_text(found: Recommended) -> str:
    """How much depends on the bound, and what the headline rests on."""
    origin = origin_of(found)
    which = (
        ("partly " if origin == "forecast" else "") + origin + (" by others" if all(map(is_published, found.points)) else "")
    )
    unmet = f"{counted(len(found.unmet), 'more model')} cannot meet the bounds" if found.chosen and found.unmet else ""
    said = (_next_faster_text(found) or unmet, f"{counted(len(found.points), 'configuration')} {which}")
    return "; ".join(filter(None, said))


def tail_text(found: Recommended) -> str:
    """What the statistic is that is not bounded, of what is chosen; empty where none is known."""
    if found.also is None:
        return ""
    values = [value for each in found.chosen if (value := found.at(each.point, found.also)) is not None]
    low, high = (quantity(choose(values), "s", 3) for choose in (min, max))
    beyond = min(values) > found.bounds.latencies.get(found.latency, math.inf)
    tail = (found.also, found.latency) == ("p99", "itl")
    which = "one token in a hundred takes longer than (P99)" if tail else f"{called(found.also)} is"
    return f"{which} {low if low == high else f'{low} to {high}'}{', above the bound' if beyond else ''}"


def _next_faster_text(found: Recommended) -> str:
    """What is saved compared with the next faster configurations, a nearer baseline than the fastest."""
    steps = [each.tighter for each in found.chosen if each.tighter is not None]
    if not steps or len(steps) < len(found.chosen):
        return ""
    low, high = (percent(choose(-each.saved for each in steps), 1) for choose in (min, max))
    more = low if low == high else f"{low.removesuffix(f'{SPACE}%')} to {high}"
    plural = len(steps) > 1
    verb = "cost" if found.unit == "money" else "use"
    return f"the next faster configuration{'s' * plural} {verb}{'s' * (not plural)} {more} more"


def _latency(found: Recommended, point: ServingPoint, statistic: Percentile) -> str:
    """A statistic of a configuration's latency."""
    value = found.at(point, statistic)
    return "unknown" if value is None else quantity(value, "s", 3)


_MOST_PANELS = 3


def panels(found: Recommended) -> tuple[Panel, ...]:
    """What to serve each of the first models with; of a single model also the fastest, and what other bounds would do."""
    if not found.chosen:
        return ()
    if len(found.chosen) > 1:
        return tuple(_model_panel(found, each) for each in found.chosen[:_MOST_PANELS])
    (best,) = found.chosen
    # The headline names the configuration; of several models each card has to.
    cheapest = replace(_model_panel(found, best), title="Recommended")
    fastest = Panel(
        "Fastest, for comparison", _full_cost(found, best.fastest_cost), f"with {configuration_text(best.fastest)}.",
        lines=_lines(found, best.fastest),
    )  # fmt: skip
    return tuple(filter(None, (cheapest, fastest, _bounds_panel(found, best))))


def _model_panel(found: Recommended, best: Recommendation) -> Panel:
    model = short_name(best.point.model)
    text = configuration_text(best.point)
    if best.saved <= 0:
        return Panel(
            model, "already the fastest", f"{text}: {_full_cost(found, best.cost)}.", lines=_lines(found, best.point, best)
        )
    return Panel(model, _full_cost(found, best.cost), f"with {text}.", lines=_lines(found, best.point, best))


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


def _lines(found: Recommended, point: ServingPoint, best: Recommendation | None = None) -> tuple[Line, ...]:
    """Of a configuration; of one that is chosen, beside the fastest and the next faster one."""
    mixed = len({each.evidence for each in found.points}) > 1
    lines = [Line("Evidence", point.evidence)] if mixed else []
    for statistic in found.statistics:
        value = found.at(point, statistic)
        if value is not None:
            text = quantity(value, "s", 3)
            bound = math.inf if best is None else found.bounds.latencies.get(found.latency, math.inf)
            above = f", above {quantity(bound, 's', 3)}" if value > bound else ""
            lines.append(Line(_sentence(found.titled(statistic)), f"{text}{above}", warns=bool(above)))
    if point.power_w is not None:
        lines.append(Line("Power", quantity(point.power_w, "W", 3)))
    lines.append(Line("Throughput", f"{number(point.tokens_per_s, 3)}{SPACE}tokens/s"))
    if best is not None and best.tighter is not None and len(found.chosen) > 1:
        step, more = best.tighter, "" if found.unit == "money" else " energy"
        text = f"{configuration_text(step.point)}: {quantity(step.latency_s, 's', 3)}, {percent(-step.saved, 1)} more{more}"
        lines.append(Line("Next faster", text))
    if best is not None and best.fastest is not best.point and len(found.chosen) > 1:
        took = _latency(found, best.fastest, found.bounds.percentile)
        text = f"{configuration_text(best.fastest)}: {took}, {_full_cost(found, best.fastest_cost)}"
        lines.append(Line("Fastest", text))
    return tuple(lines)


def next_step(found: Recommended) -> Next | None:
    """How to serve what is recommended and see whether it holds on one's own server; ``None`` where nothing is."""
    if not found.chosen:
        return None
    point = found.chosen[0].point
    model = short_name(point.model)
    text = f"Serve {model} with {configuration_text(point)}{' (the others likewise)' if len(found.chosen) > 1 else ''}"
    clocks = clock_options(point.setting)
    bench = f"wastenot serve bench http://HOST:PORT --batch {point.max_running}{clocks} --study SERVER.db"
    # An owner and a name is what engines load; any other name is one that somebody gave it.
    serve = _serve_command(point) if point.model.count("/") == 1 else None
    measure = "measure your own server at that batch size (replace HOST:PORT)"
    if serve is None:
        return Next(f"{text}, and {measure}", (bench,))
    return Next(f"{text}, here with vLLM; once it answers, {measure} from another terminal", (serve, bench), apart=True)


def _serve_command(point: ServingPoint) -> str:
    """How vLLM serves a configuration."""
    degrees = (("tensor", point.tensor_parallel), ("data", point.data_parallel))
    flags = [f"--{name}-parallel-size {degree}" for name, degree in degrees if degree > 1]
    flags += ["--enable-expert-parallel"] if point.expert_parallel > 1 else []
    return " ".join(("vllm serve", shlex.quote(point.model), *flags, f"--max-num-seqs {point.max_running}"))


def notes(found: Recommended) -> list[str]:
    """What to know of what is recommended."""
    if not found.chosen:
        return []
    beyond = tail_text(found) if found.bounds.latencies else "no latency is bounded"
    remedy = f" (--percentile {found.also} bounds that instead)" if beyond.endswith(", above the bound") else ""
    idle = "energy is that of an idle simulated GPU, which does not run the server: no saving follows from it"
    texts = [idle if any(each.point.beside_idle_gpu for each in found.chosen) else "", f"{beyond}{remedy}" if beyond else ""]
    texts += [*(note for each in found.chosen for note in each.point.notes)]
    tables = dict.fromkeys(each.source.partition(": ")[2] for each in found.points if is_published(each))
    if tables and not all(map(is_published, found.points)):
        texts.append(f"published by others: {', '.join(tables)}")
    if _only_batches(found):
        texts.append("only the batch size was chosen: each model is known on one number of GPUs")
    return [_sentence(text) + "." for text in dict.fromkeys(texts) if text]


def is_published(point: ServingPoint) -> bool:
    """Whether others measured and published it."""
    return point.evidence == "measured" and point.source.startswith(PUBLISHED)


def _only_batches(found: Recommended) -> bool:
    """Whether configurations of a model differ in nothing but their batch size."""
    return all(len(_gpus(found, each.point.model)) == 1 for each in found.chosen) and not found.without_clocks


def _gpus(found: Recommended, model: str) -> set[tuple[int, str]]:
    return {(each.gpus, each.gpu) for each in found.points if each.model == model}


def chosen_table(found: Recommended) -> Table:
    """A row for each model."""
    measured = {each.point.model: each for each in found.without_clocks}
    mixed = len({each.evidence for each in found.points}) > 1
    columns: list[Listed[Recommendation]] = [
        Listed("Model", lambda each: each.point.model, numeric=False),
        Listed("Run on", lambda each: configuration_text(each.point), numeric=False),
        *((Listed("Evidence", lambda each: each.point.evidence, numeric=False),) if mixed else ()),
        Listed(_sentence(found.cost_title), lambda each: each.cost, found.cost_text),
        *(_latency_column(found, each) for each in found.statistics),
        Listed("At the fastest", lambda each: each.fastest_cost, found.cost_text),
        Listed("Saved", lambda each: None if each.point.beside_idle_gpu else each.saved, lambda value: percent(value, 1)),
    ]
    of = " and ".join(map(called, found.statistics))
    note = f"Saved: compared with the fastest configuration of the model. {_sentence(of)}: {LATENCY_NAMES[found.latency]}."
    table = listing("Recommendations", found.chosen, columns, note)
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


def _latency_column(found: Recommended, statistic: Percentile) -> Listed[Recommendation]:
    return Listed(
        _sentence(called(statistic)), lambda each: found.at(each.point, statistic), lambda value: quantity(value, "s", 3)
    )


def unmet_table(found: Recommended) -> Table:
    """Models that cannot keep the bounds."""
    columns: tuple[Listed[Unmet], ...] = (
        Listed("Model", lambda each: each.model, numeric=False),
        Listed("Why, and what would be possible", lambda each: each.why, numeric=False),
    )
    return listing("Models that cannot meet the bounds", found.unmet, columns)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
