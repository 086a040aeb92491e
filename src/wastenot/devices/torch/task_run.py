"""Tasks running back to back: queued ahead on a GPU, as CUDA graphs where possible.

host     feed        feed              feed
queue    [▮▮▮▮▮▮▮▮▮▮]                             about 0.2 s of work, in launches of about 20 ms
GPU      ▮│▮│▮│▮│▮│▮│▮│▮│▮│▮│▮│▮│▮│▮│▮│▮│▮         │ a stamp of the cycle counters and an event after each launch
marks        ↑              ↑                     the last launch that had ended; laps lie between their events
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from wastenot.core.errors import DeviceError, first_line
from wastenot.devices.protocol import Lap
from wastenot.workloads.operations.analytical import out_of_memory

if TYPE_CHECKING:
    from wastenot.devices.torch.launch_clocks import LaunchClocks
    from wastenot.devices.torch.launcher import Program

COUNTED = "by counting cycles"
NOT_COUNTED = "by the driver: the GPU's timer is too coarse to count cycles against, or timestamps are missing"

_AHEAD_S = 0.2  # of work in the queue
_LEAST_AHEAD = 2  # launches in the queue
_LONGEST_FEED_S = 0.05
_FEEDER_PAUSE_S = 0.002


@dataclass(frozen=True, slots=True)
class Launch:
    """Calls that are queued at once.

    Attributes:
        run: queues them on the current stream.
        calls: number of calls of the task.
        seconds: their time on the GPU.
        how: one line that describes the launch.
        program: what it runs; a graph does not keep its buffers alive.
    """

    run: Callable[[], None]
    calls: int
    seconds: float
    how: str
    program: Program = field(repr=False)


class GpuRun:
    """A task running on a GPU.

    Args:
        launch: the launch to queue repeatedly.
        stream: stream to queue on.
        notes: how its kernels run.
        clocks: counts the cycles of launches; ``None`` where that is impossible. Stamps and a look at the clock take about
            12 microseconds after each launch of about 20 ms, less than 0.1 %, which laps include.

    Attributes:
        how: one line that describes how it runs, such as ``cuda graph of 64 calls over 4 buffers; compiled``.
        call_s: time of one call when the launch was tried.
    """

    def __init__(
        self, launch: Launch, stream: torch.cuda.Stream, notes: tuple[str, ...], clocks: LaunchClocks | None = None
    ) -> None:
        self.how = "; ".join((launch.how, *notes))
        self.call_s = launch.seconds / launch.calls
        self._launch: Launch | None = launch
        self._calls = launch.calls
        self._stream = stream
        self._clocks = clocks
        self._depth = max(_LEAST_AHEAD, round(_AHEAD_S / max(launch.seconds, 1e-6)))
        self._pending: deque[torch.cuda.Event] = deque()
        self._spare: list[torch.cuda.Event] = []
        self._marks: list[tuple[int, torch.cuda.Event]] = []
        self._laps: tuple[Lap, ...] = ()
        self._finished = 0
        self._last = self._record()
        self._lock = threading.Lock()  # guards the queue; not held while launching, which may take long
        self._feeder: threading.Thread | None = None
        self._error: DeviceError | None = None

    def feed_from_a_thread(self) -> None:
        """Keep the queue filled from a separate thread until the run ends.

        Launching blocks while the driver's own queue of about a thousand kernels is full, and reading sensors must not.
        """
        self._feeder = threading.Thread(target=self._feed_on, name="wastenot-feeder", daemon=True)
        self._feeder.start()

    def feed(self) -> None:
        """Fill the queue, unless a thread does.

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
                    self._collect_ended()
                    launch = self._launch
                    if launch is None or len(self._pending) >= self._depth:
                        return
                with torch.cuda.stream(self._stream):
                    launch.run()
                    if self._clocks is not None:
                        self._clocks.launched()
                with self._lock:
                    self._pending.append(self._record())
                if time.perf_counter() - began > longest_s:
                    return
        except RuntimeError as error:
            raise gpu_failed(error) from None

    def mark(self) -> None:
        """End the current lap and begin the next at the end of the last launch that has ended."""
        with self._lock:
            self._collect_ended()
            self._marks.append((self._finished, self._last))

    @property
    def completed(self) -> int:
        """Number of whole calls known to have ended since the first mark."""
        with self._lock:
            self._collect_ended()
            return (self._finished - self._marks[0][0]) * self._calls if self._marks else 0

    @property
    def laps(self) -> tuple[Lap, ...]:
        """Laps with at least one whole call, once the run has ended."""
        return self._laps

    def close(self) -> None:
        """Wait for what is queued, then release everything but the laps.

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
            self._collect_ended()
            clocks = self._clocks
            self._laps = tuple(
                Lap(
                    (last - first) * self._calls,
                    begin.elapsed_time(end) * 1e-3,
                    *(clocks.over(first, last) if clocks else ()),
                )
                for (first, begin), (last, end) in pairwise(self._marks)
                if last > first
            )
            if self._clocks is not None:
                counted = all(lap.core_mhz is not None for lap in self._laps)
                self.how += f"; core clock {COUNTED if counted else NOT_COUNTED}"
        except RuntimeError as error:
            raise gpu_failed(error) from None
        finally:
            self._pending.clear()
            self._spare.clear()
            if self._clocks is not None:
                self._clocks.close()

    def _collect_ended(self) -> None:
        """Remove launches that have ended from the queue."""
        while self._pending and self._pending[0].query():  # type: ignore[no-untyped-call]
            if not self._marks or self._marks[-1][1] is not self._last:
                self._spare.append(self._last)
            self._last = self._pending.popleft()
            self._finished += 1
            if self._clocks is not None:
                self._clocks.ended()

    def _record(self) -> torch.cuda.Event:
        event = self._spare.pop() if self._spare else new_event()
        event.record(self._stream)
        return event


def gpu_failed(error: RuntimeError) -> DeviceError:
    """The error for a GPU that fails while something runs on it."""
    return DeviceError(f"the GPU failed while it ran: {first_line(error)}")


def new_event(*, external: bool = False) -> torch.cuda.Event:
    """An event with timing."""
    return torch.cuda.Event(enable_timing=True, external=external)  # type: ignore[no-untyped-call]


_LAUNCH_S = 0.02
_LONGEST_ROUND_S = 0.1  # of one call on every set of buffers
_MOST_KERNELS = 20_000  # in a graph


def make_launch(program: Program, stream: torch.cuda.Stream) -> Launch:
    """A launch of about 20 ms that uses all sets of buffers equally often, where that does not take too long.

    Args:
        program: the program to launch.
        stream: stream to capture and time on.

    Raises:
        torch.OutOfMemoryError: the GPU lacks the memory.
    """

    def calls_in(call_s: float) -> int:
        most = max(1, _MOST_KERNELS // program.kernels_per_call)
        calls = max(1, round(_LAUNCH_S / max(call_s, 1e-7)))
        if calls >= program.buffers or program.buffers * call_s <= _LONGEST_ROUND_S:
            calls = max(1, round(calls / program.buffers)) * program.buffers
        return min(calls, most // program.buffers * program.buffers or most)

    return _launch(program, stream, calls_in, 0.5)


def launch_of(program: Program, stream: torch.cuda.Stream, seconds: float) -> Launch:
    """A launch of about a given time, whatever buffers it uses; arguments and errors as of :func:`make_launch`."""

    def calls_in(call_s: float) -> int:
        return min(max(1, round(seconds / max(call_s, 1e-7))), max(1, _MOST_KERNELS // program.kernels_per_call))

    return _launch(program, stream, calls_in, 0.3)


def _launch(program: Program, stream: torch.cuda.Stream, calls_in: Callable[[float], int], longer_by: float) -> Launch:
    """Choose how many calls to launch at once: as a CUDA graph, or eagerly where none can be captured.

    Eager calls of short kernels wait for the host, so the first graph's own time corrects its length.
    """
    eager = _eager(program, stream, calls_in)
    try:
        launch = _captured(program, stream, calls_in(eager.seconds / eager.calls))
        better = calls_in(launch.seconds / launch.calls)
        if better > (1.0 + longer_by) * launch.calls:
            del launch  # its memory first
            launch = _captured(program, stream, better)
    except RuntimeError as error:
        if out_of_memory(error) or isinstance(error, torch.AcceleratorError):
            raise
        program.drop_outputs()
        torch.cuda.synchronize(stream.device)
        return replace(eager, how=f"eager: {first_line(error)[:120]}")
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

    return Launch(launch, calls, calls * seconds, "eager", program)


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
    return Launch(graph.replay, calls, seconds, f"cuda graph of {calls} call{'s' if calls > 1 else ''}{over}", program)


def _time(stream: torch.cuda.Stream, times: int, run: Callable[[], None]) -> float:
    begin, end = new_event(), new_event()
    begin.record(stream)
    for _ in range(times):
        run()
    end.record(stream)
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e-3
