"""The page of an engine's profile, as HTML and as figure files."""

from __future__ import annotations

from dataclasses import replace

from wastenot.pages.page import Page
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


def engine_page(profile: EngineProfile, *, context: float | None = None) -> Page:
    """The page of an engine's profile.

    Args:
        profile: what to show.
        context: tokens in the cache of each sequence that decodes; 1,024 by default.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    context = usual_context(profile) if context is None else context
    points = operating_points(profile, context=context) if decodes(profile) else ()
    prefills = prefill_points(profile)
    model, device = name_of(profile)
    return Page(
        verb="engine",
        brand="engine",
        title=(model, f"on {device}"),
        origin=origin_of(profile),
        effect=effect_text(points),
        verdict=verdict_text(profile, points),
        panels=panels(profile, points),
        figures=engine_figures(profile, points, prefills, context),
        tables=[
            ("best", _folded(frontier_table(points))),
            *((f"clocks-{each.gpus}", clocks_table(points, each.gpus)) for each in profile.engines),
            ("prompts", prefill_table(prefills)),
            ("errors", errors_table(profile)),
        ],
        notes=[f"{note[:1].upper()}{note[1:]}." for note in profile.notes],
        about=about(profile, context),
        device=device,
    )


def _folded(table: Table | None) -> Table | None:
    return (
        replace(table, fold=Fold(_SHOWN, f"{len(table.rows) - _SHOWN} more"))
        if table and len(table.rows) > _SHOWN
        else table
    )
