"""Results go to stdout, messages to stderr."""

from __future__ import annotations

import os
import re
import shlex
import sys
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from wastenot.core.values import document_of, json_text

if TYPE_CHECKING:
    from rich.console import Console


_PIPE_COLUMNS = 120
_LEAST_COLUMNS = 40
_COMMAND = re.compile(r"(?<=: )wastenot [a-z]+ .*$")
_PASSWORD = re.compile(r"(://[^\s/:@'\"]*):[^\s/'\"]+@")
_IN_A_QUERY = re.compile(r"([?&][^=&\s]*password=)[^&\s'\"]+", re.IGNORECASE)
_BLANKS = re.compile(r"(?: |\x1b\[[0-9;]*m)+(?=\n)")


def console() -> Console:
    """A console on stdout, as wide as COLUMNS or the terminal, or else 120 columns; no line ends in blanks."""
    from rich.console import Console

    stream: Any = _WithoutBlanks(sys.stdout)
    return Console(file=stream, highlight=False, soft_wrap=False, width=columns(sys.stdout) or _PIPE_COLUMNS)


def columns(stream: TextIO) -> int | None:
    """How wide a stream is: COLUMNS, or else the width of its terminal; ``None`` where it is no terminal either."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return max(int(asked), _LEAST_COLUMNS)
    try:
        return max(os.get_terminal_size(stream.fileno()).columns, _LEAST_COLUMNS) if stream.isatty() else None
    except (OSError, ValueError):
        return None


def say(message: str) -> None:
    """Print a message for the user on stderr: wrapped at words in a terminal, one line elsewhere."""
    print(wrapped(without_passwords(message), sys.stderr), file=sys.stderr)


def without_passwords(text: str) -> str:
    """A text in which passwords in addresses, such as those of databases, are hidden."""
    return _IN_A_QUERY.sub(r"\1***", _PASSWORD.sub(r"\1:***@", text)) if "://" in text else text


def wrapped(message: str, stream: TextIO, hanging: int = 2) -> str:
    """A message as a stream shows it: wrapped at words in a terminal, where a command at its end stays in one piece.

    Args:
        message: a line; what it is indented by, the lines after it are too.
        stream: to show it on.
        hanging: blanks before the lines after the first, besides.
    """
    width = columns(stream) if stream.isatty() else None
    if width is None or len(message) <= width:
        return message
    indent = message[: len(message) - len(message.lstrip(" "))] + " " * hanging
    command = _COMMAND.search(message)
    text = message if command is None else message[: command.start()].rstrip()
    lines = textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines if command is None else [*lines, indent + command[0]])


class _WithoutBlanks:
    """A stream that leaves out blanks at the ends of lines, which tables are padded with, and passwords."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(_BLANKS.sub(lambda end: end[0].replace(" ", ""), without_passwords(text)))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def typed_command(study: str | None = None) -> str:
    """The command as it was typed, for a study to remember; of the study's own address only what may be shown."""
    from wastenot.study.address import parse_address

    if study is None:
        return shlex.join(["wastenot", *sys.argv[1:]])
    shown = parse_address(study).label
    return shlex.join(["wastenot", *(argument.replace(study, shown) for argument in sys.argv[1:])])


def print_json(kind: str, values: Mapping[str, Any]) -> None:
    """Print what a command returns as one JSON document on stdout."""
    print(without_passwords(json_text(document_of(kind, values))))
