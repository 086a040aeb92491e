"""A table for a terminal or a page: texts to show, and the values behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Value = str | float | None
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, and whether it holds numbers (aligned right)."""

    title: str
    numeric: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    Attributes:
        group: rows of one group follow each other; ``None`` if there are no groups.
        texts: what to show, one for each column.
        values: the same as numbers (clocks in MHz, changes as fractions) or text, ``None`` if missing.
        note: why values are missing, else ``None``.
    """

    group: str | None
    texts: tuple[str, ...]
    values: tuple[Value, ...]
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Fold:
    """Rows that matter less, shown when asked for.

    Attributes:
        shown: how many rows stay in sight.
        label: what the others are, such as ``34 more kernels``.
    """

    shown: int
    label: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table; its note says what is left out, or how to read it."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str | None = None
    fold: Fold | None = None


@dataclass(frozen=True, slots=True)
class Listed(Generic[Item]):
    """A column by what it shows of each item.

    Attributes:
        title: its heading.
        value: of an item.
        text: of a value.
        numeric: whether it holds numbers.
        optional: it is left out where no item has a value.
        text_of: what to show of an item, where its value alone does not say it.
        unknown: stands for an unknown value, or what to show of an item that has none.
    """

    title: str
    value: Callable[[Item], Value]
    text: Callable[[Any], str] = str
    numeric: bool = True
    optional: bool = False
    text_of: Callable[[Item], str] | None = None
    unknown: str | Callable[[Item], str] = "–"

    def shown(self, item: Item) -> str:
        """What is shown of an item."""
        value = self.value(item)
        if value is None:
            return self.unknown if isinstance(self.unknown, str) else self.unknown(item)
        return self.text(value) if self.text_of is None else self.text_of(item)


def listing(
    title: str,
    items: Sequence[Item],
    columns: Sequence[Listed[Item]],
    note: str | None = None,
    *,
    shown: int | None = None,
    rest: str = "more",
    fold: Fold | None = None,
    group: Callable[[Item], str | None] = lambda _: None,
    note_of: Callable[[Item], str | None] = lambda _: None,
) -> Table:
    """A table with a row for each item: the one way that tables are made of what they list.

    Args:
        title: of the table.
        items: in the order of its rows.
        columns: what is shown of each.
        note: what is left out, or how to read it.
        shown: rows that stay in sight; by default all.
        rest: what the others are called.
        fold: the same, said in full.
        group: of an item's row.
        note_of: an item's row.
    """
    there = [each for each in columns if not each.optional or any(each.value(item) is not None for item in items)]
    return Table(
        title,
        tuple(Column(each.title, each.numeric) for each in there),
        tuple(
            Row(
                group(item),
                tuple(each.shown(item) for each in there),
                tuple(each.value(item) for each in there),
                note_of(item),
            )
            for item in items
        ),
        note,
        Fold(shown, f"{len(items) - shown:,} {rest}") if shown is not None and len(items) > shown else fold,
    )
