"""``wastenot serve profile``: what an LLM engine's steps cost at each clock, and its tokens at which latency."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from wastenot.core.errors import BadInputError
from wastenot.terminal import quantities
from wastenot.terminal.options import (
    ClockControlOptions,
    FiguresOption,
    JsonOption,
    PageOption,
    SeedOption,
    parse_clocks,
    parse_counts,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType

    from wastenot.serving.model.operating_points import OperatingPoint, PrefillPoint
    from wastenot.serving.model.profile_file import EngineProfile

_CLOCKS = 12  # rows of clocks in a terminal
_SHOWN = 14  # best choices in a terminal


def engine(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL|TABLE.csv...|ENGINE.json",
            help="A model such as llama-8b, whose kernels are measured; tables of measured steps; or a profile to show.",
        ),
    ],
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="Which model, if a table has several; or its name.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device", metavar="NAME", help="Where to measure kernels: sim:NAME, nvidia:INDEX. Of a table: which."
        ),
    ] = None,
    degrees: Annotated[
        str | None,
        typer.Option(
            "--degrees", metavar="N,...", help="GPUs that share a model's layers (tensor parallelism); 1 by default."
        ),
    ] = None,
    clocks: Annotated[
        Literal["grid", "auto"], typer.Option("--clocks", help="Measure kernels at many clocks, or at the card's own only.")
    ] = "grid",
    curves: Annotated[
        str | None,
        typer.Option(
            "--curves", metavar="sim:NAME", help="With --clocks auto: take other clocks from this GPU, a forecast."
        ),
    ] = None,
    study: Annotated[
        str | None, typer.Option("--study", metavar="FILE|URL", help="Keeps the kernels measured, to resume from.")
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option("--memory", metavar="GB", min=1.0, help="Memory of one card; by default what is known of it."),
    ] = None,
    *,
    clock_control: ClockControlOptions,
    seed: SeedOption = 0,
    as_measured: Annotated[
        bool, typer.Option("--as-measured", help="Take the steps as they are, without fitting; nothing beyond them.")
    ] = False,
    core: Annotated[
        str | None,
        typer.Option("--core", metavar="MHZ,...", help="Core clocks to fit besides, between those that were measured."),
    ] = None,
    most_context: Annotated[
        int | None, typer.Option("--most-context", metavar="N", min=1, help="Tokens of a sequence that a fit reaches to.")
    ] = None,
    cache_tokens: Annotated[
        int | None,
        typer.Option("--cache-tokens", metavar="N", min=16, help="Tokens that the cache holds; by default as measured."),
    ] = None,
    step_tokens: Annotated[
        int | None,
        typer.Option(
            "--step-tokens", metavar="N", min=1, help="New tokens of one step (max_num_batched_tokens); 2048 by default."
        ),
    ] = None,
    idle_power: Annotated[
        float | None,
        typer.Option("--idle-power", metavar="W", parser=quantities.watts, help="Power of a GPU with nothing to do."),
    ] = None,
    switch_time: Annotated[
        float | None,
        typer.Option(
            "--switch-time",
            metavar="TIME",
            parser=quantities.seconds,
            help="Time that clocks take to change; 50ms by default.",
        ),
    ] = None,
    context: Annotated[
        int | None,
        typer.Option("--context", metavar="N", min=0, help="Tokens in the cache of each sequence shown."),
    ] = None,
    batch: Annotated[
        str | None, typer.Option("--batch", metavar="N,...", help="Batch sizes to show; powers of two by default.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE.json", help="Write the profile to this file."),
    ] = None,
    page: PageOption = None,
    figures: FiguresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Profile an engine: joules a token by clock and batch.

    From the kernels of a model on a device, put together to steps that were never run; or from steps that were measured one
    by one, fitted so that clocks, batches and contexts between are known, with errors on steps held out. Shows energy per
    token against latency, and the clock of least energy.
    """
    from wastenot.serving.model.from_steps import profile_of_steps
    from wastenot.serving.model.operating_points import decodes, operating_points, prefill_points, usual_context
    from wastenot.serving.model.profile_file import read_engine, write_engine
    from wastenot.serving.model.step_tables import read_step_tables
    from wastenot.terminal.option_rules import check_output
    from wastenot.terminal.output import console, print_json, say, typed_command

    for file, option in ((out, "out"), (page, "page")):
        if file is not None:
            check_output(file, option)
    is_profile, is_table = len(what) == 1 and what[0].endswith(".json"), all(each.endswith(".csv") for each in what)
    of_tables = {
        "--as-measured": as_measured, "--core": core, "--most-context": most_context, "--cache-tokens": cache_tokens,
        "--step-tokens": step_tokens, "--idle-power": idle_power, "--switch-time": switch_time, "--model": model,
    }  # fmt: skip
    of_kernels = {
        "--degrees": degrees, "--curves": curves, "--study": study, "--memory": memory, "--seed": seed,
        "--clocks": clocks != "grid", "--allow-clock-control": clock_control.allow_clock_control,
        "--restore-clocks": clock_control.restore_clocks,
    }  # fmt: skip
    if is_profile:
        _refuse_without_effect(of_tables | of_kernels | {"--device": device}, "a profile that is shown")
        profile = read_engine(what[0])
    elif is_table:
        _refuse_without_effect(of_kernels, "tables of steps")
        profile = profile_of_steps(
            read_step_tables(what, model=model, device=device),
            "measured" if as_measured else "fitted",
            core_mhz=parse_clocks("--core", core) or (),
            most_context=most_context,
            cache_tokens=cache_tokens,
            idle_power_w=idle_power,
            most_step_tokens=2048 if step_tokens is None else step_tokens,
            switch_s=0.05 if switch_time is None else switch_time,
        )
    elif len(what) == 1:
        _refuse_without_effect(of_tables, "kernels that are measured")
        from wastenot.serving.cli.engine_kernels import profile_by_kernels

        profile = profile_by_kernels(
            what[0], device,
            degrees=degrees or "1", study=study, clocks=clocks, curves=curves, memory_gb=memory,
            clock_control=clock_control, seed=seed,
        )  # fmt: skip
    else:
        raise BadInputError(
            f"{' '.join(what)}: give a model, tables of steps (FILE.csv), or one profile to show (FILE.json)"
        )
    asked = usual_context(profile) if context is None else float(context)
    batches = None if batch is None else parse_counts("--batch", batch)
    points = operating_points(profile, context=asked, batches=batches) if decodes(profile) else ()
    prefills = prefill_points(profile)
    command, files = typed_command(what[0]), []
    if out is not None:
        write_engine(profile, out, command=command)
        files.append(str(out))
    if page is not None or figures is not None:
        from wastenot.serving.page.engine_page import engine_page

        made = engine_page(profile, context=asked)
        if page is not None:
            made.write(page, command=command)
            files.append(str(page))
        if figures is not None:
            files += map(str, made.export(figures))
    if as_json:
        print_json("engine", _document(profile, points, prefills, asked, files))
        return
    console().print(engine_text(profile, points, prefills, asked))
    if files:
        say(f"{', '.join(files)}: written")


