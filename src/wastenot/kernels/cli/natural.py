"""``wastenot kernel natural``: what clocks would do, without setting one; everything in one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from wastenot.core.errors import BadInputError, MissingExtraError
from wastenot.core.wording import counted
from wastenot.pages.formatting import quantity
from wastenot.terminal import completing, quantities
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import (
    DryRunOption,
    FiguresOption,
    JsonOption,
    SeedOption,
    ShapeOptions,
    say_left_changed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from wastenot.devices.protocol import Device
    from wastenot.kernels.natural.overview import NaturalOverview
    from wastenot.meters.tasks import WorkloadTasks
    from wastenot.study.store import Study
    from wastenot.sweeping.measure import SweepOutcome

WORKLOAD = "gpt3-xl"
_SHORTER = "--time-limit 5m; the same command resumes, with a longer one"


def natural(
    workload: Annotated[
        str | None,
        argument(
            "A model, a captured workload (.json), or a study whose kernels to measure; gpt3-xl.",
            "[WORKLOAD]",
            autocompletion=completing.workloads,
        ),
    ] = None,
    device: Annotated[
        str | None,
        option("nvidia:INDEX, or sim:NAME. Without it, shows what --study holds.", "D", autocompletion=completing.devices),
    ] = None,
    study: Annotated[str | None, option("The study; natural-WORKLOAD.db by default.", "FILE|URL")] = None,
    page: Annotated[Path | None, option("The page; natural-WORKLOAD.html by default.", "FILE.html")] = None,
    figures: FiguresOption = None,
    time_limit: Annotated[
        float, option("Device time for everything; default: 15m.", "TIME", parser=quantities.budget, show_default=False)
    ] = 900.0,
    draws: Annotated[int, option("Number of possible GPUs the forecast plans for.", "N")] = 200,
    *,
    shape_options: ShapeOptions,
    seed: SeedOption = 0,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure the effect of clocks without setting any.

    Measures time and power at clocks that the GPU passes through by itself, plans caps on clocks, forecasts the saving,
    and writes a page. Needs no permissions. Resumes; without --device it shows a study that was measured elsewhere.
    """
    from wastenot.devices.open import open_device
    from wastenot.kernels.forecast.forecast import check_draws
    from wastenot.meters.tasks import find_tasks
    from wastenot.study.store import open_study
    from wastenot.sweeping.announce import show_dry_run
    from wastenot.terminal.option_rules import check_output
    from wastenot.terminal.output import typed_command
    from wastenot.terminal.progress import kept_if_interrupted, resume_with

    if device is None and study is None:
        raise BadInputError("--device: give the GPU to measure, such as nvidia:0; or show a study: --study FILE")
    check_draws(draws)
    name = workload
    keeps: str | Callable[[], str] = "nothing was kept"
    if device is not None:
        tasks = find_tasks(workload or WORKLOAD, device, shape_options.shape())
        study, name = study or f"natural-{tasks.name}.db", tasks.name
        keeps = resume_with(typed_command(study), study)
    assert study is not None
    with kept_if_interrupted(keeps):
        if device is not None:
            check_output(page or Path(f"natural-{tasks.name}.html"), "page")
            say_left_changed(device)
            outcome = _measure(tasks, open_device(device, seed=seed), study, time_limit, dry_run=dry_run)
            if dry_run:
                assert outcome.estimate is not None
                show_dry_run(outcome.estimate, as_json=as_json, shorter=_SHORTER, study=study)
                return
        _show(open_study(study), study, name, page, figures, draws, seed, as_json=as_json)


def _show(
    source: Study,
    study: str,
    name: str | None,
    page: Path | None,
    figures: Path | None,
    draws: int,
    seed: int,
    *,
    as_json: bool,
) -> None:
    """What a study says: tables or a document, and a page."""
    from wastenot.core.values import as_values
    from wastenot.kernels.natural.overview import natural_overview
    from wastenot.terminal.output import console, print_json, say, typed_command

    overview = natural_overview(source, name, draws=draws, seed=seed)
    page = page or Path(f"natural-{overview.workload}.html")
    written = []
    try:
        from wastenot.kernels.natural.page.page import natural_page

        made = natural_page(overview)
        made.write(page, command=typed_command(study))
        written = [str(page), *(map(str, made.export(figures)) if figures is not None else ())]
    except MissingExtraError as error:
        say(
            f"no page: {error}; or copy {study} to a machine where it is installed: "
            f"wastenot kernel natural --study {Path(study).name}"
        )
    if as_json:
        left_out = ("curves", "plan", "wakes", "whole")
        values = {key: value for key, value in as_values(overview).items() if key not in left_out}
        print_json("natural", values | {"study": study, "files": written})
        return
    console().print(natural_text(overview))
    say(f"{study}: timelines, curves and rows; " + (f"page: {page}" if written else "no page was written"))


def _measure(tasks: WorkloadTasks, device: Device, study: str, limit_s: float, *, dry_run: bool) -> SweepOutcome:
    """Measure, or resume."""
    from functools import partial

    from wastenot.kernels.cli.sweep import outcome_lines
    from wastenot.kernels.verbs import sweep
    from wastenot.sweeping.announce import announce
    from wastenot.sweeping.grid import AtNatural
    from wastenot.terminal.output import say, typed_command
    from wastenot.terminal.progress import shown_progress
    from wastenot.workloads.captured_on import capture_note

    captured = capture_note(tasks.captured_on)
    if captured is not None:
        say(f"{tasks.name}: {captured}")
    with shown_progress(f"natural clocks of {tasks.name}") as progress:
        outcome = sweep(
            tasks, device, study, clocks=AtNatural(), budget_s=limit_s,
            command=typed_command(study), announce=partial(announce, shorter=_SHORTER), dry_run=dry_run, progress=progress,
        )  # fmt: skip
    if not dry_run:
        for line in outcome_lines(outcome, tasks.key, study):
            say(line)
    return outcome


def natural_text(overview: NaturalOverview) -> RenderableType:
    """What natural clocks say, for a terminal."""
    from wastenot.kernels.natural.page.page import story_of
    from wastenot.kernels.natural.page.summary import forecast_table, kernels_table, plans_table
    from wastenot.terminal.tables import Group, Text, headline, rich_table

    kernels, took = counted(len(overview.kernels), "kernel"), quantity(overview.seconds, "s", 3)
    what = f"{kernels} at natural clocks in {took}, no clock was set"
    parts: list[RenderableType] = [headline(overview.workload, overview.device, overview.origin, what)]
    step = f"{quantity(overview.auto_time_s, 's', 4)} and {quantity(overview.auto_energy_j, 'J', 4)}"
    parts.append(Text(f"All of them once, at the default clocks: {step}"))
    tables = [kernels_table(overview), plans_table(overview)]
    predicted = forecast_table(overview.forecast)
    if predicted is not None:
        tables.append(predicted)
    for table in tables:
        parts += ["", Text(table.title, style="bold"), rich_table(table, ("Calls", "Seen at MHz", "Own MHz"))]
    parts += ["", Text("What this cannot show", style="bold"), *(Text(f"- {line}") for line in overview.cannot_tell)]
    effect, verdict, (one, *_) = story_of(overview)
    root = [Text(f"Root sets it with: {' && '.join(one.commands)}", style="bold")] if one.commands else []
    notes = (Text(note, style="yellow") for note in overview.notes)
    return Group(*parts, *notes, "", Text(f"FORECAST: {effect}, {verdict}", style="bold"), *root)
