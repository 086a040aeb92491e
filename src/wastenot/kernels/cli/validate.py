"""Verbs that measure a plan: validate, and transfer to other batch sizes and parallel degrees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from wastenot.core.errors import BadInputError
from wastenot.core.wording import counted
from wastenot.pages.formatting import change, changes, quantity
from wastenot.pages.price import DEFAULT_PRICE
from wastenot.terminal import completing, quantities
from wastenot.terminal.option import option
from wastenot.terminal.options import (
    ClockControlOptions,
    DeviceOption,
    FiguresOption,
    JsonOption,
    OutOption,
    SeedOption,
    StudyOption,
    WorkloadOption,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.kernels.run.interleaved import Transfer
    from wastenot.planning.plan import Plan


# Name, title and axis of the figure.
_BATCH_FIGURE = ("transfer-batch", "The plan at other batch sizes", "batch size")
_DEGREE_FIGURE = ("transfer-parallel", "The plan at other tensor-parallel degrees", "tensor-parallel degree")


def validate(
    study: StudyOption,
    plan: Annotated[Path, option("The plan to validate.", "PLAN.json")],
    workload: WorkloadOption = None,
    device: Annotated[
        str | None,
        option(
            "The device that the study was measured on; default: the one it names.", "D", autocompletion=completing.devices
        ),
    ] = None,
    repeats: Annotated[int, option("Measurements of the plan and of auto, at least 2.", "N")] = 10,
    out: OutOption = None,
    *,
    clock_control: ClockControlOptions,
    seed: SeedOption = 1,
    as_json: JsonOption = False,
) -> None:
    """Measure a plan, interleaved with the default clocks (auto)."""
    from wastenot.devices.open import device_of_study
    from wastenot.kernels.run.interleaved import validate as validate_plan
    from wastenot.planning.plan_file import read_plan
    from wastenot.study.store import open_study
    from wastenot.sweeping.announce import announce
    from wastenot.terminal.output import console, print_json, say
    from wastenot.terminal.progress import shown_progress

    made, source = read_plan(plan), open_study(study)
    sweep = source.read(workload or made.workload, made.state, made.measured_granularity)
    name = device or device_of_study(study, sweep.device)
    target = clock_control.open_device(name, seed=seed, workload=sweep.key)
    with shown_progress("validation") as progress:
        validated = validate_plan(
            made, source, target, workload=workload, repeats=repeats, announce=announce, progress=progress
        )
    if out is not None:
        validated.write(out)
        say(f"{out}: plan and validation written")
    if as_json:
        print_json("validate", validated.document())
    else:
        console().print(validation_text(validated))


def validation_text(plan: Plan) -> RenderableType:
    """The story of a plan that was measured again, and the measurement beside what was promised."""
    from wastenot.kernels.cli.plan_text import story_text
    from wastenot.kernels.page.story import story_of
    from wastenot.terminal.tables import Group, Paragraph, headline

    assert plan.validation is not None
    head = headline(str(plan.measured), plan.validation.device, plan.origin, "")
    return Group(Paragraph(head), story_text(story_of(plan, DEFAULT_PRICE)), measured_beside_promised(plan))


def measured_beside_promised(plan: Plan) -> RenderableType:
    """What was promised and what was measured, side by side."""
    from wastenot.kernels.page.verdict import origin_of_validation
    from wastenot.terminal.tables import Group, Text, plain_table

    validation, expected = plan.validation, plan.expected
    assert validation is not None
    table = plain_table(("",), ("time", "energy"))
    if expected is None or not plan.objective.corrected:
        table.add_row("as measured", change(plan.predicted.time_change, 3), change(plan.predicted.energy_change))
    if expected is not None:
        table.add_row("expected", change(expected.time_change, 3), change(expected.energy_change))
        table.add_row(
            f"{expected.level:.0%} interval",
            *(changes(each) for each in (expected.time_change_interval, expected.energy_change_interval)),
        )
    measured = (validation.time_change, validation.energy_change)
    table.add_row("measured again", *(change(each.mean, 3) for each in measured))
    table.add_row(f"{validation.level:.0%} interval", *(changes(each.interval) for each in measured))
    runs = validation.repeats
    pairs = f"{runs} × {runs} pairs of runs" if validation.pairs == runs**2 else counted(validation.pairs, "pair")
    table.add_row(f"all {pairs}", *(changes((each.least, each.most)) for each in measured))
    origin = origin_of_validation(plan)
    simulated = "" if origin == "measured" else f" ({origin})"
    what = f"Measured {counted(validation.repeats, 'time')}{simulated}, interleaved with the default clocks (auto)"
    return Group(Text(what, style="bold"), table)


def transfer(
    plan: Annotated[Path, option("The plan whose clocks to use.", "PLAN.json")],
    device: DeviceOption,
    batch: Annotated[
        quantities.Counts | None, option("Batch sizes, such as 40,20,10,5,2,1.", "N,...", parser=quantities.counts)
    ] = None,
    tensor_parallel: Annotated[
        quantities.Counts | None, option("Tensor-parallel degrees, such as 1,2,4,8.", "N,...", parser=quantities.counts)
    ] = None,
    sequence_parallel: Annotated[bool, option("Use sequence parallelism at degrees above 1.")] = False,
    repeats: Annotated[int, option("Measurements of each.", "N")] = 10,
    figures: FiguresOption = None,
    *,
    clock_control: ClockControlOptions,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Measure a plan at other batch sizes or parallel degrees.

    Measurements are interleaved with the default clocks (auto).
    """
    from wastenot.core.values import as_values
    from wastenot.kernels.verbs import transfer as measure_transfer
    from wastenot.planning.plan_file import read_plan
    from wastenot.sweeping.announce import announce
    from wastenot.terminal.output import console, print_json, say
    from wastenot.terminal.progress import shown_progress

    if (batch is None) == (tensor_parallel is None):
        raise BadInputError("give what to change: either --batch 40,20,... or --tensor-parallel 1,2,...")
    made = read_plan(plan)
    target = clock_control.open_device(device, seed=seed, workload=None)
    with shown_progress("transfer") as progress:
        measured_transfer = measure_transfer(
            made, target, batch=batch or (), tensor_parallel=tensor_parallel or (),
            sequence_parallel=sequence_parallel, repeats=repeats, announce=lambda parts: announce(*parts),
            progress=progress,
        )  # fmt: skip
    if figures is not None:
        from wastenot.kernels.page.transfer_figure import transfer_figure
        from wastenot.pages.figure import export_figures

        name, title, axis = _BATCH_FIGURE if batch else _DEGREE_FIGURE
        labels = tuple(map(str, batch or tensor_parallel or ()))
        figure = transfer_figure(measured_transfer, name, title, labels, axis)
        written = export_figures([figure], measured_transfer.origin, figures)
        say(f"{figures}: {counted(len(written), 'figure file')} written")
    if as_json:
        print_json("transfer", as_values(measured_transfer))
    else:
        console().print(_transfer_text(measured_transfer))


def _transfer_text(transfer: Transfer) -> RenderableType:
    from wastenot.kernels.run.interleaved import TransferRow
    from wastenot.pages.table import Listed
    from wastenot.terminal.tables import Group, listed

    fields: tuple[Listed[TransferRow], ...] = (
        Listed("workload", lambda row: row.workload, numeric=False),
        Listed("time at auto", lambda row: quantity(row.auto_time_s, "s")),
        Listed("energy at auto", lambda row: quantity(row.auto_energy_j, "J")),
        Listed("time", lambda row: change(row.time_change.mean, 3)),
        Listed("95 % interval", lambda row: changes((row.time_change.low, row.time_change.high))),
        Listed("energy", lambda row: change(row.energy_change.mean)),
        Listed("95 % interval", lambda row: changes((row.energy_change.low, row.energy_change.high))),
    )
    table = listed(transfer.rows, fields)
    head = (
        f"the clocks planned for {transfer.planned}, on {transfer.device} ({transfer.origin} numbers), "
        f"measured {counted(transfer.repeats, 'time')}, interleaved with auto"
    )
    return Group(head, "", table)
