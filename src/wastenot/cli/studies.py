"""Verbs on studies: import, show, export."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from wastenot.core.errors import BadInputError
from wastenot.core.wording import counted
from wastenot.terminal.option import argument, option
from wastenot.terminal.options import (
    EnergiesOption,
    JsonOption,
    MeasuredGranularityOption,
    OriginOption,
    StudyOption,
    WorkloadOption,
)

if TYPE_CHECKING:
    from wastenot.study.sweep import Sweep


def import_(
    file: Annotated[Path, argument("Sweep file: CSV, or Parquet (.parquet, .pq); - for standard input.", "SWEEP")],
    study: StudyOption,
    device_name: Annotated[str | None, option("The GPU that the numbers were measured on.", "N")] = None,
    workload: Annotated[str | None, option("Name of the workload; by default that of the file.", "W")] = None,
    energies: EnergiesOption = None,
    granularity: MeasuredGranularityOption = None,
    origin: OriginOption = "measured",
    append: Annotated[bool, option("Add the rows as repeats of a workload that exists.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Import a sweep file into a study.

    All of it or, if any row is invalid, nothing. A study file that does not exist is created. A table of the ML.ENERGY
    leaderboard, InferenceX's agg_*.json and AIPerf's profile_export_aiperf.json are imported as operating points of servers.
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
            f"{counted(repeats, 'row')} {'repeats' if repeats == 1 else 'repeat'} a kernel at the same clocks: "
            "they count as repeats"
        )
    if len(lacking):
        kernel = int(lacking[0])
        absent = sweep.setting(int(first[np.flatnonzero(~there[kernel])[0]]))
        said.append(
            f"{counted(len(lacking), 'kernel')} without a row at some of the {len(settings):,} settings of the others, such "
            f"as '{sweep.kernels[kernel].name}' at {absent}"
        )
    return "; ".join(said) or None


def export(
    file: Annotated[Path, argument("File to write: CSV, or Parquet (.parquet, .pq); - for standard output.", "SWEEP")],
    study: StudyOption,
    workload: WorkloadOption = None,
    energies: EnergiesOption = None,
    granularity: MeasuredGranularityOption = None,
    keep_formulas: Annotated[
        bool, option("Keep names that a spreadsheet would take for formulas as they are, without an apostrophe.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Export a workload of a study to a sweep file.

    Every number is written exactly as it is in the study.
    """
    from wastenot.study.sweep_file import STANDARD, export_sweep
    from wastenot.terminal.output import print_json, say

    if as_json and str(file) == STANDARD:
        raise BadInputError("--json, export -: both would write to standard output; name a file")
    sweep = export_sweep(study, file, workload, state=energies, granularity=granularity, keep_formulas=keep_formulas)
    if as_json:
        print_json(
            "export", {"file": str(file), "workload": sweep.workload, "rows": len(sweep), "kernels": len(sweep.kernels)}
        )
    elif str(file) != STANDARD:
        say(f"{file}: {counted(len(sweep), 'row')} of workload '{sweep.key}'")
