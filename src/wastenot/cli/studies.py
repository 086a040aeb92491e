"""Verbs on studies: import, show, export."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wastenot.core.wording import counted
from wastenot.terminal.options import (
    EnergiesOption,
    JsonOption,
    MeasuredGranularityOption,
    OriginOption,
    StudyOption,
    WorkloadOption,
)
from wastenot.workloads.identity import WorkloadKey

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.study.summary import StudySummary, SweepSummary, WorkloadSummary
    from wastenot.study.sweep import Sweep


def import_(
    file: Annotated[
        Path, typer.Argument(metavar="SWEEP", help="Sweep file: CSV, or Parquet (.parquet, .pq); - for standard input.")
    ],
    study: StudyOption,
    device_name: Annotated[
        str | None, typer.Option("--device-name", metavar="N", help="The GPU that the numbers were measured on.")
    ] = None,
    workload: Annotated[
        str | None, typer.Option("--workload", metavar="W", help="Name of the workload; by default that of the file.")
    ] = None,
    energies: EnergiesOption = None,
    granularity: MeasuredGranularityOption = None,
    origin: OriginOption = "measured",
    append: Annotated[bool, typer.Option("--append", help="Add the rows as repeats of a workload that exists.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Import a sweep file into a study.

    All of it or, if any row is invalid, nothing. A study file that does not exist is created. A table of the ML.ENERGY
    leaderboard, CSV or JSON, is imported as operating points of servers.
    """
    from wastenot.serving.cli.server_tables import import_servers, is_server_table

    if is_server_table(file):
        given = {
            "--device-name": device_name, "--workload": workload, "--energies": energies, "--granularity": granularity,
            "--origin": None if origin == "measured" else origin, "--append": append,
        }  # fmt: skip
        import_servers(file, study, given, as_json=as_json)
        return
    from wastenot.study.plausible import implausible_rows
    from wastenot.study.sweep_file import STANDARD, import_sweep
    from wastenot.terminal.output import print_json, say

    if str(file) == STANDARD and sys.stdin.isatty():
        say("reading a sweep from the terminal; end it with Ctrl-D")
    sweep = import_sweep(file, study, device=device_name, workload=workload, state=energies, granularity=granularity,
                         origin=origin, append=append)  # fmt: skip
    doubt, note = implausible_rows(sweep), _regularity_note(sweep)
    if doubt is not None:
        say(f"warning: {'stdin' if str(file) == STANDARD else file}: {doubt.text}")
    if as_json:
        print_json(
            "import",
            {
                "study": str(study),
                "workload": sweep.workload,
                "state": sweep.state,
                "granularity": sweep.granularity,
                "device": sweep.device,
                "origin": sweep.origin,
                "rows": len(sweep),
                "kernels": len(sweep.kernels),
                "warnings": [] if doubt is None else [doubt.text],
            },
        )
    else:
        say(
            f"{study}: workload '{sweep.key}': {counted(len(sweep), f'{sweep.origin} row')} of "
            f"{counted(len(sweep.kernels), 'kernel')} on {sweep.device}"
        )
        if note is not None:
            say(f"note: {note}")


def _regularity_note(sweep: Sweep) -> str | None:
    """What of a sweep may be a slip: rows that repeat others, and kernels without a setting that others have."""
    import numpy as np

    from wastenot.study.sweep import SETTING

    at = np.zeros(len(sweep), dtype=np.int64)
    for name in SETTING:  # to number the values of each column first is far faster than to sort the rows
        values, number = np.unique(np.nan_to_num(getattr(sweep, name), nan=-1.0), return_inverse=True)
        at = at * len(values) + number
    settings, at = np.unique(at, return_inverse=True)
    first = np.full(len(settings), len(sweep))
    np.minimum.at(first, at, np.arange(len(sweep)))
    there = np.zeros((len(sweep.kernels), len(settings)), dtype=np.bool_)
    there[sweep.kernel_index, at] = True
    repeats = len(sweep) - int(there.sum())
    lacking = np.flatnonzero(~there.all(axis=1))
    said = []
    if repeats:
        said.append(
            f"{counted(repeats, 'row')} {'repeats' if repeats == 1 else 'repeat'} a kernel at the same clocks: they count "
            "as repeats"
        )
    if len(lacking):
        kernel = int(lacking[0])
        absent = sweep.setting(int(first[np.flatnonzero(~there[kernel])[0]]))
        said.append(
            f"{counted(len(lacking), 'kernel')} without a row at some of the {len(settings):,} settings of the others, such "
            f"as '{sweep.kernels[kernel].name}' at {absent}"
        )
    return "; ".join(said) or None


def show(study: StudyOption, as_json: JsonOption = False) -> None:
    """Show what a study contains."""
    from wastenot.study.store import open_study
    from wastenot.terminal.output import as_values, console, print_json

    summary = open_study(study).summary()
    if as_json:
        document = as_values(summary)
        others = document.pop("others")
        print_json("show", document | others)
    else:
        console().print(_summary_text(study, summary))


