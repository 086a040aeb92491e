"""``wastenot run``: sweep, plan, compare, validate and report in one go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wastenot.cli.device_options import AllowOption, DeviceOption, RestoreOption, open_target
from wastenot.cli.options import (
    AttentionOption,
    BatchOption,
    ConfidenceOption,
    CurrencyOption,
    DtypeOption,
    OptimizerOption,
    PhaseOption,
    PriceOption,
    SeedOption,
    SequenceOption,
    SequenceParallelOption,
    TensorParallelOption,
    chosen_shape,
)
from wastenot.cli.sweep_verb import described_outcome


def run(
    workload: Annotated[str, typer.Argument(metavar="WORKLOAD", help="A model such as gpt3-xl.")],
    device: DeviceOption = "sim:rtx-3080-ti",
    max_slowdown: Annotated[float, typer.Option("--max-slowdown", metavar="X", help="Slowdown allowed; 0.02 is 2 %.")] = 0.0,
    confidence: ConfidenceOption = None,
    core_step: Annotated[float, typer.Option("--core-step", metavar="MHZ", help="Between core clocks.")] = 210.0,
    repeats: Annotated[int, typer.Option("--repeats", metavar="N", help="Of the validation; 0 leaves it out.")] = 10,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where to write; wastenot-WORKLOAD by default."),
    ] = None,
    phase: PhaseOption = "training",
    batch: BatchOption = None,
    sequence: SequenceOption = 1024,
    tensor_parallel: TensorParallelOption = 1,
    sequence_parallel: SequenceParallelOption = False,
    dtype: DtypeOption = "bf16",
    attention: AttentionOption = "unfused",
    optimizer: OptimizerOption = "none",
    price_per_kwh: PriceOption = 0.15,
    currency: CurrencyOption = "USD",
    allow_clock_control: AllowOption = False,
    restore_clocks: RestoreOption = None,
    seed: SeedOption = 0,
) -> None:
    """Sweep a workload, plan it, compare, validate the plan, and write a report. Goes on where it was broken off."""
    from wastenot.analyses.plan_overview import make_overview
    from wastenot.cli.output import console, say
    from wastenot.cli.plan_text import described_comparison, described_plan
    from wastenot.cli.progress import shown_progress
    from wastenot.cli.validate_verb import described_validation
    from wastenot.planning.comparison import compare
    from wastenot.planning.objective import Objective
    from wastenot.planning.planner import plan as make_plan
    from wastenot.reporting.plan.page import write_figures, write_report
    from wastenot.reporting.price import Price
    from wastenot.study.store import open_study
    from wastenot.sweeping.grid import Grid, check_measures, settable
    from wastenot.sweeping.sweep import measure_sweep
    from wastenot.tasks import find_tasks

    price = Price(price_per_kwh, currency)
    goal = Objective("waste", max_slowdown, confidence=confidence)
    shape = chosen_shape(phase, batch, sequence, tensor_parallel, sequence_parallel, dtype, attention, optimizer)
    units = find_tasks(workload, device, shape)
    target = open_target(device, seed=seed, workload=units.key, allow=allow_clock_control, restore=restore_clocks)
    check_measures(target)
    settings = settable(target, Grid(core_step).settings(target.clocks.supported_clocks()))
    folder = made_folder(out or Path(f"wastenot-{units.name}"))
    kept = open_study(folder / "study.db", create=True)
    with shown_progress("sweep") as progress:
        outcome = measure_sweep(target, units, kept, settings, progress=progress)
    for line in described_outcome(outcome, units.key, str(folder / "study.db")):
        say(line)
    sweep = kept.read(units.name)
    plan = make_plan(sweep, goal)
    if repeats:
        from wastenot.tuning.validate import validate

        with shown_progress("validation") as progress:
            plan = validate(target, plan, units, repeats=repeats, progress=progress)
    plan.write(folder / "plan.json")
    console().print(described_plan(plan, price))
    if repeats:
        console().print(described_validation(plan))
    console().print(described_comparison(compare(sweep)))
    overview = make_overview(sweep, plan)
    write_report(overview, folder / "report.html", price=price)
    write_figures(overview, folder / "figures")
    say(f"{folder}: study.db, plan.json, report.html and figures/ written")


def made_folder(folder: Path) -> Path:
    """A folder to write to, made if it is missing.

    Raises:
        BadInputError: it cannot be made.
    """
    from wastenot.errors import BadInputError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"--out {folder}: cannot be made: {error.strerror}") from error
    return folder
