"""The page of policies for a cluster, as HTML and as figure files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from wastenot.core.files import write_text
from wastenot.pages.figure import export_figures
from wastenot.pages.html_page import render
from wastenot.pages.table import Table
from wastenot.serving.cluster.outcome import Comparison
from wastenot.serving.cluster.scenario import Scenario
from wastenot.serving.page.cluster_figures import cluster_figures
from wastenot.serving.page.cluster_words import (
    about,
    about_cluster,
    classes_table,
    effect_text,
    notes_on,
    origin_of,
    panels,
    policies_table,
    verdict_text,
)


def write_cluster_page(
    scenario: Scenario,
    found: Sequence[Comparison],
    path: str | os.PathLike[str],
    *,
    command: str | None = None,
    made_at: datetime | None = None,
) -> None:
    """Write the page.

    Args:
        scenario: that was run.
        found: policies on each of its traffics; the headline is of the first.
        path: the HTML file to create or replace.
        command: that makes the page again, shown in its foot; ``None`` where it is not known.
        made_at: date shown on the page; now by default.

    Raises:
        BadInputError: the file cannot be written.
        MissingExtraError: the ``report`` extra is not installed.
    """
    write_text(path, render_cluster_page(scenario, found, command=command, made_at=made_at or datetime.now(UTC)))


def render_cluster_page(
    scenario: Scenario, found: Sequence[Comparison], *, command: str | None = None, made_at: datetime
) -> str:
    """The page as text; see :func:`write_cluster_page`."""
    name, rest = about_cluster(scenario)
    first = found[0]
    return render(
        "serving.html.j2",
        origin_of(scenario),
        cluster_figures(scenario, found),
        [table for place, each in enumerate(found) for table in _tables(scenario, each, place, several=len(found) > 1)],
        made_at,
        device=scenario.cluster.layouts[0].device,
        command=command,
        made_from=(("scenario", str(scenario.path)),),
        brand="serving",
        title=(name, rest.partition(" (simulated")[0]),
        tone="neutral",
        effect=effect_text(first),
        verdict=verdict_text(scenario, first),
        panels=panels(scenario, first),
        notes=[f"{each.traffic}: {note}" if len(found) > 1 else note for each in found for note in notes_on(scenario, each)],
        about=about(scenario, first),
    )


def _tables(scenario: Scenario, found: Comparison, place: int, *, several: bool) -> list[tuple[str, Table]]:
    tables = (("policies", policies_table(found, scenario.parts.objective.currency)), ("classes", classes_table(found)))
    if not several:
        return list(tables)
    return [
        (
            f"{name}-{place + 1}",
            Table(f"{table.title}: {found.traffic}", table.columns, table.rows, table.note, table.fold),
        )
        for name, table in tables
    ]


def write_cluster_figures(scenario: Scenario, found: Sequence[Comparison], folder: str | os.PathLike[str]) -> list[Path]:
    """Write the figures; see :func:`wastenot.pages.figure.export_figures`."""
    return export_figures(cluster_figures(scenario, found), origin_of(scenario), folder)
