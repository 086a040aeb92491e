"""The page of policies that steer an engine's clock, as HTML and as figure files."""

from __future__ import annotations

from wastenot.pages.figure import Figure
from wastenot.pages.page import Page
from wastenot.serving.model.steering import Steering
from wastenot.serving.page.policies_figure import policies_figure
from wastenot.serving.page.steer_words import (
    about,
    effect_text,
    origin_of,
    panels,
    policies_table,
    verdict_text,
)
from wastenot.serving.page.timeline_figure import timeline_figures


def steer_figures(found: Steering) -> tuple[Figure, ...]:
    """The figures, in the order they are shown.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    return (*timeline_figures(found), policies_figure(found))


def steer_page(found: Steering, *, trace: str = "") -> Page:
    """The page of policies that steer an engine's clock.

    Args:
        found: what to show, of :func:`wastenot.serving.model.steering.steer`.
        trace: name of the trace.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    engine = found.engine
    return Page(
        verb="serving",
        brand="serving",
        title=(engine.model or "engine", f"on {engine.device or 'a device without a name'}"),
        origin=origin_of(found),
        effect=effect_text(found),
        verdict=verdict_text(found),
        panels=panels(found),
        figures=steer_figures(found),
        tables=[("policies", policies_table(found))],
        about=about(found),
        device=engine.device,
        made_from=(("trace", trace),) if trace else (),
    )
