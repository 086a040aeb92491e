"""``wastenot profile``: power inside a kernel, from slow sensors (FinGraV)."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wastenot.cli.device_options import DeviceOption
from wastenot.cli.options import (
    AttentionOption,
    BatchOption,
    DtypeOption,
    JsonOption,
    OptimizerOption,
    PhaseOption,
    SeedOption,
    SequenceOption,
    SequenceParallelOption,
    TensorParallelOption,
    chosen_shape,
)

if TYPE_CHECKING:
    from wastenot.devices.instrument import Channel

ReportOption = Annotated[Path | None, typer.Option("--report", metavar="FILE.html", help="Write a page with all figures.")]
FiguresOption = Annotated[
    Path | None, typer.Option("--figures", metavar="DIR", help="Write every figure as SVG, PDF and PNG.")
]


def profile(
    kernel: Annotated[
        str,
        typer.Argument(
            metavar="KERNEL",
            help="gemm:8192, gemv:8192, all-reduce:512MB, all-gather:64KB, or WORKLOAD:KERNEL such as gpt3-xl:softmax.",
        ),
    ],
    device: DeviceOption,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE.parquet", help="Keep the profile.")] = None,
    report: ReportOption = None,
    figures: FiguresOption = None,
    after: Annotated[
        list[str] | None,
        typer.Option("--after", metavar="K", help="Run this first, such as gemv:4096x40, and KERNEL once. May be repeated."),
    ] = None,
    alternate: Annotated[
        list[str] | None,
        typer.Option("--alternate", metavar="K", help="Let this and KERNEL take turns until power is steady."),
    ] = None,
    runs: Annotated[
        int | None, typer.Option("--runs", metavar="N", help="Instead of what the kernel's time asks for.")
    ] = None,
    margin: Annotated[
        float | None, typer.Option("--margin", metavar="X", help="Of the bin of execution times, likewise; 0.05 is 5 %.")
    ] = None,
    outliers: Annotated[
        int, typer.Option("--outliers", metavar="N", help="Profile the Nth bin of outliers instead of the common case.")
    ] = 0,
    executions: Annotated[
        int | None, typer.Option("--executions", metavar="N", help="In a run, instead of the search for steady power.")
    ] = None,
    budget: Annotated[
        str, typer.Option("--budget", metavar="TIME", help="Device time after which no more is collected: 90s, 3m.")
    ] = "4m",
    sensors: Annotated[
        Path | None, typer.Option("--sensors", metavar="FILE.json", help="What wastenot sensor --out found of the device.")
    ] = None,
    phase: PhaseOption = "training",
    batch: BatchOption = None,
    sequence: SequenceOption = 1024,
    tensor_parallel: TensorParallelOption = 1,
    sequence_parallel: SequenceParallelOption = False,
    dtype: DtypeOption = "bf16",
    attention: AttentionOption = "unfused",
    optimizer: OptimizerOption = "none",
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Profile power over a kernel's executions and inside them, also where the sensor is slower than the kernel.

    SSE is the first execution as fast as any; SSP the first at steady power. Nothing is changed on a real GPU.
    """
    from wastenot.cli.output import console, print_json, say
    from wastenot.cli.profile_text import described_profile
    from wastenot.cli.progress import shown_progress
    from wastenot.cli.sweep_verb import parse_time
    from wastenot.profiling.profile import profile as make_profile
    from wastenot.profiling.profile_file import profile_document, write_profile

    budget_s = parse_time(budget)
    shape = chosen_shape(phase, batch, sequence, tensor_parallel, sequence_parallel, dtype, attention, optimizer)
    check_places(out, report, figures)
    channels: tuple[Channel, ...] = ()
    if sensors is not None:
        from wastenot.sensors.identity import read_sensors

        channels = read_sensors(sensors).known(device)
    command = shlex.join(["wastenot", *sys.argv[1:]])
    with shown_progress(f"profile of {kernel}") as progress:
        found = make_profile(
            kernel, device, after=after or (), alternate=alternate or (), runs=runs, margin=margin, outliers=outliers,
            executions=executions, budget_s=budget_s, channels=channels, shape=shape, seed=seed, progress=progress,
        )  # fmt: skip
    if out is not None:
        write_profile(found, out, command=command)
    if as_json:
        print_json(profile_document(found, command) | {"file": None if out is None else str(out)})
    else:
        console().print(described_profile(found))
    if out is not None:
        say(f"{out}: profile written" + ("" if found.complete else ", marked incomplete"))
    if report is not None or figures is not None:
        from wastenot.reporting.profile.page import write_profile_figures, write_profile_page

        if report is not None:
            write_profile_page([found], report)
            say(f"{report}: report written")
        if figures is not None:
            say(f"{figures}: {len(write_profile_figures([found], figures))} figure files written")
    found.raise_if_stopped()


def check_places(out: Path | None, report: Path | None, figures: Path | None) -> None:
    """See that what is to be written can be, before anything is measured.

    Raises:
        BadInputError: a file cannot be written.
        MissingExtraError: what writes it is not installed.
    """
    from wastenot.errors import BadInputError
    from wastenot.files import check_writable
    from wastenot.reporting.optional_imports import load
    from wastenot.study.parquet_file import polars_or_refuse

    if out is not None:
        if out.suffix != ".parquet" and (out.is_file() or not out.exists()):
            raise BadInputError(f"--out {out}: a power profile is a file whose name ends in .parquet")
        check_writable(out)
        polars_or_refuse()
    if report is not None:
        check_writable(report)
        load("jinja2")
    if figures is not None and figures.exists() and not figures.is_dir():
        raise BadInputError(f"--figures {figures}: is a file; name a folder")
    if report is not None or figures is not None:
        load("altair")
        load("vl_convert")