def _refuse_without_effect(given: Mapping[str, object], on: str) -> None:
    """Refuse options that were given and are of another source."""
    for flag, value in given.items():
        if value is not None and value is not False and (flag != "--seed" or value):
            raise BadInputError(f"{flag}: has no effect on {on}; leave it out")


def engine_text(
    profile: EngineProfile, points: tuple[OperatingPoint, ...], prefills: tuple[PrefillPoint, ...], context: float
) -> RenderableType:
    """A profile, for a terminal."""
    from dataclasses import replace

    import numpy as np

    from wastenot.serving.page.engine_words import (
        clocks_table,
        effect_text,
        errors_table,
        frontier_table,
        name_of,
        origin_of,
        prefill_table,
        source_text,
        verdict_text,
    )
    from wastenot.terminal.tables import Group, Text, headline, rich_table

    model, device = name_of(profile)
    head = headline(model, device, f"{origin_of(profile)}, {source_text(profile)}", f"{context:,.0f} tokens of context")
    parts: list[RenderableType] = [head, Text(f"{effect_text(points)}: {verdict_text(profile, points)}")]
    best = frontier_table(points)
    if best is not None and len(best.rows) > _SHOWN:
        every = np.rint(np.linspace(0, len(best.rows) - 1, _SHOWN)).astype(int)
        note = f"{_SHOWN} of {len(best.rows)}; --json lists all. {best.note}"
        best = replace(best, rows=tuple(best.rows[index] for index in every), note=note)
    tables = [
        *(clocks_table(points, each.gpus, _CLOCKS) for each in profile.engines),
        best,
        prefill_table(prefills),
        errors_table(profile),
    ]
    for table in tables:
        if table is not None:
            parts += ["", Text(table.title, style="bold"), rich_table(table, ("Judged by",))]
    if profile.notes:
        parts += ["", *(Text(f"- {note}") for note in profile.notes)]
    return Group(*parts)


def _document(
    profile: EngineProfile,
    points: tuple[OperatingPoint, ...],
    prefills: tuple[PrefillPoint, ...],
    context: float,
    files: list[str],
) -> dict[str, Any]:
    from wastenot.terminal.output import as_values

    return {
        "schema": "wastenot.engine-points/1",
        "model": profile.model,
        "device": profile.device,
        "engines": [
            {
                "gpus": each.gpus,
                "source": each.tables.source,
                "evidence": each.tables.evidence,
                "cache_tokens": each.cache_blocks * each.block_tokens,
                "most_running": each.most_running,
                "most_step_tokens": each.most_step_tokens,
                "switch_s": each.switch_s,
            }
            for each in profile.engines
        ],
        "errors": as_values(profile.errors),
        "notes": list(profile.notes),
        "context": context,
        "points": as_values(points),
        "prefill": as_values(prefills),
        "files": files,
    }
