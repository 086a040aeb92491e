"""Clock control of a GPU through wastenotd, for users who may not set clocks themselves.

The daemon has the lease, the journal and the last word; here is a connection and a thread whose heartbeats keep the lease.
When the connection ends, however it does, the daemon restores the GPU.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from wastenot.core.errors import ClocksRefusedError, DeviceError, WastenotError
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.common.daemon_connection import Connection, LeaseLostError, QueuedError, Welcome
from wastenot.devices.common.daemon_protocol import MOST_POINTS
from wastenot.devices.common.gpu_driver import ClockSetter
from wastenot.devices.common.journal import Holder
from wastenot.devices.common.rights import forbidden
from wastenot.devices.common.shared_clocks import SharedClocks, check_profile

_QUEUE_S = 60.0  # for others to take their turn
_AGAIN_S = 1.0  # between requests meanwhile
_BEATS = 4  # in the time after which the daemon misses them


class DaemonClocks(SharedClocks):
    """Clock control of one GPU, which ``readable`` tells the clocks of; that sets nothing."""

    def __init__(self, readable: ClockSetter) -> None:
        super().__init__()
        self._readable, self._uuid = readable, readable.unique_id
        self._session: _Session | None = None
        self._bounds: dict[str, Any] | None = None

    def supported_clocks(self) -> Mapping[float, tuple[float, ...]]:
        """By memory clock, the core clocks that may be requested with it, both ascending, as far as the policy allows."""
        supported, core, memory = self._readable.supported_clocks(), self._bound("core_mhz"), self._bound("memory_mhz")
        states = {state: cores for state, cores in supported.items() if _within(state, memory) or state == max(supported)}
        return {state: tuple(clock for clock in cores if _within(clock, core)) for state, cores in states.items()}

    def power_limits_w(self) -> tuple[float, float] | None:
        """Lowest and highest power limit that may be set; ``None`` where none may."""
        limits, allowed = self._readable.power_limit_range_w(), self._bound("power_limit_w")
        if limits is None or allowed is None:
            return None
        low, high = max(limits[0], allowed[0]), min(limits[1], allowed[1])
        return (low, high) if low <= high else None

    def profiles(self) -> tuple[str, ...]:
        """Names of the workload power profiles that may be requested; a daemon of an earlier version allows none."""
        allowed, profiles = self._allowed().get("profiles", ()), self._readable.profiles()
        return () if profiles is None else tuple(name for name in profiles.available if name in allowed)

    def outcome(self) -> str:
        """What becomes of the clocks afterwards, in words."""
        return f"{self._allowed().get('restore', 'restored')} by wastenotd"

    def refusal(self) -> str | None:
        """Why the daemon would not set clocks for this process; ``None`` where it would try."""
        reason = forbidden()
        if reason is not None:
            return reason
        try:
            welcome = self._hello()
        except WastenotError as error:
            return str(error)
        if self._uuid not in welcome.gpus:
            return f"the policy of wastenotd does not let this user (ID {welcome.user}) set clocks of {self._uuid}"
        held = welcome.leases.get(self._uuid)
        if held is not None and self._session is None:
            holder = Holder(int(held.get("process", 0)), int(held.get("user", 0)), through_daemon=True)
            why = f" ({held['why']})" if held.get("why") else ""
            return (
                f"its clocks could not be restored yet{why}" if held.get("unrestored") else f"{holder} controls its clocks"
            )
        return None

    def request(self, setting: Setting) -> None:
        """Request a setting. The first one that is not auto acquires the lease on the GPU's clocks.

        Raises:
            ClocksRefusedError: the GPU does not support it, or the policy does not allow it.
            DeviceError: another process holds the lease, the daemon has ended it, or the driver failed.
        """
        if setting == AUTO:
            self.release()
            return
        reason = forbidden()
        if reason is not None:
            raise ClocksRefusedError(f"{self._uuid}: clocks cannot be changed: {reason}")
        check_profile(self._uuid, setting.profile, () if setting.profile is None else self.profiles())
        began = self._session is None
        session = self._acquired()
        try:
            self._set(session, setting)
        except BaseException:
            if began and not self._claimed:
                self._hang_up()
            raise
        self._note_change()

    def tell_frontier(self, points: Sequence[tuple[float, float]]) -> None:
        """Tell what watts are worth to the job, where the GPU shares a budget and this has its lease.

        Args:
            points: watts of each of the job's GPUs, ascending, and its time at these, falling; relative to any unit.

        Raises:
            DeviceError: the daemon has ended the lease, or does not understand it.
        """
        if self._session is not None and self._allowed().get("shares"):
            every = -(-len(points) // MOST_POINTS)  # with the fastest, which the others are related to
            watts, times = zip(*reversed(points[::-1][::every]), strict=True)
            self._session.connection.ask("frontier", gpu=self._uuid, watts=watts, times=times)

    def release(self) -> None:
        """Undo what was changed and end the lease; while it is claimed, only reset to the default clocks."""
        session = self._session
        if session is None:
            return
        if self._claimed:
            self._set(session, AUTO)
            return
        try:
            if not session.is_lost:  # else a heartbeat has met that, and there is nothing left to give back
                session.connection.ask("release", gpu=self._uuid)
        finally:
            self._hang_up()

    @property
    def lost(self) -> bool:
        """Whether the daemon has ended a lease that nobody has given back, as far as a heartbeat has met that."""
        return self._session is not None and self._session.is_lost

    def claim(self) -> None:
        """Begin to hold the lease at the default clocks too, until :meth:`end_claim`."""
        self._ask_for(self._acquired().connection, claim=True)
        self._claimed = True

    def _set(self, session: _Session, setting: Setting) -> None:
        try:
            session.check()
            session.connection.ask("set", gpu=self._uuid, **asdict(setting))
        except LeaseLostError:
            self._hang_up()
            raise

    def _acquired(self) -> _Session:
        if self._session is not None and not self._session.is_own:
            self._session = None  # a forked child's parent has it
        if self._session is None:
            connection = Connection()
            try:
                self._ask_for(connection, claim=self._claimed)
            except BaseException:
                connection.close()
                raise
            self._session = _Session(connection)
        return self._session

    def _ask_for(self, connection: Connection, *, claim: bool) -> None:
        """Acquire the lease, after those who have waited for the GPU for longer."""
        until_s = time.monotonic() + _QUEUE_S
        while True:
            try:
                connection.ask("acquire", gpu=self._uuid, claim=claim)
            except QueuedError:
                if time.monotonic() >= until_s:
                    raise
                time.sleep(_AGAIN_S)
            else:
                return

    def _hang_up(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.end()

    def _hello(self) -> Welcome:
        connection = Connection()
        connection.close()
        return connection.welcome

    def _allowed(self) -> dict[str, Any]:
        if self._bounds is None:
            self._bounds = self._hello().gpus.get(self._uuid, {})
        return self._bounds

    def _bound(self, name: str) -> tuple[float, float] | None:
        low, high = self._allowed().get(name) or (None, None)
        return None if low is None else (float(low), float("inf") if high is None else float(high))


class _Session:
    """A lease that is kept by heartbeats until it ends."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._process = os.getpid()
        self._over = threading.Event()
        self._error: DeviceError | None = None
        self._thread = threading.Thread(target=self._beat, name="wastenot-heartbeat", daemon=True)
        self._thread.start()
        atexit.register(self.end)
        close = weakref.WeakMethod(connection.close)
        os.register_at_fork(after_in_child=lambda: _call(close))  # a worker must not keep the connection open

    @property
    def is_own(self) -> bool:
        """Whether this process made it."""
        return os.getpid() == self._process

    @property
    def is_lost(self) -> bool:
        """Whether a heartbeat met the end of the lease."""
        return isinstance(self._error, LeaseLostError)

    def check(self) -> None:
        """Raises what a heartbeat met."""
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Hang up; the daemon has restored the clocks when this returns."""
        atexit.unregister(self.end)
        self._over.set()
        self.connection.close()
        if self.is_own and threading.current_thread() is not self._thread:
            self._thread.join()

    def _beat(self) -> None:
        period_s = self.connection.welcome.heartbeat_s / _BEATS
        while not self._over.wait(period_s):
            try:
                self.connection.ask("beat")
            except DeviceError as error:
                if not self._over.is_set():
                    self._error = error
                return


def _within(value: float, bounds: tuple[float, float] | None) -> bool:
    return bounds is not None and bounds[0] <= value <= bounds[1]


def _call(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    close = method()
    if close is not None:
        with suppress(OSError):
            close()
