"""The socket of wastenotd: one thread, many connections, none of which can make it wait; nor can a GPU, see `worker`.

What a client may cost is bounded: lines by length, connections by number and by how long they may be silent, unread replies
to one at a time, requests by rate. Who asks faster than that is not read until it is its turn again.
"""

from __future__ import annotations

import selectors
import socket
import struct
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import pairwise
from math import isfinite
from typing import Any

from wastenot.core.lines import LineError
from wastenot.core.setting import Setting
from wastenot.devices.clockd.budget import Budget, Frontier
from wastenot.devices.clockd.connection import Connection, Rate
from wastenot.devices.clockd.leases import Leases
from wastenot.devices.clockd.log_lines import Log
from wastenot.devices.clockd.metrics import Labels, Metrics
from wastenot.devices.clockd.policy import Peer
from wastenot.devices.clockd.refused import RefusedError
from wastenot.devices.clockd.worker import Answer
from wastenot.devices.common.daemon_protocol import MINOR, MOST_POINTS, VERSION, decode, encode, is_understood

_CONNECTIONS = 768  # of all users; the unit's LimitNOFILE is above it
_ACCEPTED = 16  # at a time
_PEERGROUPS = 59  # SO_PEERGROUPS, which Python does not name
_CREDENTIALS = struct.Struct("iII")
_GROUP = struct.calcsize("I")
_LONGEST_OPTION = 1024  # bytes that Python asks the kernel for


_ASKS = frozenset({"hello", "status", "metrics", "beat", "acquire", "set", "release", "frontier"})
_OF_CLOCKS = ("acquire", "set", "release")
_RECORDED = ("gpu", "claim", "core_mhz", "memory_mhz", "power_limit_w", "profile")
_BUSY = {"error": "busy", "text": "wastenotd is busy: it has too many connections, of this user or of all; try again later"}


