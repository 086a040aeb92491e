"""Tasks that run on a stand-in GPU, and its time: what CUDA would be on a real one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from testbed.stand_in.wire import Client
from wastenot.core.setting import Setting
from wastenot.devices.protocol import LapsAtEnd, Task, TaskRun
from wastenot.devices.tracer import Load, TracedRun


class StandInRun(LapsAtEnd):
    """A task that runs on the server."""

    def __init__(self, client: Client, number: int) -> None:
        self._client, self._number = client, number

    def feed(self) -> None:
        """The stand-in is never short of work."""

    def mark(self) -> None:
        """Begin a lap here."""
        self._client.request("mark", self._number)

    def end(self) -> None:
        """Stop the task."""
        self._laps = self._client.request("end", self._number)

    @property
    def completed(self) -> int:
        """Whole calls since the first mark."""
        if self._laps is not None:
            return sum(lap.calls for lap in self._laps)
        done: int = self._client.request("completed", self._number)
        return done


class StandInLauncher:
    """Runs tasks on a stand-in GPU.

    Args:
        socket: path of the server's.
        index: of the GPU.
    """

    def __init__(self, socket: str, index: int = 0) -> None:
        self._client, self._index = Client(socket), index

    def can_run(self, task: Task, setting: Setting) -> bool:
        """Whether the GPU knows the task at the setting."""
        known: bool = self._client.request("can_run", self._index, task, setting)
        return known

    @contextmanager
    def start(self, task: Task) -> Iterator[TaskRun]:
        """Run a task until the context is left."""
        run = StandInRun(self._client, self._client.request("start", self._index, task))
        try:
            yield run
        finally:
            run.end()


class StandInTracer:
    """Runs tiny iterations on a stand-in GPU.

    Args:
        socket: path of the server's.
        index: of the GPU.
    """

    def __init__(self, socket: str, index: int = 0) -> None:
        self._client, self._index = Client(socket), index

    @contextmanager
    def start(self, load: Load, seconds: float) -> Iterator[TracedRun]:
        """Run them until the context is left."""
        number = self._client.request("trace", self._index, load, seconds)
        run = TracedRun()
        try:
            yield run
        finally:
            run.ended = self._client.request("end_trace", number)


class StandInTime:
    """A stand-in GPU's time.

    Args:
        socket: path of the server's.
        index: of the GPU.
        wall: whether the server lives in real time.
    """

    def __init__(self, socket: str, index: int = 0, *, wall: bool = False) -> None:
        self._client, self._index, self._wall = Client(socket), index, wall

    def now_s(self) -> float:
        """Seconds that the GPU has lived."""
        now: float = self._client.request("now_s", self._index)
        return now

    def sleep(self, seconds: float) -> None:
        """Let time pass: at once where it is virtual."""
        if self._wall:
            time.sleep(seconds)
        else:
            self._client.request("advance", seconds)
