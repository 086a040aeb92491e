"""The page of an engine's profile, as HTML and as figure files."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from wastenot.core.files import write_text
from wastenot.pages.figure import export_figures
from wastenot.pages.html_page import render
from wastenot.pages.table import Fold, Table
from wastenot.serving.model.operating_points import decodes, operating_points, prefill_points, usual_context
from wastenot.serving.model.profile_file import EngineProfile
from wastenot.serving.page.engine_figures import engine_figures
from wastenot.serving.page.engine_words import (
    about,
    clocks_table,
    effect_text,
    errors_table,
    frontier_table,
    name_of,
    origin_of,
    panels,
    prefill_table,
    verdict_text,
)

_SHOWN = 20  # best choices in sight


def write_engine_page(
    profile: EngineProfile,
    path: str | os.PathLike[str],
    *,
    context: float | None = None,
    command: str | None = None,
    made_at: datetime | None = None,
) -> None:
    """Write the page.

    Args:
        profile: what to show.
        path: the HTML file to create or replace.
        context: tokens in the cache of each sequence that decodes; 1,024 by default.
        command: that makes the page again, shown in its foot; ``None`` where it is not known.
        made_at: date shown on the page; now by default.

    Raises:
        BadInputError: the file cannot be written.
        MissingExtraError: the ``report`` extra is not installed.
    """
    context = usual_context(profile) if context is None else context
    points = operating_points(profile, context=context) if decodes(profile) else ()
    prefills = prefill_points(profile)
    model, device = name_of(profile)
    tables: list[tuple[str, Table | None]] = [
        ("best", _folded(frontier_table(points))),
        *((f"clocks-{each.gpus}", clocks_table(points, each.gpus)) for each in profile.engines),
        ("prompts", prefill_table(prefills)),
        ("errors", errors_table(profile)),
    ]
    text = render(
        "serving.html.j2",
        origin_of(profile),
        engine_figures(profile, points, prefills, context),
        [(name, table) for name, table in tables if table is not None],
        made_at or datetime.now(UTC),
        device=device,
        command=command,
        title=(model, f"on {device}"),
        brand="engine",
        tone="neutral",
        effect=effect_text(points),
        verdict=verdict_text(profile, points),
        panels=panels(profile, points),
        notes=[f"{note[:1].upper()}{note[1:]}." for note in profile.notes],
        about=about(profile, context),
    )
    write_text(path, text)


def _folded(table: Table | None) -> Table | None:
    return (
        replace(table, fold=Fold(_SHOWN, f"{len(table.rows) - _SHOWN} more"))
        if table and len(table.rows) > _SHOWN
        else table
    )


def write_engine_figures(
    profile: EngineProfile, folder: str | os.PathLike[str], *, context: float | None = None
) -> list[Path]:
    """Write the figures as SVG, PDF and PNG; see :func:`write_engine_page`."""
    context = usual_context(profile) if context is None else context
    points = operating_points(profile, context=context) if decodes(profile) else ()
    return export_figures(engine_figures(profile, points, prefill_points(profile), context), origin_of(profile), folder)