class Server:
    """Serves connections.

    Args:
        listening: the socket, which listens.
        leases: that are given.
        now_s: the clock.
        log: takes what happened, and fields.
        audit: takes each request that concerns clocks or is refused, and fields.
        metrics: counts requests.
    """

    def __init__(
        self, listening: socket.socket, leases: Leases, now_s: Callable[[], float], log: Log, audit: Log, metrics: Metrics
    ) -> None:
        self.leases, self.metrics = leases, metrics
        self._listening, self._now_s, self._log, self._audit = listening, now_s, log, audit
        self._selector = selectors.DefaultSelector()
        self._connections: set[Connection] = set()
        self._rates: dict[int, Rate] = {}
        listening.setblocking(False)
        self._selector.register(listening, selectors.EVENT_READ, self._accept)
        metrics.read("connections", lambda: len(self._connections))
        for place, name in enumerate(("gpu_queue_length", "gpu_hung", "gpu_undo_failures_total")):
            metrics.read(name, partial(self._of_gpus, place))
        for place, name in enumerate(("gpu_power_watts", "gpu_limit_watts", "gpu_gives_watts", "gpu_disobeys")):
            metrics.read(name, partial(self._of_sharers, place))
        metrics.read("budget_watts", lambda: self._of_budgets(lambda budget: budget.budget_w))
        metrics.read("budget_short_watts", lambda: self._of_budgets(lambda budget: budget.short_w))

    def _of_gpus(self, place: int) -> dict[Labels, float]:
        return {(("gpu", uuid),): float(numbers[place]) for uuid, numbers in self.leases.numbers().items()}

    def _of_sharers(self, place: int) -> dict[Labels, float]:
        values = {uuid: numbers[place] for uuid, numbers in self.leases.shares.numbers().items()}
        return {(("gpu", uuid),): float(value) for uuid, value in values.items() if value is not None}

    def _of_budgets(self, value: Callable[[Budget], float]) -> dict[Labels, float]:
        """Labelled with their place in the policy."""
        return {(("budget", str(place)),): value(each) for place, each in enumerate(self.leases.shares.budgets.values(), 1)}

    def watch(self, descriptor: socket.socket, notice: Callable[[], None]) -> None:
        """Call something whenever another socket can be read."""
        self._selector.register(descriptor, selectors.EVENT_READ, notice)

    def turn(self, longest_s: float) -> None:
        """Serve what is to be served now, after waiting for it for so long at most.

        What could be read at a moment is read before anybody is found silent at that moment, however long a driver took.
        """
        ready = self._selector.select(max(0.0, min(longest_s, self._due_s() - self._now_s())))
        now_s = self._now_s()
        self.leases.finish()
        for key, _ in ready:
            key.data()
        for connection in tuple(self._connections):
            connection.look_after(now_s)

    def close(self) -> None:
        """Hang up on everybody."""
        for connection in tuple(self._connections):
            connection.close("wastenotd is stopping")
        self._selector.close()
        self._listening.close()

    def _due_s(self) -> float:
        return min([self.leases.look_after(), *(connection.due_s() for connection in self._connections)])

    def _accept(self) -> None:
        for _ in range(_ACCEPTED):
            try:
                accepted, _ = self._listening.accept()
            except OSError:  # nobody waits, or has already gone
                return
            accepted.setblocking(False)
            try:
                peer = peer_of(accepted)
            except OSError:
                accepted.close()
                continue
            if not self._has_room(peer.user):
                self.metrics.count("connections_refused_total")
                with suppress(OSError):
                    accepted.send(encode(_BUSY))
                accepted.close()
                continue
            self._forget_rates()
            rate = self._rates.setdefault(peer.user, Rate(self._now_s()))
            self._connections.add(Connection(accepted, peer, rate, self))

    def _has_room(self, user: int) -> bool:
        """Whether a user may have one more connection, for which one of a user with more of them may have to make room."""
        counts = Counter(each.peer.user for each in self._connections)
        if counts[user] >= self.leases.policy.connections_per_user:
            return False
        if len(self._connections) < _CONNECTIONS:
            return True
        for other, count in counts.most_common():
            if count <= counts[user] + 1:
                return False
            idle = [
                each for each in self._connections
                if each.peer.user == other and not each.is_closed and not self.leases.holds_any(each)
            ]  # fmt: skip
            if idle:
                first = min(idle, key=lambda each: each.heard_s)
                with suppress(OSError):
                    first.socket.send(encode(_BUSY))
                first.close("made room for another user")
                return True
        return False

    def _forget_rates(self) -> None:
        users = {connection.peer.user for connection in self._connections}
        self._rates = {user: rate for user, rate in self._rates.items() if user in users or rate.recent(self._now_s())}

    # ---- what connections need -------------------------------------------------------------------------------------

    def now_s(self) -> float:
        """The time."""
        return self._now_s()

    def interest(self, connection: Connection, before: int, events: int) -> None:
        """Watch the socket of a connection for other events than before."""
        if before and events:
            self._selector.modify(connection.socket, events, connection.ready)
        elif events:
            self._selector.register(connection.socket, events, connection.ready)
        elif before:
            self._selector.unregister(connection.socket)

    def forget(self, connection: Connection, why: str) -> None:
        """A connection is no more: its leases end, and then its socket is closed."""

        def close() -> None:
            self._connections.discard(connection)
            connection.socket.close()

        self.leases.hung_up(connection, why, close)

    def answer(self, connection: Connection, line: bytes) -> None:
        """Answer a line, at once or when a GPU's thread has done what it asks for."""
        message, began_s = dict[str, Any](), self._now_s()

        def answered(refusal: RefusedError | None, ok: dict[str, Any] | None = None) -> None:
            self._note(connection, message, refusal, self._now_s() - began_s)
            if refusal is None:
                connection.reply({"ok": ok or {}}, True)
            else:
                goes_on = refusal.kind not in ("message", "version")
                connection.reply({"error": refusal.kind, "text": refusal.text}, goes_on)

        try:
            message = decode(line)
            if message["wastenot"] != VERSION:
                raise RefusedError(
                    "version", f"wastenotd speaks version {VERSION}, this client another version; install the same wastenot"
                )
            ok = self._serve(connection, message, answered)
        except LineError as error:
            answered(RefusedError("message", f"not a request: {error}"))
        except RefusedError as refusal:
            answered(refusal)
        except Exception as error:  # a mistake in this program is no reason to let go of the other connections
            answered(RefusedError("message", f"wastenotd failed: {type(error).__name__}: {error}"))
        else:
            if ok is not None:
                answered(None, ok)

    def _note(self, connection: Connection, message: dict[str, Any], refusal: RefusedError | None, took_s: float) -> None:
        """Count a request, record it where clocks are concerned or it is refused, and log that now and then."""
        asked, peer = message.get("ask"), connection.peer
        ask = asked if isinstance(asked, str) and asked in _ASKS else "other"
        self.metrics.count("requests_total", ask=ask, result="ok" if refusal is None else refusal.kind)
        if ask == "set" and refusal is None:
            self.metrics.took(took_s)
        if refusal is None and ask not in _OF_CLOCKS:
            return
        who = {"user": peer.user, "process": peer.process}
        why = {"result": "granted"} if refusal is None else {"result": "refused", "kind": refusal.kind, "text": refusal.text}
        self._audit(ask, **who, **{name: message[name] for name in _RECORDED if _is_plain(message.get(name))}, **why)
        if refusal is not None and self._rates[peer.user].may_log(self._now_s()):
            self._log("refused", **who, kind=refusal.kind, text=refusal.text)

    def _serve(self, connection: Connection, message: dict[str, Any], answered: Answer) -> dict[str, Any] | None:
        """What is said to a request; ``None`` where it is answered later."""
        leases, peer, asked = self.leases, connection.peer, message.get("ask")
        if asked == "hello":
            hello = self._hello(peer, message.get("minor", 0))
            connection.greeted = True
            return hello
        if not connection.greeted:
            raise RefusedError("message", "say hello first")
        if asked == "status":
            return {"leases": leases.status()}
        if asked == "metrics":
            return {"text": self.metrics.text()}
        if asked == "beat":
            return {"held": leases.holds_any(connection)}
        uuid = message.get("gpu")
        if not isinstance(uuid, str) or uuid not in leases.gpus:
            raise RefusedError("message", "gpu: not the UUID of a GPU of this machine")
        if asked == "acquire":
            claim = message.get("claim", False)
            if not isinstance(claim, bool):
                raise RefusedError("message", "claim: neither true nor false")
            leases.acquire(connection, peer, uuid, claim, answered)
        elif asked == "set":
            leases.set(connection, uuid, _setting(message), answered)
        elif asked == "release":
            leases.release(connection, uuid, answered)
        elif asked == "frontier":
            leases.shares.tell_frontier(connection, uuid, _frontier(message))
            return {}
        else:
            raise RefusedError("message", "ask: there is no such request")
        return None

    def _hello(self, peer: Peer, minor: object) -> dict[str, Any]:
        if not is_understood(minor):
            raise RefusedError(
                "version", f"wastenotd speaks version {VERSION}.{MINOR}, this client an older one; install the same wastenot"
            )
        gpus = {
            uuid: {
                "core_mhz": _open(bounds.core_mhz), "memory_mhz": _open(bounds.memory_mhz),
                "power_limit_w": _open(bounds.power_limit_w), "profiles": sorted(bounds.profiles),
                "longest_lease_s": bounds.longest_lease_s,
                "shares": self.leases.shares.has(uuid),
                "restore": self.leases.policy.restore(self.leases.gpus[uuid]).outcome,
            }
            for uuid, bounds in self.leases.allowed(peer).items()
        }  # fmt: skip
        return {
            "minor": MINOR,
            "user": peer.user,
            "heartbeat_s": self.leases.policy.heartbeat_s,
            "gpus": gpus,
            "leases": self.leases.status(),
            "missing": self.leases.missing(),
        }


