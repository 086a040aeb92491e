"""A rank's side of the straggler server: which rung to run in the next iteration.

Loaded into training programs, so it imports nothing but the standard library. Whatever fails here costs the program nothing:
the rank keeps what it was told last, for as long as that holds, and goes back to its own plan then.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any

from wastenot.control.wire import Line
from wastenot.pipelines.run.straggler_wire import SCHEMA, connect

_AGAIN_S = 2.0  # between two attempts to reach a server that is gone
_KEPT = 4  # orders


class StragglerSource:
    """A connection to the server, kept up by a thread.

    Args:
        address: of the server: a path, or HOST:PORT.
        replica: that the rank belongs to.
        rank: of the pipeline.
        digest: of the plan, which must be the server's.
        token: for TCP.
        again_s: between two attempts to reach a server that is gone.

    Attributes:
        compare: iteration from which on all compare with the default clocks, as was told last.
        late: orders that came after the iteration from which on they hold had begun.
        heard_s: moment of the latest order, in seconds of ``time.monotonic``.

    Raises:
        ValueError: the server refuses this rank; the text says why.
        OSError: there is no server.
    """

    def __init__(
        self,
        address: str,
        replica: int,
        rank: int,
        *,
        digest: str = "",
        token: str | None = None,
        again_s: float = _AGAIN_S,
    ) -> None:
        self._address, self._again_s = address, again_s
        self._hello = {
            "hello": "rank", "schema": SCHEMA, "replica": replica, "rank": rank, "digest": digest, "token": token,
        }  # fmt: skip
        self._orders: deque[tuple[int, int, int]] = deque(maxlen=_KEPT)
        self._asked = -1
        self._over = threading.Event()
        self.late, self.heard_s, self.compare = 0, 0.0, -1
        self._line: Line | None = self._greeted()
        self._thread = threading.Thread(target=self._run, name="wastenot-straggler", daemon=True)
        self._thread.start()

    @property
    def connected(self) -> bool:
        """Whether there is a server now."""
        return self._line is not None

    def rung(self, iteration: int) -> int | None:
        """The rung of an iteration that is about to begin; ``None`` for the plan's own."""
        self._asked = iteration
        for rung, begin, until in reversed(self._orders):
            if begin <= iteration:
                return rung if iteration < until else None
        return None

    def ended(self, iteration: int, factor: float | None, throttled: str | None = None, *, suspects: bool = False) -> None:
        """Report an iteration; arguments as of :meth:`Stragglers.report`."""
        line = self._line
        if line is not None:
            with suppress(OSError):  # the thread notices, too
                line.send({"iteration": iteration, "factor": factor, "throttled": throttled, "suspects": suspects})

    def close(self) -> None:
        """Hang up."""
        self._over.set()
        self._hang_up()

    # ---- inside ----------------------------------------------------------------------------------------------

    def _greeted(self) -> Line:
        line = connect(self._address)
        try:
            answer = line.ask(self._hello)
            if not answer.get("welcome"):
                raise ValueError(str(answer.get("refused", "the server did not understand")))
            self._take(answer)
            line.socket.settimeout(None)
        except BaseException:
            line.close()
            raise
        return line

    def _run(self) -> None:
        while not self._over.is_set():
            line = self._line
            if line is None:
                if self._over.wait(self._again_s):
                    return
                with suppress(OSError, ValueError):
                    self._line = self._greeted()
                    self._say("is back")
                continue
            try:
                data = line.socket.recv(1 << 16)
                if not data:
                    raise ConnectionResetError
                for message in line.taken(data):
                    self._take(message)
            except (OSError, ValueError, KeyError, TypeError):
                self._hang_up()
                if not self._over.is_set():
                    self._say("is gone; this rank keeps its current plan while it is valid, then runs its own")

    def _take(self, message: dict[str, Any]) -> None:
        if "order" not in message:
            return
        rung, begin, until, self.compare = map(int, message["order"])
        self.heard_s = time.monotonic()
        if self._orders and self._orders[-1][:2] == (rung, begin):
            self._orders[-1] = rung, begin, until
            return
        self.late += bool(self._orders) and begin <= self._asked
        self._orders.append((rung, begin, until))

    def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            with suppress(OSError):
                line.socket.shutdown(2)
            with suppress(OSError):
                line.close()

    def _say(self, text: str) -> None:
        print(f"wastenot: {self._address}: the straggler server {text}", file=sys.stderr)
