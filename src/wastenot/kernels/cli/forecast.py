"""``wastenot kernel forecast``: what kernel-level clocks would save, from a study of the default clocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

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

    from wastenot.kernels.forecast.result import Forecast


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
    """The forecast as its page has it, marked as a forecast; clocks last."""
    from wastenot.kernels.forecast.forecast import MEMORY_LEFT
    from wastenot.kernels.forecast.page import effect_text, forecast_tables, made_from, panels, verdict_text
    from wastenot.terminal.panels import panel_text
    from wastenot.terminal.tables import Group, Paragraph, Text, named_rows, rich_table

    effect = effect_text(predicted)
    what = f"FORECAST for {predicted.workload} on {predicted.device}: {effect[:1].lower()}{effect[1:]}; "
    tables = [table for _, table in forecast_tables(predicted) if table is not None]
    return Group(
        Paragraph(Text(f"{what}{verdict_text(predicted)}")),
        "",
        *map(panel_text, panels(predicted)),
        named_rows(made_from(predicted)),
        *(part for table in tables for part in ("", Text(table.title, style="bold"), rich_table(table))),
        *(Paragraph(Text(f"note: {note}", style="yellow")) for note in predicted.notes if not note.endswith(MEMORY_LEFT)),
    )
