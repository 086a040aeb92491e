"""A forecast as a page: whether clocks are worth trying, how sure that is, and what would make it surer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from wastenot.core.setting import format_mhz
from wastenot.core.wording import sentence
from wastenot.kernels.forecast.forecast import Forecast, KernelForecast, Quantiles, UncertaintySource
from wastenot.kernels.natural.page.summary import forecast_table
from wastenot.pages.figure import Figure, inline, layered, name_axis, specification_of, tooltips
from wastenot.pages.formatting import SPACE, change, changes, percent, quantity, shortened
from wastenot.pages.optional_imports import load
from wastenot.pages.page import Page
from wastenot.pages.panel import Line, Next, Panel
from wastenot.pages.table import Listed, Table, listing

_WIDTH, _NAME_WIDTH, _LONGEST_NAME, _COLOR = 500, 310, 48, "#2f6fde"
_SAVES = 1e-4  # of the energy, below which nothing is saved
_WORTH = 5e-3  # of the energy, saved with 97.5 % probability, from which on it is worth trying

KERNEL_FIELDS: tuple[Listed[KernelForecast], ...] = (
    Listed("kernel", lambda row: shortened(row.kernel, 32), numeric=False),
    Listed("count", lambda row: f"{row.count:,}"),
    Listed("core MHz", lambda row: f"{row.core_mhz.median:.0f}"),
    Listed("80 % of draws", lambda row: "{:.0f} to {:.0f}".format(*row.core_mhz.central_80)),
    Listed("memory MHz", lambda row: format_mhz(row.memory_mhz)),
    Listed("of draws", lambda row: percent(row.memory_share, 0)),
    Listed("energy", lambda row: change(row.energy_change.median, 1)),
    Listed("80 % of draws", lambda row: changes(row.energy_change.central_80, 1)),
)
"""The columns of a table of kernels."""

_KERNELS_NOTE = f"Clocks and energy at any clock: medians, and what holds 80{SPACE}% of possible GPUs."

_UNKNOWN_FIELDS: tuple[Listed[UncertaintySource], ...] = (
    Listed("Unknown", lambda row: row.what, numeric=False),
    Listed("Of the variance", lambda row: row.share, lambda share: percent(share, 0)),
    Listed("What would determine it", lambda row: row.narrowed_by, numeric=False),
)


def effect_text(predicted: Forecast) -> str:
    """Whether setting clocks is worth trying."""
    spread, limit = _headline(predicted), _limit(predicted.max_slowdown)
    low, high = sorted(-each for each in spread.central_95)
    if low >= _WORTH:
        return f"Worth trying: {percent(low)} to {percent(high)} of the energy saved, {limit}"
    if spread.median < -_SAVES:
        return f"Uncertain: energy {changes(spread.central_95)}, {limit}"
    return f"Not worth trying: nothing would be saved, {limit}"


def verdict_text(predicted: Forecast) -> str:
    """What that is: a forecast, of which clocks, and what it assumes."""
    spread = _headline(predicted)
    clocks = "within the clocks seen" if spread is not predicted.energy_change else "at any clock, by a model"
    return (
        f"a forecast {clocks}, no clock was set; each kernel at its own clock, switching assumed to be free; "
        f"{change(spread.median)} in the median of {predicted.draws:,} possible GPUs, 95{SPACE}% of them in that range"
    )


def _headline(predicted: Forecast) -> Quantiles:
    """The energy change within the clocks seen where that saves anything, else at any clock."""
    rows = () if predicted.natural is None else predicted.natural.within_range
    within = (each.energy_change for each in rows if each.max_slowdown == predicted.max_slowdown)
    return next((each for each in within if each.median < -_SAVES), predicted.energy_change)


def _limit(max_slowdown: float) -> str:
    return f"at most {100.0 * max_slowdown:.3g}{SPACE}% slower" if max_slowdown else "with no slowdown"


def _panels(predicted: Forecast) -> tuple[Panel, ...]:
    limit = _limit(predicted.max_slowdown) + (", memory clock unchanged" if predicted.core_only else "")
    natural = predicted.natural
    any_clock = Panel(
        "Any clock", change(predicted.energy_change.median), f"of the energy, {limit}; what was not seen rests on a model.",
        lines=(
            *_spread(predicted.energy_change), Line("Time", changes(predicted.time_change.central_95)),
            Line("Saves energy", f"in {percent(predicted.saves_share, 0)} of possible GPUs"),
        ),
    )  # fmt: skip
    panels = [any_clock]
    if natural is not None:
        seen = f"of the energy, {_limit(predicted.max_slowdown)}, with a cap on the core clock of each kernel."
        within = {each.max_slowdown: each.energy_change for each in natural.within_range}
        asked = within.pop(predicted.max_slowdown)
        others = [Line(_limit(limit).capitalize(), change(spread.median)) for limit, spread in within.items()]
        range_text = f"Within the clocks seen, {natural.low_mhz:.0f} to {natural.high_mhz:.0f}{SPACE}MHz"
        panels.insert(0, Panel(range_text, change(asked.median), seen, lines=(*_spread(asked), *others)))
    if predicted.unknowns:
        most = predicted.unknowns[0]
        share = f"{percent(most.share, 0)} of the variance"
        panels.append(Panel(f"Largest unknown: {most.what}", share, f"To determine it: {most.narrowed_by}."))
    return tuple(panels)


def _spread(spread: Quantiles) -> tuple[Line, Line]:
    return Line(f"80{SPACE}%", changes(spread.central_80)), Line(f"95{SPACE}%", changes(spread.central_95))


def _next_step(predicted: Forecast) -> Next:
    # A real card's name in studies is its label, which no command takes.
    device = predicted.device if predicted.device.startswith("sim:") else "DEVICE"
    if predicted.natural is None:
        command = f"wastenot kernel natural WORKLOAD --device {device} --study STUDY.db --page natural.html"
        text = "Narrow it by the clocks that the GPU goes through by itself; nothing is set"
    else:
        command = f"wastenot kernel run WORKLOAD --device {device} --max-slowdown {100.0 * predicted.max_slowdown:g}%"
        text = "Where clocks may be set, measure it instead"
    replaced = "WORKLOAD" if device != "DEVICE" else "WORKLOAD and DEVICE"
    return Next(f"{text} (replace {replaced})", (command,))


def _changes_table(predicted: Forecast) -> Table | None:
    """As on the page of natural clocks, without its comparison with plans."""
    table = forecast_table(predicted)
    if table is None or predicted.natural is None:
        return None
    sd = percent(predicted.natural.locked_power_sd, 1)
    note = (
        "Every kernel has a cap of its own, and switching between kernels is assumed to be free. Within the clocks seen, "
        f"errors of the curves and {sd} (assumed) of power at a locked clock are included; lower clocks rely on a model."
    )
    return replace(table, note=note)


def forecast_figures(predicted: Forecast) -> tuple[Figure, ...]:
    """The figures, in the order they are shown.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    limit = _limit(predicted.max_slowdown)
    rows = [(f"any clock, {limit}", predicted.energy_change)]
    if predicted.natural is not None:
        seen = predicted.natural.within_range
        within = [(f"within the clocks seen, {_limit(each.max_slowdown)}", each.energy_change) for each in seen]
        rows = [*within, *rows, (f"before natural clocks, {limit}", predicted.natural.without)]
    kernels = [(each.kernel, each.energy_change) for each in predicted.kernels]
    note = f"Dots: medians of possible GPUs. Thick lines hold 80{SPACE}% of them, thin ones 95{SPACE}%."
    return (
        Figure(
            "forecast-energy", "Change in energy, if clocks could be set", _about(predicted), note,
            specification_of(_chart(rows, "change in energy per iteration, %")),
        ),
        Figure(
            "forecast-kernels", f"Change in energy of each kernel at any clock, {limit}", _about(predicted), note,
            specification_of(_chart(kernels, "change in energy of a call, %")),
        ),
    )  # fmt: skip


