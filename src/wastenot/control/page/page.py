"""The page of a run, as HTML and as figure files."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from wastenot.control.page.close_up_figure import close_up_figure
from wastenot.control.page.estimates_figure import estimates_figure
from wastenot.control.page.passes_figure import passes_figure
from wastenot.control.page.story import story_of
from wastenot.control.page.tables import events_table, gpus_table
from wastenot.control.page.time_line_figure import subtitle, time_line_figure
from wastenot.control.status import Summary
from wastenot.core.files import write_text
from wastenot.pages.figure import Figure, export_figures
from wastenot.pages.formatting import duration
from wastenot.pages.html_page import render

_WARNS = ("refused", "drift", "stepped")


def applied_figures(summary: Summary) -> tuple[Figure, ...]:
    """The figures, in the order they are shown; of those with nothing to draw only the first, which says why.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    others = (estimates_figure(summary), close_up_figure(summary), passes_figure(summary))
    return time_line_figure(summary), *(figure for figure in others if figure.specification is not None)


def write_applied_page(
    summary: Summary, path: str | os.PathLike[str], *, command: str | None = None, made_at: datetime | None = None
) -> None:
    """Write the page.

    Args:
        summary: of the run.
        path: the HTML file to create or replace.
        command: that makes the page again, shown in its foot; ``None`` where it is not known.
        made_at: date shown on the page; now by default.

    Raises:
        BadInputError: the file cannot be written.
        MissingExtraError: the ``report`` extra is not installed.
    """
    write_text(path, render_applied_page(summary, command=command, made_at=made_at or datetime.now(UTC)))


def render_applied_page(summary: Summary, *, command: str | None = None, made_at: datetime) -> str:
    """The page as text; see :func:`write_applied_page`."""
    status = summary.status
    tone, effect, verdict, panels = story_of(summary)
    first = next(iter(status.gpus), None)
    begun = datetime.fromtimestamp(status.started_unix_s, UTC)
    made_from = [
        ("Plan", f"{status.plan}, digest {status.plan_digest}"),
        ("Workload", status.workload),
        ("GPUs", ", ".join(f"{gpu.device}: {gpu.model}, {gpu.unique_id}" for gpu in status.gpus)),
        (
            "Began",
            f"{begun:%Y-%m-%d %H:%M:%S} UTC, ran {duration(status.elapsed_s)}, controlled by process {status.process}",
        ),
    ]
    return render(
        "applied.html.j2",
        status.origin,
        applied_figures(summary),
        [("events", events_table(summary)), ("gpus", gpus_table(summary))],
        made_at,
        device=first.device if first else "",
        command=command,
        made_from=made_from,
        title=(status.workload, f"on {first.device if first else 'no GPU'} under {Path(status.plan).name}"),
        tone=tone,
        effect=effect,
        verdict=verdict,
        panels=panels,
        notes=[f"{event.text[:1].upper()}{event.text[1:]}." for event in status.events if event.kind in _WARNS],
        about=subtitle(summary),
    )


def write_applied_figures(summary: Summary, folder: str | os.PathLike[str]) -> list[Path]:
    """Write the figures; see :func:`wastenot.pages.figure.export_figures`."""
    return export_figures(applied_figures(summary), summary.status.origin, folder)
