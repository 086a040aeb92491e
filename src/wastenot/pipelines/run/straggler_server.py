"""The socket of the straggler server: one thread, many ranks, none of which can make it wait."""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import socket
import stat
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from wastenot.control.wire import LONGEST, Line, is_friend, listen_at
from wastenot.core.errors import BadInputError, WastenotError
from wastenot.core.lines import LineReader
from wastenot.pipelines.run.straggler_wire import SCHEMA, parse_address
from wastenot.pipelines.run.stragglers import Order, Stragglers

_BACKLOG = 1024
_PIECE = 1 << 16  # bytes read at once
_LONGEST = 1 << 16  # bytes of a line; no rank has more to say
_LONGEST_UNTRUSTED, _UNTRUSTED_S = 4096, 5.0  # of those who have not shown the token, and how long they may take
_UNTRUSTED_LEAST_S = 1.0  # in which what they have sent already is read, however many come at once
_MOST_UNTRUSTED_OF_ONE, _MOST_UNTRUSTED = 64, 512  # of one address, and of all; beyond, the oldest has to go
_LONGEST_SLEEP_S = 0.5
_MOST_UNREAD = LONGEST + (1 << 16)  # bytes that wait for a rank that does not read


class _Client:
    """Somebody at the other end; nothing that is sent to it blocks."""

    def __init__(self, writer: asyncio.StreamWriter, trusted: bool) -> None:
        self.writer, self.came_s = writer, time.monotonic()
        self.reader = LineReader(_LONGEST if trusted else _LONGEST_UNTRUSTED)
        self.trusted = trusted
        self.seat: tuple[int, int] | None = None

    @property
    def host(self) -> str:
        """Its address."""
        peer = self.writer.get_extra_info("peername")
        return str(peer[0]) if peer else ""

    def trust(self) -> None:
        """It has shown that it knows the token."""
        self.trusted, self.reader.longest = True, _LONGEST

    def send(self, message: Mapping[str, Any]) -> None:
        """Send as much as can be sent now, and the rest later.

        Raises:
            OSError: it is gone, or does not read.
        """
        if self.writer.is_closing():
            raise ConnectionResetError
        self.writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        if self.writer.transport.get_write_buffer_size() > _MOST_UNREAD:
            self.writer.transport.abort()
            raise ConnectionAbortedError("it does not read")


