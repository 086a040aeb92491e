"""What commands of the tutorials print, run one after another as a reader would."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from docs.make.blocks import BLOCK, Command, commands_of, run_page
from docs.make.page import Page


def renewed(page: Path) -> str:
    """Its commands, with what they print now below them.

    Raises:
        ValueError: a command ended with another exit code than the page says.
    """
    with tempfile.TemporaryDirectory() as folder:
        printed = iter(_checked(run_page(page, Path(folder))))

        def block(found: re.Match[str]) -> str:
            kind, option, language, body = found.groups()
            if kind != "run" or language != "console":
                return found[0]
            text = ""
            for command in commands_of(option, body, language, compared=True):
                text += "".join(f"{line}\n" for line in (f"$ {command.typed}", *command.cut(next(printed))))
            head = f"<!-- run{f': {option}' if option else ''} -->"
            return f"{head}\n```{language}\n{text}```\n"

        return BLOCK.sub(block, page.read_text())


def _checked(ran: Iterator[tuple[Command, int, list[str]]]) -> Iterator[list[str]]:
    for command, code, lines in ran:
        if code != command.exit_code:
            raise ValueError(f"$ {command.typed}\nended with {code}:\n" + "\n".join(lines))
        if command.shown is not None:  # otherwise the page shows nothing that is to be renewed
            yield lines


PAGES = tuple(
    Page(name, renew=renewed)
    for name in (
        "tutorials/no-gpu",
        "tutorials/read-only",
        "tutorials/rehearse",
        "tutorials/set-clocks",
        "tutorials/jobs",
        "coming-from",
    )
)
