"""``wastenot reproduce``: every table and figure of the kernel-level DVFS paper, on simulated GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wastenot.cli.options import SeedOption


def reproduce(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write to.")] = Path("wastenot-reproduction"),
    seed: SeedOption = 0,
) -> None:
    """Make every table and figure of the kernel-level DVFS paper on simulated GPUs, beside the published numbers."""
    from contextlib import ExitStack

    from wastenot.cli.output import say
    from wastenot.cli.progress import shown_progress
    from wastenot.cli.run_verb import made_folder
    from wastenot.progress import Progress
    from wastenot.reproduction import reproduce as make_all

    folder = made_folder(out)
    with ExitStack() as parts:

        def watch(part: str) -> Progress:
            parts.close()  # the part before is done
            return parts.enter_context(shown_progress(part))

        summary = make_all(folder, watch, seed)
    print(summary.split("\n## Table 2")[0])
    say(f"{folder}: reproduction.md, figures, and a study, plan and report for each card")
