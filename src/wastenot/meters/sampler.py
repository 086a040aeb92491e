"""One background thread that follows the sensors of all GPUs with open windows, and what it keeps for them."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Protocol

from wastenot.core.errors import BadInputError
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Device
from wastenot.meters.counter import StepFollower
from wastenot.meters.cycle_marks import CycleMarks
from wastenot.meters.gpu_clock import GpuClock

_LINGER_S = 10.0  # for which it continues after the last window has been evaluated
_TIDY_S = 5.0  # between checks of what can be forgotten
_KEPT_S = 30.0  # of the log before the oldest open window
_COMPLETE_S = 5.0  # after its end, everything a window needs is logged
_EVALUATING_S = 0.002  # for which windows are evaluated at a time
_RETRY_S = 1.0  # after a sensor failed


class _PendingWindow(Protocol):
    """A window that is open or has not been evaluated."""

    begin_s: float
    end_s: float | None

    def evaluate_if_complete(self) -> None:
        """Evaluate it, if that is possible without waiting."""


class Sampler:
    """Polls followers when they are due. It sleeps while no window is open and wakes with the next one.

    Args:
        now_s: host clock of all moments.
        background: poll from a thread of its own; otherwise its owner calls :meth:`poll_due`.

    Attributes:
        now_s: that clock.
        pending: windows that are open or have not been evaluated, by :func:`id`. A plain dictionary: adding to it takes no
            lock and no call, and listing it cannot be interrupted.
        awake: whether sensors are being followed.
        forked: whether this is a copy in a child of the process that it runs in, and so does not run.
        clocks: GPU clocks by PyTorch's index, made when first needed.
        cycles: marks of the cycle counters.
    """

    def __init__(self, now_s: Callable[[], float] = time.perf_counter, *, background: bool = True) -> None:
        self.now_s = now_s
        self.forked = False
        self.pending: dict[int, weakref.ref[_PendingWindow]] = {}
        self.awake = False
        self.clocks: dict[int, GpuClock] = {}
        self.cycles = CycleMarks()
        self._background = background
        self._devices: dict[str, Device] = {}
        self._followers: dict[str, StepFollower] = {}
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._wanted_s = now_s()

    def device(self, name: str) -> Device:
        """A device by name, opened once.

        Raises:
            BadInputError: there is no such device, or it is a recording.
        """
        with self._lock:
            if name not in self._devices:
                if name.startswith("recorded:"):
                    raise BadInputError(f"device '{name}': a recording cannot run; measure a GPU or a simulated one")
                self._devices[name] = open_device(name, wall_time=True)
            return self._devices[name]

    def follow(self, devices: Iterable[Device]) -> tuple[StepFollower, ...]:
        """Followers of devices, one for each device however often it is followed. Starts the thread."""
        with self._lock:
            followers = []
            for device in devices:
                key = f"{device.identity.unique_id}/{id(device) if device.identity.origin == 'simulated' else ''}"
                if key not in self._followers:
                    self._followers = {**self._followers, key: StepFollower(device, self.now_s)}
                followers.append(self._followers[key])
            if self._thread is None and self._background:
                self._thread = threading.Thread(target=self._run, name="wastenot-sampler", daemon=True)
                self._thread.start()
        self.wake()
        return tuple(followers)

    def wake(self) -> None:
        """Follow the sensors again."""
        self._wanted_s = self.now_s()
        self.awake = True
        self._wanted.set()

    def sleep(self) -> None:
        """Stop following the sensors until a window wakes it."""
        self._wanted.clear()
        self.awake = False

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._wanted.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(1.0)

    def poll_due(self) -> float:
        """Poll the followers that are due, and return when the next one is."""
        followers = list(self._followers.values())
        now = self.now_s()
        for follower in followers:
            if follower.due_s <= now and not self._stop.is_set():
                self._poll(follower)
        return min((follower.due_s for follower in followers), default=now + _TIDY_S)

    def _run(self) -> None:
        tidied_s = self.now_s()
        while not self._stop.is_set():
            if not self._wanted.is_set():
                self._wanted.wait()
                for follower in self._followers.values():
                    follower.restart()
            due_s = self.poll_due()
            now = self.now_s()
            if now - tidied_s > _TIDY_S:
                tidied_s = now
                self._tidy(now)
            wait_s = due_s - self.now_s()
            if wait_s > 0.0:
                self._stop.wait(wait_s)

    def _poll(self, follower: StepFollower) -> None:
        try:
            follower.poll()
        except Exception:
            # A GPU that is lost must not end the measurement of the others: its windows are flagged for missing steps.
            follower.due_s = self.now_s() + _RETRY_S

    def _tidy(self, now: float) -> None:
        for window in self._pending_windows():
            # The caller competes for the interpreter lock: evaluate a few at a time.
            if window.end_s is not None and window.end_s < now - _COMPLETE_S and self.now_s() < now + _EVALUATING_S:
                window.evaluate_if_complete()
        oldest = min((window.begin_s for window in self._pending_windows()), default=now)
        for follower in list(self._followers.values()):
            follower.log.forget(min(oldest, now) - _KEPT_S)
        if self._needed(now):
            self._wanted_s = now
        elif now - self._wanted_s > _LINGER_S:
            self.sleep()
            if self._needed(now):  # a window opened just now and saw no need to wake it
                self.wake()

    def _needed(self, now: float) -> bool:
        return any(window.end_s is None or window.end_s > now - _COMPLETE_S for window in self._pending_windows())

    def _pending_windows(self) -> list[_PendingWindow]:
        windows = []
        for key, reference in list(self.pending.items()):
            window = reference()
            if window is not None:
                windows.append(window)
            elif self.pending.get(key) is reference:  # not a newer window at the same address
                self.pending.pop(key, None)
        return windows


class ProcessSampler:
    """Holds the sampler that all windows of a process share.

    A counter is expensive to read, so a GPU must have one follower however many windows look at it, wherever in the program
    they are opened: :func:`wastenot.measure` needs one place to find it. The sampler is made when first asked for, and made
    again in a forked child, where its thread does not exist and its locks may be held forever.
    """

    def __init__(self) -> None:
        self._sampler: Sampler | None = None
        self._lock = threading.Lock()
        self._registered = False

    def get(self) -> Sampler:
        """The sampler, made now if there is none."""
        with self._lock:
            if self._sampler is None:
                self._sampler = Sampler()
            if not self._registered:
                atexit.register(self.reset)
                os.register_at_fork(after_in_child=self._forked)
                self._registered = True
            return self._sampler

    def reset(self) -> None:
        """Stop the sampler and drop it, with its devices and clocks."""
        with self._lock:
            sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.stop()

    def _forked(self) -> None:
        self._lock = threading.Lock()
        if self._sampler is not None:
            self._sampler.forked = True
        self._sampler = None


PROCESS_SAMPLER = ProcessSampler()
