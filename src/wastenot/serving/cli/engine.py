"""``wastenot serve profile``: what an LLM engine's steps cost at each clock, and its tokens at which latency."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from wastenot.core.errors import BadInputError
from wastenot.serving.cli.heard_steps import RecordOptions, heard_steps
from wastenot.terminal import quantities
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import (
    AssumedClocksOption,
    ClockControlOptions,
    FiguresOption,
    JsonOption,
    PageOption,
    SeedOption,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.serving.bench.forward_passes import Passes
    from wastenot.serving.model.corrected import Corrected
    from wastenot.serving.model.operating_points import OperatingPoint, PrefillPoint
    from wastenot.serving.model.profile_file import EngineProfile

_CLOCKS = 12  # rows of clocks in a terminal
_SHOWN = 14  # best choices in a terminal


@dataclass(frozen=True, slots=True)
class KernelOptions:
    """How the kernels of a model are measured, and what is made of them."""

    degrees: Annotated[
        quantities.Counts | None,
        option("GPUs that share a model's layers (tensor parallelism); default: 1.", "N,...", parser=quantities.counts),
    ] = None
    clocks: Annotated[Literal["grid", "auto"], option("Measure kernels at many clocks, or only at the default clocks.")] = (
        "grid"
    )
    curves: Annotated[
        str | None, option("With --clocks auto: forecast other clocks from this GPU's curves.", "sim:NAME")
    ] = None
    study: Annotated[str | None, option("Keep measured kernels in this study, and resume from it.", "FILE|URL")] = None
    memory: Annotated[float | None, option("Memory of one card; default: the value known for it.", "GB", min=1.0)] = None
    seed: SeedOption = 0

    def profile(self, model: str, device: str | None, clock_control: ClockControlOptions) -> EngineProfile:
        """Measure the kernels of a model's steps, with progress, and put the profile together.

        Raises:
            BadInputError: there is no such model or device, or the model does not fit into its memory.
            ClocksRefusedError: the clocks may not be set.
            DeviceError: the device does not measure.
        """
        import shlex
        import sys

        from wastenot.serving.model.engine_kernels import CORE_STEP_MHZ, profile_from_kernels
        from wastenot.terminal.output import typed_command
        from wastenot.terminal.progress import kept_if_interrupted, resume_with, shown_progress
        from wastenot.workloads.named import find_model

        study = self.study
        find_model(model)
        if device is None:
            raise BadInputError(
                f"{model}: name the device to measure its kernels on, such as --device sim:h200 or nvidia:0; or give "
                "a table of steps (FILE.csv) or a profile to show (FILE.json)"
            )
        target = clock_control.open_device(device, seed=self.seed, workload=None)
        command = typed_command(study) if study is not None else shlex.join(["wastenot", *sys.argv[1:]])
        kept = resume_with(command, study) if study is not None else "nothing was kept; --study FILE keeps what is measured"
        with kept_if_interrupted(kept), shown_progress(f"kernels of {model}") as progress:
            return profile_from_kernels(
                model,
                target,
                study,
                degrees=self.degrees or (1,),
                core_step_mhz=CORE_STEP_MHZ if self.clocks == "grid" else None,
                curves=self.curves,
                memory_bytes=None if self.memory is None else 1e9 * self.memory,
                progress=progress,
                command=command,
            )


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What is made of tables of measured steps."""

    as_measured: Annotated[bool, option("Use the steps as measured, without a fit; nothing beyond them is known.")] = False
    core: Annotated[
        quantities.Floats | None,
        option(
            "Additional core clocks to fit, between the measured ones. With --from ADDRESS: the clock in effect.",
            "MHZ,...",
            parser=quantities.clocks,
        ),
    ] = None
    most_context: Annotated[int | None, option("Longest sequence that the fit covers, in tokens.", "N", min=1)] = None
    cache_tokens: Annotated[int | None, option("Tokens that the cache holds; default: as measured.", "N", min=16)] = None
    step_tokens: Annotated[
        int | None, option("New tokens per step (max_num_batched_tokens); default: 2048.", "N", min=1)
    ] = None
    idle_power: Annotated[float | None, option("Power of an idle GPU.", "W", parser=quantities.watts)] = None
    switch_time: Annotated[
        float | None, option("Clock-switch latency; default: 50ms.", "TIME", parser=quantities.seconds)
    ] = None

    def profile(self, files: list[str], model: str | None, device: str | None) -> EngineProfile:
        """Read the tables, and fit their steps or take them as they are."""
        from wastenot.serving.model.from_steps import profile_of_steps
        from wastenot.serving.model.steps_csv import read_step_tables

        return profile_of_steps(
            read_step_tables(files, model=model, device=device),
            "measured" if self.as_measured else "fitted",
            core_mhz=self.core or (),
            most_context=self.most_context,
            cache_tokens=self.cache_tokens,
            idle_power_w=self.idle_power,
            most_step_tokens=2048 if self.step_tokens is None else self.step_tokens,
            switch_s=0.05 if self.switch_time is None else self.switch_time,
        )


