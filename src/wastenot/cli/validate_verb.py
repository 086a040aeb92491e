"""``wastenot validate``: measure a plan again, in turn with auto."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wastenot.cli.device_options import AllowOption, RestoreOption, open_target
from wastenot.cli.options import JsonOption, OutOption, SeedOption, StudyOption, WorkloadOption

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.planning.plan import Plan


def validate(
    study: StudyOption,
    plan: Annotated[Path, typer.Option("--plan", metavar="PLAN.json", help="The plan to validate.")],
    workload: WorkloadOption = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="D", help="That the study was made on; by default the study's.")
    ] = None,
    repeats: Annotated[int, typer.Option("--repeats", metavar="N", help="Of the plan and of auto, at least 2.")] = 10,
    out: OutOption = None,
    allow_clock_control: AllowOption = False,
    restore_clocks: RestoreOption = None,
    seed: SeedOption = 1,
    as_json: JsonOption = False,
) -> None:
    """Measure a plan and auto in turn, and set what they give beside what was predicted."""
    from wastenot.cli.output import console, print_json, say
    from wastenot.cli.progress import shown_progress
    from wastenot.planning.plan import read_plan
    from wastenot.study.store import open_study
    from wastenot.tasks import tasks_in_study
    from wastenot.tuning.validate import validate as measure_again

    made = read_plan(plan)
    source = open_study(study)
    sweep = source.read(workload or made.workload, made.state, made.measured_granularity)
    name = device or sweep.device
    target = open_target(name, seed=seed, workload=sweep.key, allow=allow_clock_control, restore=restore_clocks)
    with shown_progress("validation") as progress:
        checked = measure_again(target, made, tasks_in_study(source, sweep), repeats=repeats, progress=progress)
    if out is not None:
        checked.write(out)
        say(f"{out}: plan with its validation written")
    if as_json:
        print_json(checked.document())
    else:
        console().print(described_validation(checked))


def described_validation(plan: Plan) -> RenderableType:
    """Predicted, expected and measured changes side by side."""
    from rich.console import Group
    from rich.table import Table

    from wastenot.reporting.formatting import change

    found, expected = plan.validation, plan.expected
    assert found is not None
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for heading in ("time", "energy"):
        table.add_column(heading, justify="right")
    table.add_row("predicted", change(plan.predicted.time_change, 3), change(plan.predicted.energy_change))
    if expected is not None:
        table.add_row("expected, without luck", change(expected.time_change, 3), change(expected.energy_change))
    measured = (found.time_change, found.energy_change)
    table.add_row("measured again", *(change(each.mean, 3) for each in measured))
    table.add_row(
        f"{found.level:.0%} interval", *(f"{change(each.interval[0])} to {change(each.interval[1])}" for each in measured)
    )
    table.add_row(f"all {found.pairs} pairs", *(f"{change(each.least)} to {change(each.most)}" for each in measured))
    head = (
        f"{plan.measured} on {found.device} ({plan.origin} numbers): the plan and auto in turn, {found.repeats} times each"
    )
    return Group(head, "", table)
