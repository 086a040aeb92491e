"""Verbs on power profiles: profile, and profiles, which shows several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from wastenot.core.errors import BadInputError
from wastenot.core.wording import counted
from wastenot.pages.formatting import percent
from wastenot.terminal import completing, quantities
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import (
    DeviceOption,
    JsonOption,
    PageOptions,
    SeedOption,
    ShapeOptions,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from wastenot.devices.instrument import Channel
    from wastenot.profiles.result import Profile


def profile(
    kernel: Annotated[
        str,
        argument(
            "gemm:8192, gemv:8192, all-reduce:512MB, all-gather:64KB, or WORKLOAD:KERNEL such as gpt3-xl:softmax.",
            "KERNEL",
            autocompletion=completing.kernels,
        ),
    ],
    device: DeviceOption,
    out: Annotated[Path | None, option("Write the profile to this file.", "FILE.parquet")] = None,
    *,
    shown: PageOptions,
    after: Annotated[
        list[str] | None,
        option(
            "Run this before KERNEL, such as gemv:4096x40, then KERNEL once; may be repeated.",
            "K",
            autocompletion=completing.kernels,
        ),
    ] = None,
    alternate: Annotated[
        list[str] | None, option("Alternate this and KERNEL until power is steady.", "K", autocompletion=completing.kernels)
    ] = None,
    runs: Annotated[int | None, option("Number of runs; default: chosen by the kernel's execution time.", "N")] = None,
    margin: Annotated[
        float | None,
        option(
            "Margin of the execution-time bin, such as 5%; default: chosen like --runs.", "X", parser=quantities.relative
        ),
    ] = None,
    outliers: Annotated[int, option("Profile the Nth bin of outliers instead of the most common execution time.", "N")] = 0,
    executions: Annotated[
        int | None, option("Executions per run; default: as many as needed to reach steady power.", "N")
    ] = None,
    budget: Annotated[
        float,
        option(
            "Device time after which collection stops; default: 4m.", "TIME", parser=quantities.budget, show_default=False
        ),
    ] = 240.0,
    sensors: Annotated[
        Path | None, option("Sensor properties of the device, written by wastenot device sensor --out.", "FILE.json")
    ] = None,
    shape_options: ShapeOptions,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Profile the power inside a kernel (FinGraV).

    Works even if the sensor is slower than the kernel. SSE is the first execution at steady execution time, SSP the first
    at steady power. Nothing is changed on a real GPU.
    """
    from wastenot.pages.optional_imports import load
    from wastenot.profiles.options import ProfileOptions
    from wastenot.profiles.page.page import profile_page
    from wastenot.profiles.profile import profile as make_profile
    from wastenot.profiles.profile_file import profile_document, write_profile
    from wastenot.study.parquet_file import polars_or_refuse
    from wastenot.terminal.output import console, print_json, say, typed_command
    from wastenot.terminal.progress import shown_progress

    options = ProfileOptions(runs, margin, outliers, executions, budget, seed=seed)
    shape = shape_options.shape()
    if out is not None:
        if out.suffix != ".parquet" and (out.is_file() or not out.exists()):
            raise BadInputError(f"--out {out}: the name of a power profile must end in .parquet")
        polars_or_refuse()
    for module in ("altair", "vl_convert", "jinja2") if shown.page or shown.figures else ():
        load(module)  # what is there and cannot be imported is found out before the work, too
    channels: tuple[Channel, ...] = ()
    if sensors is not None:
        from wastenot.meters.sensors.identity import read_sensors

        channels = read_sensors(sensors).known(device)
    command = typed_command()
    with shown_progress(f"profile of {kernel}") as progress:
        profiled = make_profile(
            kernel, device, after=after or (), alternate=alternate or (), options=options, channels=channels, shape=shape,
            progress=progress,
        )  # fmt: skip
    if out is not None:
        write_profile(profiled, out, command=command)
    if as_json:
        print_json("profile", profile_document(profiled, command) | {"file": None if out is None else str(out)})
    else:
        console().print(profile_text(profiled))
    if out is not None:
        say(f"{out}: profile written" + ("" if profiled.complete else ", marked incomplete"))
    shown.write(lambda: profile_page([profiled]), command)
    profiled.raise_if_stopped()


def profiles(
    files: Annotated[list[Path], argument("Written by wastenot profile run --out.", "PROFILE.parquet...")],
    *,
    shown: PageOptions,
    relative: Annotated[
        bool, option("Show power relative to the largest, as FinGraV draws it, instead of watts.", flag="--relative")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show power profiles side by side.

    Components of several kernels, and a kernel alone and after others.
    """
    from wastenot.profiles.page.description import profiles_table
    from wastenot.profiles.page.page import profile_page
    from wastenot.profiles.profile_file import profile_document, read_profile
    from wastenot.terminal.output import console, print_json, typed_command
    from wastenot.terminal.tables import rich_table

    loaded = [read_profile(file) for file in files]
    if as_json:
        print_json(
            "profiles",
            {"profiles": [{"file": str(file)} | profile_document(one) for file, one in zip(files, loaded, strict=True)]},
        )
    else:
        console().print(_headline_of(loaded), "", rich_table(profiles_table(loaded, relative=relative)), sep="\n")
    shown.write(lambda: profile_page(loaded, relative=relative, files=list(map(str, files))), typed_command())


def profile_text(profile: Profile) -> RenderableType:
    """States side by side, what their accuracy rests on, and notes."""
    from wastenot.profiles.page.description import describe_sensors, difference, facts, shortfall, state_table, subject
    from wastenot.terminal.tables import Group, RichTable, Text, headline, rich_table

    known = RichTable.grid(padding=(0, 2))
    known.add_column(style="bold", no_wrap=True)
    known.add_column(overflow="fold")
    for name, text in (*facts(profile), *(("sensor", text) for text in describe_sensors(profile))):
        known.add_row(Text(name), Text(text))
    notes = [Text(f"note: {note}", style="yellow") for note in profile.notes]
    if not profile.complete:
        notes.insert(0, Text(f"INCOMPLETE: {shortfall(profile)}", style="bold yellow"))
    power_change = difference(profile)
    comparison: list[RenderableType] = []
    if power_change is not None and len({state.unit for state in profile.states}) == 1:
        comparison = ["", Text("SSE and SSP are the same execution")]
    elif power_change is not None:
        text = f"power differs by {percent(abs(power_change), 1)} between SSE and SSP, at nearly the same execution time"
        comparison = ["", Text(text)]
    head = headline(subject(profile), profile.device, profile.origin, "power profile")
    return Group(head, "", rich_table(state_table(profile)), *comparison, "", known, *notes)


def _headline_of(profiles: Sequence[Profile]) -> Text:
    """The line above several profiles: their devices, and where the numbers come from."""
    from wastenot.terminal.tables import headline

    devices = ", ".join(dict.fromkeys(profile.device for profile in profiles))
    origins = " and ".join(dict.fromkeys(profile.origin for profile in profiles))
    return headline(f"{counted(len(profiles), 'power profile')}", devices, origins, "mean power of an execution")
