"""Lines that stay at the bottom of a terminal while another program writes above them."""

from __future__ import annotations

import os
from typing import TextIO

_SAVE, _RESTORE = "\x1b7", "\x1b8"
_LEAST_ABOVE = 5  # rows left to the other program


class BottomLines:
    """Reserves the lowest rows with a scrolling region, as package managers do; a context manager that releases them.

    Args:
        stream: a terminal.
        rows: to reserve.
    """

    def __init__(self, stream: TextIO, rows: int) -> None:
        self._stream = stream
        self._rows = rows
        self._size: os.terminal_size | None = None

    def __enter__(self) -> BottomLines:
        self._reserve(os.get_terminal_size(self._stream.fileno()))
        return self

    def __exit__(self, *_: object) -> None:
        if self._size is not None:
            top = self._size.lines - self._rows + 1
            self._write(f"{_SAVE}\x1b[r\x1b[{top};1H\x1b[J{_RESTORE}")
            self._size = None

    def show(self, lines: list[str]) -> None:
        """Show lines, each already cut to the terminal's width; those beyond the reserved rows are left out."""
        size = os.get_terminal_size(self._stream.fileno())
        if size != self._size:
            self._reserve(size)
        if self._size is None:
            return
        top = self._size.lines - self._rows + 1
        text = "".join(f"\x1b[{top + row};1H\x1b[2K{line}" for row, line in enumerate(lines[: self._rows]))
        self._write(f"{_SAVE}{text}{_RESTORE}")

    @property
    def width(self) -> int:
        """Columns of the terminal."""
        return os.get_terminal_size(self._stream.fileno()).columns

    def _reserve(self, size: os.terminal_size) -> None:
        if size.lines < self._rows + _LEAST_ABOVE:
            self._size = None
            return
        # New lines first, to scroll up what is on the lowest rows; then back to where the cursor was.
        self._write("\n" * self._rows + f"\x1b[{self._rows}A{_SAVE}\x1b[1;{size.lines - self._rows}r{_RESTORE}")
        self._size = size

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
