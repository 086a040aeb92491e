"""What all pages share: style, scripts, figures, tables and cards. A page is self-contained and fetches nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from wastenot.core.files import write_text
from wastenot.core.origin import Origin
from wastenot.core.version import own_version
from wastenot.devices.simulated.basis import basis_of
from wastenot.pages.figure import Figure, export_figures
from wastenot.pages.formatting import ORIGIN_TEXT
from wastenot.pages.optional_imports import load
from wastenot.pages.panel import Next, Panel, Tone
from wastenot.pages.table import Row, Table
from wastenot.pages.theme import DARK, LIGHT
from wastenot.pages.vega_bundle import vega_bundle

_TEMPLATES = ("page.html.j2", "cards.html.j2", "hero.html.j2")
_STYLES = ("page.css", "hero.css", "tables.css")
_LONG_TABLE = 60  # rows above which a table scrolls in its own frame

# Characters that could end a script element or begin a comment in it; JSON means the same with them escaped.
_UNSAFE_IN_SCRIPT = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


@dataclass(frozen=True, slots=True)
class Card:
    """One headline number: a label, the value, and what it means."""

    label: str
    value: str
    detail: str


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers that are folded away under the headline.

    Attributes:
        title: of them together.
        about: which they are.
        cards: the numbers.
        tables: (name, table) pairs below them.
    """

    title: str
    about: str
    cards: Sequence[Card]
    tables: Sequence[tuple[str, Table]] = ()


@dataclass(frozen=True, slots=True)
class Folded:
    """Figures and tables that most readers do not need, under one heading.

    Attributes:
        title: of them together.
        about: which they are.
        figures: in the order they are shown.
        tables: (name, table) pairs below them; those without rows are left out.
    """

    title: str
    about: str
    figures: Sequence[Figure] = ()
    tables: Sequence[tuple[str, Table | None]] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """What a page shows; every page is laid out alike.

    Attributes:
        verb: that makes it, for the window's title.
        brand: what it is of, beside the product's name.
        title: what it is of, and where.
        origin: of the numbers on it.
        effect: the headline.
        verdict: how sure it is.
        panels: what follows from it.
        next_step: what to do then; shown below the panels.
        figures: in the order they are shown.
        tables: (name, table) pairs, in the order they are shown; those without rows are left out.
        tone: how sure it is, as a colour.
        panel_kinds: how prominent each panel is.
        notes: what to know beforehand.
        about: what the figures and tables are of, said once under the title.
        source: where the numbers come from, where it is not what the origin says by itself.
        device: that the numbers are of; of a simulated one is said what its constants rest on.
        made_from: what the numbers come from, as (name, text) pairs.
        numbers: folded away under the headline.
        before_notes: words before the notes of rows of tables.
        folded: shown after the tables when asked for.
        cannot_tell: what the page cannot tell, at its end.
    """

    verb: str
    brand: str
    title: tuple[str, str]
    origin: Origin
    effect: str
    verdict: str
    panels: Sequence[Panel]
    figures: Sequence[Figure]
    tables: Sequence[tuple[str, Table | None]]
    next_step: Next | None = None
    tone: Tone = "neutral"
    panel_kinds: tuple[str, ...] = ("plan", "rest", "rest")
    notes: Sequence[str] = ()
    about: str = ""
    source: str = ""
    device: str = ""
    made_from: Sequence[tuple[str, str]] = ()
    numbers: Numbers | None = None
    before_notes: str = ""
    folded: Folded | None = None
    cannot_tell: Sequence[str] = ()

    @property
    def all_figures(self) -> tuple[Figure, ...]:
        """Those in sight, then those folded away."""
        return (*self.figures, *(() if self.folded is None else self.folded.figures))

    def html(self, *, command: str | None = None, made_at: datetime | None = None) -> str:
        """The page as text.

        Args:
            command: that makes the page again, shown in its foot, without passwords; ``None`` where it is not known.
            made_at: date shown on it; now by default.

        Raises:
            MissingExtraError: the ``report`` extra is not installed.
        """
        made_at = made_at or datetime.now(UTC)
        page: str = _template().render(
            page=self,
            beyond_title=self._beyond_title(),
            next_step=self.next_step if self.next_step is None or command is None else self.next_step.filled(command),
            origin_text=self._origin_text(),
            tables=_for_page(self.tables),
            number_tables=() if self.numbers is None else _for_page(self.numbers.tables),
            folded_tables=() if self.folded is None else _for_page(self.folded.tables),
            made_on=f"{made_at:%Y-%m-%d %H:%M} {made_at.tzname() or ''}".rstrip(),
            version=own_version(),
            style="".join(map(_resource, _STYLES)),
            script=_resource("page.js") + _resource("controls.js"),
            command=command,
            bundle=vega_bundle(),
            specifications=script_json(_drawings(self.all_figures)),
            themes=script_json({"light": LIGHT, "dark": DARK}),
        )
        return page

    def _origin_text(self) -> str:
        """Where the numbers come from, and what a simulated device rests on."""
        basis = basis_of(self.device)
        text = "from a simulated GPU, not measured" if basis and self.origin == "forecast" else ORIGIN_TEXT[self.origin]
        return "; ".join(filter(None, (self.source or text, basis)))

    def _beyond_title(self) -> str:
        """What the page is of, as far as neither its title nor the badge of its origin says it."""
        known = set(" ".join(self.title).replace(",", "").split())
        parts = [part for part in self.about.split(" · ") if not set(part.replace(",", "").split()) <= known]
        return " · ".join(part for part in parts if part != f"{self.origin} numbers")

    def beneath(self, figure: Figure, named: bool) -> str:
        """What stands under a figure's title: of its subtitle, what the head of the page does not say.

        Args:
            figure: on this page.
            named: the origin of the numbers stands at another figure already, besides the badge.
        """
        known = {*self.about.split(" · "), *([f"{self.origin} numbers"] if named else [])}
        parts = [part for part in figure.subtitle.split(" · ") if part not in known]
        return " · ".join(parts if named else dict.fromkeys([*parts, f"{self.origin} numbers"]))

    def write(self, path: str | os.PathLike[str], *, command: str | None = None, made_at: datetime | None = None) -> None:
        """Write the page to an HTML file, which is created or replaced; see :meth:`html`.

        Raises:
            BadInputError: the file cannot be written.
            MissingExtraError: the ``report`` extra is not installed.
        """
        write_text(path, self.html(command=command, made_at=made_at))

    def export(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write the figures; see :func:`wastenot.pages.figure.export_figures`."""
        return export_figures(self.all_figures, self.origin, folder)


def script_json(value: object) -> str:
    """JSON that is safe inside a ``script`` element, whatever names are in it.

    Raises:
        ValueError: a number in it is not finite.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_UNSAFE_IN_SCRIPT)


