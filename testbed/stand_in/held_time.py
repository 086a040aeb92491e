"""Wall time of the stand-in, held by a program whose iterations are to last as planned on however busy a machine.

Imports nothing but the standard library, as the programs that use it know nothing of wastenot.
"""

from __future__ import annotations

from time import sleep

from testbed.stand_in.wire import Client

STEP_S = 0.004  # about as fine as those who read counters of energy need it
_SHORTEST_SLEEP_S = 1e-3


class HeldTime:
    """Time that passes only as this program lets it, and all others that hold it, and never faster than on the wall.

    Args:
        socket: path of the server's.
        step_s: in which others see time pass.
    """

    def __init__(self, socket: str, step_s: float = STEP_S) -> None:
        self._client, self._step_s = Client(socket), step_s
        self._now_s: float = self._client.request("hold")

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return self._now_s

    def let_pass(self, seconds: float) -> None:
        """Do what takes so long."""
        end_s = self._now_s + seconds
        while (left_s := end_s - self._now_s) > 1e-9:
            step_s = min(left_s, self._step_s)
            sleep(step_s)
            self._now_s = self._client.request("let_pass", step_s)

    def close(self) -> None:
        """Hold it no longer."""
        self._client.close()

    @staticmethod
    def sleep(seconds: float) -> None:
        """Wait as threads do that only look; no time passes for that."""
        sleep(max(seconds, _SHORTEST_SLEEP_S))


class SharedTime:
    """The same time for a program that holds none of it: whoever steers the clocks.

    Args:
        socket: path of the server's.
    """

    sleep = staticmethod(HeldTime.sleep)

    def __init__(self, socket: str) -> None:
        self._client = Client(socket)

    def monotonic(self) -> float:
        """Seconds since some moment."""
        now_s: float = self._client.request("clock")
        return now_s
