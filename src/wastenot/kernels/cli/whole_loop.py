"""Verbs that do everything in one go: run, and reproduce, which repeats the kernel-level DVFS paper."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wastenot.core.errors import BadInputError
from wastenot.kernels.cli.sweep import CoreStepOption, outcome_lines, outcome_values
from wastenot.pages.formatting import change, percent
from wastenot.pages.price import Price
from wastenot.terminal import completing
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import (
    AsMeasuredOption,
    ClockControlOptions,
    ConfidenceOption,
    DeviceOption,
    DryRunOption,
    JsonOption,
    MaxSlowdownOption,
    PowerLimitsOption,
    PriceOptions,
    SeedOption,
    ShapeOptions,
)

if TYPE_CHECKING:
    from wastenot.kernels.page.provenance import Files
    from wastenot.meters.tasks import WorkloadTasks
    from wastenot.planning.comparison import Comparison
    from wastenot.planning.plan import Plan
    from wastenot.sweeping.estimate import Estimate

_SHORTER = "a larger --core-step, fewer --repeats, or sweep with --search model or --budget, then plan, validate and report"
_NOTICEABLE = 0.001  # share of the energy for which somebody would set a clock
_THEN_S = 12.0  # planning, and writing the report and its figures


def run(
    workload: Annotated[str, argument("A model such as gpt3-xl.", "WORKLOAD", autocompletion=completing.workloads)],
    device: DeviceOption = "sim:rtx-3080-ti",
    max_slowdown: MaxSlowdownOption = 0.0,
    confidence: ConfidenceOption = None,
    as_measured: AsMeasuredOption = False,
    core_step: CoreStepOption = None,
    power_limit: PowerLimitsOption = None,
    repeats: Annotated[int, option("Measurements of the validation; 0 skips it.", "N")] = 10,
    out: Annotated[Path | None, option("Folder to write to; wastenot-WORKLOAD by default.", "DIR")] = None,
    *,
    shape_options: ShapeOptions,
    price_options: PriceOptions,
    clock_control: ClockControlOptions,
    seed: SeedOption = 0,
    in_full: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also show every kernel, other objectives, and all numbers.")
    ] = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Sweep, plan, compare, validate and report in one go.

    First prints what is run and how long it will take. Resumes an interrupted sweep.
    """
    from wastenot.core.values import as_values
    from wastenot.kernels.page.page import report
    from wastenot.kernels.run.interleaved import estimate_interleaved, validate
    from wastenot.kernels.verbs import sweep
    from wastenot.meters.tasks import find_tasks
    from wastenot.pages.optional_imports import check_report
    from wastenot.planning.comparison import compare_with
    from wastenot.planning.objective import Objective
    from wastenot.planning.planner import Planner, plan as make_plan
    from wastenot.study.store import open_study, sweep_of
    from wastenot.sweeping.announce import announce, show_dry_run
    from wastenot.sweeping.grid import Grid
    from wastenot.terminal.option_rules import check_output
    from wastenot.terminal.output import print_json, say, typed_command
    from wastenot.terminal.progress import kept_if_interrupted, resume_with, shown_progress

    price = price_options.price()
    goal = Objective("waste", max_slowdown, confidence=confidence, as_measured=as_measured)
    tasks = find_tasks(workload, device, shape_options.shape())
    folder = out or Path(f"wastenot-{tasks.name}")
    check_output(folder, folder=True)
    check_report()
    target = clock_control.open_device(device, seed=seed, workload=tasks.key)
    again = [estimate_interleaved(target, tasks, repeats=repeats)] if repeats else []
    study = open_study(folder / "study.db", create=True, look=False)
    command = typed_command(str(study))

    def begin(sweep: Estimate) -> None:
        say(f"{_what(tasks)} (to change: --phase, --batch, --sequence, --attention, --optimizer, …)")
        announce(sweep, *again, shorter=_SHORTER, then_s=_THEN_S)
        create_folder(folder)  # only now: what cannot be swept leaves none behind

    with kept_if_interrupted(resume_with(command, study)):
        with shown_progress("sweep") as progress:
            outcome = sweep(
                tasks, target, study, clocks=Grid(core_step, power_limit_w=power_limit),
                command=command, announce=begin, dry_run=dry_run, progress=progress,
            )  # fmt: skip
        if outcome.estimate is not None:
            show_dry_run(outcome.estimate, *again, as_json=as_json, shorter=_SHORTER, then_s=_THEN_S, folder=str(folder))
            return
        for line in outcome_lines(outcome, tasks.key, str(study)):
            say(line)
        planner = Planner(sweep_of(study, tasks.name, None, "kernel"))
        plan = make_plan(planner, goal)
        if repeats:
            with shown_progress("validation") as progress:
                plan = validate(plan, study, target, repeats=repeats, progress=progress)
        plan.write(folder / "plan.json")
        comparison = compare_with(planner, as_measured=as_measured) if in_full or as_json else None
        pages = report(
            study, folder / "report.html", plan=folder / "plan.json", figures=folder / "figures", price=price,
            planner=planner, command=command,
        )  # fmt: skip
    say(f"{folder}: study.db, plan.json, report.html and figures/ written")
    if as_json:
        written = [folder / "study.db", folder / "plan.json", *pages]
        print_json("run", {
            "files": list(map(str, written)), "sweep": outcome_values(outcome), "plan": plan.document(),
            "comparison": as_values(comparison),
        })  # fmt: skip
    else:
        _show(plan, comparison, price, folder, device, _what(tasks))


