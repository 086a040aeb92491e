"""The page of policies for a cluster, as HTML and as figure files."""

from __future__ import annotations

from collections.abc import Sequence

from wastenot.pages.page import Page
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


def cluster_page(scenario: Scenario, found: Sequence[Comparison]) -> Page:
    """The page of policies for a cluster.

    Args:
        scenario: that was run.
        found: policies on each of its traffics; the headline is of the first.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    name, rest = about_cluster(scenario)
    first = found[0]
    return Page(
        verb="serving",
        brand="serving",
        title=(name, rest),
        origin=origin_of(scenario),
        effect=effect_text(first),
        verdict=verdict_text(scenario, first),
        panels=panels(scenario, first),
        figures=cluster_figures(scenario, found),
        tables=[
            table for place, each in enumerate(found) for table in _tables(scenario, each, place, several=len(found) > 1)
        ],
        notes=[f"{each.traffic}: {note}" if len(found) > 1 else note for each in found for note in notes_on(scenario, each)],
        about=about(scenario, first),
        device=scenario.cluster.layouts[0].device,
        made_from=(("scenario", str(scenario.path)),),
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
