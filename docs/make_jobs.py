"""Draws the figures of docs/jobs.md, and writes what ``wastenot job`` prints of the job that it shows.

PYTHONPATH=src:. python docs/make_jobs.py

The job is made up (wastenot.jobs.judge.made), its runs are simulated, and what to run was decided as the product
decides.
"""

from __future__ import annotations

import io
import os
import tempfile
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from unittest import mock

import vl_convert

from docs.make_pipelines import packed
from wastenot.jobs.cli import job_text
from wastenot.jobs.judge.made import made_job
from wastenot.jobs.judge.stored import stored_job
from wastenot.jobs.page.page import job_figures
from wastenot.jobs.plan.overview import JobOverview, overview_of
from wastenot.pages.figure import export_figures
from wastenot.terminal.output import console

IMAGES, PAGE = Path(__file__).parent / "images", Path(__file__).parent / "jobs.md"
RUNS = 4
TYPED = f"$ wastenot job bert-nightly --study jobs.db --runs {RUNS}\n"
SHOWN = ("job-frontier", "job-sizes", "job-regret")
FAMILY, SEED, RECURRENCES, SCALE = "large ones fail", 4, 14, 1.6


def example() -> JobOverview:
    """The job that is shown."""
    made = made_job(FAMILY, SEED)
    trace = replace(made, terms=replace(made.terms, name="bert-nightly"), device="sim:made-up")
    return overview_of(stored_job(trace, RECURRENCES, SEED))


def main() -> None:
    """Draw, and write the text into the page."""
    overview = example()
    with tempfile.TemporaryDirectory() as folder:
        for path in export_figures(job_figures(overview), overview.origin, folder):
            if path.suffix == ".svg" and path.stem in SHOWN:
                picture = packed(vl_convert.svg_to_png(path.read_text(), scale=SCALE))
                (IMAGES / f"{path.stem}.png").write_bytes(picture)
    before, rest = PAGE.read_text().split(TYPED)
    after = rest[rest.index("```") :]
    PAGE.write_text(f"{before}{TYPED}{printed(overview)}{after}")


def printed(overview: JobOverview) -> str:
    """What the command prints in 120 columns."""
    out = io.StringIO()
    with redirect_stdout(out), mock.patch.dict(os.environ, {"COLUMNS": "120"}):
        console().print(job_text(overview, runs=RUNS, answers=[]))
    return out.getvalue().replace("\N{NO-BREAK SPACE}", " ")


if __name__ == "__main__":
    main()