def peer_of(connection: socket.socket) -> Peer:
    """Who is at the other end, as the kernel knows it; nobody can claim to be somebody else.

    Raises:
        OSError: the kernel does not tell.
    """
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    process, user, group = _CREDENTIALS.unpack(told)
    groups = b""
    with suppress(OSError):  # more than fit: those few users are allowed by name or by their main group
        groups = connection.getsockopt(socket.SOL_SOCKET, _PEERGROUPS, _LONGEST_OPTION)
    return Peer(user, frozenset({group, *struct.unpack(f"{len(groups) // _GROUP}I", groups)}), process)


def _setting(message: dict[str, Any]) -> Setting:
    values: list[float | None] = []
    for name in ("core_mhz", "memory_mhz", "power_limit_w"):
        value = message.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6):
            raise RefusedError("message", f"{name}: neither null nor a plausible number")
        values.append(None if value is None else float(value))
    profile = message.get("profile")
    if profile is not None and not isinstance(profile, str):
        raise RefusedError("message", "profile: neither null nor a name")
    return Setting(values[0], values[1], values[2], profile)


def _frontier(message: dict[str, Any]) -> Frontier:
    """Watts and times of a request, checked."""
    watts, times = message.get("watts"), message.get("times")
    if not isinstance(watts, list) or not isinstance(times, list) or not 2 <= len(watts) == len(times) <= MOST_POINTS:
        raise RefusedError("message", f"watts, times: neither lists of one length of 2 to {MOST_POINTS}")
    if not all(isinstance(each, int | float) and not isinstance(each, bool) and 0 < each < 1e6 for each in (*watts, *times)):
        raise RefusedError("message", "watts, times: implausible numbers")
    points = [*zip(map(float, watts), map(float, times), strict=True)]
    if any(high[0] <= low[0] or high[1] > low[1] for low, high in pairwise(points)):
        raise RefusedError("message", "watts, times: watts must rise and times must not")
    return tuple(points)


def _is_plain(value: object) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and len(value) < 64)


def _open(bounds: tuple[float, float] | None) -> list[float | None] | None:
    """Bounds in JSON, which has no infinity."""
    return None if bounds is None else [bounds[0], bounds[1] if isfinite(bounds[1]) else None]
