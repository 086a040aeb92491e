"""A forecast as a page: whether clocks are worth trying, how sure that is, and what would make it surer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from wastenot.core.errors import BadInputError
from wastenot.core.wording import sentence
from wastenot.kernels.forecast.forecast import MEMORY_LEFT
from wastenot.kernels.forecast.result import Forecast, KernelForecast, Quantiles, RangeForecast, UncertaintySource
from wastenot.kernels.natural.page.summary import forecast_table
from wastenot.pages.compared import compared_chart, compared_iteration
from wastenot.pages.figure import Figure, inline, layered, name_axis, specification_of, tooltips
from wastenot.pages.formatting import SPACE, change, changes, fraction_of_whole, megahertz, percent, quantity, shortened
from wastenot.pages.optional_imports import load
from wastenot.pages.page import Folded, Page
from wastenot.pages.panel import Line, Next, Panel
from wastenot.pages.table import Listed, Table, listing
from wastenot.workloads.models import MODELS
from wastenot.workloads.shape import Shape, default_batch, name_of, parse_name

_WIDTH, _NAME_WIDTH, _LONGEST_NAME, _COLOR = 530, 280, 48, "#2f6fde"
_SHOWN = 5e-4  # of the energy, below which figures show 0.0 %
_SAVES = 1e-4  # of the energy, below which nothing is saved
_SEEN_SHARE = 5e-3  # of the variance, below which it is shown as none
_WORTH = 5e-3  # of the energy, saved with 97.5 % probability, from which on it is worth trying

_UNKNOWNS = {
    "time": "how kernel times depend on the clocks",
    "voltage": "the voltage at each clock",
    "power": "idle and leakage power",
    "memory power": "the power of the memory",
    "auto": "what the default clocks cost beyond the same clock locked",
}


def _kernels_table(predicted: Forecast) -> Table:
    """The forecast by kernel, those that use most energy first."""
    within = f"80{SPACE}% of draws"
    memory: tuple[Listed[KernelForecast], ...] = (
        Listed("Memory MHz", lambda row: megahertz(row.memory_mhz)),
        Listed("In draws", lambda row: percent(row.memory_share, 0)),
    )
    fields: tuple[Listed[KernelForecast], ...] = (
        Listed("Kernel", lambda row: shortened(row.kernel, 32), numeric=False),
        Listed("Calls", lambda row: f"{row.count:,}"),
        Listed("Of the energy", lambda row: row.energy_share, fraction_of_whole, optional=True),
        Listed("Core MHz", lambda row: f"{row.core_mhz.median:,.0f}"),
        Listed(within, lambda row: "{:,.0f} to {:,.0f}".format(*row.core_mhz.central_80)),
        *(() if predicted.core_only else memory),
        Listed("Energy", lambda row: change(row.energy_change.median, 1)),
        Listed(within, lambda row: changes(row.energy_change.central_80, 1)),
    )
    note = f"Core clock and energy of a call: medians of possible GPUs, and what holds 80{SPACE}% of them."
    return listing("Forecast by kernel", _by_energy(predicted), fields, note)


def _by_energy(predicted: Forecast) -> list[KernelForecast]:
    return sorted(predicted.kernels, key=lambda row: -(row.energy_share or 0.0))


_UNKNOWN_FIELDS: tuple[Listed[UncertaintySource], ...] = (
    Listed("Unknown", lambda row: _UNKNOWNS.get(row.what, row.what), numeric=False),
    Listed("Of the variance", lambda row: row.share, lambda share: percent(share, 0)),
    Listed("What would determine it", lambda row: row.narrowed_by, numeric=False),
)


def _unknowns_table(predicted: Forecast) -> Table:
    """What widens the forecast, without what adds nothing to it."""
    told = [each for each in predicted.unknowns if each.share >= _SEEN_SHARE]
    together = max(0.0, 1.0 - math.fsum(each.share for each in predicted.unknowns))
    if told and together >= _SEEN_SHARE:
        told.append(UncertaintySource("several of these together", together, "–"))
    note = f"Of what is saved at any {'core ' if predicted.core_only else ''}clock, {_limit(predicted.max_slowdown)}."
    return listing("Where the uncertainty comes from", told, _UNKNOWN_FIELDS, note)


def effect_text(predicted: Forecast) -> str:
    """Whether setting clocks is worth trying."""
    headline, limit = _headline(predicted), _limit(predicted.max_slowdown)
    spread = headline.energy_change
    low, high = sorted(-each for each in spread.central_95)
    if low >= _WORTH:
        saves = f"{percent(low, 1)} to {percent(high, 1)} of the energy saved"
        cap = "" if headline.cap_mhz is None else f" with clocks capped at {megahertz(headline.cap_mhz)}{SPACE}MHz"
        return f"Worth trying: {saves}{cap}, {limit}"
    if spread.median < -_SAVES:
        return f"Uncertain: energy {changes(spread.central_95, 1)}, {limit}"
    return f"Not worth trying: nothing would be saved, {limit}"


def verdict_text(predicted: Forecast) -> str:
    """Whether it is within the limit where it is worth trying; a forecast, of which clocks, and what it assumes."""
    headline = _headline(predicted)
    clocks = "by a model at any clock" if headline == _at_any_clock(predicted) else "within the clocks seen"
    drawn = f"{predicted.draws:,} possible GPUs, drawn at random to fit what was seen"
    if -max(headline.energy_change.central_95) >= _WORTH:
        slower = f"within the limit, {percent(headline.time_change.median, 1)} slower"
        return f"{slower}: forecast {clocks} for 95{SPACE}% of {drawn}; no clock was set"
    return f"a forecast {clocks}, no clock was set: it holds for 95{SPACE}% of {drawn}"


def _at_any_clock(predicted: Forecast) -> RangeForecast:
    return RangeForecast(predicted.max_slowdown, predicted.energy_change, predicted.time_change)


def _headline(predicted: Forecast) -> RangeForecast:
    """What can be had most easily of what saves anything: one cap, a cap for each kernel, any clock."""
    natural = predicted.natural
    rows = () if natural is None else (*natural.one_cap, *natural.within_range)
    asked = (row for row in rows if row.max_slowdown == predicted.max_slowdown)
    return next((row for row in asked if row.energy_change.median < -_SAVES), _at_any_clock(predicted))


def _limit(max_slowdown: float) -> str:
    return f"at most {100.0 * max_slowdown:.3g}{SPACE}% slower" if max_slowdown else "with no slowdown"


def panels(predicted: Forecast) -> tuple[Panel, ...]:
    """What one cap, and then one for each kernel, would save; without natural clocks any clock; and how sure that is."""
    natural, limit = predicted.natural, _limit(predicted.max_slowdown)
    left = ", memory clock unchanged" if predicted.core_only else ""
    found: list[Panel] = []
    if natural is not None:
        span = f", within the clocks seen, {natural.low_mhz:,.0f} to {natural.high_mhz:,.0f}{SPACE}MHz"
        kinds = (("One cap for all kernels", natural.one_cap), ("A cap for each kernel", natural.within_range))
        for (title, rows), how in zip(kinds, ("", " if switching were instant"), strict=True):
            asked = next((row for row in rows if row.max_slowdown == predicted.max_slowdown), None)
            if asked is None:
                continue
            cap = [] if asked.cap_mhz is None else [
                Line("Cap", f"{megahertz(asked.cap_mhz)}{SPACE}MHz, the highest core clock allowed")
            ]  # fmt: skip
            told = [row for row in rows if row is not asked and not _is_nothing(row.energy_change)]
            others = [Line(_limit(row.max_slowdown).capitalize(), _saved(row)) for row in told]
            saved_j = max(-asked.energy_change.median, 0.0) * predicted.auto_energy_j
            text = f"or {quantity(saved_j, 'J', 3)} per iteration{how}, {limit}{'' if found else span}."
            slower = Line("Slowdown", percent(asked.time_change.median, 1))
            found.append(Panel(title, _saved(asked), text, lines=(*cap, _spread(asked.energy_change), slower, *others)))
    any_clock = _at_any_clock(predicted)
    if not found:
        text = f"of the energy if switching were instant, {limit}{left}; all but the default clocks rests on a model."
        found.append(Panel("Any clock", _saved(any_clock), text, lines=(_spread(any_clock.energy_change),)))
    lines = []
    if predicted.unknowns:
        most = predicted.unknowns[0]
        lines = [
            Line("Least certain", f"{_UNKNOWNS.get(most.what, most.what)}, {percent(most.share, 0)} of the variance"),
            Line("To determine it", most.narrowed_by),
        ]
    saving = f"{round(predicted.saves_share * predicted.draws):,} of {predicted.draws:,}"
    found.append(Panel("Sure to save?", saving, "possible GPUs save energy.", lines=tuple(lines)))
    return tuple(found)


def _saved(row: RangeForecast) -> str:
    return f"{percent(max(-row.energy_change.median, 0.0), 1)} saved"


def _is_nothing(spread: Quantiles) -> bool:
    """Whether most possible GPUs are shown to save nothing."""
    return all(abs(end) < _SHOWN for end in (spread.median, *spread.central_80))


def _nothing_text(names: Sequence[str]) -> str:
    """What is left out of a figure, a sentence."""
    return f" Left out, with nothing saved on most possible GPUs: {'; '.join(names)}." if names else ""


def _spread(spread: Quantiles) -> Line:
    low, high = (percent(max(-end, 0.0), 1) for end in reversed(spread.central_95))
    return Line(f"95{SPACE}% interval", f"{low} to {high}")


def _next_step(predicted: Forecast) -> Next:
    # A real card's name in studies is its label, which no command takes.
    device = predicted.device if predicted.device.startswith("sim:") else "DEVICE"
    workload = _typed(predicted.workload)
    if predicted.natural is None:
        command = f"wastenot kernel natural {workload} --device {device} --study STUDY.db --page natural.html"
        text = "Narrow it by the clocks that the GPU goes through by itself; nothing is set"
    else:
        command = f"wastenot kernel run {workload} --device {device} --max-slowdown {100.0 * predicted.max_slowdown:g}%"
        text = "Where clocks may be set, measure it; a plan keeps a margin for noise, and so saves a little less"
    replaced = [word for word in (workload, device) if word.isupper()]
    return Next(f"{text} (replace {' and '.join(replaced)})" if replaced else text, (command,))


def _typed(workload: str) -> str:
    """A workload as commands take it: ``llama-8b --phase decode``; ``WORKLOAD`` where its name does not tell."""
    try:
        model, shape = parse_name(workload)
    except BadInputError:
        return "WORKLOAD"
    usual = Shape(phase=shape.phase, batch=default_batch(shape.phase))
    if model not in MODELS or name_of(MODELS[model], usual) != workload:
        return "WORKLOAD"
    return model if shape.phase == "training" else f"{model} --phase {shape.phase}"


def _changes_table(predicted: Forecast) -> Table | None:
    """As on the page of natural clocks, without its comparison with plans."""
    table = forecast_table(predicted)
    if table is None or predicted.natural is None:
        return None
    sd = percent(predicted.natural.locked_power_sd, 1)
    note = (
        "Switching between kernels is assumed to be free where each has a cap of its own. Within the clocks seen, "
        f"errors of the curves and {sd} (assumed) of power at a locked clock are included; lower clocks rely on a model."
    )
    return replace(table, note=note)


def forecast_figures(predicted: Forecast) -> tuple[Figure, ...]:
    """The figures, in the order they are shown.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    limit, natural = _limit(predicted.max_slowdown), predicted.natural
    rows = [(f"any {'core ' if predicted.core_only else ''}clock, {limit}", predicted.energy_change)]
    if natural is not None:
        kinds = (("one cap", natural.one_cap), ("a cap for each kernel", natural.within_range))
        rows = [(f"{kind}, {_limit(row.max_slowdown)}", row.energy_change) for kind, each in kinds for row in each]
    kernels = [
        (f"{row.kernel}{'' if row.energy_share is None else f' ({fraction_of_whole(row.energy_share)} of energy)'}",
         row.energy_change)
        for row in _by_energy(predicted)
    ]  # fmt: skip
    (drawn, left), (drawn_kernels, left_kernels) = map(_parted, (rows, kernels))
    note = f"Dots: medians of possible GPUs. Thick lines hold 80{SPACE}% of them, thin ones 95{SPACE}%."
    within = "Caps are within the clocks seen, and planned for each possible GPU by itself: the page of natural clocks plans"
    capped = note if natural is None else f"{note} {within} once for all, and so promises less."
    own = note if natural is None else f"{note} Clocks may be below those seen, where a model is all there is."
    return (
        *_saving_figures(predicted),
        Figure(
            "forecast-energy", "Energy saved, if clocks could be set", _about(predicted),
            f"{capped}{_nothing_text(left)}", specification_of(_chart(drawn, "energy saved per iteration, %")),
        ),
        Figure(
            "forecast-kernels", f"Energy saved by each kernel at its own clock, {limit}", _about(predicted),
            f"{own}{_nothing_text(left_kernels)}", specification_of(_chart(drawn_kernels, "energy saved per call, %")),
        ),
    )  # fmt: skip


