"""What all pages share: style, scripts, figures, tables and cards. A page is self-contained and fetches nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from typing import Any

from wastenot.core.origin import Origin
from wastenot.core.version import own_version
from wastenot.devices.simulated.basis import basis_of
from wastenot.pages.figure import Figure
from wastenot.pages.formatting import ORIGIN_TEXT
from wastenot.pages.optional_imports import load
from wastenot.pages.table import Row, Table
from wastenot.pages.theme import DARK, LIGHT
from wastenot.pages.vega_bundle import vega_bundle

_TEMPLATES = (
    "page.html.j2",
    "cards.html.j2",
    "hero.html.j2",
    "plan.html.j2",
    "profile.html.j2",
    "natural.html.j2",
    "applied.html.j2",
    "pipeline.html.j2",
    "job.html.j2",
    "serving.html.j2",
)
_STYLES = ("page.css", "hero.css", "tables.css")
_LONG_TABLE = 60  # rows above which a table scrolls in its own frame

# Characters that could end a script element or begin a comment in it; JSON means the same with them escaped.
_UNSAFE_IN_SCRIPT = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


@dataclass(frozen=True, slots=True)
class Card:
    """One headline number: a label, the value, what it means, and whether it is a main one."""

    label: str
    value: str
    detail: str
    main: bool = False


def render(
    template: str,
    origin: Origin,
    figures: Sequence[Figure],
    tables: Sequence[tuple[str, Table]],
    made_at: datetime,
    *,
    device: str = "",
    command: str | None = None,
    made_from: Sequence[tuple[str, str]] = (),
    **values: object,
) -> str:
    """A page as text.

    Args:
        template: file name of the template, which extends ``page.html.j2``.
        origin: of the numbers on it.
        figures: in the order they are shown.
        tables: (name, table) pairs, in the order they are shown.
        made_at: date shown on it.
        device: that they are of; of a simulated one is said what its constants rest on.
        command: that makes the page again, without passwords; ``None`` where it is not known.
        made_from: what the numbers come from, as (name, text) pairs.
        values: anything else that the template uses.

    Raises:
        MissingExtraError: the ``report`` extra is not installed.
    """
    jinja = load("jinja2")
    environment = jinja.Environment(
        loader=jinja.DictLoader({name: _resource(name) for name in _TEMPLATES}),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja.StrictUndefined,
    )
    page: str = environment.get_template(template).render(
        origin=origin,
        origin_text="; ".join(filter(None, (ORIGIN_TEXT[origin], basis_of(device)))),
        figures=figures,
        tables=[_for_page(name, table) for name, table in tables],
        made_on=f"{made_at:%Y-%m-%d %H:%M} {made_at.tzname() or ''}".rstrip(),
        version=own_version(),
        style="".join(map(_resource, _STYLES)),
        script=_resource("page.js") + _resource("controls.js"),
        command=command,
        made_from=made_from,
        bundle=vega_bundle(),
        specifications=script_json(_drawings(figures)),
        themes=script_json({"light": LIGHT, "dark": DARK}),
        **values,
    )
    return page


def script_json(value: object) -> str:
    """JSON that is safe inside a ``script`` element, whatever names are in it.

    Raises:
        ValueError: a number in it is not finite.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_UNSAFE_IN_SCRIPT)


def _drawings(figures: Sequence[Figure]) -> dict[str, Any]:
    """The specifications of all figures, with the data that they share written once."""
    datasets: dict[str, Any] = {}
    drawings: dict[str, dict[str, Any]] = {}
    for figure in figures:
        for form, specification in (("wide", figure.specification), ("narrow", figure.narrow)):
            if specification is not None:
                datasets |= specification.get("datasets", {})
                bare = {name: value for name, value in specification.items() if name != "datasets"}
                drawings.setdefault(figure.name, {})[form] = bare
    return {"datasets": datasets, "figures": drawings}


def _for_page(name: str, table: Table) -> dict[str, Any]:
    """A table with its rows in groups, those in sight and those folded away, as the template iterates over them."""
    shown = len(table.rows) if table.fold is None else table.fold.shown
    return {
        "name": name,
        "table": table,
        "groups": _groups(table.rows[:shown]),
        "folded": _groups(table.rows[shown:]),
        "long": len(table.rows) > _LONG_TABLE,
    }


def _groups(rows: Sequence[Row]) -> list[tuple[str | None, list[Row]]]:
    groups: list[tuple[str | None, list[Row]]] = []
    for row in rows:
        if not groups or groups[-1][0] != row.group:
            groups.append((row.group, []))
        groups[-1][1].append(row)
    return groups


def _resource(name: str) -> str:
    return files("wastenot.pages").joinpath("templates", name).read_text(encoding="utf-8")
