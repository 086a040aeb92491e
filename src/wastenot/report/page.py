"""The report as one HTML page that holds everything it needs: styles, scripts, figures, tables; it fetches nothing."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any

from wastenot.errors import BadInputError
from wastenot.files import write_text
from wastenot.report.context_table import context_table
from wastenot.report.data import ReportData
from wastenot.report.extras import load
from wastenot.report.figures import draw, vega_lite_version
from wastenot.report.tables import Row, Table, comparison_table, kernel_table
from wastenot.report.theme import DARK, LIGHT
from wastenot.report.totals import Price, goal_words, totals, warnings
from wastenot.report.words import ORIGIN_WORDS

MOST_TABLE_ROWS = 200
_LONG_TABLE = 60  # rows above which a table scrolls in its own frame

# Characters that could end a script element or begin a comment in it; escaped, JSON means the same.
_UNSAFE_IN_SCRIPT = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


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
    jinja = load("jinja2")
    environment = jinja.Environment(
        loader=jinja.DictLoader({"page": _resource("page.html.j2")}),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja.StrictUndefined,
    )
    plan = data.plan
    figures = draw(data)
    page: str = environment.get_template("page").render(
        plan=plan,
        kernels=len(plan.assignments),
        goal=goal_words(plan.objective),
        origin_words=ORIGIN_WORDS[plan.origin],
        totals=totals(plan, price),
        warnings=warnings(plan),
        figures=figures,
        tables=[
            _for_page("kernels", kernel_table(plan, MOST_TABLE_ROWS)),
            _for_page("comparison", comparison_table(data.comparison)),
            *([] if data.context is None else [_for_page("context", context_table(data.context))]),
        ],
        made_on=f"{made_at:%Y-%m-%d %H:%M} {made_at.tzname() or ''}".rstrip(),
        version=_version(),
        style=_resource("page.css"),
        script=_resource("page.js"),
        bundle=_bundle(),
        specifications=script_json({figure.name: figure.specification for figure in figures if figure.specification}),
        themes=script_json({"light": LIGHT, "dark": DARK}),
    )
    return page


def script_json(value: object) -> str:
    """JSON that is safe inside a ``script`` element, whatever names are in it.

    Raises:
        ValueError: a number in it is not finite.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_UNSAFE_IN_SCRIPT)


def _for_page(name: str, table: Table) -> dict[str, Any]:
    """A table with its rows in groups, as the template walks them."""
    groups: list[tuple[str | None, list[Row]]] = []
    for row in table.rows:
        if not groups or groups[-1][0] != row.group:
            groups.append((row.group, []))
        groups[-1][1].append(row)
    return {"name": name, "table": table, "groups": groups, "long": len(table.rows) > _LONG_TABLE}


@cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    bundle: str = load("vl_convert").javascript_bundle(vl_version=vega_lite_version())
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _resource(name: str) -> str:
    return files("wastenot.report").joinpath(name).read_text(encoding="utf-8")


def _version() -> str:
    try:
        return version("wastenot")
    except PackageNotFoundError:
        return "from source"