def _saving_figures(predicted: Forecast) -> tuple[Figure, ...]:
    """An iteration at the default clocks and with the headline's caps; none where these save nothing."""
    best = _headline(predicted)
    energy, time = best.energy_change, best.time_change
    if predicted.natural is None or energy.median >= -_SAVES:
        return ()
    base, medians = (predicted.auto_energy_j, predicted.auto_time_s), (energy.median, time.median)
    quantities = compared_iteration(*base, medians, energy.central_95, time.central_95)
    what, name = ("caps", "caps") if best.cap_mhz is None else ("one cap", f"cap {best.cap_mhz:,.0f}{SPACE}MHz")
    note = f"Dots: medians of possible GPUs. Lines: 95{SPACE}% of them. Axes do not begin at 0."
    title = f"What {what} would save: {percent(-energy.median, 1)}"
    chart = specification_of(compared_chart(("default clocks", name), quantities))
    return (Figure("forecast-saving", title, _about(predicted), note, chart),)


def _parted(rows: Sequence[tuple[str, Quantiles]]) -> tuple[list[tuple[str, Quantiles]], list[str]]:
    """Rows that are drawn, and the names of those by which nothing is saved; all are drawn where none saves anything."""
    saving = [(name, spread) for name, spread in rows if not _is_nothing(spread)]
    if not saving:
        return list(rows), []
    return saving, [name for name, spread in rows if _is_nothing(spread)]


