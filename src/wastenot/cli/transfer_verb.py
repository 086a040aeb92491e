"""``wastenot transfer``: a plan's clocks at other batch sizes and parallel degrees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wastenot.cli.device_options import AllowOption, DeviceOption, RestoreOption, open_target
from wastenot.cli.options import JsonOption, SeedOption

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.tuning.transfer import Transfer


def transfer(
    plan: Annotated[Path, typer.Option("--plan", metavar="PLAN.json", help="Whose clocks to take.")],
    device: DeviceOption,
    batch: Annotated[
        str | None, typer.Option("--batch", metavar="N,...", help="Batch sizes, such as 40,20,10,5,2,1.")
    ] = None,
    tensor_parallel: Annotated[
        str | None, typer.Option("--tensor-parallel", metavar="N,...", help="Tensor-parallel degrees, such as 1,2,4,8.")
    ] = None,
    sequence_parallel: Annotated[
        bool, typer.Option("--sequence-parallel", help="With sequence parallelism at degrees above 1.")
    ] = False,
    repeats: Annotated[int, typer.Option("--repeats", metavar="N", help="How often to measure each.")] = 10,
    figures: Annotated[
        Path | None, typer.Option("--figures", metavar="DIR", help="Write the figure as SVG, PDF and PNG.")
    ] = None,
    allow_clock_control: AllowOption = False,
    restore_clocks: RestoreOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Measure a plan's clocks, in turn with auto, at other batch sizes or tensor-parallel degrees."""
    from dataclasses import replace

    from wastenot.cli.output import as_values, console, print_json, say
    from wastenot.cli.progress import shown_progress
    from wastenot.errors import BadInputError
    from wastenot.planning.plan import read_plan
    from wastenot.tasks import tasks_of
    from wastenot.tuning.transfer import transfer as measure_transfer
    from wastenot.workloads.build import build_workload

    if (batch is None) == (tensor_parallel is None):
        raise BadInputError("name what to change: either --batch 40,20,... or --tensor-parallel 1,2,...")
    made = read_plan(plan)
    if made.run is None:
        raise BadInputError(
            f"{plan}: workload '{made.workload}' is not known to be of a model, which alone can be run at other shapes; "
            "plan a sweep of a model, such as gpt3-xl"
        )
    model, shape = made.run.model, made.run.shape
    if batch is not None:
        labels = parse_counts("--batch", batch)
        shapes = [replace(shape, batch=size) for size in labels]
        name, title, axis = "transfer-batch", "The plan at other batch sizes", "batch size"
    else:
        assert tensor_parallel is not None
        labels = parse_counts("--tensor-parallel", tensor_parallel)
        shapes = [
            replace(shape, tensor_parallel=degree, sequence_parallel=sequence_parallel and degree > 1) for degree in labels
        ]
        name, title, axis = "transfer-parallel", "The plan at other tensor-parallel degrees", "tensor-parallel degree"
    targets = [tasks_of(build_workload(model, each), made.measured_granularity, made.state) for each in shapes]
    target = open_target(device, seed=seed, workload=None, allow=allow_clock_control, restore=restore_clocks)
    with shown_progress("transfer") as progress:
        found = measure_transfer(target, made, targets, repeats=repeats, progress=progress)
    if figures is not None:
        from wastenot.reporting.figure import export_figures
        from wastenot.reporting.plan.transfer_figure import transfer_figure

        figure = transfer_figure(found, name, title, tuple(map(str, labels)), axis)
        written = export_figures([figure], found.origin, figures)
        say(f"{figures}: {len(written)} figure files written")
    if as_json:
        print_json(as_values(found))
    else:
        console().print(described_transfer(found))


def described_transfer(found: Transfer) -> RenderableType:
    """The rows as a table."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from wastenot.reporting.formatting import change, quantity

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("workload")
    for heading in ("time at auto", "energy at auto", "time", "95 % interval", "energy", "95 % interval"):
        table.add_column(heading, justify="right")
    for row in found.rows:
        time, energy = row.time_change, row.energy_change
        table.add_row(
            Text(row.workload),
            quantity(row.auto_time_s, "s"),
            quantity(row.auto_energy_j, "J"),
            change(time.mean, 3),
            f"{change(time.low)} to {change(time.high)}",
            change(energy.mean),
            f"{change(energy.low)} to {change(energy.high)}",
        )
    head = f"the clocks planned for {found.planned}, on {found.device} ({found.origin} numbers), {found.repeats} times"
    return Group(head, "", table)


def parse_counts(flag: str, text: str) -> tuple[int, ...]:
    """Positive whole numbers from a list such as ``40,20,10``.

    Raises:
        BadInputError: one of them is not.
    """
    from wastenot.errors import BadInputError

    try:
        counts = tuple(int(part) for part in text.split(","))
    except ValueError:
        counts = (0,)
    if not all(count > 0 for count in counts):
        raise BadInputError(f"{flag} {text}: write whole numbers with commas between them, such as 40,20,10")
    return counts
