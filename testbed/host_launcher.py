"""Tasks run by PyTorch on the host, where there is no GPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

from wastenot.devices.protocol import Lap, Task
from wastenot.devices.torch.launcher import Program, TorchLauncher

_FEED_S = 0.02


class HostRun:
    """A task that runs on the host while it is fed; a lap's time is the time spent in its calls.

    Args:
        call: runs the task once.
        notes: how its kernels run.

    Attributes:
        how: one line that describes how it runs.
    """

    def __init__(self, call: Callable[[], None], notes: tuple[str, ...]) -> None:
        self.how = "; ".join(("eager: on the CPU", *notes))
        self._call: Callable[[], None] | None = call
        self._calls = 0
        self._busy_s = 0.0
        self._marks: list[tuple[int, float]] = []
        self._ended = False

    @property
    def call_s(self) -> float:
        """Mean time of a call so far."""
        return self._busy_s / self._calls if self._calls else 0.0

    def feed(self) -> None:
        """Run calls for about 20 ms, at least one."""
        began = now = time.perf_counter()
        while self._call is not None:
            self._call()
            self._calls += 1
            now = time.perf_counter()
            if now - began >= _FEED_S:
                break
        self._busy_s += now - began

    def feed_from_a_thread(self) -> None:
        """Nothing: it runs while it is fed."""

    def mark(self) -> None:
        """End the current lap and begin the next."""
        self._marks.append((self._calls, self._busy_s))

    @property
    def completed(self) -> int:
        """Number of whole calls since the first mark."""
        return self._calls - self._marks[0][0] if self._marks else 0

    @property
    def laps(self) -> tuple[Lap, ...]:
        """Laps with at least one whole call, once the run has ended."""
        if not self._ended:
            return ()
        return tuple(Lap(last - first, end - begin) for (first, begin), (last, end) in pairwise(self._marks) if last > first)

    def close(self) -> None:
        """Release everything but the laps."""
        self._call = None
        self._ended = True


class HostLauncher(TorchLauncher):
    """Runs tasks on the host, eagerly."""

    def _begin_on_gpu(self, task: Task) -> HostRun:  # type: ignore[override]
        program = Program(task, str(self.device))
        return HostRun(program.run, program.notes)
