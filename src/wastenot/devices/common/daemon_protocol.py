"""What wastenotd and its clients say to each other: a line of JSON for each request, and one for each reply.

    {"wastenot": 1, "ask": "acquire", "gpu": "GPU-...", "claim": true}      {"wastenot": 1, "ok": {...}}
    {"wastenot": 1, "ask": "set", "gpu": "GPU-...", "core_mhz": 1410.0}     {"wastenot": 1, "error": "leased", "text": "..."}

A client asks one thing after another: ``hello`` first, in which both say their minor version, then ``status``, ``acquire``,
``set``, ``release`` and ``beat``; and ``frontier``, where ``hello`` said that the GPU shares a budget.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from wastenot.core.lines import LineError, object_of

VERSION = 1
MINOR = 1
"""Of the version; who says none has 0. Fields and answers are added with it, and none changes its meaning.

Daemon and clients work with who is one behind, so that they need not be upgraded at once: see :func:`is_understood`.
"""
SOCKET_VARIABLE = "WASTENOTD_SOCKET"
SOCKET = Path("/run/wastenot/wastenotd.sock")
"""Alone in its folder, which containers mount to reach it: journals and rules are elsewhere."""
LONGEST_LINE = 4096  # bytes of a request
MOST_POINTS = 32  # of a frontier in a request, which a line has room for
LONGEST_REPLY = 1 << 20  # bytes
_DEEPEST = 4  # of a request, whose fields are plain values; of a later version perhaps lists


def socket_path() -> Path:
    """Where the daemon listens: ``WASTENOTD_SOCKET``, else in ``/run/wastenot``."""
    return Path(os.environ.get(SOCKET_VARIABLE) or SOCKET)


def is_understood(minor: object) -> bool:
    """Whether this side works with a minor version: its own, the one before, or a later one, which decides for itself."""
    return type(minor) is int and minor >= MINOR - 1


def encode(message: dict[str, Any]) -> bytes:
    """A message as a line."""
    return json.dumps({"wastenot": VERSION} | message, allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """The request of a line, which comes without its end.

    Raises:
        LineError: it is not a JSON object of this protocol, of whatever version.
    """
    return checked(object_of(line, deepest=_DEEPEST))


def checked(message: dict[str, Any]) -> dict[str, Any]:
    """A message, if it is of this protocol, of whatever version.

    Raises:
        LineError: it is not.
    """
    if type(message.get("wastenot")) is not int:
        raise LineError('not an object with a version ("wastenot")')
    return message
