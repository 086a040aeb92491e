"""What wastenotd and its clients say to each other: a line of JSON for each request, and one for each reply.

    {"wastenot": 1, "ask": "acquire", "gpu": "GPU-...", "claim": true}      {"wastenot": 1, "ok": {...}}
    {"wastenot": 1, "ask": "set", "gpu": "GPU-...", "core_mhz": 1410.0}     {"wastenot": 1, "error": "leased", "text": "..."}

A client asks one thing after another: ``hello`` first, then ``status``, ``acquire``, ``set``, ``release`` and ``beat``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from wastenot.core.lines import LineError, object_of
from wastenot.devices.common.journal import MACHINE

VERSION = 1
SOCKET_VARIABLE = "WASTENOTD_SOCKET"
SOCKET = MACHINE / "wastenotd.sock"
LONGEST_LINE = 4096  # bytes of a request
LONGEST_REPLY = 1 << 20  # bytes
_DEEPEST = 2  # of a request, whose fields are plain values


def socket_path() -> Path:
    """Where the daemon listens: ``WASTENOTD_SOCKET``, else in ``/run/wastenot``."""
    return Path(os.environ.get(SOCKET_VARIABLE) or SOCKET)


def encode(message: dict[str, Any]) -> bytes:
    """A message as a line."""
    return json.dumps({"wastenot": VERSION} | message, allow_nan=False).encode() + b"\n"


def decode(line: bytes, *, deepest: int = _DEEPEST) -> dict[str, Any]:
    """The message of a line.

    Args:
        line: without the newline.
        deepest: objects and lists in one another.

    Raises:
        LineError: it is not a JSON object of this protocol, of whatever version.
    """
    message = object_of(line, deepest=deepest)
    if type(message.get("wastenot")) is not int:
        raise LineError('not an object with a version ("wastenot")')
    return message
