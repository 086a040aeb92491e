"""The report of a plan: a self-contained HTML page, and its figures as files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from wastenot.core.files import write_text
from wastenot.core.wording import counted
from wastenot.kernels.page.curve_figure import curve_figure
from wastenot.kernels.page.desirability_figure import desirability_figure
from wastenot.kernels.page.kernels_figure import kernels_figure
from wastenot.kernels.page.settings_figure import coarse_figure, kernel_figure
from wastenot.kernels.page.story import story_of
from wastenot.kernels.page.summary import plan_numbers, warnings
from wastenot.kernels.page.switching_figure import switching_figure
from wastenot.kernels.page.tables import applicable_table, comparison_table, context_table, kernel_table
from wastenot.kernels.plan.overview import PlanOverview
from wastenot.pages.figure import Figure
from wastenot.pages.html_page import render
from wastenot.pages.price import Price
from wastenot.pages.table import Fold, Table

MOST_TABLE_ROWS = 200


def write_report(
    overview: PlanOverview,
    path: str | os.PathLike[str],
    *,
    price: Price | None = None,
    made_at: datetime | None = None,
    command: str | None = None,
    made_from: Sequence[tuple[str, str]] = (),
    figures: Sequence[Figure] | None = None,
) -> None:
    """Write the page.

    Args:
        overview: what to show.
        path: the HTML file to create or replace.
        price: of electricity; without it no costs are shown.
        made_at: date shown on the page; now by default.
        command: that makes the page again, shown in its foot; without passwords.
        made_from: what the numbers come from, as (name, text) pairs; shown beside it.
        figures: of :func:`report_figures`, where they are composed already.

    Raises:
        BadInputError: the file cannot be written.
        MissingExtraError: the ``report`` extra is not installed.
    """
    write_text(path, render_page(overview, price, made_at or datetime.now(UTC), command, made_from, figures))


def render_page(
    overview: PlanOverview,
    price: Price | None,
    made_at: datetime,
    command: str | None = None,
    made_from: Sequence[tuple[str, str]] = (),
    figures: Sequence[Figure] | None = None,
) -> str:
    """The page as text; see :func:`write_report`."""
    plan = overview.plan
    applicable = applicable_table(plan)
    return render(
        "plan.html.j2",
        plan.origin,
        report_figures(overview) if figures is None else figures,
        [
            *([] if applicable is None else [("applicable", applicable)]),
            ("kernels", kernel_table(plan, MOST_TABLE_ROWS)),
            ("comparison", _folded(comparison_table(overview.comparison))),
            *([] if overview.context is None else [("context", context_table(overview.context))]),
        ],
        made_at,
        device=plan.device,
        command=command,
        made_from=(*made_from, ("Plan", plan.digest)),
        plan=plan,
        story=story_of(plan, price),
        numbers=plan_numbers(plan, price),
        warnings=warnings(plan),
    )


def _folded(table: Table) -> Table:
    """A table that is shown when asked for."""
    return replace(table, fold=Fold(0, f"Show {counted(len(table.rows), 'row')}"))


def report_figures(overview: PlanOverview) -> tuple[Figure, ...]:
    """All figures in the order they are shown, including those that have nothing to draw and say why.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    return (
        curve_figure(overview),
        switching_figure(overview),
        kernels_figure(overview),
        coarse_figure(overview),
        kernel_figure(overview),
        desirability_figure(overview),
    )
