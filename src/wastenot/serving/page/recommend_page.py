"""The page of recommendations, as HTML and as figure files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from wastenot.core.files import write_text
from wastenot.pages.figure import export_figures
from wastenot.pages.html_page import render
from wastenot.serving.page.recommend_figure import recommend_figure
from wastenot.serving.page.recommend_words import (
    Recommended,
    about,
    chosen_table,
    effect_text,
    notes,
    origin_of,
    panels,
    unmet_table,
    verdict_text,
)


def write_recommend_page(
    found: Recommended,
    path: str | os.PathLike[str],
    *,
    sources: Sequence[str] = (),
    command: str | None = None,
    made_at: datetime | None = None,
) -> None:
    """Write the page.

    Args:
        found: what to show.
        path: the HTML file to create or replace.
        sources: names of the studies and tables that it is made from.
        command: that makes the page again, shown in its foot; ``None`` where it is not known.
        made_at: date shown on the page; now by default.

    Raises:
        BadInputError: the file cannot be written.
        MissingExtraError: the ``report`` extra is not installed.
    """
    models = list(dict.fromkeys(each.model for each in found.points))
    tables = [("recommendations", chosen_table(found))] if found.chosen else []
    text = render(
        "serving.html.j2",
        origin_of(found),
        [recommend_figure(found)],
        [*tables, *([("unmet", unmet_table(found))] if found.unmet else [])],
        made_at or datetime.now(UTC),
        command=command,
        made_from=tuple(("source", each) for each in sources),
        title=(models[0] if len(models) == 1 else "What to serve", "with the least " + found.cost_title),
        brand="recommend",
        tone="neutral",
        effect=effect_text(found),
        verdict=verdict_text(found),
        panels=panels(found),
        notes=notes(found),
        about=about(found),
    )
    write_text(path, text)


def write_recommend_figures(found: Recommended, folder: str | os.PathLike[str]) -> list[Path]:
    """Write the figure as SVG, PDF and PNG; see :func:`write_recommend_page`."""
    return export_figures([recommend_figure(found)], origin_of(found), folder)
