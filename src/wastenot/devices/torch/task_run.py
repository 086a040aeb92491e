"""Tasks that run back to back: queued on a GPU ahead of time, or at once on the host.

host     feed        feed              feed
queue    [▮▮▮▮▮▮▮▮▮▮]                             about 0.2 s of work, in launches of about 20 ms
GPU      ▮│▮│▮│▮│▮│▮│▮│▮│▮│▮│▮│▮│▮│▮│▮│▮│▮         │ an event after each launch
marks        ↑              ↑                     the last launch that had ended; laps lie between their events
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from wastenot.devices.protocol import Lap
from wastenot.errors import DeviceError
from wastenot.operations.analytical import out_of_memory

if TYPE_CHECKING:
    from wastenot.devices.torch.launcher import Program

_AHEAD_S = 0.2  # of work in the queue
_LEAST_AHEAD = 2  # launches in the queue
_LONGEST_FEED_S = 0.05
_HOST_FEED_S = 0.02
_FEEDER_PAUSE_S = 0.002


@dataclass(frozen=True, slots=True)
class Launch:
    """What is queued at once.

    Attributes:
        run: queues it on the current stream.
        calls: of the task in it.
        seconds: that it takes on the GPU.
        how: a line that says what it is.
    """

    run: Callable[[], None]
    calls: int
    seconds: float
    how: str


class GpuRun:
    """A task that runs on a GPU.

    Args:
        launch: what is queued again and again.
        stream: to queue on.
        notes: how its kernels run.

    Attributes:
        how: a line that says how it runs, such as ``cuda graph of 64 calls over 4 buffers; compiled``.
        call_s: what one call took when it was tried.
    """

    def __init__(self, launch: Launch, stream: torch.cuda.Stream, notes: tuple[str, ...]) -> None:
        self.how = "; ".join((launch.how, *notes))
        self.call_s = launch.seconds / launch.calls
        self._launch: Launch | None = launch
        self._calls = launch.calls
        self._stream = stream
        self._depth = max(_LEAST_AHEAD, round(_AHEAD_S / max(launch.seconds, 1e-6)))
        self._pending: deque[torch.cuda.Event] = deque()
        self._spare: list[torch.cuda.Event] = []
        self._marks: list[tuple[int, torch.cuda.Event]] = []
        self._laps: tuple[Lap, ...] = ()
        self._finished = 0
        self._last = self._record()
        self._lock = threading.Lock()  # of the queue; not held while something is launched, which may take long
        self._feeder: threading.Thread | None = None
        self._error: DeviceError | None = None

    def feed_from_a_thread(self) -> None:
        """Keep the queue filled from a thread of its own until the run ends.

        Launching waits where the driver's own queue is full, of about a thousand kernels; who reads sensors must not.
        """
        self._feeder = threading.Thread(target=self._feed_on, name="wastenot-feeder", daemon=True)
        self._feeder.start()

    def feed(self) -> None:
        """Fill the queue, where no thread does.

        Raises:
            DeviceError: the GPU failed.
        """
        if self._error is not None:
            raise self._error
        if self._feeder is None:
            self._fill(_LONGEST_FEED_S)

    def _feed_on(self) -> None:
        while self._launch is not None:
            try:
                self._fill(_FEEDER_PAUSE_S)
            except DeviceError as error:
                self._error = error
                return
            time.sleep(_FEEDER_PAUSE_S)

    def _fill(self, longest_s: float) -> None:
        began = time.perf_counter()
        try:
            while True:
                with self._lock:
                    self._look()
                    launch = self._launch
                    if launch is None or len(self._pending) >= self._depth:
                        return
                with torch.cuda.stream(self._stream):
                    launch.run()
                with self._lock:
                    self._pending.append(self._record())
                if time.perf_counter() - began > longest_s:
                    return
        except RuntimeError as error:
            raise gpu_failed(error) from None

    def mark(self) -> None:
        """Begin a lap at the end of the last launch that has ended."""
        with self._lock:
            self._look()
            self._marks.append((self._finished, self._last))

    @property
    def completed(self) -> int:
        """Whole calls since the first mark that are known to have ended."""
        with self._lock:
            self._look()
            return (self._finished - self._marks[0][0]) * self._calls if self._marks else 0

    @property
    def laps(self) -> tuple[Lap, ...]:
        """Laps with whole calls, once the run has ended."""
        return self._laps

    def close(self) -> None:
        """Wait for what is queued, then let go of everything but the laps.

        Raises:
            DeviceError: the GPU failed meanwhile.
        """
        self._launch = None
        if self._feeder is not None:
            self._feeder.join()
        try:
            if self._error is not None:
                raise self._error
            self._stream.synchronize()
            self._look()
            self._laps = tuple(
                Lap((last - first) * self._calls, begin.elapsed_time(end) * 1e-3)
                for (first, begin), (last, end) in pairwise(self._marks)
                if last > first
            )
        except RuntimeError as error:
            raise gpu_failed(error) from None
        finally:
            self._pending.clear()
            self._spare.clear()

    def _look(self) -> None:
        """Take launches that have ended off the queue."""
        while self._pending and self._pending[0].query():  # type: ignore[no-untyped-call]
            if not self._marks or self._marks[-1][1] is not self._last:
                self._spare.append(self._last)
            self._last = self._pending.popleft()
            self._finished += 1

    def _record(self) -> torch.cuda.Event:
        event = self._spare.pop() if self._spare else new_event()
        event.record(self._stream)
        return event


def gpu_failed(error: RuntimeError) -> DeviceError:
    """What is said where the GPU fails under something that runs."""
    return DeviceError(f"the GPU failed while it ran: {str(error).splitlines()[0]}")


def new_event() -> torch.cuda.Event:
    """An event that knows its time."""
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


class HostRun:
    """A task that runs on the host while it is fed; a lap's time is that spent in its calls.

    Args:
        call: runs the task once.
        notes: how its kernels run.

    Attributes:
        how: a line that says how it runs.
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
            if now - began >= _HOST_FEED_S:
                break
        self._busy_s += now - began

    def mark(self) -> None:
        """Begin a lap here."""
        self._marks.append((self._calls, self._busy_s))

    @property
    def completed(self) -> int:
        """Whole calls since the first mark."""
        return self._calls - self._marks[0][0] if self._marks else 0

    @property
    def laps(self) -> tuple[Lap, ...]:
        """Laps with whole calls, once the run has ended."""
        if not self._ended:
            return ()
        return tuple(Lap(last - first, end - begin) for (first, begin), (last, end) in pairwise(self._marks) if last > first)

    def close(self) -> None:
        """Let go of everything but the laps."""
        self._call = None
        self._ended = True