def _summary_text(study: str, summary: StudySummary) -> RenderableType:
    from rich.markup import escape

    from wastenot.serving.cli.cluster_runs import cluster_runs_text
    from wastenot.serving.cli.serving_points import servers_text
    from wastenot.study.plausible import implausible_power
    from wastenot.terminal.tables import Group, plain_table

    table = plain_table(
        ("workload", "energies", "by", "origin", "passes"),
        ("kernels", "settings", "rows", "auto time (s)", "auto energy (J)"),
        less_important=("passes", "rows", "kernels"),
    )
    for workload in summary.workloads:
        table.add_row(
            escape(workload.name),
            workload.state,
            workload.granularity,
            workload.origin,
            escape(", ".join(workload.passes)) or "-",
            f"{workload.kernels:,}",
            f"{workload.settings:,}",
            f"{workload.rows:,}",
            f"{workload.auto_time_s:.6g}",
            f"{workload.auto_energy_j:.6g}",
        )
    imports = [
        f"  {when.imported_at:%Y-%m-%d %H:%M} UTC  {counted(when.rows, 'row')} from {escape(when.source)} "
        f"into '{escape(workload.name)}'"
        for workload in summary.workloads
        for when in workload.imports
    ]
    device = f"device {escape(summary.device)}" if summary.device else "no measurements"
    head = (
        f"[bold]{escape(study)}[/]: {device}; schema {summary.schema_version}, created by "
        f"{escape(summary.created_by)} on {summary.created_at:%Y-%m-%d %H:%M} UTC"
    )
    sweeps = [f"  {escape(_sweep_line(workload, sweep))}" for workload in summary.workloads for sweep in workload.sweeps]
    held = [
        f"  '{escape(workload.name)}' is being measured by {escape(str(workload.holder))}"
        for workload in summary.workloads
        if workload.holder is not None
    ]
    others = summary.others
    names = ", ".join(others["jobs"])
    jobs = [f"jobs (wastenot jobs --study {escape(study)}): {escape(names)}"] if names else []
    servers = [*servers_text(others["servers"], others["serving_runs"]), *cluster_runs_text(others["cluster_runs"])]
    if not summary.workloads:
        return Group(head, *jobs, *servers)
    parts: list[RenderableType] = [head, *jobs, *servers, "", table, "", "imports", *imports]
    doubts = [
        f"  '{escape(workload.name)}': {doubt}"
        for workload in summary.workloads
        if (doubt := implausible_power(workload.auto_time_s, workload.auto_energy_j)) is not None
    ]
    parts += ["", "[yellow]doubtful[/]", *doubts] if doubts else []
    return Group(*parts, *(["", "sweeps", *sweeps] if sweeps else []), *(["", "under way", *held] if held else []))


def _sweep_line(workload: WorkloadSummary, sweep: SweepSummary) -> str:
    """What one sweep set out to do, how far it came, and how to resume it."""
    key = WorkloadKey(workload.name, workload.state, workload.granularity)
    what = {
        "grid": f"grid of {sweep.settings + 1:,} settings with auto",
        "search": f"search among {counted(sweep.settings, 'setting')}",
        "auto": "default clocks only",
        "refine": "a plan's finalists again",
        "natural": "natural clocks, none set",
    }[sweep.kind]
    if sweep.share is not None:
        what += f" (share {sweep.share:g}, max slowdown {sweep.max_slowdown:g})"
    how_far = f"{sweep.measured:,} of {sweep.points:,} {'kernels' if sweep.kind == 'natural' else 'points'}"
    if sweep.finished_at is not None:
        end = f"finished {sweep.finished_at:%Y-%m-%d %H:%M} UTC"
    else:
        end = f"not finished, begun {sweep.started_at:%Y-%m-%d %H:%M} UTC"
        end += f"; resume it: {sweep.command}" if sweep.command and workload.holder is None else ""
    return f"'{key}': {what}: {how_far}; {end}"


def export(
    file: Annotated[
        Path, typer.Argument(metavar="SWEEP", help="File to write: CSV, or Parquet (.parquet, .pq); - for standard output.")
    ],
    study: StudyOption,
    workload: WorkloadOption = None,
    energies: EnergiesOption = None,
    granularity: MeasuredGranularityOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export a workload of a study to a sweep file.

    Every number is written exactly as it is in the study.
    """
    from wastenot.core.errors import BadInputError
    from wastenot.study.sweep_file import STANDARD, export_sweep
    from wastenot.terminal.output import print_json, say

    if as_json and str(file) == STANDARD:
        raise BadInputError("--json, export -: both would write to standard output; name a file")
    sweep = export_sweep(study, file, workload, state=energies, granularity=granularity)
    if as_json:
        print_json(
            "export", {"file": str(file), "workload": sweep.workload, "rows": len(sweep), "kernels": len(sweep.kernels)}
        )
    elif str(file) != STANDARD:
        say(f"{file}: {counted(len(sweep), 'row')} of workload '{sweep.key}'")
