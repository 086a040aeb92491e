"""Tables and headlines as a terminal shows them. Imports rich: import it inside the command that prints."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from wastenot.devices.simulated.basis import basis_of
from wastenot.pages.table import Item, Listed, Table
from wastenot.terminal.fitted_table import FittedTable, folded

__all__ = [
    "Group", "Padding", "Paragraph", "RenderableType", "RichTable",
    "Text", "headline", "listed", "named_rows", "plain_table", "rich_table",
]  # fmt: skip


def headline(workload: str, device: str, origin: str, what: str) -> Text:
    """The line above a result: which workload, on which device, and where the numbers come from."""
    basis = basis_of(device)
    numbers = f"{origin}; {basis}" if basis else origin
    return Text.assemble((workload, "bold"), f" on {device}{': ' if what else ''}{what} (numbers: {numbers})")


def plain_table(
    texts: tuple[str, ...], numbers: tuple[str, ...], title: str | None = None, less_important: tuple[str, ...] = ()
) -> FittedTable:
    """An empty table without borders.

    Args:
        texts: headings of its first columns, aligned left.
        numbers: headings of the others, aligned right.
        title: above it.
        less_important: headings of columns that a narrow terminal does not show, the least important first.
    """
    table = FittedTable(less_important, title)
    for heading in texts:
        table.add_column(Text(heading))
    for heading in numbers:
        table.add_column(heading, justify="right")
    return table


def listed(items: Iterable[Item], columns: Sequence[Listed[Item]], title: str | None = None) -> FittedTable:
    """A table without borders, with a row for each item."""
    table = FittedTable((), title)
    for column in columns:
        table.add_column(Text(column.title), justify="right" if column.numeric else "left")
    for item in items:
        table.add_row(*(Text(column.shown(item)) for column in columns))
    return table


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Text that wraps between words only: a number and its unit, and the parts of a name with hyphens, stay together."""

    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.text.plain.strip():
            yield folded(self.text, options.max_width)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        words = textwrap.wrap(self.text.plain, 1, break_long_words=False, break_on_hyphens=False)
        return Measurement(max(map(len, words), default=0), len(self.text.plain)).with_maximum(options.max_width)


def named_rows(rows: Iterable[tuple[str, str]]) -> RenderableType:
    """Names, each with a text that may run over several lines."""
    grid = RichTable.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=20)
    grid.add_column()
    for name, text in rows:
        grid.add_row(Paragraph(Text(name)), Paragraph(Text(text)))
    return grid


def rich_table(table: Table, less_important: tuple[str, ...] = ()) -> RenderableType:
    """A table of a report; rows that are folded away are only counted, columns as in :func:`plain_table`."""
    shown = FittedTable(less_important)
    for column in table.columns:
        shown.add_column(Text(column.title), justify="right" if column.numeric else "left")
    for group, rows in groupby(table.rows, key=lambda row: row.group):
        if group is not None:
            shown.add_row(Text(group, style="bold cyan"))
        for row in rows if table.fold is None else tuple(rows)[: table.fold.shown]:
            shown.add_row(*(Text(("  " if group and not index else "") + text) for index, text in enumerate(row.texts)))
    notes = dict.fromkeys(row.note for row in table.rows if row.note)
    folded = [] if table.fold is None else [Text(f"{table.fold.label}; --json lists all", style="dim")]
    return Group(shown, *folded, *(Text(note, style="yellow") for note in (*notes, table.note) if note))
