"""Verbs that do everything in one go: run, and reproduce, which repeats the kernel-level DVFS paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wastenot.cli import completing, quantities
from wastenot.cli.options import (
    AsMeasuredOption,
    ClockControlOptions,
    ConfidenceOption,
    DeviceOption,
    JsonOption,
    MaxSlowdownOption,
    PriceOptions,
    SeedOption,
    ShapeOptions,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.planning.plan import Plan


def run(
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", autocompletion=completing.workloads, help="A model such as gpt3-xl.")
    ],
    device: DeviceOption = "sim:rtx-3080-ti",
    max_slowdown: MaxSlowdownOption = 0.0,
    confidence: ConfidenceOption = None,
    as_measured: AsMeasuredOption = False,
    core_step: Annotated[
        float,
        typer.Option("--core-step", metavar="MHZ", parser=quantities.megahertz, help="Step between core clocks."),
    ] = 210.0,
    repeats: Annotated[int, typer.Option("--repeats", metavar="N", help="Measurements of the validation; 0 skips it.")] = 10,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder to write to; wastenot-WORKLOAD by default."),
    ] = None,
    *,
    shape_options: ShapeOptions,
    price_options: PriceOptions,
    clock_control: ClockControlOptions,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Sweep, plan, compare, validate and report in one go.

    Resumes an interrupted sweep.
    """
    from wastenot import api
    from wastenot.cli.output import as_values, console, print_json, say, typed_command
    from wastenot.cli.planning import comparison_text, plan_text
    from wastenot.cli.progress import shown_progress
    from wastenot.cli.sweeping import outcome_lines
    from wastenot.cli.validation import measured_beside_promised
    from wastenot.errors import BadInputError
    from wastenot.planning.comparison import compare_with
    from wastenot.planning.objective import Objective
    from wastenot.planning.planner import Planner, plan as make_plan
    from wastenot.study.store import open_study, sweep_of
    from wastenot.tasks import find_tasks

    if repeats < 0 or repeats == 1:  # tried before the sweep, which takes long
        raise BadInputError(f"--repeats {repeats}: must be at least 2 to estimate the error, or 0 for no validation")
    price = price_options.price()
    goal = Objective("waste", max_slowdown, confidence=confidence, as_measured=as_measured)
    tasks = find_tasks(workload, device, shape_options.shape())
    target = clock_control.open_device(device, seed=seed, workload=tasks.key)
    folder = create_folder(out or Path(f"wastenot-{tasks.name}"))
    study = open_study(folder / "study.db", create=True)
    with shown_progress("sweep", resumable=study) as progress:
        outcome = api.sweep(
            tasks, target, study, core_step_mhz=core_step, command=typed_command(str(study)), progress=progress
        )
    for line in outcome_lines(outcome, tasks.key, str(folder / "study.db")):
        say(line)
    planner = Planner(sweep_of(study, tasks.name, None, "kernel"))
    plan = make_plan(planner, goal)
    if repeats:
        with shown_progress("validation") as progress:
            plan = api.validate(plan, study, target, repeats=repeats, progress=progress)
    plan.write(folder / "plan.json")
    comparison = compare_with(planner, as_measured=as_measured)
    if not as_json:
        console().print(plan_text(plan, price))
        if repeats:
            console().print(measured_beside_promised(plan))
        console().print(comparison_text(comparison))
    files = api.report(
        study, folder / "report.html", plan=plan, figures=folder / "figures", price=price, planner=planner,
        command=typed_command(str(study)),
    )  # fmt: skip
    say(f"{folder}: study.db, plan.json, report.html and figures/ written")
    if as_json:
        written = [folder / "study.db", folder / "plan.json", *files]
        print_json("run", {
            "files": list(map(str, written)), "sweep": as_values(outcome), "plan": plan.document(),
            "comparison": as_values(comparison),
        })  # fmt: skip
    else:
        console().print(last_lines(plan, folder, device))


def last_lines(plan: Plan, folder: Path, device: str) -> RenderableType:
    """What was promised, whether it was kept, and what to do next."""
    from wastenot.cli.tables import Group, Text
    from wastenot.reporting.formatting import change, percent
    from wastenot.reporting.plan.today import today_panel
    from wastenot.reporting.plan.verdict import limit_verdict

    expected, headline = plan.expected, plan.headline
    lines = []
    if expected is not None:
        low, high = expected.energy_change_interval
        allowed = plan.objective.max_slowdown
        limit = f", no more than {percent(allowed)} slower" if allowed else ", no slower than the default clocks"
        lines.append(
            f"Promised: {percent(-expected.energy_change)} energy saved ({percent(-high)} to {percent(-low)}){limit}"
        )
    if headline.source == "validation":
        verdict = (limit_verdict(plan) or "").partition(":")[0]
        measured = f"{percent(-headline.energy_change)} saved, time {change(headline.time_change)}"
        lines.append(f"Measured: {measured}: the limit is {verdict}")
    commands = today_panel(plan).commands
    if headline.verdict == "missed":
        again = f"wastenot refine --study {folder / 'study.db'} --device {device}"
        lines.append(f"Next: measure the best settings again and plan anew: {again}")
    elif commands:
        lines.append(f"Next: set what can be set today: {'; '.join(commands)}")
    else:
        lines.append(f"Next: see where the energy goes, in {folder / 'report.html'}")
    return Group("", *(Text(line, style="bold") for line in lines))


def create_folder(folder: Path) -> Path:
    """Create a folder to write to, if it is missing.

    Raises:
        BadInputError: it cannot be created.
    """
    from wastenot.errors import BadInputError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"--out {folder}: cannot be created: {error.strerror}") from error
    return folder


def reproduce(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write to.")] = Path("wastenot-reproduction"),
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Reproduce the kernel-level DVFS paper on simulated GPUs.

    Writes its tables and figures beside the published numbers.
    """
    from contextlib import ExitStack

    from wastenot.cli.output import as_values, print_json, say
    from wastenot.cli.progress import shown_progress
    from wastenot.progress import Progress
    from wastenot.reproduction import reproduce as make_all

    folder = create_folder(out)
    with ExitStack() as parts:

        def watch(part: str) -> Progress:
            parts.close()  # the previous part is done
            return parts.enter_context(shown_progress(part))

        made = make_all(folder, watch, seed)
    if as_json:
        cards = [
            {"device": card.device, "plan": card.plan.document(), "by_pass": card.by_pass.document(),
             "comparison": as_values(card.comparison)}
            for card in made.cards
        ]  # fmt: skip
        batches, degrees = as_values(made.batches), as_values(made.tensor_parallel)
        print_json("reproduce", {"folder": str(folder), "cards": cards, "batches": batches, "tensor_parallel": degrees})
    else:
        print(made.summary.split("\n## Table 2")[0])
    say(f"{folder}: reproduction.md, figures, and a study, plan and report for each card")
