"""The report as one HTML page that holds everything it needs: styles, scripts, figures, tables; it fetches nothing."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from wastenot.errors import BadInputError
from wastenot.files import write_text
from wastenot.reporting.plan.context_table import context_table
from wastenot.reporting.plan.data import ReportData
from wastenot.reporting.plan.figures import draw
from wastenot.reporting.plan.tables import comparison_table, kernel_table
from wastenot.reporting.plan.totals import Price, goal_words, totals, warnings
from wastenot.reporting.shell import render

MOST_TABLE_ROWS = 200


def write_report(
    data: ReportData,
    path: str | os.PathLike[str],
    *,
    price_per_kwh: float | None = None,
    currency: str = "USD",
    made_at: datetime | None = None,
) -> None:
    """Write the page.

    Args:
        data: what to show.
        path: the HTML file to make or replace.
        price_per_kwh: what a kilowatt-hour costs; without it no costs are shown.
        currency: of that price.
        made_at: date shown on the page; now where not given.

    Raises:
        BadInputError: the price is not a number of at least 0, or the file cannot be written.
        MissingExtraError: the ``report`` extra is not installed.
    """
    if price_per_kwh is not None and not 0.0 <= price_per_kwh < float("inf"):
        raise BadInputError(f"--price-per-kwh {price_per_kwh}: must be a number of at least 0")
    price = None if price_per_kwh is None else Price(price_per_kwh, currency)
    write_text(path, render_page(data, price, made_at or datetime.now(UTC)))


def render_page(data: ReportData, price: Price | None, made_at: datetime) -> str:
    """The page as text; see :func:`write_report`."""
    plan = data.plan
    return render(
        "plan.html.j2",
        plan.origin,
        draw(data),
        [
            ("kernels", kernel_table(plan, MOST_TABLE_ROWS)),
            ("comparison", comparison_table(data.comparison)),
            *([] if data.context is None else [("context", context_table(data.context))]),
        ],
        made_at,
        plan=plan,
        kernels=len(plan.assignments),
        goal=goal_words(plan.objective),
        totals=totals(plan, price),
        warnings=warnings(plan),
    )
