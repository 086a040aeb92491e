"""The page of a job that comes back, as HTML and as figure files."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from wastenot.core.files import write_text
from wastenot.jobs.page.drawing import about
from wastenot.jobs.page.frontier_figure import frontier_figure
from wastenot.jobs.page.history_figures import history_figure, regret_figure
from wastenot.jobs.page.listings import frontier_table, runs_table, sizes_table
from wastenot.jobs.page.sizes_figure import sizes_figure
from wastenot.jobs.page.story import story_of
from wastenot.jobs.plan.overview import JobOverview
from wastenot.pages.figure import Figure, export_figures
from wastenot.pages.html_page import render
from wastenot.pages.table import Table


def job_figures(overview: JobOverview) -> tuple[Figure, ...]:
    """The figures, in the order they are shown; of those with nothing to draw only the first, which says why.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    figures = (frontier_figure(overview), sizes_figure(overview), history_figure(overview), regret_figure(overview))
    drawn = tuple(figure for figure in figures if figure.specification is not None)
    return drawn or figures[:1]


def write_job_page(
    overview: JobOverview,
    path: str | os.PathLike[str],
    *,
    command: str | None = None,
    made_at: datetime | None = None,
) -> None:
    """Write the page.

    Args:
        overview: what to show, of :func:`wastenot.jobs.plan.overview.overview_of`.
        path: the HTML file to create or replace.
        command: that makes the page again, shown in its foot; ``None`` where it is not known.
        made_at: date shown on the page; now by default.

    Raises:
        BadInputError: the file cannot be written.
        MissingExtraError: the ``report`` extra is not installed.
    """
    write_text(path, render_job_page(overview, command=command, made_at=made_at or datetime.now(UTC)))


def render_job_page(overview: JobOverview, *, command: str | None = None, made_at: datetime) -> str:
    """The page as text; see :func:`write_job_page`."""
    effect, verdict, panels = story_of(overview)
    tables: list[tuple[str, Table | None]] = [
        ("sizes", sizes_table(overview)),
        ("frontier", frontier_table(overview)),
        ("runs", runs_table(overview)),
    ]
    return render(
        "job.html.j2",
        overview.origin,
        job_figures(overview),
        [(name, table) for name, table in tables if table is not None and table.rows],
        made_at,
        device=overview.device,
        command=command,
        title=(overview.terms.name, f"on {overview.device}"),
        tone="neutral",
        effect=effect,
        verdict=verdict,
        panels=panels,
        notes=[f"{note[:1].upper()}{note[1:]}." for note in overview.notes],
        about=about(overview),
    )


def write_job_figures(overview: JobOverview, folder: str | os.PathLike[str]) -> list[Path]:
    """Write the figures; see :func:`wastenot.pages.figure.export_figures`."""
    return export_figures(job_figures(overview), overview.origin, folder)
