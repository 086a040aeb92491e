"""What the straggler server and ranks say to each other: JSON objects, one a line, over a Unix or TCP socket.

    rank → server     {"hello": "rank", "schema": …, "replica": 0, "rank": 3, "digest": "sha256:…", "token": …}
    server → rank     {"welcome": true, "order": [0, 0, 200, -1]}  as of Order
    rank → server     {"iteration": 17, "factor": 1.21, "throttled": "thermal", "suspects": false}
    server → rank     {"order": [4, 20, 220, -1]}   {"bye": true}

    anyone → server   {"ask": "status"}   {"ask": "tell", "replica": 1, "slower": 0.2, "for_s": 60}   {"ask": "clear"}
    server → anyone   {"status": {…}}   {"done": true}   {"refused": "why"}

Loaded into training programs, so it imports nothing but the standard library.
"""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any, Final

from wastenot.control.wire import Line

SCHEMA: Final = "wastenot.straggler/1"
ADDRESS: Final = "WASTENOT_STRAGGLER"
"""Names the server's address to ranks: a path, or HOST:PORT."""
TOKEN_FILE: Final = "WASTENOT_STRAGGLER_TOKEN"
"""Names the file of the token to ranks, for TCP."""

_ANSWER_S = 5.0
_LEAST_TOKEN = 16


def parse_address(text: str) -> str | tuple[str, int]:
    """A path, or host and port.

    Raises:
        ValueError: it is neither.
    """
    host, colon, port = text.rpartition(":")
    if not colon or "/" in text:
        if not text:
            raise ValueError("an address is a path, or HOST:PORT")
        return text
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"'{text}' is neither a path nor HOST:PORT")
    return host.strip("[]"), int(port)


def read_token(path: str | os.PathLike[str]) -> str:
    """The token in a file.

    Raises:
        ValueError: the file is open to others, or its token is short.
        OSError: it cannot be read.
    """
    if stat.S_IMODE(os.stat(path).st_mode) & 0o077:
        raise ValueError(f"{path}: other users may read this token; chmod 600 it")
    token = Path(path).read_text(encoding="utf-8").strip()
    if len(token) < _LEAST_TOKEN:
        raise ValueError(f"{path}: a token has at least {_LEAST_TOKEN} characters; make one with 'openssl rand -hex 32'")
    return token


def connect(address: str, timeout_s: float = _ANSWER_S) -> Line:
    """Connect to a server.

    Raises:
        OSError: none answers.
        ValueError: it is no address.
    """
    where = parse_address(address)
    if isinstance(where, str):
        return Line.to(where, timeout_s)
    connected = socket.create_connection(where, timeout_s)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Line(connected)


def ask(address: str, message: dict[str, Any], token: str | None = None) -> dict[str, Any]:
    """Ask a server.

    Raises:
        OSError: none answers.
        ValueError: it is no address, or the server refuses; the text says why.
    """
    line = connect(address)
    try:
        answer = line.ask(message if token is None else {**message, "token": token})
    finally:
        line.close()
    if "refused" in answer:
        raise ValueError(str(answer["refused"]))
    return answer