def _chart(rows: Sequence[tuple[str, Quantiles]], axis: str) -> Any:
    """A row for each forecast: its median, and the intervals that hold 80 % and 95 %."""
    alt = load("altair")
    values = [
        {
            "index": index,
            "name": name,
            "median": 100.0 * spread.median,
            **{f"{side}{part}": 100.0 * end for part, interval in (("80", spread.central_80), ("95", spread.central_95))
               for side, end in zip(("low", "high"), interval, strict=True)},
            "text": change(spread.median, 1),
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


def _about(predicted: Forecast) -> str:
    return f"{predicted.workload} on {predicted.device} · forecast from {predicted.observed_origin} numbers"


def forecast_page(predicted: Forecast) -> Page:
    """The page of a forecast.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    auto = f"{quantity(predicted.auto_time_s, 's')}, {quantity(predicted.auto_energy_j, 'J')} ({predicted.observed_origin})"
    like = "otherwise like any GPU" if predicted.knowledge == "any" else "otherwise close to its preset"
    return Page(
        verb="forecast",
        brand="forecast",
        title=(predicted.workload, f"on {predicted.device}, if its clocks could be set"),
        origin="forecast",
        effect=effect_text(predicted),
        verdict=verdict_text(predicted),
        panels=_panels(predicted),
        next_step=_next_step(predicted),
        figures=forecast_figures(predicted),
        tables=[
            ("forecast", _changes_table(predicted)),
            ("unknowns", listing("Where the uncertainty comes from", predicted.unknowns, _UNKNOWN_FIELDS)),
            (
                "kernels",
                listing("Forecast by kernel", predicted.kernels, KERNEL_FIELDS, _KERNELS_NOTE, shown=0, rest="kernels"),
            ),
        ],
        notes=[sentence(note) for note in predicted.notes],
        about=_about(predicted),
        device=predicted.device,
        made_from=[
            ("Iteration at the default clocks", auto),
            ("Possible GPUs", f"{predicted.draws:,} with the clocks, limit and peaks of {predicted.gpu}; {like}"),
        ],
    )
