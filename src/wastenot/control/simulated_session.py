"""Status of a simulated job for a second terminal: a session that drives nothing, as the job drives its own controller."""

from __future__ import annotations

from collections.abc import Sequence

from wastenot.control.driver import Ended
from wastenot.control.marker import Marker
from wastenot.control.places import make_own_socket_path
from wastenot.control.session import Session
from wastenot.control.status import Status, Summary
from wastenot.devices.protocol import Device


class SimulatedSession:
    """A context in which the latest status of a simulated job can be asked for, and the job be stopped.

    It stands where a session has its driver, and drives nothing.

    Args:
        gpus: that it runs on.
        latest: status before it begins.

    Attributes:
        session: that answers.
    """

    def __init__(self, gpus: Sequence[Device], latest: Status) -> None:
        self.gpus, self._latest, self._stopped = gpus, latest, False
        self.session = Session(self, make_own_socket_path("apply"), lease=False)

    def __enter__(self) -> SimulatedSession:
        self.session.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.session.end()

    def watch(self, latest: Status) -> bool:
        """Take the latest status; returns whether the job is to stop."""
        self._latest = latest
        return self._stopped

    def mark(self, marker: Marker) -> None:
        """No program reports to it."""

    def due_s(self) -> float | None:
        """Nothing is ever due."""
        return None

    def act(self, now_s: float) -> None:
        """Nothing is ever done."""

    def hold(self, now_s: float) -> None:
        """Nor held."""

    def refuse(self, why: str, now_s: float) -> None:
        """Nor refused."""

    def status(self) -> Status:
        """The latest."""
        return self._latest

    def end(self, now_s: float | None = None, *, ended: Ended = "job ended", exit_code: int | None = None) -> Summary:
        """Have the job stop."""
        self._stopped = True
        return Summary(status=self._latest, ended=ended, exit_code=exit_code, time_line=())
