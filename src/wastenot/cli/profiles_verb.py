"""``wastenot profiles``: several power profiles side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wastenot.cli.options import JsonOption
from wastenot.cli.profile_verb import FiguresOption, ReportOption, check_places


def profiles(
    files: Annotated[list[Path], typer.Argument(metavar="PROFILE.parquet...", help="Written by wastenot profile --out.")],
    report: ReportOption = None,
    figures: FiguresOption = None,
    relative: Annotated[
        bool, typer.Option("--relative", help="Power as a share of the largest, as FinGraV draws it, instead of watts.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Set power profiles side by side: components of several kernels, and a kernel alone and after others."""
    from wastenot.cli.output import console, print_json, say
    from wastenot.cli.plan_text import rich_table
    from wastenot.cli.profile_text import about_profiles
    from wastenot.profiling.profile_file import profile_document, read_profile
    from wastenot.reporting.profile.description import profiles_table

    check_places(None, report, figures)
    found = [read_profile(file) for file in files]
    if as_json:
        print_json(
            {"profiles": [{"file": str(file)} | profile_document(one) for file, one in zip(files, found, strict=True)]}
        )
    else:
        console().print(about_profiles(found), "", rich_table(profiles_table(found, relative=relative)), sep="\n")
    if report is not None or figures is not None:
        from wastenot.reporting.profile.page import write_profile_figures, write_profile_page

        if report is not None:
            write_profile_page(found, report, relative=relative)
            say(f"{report}: report written")
        if figures is not None:
            say(f"{figures}: {len(write_profile_figures(found, figures, relative=relative))} figure files written")
