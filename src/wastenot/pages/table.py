"""A table for a terminal or a page: texts to show, and the values behind them."""

from __future__ import annotations

from dataclasses import dataclass

Value = str | float | None


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