def engine(
    what: Annotated[
        list[str],
        argument(
            "A model such as llama-8b, whose kernels are measured; tables of measured steps; or a profile to show.",
            "MODEL|TABLE.csv...|ENGINE.json",
        ),
    ],
    model: Annotated[str | None, option("Which model, if a table has several; or a name for the model.", "NAME")] = None,
    device: Annotated[
        str | None,
        option(
            "Where to measure kernels: sim:NAME, nvidia:INDEX. For a table: which device. With --from ADDRESS: the "
            "server's GPU, whose clock is read.",
            "NAME",
        ),
    ] = None,
    *,
    kernel_options: KernelOptions,
    clock_control: ClockControlOptions,
    table_options: TableOptions,
    context: Annotated[int | None, option("Cached tokens of each sequence shown.", "N", min=0)] = None,
    batch: Annotated[
        quantities.Counts | None, option("Batch sizes to show; default: powers of two.", "N,...", parser=quantities.counts)
    ] = None,
    assumed_clocks: AssumedClocksOption = False,
    record_options: RecordOptions,
    out: Annotated[Path | None, option("Write the profile to this file.", "FILE.json")] = None,
    page: PageOption = None,
    figures: FiguresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Profile an engine: joules per token by clock and batch.

    Estimated from kernel measurements of a model on a device; or from steps measured one by one, fitted so
    that clocks, batches and contexts in between are known, with errors on held-out steps. --from corrects it by
    the steps of a running server, from a file or as the server publishes them. Shows energy per token against
    latency, and the lowest-energy clock.
    """
    from wastenot.serving.model.operating_points import operating_points, prefill_points, usual_context
    from wastenot.terminal.option_rules import check_output
    from wastenot.terminal.output import console, print_json, say, typed_command

    for file, name in ((out, "out"), (page, "page")):
        if file is not None:
            check_output(file, name)
    found, passes = None, None
    if record_options.live:
        found, passes = heard_steps(what, device, kernel_options.degrees, table_options.core, record_options)
        profile = found.profile
    else:
        profile = _made(what, model, device, kernel_options, clock_control, table_options)
    if record_options.records is not None and not record_options.live:
        from wastenot.serving.model.corrected import corrected
        from wastenot.serving.model.step_records import read_step_records

        found = corrected(profile, read_step_records(record_options.records))
        profile = found.profile
    asked = usual_context(profile) if context is None else float(context)
    points = operating_points(profile, context=asked, batches=batch, assumed_clocks=assumed_clocks)
    prefills = prefill_points(profile, assumed_clocks=assumed_clocks)
    command, files = typed_command(what[0]), []
    if out is not None:
        profile.write(out, command=command)
        say(f"{out}: written")
        files.append(str(out))
    if page is not None or figures is not None:
        from wastenot.serving.page.engine_page import engine_page
        from wastenot.terminal.written_page import write_page

        made = engine_page(profile, context=asked, assumed_clocks=assumed_clocks)
        files += [str(page)] if page is not None else []
        files += map(str, write_page(made, page, figures, command=command))
    if as_json:
        print_json("engine", _document(profile, points, prefills, asked, files, assumed_clocks, found, passes))
        return
    console().print(engine_text(profile, points, prefills, asked, assumed_clocks=assumed_clocks))


def _made(
    what: list[str],
    model: str | None,
    device: str | None,
    kernels: KernelOptions,
    clock_control: ClockControlOptions,
    tables: TableOptions,
) -> EngineProfile:
    """The profile that is asked for: of a file, of tables, or of a model's kernels."""
    from wastenot.serving.model.profile_file import read_engine

    if len(what) == 1 and what[0].endswith(".json"):
        return read_engine(what[0])
    if all(each.endswith(".csv") for each in what):
        return tables.profile(what, model, device)
    if len(what) == 1:
        return kernels.profile(what[0], device, clock_control)
    raise BadInputError(f"{' '.join(what)}: give a model, tables of steps (FILE.csv), or one profile to show (FILE.json)")


def engine_text(
    profile: EngineProfile,
    points: tuple[OperatingPoint, ...],
    prefills: tuple[PrefillPoint, ...],
    context: float,
    *,
    assumed_clocks: bool = False,
) -> RenderableType:
    """A profile, for a terminal."""
    from dataclasses import replace

    import numpy as np

    from wastenot.serving.page import engine_words
    from wastenot.terminal.tables import Group, Text, headline, rich_table

    model, device = engine_words.name_of(profile)
    head = headline(
        model,
        device,
        f"{engine_words.origin_of(profile)}, {engine_words.source_text(profile)}",
        f"{context:,.0f} tokens of context",
    )
    parts: list[RenderableType] = [
        head,
        Text(f"{engine_words.effect_text(points)}: {engine_words.verdict_text(profile, points)}"),
    ]
    best = engine_words.frontier_table(points)
    if best is not None and len(best.rows) > _SHOWN:
        every = np.rint(np.linspace(0, len(best.rows) - 1, _SHOWN)).astype(int)
        note = f"{_SHOWN} of {len(best.rows)}; --json lists all. {best.note}"
        best = replace(best, rows=tuple(best.rows[index] for index in every), note=note)
    tables = [
        *(engine_words.clocks_table(points, each.gpus, _CLOCKS) for each in profile.engines),
        best,
        engine_words.prefill_table(prefills),
        engine_words.errors_table(profile),
    ]
    for table in tables:
        if table is not None:
            parts += ["", Text(table.title, style="bold"), rich_table(table, ("Compared with",))]
    notes = engine_words.profile_notes(profile, assumed_clocks=assumed_clocks)
    if notes:
        parts += ["", *(Text(f"- {note}") for note in notes)]
    return Group(*parts)


def _document(
    profile: EngineProfile,
    points: tuple[OperatingPoint, ...],
    prefills: tuple[PrefillPoint, ...],
    context: float,
    files: list[str],
    assumed_clocks: bool,
    corrected: Corrected | None,
    passes: Passes | None,
) -> dict[str, Any]:
    from wastenot.core.values import as_values

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
                **{name: getattr(each, name) for name in ("most_running", "most_step_tokens", "switch_s")},
            }
            for each in profile.engines
        ],
        "errors": as_values(profile.errors),
        "notes": list(profile.notes),
        "context": context,
        "assumed_below_mhz": profile.assumed_below_mhz,
        "assumed_clocks": assumed_clocks,
        "points": as_values(points),
        "prefill": as_values(prefills),
        "corrected": None
        if corrected is None
        else {
            name: as_values(getattr(corrected, name))
            for name in ("steps", "overhead_s", "launch_s", "graph_launch_s", "prefill_scale", "decode_scale", "off")
        },
        "heard": None
        if passes is None
        else {
            **{name: getattr(passes, name) for name in ("steps", "heartbeats", "lost", "restarts")},
            "refused": dict(passes.refused),
            "ranks": [{"worker": worker, "dp_rank": rank} for worker, rank in passes.ranks],
        },
        "files": files,
    }
