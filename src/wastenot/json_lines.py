"""Where in a JSON text a field stands, so that an error can name the line."""

from __future__ import annotations

import json
import re

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def line_of(text: str, path: tuple[int | str, ...]) -> int:
    """The line (from 1) of the value at ``path`` in a valid JSON text, or of the deepest part of the path there is.

    Args:
        text: a JSON document.
        path: keys and indices from the root.
    """
    position = _skip(text, 0)
    for step in path:
        inner = _child(text, position, step)
        if inner is None:
            break
        position = inner
    return text.count("\n", 0, position) + 1


def _child(text: str, position: int, step: int | str) -> int | None:
    """Position of one member of the object or array that begins at ``position``."""
    opening = text[position : position + 1]
    if opening not in ("{", "["):
        return None
    position = _skip(text, position + 1)
    index = 0
    while text[position : position + 1] not in ("}", "]", ""):
        key: int | str = index
        if opening == "{":
            key, end = _DECODER.raw_decode(text, position)
            position = _skip(text, _skip(text, end) + 1)  # past the colon
        if key == step:
            return position
        _, end = _DECODER.raw_decode(text, position)
        position = _skip(text, end)
        if text[position : position + 1] == ",":
            position = _skip(text, position + 1)
        index += 1
    return None


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position