def _what(tasks: WorkloadTasks) -> str:
    from wastenot.workloads.build import run_description

    return tasks.name if tasks.run is None else run_description(tasks.run)


def _show(plan: Plan, comparison: Comparison | None, price: Price, folder: Path, device: str, what: str) -> None:
    """The plan and what it is compared with, in full where it is, and the command that continues."""
    from wastenot.kernels.cli.plan_text import comparison_text, plan_text
    from wastenot.kernels.cli.validate import measured_beside_promised
    from wastenot.terminal.output import console
    from wastenot.terminal.tables import Group, Paragraph, headline

    if comparison is None:
        head = headline(plan.workload, plan.device, plan.origin, "")
        more = f"Each kernel, and all numbers: wastenot show {folder / 'plan.json'} -v"
        console().print(Group(Paragraph(head), what, more))
    else:
        console().print(plan_text(plan, price, _files(folder), in_full=True))
        if plan.validation is not None:
            console().print("", measured_beside_promised(plan), sep="\n")
        console().print("", comparison_text(comparison), sep="\n")
    typer.echo("\n" + "\n".join([*chain(*ending(plan, _files(folder))), _next(plan, folder, device)]))


def _files(folder: Path) -> Files:
    from wastenot.kernels.page.provenance import Files

    return Files(str(folder / "study.db"), folder / "plan.json")


def _next(plan: Plan, folder: Path, device: str) -> str:
    if plan.headline.verdict == "missed":
        again = f"wastenot kernel refine --study {folder / 'study.db'} --device {device}"
        return f"Next      measure the best settings again and make a new plan: {again}"
    return f"Page      {(folder / 'report.html').resolve().as_uri()}"


def create_folder(folder: Path) -> Path:
    """Create a folder to write to, if it is missing.

    Raises:
        BadInputError: it cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"--out {folder}: cannot be created: {error.strerror}") from error
    return folder


def reproduce(
    out: Annotated[Path, option("Folder to write to.", "DIR")] = Path("wastenot-reproduction"),
    seed: SeedOption = 0,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Reproduce the kernel-level DVFS paper on simulated GPUs.

    Writes its tables and figures beside the published numbers. First prints how long it will take. Resumes its sweeps if it
    was interrupted.
    """
    from wastenot.core.values import as_values
    from wastenot.kernels.judge.reproduction import WRITING_S, estimate_reproduction, reproduce as make_all
    from wastenot.pages.optional_imports import check_report
    from wastenot.sweeping.announce import announce_whole, show_dry_run
    from wastenot.terminal.output import print_json, say, typed_command
    from wastenot.terminal.progress import kept_if_interrupted, shown_progress

    check_report()
    parts = estimate_reproduction(out, seed)
    if dry_run:
        show_dry_run(*parts, as_json=as_json, then_s=WRITING_S, folder=str(out))
        return
    announce_whole("the paper on simulated GPUs", parts, WRITING_S)
    folder = create_folder(out)
    kept = f"{folder}: sweeps are kept, other measurements are not; resume: {typed_command(str(folder))}"
    with kept_if_interrupted(kept), shown_progress("reproduction") as progress:
        made = make_all(folder, parts, progress, seed)
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


def ending(plan: Plan, files: Files) -> tuple[list[str], list[str]]:
    """What can be had today, and how; and what the whole plan would do, with the verdict where it was measured again."""
    from wastenot.kernels.page.applicable_panels import apply_command
    from wastenot.kernels.page.verdict import limit_verdict, limit_words
    from wastenot.planning.applicable_today import applicable_today

    headline, expected, today, now, whole = plan.headline, plan.expected, plan.today, [], []
    within = ""
    if today.energy_change_interval is not None:
        low, high = today.energy_change_interval
        within = f" ({percent(-high)} to {percent(-low)})"
    finest, alone, how = applicable_today(plan).finest, None, ""
    if finest is not None and finest.commands and (alone := finest.energy_change) is not None:
        how = f", with one setting: {'; '.join(finest.commands)}"
    beside = today.rung is not None
    by = f", by a schedule: {apply_command(plan, files)}" if beside else how
    now.append(f"Today     {percent(-today.energy_change)} of the energy saved{within}{by}")
    if not today.sets_something:
        now = ["Today     nothing to set"]
    if alone is not None:
        little = beside and -alone < _NOTICEABLE
        if little:
            now.append(f"or        less than {percent(_NOTICEABLE, 1)}, with one setting")
        elif beside:
            now.append(f"or        {percent(-alone)}{how}")
        if plan.origin == "simulated" and not little:
            now.append("          (sweep the real card before you set its clocks)")
    bound = "" if today.whole else ", if switching were instant"
    if expected is not None:
        low, high = expected.energy_change_interval
        limit = plan.objective.max_slowdown
        allowed = "" if limit is None else f", {'no slower' if limit == 0.0 else limit_words(limit)}"
        saved = f"{percent(-expected.energy_change)} ({percent(-high)} to {percent(-low)})"
        whole.append(f"{'Promised' if today.whole else 'At most '}  {saved}{bound}{allowed}")
    if headline.source == "validation":
        verdict = "no slowdown limit was set" if (kept := limit_verdict(plan)) is None else f"limit {kept.partition(':')[0]}"
        less = expected is not None and headline.energy_change > expected.energy_change_interval[1]
        saved = f"{percent(-headline.energy_change)} saved{', less than promised' if less else ''}"
        whole.append(f"Validated {saved}, time {change(headline.time_change)}{bound}: {verdict} ({plan.origin})")
    return now, whole
