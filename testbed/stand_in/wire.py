"""Requests and replies over a unix socket: each a pickle behind its length. For tests only: both ends trust each other."""

from __future__ import annotations

import os
import pickle
import socket
import struct
import threading
from typing import Any

_LENGTH = struct.Struct("<I")


def send(connection: socket.socket, message: object) -> None:
    """Send one message."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    connection.sendall(_LENGTH.pack(len(body)) + body)


def receive(connection: socket.socket) -> Any:
    """The next message.

    Raises:
        EOFError: the other end has gone.
    """
    have = connection.recv(65536)
    while have and len(have) < _LENGTH.size:
        have += _more(connection)
    if not have:
        raise EOFError("the other end has gone")
    (length,) = _LENGTH.unpack_from(have)
    while len(have) < _LENGTH.size + length:
        have += _more(connection)
    return pickle.loads(memoryview(have)[_LENGTH.size :])


def _more(connection: socket.socket) -> bytes:
    more = connection.recv(65536)
    if not more:
        raise EOFError("the other end has gone in the middle of a message")
    return more


class Client:
    """A connection to the server that threads may share; a forked child makes its own.

    A request that was sent is always served to its end, as a call into a driver is: where a signal's handler raises in
    the middle, the exception comes after that.

    Args:
        path: of the server's socket.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._socket: socket.socket | None = None
        self._process = os.getpid()
        self._turn = threading.Lock()

    def request(self, *message: object) -> Any:
        """What the server answers; raises what it raises."""
        if self._process != os.getpid():
            self._process, self._turn, self._socket = os.getpid(), threading.Lock(), None
        with self._turn:
            connection = self._connected()
            try:
                send(connection, message)
                succeeded, value = receive(connection)
            except BaseException:
                self._finish(connection)
                raise
        if not succeeded:
            raise value
        return value

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None and self._process == os.getpid():
            self._socket.close()
        self._socket = None

    def _connected(self) -> socket.socket:
        if self._socket is None:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.connect(self.path)
            except OSError:
                connection.close()
                raise
            self._socket = connection
        return self._socket

    def _finish(self, connection: socket.socket) -> None:
        """Wait until the server has served what it was sent, then hang up."""
        try:
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        except OSError:
            pass
        connection.close()
        self._socket = None
