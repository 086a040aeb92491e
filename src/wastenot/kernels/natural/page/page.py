"""The page of what natural clocks say, as HTML and as figure files."""

from __future__ import annotations

from wastenot.kernels.natural.overview import NaturalOverview
from wastenot.kernels.natural.page.curve_figures import curves_figure, loss_figure, subtitle
from wastenot.kernels.natural.page.joules_figure import joules_figure
from wastenot.kernels.natural.page.story import story_of
from wastenot.kernels.natural.page.summary import forecast_table, kernels_table, plans_table
from wastenot.kernels.natural.page.wake_figure import wake_figure
from wastenot.pages.figure import Figure
from wastenot.pages.formatting import quantity
from wastenot.pages.page import Page


def natural_figures(overview: NaturalOverview) -> tuple[Figure, ...]:
    """The figures, in the order they are shown.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    return joules_figure(overview), loss_figure(overview), curves_figure(overview), wake_figure(overview)


def natural_page(overview: NaturalOverview) -> Page:
    """The page of what natural clocks say.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    auto = f"{quantity(overview.auto_time_s, 's', 4)}, {quantity(overview.auto_energy_j, 'J', 4)}, kernel by kernel"
    made_from = [("Device", overview.device), ("Iteration at the default clocks", auto)]
    if overview.temperature_c is not None:
        made_from.append(("Temperature", f"{overview.temperature_c:.0f} °C on average"))
    effect, verdict, panels = story_of(overview)
    return Page(
        verb="natural clocks",
        brand="natural clocks",
        title=(overview.workload, f"on {overview.device}, at the clocks it takes by itself"),
        origin=overview.origin,
        effect=effect,
        verdict=verdict,
        panels=panels,
        figures=natural_figures(overview),
        tables=[
            ("plans", plans_table(overview)), ("forecast", forecast_table(overview)), ("kernels", kernels_table(overview))
        ],
        tone="promised",
        panel_kinds=("today", "rest", "rest"),
        notes=overview.notes,
        about=subtitle(overview),
        device=overview.device,
        made_from=made_from,
        cannot_tell=overview.cannot_tell,
    )  # fmt: skip
