"""What a session and those who speak with it say to each other: JSON objects, one a line, over a Unix socket.

    rank → session     {"hello": "rank", "schema": …, "process": 4711, "local_rank": 0, "world": 8, "program": "torch 2.11"}
    session → rank     {"welcome": true, "wanted": ["backward:11"], "by_layers": true, "reset": ["python", "-m", …]}
    rank → session     {"gpu": "GPU-…"}   {"markers": ["iteration", "embedding"], "at_s": 81.2}   {"seen": {…}}
    rank → session     {"pipeline_rank": 3}   {"markers": ["forward:7"], "at_s": 81.2}          of a pipeline
    session → rank     {"bye": true}

    anyone → session   {"ask": "status"}            session → anyone   {"status": {…}}
    anyone → session   {"ask": "stop"}              session → anyone   {"stopped": true}

Loaded into other people's programs, so it imports little but the standard library.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from wastenot.core.lines import LineReader
from wastenot.core.processes import number_in_environment

SCHEMA: Final = "wastenot.session/1"
VARIABLE: Final = "WASTENOT_APPLY"
"""Names the session's socket to the programs that it runs."""

PIPELINE: Final = "WASTENOT_APPLY_PIPELINE"
"""Set where the plan is for a pipeline, whose instructions are to be marked rather than passes."""

SEATED_BY: Final = ("RANK", "WORLD_SIZE", "WASTENOT_REPLICA", "WASTENOT_STRAGGLER", "WASTENOT_STRAGGLER_TOKEN")
"""What a rank of a pipeline says of its environment: where it belongs, and who tells it that others are slow."""

LONGEST = 1 << 20
"""Bytes of a line, beyond which whoever sends it is no friend."""

_ANSWER_S = 10.0
_HEARD_S = 0.5

Message = dict[str, Any]


def listen_at(path: str, listening: socket.socket, backlog: int = 16) -> None:
    """Listen on a Unix socket that has its path only once it listens.

    Whoever asks at a path where nobody listens takes the socket for one of a process that died, and removes it.

    Args:
        path: only this user may connect there; whatever it held is replaced.
        listening: the socket, not bound yet.
        backlog: connections that wait to be accepted.

    Raises:
        OSError: it cannot be made.
    """
    made = f"{path}~"
    with suppress(FileNotFoundError):
        os.unlink(made)
    listening.bind(made)
    os.chmod(made, 0o600)
    listening.listen(backlog)
    os.replace(made, path)


class Line:
    """One end of a connection."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._reader = LineReader(LONGEST)
        self._sending = threading.Lock()

    @classmethod
    def to(cls, path: str, timeout_s: float = _ANSWER_S) -> Line:
        """Connect to a session; raises :class:`OSError` where none listens."""
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connected.settimeout(timeout_s)
            connected.connect(path)
        except OSError:
            connected.close()
            raise
        return cls(connected)

    def send(self, message: Message) -> None:
        """Send a message; from any thread."""
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._sending:
            self.socket.sendall(data)

    def ask(self, message: Message) -> Message:
        """Send a message and wait for the answer.

        Raises:
            OSError: there was none.
        """
        self.send(message)
        while True:
            data = self.socket.recv(LONGEST)
            if not data:
                raise ConnectionResetError("it disconnected")
            for answer in self.taken(data):
                return answer

    def taken(self, data: bytes) -> Iterator[Message]:
        """The messages that are whole with what has come now.

        Raises:
            LineError: it is no message.
        """
        return self._reader.taken(data)

    def close(self) -> None:
        """Hang up."""
        self.socket.close()

    def close_when_heard(self) -> None:
        """Hang up once the other end has taken all that was sent, which then hangs up, too; or does not answer."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
            self.socket.settimeout(_HEARD_S)
            while self.socket.recv(LONGEST):
                pass
        finally:
            self.socket.close()


def hello(program: str) -> Message:
    """What a rank says first."""
    return {
        "hello": "rank",
        "schema": SCHEMA,
        "process": os.getpid(),
        "local_rank": number_in_environment("LOCAL_RANK", 0),
        "world": number_in_environment("WORLD_SIZE", 1),
        "program": program,
    }


def is_friend(connected: socket.socket) -> bool:
    """Whether the other end is the same user, or root."""
    peer = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    user = struct.unpack("3i", peer)[1]
    return user in (os.geteuid(), 0)


def ask(path: Path, what: Literal["status", "stop"]) -> Message | None:
    """Ask a session; ``None`` where none listens any more, whose socket is removed.

    Raises:
        OSError: it does not answer.
        ValueError: what it answers is no message.
    """
    try:
        line = Line.to(str(path))
    except (ConnectionRefusedError, FileNotFoundError):
        with suppress(OSError):
            path.unlink()
        return None
    try:
        return line.ask({"ask": what})
    finally:
        line.close()
