"""The page of policies that steer an engine's clock, as HTML and as figure files."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from wastenot.core.files import write_text
from wastenot.pages.figure import Figure
from wastenot.pages.html_page import render
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


def write_steer_page(
    found: Steering,
    path: str | os.PathLike[str],
    *,
    trace: str = "",
    command: str | None = None,
    made_at: datetime | None = None,
) -> None:
    """Write the page.

    Args:
        found: what to show, of :func:`wastenot.serving.model.steering.steer`.
        path: the HTML file to create or replace.
        trace: name of the trace.
        command: that makes the page again, shown in its foot; ``None`` where it is not known.
        made_at: date shown on the page; now by default.

    Raises:
        BadInputError: the file cannot be written.
        MissingExtraError: the ``report`` extra is not installed.
    """
    write_text(path, render_steer_page(found, trace=trace, command=command, made_at=made_at or datetime.now(UTC)))


def render_steer_page(found: Steering, *, trace: str = "", command: str | None = None, made_at: datetime) -> str:
    """The page as text; see :func:`write_steer_page`."""
    engine = found.engine
    return render(
        "serving.html.j2",
        origin_of(found),
        steer_figures(found),
        [("policies", policies_table(found))],
        made_at,
        device=engine.device,
        command=command,
        made_from=(("trace", trace),) if trace else (),
        brand="serving",
        title=(engine.model or "engine", f"on {engine.device or 'a device without a name'}"),
        tone="neutral",
        effect=effect_text(found),
        verdict=verdict_text(found),
        panels=panels(found),
        notes=[],
        about=about(found),
    )