_LAUNCH_S = 0.02
_LONGEST_ROUND_S = 0.1  # of one call on each set of buffers
_MOST_KERNELS = 20_000  # in a graph


def plan_launch(program: Program, stream: torch.cuda.Stream) -> Launch:
    """The launch of a program, tried and timed.

    Eager calls of short kernels wait for the host, so that the first graph's length is corrected by its own time.

    Args:
        program: to launch.
        stream: to capture and time on.

    Raises:
        torch.OutOfMemoryError: the GPU lacks the memory.
    """

    def calls_in(call_s: float) -> int:
        most = max(1, _MOST_KERNELS // program.kernels_a_call)
        calls = max(1, round(_LAUNCH_S / max(call_s, 1e-7)))
        if calls >= program.buffers or program.buffers * call_s <= _LONGEST_ROUND_S:
            calls = max(1, round(calls / program.buffers)) * program.buffers
        return min(calls, most // program.buffers * program.buffers or most)

    eager = _eager(program, stream, calls_in)
    try:
        launch = _captured(program, stream, calls_in(eager.seconds / eager.calls))
        better = calls_in(launch.seconds / launch.calls)
        if better > 1.5 * launch.calls:
            del launch  # its memory first
            launch = _captured(program, stream, better)
    except RuntimeError as error:
        if out_of_memory(error) or isinstance(error, torch.AcceleratorError):
            raise
        program.drop_outputs()
        torch.cuda.synchronize(stream.device)
        return replace(eager, how=f"eager: {str(error).splitlines()[0][:120]}")
    return launch


def _eager(program: Program, stream: torch.cuda.Stream, calls_in: Callable[[float], int]) -> Launch:
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(program.buffers):
            program.run()
        stream.synchronize()
        seconds = _time(stream, program.buffers, program.run) / program.buffers
        calls = calls_in(seconds)
    program.drop_outputs()

    def launch() -> None:
        with torch.no_grad():
            for _ in range(calls):
                program.run()

    return Launch(launch, calls, calls * seconds, "eager")


def _captured(program: Program, stream: torch.cuda.Stream, calls: int) -> Launch:
    graph = torch.cuda.CUDAGraph()
    program.drop_outputs()
    with torch.no_grad(), torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for _ in range(calls):
            program.run()
    program.drop_outputs()
    with torch.cuda.stream(stream):
        graph.replay()
        seconds = _time(stream, 1, graph.replay)
    over = f" over {program.buffers} buffers" if program.buffers > 1 else ""
    return Launch(graph.replay, calls, seconds, f"cuda graph of {calls} call{'s' if calls > 1 else ''}{over}")


def _time(stream: torch.cuda.Stream, times: int, run: Callable[[], None]) -> float:
    begin, end = new_event(), new_event()
    begin.record(stream)
    for _ in range(times):
        run()
    end.record(stream)
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e-3
