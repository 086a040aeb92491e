"""``wastenot kernel forecast``: what kernel-level clocks would save, from a study of the default clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from wastenot.pages.formatting import change, changes, percent, quantity
from wastenot.terminal import completing, quantities
from wastenot.terminal.option import option
from wastenot.terminal.options import (
    JsonOption,
    MaxSlowdownOption,
    OutOption,
    PageOptions,
    StudyOption,
    WorkloadOption,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.kernels.forecast.result import Forecast, NaturalForecast, Quantiles


def forecast(
    study: StudyOption,
    workload: WorkloadOption = None,
    gpu: Annotated[
        str | None,
        option("The GPU; by default the one named in the study.", "NAME|FILE.toml", autocompletion=completing.simulated),
    ] = None,
    max_slowdown: MaxSlowdownOption = 0.0,
    knowledge: Annotated[
        Literal["any", "preset"],
        option("any: it may behave like any GPU; preset: voltage and power are close to those of --gpu."),
    ] = "any",
    core_step: Annotated[
        float | None, option("Step between core clocks; by default about 32 clocks.", "MHZ", parser=quantities.megahertz)
    ] = None,
    core_only: Annotated[
        bool | None,
        option(
            "Leave the memory clock alone; by default where it takes too long to change between kernels.",
            flag="--core-only/--memory-too",
            show_default=False,
        ),
    ] = None,
    draws: Annotated[int, option("Number of possible GPUs to plan for.", "N")] = 200,
    seed: Annotated[int, option("Seed of the draws.", "N")] = 0,
    ignore_natural: Annotated[bool, option("Use the default clocks alone, even if natural clocks were measured.")] = False,
    out: OutOption = None,
    *,
    shown: PageOptions,
    as_json: JsonOption = False,
) -> None:
    """Forecast the saving on a GPU whose clocks may not be set.

    With an interval. Uses measurements at the default clocks (sweep --clocks auto) and, if the study has them, at clocks
    the GPU passed through by itself (sweep --clocks natural).
    """
    from wastenot.devices.simulated.preset import find_preset
    from wastenot.kernels.forecast.forecast import forecast as make_forecast
    from wastenot.study.store import open_study
    from wastenot.terminal.output import console, print_json, say, typed_command

    predicted = make_forecast(
        open_study(study),
        workload,
        gpu=None if gpu is None else find_preset(gpu.removeprefix("sim:")),
        max_slowdown=max_slowdown,
        knowledge=knowledge,
        core_step_mhz=core_step,
        core_only=core_only,
        draws=draws,
        seed=seed,
        ignore_natural=ignore_natural,
    )
    if out is not None:
        predicted.write(out)
        say(f"{out}: forecast written")
    shown.write(predicted.drawn, typed_command(study))
    if as_json:
        print_json("forecast", predicted.document())
    else:
        console().print(forecast_text(predicted))


def forecast_text(predicted: Forecast) -> RenderableType:
    """The forecast as text: marked as a forecast, intervals first, clocks last."""
    from wastenot.kernels.forecast.page import effect_text, kernels_listing
    from wastenot.terminal.tables import Group, Text, rich_table

    effect = effect_text(predicted)
    lines = [
        f"FORECAST for {predicted.workload} on {predicted.device}: {effect[:1].lower()}{effect[1:]}",
        "",
        "No clocks were set, only the default clocks (auto)"
        f"{'' if predicted.natural is None else ' and those that the GPU went through by itself'} were "
        f"measured ({predicted.observed_origin}; {quantity(predicted.auto_time_s, 's')}, "
        f"{quantity(predicted.auto_energy_j, 'J')} per iteration)",
        "",
        *_within_range(predicted.natural),
        *(() if predicted.natural is None else ("any clock, including those below the range seen:",)),
        f"energy  {_interval(predicted.energy_change)}",
        f"time    {_interval(predicted.time_change)}   (allowed: {change(predicted.max_slowdown)})",
        f"saves energy in {percent(predicted.saves_share, 0)} of {predicted.draws} possible GPUs "
        f"({'memory clock unchanged, ' if predicted.core_only else ''}clocks, limit and peaks of {predicted.gpu}; "
        f"{'otherwise like any GPU' if predicted.knowledge == 'any' else 'otherwise close to its preset'})",
        "",
        *_before(predicted.natural),
        "where the uncertainty comes from, and what would reduce it:",
        *(f"  {percent(unknown.share, 0):>5}  {unknown.what}: {unknown.narrowed_by}" for unknown in predicted.unknowns),
        *(f"note: {note}" for note in predicted.notes),
    ]
    return Group(*map(Text, [*lines, "", "forecast by kernel:"]), rich_table(kernels_listing(predicted, "By kernel")))


def _within_range(natural: NaturalForecast | None) -> list[str]:
    """What caps within the clocks seen would save."""
    if natural is None:
        return []
    return [
        f"caps on core clocks within the range seen ({natural.low_mhz:,.0f} to {natural.high_mhz:,.0f} MHz; a kernel below "
        "the clocks it was seen at counts with the most time and power that physics allows), energy by slowdown limit:",
        *(
            f"{percent(row.max_slowdown, 1):>6}  {_interval(row.energy_change)}, {caps}"
            for caps, rows in (("one cap", natural.one_cap), ("a cap for each kernel", natural.within_range))
            for row in rows
        ),
        f"uncertainties there: errors of the curves, and {percent(natural.locked_power_sd, 1)} (assumed) of power, since a "
        "locked clock may draw a different power than the same clock under the regulator",
        "",
    ]


def _before(natural: NaturalForecast | None) -> list[str]:
    """The same forecast without what natural clocks say."""
    return [] if natural is None else [f"before  {_interval(natural.without)}   (energy, from the default clocks alone)", ""]


def _interval(spread: Quantiles) -> str:
    return f"{change(spread.median)} (median), 80 %: {changes(spread.central_80)}, 95 %: {changes(spread.central_95)}"
