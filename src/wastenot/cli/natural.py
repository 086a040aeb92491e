"""``wastenot natural``: what clocks would do, without setting one; everything in one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wastenot.cli import completing
from wastenot.cli.options import FiguresOption, JsonOption, SeedOption, ShapeOptions, parse_budget

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.tuning.natural_overview import NaturalOverview

WORKLOAD = "gpt3-xl"


def natural(
    workload: Annotated[
        str | None,
        typer.Argument(
            metavar="[WORKLOAD]",
            autocompletion=completing.workloads,
            help="A model, a captured workload (.json), or a study whose kernels to measure; gpt3-xl.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="D",
            autocompletion=completing.devices,
            help="nvidia:INDEX, or sim:NAME. Without it, shows what --study holds.",
        ),
    ] = None,
    study: Annotated[
        str | None, typer.Option("--study", metavar="FILE|URL", help="The study; natural-WORKLOAD.db by default.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.html", help="The page; natural-WORKLOAD.html by default.")
    ] = None,
    figures: FiguresOption = None,
    time_limit: Annotated[
        str, typer.Option("--time-limit", metavar="TIME", help="Device time for everything, such as 90s, 15m or 1h.")
    ] = "15m",
    draws: Annotated[
        int, typer.Option("--draws", metavar="N", help="Number of possible GPUs the forecast plans for.")
    ] = 200,
    *,
    shape_options: ShapeOptions,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Measure what clocks would do without setting one.

    Times and powers at clocks that the GPU goes through by itself, plans of caps, a forecast, and a page that shows them.
    Needs no rights. Resumes; without --device it shows a study that was measured elsewhere.
    """
    from wastenot.cli.output import as_values, console, print_json, say, typed_command
    from wastenot.errors import BadInputError, MissingExtraError
    from wastenot.study.store import open_study
    from wastenot.tuning.natural_overview import natural_overview

    if device is None and study is None:
        raise BadInputError("--device: name the GPU to measure, such as nvidia:0; or show a study: --study FILE")
    name = workload
    if device is not None:
        limit_s = parse_budget(time_limit, "--time-limit")
        study, name = _measure(workload or WORKLOAD, device, study, limit_s, shape_options, seed)
    assert study is not None
    overview = natural_overview(open_study(study), name, draws=draws, seed=seed)
    page = out or Path(f"natural-{overview.workload}.html")
    written = []
    try:
        from wastenot.reporting.natural.page import write_natural_figures, write_natural_page

        write_natural_page(overview, page, command=typed_command(study))
        written = [str(page), *(map(str, write_natural_figures(overview, figures)) if figures is not None else ())]
    except MissingExtraError as error:
        say(f"no page: {error}; or copy {study} to where that is installed: wastenot natural --study {Path(study).name}")
    if as_json:
        left_out = ("curves", "plan", "wakes")
        values = {key: value for key, value in as_values(overview).items() if key not in left_out}
        print_json("natural", values | {"study": study, "files": written})
        return
    console().print(natural_text(overview))
    say(f"{study}: timelines, curves and rows; " + (f"page: {page}" if written else "no page was written"))


def _measure(
    workload: str, device: str, study: str | None, limit_s: float, shape_options: ShapeOptions, seed: int
) -> tuple[str, str]:
    """Measure, or resume; returns the study and the workload's name in it."""
    from wastenot.api import sweep
    from wastenot.cli.output import say, typed_command
    from wastenot.cli.progress import shown_progress
    from wastenot.cli.sweeping import outcome_lines
    from wastenot.devices.open import open_device
    from wastenot.tasks import find_tasks
    from wastenot.workloads.captured_on import capture_note

    tasks = find_tasks(workload, device, shape_options.shape())
    where = study or f"natural-{tasks.name}.db"
    captured = capture_note(tasks.captured_on)
    if captured is not None:
        say(f"{workload}: {captured}")
    target = open_device(device, seed=seed)
    with shown_progress(f"natural clocks of {tasks.name}", resumable=where) as progress:
        outcome = sweep(
            tasks, target, where, clocks="natural", budget_s=limit_s,
            command=typed_command(where), progress=progress,
        )  # fmt: skip
    for line in outcome_lines(outcome, tasks.key, where):
        say(line)
    return where, tasks.name


def natural_text(overview: NaturalOverview) -> RenderableType:
    """What natural clocks say, for a terminal."""
    from wastenot.cli.tables import Group, Text, headline, rich_table
    from wastenot.reporting.formatting import quantity
    from wastenot.reporting.natural.summary import forecast_table, kernels_table, plans_table

    what = f"{len(overview.kernels)} kernels at natural clocks in {quantity(overview.seconds, 's', 3)}, no clock was set"
    parts: list[RenderableType] = [headline(overview.workload, overview.device, overview.origin, what)]
    tables = [kernels_table(overview), plans_table(overview)]
    predicted = forecast_table(overview)
    if predicted is not None:
        tables.append(predicted)
    for table in tables:
        parts += ["", Text(table.title, style="bold"), rich_table(table)]
    parts += ["", Text("What this cannot tell", style="bold"), *(Text(f"- {line}") for line in overview.cannot_tell)]
    return Group(*parts, *(Text(note, style="yellow") for note in overview.notes))
