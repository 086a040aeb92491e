"""Tables without borders that fit a terminal's width and never break a word.

What is too wide gives way in this order, until the table fits: headings and texts fold between words; long names lose a few
letters in the middle; columns that matter less are left out, which the table says; names lose more letters. Names that are
different stay different, and numbers are never cut.
"""

from __future__ import annotations

import textwrap

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

from wastenot.pages.formatting import shortened

_GAP = 2  # between columns
_LONG_NAME, _SHORT_NAME = 20, 9  # letters that a name keeps at least: as long as columns can be left out, and in the end


class FittedTable(Table):
    """A table of one-line cells that fits.

    Args:
        less_important: headings of columns that may be left out, the least important first.
        title: above it.
    """

    def __init__(self, less_important: tuple[str, ...] = (), title: str | None = None) -> None:
        super().__init__(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
        self._less_important = less_important

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render it at the widths that fit."""
        columns = [_Cells(column, console) for column in self.columns]
        widths, left_out = _fit(columns, options.max_width, self._less_important)
        shown = Table(box=None, pad_edge=False, header_style="bold", title=self.title, title_justify="left")
        kept = [column for column in columns if column.name not in left_out]
        for column, width in zip(kept, widths, strict=True):
            shown.add_column(column.fitted_text(column.heading, width), justify=column.justify, width=width, overflow="fold")
        for cells in zip(*(column.fitted(width) for column, width in zip(kept, widths, strict=True)), strict=True):
            shown.add_row(*cells)
        yield shown
        if left_out:
            named = ", ".join(name for name in left_out if name)
            yield from [folded(Text(f"left out at this width: {named}", style="dim"), options.max_width)] if named else []


def folded(text: Text, width: int) -> Text:
    """A text over several lines, broken between words: a number and its unit, and names with hyphens, stay together."""
    lines, position = [], 0
    for line in textwrap.wrap(text.plain, max(width, 1), break_on_hyphens=False):
        start = text.plain.index(line, position)
        position = start + len(line)
        lines.append(text[start:position])
    return Text("\n").join(lines) if lines else Text("")


class _Cells:
    """A column: its heading and cells as texts, and how narrow it may be."""

    def __init__(self, column: Column, console: Console) -> None:
        def text(cell: object) -> Text:
            return cell if isinstance(cell, Text) else console.render_str(str(cell), highlight=False)

        self.heading, self.cells = text(column.header), [text(cell) for cell in column.cells]
        self.name, self.justify = self.heading.plain, column.justify
        numeric = column.justify == "right"
        plain = [cell.plain for cell in self.cells]
        longest = max(map(len, plain), default=0)
        word = _longest_word(self.heading.plain)
        self.widest = max(longest, len(self.heading.plain))
        self.wide = max(longest, word)
        self.folded = self.wide if numeric else max(max(map(_longest_word, plain), default=0), word)
        # Only names can lose letters: words that are long, in a column of texts.
        self.shortens = not numeric

    def least(self, letters: int) -> int:
        """How narrow it may be where names keep a number of letters."""
        if not self.shortens:
            return self.folded
        narrow = min(self.folded, letters)
        names = {cell.plain for cell in self.cells}
        while narrow < self.folded and len({self._short(name, narrow) for name in names}) < len(names):
            narrow += 1
        return narrow

    def fitted(self, width: int) -> list[Text]:
        """Its cells, none wider than this."""
        return [self.fitted_text(cell, width) for cell in self.cells]

    def fitted_text(self, text: Text, width: int) -> Text:
        """A text of it, such as its heading, not wider than this."""
        plain = self._short(text.plain, width)
        return folded(text if plain == text.plain else Text(plain, style=text.style), width)

    def _short(self, text: str, width: int) -> str:
        if _longest_word(text) <= width:
            return text
        indent = text[: len(text) - len(text.lstrip(" "))]
        return indent + " ".join(shortened(word, max(width - len(indent), 3)) for word in text.split(" ") if word)


def _longest_word(text: str) -> int:
    """Letters of the longest word; blanks before the first count as its own."""
    words = textwrap.wrap(text, 1, break_long_words=False, break_on_hyphens=False)
    indent = len(text) - len(text.lstrip(" "))
    return max((len(word) + (0 if index else indent) for index, word in enumerate(w.strip(" ") for w in words)), default=0)


def _fit(columns: list[_Cells], width: int, less_important: tuple[str, ...]) -> tuple[list[int], list[str]]:
    """The width of each column that stays, and the names of those that are left out."""
    left_out: list[str] = []
    there = [name for name in less_important if any(column.name == name for column in columns)]
    for letters, drops in ((_LONG_NAME, there), (_SHORT_NAME, [])):
        for name in (None, *drops):
            left_out += [] if name is None else [name]
            kept = [column for column in columns if column.name not in left_out]
            room = width - _GAP * (len(kept) - 1)
            widths = _widths(kept, room, letters)
            if sum(widths) <= room:
                return widths, left_out
    return widths, left_out


def _widths(columns: list[_Cells], room: int, letters: int) -> list[int]:
    """As wide as there is room, folding before letters are left out; too wide where even that is not enough."""
    widths = [column.widest for column in columns]
    for narrowest in (
        [column.wide for column in columns],
        [column.folded for column in columns],
        [column.least(letters) for column in columns],
    ):
        while sum(widths) > room:
            loose = [index for index, width in enumerate(widths) if width > narrowest[index]]
            if not loose:
                break
            widths[max(loose, key=lambda index: widths[index])] -= 1
    return widths
