"""The page of a pipeline's plan, as HTML and as figure files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime

from wastenot.core.files import write_text
from wastenot.pages.figure import Figure
from wastenot.pages.html_page import render
from wastenot.pages.table import Table
from wastenot.pipelines.page.clocks_figure import clocks_figure
from wastenot.pipelines.page.drawing import about
from wastenot.pipelines.page.energy_figure import energy_figure
from wastenot.pipelines.page.frontier_figure import frontier_figure
from wastenot.pipelines.page.listings import frontier_table, ranks_table, stages_table, stragglers_table
from wastenot.pipelines.page.power_figure import power_figure
from wastenot.pipelines.page.savings_figure import savings_figure
from wastenot.pipelines.page.schedule_figure import schedule_figure
from wastenot.pipelines.page.story import story_of
from wastenot.pipelines.plan.overview import PipelineOverview


def pipeline_figures(overview: PipelineOverview) -> tuple[Figure, ...]:
    """The figures, in the order they are shown.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    savings = savings_figure(overview)
    return (
        schedule_figure(overview),
        power_figure(overview),
        energy_figure(overview),
        frontier_figure(overview),
        clocks_figure(overview),
        *([] if savings is None else [savings]),
    )


def write_pipeline_page(
    overview: PipelineOverview,
    path: str | os.PathLike[str],
    *,
    command: str | None = None,
    made_from: Sequence[tuple[str, str]] = (),
    made_at: datetime | None = None,
    figures: Sequence[Figure] | None = None,
) -> None:
    """Write the page.

    Args:
        overview: what to show, of :func:`wastenot.pipelines.plan.overview.pipeline_overview`.
        path: the HTML file to create or replace.
        command: that makes the page again, shown in its foot; ``None`` where it is not known.
        made_from: what the numbers come from, as (name, text) pairs; shown beside it.
        made_at: date shown on the page; now by default.
        figures: of :func:`pipeline_figures`, where they are composed already.

    Raises:
        BadInputError: the file cannot be written.
        MissingExtraError: the ``report`` extra is not installed.
    """
    made_at = made_at or datetime.now(UTC)
    write_text(path, render_pipeline_page(overview, command=command, made_from=made_from, made_at=made_at, figures=figures))


def render_pipeline_page(
    overview: PipelineOverview,
    *,
    command: str | None = None,
    made_from: Sequence[tuple[str, str]] = (),
    made_at: datetime,
    figures: Sequence[Figure] | None = None,
) -> str:
    """The page as text; see :func:`write_pipeline_page`."""
    plan = overview.plan
    tone, effect, verdict, panels = story_of(overview)
    tables: list[tuple[str, Table | None]] = [
        ("stages", stages_table(overview)),
        ("ranks", ranks_table(overview)),
        ("stragglers", stragglers_table(overview)),
        ("frontier", frontier_table(overview)),
    ]
    return render(
        "pipeline.html.j2",
        plan.origin,
        pipeline_figures(overview) if figures is None else figures,
        [(name, table) for name, table in tables if table is not None],
        made_at,
        device=plan.device,
        command=command,
        made_from=(*made_from, ("Plan", plan.digest)),
        title=(plan.name, f"in {plan.stages} stages on {plan.device}"),
        tone=tone,
        effect=effect,
        verdict=verdict,
        panels=panels,
        notes=_notes(overview),
        about=about(overview),
    )


def _notes(overview: PipelineOverview) -> list[str]:
    notes = [f"Assumed: {note}{'' if note.endswith('.') else '.'}" for note in overview.plan.notes]
    if overview.plan.baseline_clocks == "highest":
        notes.insert(0, "The profile has no numbers at the default clocks: the highest stand for them.")
    return notes
