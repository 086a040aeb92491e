"""One background thread of this process that follows the sensors of all GPUs with open windows."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from os import register_at_fork
from typing import Protocol

from wastenot.devices.protocol import Device
from wastenot.metering.step_follower import StepFollower

_LINGER_S = 10.0  # for which it goes on after the last window has been resolved
_TIDY_S = 5.0  # between looks at what can be forgotten
_KEPT_S = 30.0  # of the log before the oldest open window
_SETTLED_S = 5.0  # after its end, all that a window needs is known
_SETTLING_S = 0.002  # for which windows are settled at a time
_FAILED_S = 1.0  # after a sensor failed, until it is tried again


class Open(Protocol):
    """A window that is open or whose results have not been worked out."""

    begin_s: float
    end_s: float | None

    def settle(self) -> None:
        """Work its results out, if that can be done at once."""
        ...


class Sampler:
    """Polls followers when they are due. It sleeps while no window is open and wakes with the next one.

    Args:
        now_s: host clock of all moments.

    Attributes:
        now_s: that clock.
        open: windows that are open or whose results have not been worked out, by their :func:`id`. A plain dictionary:
            to add to it takes no lock and no call, and to list it cannot be interrupted.
        awake: whether sensors are followed at present.
        forked: whether this is a copy in a child of the process that it runs in, and so does not run.
    """

    def __init__(self, now_s: Callable[[], float] = time.perf_counter) -> None:
        self.now_s = now_s
        self.forked = False
        self.open: dict[int, weakref.ref[Open]] = {}
        self.awake = False
        self._followers: dict[str, StepFollower] = {}
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._nudged = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._wanted_s = now_s()

    def follow(self, devices: Iterable[Device]) -> tuple[StepFollower, ...]:
        """Followers of devices; one that is followed already is not followed twice. Starts the thread."""
        with self._lock:
            found = []
            for device in devices:
                key = f"{device.identity.unique_id}/{id(device) if device.identity.origin == 'simulated' else ''}"
                if key not in self._followers:
                    self._followers = {**self._followers, key: StepFollower(device, self.now_s)}
                found.append(self._followers[key])
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="wastenot-sampler", daemon=True)
                self._thread.start()
        self.wake()
        return tuple(found)

    def wake(self) -> None:
        """Have the sensors followed."""
        self._wanted_s = self.now_s()
        self.awake = True
        self._wanted.set()

    def stop(self) -> None:
        """End the thread."""
        self._stopped = True
        self._wanted.set()
        self._nudged.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(1.0)

    def _run(self) -> None:
        tidied_s = self.now_s()
        while not self._stopped:
            if not self._wanted.is_set():
                self._wanted.wait()
                for follower in self._followers.values():
                    follower.restart()
            followers = list(self._followers.values())
            now = self.now_s()
            for follower in followers:
                if follower.due_s <= now and not self._stopped:
                    self._poll(follower)
            now = self.now_s()
            if now - tidied_s > _TIDY_S:
                tidied_s = now
                self._tidy(now)
            wait = min((follower.due_s for follower in followers), default=now + _TIDY_S) - self.now_s()
            if wait > 0.0:
                self._nudged.wait(wait)

    def _poll(self, follower: StepFollower) -> None:
        try:
            follower.poll()
        except Exception:
            # A GPU that is lost must not end the measurement of the others: windows say that steps are missing.
            follower.due_s = self.now_s() + _FAILED_S

    def _tidy(self, now: float) -> None:
        windows = self._windows()
        for window in windows:
            # The interpreter's lock is the caller's: settle a few at a time.
            if window.end_s is not None and window.end_s < now - _SETTLED_S and self.now_s() < now + _SETTLING_S:
                window.settle()
        oldest = min((window.begin_s for window in self._windows()), default=now)
        for follower in list(self._followers.values()):
            follower.log.forget(min(oldest, now) - _KEPT_S)
        if self._needed(now):
            self._wanted_s = now
        elif now - self._wanted_s > _LINGER_S:
            self._wanted.clear()
            self.awake = False
            if self._needed(now):  # one was opened just now, and saw that it need not wake anybody
                self.wake()

    def _needed(self, now: float) -> bool:
        return any(window.end_s is None or window.end_s > now - _SETTLED_S for window in self._windows())

    def _windows(self) -> list[Open]:
        found = []
        for key, reference in list(self.open.items()):
            window = reference()
            if window is not None:
                found.append(window)
            elif self.open.get(key) is reference:  # not one that has come to lie where it lay
                self.open.pop(key, None)
        return found


_of_process: list[Sampler] = []
_making = threading.Lock()


def shared_sampler() -> Sampler:
    """The sampler of this process."""
    with _making:
        if not _of_process:
            _of_process.append(Sampler())
            atexit.register(_of_process[0].stop)
        return _of_process[0]


def _forget_parent() -> None:
    """A thread does not survive a fork, and a lock may be held by it for ever: the child begins with nothing."""
    global _making  # noqa: PLW0603
    _making = threading.Lock()
    for sampler in _of_process:
        sampler.forked = True
    _of_process.clear()


register_at_fork(after_in_child=_forget_parent)
