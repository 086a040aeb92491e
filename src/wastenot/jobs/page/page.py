"""The page of a recurring job, as HTML and as figure files."""

from __future__ import annotations

import shlex
from dataclasses import replace

from wastenot.core.wording import sentence
from wastenot.jobs.page.drawing import about
from wastenot.jobs.page.frontier_figure import frontier_figure
from wastenot.jobs.page.listings import frontier_table, runs_table, sizes_table
from wastenot.jobs.page.regret_figure import regret_figure
from wastenot.jobs.page.sizes_figure import sizes_figure
from wastenot.jobs.page.story import objective_text, story_of
from wastenot.jobs.plan.overview import JobOverview
from wastenot.pages.figure import Figure
from wastenot.pages.page import Folded, Page
from wastenot.pages.panel import Next
from wastenot.pages.table import Table


def job_figures(overview: JobOverview) -> tuple[Figure, ...]:
    """The figures, in the order they are shown; of those with nothing to draw only the first, which says why.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    figures = (frontier_figure(overview), sizes_figure(overview), regret_figure(overview))
    drawn = tuple(figure for figure in figures if figure.specification is not None)
    return drawn or figures[:1]


def job_page(overview: JobOverview) -> Page:
    """The page of a job; errors are those of :func:`job_figures`."""
    effect, verdict, panels = story_of(overview)
    name, page = (shlex.quote(f"{overview.terms.name}{suffix}") for suffix in ("", ".html"))
    tables = (
        ("sizes", _noted(sizes_table(overview), _EPOCHS_NOTE)),
        ("frontier", _noted(frontier_table(overview), _COST_NOTE)),
    )
    known = [(name, table) for name, table in tables if table is not None and table.rows]
    runs = runs_table(overview)
    return Page(
        verb="job",
        brand="training job",
        title=(overview.terms.name, f"on {overview.device}"),
        origin=overview.origin,
        effect=effect,
        verdict=verdict,
        panels=panels,
        next_step=Next(
            "Run the job again, with your program in place of train.py: it takes this choice by itself. Then look again",
            ("python train.py", f"wastenot job show {name} --study JOBS.db --page {page}"),
        ),
        figures=job_figures(overview),
        tables=[("runs", runs)] if runs.rows else [],
        folded=Folded("The figures as tables", "batch sizes, and time and energy to the target", tables=known)
        if known
        else None,
        notes=[sentence(note) for note in overview.notes],
        about=about(overview),
        device=overview.device,
        made_from=(("Objective", objective_text(overview)),),
    )


_EPOCHS_NOTE = "Epochs: mean of the runs that reached the target."
_COST_NOTE = "Costs are at the mean epochs so far; the expected cost of the next run also weighs what is not known yet."


def _noted(table: Table | None, more: str) -> Table | None:
    """A table with a sentence more in its note."""
    return None if table is None else replace(table, note=" ".join(filter(None, (table.note, more))))