class StragglerServer:
    """Serves ranks while the context is open.

    Args:
        stragglers: what decides.
        address: to listen on: a path, or HOST:PORT; port 0 takes a free one.
        token: that who connects over TCP must know.
        digest: of the plan, which that of ranks must be; empty for any.

    Attributes:
        stragglers: what decides.
        address: where it listens.
        problem: why it has ended by itself; ``None`` otherwise.

    Raises:
        BadInputError: it cannot listen there, or TCP has no token.
    """

    def __init__(self, stragglers: Stragglers, address: str, *, token: str | None = None, digest: str = "") -> None:
        self.stragglers, self._token, self._digest = stragglers, token, digest
        try:
            where = parse_address(address)
        except ValueError as error:
            raise BadInputError(f"`at`: {error}") from error
        self._path = Path(where) if isinstance(where, str) else None
        if self._path is None and token is None:
            raise BadInputError(f"`at` {address}: clients over TCP must present a token; give `token_file`")
        self.problem: str | None = None
        self._clients: dict[_Client, None] = {}  # the oldest first
        self._seats: dict[tuple[int, int], _Client] = {}
        try:
            self._listening = _bound(where)
        except OSError as error:
            raise BadInputError(f"{address}: cannot listen there: {error.strerror or error}") from error
        self.address = address if isinstance(where, str) else f"{where[0]}:{self._listening.getsockname()[1]}"
        self._over, self._hanging_up = threading.Event(), False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="wastenot-straggler-server", daemon=True)

    def __enter__(self) -> StragglerServer:
        """Serve in a thread of its own."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up."""
        self.close()

    def close(self) -> None:
        """Hang up and leave no socket, also where an interrupt came while the server was starting."""
        self.stop()
        if self._thread.ident is not None:
            self._thread.join(60.0)
        self._listening.close()
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()

    def stop(self) -> None:
        """Let it come to its end; from any thread, or a signal."""
        self._over.set()
        if self._loop is not None:
            with suppress(RuntimeError):  # it has come to its end
                self._loop.call_soon_threadsafe(self._woken.set)

    def wait(self, seconds: float) -> bool:
        """Wait for so long at most; whether it still serves."""
        return not self._over.wait(seconds)

    # ---- inside ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:  # ranks notice that it is gone, and so must whoever waits for it
            self.problem = f"{type(error).__name__}: {error}"
        finally:
            self._over.set()

    async def _serve(self) -> None:
        self._woken, self._loop = asyncio.Event(), asyncio.get_running_loop()
        start: Any = asyncio.start_server if self._path is None else asyncio.start_unix_server
        server = await start(self._hear, sock=self._listening, limit=_PIECE, backlog=_BACKLOG)
        try:
            while not self._over.is_set():
                with suppress(TimeoutError):
                    due_s = self.stragglers.due_s() - time.monotonic()
                    await asyncio.wait_for(self._woken.wait(), max(min(due_s, _LONGEST_SLEEP_S), 0.0))
                    self._woken.clear()
                self._pass_on(self.stragglers.act(time.monotonic()))
        finally:
            self._hanging_up = True  # and over only once it is known why
            server.close()
            for client in self._clients:
                with suppress(OSError):
                    client.send({"bye": True})
                client.writer.close()

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Listen to a client until it is gone, or says what makes no sense."""
        if self._path is not None and not is_friend(writer.get_extra_info("socket")):
            writer.close()
            return
        client = _Client(writer, trusted=self._path is not None)
        self._clients[client] = None
        try:
            async with asyncio.timeout(_UNTRUSTED_S) as patience:
                self._make_room(client)
                while data := await reader.read(_PIECE):
                    for message in client.reader.taken(data):
                        self._take(client, message)
                        self._woken.set()  # it may be due earlier now
                    if client.trusted:
                        patience.reschedule(None)
        except asyncio.CancelledError:  # the server's end, of which asyncio would print a traceback
            pass
        except Exception:  # whatever one of them sends, the others do not suffer for it
            pass
        finally:
            self._drop(client)

    def _make_room(self, came: _Client) -> None:
        """Disconnect those who have not shown the token for longest, where there are too many of them."""
        late_s = time.monotonic() - _UNTRUSTED_LEAST_S
        untrusted = [] if came.trusted else [each for each in self._clients if not each.trusted and each.came_s < late_s]
        of_one = [each for each in untrusted if each.host == came.host]
        for each in {*of_one[:-_MOST_UNTRUSTED_OF_ONE], *untrusted[:-_MOST_UNTRUSTED]}:
            each.writer.transport.abort()

    def _drop(self, client: _Client) -> None:
        client.writer.close()
        self._clients.pop(client, None)
        if client.seat is not None and self._seats.get(client.seat) is client and not self._hanging_up:
            del self._seats[client.seat]
            self._pass_on(self.stragglers.leave(*client.seat, time.monotonic()))

    def _take(self, client: _Client, message: dict[str, Any]) -> None:
        stragglers, now_s = self.stragglers, time.monotonic()
        if "iteration" in message:
            if client.seat is not None:
                throttled, factor = message.get("throttled"), message["factor"]
                self._pass_on(
                    stragglers.report(
                        *client.seat, int(message["iteration"]), None if factor is None else float(factor), now_s,
                        None if throttled is None else str(throttled)[:40],
                        suspects=bool(message.get("suspects")),
                    )
                )  # fmt: skip
            return
        if not client.trusted and not self._knows(message.get("token")):
            client.send({"refused": "the token is not this server's"})
            raise PermissionError
        client.trust()
        try:
            if message.get("hello") == "rank":
                client.send(self._welcomed(client, message))
            else:
                client.send(self._answer(message, now_s))
        except WastenotError as error:
            client.send({"refused": str(error)})

    def _knows(self, token: object) -> bool:
        return (
            isinstance(token, str) and self._token is not None and hmac.compare_digest(token.encode(), self._token.encode())
        )

    def _welcomed(self, client: _Client, message: dict[str, Any]) -> dict[str, Any]:
        if message.get("schema") != SCHEMA:
            return {"refused": f"the server speaks {SCHEMA}, and this program {message.get('schema')}"}
        if self._digest and message.get("digest") not in ("", self._digest):
            return {"refused": "the server has another plan; start it with the plan that the ranks run"}
        seat = int(message["replica"]), int(message["rank"])
        order = self.stragglers.join(*seat, time.monotonic())
        client.seat = seat
        self._seats[seat] = client
        return {"welcome": True, "order": _listed(order)}

    def _answer(self, message: dict[str, Any], now_s: float) -> dict[str, Any]:
        asked = message.get("ask")
        if asked == "status":
            return {"status": {**self.stragglers.status(), "at": self.address, "process": os.getpid()}}
        if asked == "tell":
            for_s = message.get("for_s")
            orders = self.stragglers.tell(
                int(message["replica"]), float(message["slower"]), now_s, float("inf") if for_s is None else float(for_s)
            )
        elif asked == "clear":
            replica = message.get("replica")
            orders = self.stragglers.clear(None if replica is None else int(replica), now_s)
        elif asked == "stop":
            self.stop()
            return {"done": True}
        else:
            return {"refused": f"this server speaks {SCHEMA}"}
        self._pass_on(orders)
        return {"done": True}

    def _pass_on(self, orders: Mapping[int, Order]) -> None:
        for (replica, _), client in tuple(self._seats.items()):
            if replica in orders:
                with suppress(OSError):  # who listens to it notices, too
                    client.send({"order": _listed(orders[replica])})


def _bound(where: str | tuple[str, int]) -> socket.socket:
    if not isinstance(where, str):
        return socket.create_server(where, backlog=_BACKLOG)
    _refuse_second(where)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listen_at(where, bound, _BACKLOG)
    return bound


def _refuse_second(path: str) -> None:
    """Remove the socket of a server that died."""
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise BadInputError(f"{path}: exists and is not a socket; name another path")
    try:
        Line.to(path).close()
    except ConnectionRefusedError:
        os.unlink(path)
        return
    raise BadInputError(f"{path}: a straggler server is already listening there")


def _listed(order: Order) -> list[int]:
    return [order.rung, order.begin, order.until, order.compare]