def _chart(rows: Sequence[tuple[str, Quantiles]], axis: str) -> Any:
    """A row for each forecast: its median, and the intervals that hold 80 % and 95 %."""
    alt = load("altair")
    values = [
        {
            "index": index,
            "name": name,
            "median": -100.0 * spread.median,
            **{f"{side}{part}": -100.0 * end for part, interval in (("80", spread.central_80), ("95", spread.central_95))
               for side, end in zip(("high", "low"), interval, strict=True)},
            "text": f"{percent(-spread.median, 1)} ({_ends(spread)})",
            "short": percent(-spread.median, 1),
            "says": f"{change(spread.median)}, 95 %: {changes(spread.central_95)}",
        }
        for index, (name, spread) in enumerate(rows)
    ]  # fmt: skip
    y = alt.Y("index:O", title=None, axis=name_axis([shortened(name, _LONGEST_NAME) for name, _ in rows], _NAME_WIDTH))
    scale = alt.Scale(zero=True, nice=True)
    chart = alt.Chart(inline(values))
    tooltip = tooltips({"name:N": " ", "says:N": "energy"})

    def rule(part: str, width: float, opacity: float) -> Any:
        ends = {"x": alt.X(f"low{part}:Q", title=axis, scale=scale), "x2": alt.X2(f"high{part}:Q")}
        return chart.mark_rule(strokeWidth=width, opacity=opacity, strokeDash=[1, 0], color=_COLOR).encode(
            y=y, tooltip=tooltip, **ends
        )

    x = alt.X("median:Q", title=axis, scale=scale)
    dots = chart.mark_circle(size=64, opacity=1.0, color=_COLOR).encode(x=x, y=y, tooltip=tooltip)
    text = chart.mark_text(style="small-label", align="left").encode(x=alt.XValue(_WIDTH + 8), y=y, text=alt.Text("text:N"))
    return layered(rule("95", 1.6, 0.6), rule("80", 5.0, 0.45), dots, text).properties(width=_WIDTH, height=alt.Step(24))


