"""A recurring training job: what ``wastenot job show`` prints of it, and its figures.

The job is made up (wastenot.jobs.judge.made), its runs are simulated, and what to run was decided as the product
decides.
"""

from __future__ import annotations

import io
import os
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cache, partial
from unittest import mock

from docs.make.page import Page, figure
from testbed.stored_jobs import stored_job
from wastenot.jobs.cli import job_text
from wastenot.jobs.judge.made import made_job
from wastenot.jobs.page.page import job_page
from wastenot.jobs.plan.overview import JobOverview, overview_of
from wastenot.terminal.output import console

CUT = "Time and energy to the target"  # the picture shows it
FAMILY, SEED, RECURRENCES, SCALE = "large ones fail", 4, 14, 1.6


@cache
def example() -> JobOverview:
    """The job that is shown."""
    made = made_job(FAMILY, SEED)
    trace = replace(made, terms=replace(made.terms, name="bert-nightly"), device="sim:made-up")
    return overview_of(stored_job(trace, RECURRENCES, SEED))


def drawn(name: str) -> bytes:
    """A figure of the job's page."""
    return figure(job_page(example()).export, name, SCALE)


def printed() -> str:
    """The beginning of what the command prints in 120 columns."""
    out = io.StringIO()
    with redirect_stdout(out), mock.patch.dict(os.environ, {"COLUMNS": "120"}):
        console().print(job_text(example(), runs=1, answers=[]))
    shown, _, _ = out.getvalue().replace("\N{NO-BREAK SPACE}", " ").partition(CUT)
    return f"```console\n$ wastenot job show bert-nightly --study jobs.db\n{shown}[…]\n```\n"


PAGES = (
    Page(
        "jobs",
        {"printed": printed},
        {"job-frontier.png": partial(drawn, "job-frontier")},
    ),
)
