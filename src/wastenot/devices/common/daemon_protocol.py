"""What wastenotd and its clients say to each other: a line of JSON for each request, and one for each reply.

    {"wastenot": 1, "ask": "acquire", "gpu": "GPU-...", "claim": true}      {"wastenot": 1, "ok": {...}}
    {"wastenot": 1, "ask": "set", "gpu": "GPU-...", "core_mhz": 1410.0}     {"wastenot": 1, "error": "leased", "text": "..."}

A client asks one thing after another: ``hello`` first, in which both say their minor version, then ``status``, ``acquire``,
``set``, ``release`` and ``beat``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

VERSION = 1
MINOR = 1
"""Of the version; who says none has 0. Fields and answers are added with it, and none changes its meaning.

Daemon and clients work with who is one behind, so that they need not be upgraded at once: see :func:`is_understood`.
"""
SOCKET_VARIABLE = "WASTENOTD_SOCKET"
SOCKET = Path("/run/wastenot/wastenotd.sock")
"""Alone in its folder, which containers mount to reach it: journals and rules are elsewhere."""
LONGEST_LINE = 4096  # bytes of a request
LONGEST_REPLY = 1 << 20  # bytes
_DEEPEST = 4  # brackets in a request, whose fields are plain values


class MessageError(ValueError):
    """A line that is no message; the text says why."""


def socket_path() -> Path:
    """Where the daemon listens: ``WASTENOTD_SOCKET``, else in ``/run/wastenot``."""
    return Path(os.environ.get(SOCKET_VARIABLE) or SOCKET)


def is_understood(minor: object) -> bool:
    """Whether this side works with a minor version: its own, the one before, or a later one, which decides for itself."""
    return type(minor) is int and minor >= MINOR - 1


def encode(message: dict[str, Any]) -> bytes:
    """A message as a line."""
    return json.dumps({"wastenot": VERSION} | message, allow_nan=False).encode() + b"\n"


def decode(line: bytes, *, deepest: int = _DEEPEST) -> dict[str, Any]:
    """The message of a line.

    Args:
        line: without the newline.
        deepest: how many brackets it may open.

    Raises:
        MessageError: it is not a JSON object of this protocol, of whatever version.
    """
    if line.count(b"{") + line.count(b"[") > deepest:
        raise MessageError("too many brackets")
    try:
        message = json.loads(line.decode(), object_pairs_hook=_unique, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        raise MessageError(str(error) or "not JSON") from error
    if not isinstance(message, dict) or type(message.get("wastenot")) is not int:
        raise MessageError('not an object with a version ("wastenot")')
    return message


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise MessageError("a field is given twice")
    return found


def _finite(name: str) -> float:
    raise MessageError(f"{name} is not a number")
