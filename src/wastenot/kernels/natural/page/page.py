"""The page of what natural clocks say, as HTML and as figure files."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from wastenot.core.files import write_text
from wastenot.kernels.natural.overview import NaturalOverview
from wastenot.kernels.natural.page.curve_figures import curves_figure, loss_figure, subtitle
from wastenot.kernels.natural.page.joules_figure import joules_figure
from wastenot.kernels.natural.page.story import story_of
from wastenot.kernels.natural.page.summary import forecast_table, kernels_table, plans_table
from wastenot.kernels.natural.page.wake_figure import wake_figure
from wastenot.pages.figure import Figure, export_figures
from wastenot.pages.formatting import quantity
from wastenot.pages.html_page import render
from wastenot.pages.table import Table


def natural_figures(overview: NaturalOverview) -> tuple[Figure, ...]:
    """The figures, in the order they are shown.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    return joules_figure(overview), loss_figure(overview), curves_figure(overview), wake_figure(overview)


def write_natural_page(
    overview: NaturalOverview, path: str | os.PathLike[str], *, command: str | None = None, made_at: datetime | None = None
) -> None:
    """Write the page.

    Args:
        overview: what to show.
        path: the HTML file to create or replace.
        command: that makes the page again, shown in its foot; ``None`` where it is not known.
        made_at: date shown on the page; now by default.

    Raises:
        BadInputError: the file cannot be written.
        MissingExtraError: the ``report`` extra is not installed.
    """
    write_text(path, render_natural_page(overview, command=command, made_at=made_at or datetime.now(UTC)))


def render_natural_page(overview: NaturalOverview, *, command: str | None = None, made_at: datetime) -> str:
    """The page as text; see :func:`write_natural_page`."""
    tables: list[tuple[str, Table]] = [("plans", plans_table(overview))]
    predicted = forecast_table(overview)
    if predicted is not None:
        tables.append(("forecast", predicted))
    tables.append(("kernels", kernels_table(overview)))
    made_from = [
        ("Device", overview.device),
        ("Iteration at the default clocks", f"{quantity(overview.auto_time_s, 's', 4)}, "
         f"{quantity(overview.auto_energy_j, 'J', 4)}, kernel by kernel"),
    ]  # fmt: skip
    if overview.temperature_c is not None:
        made_from.append(("Temperature", f"{overview.temperature_c:.0f} °C on average"))
    effect, verdict, panels = story_of(overview)
    return render(
        "natural.html.j2",
        overview.origin,
        natural_figures(overview),
        tables,
        made_at,
        device=overview.device,
        command=command,
        made_from=made_from,
        title=(overview.workload, f"on {overview.device}, at the clocks it takes by itself"),
        effect=effect,
        verdict=verdict,
        panels=panels,
        notes=list(overview.notes),
        cannot_tell=overview.cannot_tell,
        about=subtitle(overview),
    )


def write_natural_figures(overview: NaturalOverview, folder: str | os.PathLike[str]) -> list[Path]:
    """Write the figures; see :func:`wastenot.pages.figure.export_figures`."""
    return export_figures(natural_figures(overview), overview.origin, folder)
