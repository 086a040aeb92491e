"""``wastenot refine``: measure again what a plan rests on, on the same card or on another of its kind."""

from __future__ import annotations

from typing import Annotated

import typer

from wastenot.cli.device_options import AllowOption, DeviceOption, RestoreOption, open_target
from wastenot.cli.options import (
    EnergiesOption,
    JsonOption,
    MeasuredGranularityOption,
    SeedOption,
    StudyOption,
    WorkloadOption,
)
from wastenot.cli.sweep_verb import described_outcome, parse_time


def refine(
    study: StudyOption,
    device: DeviceOption,
    workload: WorkloadOption = None,
    energies: EnergiesOption = None,
    granularity: MeasuredGranularityOption = None,
    into: Annotated[
        str | None,
        typer.Option("--into", metavar="FILE|URL", help="Study of another card of the same kind, to measure there instead."),
    ] = None,
    max_slowdown: Annotated[float, typer.Option("--max-slowdown", metavar="X", help="Of the plan to refine.")] = 0.0,
    finalists: Annotated[int, typer.Option("--finalists", metavar="N", help="Settings of each kernel to measure.")] = 3,
    around: Annotated[
        float, typer.Option("--around", metavar="MHZ", help="Also clocks so far around the best; 0 for none.")
    ] = 0.0,
    repeats: Annotated[int, typer.Option("--repeats", metavar="N", help="How often to measure each.")] = 3,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="TIME", help="Device time to spend, such as 90s, 45m or 2h.")
    ] = None,
    allow_clock_control: AllowOption = False,
    restore_clocks: RestoreOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Measure the finalists of every kernel again, and the clocks around them; then plan anew."""
    from wastenot.cli.output import as_values, print_json, say
    from wastenot.cli.progress import shown_progress
    from wastenot.errors import BadInputError
    from wastenot.planning.objective import Objective
    from wastenot.planning.planner import plan as make_plan
    from wastenot.study.store import open_study
    from wastenot.tasks import tasks_in_study
    from wastenot.tuning.refine import around as settings_around
    from wastenot.tuning.refine import finalists as find_finalists
    from wastenot.tuning.refine import refine as measure_again

    if finalists < 1:
        raise BadInputError(f"--finalists {finalists}: must be at least 1")
    if not 0.0 <= around < float("inf"):
        raise BadInputError(f"--around {around}: must be a number of MHz, 0 for none")
    source = open_study(study)
    sweep = source.read(workload, energies, granularity)
    plan = make_plan(sweep, Objective("waste", max_slowdown))
    target = open_target(device, seed=seed, workload=sweep.key, allow=allow_clock_control, restore=restore_clocks)
    kept = source if into is None else open_study(into, create=True)
    candidates = find_finalists(sweep, plan, finalists)
    if around:
        states = target.clocks.supported_clocks()
        for row in plan.assignments:
            near = settings_around(row.setting, states, around)
            candidates[row.kernel] = tuple(dict.fromkeys((*candidates[row.kernel], *near)))
    units = tasks_in_study(source, sweep)
    with shown_progress(f"refining {sweep.key}") as progress:
        outcome = measure_again(
            target, units, kept, candidates, repeats=repeats, progress=progress,
            budget_s=None if budget is None else parse_time(budget),
        )  # fmt: skip
    refined = make_plan(kept.read(sweep.workload, sweep.state, sweep.granularity), Objective("waste", max_slowdown))
    if as_json:
        print_json(as_values(outcome) | {"before": plan.document()["predicted"], "after": refined.document()["predicted"]})
        return
    for line in described_outcome(outcome, sweep.key, str(into or study)):
        say(line)
    changed = sum(a.setting != b.setting for a, b in zip(plan.assignments, refined.assignments, strict=True))
    say(
        f"energy {plan.predicted.energy_change:+.2%} before, {refined.predicted.energy_change:+.2%} now; "
        f"{changed} of {len(plan.assignments)} kernels have other clocks"
    )