def _drawings(figures: Sequence[Figure]) -> dict[str, Any]:
    """Both forms of all figures, with the data that they share written once."""
    datasets: dict[str, Any] = {}
    drawings: dict[str, dict[str, Any]] = {}
    for figure in figures:
        for form, specification in (("wide", figure.specification), ("narrow", figure.narrow)):
            if specification is not None:
                datasets |= specification.get("datasets", {})
                bare = {name: value for name, value in specification.items() if name != "datasets"}
                drawings.setdefault(figure.name, {})[form] = bare
    return {"datasets": datasets, "figures": drawings}


def _for_page(tables: Sequence[tuple[str, Table | None]]) -> list[dict[str, Any]]:
    """Tables with their rows in groups, those in sight and those folded away, as the template iterates over them."""
    listed = []
    for name, table in tables:
        if table is not None:
            shown = len(table.rows) if table.fold is None else table.fold.shown
            groups, folded = _groups(table.rows[:shown]), _groups(table.rows[shown:])
            long = len(table.rows) > _LONG_TABLE
            listed.append({"name": name, "table": table, "groups": groups, "folded": folded, "long": long})
    return listed


def _groups(rows: Sequence[Row]) -> list[tuple[str | None, list[Row]]]:
    groups: list[tuple[str | None, list[Row]]] = []
    for row in rows:
        if not groups or groups[-1][0] != row.group:
            groups.append((row.group, []))
        groups[-1][1].append(row)
    return groups


@cache
def _template() -> Any:
    """The template of all pages, compiled once."""
    jinja = load("jinja2")
    environment = jinja.Environment(
        loader=jinja.DictLoader({name: _resource(name) for name in _TEMPLATES}),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja.StrictUndefined,
    )
    return environment.get_template("page.html.j2")


@cache
def _resource(name: str) -> str:
    return files("wastenot.pages").joinpath("templates", name).read_text(encoding="utf-8")
