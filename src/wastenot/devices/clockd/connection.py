"""A connection of wastenotd: what it has sent, what it is owed, and for how long it may be silent."""

from __future__ import annotations

import selectors
import socket
from math import inf
from typing import TYPE_CHECKING, Any

from wastenot.devices.clockd.policy import Peer
from wastenot.devices.common.daemon_protocol import LONGEST_LINE, encode

if TYPE_CHECKING:
    from wastenot.devices.clockd.server import Server

_HELLO_S = 5.0  # for the first request, for the rest of a line, and for taking a reply
_IDLE_S = 60.0  # without a lease


class Rate:
    """How many requests a user may still make, a second's worth at most; and of refusals, one a second is logged."""

    def __init__(self, now_s: float) -> None:
        self._spent, self._at_s, self._logged_s = 0.0, now_s, -inf

    def wait_s(self, now_s: float, per_s: float) -> float:
        """Take one; else how long to wait for it."""
        self._spent = max(0.0, self._spent - per_s * (now_s - self._at_s))
        self._at_s = now_s
        if self._spent > per_s - 1.0 and self._spent > 0.0:
            return (self._spent - max(0.0, per_s - 1.0)) / per_s
        self._spent += 1.0
        return 0.0

    def may_log(self, now_s: float) -> bool:
        """Whether the second since the last time is over."""
        if now_s - self._logged_s < 1.0:
            return False
        self._logged_s = now_s
        return True

    def recent(self, now_s: float) -> bool:
        """Whether it may still matter."""
        return now_s - self._at_s < 60.0


class Connection:
    """A connection.

    Attributes:
        socket: its socket.
        peer: who is at the other end.
        greeted: whether it has said hello.
    """

    def __init__(self, accepted: socket.socket, peer: Peer, rate: Rate, server: Server) -> None:
        self.socket, self.peer, self.greeted = accepted, peer, False
        self._server, self._rate = server, rate
        self._in, self._out = b"", b""
        self._since_s = self._heard_s = server.now_s()  # when it began to wait for the peer; when a whole request came
        self._wait_until_s = 0.0
        self._last_words = self._closed = False
        self._asking = self._serving = False  # whether a reply is still to come, and whether it may come at once
        self._events = 0
        self._watch()

    def ready(self) -> None:
        """The socket can be read or written."""
        if self._closed:
            return
        try:
            if self._out:
                self._flush()
            else:
                received = self.socket.recv(LONGEST_LINE)  # descriptors that come along are closed by the kernel
                if not received:
                    self.close("disconnected")
                    return
                if not self._in:
                    self._since_s = self._server.now_s()
                self._in += received
        except BlockingIOError:
            return
        except OSError as error:
            self.close(f"connection lost: {error.strerror}")
            return
        self._go_on()

    @property
    def heard_s(self) -> float:
        """When a whole request came last, or it connected."""
        return self._heard_s

    @property
    def is_closed(self) -> bool:
        """Whether it has ended, but for leases that are still to be ended."""
        return self._closed

    def due_s(self) -> float:
        """When to look after it at the latest."""
        return inf if self._closed else min(self._wait_until_s or inf, self._deadline()[0])

    def look_after(self, now_s: float) -> None:
        """Go on where it was made to wait, and disconnect or end its leases where it has been silent for too long."""
        if self._closed:
            return
        if self._wait_until_s and self._wait_until_s <= now_s:
            self._wait_until_s = 0.0
            self._go_on()
            return
        at_s, why = self._deadline()
        if at_s > now_s:
            return
        if why is None:
            self._server.leases.silent(self)
        else:
            self.close(why)

    def close(self, why: str) -> None:
        """End its leases, then disconnect: who reads the end of the connection knows that clocks are restored.

        Unless their GPU does not answer.
        """
        if self._closed:
            return
        self._closed = True
        self._server.interest(self, self._events, 0)
        self._server.forget(self, why)

    def reply(self, reply: dict[str, Any], goes_on: bool) -> None:
        """Answer the line that was served last, and serve the next."""
        self._asking = False
        self._heard_s = self._since_s = self._server.now_s()
        if not self._closed:
            self._say(reply, goes_on)
        if not self._closed and not self._serving:
            self._go_on()

    def _deadline(self) -> tuple[float, str | None]:
        """When its patience ends, and why it is disconnected then; ``None`` where only its leases end."""
        if self._asking:
            return inf, None
        if self._out:
            return self._since_s + _HELLO_S, "does not read replies"
        if not self.greeted:
            return self._since_s + _HELLO_S, "no hello"
        if self._server.leases.holds_any(self):
            return self._heard_s + self._server.leases.policy.heartbeat_s, None
        if self._in:
            return self._since_s + _HELLO_S, "incomplete line"
        return self._heard_s + _IDLE_S, "idle"

    def _go_on(self) -> None:
        """Serve the lines that are there, as far as replies are taken and the rate allows."""
        while b"\n" in self._in and not self._out and not self._asking:
            now_s = self._server.now_s()
            wait_s = self._rate.wait_s(now_s, self._server.leases.policy.requests_per_s)
            if wait_s > 0.0:
                self._wait_until_s = now_s + wait_s
                break
            line, _, self._in = self._in.partition(b"\n")
            self._asking = self._serving = True
            self._server.answer(self, line)
            self._serving = False
            if self._closed:
                return
        if len(self._in) > LONGEST_LINE and b"\n" not in self._in and not self._out and not self._asking:
            self._say({"error": "message", "text": f"a line is longer than {LONGEST_LINE} bytes"}, False)
        if not self._closed:
            self._watch()

    def _say(self, reply: dict[str, Any], goes_on: bool) -> None:
        self._out, self._last_words = encode(reply), not goes_on
        try:
            self._flush()
        except BlockingIOError:
            pass
        except OSError as error:
            self.close(f"connection lost: {error.strerror}")

    def _flush(self) -> None:
        sent = self.socket.send(self._out)
        self._out = self._out[sent:]
        if not self._out and self._last_words:
            self.close("sent an invalid request")

    def _watch(self) -> None:
        waits = self._wait_until_s or (self._asking and len(self._in) > LONGEST_LINE)
        events = selectors.EVENT_WRITE if self._out else 0 if waits else selectors.EVENT_READ
        if events != self._events:
            self._server.interest(self, self._events, events)
            self._events = events
