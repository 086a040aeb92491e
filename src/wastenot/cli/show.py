"""``wastenot show``: what a study or a file of results holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wastenot.core.wording import counted
from wastenot.terminal.option import argument
from wastenot.terminal.options import JsonOption
from wastenot.workloads.identity import WorkloadKey

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.study.summary import StudySummary, SweepSummary, WorkloadSummary


def show(
    source: Annotated[str, argument("A study, or a file of results: a plan, a run, a profile, ...", "FILE|STUDY")],
    in_full: Annotated[
        bool, typer.Option("--verbose", "-v", help="For a plan, also show how to apply it, every kernel, and all numbers.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a study or a file of results holds."""
    from wastenot.cli.result_files import KINDS, is_study, kind_of
    from wastenot.core.values import as_values
    from wastenot.study.store import open_study
    from wastenot.terminal.output import console, print_json

    if not is_study(source):
        path = Path(source)
        kind = kind_of(path)
        if not as_json:
            console().print(KINDS[kind].text(path, in_full))
        elif kind == "profile":
            from wastenot.profiles.profile_file import profile_document, read_profile

            print_json("profile", profile_document(read_profile(path)))
        else:
            print(path.read_text(encoding="utf-8-sig"), end="")
        return
    summary = open_study(source).summary()
    if as_json:
        document = as_values(summary)
        others = document.pop("others")
        print_json("show", document | others)
    else:
        console().print(_summary_text(source, summary))


def _summary_text(study: str, summary: StudySummary) -> RenderableType:
    from rich.markup import escape

    from wastenot.serving.cli.serving_points import cluster_runs_text, servers_text
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
    device = f"device {escape(summary.device)}" if summary.device else "no measurements of kernels"
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
    jobs = [f"jobs (wastenot job list --study {escape(study)}): {escape(names)}"] if names else []
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
        "refine": "a plan's finalists, measured again",
        "natural": "natural clocks, none set",
    }[sweep.kind]
    if sweep.share is not None:
        what += f" (share {sweep.share:g}, max slowdown {sweep.max_slowdown:g})"
    how_far = f"{sweep.measured:,} of {sweep.points:,} {'kernels' if sweep.kind == 'natural' else 'points'}"
    if sweep.finished_at is not None:
        end = f"finished {sweep.finished_at:%Y-%m-%d %H:%M} UTC"
    else:
        end = f"not finished, started {sweep.started_at:%Y-%m-%d %H:%M} UTC"
        end += f"; resume it: {sweep.command}" if sweep.command and workload.holder is None else ""
    return f"'{key}': {what}: {how_far}; {end}"
