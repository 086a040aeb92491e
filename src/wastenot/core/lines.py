"""JSON objects that others send, one a line, read within bounds: how long, how deep, and finite numbers only.

What sessions, straggler servers and all clients read with :class:`LineReader`; the clock daemon takes its lines one by one,
each when its client may be served, and reads them with :func:`object_of`. Loaded into other people's programs, so it imports
nothing but the standard library.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\\?\Z)', re.DOTALL)  # one that does not end takes the rest: in one pass
_BRACKET = re.compile(rb"[\[{\]}]")
_LARGEST = 1 << 63  # of whole numbers


class LineError(ValueError):
    """A line that is no message; the text says why."""


class LineReader:
    """Takes what comes in pieces, and gives it back line by line.

    Args:
        longest: line, in bytes; may be changed while it reads.
        deepest: objects and lists in one another.
    """

    def __init__(self, longest: int, deepest: int = 16) -> None:
        self.longest, self._deepest = longest, deepest
        self._received = b""

    def taken(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The messages that are whole with what has come now.

        Args:
            data: what has come.

        Raises:
            LineError: a line is none, or too long.
        """
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            self._check(line)
            yield object_of(line, deepest=self._deepest)
        self._check(self._received)

    def _check(self, line: bytes) -> None:
        if len(line) > self.longest:
            raise LineError(f"a line is longer than {self.longest} bytes")


def object_of(line: bytes, *, deepest: int = 16) -> dict[str, Any]:
    """The JSON object of a line.

    Args:
        line: without its end.
        deepest: objects and lists in one another.

    Raises:
        LineError: it is none, is nested more deeply, has a field twice, or a number that is not finite or too large.
    """
    if line.count(b"{") + line.count(b"[") > deepest and _depth(line) > deepest:
        raise LineError(f"nested more than {deepest} deep")
    try:
        message = json.loads(
            line.decode(), object_pairs_hook=_unique, parse_constant=_not_finite, parse_float=_finite, parse_int=_whole
        )
    except LineError:
        raise
    except (ValueError, RecursionError) as error:
        raise LineError(str(error) or "not JSON") from error
    if not isinstance(message, dict):
        raise LineError("not a JSON object")
    return message


def _depth(line: bytes) -> int:
    depth = deepest = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", line)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise LineError("a field is given twice")
    return found


def _not_finite(name: str) -> float:
    raise LineError(f"{name} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise LineError(f"{text[:20]} is not finite")
    return value


def _whole(text: str) -> int:
    value = int(text) if len(text) <= 20 else _LARGEST
    if abs(value) >= _LARGEST:
        raise LineError(f"{text[:20]} is too large")
    return value
