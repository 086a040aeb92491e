"""A page and its figures written to files, and what is said of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from wastenot.core.wording import counted

if TYPE_CHECKING:
    from wastenot.pages.page import Page


def write_page(page: Page, out: Path | None, figures: Path | None, *, command: str | None) -> list[Path]:
    """Write a page, its figures, or both, and say so.

    Args:
        page: what to write.
        out: the HTML file; ``None`` for none.
        figures: the folder of figure files; ``None`` for none.
        command: that makes the page again.

    Returns:
        The figure files.

    Raises:
        BadInputError: a file cannot be written.
        MissingExtraError: the ``report`` extra is not installed.
    """
    from wastenot.terminal.output import say

    if out is not None:
        page.write(out, command=command)
        say(f"{out}: page written")
    if figures is None:
        return []
    files = page.export(figures)
    say(f"{figures}: {counted(len(files), 'figure file')} written")
    return files
