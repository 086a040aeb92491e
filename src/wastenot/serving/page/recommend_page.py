"""The page of recommendations, as HTML and as figure files."""

from __future__ import annotations

from collections.abc import Sequence

from wastenot.pages.page import Page
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


def recommend_page(found: Recommended, *, sources: Sequence[str] = ()) -> Page:
    """The page of recommendations.

    Args:
        found: what to show.
        sources: names of the studies and tables that it is made from.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    models = list(dict.fromkeys(each.model for each in found.points))
    return Page(
        verb="recommend",
        brand="recommend",
        title=(models[0] if len(models) == 1 else "What to serve", "with the least " + found.cost_title),
        origin=origin_of(found),
        effect=effect_text(found),
        verdict=verdict_text(found),
        panels=panels(found),
        figures=[recommend_figure(found)],
        tables=[
            *([("recommendations", chosen_table(found))] if found.chosen else []),
            *([("unmet", unmet_table(found))] if found.unmet else []),
        ],
        notes=notes(found),
        about=about(found),
        made_from=tuple(("source", each) for each in sources),
    )
