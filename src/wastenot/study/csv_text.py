"""What every CSV file must hold to: UTF-8 text, numbers in plain notation, quotes that are closed."""

from __future__ import annotations

import csv
import re
from typing import Literal

import numpy as np

from wastenot.core.errors import BadInputError

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def check_text(content: bytes, name: str) -> None:
    """Refuse bytes that are no text in UTF-8."""
    position = content.find(b"\0")
    if position >= 0:
        raise BadInputError(
            f"{name}:{_line_at(content, position)}: byte {position}: is NUL, so this is not CSV text; "
            "save it as CSV in UTF-8"
        )
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInputError(
            f"{name}:{_line_at(content, error.start)}: byte {error.start}: "
            f"0x{content[error.start]:02x} is not UTF-8; save the file in UTF-8"
        ) from error


def plain_number(text: str) -> float | None:
    """The number that a text stands for: NaN if it is blank, ``None`` if it is not in plain notation."""
    plain = text.strip()
    if not plain:
        return np.nan
    return float(plain) if _NUMBER.fullmatch(plain) else None


def origin_of(cell: str | None, where: str) -> Literal["measured", "simulated"]:
    """Where the numbers of a row come from, by its column ``origin``; measured where it is blank or there is none.

    Raises:
        BadInputError: it is neither; ``where`` names file and line.
    """
    text = (cell or "").strip().lower()
    if text == "simulated":
        return "simulated"
    if text in ("", "measured"):
        return "measured"
    raise BadInputError(f"{where}: origin: {text!r:.60} must be measured or simulated")


def quoting_problem(error: csv.Error) -> str:
    """What an error of the reader means."""
    if "field limit" in str(error):
        return "a field is longer than 131072 characters; is a quote left open?"
    return f"the quoting is broken ({error}); close each quote, and double a quote inside a quoted field"


def _line_at(content: bytes, position: int) -> int:
    return len(re.findall(rb"\r\n|\r|\n", content[:position])) + 1
