"""The socket of the straggler server: one thread, many ranks, none of which can make it wait."""

from __future__ import annotations

import hmac
import json
import os
import selectors
import socket
import stat
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from wastenot.control.session import is_friend
from wastenot.control.wire import LONGEST, Line
from wastenot.core.errors import BadInputError, WastenotError
from wastenot.pipelines.run.straggler_wire import SCHEMA, parse_address
from wastenot.pipelines.run.stragglers import Order, Stragglers

_BACKLOG = 1024
_LONGEST_SLEEP_S = 0.5
_MOST_UNREAD = 1 << 16  # bytes that wait for a rank that does not read
_READ = 1 << 16


class _Client:
    """Somebody at the other end; nothing that is sent to it blocks."""

    def __init__(self, connected: socket.socket, trusted: bool) -> None:
        self.line = Line(connected)
        self.trusted = trusted
        self.seat: tuple[int, int] | None = None
        self.unsent = b""

    def send(self, message: Mapping[str, Any]) -> None:
        self.unsent += json.dumps(message, separators=(",", ":")).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send what can be sent.

        Raises:
            OSError: it is gone, or does not read.
        """
        with suppress(BlockingIOError):
            while self.unsent:
                self.unsent = self.unsent[self.line.socket.send(self.unsent) :]
        if len(self.unsent) > _MOST_UNREAD + LONGEST:
            raise ConnectionAbortedError("it does not read")


class StragglerServer:
    """Serves ranks while the context is open.

    Args:
        stragglers: what decides.
        address: to listen on: a path, or HOST:PORT; port 0 takes a free one.
        token: that who connects over TCP must know.
        digest: of the plan, which that of ranks must be; empty for any.

    Attributes:
        address: where it listens.

    Raises:
        BadInputError: it cannot listen there, or TCP has no token.
    """

    def __init__(self, stragglers: Stragglers, address: str, *, token: str | None = None, digest: str = "") -> None:
        self._stragglers, self._token, self._digest = stragglers, token, digest
        try:
            where = parse_address(address)
        except ValueError as error:
            raise BadInputError(f"`at`: {error}") from error
        self._path = Path(where) if isinstance(where, str) else None
        if self._path is None and token is None:
            raise BadInputError(f"`at` {address}: who connects over TCP must know a token; give `token_file`")
        self._clients: dict[int, _Client] = {}
        self._seats: dict[tuple[int, int], _Client] = {}
        self._over, self._hanging_up = threading.Event(), threading.Lock()
        self._selector = selectors.DefaultSelector()
        try:
            self._listening = self._bound(where)
        except OSError as error:
            self._selector.close()
            raise BadInputError(f"{address}: cannot listen there: {error.strerror or error}") from error
        self.address = address
        if not isinstance(where, str):
            self.address = f"{where[0]}:{self._listening.getsockname()[1]}"
        self._listening.setblocking(False)
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._wake_read, self._wake_write = os.pipe()
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self.run, name="wastenot-straggler-server", daemon=True)

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
        self._hang_up()

    def stop(self) -> None:
        """Let :meth:`run` return; from any thread, or a signal."""
        self._over.set()
        with suppress(OSError):
            os.write(self._wake_write, b".")

    def wait(self, seconds: float) -> bool:
        """Wait for so long at most; whether it still serves."""
        return not self._over.wait(seconds)

    def run(self) -> None:
        """Serve until :meth:`stop`."""
        try:
            while not self._over.is_set():
                self._turn()
        finally:
            self._hang_up()

    # ---- inside ----------------------------------------------------------------------------------------------

    def _hang_up(self) -> None:
        if not self._hanging_up.acquire(blocking=False):  # once
            return
        for client in self._clients.values():
            with suppress(OSError):
                client.send({"bye": True})
            client.line.close()
        self._selector.close()
        self._listening.close()
        os.close(self._wake_read)
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()

    def _bound(self, where: str | tuple[str, int]) -> socket.socket:
        if isinstance(where, str):
            self._refuse_second(where)
            bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            bound.bind(where)
            os.chmod(where, 0o600)
            bound.listen(_BACKLOG)
            return bound
        return socket.create_server(where, backlog=_BACKLOG)

    @staticmethod
    def _refuse_second(path: str) -> None:
        """Remove the socket of a server that died."""
        if not os.path.lexists(path):
            return
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise BadInputError(f"{path}: is there already, and is no socket; name another path")
        try:
            Line.to(path).close()
        except ConnectionRefusedError:
            os.unlink(path)
            return
        raise BadInputError(f"{path}: a straggler server listens there already")

    def _turn(self) -> None:
        wait_s = max(min(self._stragglers.due_s() - time.monotonic(), _LONGEST_SLEEP_S), 0.0)
        for key, events in self._selector.select(wait_s):
            if key.fileobj is self._listening:
                self._accept()
            elif isinstance(key.data, _Client):
                if events & selectors.EVENT_WRITE:
                    self._try(key.data, key.data.flush)
                if events & selectors.EVENT_READ:
                    self._try(key.data, lambda client=key.data: self._hear(client))
        self._pass_on(self._stragglers.act(time.monotonic()))

    def _accept(self) -> None:
        for _ in range(_BACKLOG):
            try:
                connected, _ = self._listening.accept()
            except OSError:  # nobody waits, or has already gone
                return
            if self._path is not None and not is_friend(connected):
                connected.close()
                continue
            connected.setblocking(False)
            if self._path is None:
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client = _Client(connected, trusted=self._path is not None)
            self._clients[connected.fileno()] = client
            self._selector.register(connected, selectors.EVENT_READ, client)

    def _try(self, client: _Client, do: Any) -> None:
        """Do something for a client that may be gone."""
        if client.line.socket.fileno() < 0:
            return
        try:
            do()
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.unsent else 0)
            if self._selector.get_key(client.line.socket).events != events:
                self._selector.modify(client.line.socket, events, client)
        except BlockingIOError:
            pass
        except (OSError, ValueError, KeyError, TypeError):
            self._drop(client)

    def _drop(self, client: _Client) -> None:
        if client.line.socket.fileno() < 0:
            return
        self._selector.unregister(client.line.socket)
        self._clients.pop(client.line.socket.fileno(), None)
        client.line.close()
        if client.seat is not None and self._seats.get(client.seat) is client:
            del self._seats[client.seat]
            self._pass_on(self._stragglers.leave(*client.seat, time.monotonic()))

    def _hear(self, client: _Client) -> None:
        data = client.line.socket.recv(_READ)
        if not data:
            raise ConnectionResetError
        for message in client.line.taken(data):
            self._take(client, message)

    def _take(self, client: _Client, message: dict[str, Any]) -> None:
        stragglers, now_s = self._stragglers, time.monotonic()
        if "iteration" in message:
            if client.seat is not None:
                throttled = message.get("throttled")
                self._pass_on(
                    stragglers.report(
                        *client.seat, int(message["iteration"]), float(message["factor"]), now_s,
                        None if throttled is None else str(throttled)[:40],
                    )
                )  # fmt: skip
            return
        if not client.trusted and not self._knows(message.get("token")):
            client.send({"refused": "the token is not this server's"})
            raise PermissionError
        client.trusted = True
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
            return {"refused": "the server has another plan; give it the plan that the ranks run"}
        seat = int(message["replica"]), int(message["rank"])
        order = self._stragglers.join(*seat, time.monotonic())
        client.seat = seat
        self._seats[seat] = client
        return {"welcome": True, "order": _listed(order)}

    def _answer(self, message: dict[str, Any], now_s: float) -> dict[str, Any]:
        asked = message.get("ask")
        if asked == "status":
            return {"status": {**self._stragglers.status(), "at": self.address, "process": os.getpid()}}
        if asked == "tell":
            for_s = message.get("for_s")
            orders = self._stragglers.tell(
                int(message["replica"]), float(message["slower"]), now_s, float("inf") if for_s is None else float(for_s)
            )
        elif asked == "clear":
            replica = message.get("replica")
            orders = self._stragglers.clear(None if replica is None else int(replica), now_s)
        elif asked == "stop":
            self._over.set()
            return {"done": True}
        else:
            return {"refused": f"this server speaks {SCHEMA}"}
        self._pass_on(orders)
        return {"done": True}

    def _pass_on(self, orders: Mapping[int, Order]) -> None:
        if not orders:
            return
        for (replica, _), client in tuple(self._seats.items()):
            order = orders.get(replica)
            if order is not None:
                self._try(client, lambda client=client, order=order: client.send({"order": _listed(order)}))


def _listed(order: Order) -> list[int]:
    return [order.rung, order.begin, order.until]