def _ends(spread: Quantiles) -> str:
    """Of the 95 % interval, in per cent saved."""
    return " to ".join(percent(-end, 1).removesuffix(f"{SPACE}%") for end in reversed(spread.central_95))


def _about(predicted: Forecast) -> str:
    return f"{predicted.workload} on {predicted.device} · forecast from {predicted.observed_origin} numbers"


def forecast_tables(predicted: Forecast) -> list[tuple[str, Table | None]]:
    """Where the uncertainty comes from, the forecast by plan, and by kernel; each with its name."""
    return [
        ("unknowns", _unknowns_table(predicted)),
        ("forecast", _changes_table(predicted)),
        ("kernels", _kernels_table(predicted)),
    ]


def made_from(predicted: Forecast) -> list[tuple[str, str]]:
    """What it rests on, as (name, text) pairs."""
    auto = f"{quantity(predicted.auto_time_s, 's')}, {quantity(predicted.auto_energy_j, 'J')} ({predicted.observed_origin})"
    like = "otherwise like any GPU" if predicted.knowledge == "any" else "otherwise close to its preset"
    return [
        ("Iteration at the default clocks", auto),
        *(("Memory clock", note) for note in predicted.notes if note.endswith(MEMORY_LEFT)),
        ("Possible GPUs", f"{predicted.draws:,} with the clocks, limit and peaks of {predicted.gpu}; {like}"),
    ]


def forecast_page(predicted: Forecast) -> Page:
    """The page of a forecast.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    worth = -max(_headline(predicted).energy_change.central_95) >= _WORTH
    return Page(
        verb="forecast",
        brand="forecast",
        title=(predicted.workload, f"on {predicted.device}, if its clocks could be set"),
        origin="forecast",
        effect=effect_text(predicted),
        verdict=verdict_text(predicted),
        panels=panels(predicted),
        next_step=_next_step(predicted),
        figures=forecast_figures(predicted),
        tone="promised" if worth else "neutral",
        tables=[],
        folded=Folded(
            "The numbers of the figures",
            "where the uncertainty comes from, by plan, and by kernel",
            tables=forecast_tables(predicted),
        ),
        notes=[sentence(note) for note in predicted.notes if not note.endswith(MEMORY_LEFT)],
        about=_about(predicted),
        device=predicted.device,
        made_from=made_from(predicted),
    )
