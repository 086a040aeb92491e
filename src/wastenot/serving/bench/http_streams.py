"""Just enough of HTTP/1.1 to read thousands of streams at once, each piece with the time at which it came.

A general client spends 20 µs or more on each piece of a stream, mostly to wake a task that reads it. With thousands of
streams that is more than one core has, and what is measured is the client. Here a piece is read where the event loop
hands it over, and tasks wake only when an answer is complete.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol
from urllib.parse import urlsplit

from wastenot.core.errors import BadInputError

CONNECT_S = 30.0
QUIET_S = 300.0  # without a byte, before an answer is given up

_LONGEST_HEAD = 1 << 16
_NO_BODY = frozenset({204, 304})


class Reply(Protocol):
    """What takes in an answer as it comes."""

    def head(self, status: int, headers: dict[str, str]) -> None:
        """The status and headers; names in lower case."""

    def data(self, data: bytes, now_s: float) -> None:
        """A piece of the body, and when it came by the clock of ``time.perf_counter``."""


class StaleConnectionError(ConnectionResetError):
    """The server closed a connection that was kept open before it was used again."""


class Pool:
    """Connections to one server, kept open between requests.

    Args:
        url: of the server.
        quiet_s: without a byte, before an answer is given up.
    """

    def __init__(self, url: str, *, quiet_s: float = QUIET_S) -> None:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        self.host, self.port = parts.hostname or "", parts.port or (443 if secure else 80)
        self.name = parts.netloc.rpartition("@")[2]
        self.ssl = ssl.create_default_context() if secure else None
        self.quiet_s = quiet_s
        self.idle: list[Connection] = []
        self.all: set[Connection] = set()
        self._address: str | None = None

    async def post(self, path: str, headers: dict[str, str], body: bytes, reply: Reply) -> None:
        """Send a request and wait until its answer is complete.

        Raises:
            StaleConnectionError: nothing was answered on a connection that had been kept open; try again.
            OSError: there is no connection, or it broke.
            TimeoutError: nothing came for too long.
            ValueError: the answer is not HTTP, or the reply could not read it.
        """
        connection = self._kept() or await self._new()
        lines = [f"POST {path} HTTP/1.1", f"Host: {self.name}", f"Content-Length: {len(body)}", "Accept: */*"]
        head = "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers.items())])
        try:
            await connection.send(head.encode("latin-1", "replace") + b"\r\n\r\n" + body, reply)
        finally:
            connection.release()

    async def close(self) -> None:
        """Close all connections."""
        for connection in list(self.all):
            connection.abort()
        await asyncio.sleep(0)

    def _kept(self) -> Connection | None:
        while self.idle:
            connection = self.idle.pop()
            if not connection.transport.is_closing():
                return connection
        return None

    async def _new(self) -> Connection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_S):
            _, connection = await loop.create_connection(
                lambda: Connection(self), self._address or self.host, self.port, ssl=self.ssl,
                server_hostname=self.host if self.ssl else None,
            )  # fmt: skip
        # Later connections go to the same address, without asking for it again.
        self._address = connection.transport.get_extra_info("peername")[0]
        return connection


class Connection(asyncio.Protocol):
    """A connection, on which one request is answered at a time."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.transport: asyncio.Transport
        self.used = False
        self._reply: Reply | None = None
        self._over: asyncio.Future[None] | None = None
        self._rest = b""
        self._heard = False
        self._last_s = 0.0
        self._timer: asyncio.TimerHandle
        self._reset()

    def _reset(self) -> None:
        self._in_body = False
        self._chunked = False
        self._left: int | None = None
        self._keep = True

    async def send(self, request: bytes, reply: Reply) -> None:
        """Send a request, and wait for the end of its answer."""
        loop = asyncio.get_running_loop()
        self._reset()
        self._rest, self._reply, self._over = b"", reply, loop.create_future()
        self._heard = False
        self._last_s = time.perf_counter()
        self._timer = loop.call_later(self.pool.quiet_s, self._look)
        try:
            self.transport.write(request)
            await self._over
        finally:
            self._timer.cancel()
            self._reply, self._over = None, None

    def _look(self) -> None:
        """Give an answer up if nothing came for long; look again later otherwise."""
        left_s = self._last_s + self.pool.quiet_s - time.perf_counter()
        if left_s > 0.0:
            self._timer = asyncio.get_running_loop().call_later(left_s, self._look)
        elif self._over is not None and not self._over.done():
            self._over.set_exception(TimeoutError())

    def release(self) -> None:
        """Keep the connection for the next request if its answer was complete; close it otherwise."""
        complete = self._in_body and self._left == 0
        if complete and self._keep and not self.transport.is_closing():
            self.used = True
            self.pool.idle.append(self)
        else:
            self.abort()

    def abort(self) -> None:
        """Close it at once."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """There is a connection."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.pool.all.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self.pool.all.discard(self)
        if self._over is None or self._over.done():
            return
        if exc is None and self._in_body and not self._chunked and self._left is None:
            self._over.set_result(None)  # the end of the connection ends the answer
        elif self.used and not self._heard:
            self._over.set_exception(StaleConnectionError("disconnected"))
        else:
            self._over.set_exception(exc or ConnectionResetError("disconnected"))

    def data_received(self, data: bytes) -> None:
        """A piece came."""
        now_s = time.perf_counter()
        if self._over is None or self._over.done():
            self.abort()  # nobody asked for anything
            return
        self._heard, self._last_s = True, now_s
        try:
            self._take(self._rest + data if self._rest else data, now_s)
        except Exception as error:  # of the reply too: whoever waits for the answer is told
            if not self._over.done():
                self._over.set_exception(error)
            self.abort()

    def _take(self, data: bytes, now_s: float) -> None:
        assert self._reply is not None
        if not self._in_body:
            head, blank, data = data.partition(b"\r\n\r\n")
            if not blank:
                if len(head) > _LONGEST_HEAD:
                    raise ValueError("an answer that is not HTTP")
                self._rest = head
                return
            if not self._begin(head):
                self._rest = b""
                if data:
                    self._take(data, now_s)
                return
        if self._chunked:
            self._rest = data[self._chunks(data, now_s) :]
        else:
            self._rest = b""
            if data:
                self._reply.data(data, now_s)
            if self._left is not None:
                self._left = max(self._left - len(data), 0)
        if self._left == 0 and self._over is not None and not self._over.done():
            self._over.set_result(None)

    def _begin(self, head: bytes) -> bool:
        """Take in a head; whether it is that of the answer, rather than one that says to wait for it."""
        first, *lines = head.decode("latin-1").split("\r\n")
        protocol, _, rest = first.partition(" ")
        if not protocol.startswith("HTTP/1") or not rest[:3].isdigit():
            raise ValueError("an answer that is not HTTP")
        status = int(rest[:3])
        if status < 200:
            return False
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        self._in_body = True
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        length = headers.get("content-length", "")
        self._left = 0 if status in _NO_BODY else int(length) if length.isdigit() and not self._chunked else None
        self._keep = protocol == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        assert self._reply is not None
        self._reply.head(status, headers)
        return True

    def _chunks(self, data: bytes, now_s: float) -> int:
        """Take in whole chunks; how far they reach."""
        assert self._reply is not None
        at = 0
        while True:
            end = data.find(b"\r\n", at)
            if end < 0:
                return at
            size = int(data[at:end].partition(b";")[0], 16)
            if size == 0:
                if data.find(b"\r\n\r\n", end) < 0:
                    return at
                self._left = 0
                return len(data)
            begin, stop = end + 2, end + 2 + size
            if len(data) < stop + 2:
                return at
            self._reply.data(data[begin:stop], now_s)
            at = stop + 2


_MANY = 1 << 14
_BESIDE = 256  # files of the program itself


@contextmanager
def open_files(connections: int | None) -> Iterator[None]:
    """Let this process open a number of connections inside the context, within what the system allows it.

    Args:
        connections: at once; ``None`` for as many as there may come to be.

    Raises:
        BadInputError: the system does not allow as many.
    """
    try:
        import resource
    except ImportError:  # a system without such limits
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = (_MANY if connections is None else connections) + _BESIDE
    if connections is None and hard != resource.RLIM_INFINITY:
        needed = min(needed, hard)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        yield
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise BadInputError(
            f"{connections:,} concurrent requests need as many connections, but this process may open only {hard:,} files; "
            f"raise its limit, as with 'ulimit -Hn {needed}'"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
