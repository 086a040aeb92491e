"""Bursts with PyTorch: executions one by one, back to back on one stream, each stamped by the GPU.

    host     queue ▮▮▮▮▮▮▮▮▮▮           queue on as executions end  ▮ ▮ ▮ ▮ ▮
    stream         ├── gate ──┤ ▮ │ ▮ │ ▮ │ ▮ │ ▮ │ ▮ │ ▮ │ ▮ │ ▮ │ ▮ │ ▮ │
    events                    ↑   ↑   ↑   ↑   the end of one execution is the begin of the next

The gate is a kernel of one thread that does nothing for long enough to queue as much as the driver's queue holds, so that
the GPU never waits for the host. Executions too short for the host to keep up with are queued many at once, as CUDA graphs
with events in them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from wastenot.arrays import FloatArray
from wastenot.devices.instrument import Burst, RoundTrip
from wastenot.devices.torch.devices import find_torch_device
from wastenot.devices.torch.event_clock import RESOLUTION_S, EventClock
from wastenot.devices.torch.task_run import gpu_failed, new_event
from wastenot.errors import CannotRunError, DeviceError
from wastenot.operations.analytical import out_of_memory, release_memory
from wastenot.operations.prepare import Prepared, prepare


class TorchBursts:
    """Runs bursts on one GPU of PyTorch.

    Args:
        device: PyTorch's name of it, such as ``cuda:0``.
        seed: of the random data that kernels run on.
        now_s: clock of the host.

    Raises:
        DeviceError: PyTorch is missing, or does not have the device.
    """

    resolution_s = RESOLUTION_S

    def __init__(self, device: str, *, seed: int = 0, now_s: Callable[[], float] = time.perf_counter) -> None:
        self._device = find_torch_device(device)
        self._seed, self._now_s = seed, now_s
        with torch.cuda.device(self._device):
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            self._clock = EventClock(new_event, torch.cuda.Stream(self._device), now_s)  # type: ignore[no-untyped-call]

    def round_trips(self, times: int) -> tuple[RoundTrip, ...]:
        """Read the GPU's clock so often.

        Raises:
            DeviceError: the GPU failed.
        """
        try:
            with torch.cuda.device(self._device):
                return tuple(self._clock.round_trip() for _ in range(times))
        except RuntimeError as error:
            raise gpu_failed(error) from None

    @contextmanager
    def prepare(self, burst: Burst, calls: Mapping[str, Callable[[], object]]) -> Iterator[TorchBurst]:
        """Make a burst ready until the context is left; then wait for what is queued and free its memory.

        Each kernel has one set of buffers with random data: one that is executed again finds its data where the last
        execution left them, in the cache where they fit, as in FinGraV's measurements.

        Args:
            burst: to run.
            calls: functions to run in place of the kernels of their names.

        Raises:
            CannotRunError: a kernel has no operation, the device lacks the memory, or it cannot be queued ahead.
            DeviceError: the device failed.
        """
        try:
            yield self._ready(burst, calls)
        finally:
            try:
                for index in range(torch.cuda.device_count()):  # a collective has parts on the others
                    torch.cuda.synchronize(index)
            except RuntimeError as error:
                raise gpu_failed(error) from None
            finally:
                release_memory(self._device)

    def _ready(self, burst: Burst, calls: Mapping[str, Callable[[], object]]) -> TorchBurst:
        names = ", ".join(kernel.name for kernel in burst.kernels)
        try:
            with torch.cuda.device(self._device):
                ready = [
                    calls[kernel.name] if kernel.name in calls else prepare(kernel, str(self._device), 1, seed=self._seed)[0]
                    for kernel in burst.kernels
                ]
                for index in range(torch.cuda.device_count()):
                    torch.cuda.synchronize(index)
                gradients = any(kernel.name in calls for kernel in burst.kernels)
                together = any(kernel.op == "collective" for kernel in burst.kernels)
                others = [index for index in range(torch.cuda.device_count()) if together and index != self._device.index]
                return TorchBurst(ready, burst.order, self._stream, self._clock, names, others=others, gradients=gradients)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise DeviceError(f"{names}: failed on {self._device}: {str(error).strip().splitlines()[0]}") from None
        release_memory(self._device)
        raise CannotRunError(f"{names}: the data do not fit the memory that is free on {self._device}")


MOST_QUEUED = 400
"""Executions that wait on the GPU; each takes two places, its own and its event's, of the driver's about 1,000.

Of kernels with many arguments fewer fit, on an H200 some 200 products of 4096² matrices; that is found out by trying.
"""

_IN_GRAPH = 100  # executions
_WARM = 3  # executions of each kernel, before it is timed
_TIMED = 5
_KEEPS_UP = 2.5  # the GPU takes so many times as long as the host, or more: the host can keep up, polling beside it
_GATE_S = 2e-3  # that a gate is at least
_SLACK = 3.0  # times as long as queueing takes when all is warm
_LONGEST_GATE_S = 0.25
_TRIES = 12
_GATE_CYCLES = 4_000_000  # of the one that is timed
_LOOK_S = 1e-4
_DRY_SHARE = 0.01  # of what is queued after the gate, that may have come too late


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """What is queued at once.

    Attributes:
        run: queues it on the current stream, with an event after each execution.
        executions: in it.
        ends: the events, in order.
        fence: event after all of it, by which to know that it has ended.
    """

    run: Callable[[], None]
    executions: int
    ends: tuple[Any, ...]
    fence: Any


class TorchBurst:
    """A burst that is ready to run.

    Args:
        calls: run one execution of each kernel.
        order: of each execution, which call it is.
        stream: to queue on.
        clock: of the GPU.
        names: of the kernels, for messages.
        others: numbers of GPUs that take part, which are kept from starting as well: what waits there for this GPU's part
            looks to this one like load.
        gradients: whether calls may need them, as functions of a user may.
        most_queued: executions that may wait on the GPU.
        graphs: whether executions are queued as graphs; ``None`` where they are too many and too short to do without.

    Raises:
        CannotRunError: executions cannot be queued ahead.

    Attributes:
        how: a line that says how executions are queued.
    """

    def __init__(
        self,
        calls: Sequence[Prepared],
        order: Sequence[int],
        stream: torch.cuda.Stream,
        clock: EventClock,
        names: str,
        *,
        others: Sequence[int] = (),
        gradients: bool = False,
        most_queued: int = MOST_QUEUED,
        graphs: bool | None = None,
    ) -> None:
        self._stream, self._clock, self._names = stream, clock, names
        self._others, self._gradients = tuple(others), gradients
        self._begin = new_event()
        self._late = 0
        self._ahead = 0
        with self._on_stream():
            host_s, gpu_s = _times(calls, stream)
            self._cycles_a_second = _cycles_a_second(stream)
            self._pieces = [_one(calls[which], stream) for which in order]
            queue_s = sum(host_s[which] for which in order[:most_queued])
            self.how = "one by one"
            lasting = len(order) > most_queued
            slow = sum(gpu_s[which] for which in order) < _KEEPS_UP * sum(host_s[which] for which in order)
            if graphs or (graphs is None and lasting and slow):
                self._capture(calls, order)
            self._ahead = min(max(1, most_queued // self._pieces[0].executions), len(self._pieces))
            self._gate_s = max(_GATE_S, _SLACK * queue_s)
            self._settle()

    def run(self) -> bool:
        """Run the burst once and wait for its end.

        Returns:
            Whether as much was queued before the gate opened as should be. If not, executions were not back to back; the
            next gate is longer.

        Raises:
            DeviceError: the GPU failed, or the host could not keep up.
        """
        try:
            with self._on_stream():
                in_time = self._queue(len(self._pieces))
                if not in_time:
                    self._stream.synchronize()
                    return False
                while not self._pieces[-1].fence.query():
                    time.sleep(_LOOK_S)
        except RuntimeError as error:
            raise gpu_failed(error) from None
        self._check_late()
        return True

    def stamps(self) -> tuple[FloatArray, FloatArray]:
        """Begin and end of each execution of the last run on the GPU's clock, shape (executions,)."""
        ends = (end for piece in self._pieces for end in piece.ends)
        moments = self._clock.moments([self._begin, *ends])
        return moments[:-1], moments[1:]

    def _queue(self, pieces: int) -> bool:
        """Queue the first pieces behind a gate; says whether it was still closed when the last that fits was queued."""
        cycles = round(self._gate_s * self._cycles_a_second)
        for index in self._others:
            with torch.cuda.device(index):
                torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        self._begin.record(self._stream)
        head = min(self._ahead, pieces)
        for piece in self._pieces[:head]:
            piece.run()
        if self._begin.query():  # type: ignore[no-untyped-call]
            self._gate_s = min(2.0 * self._gate_s, _LONGEST_GATE_S)
            return False
        self._late = 0
        for number in range(head, pieces):
            while not self._pieces[number - head].fence.query():
                time.sleep(_LOOK_S)
            self._pieces[number].run()
            self._late += bool(self._pieces[number - 1].fence.query())
        return True

    def _check_late(self) -> None:
        fed = len(self._pieces) - self._ahead
        if self._late > max(1.0, _DRY_SHARE * fed):
            raise DeviceError(
                f"{self._names}: the GPU waited for the host before {self._late} of {fed} executions, which so are not back "
                "to back; run fewer executions, or on a host with less to do"
            )

    def _settle(self) -> None:
        """Find a gate long enough to queue what the driver's queue holds behind it; that is a warm-up as well."""
        a_piece_s = self._gate_s / self._ahead
        for attempt in range(1, _TRIES + 1):
            in_time = self._queue(self._ahead)
            self._stream.synchronize()
            if in_time:
                break
            if attempt % 2 == 0:  # a longer gate did not help: the queue is full, and opens only as the gate does
                self._ahead = max(1, self._ahead // 2)
                self._gate_s = max(_GATE_S, a_piece_s * self._ahead)
        else:
            raise CannotRunError(
                f"{self._names}: cannot be queued ahead of the GPU; does it wait for it, as .item() and .cpu() do?"
            )
        # Events are made when they are first recorded, and graphs are copied to the GPU when they are first run; that takes
        # time, and the driver tells nothing of the sensors meanwhile.
        for piece in self._pieces[self._ahead :]:
            if piece.executions > 1:
                piece.run()
            else:
                piece.fence.record(self._stream)
        self._stream.synchronize()

    def _capture(self, calls: Sequence[Prepared], order: Sequence[int]) -> None:
        """Executions in graphs, where that can be done."""
        pieces: list[Piece] = []
        memory: Any = None
        try:
            for first in range(0, len(order), _IN_GRAPH):
                graph = torch.cuda.CUDAGraph()
                ends = tuple(_event_in_graph() for _ in order[first : first + _IN_GRAPH])
                graph.capture_begin(pool=memory, capture_error_mode="thread_local")
                try:
                    for which, end in zip(order[first : first + _IN_GRAPH], ends, strict=True):
                        calls[which]()
                        end.record(self._stream)
                finally:
                    graph.capture_end()
                memory = memory or graph.pool()
                pieces.append(_of_graph(graph, ends, self._stream))
        except RuntimeError as error:
            if out_of_memory(error) or isinstance(error, torch.AcceleratorError):
                raise
            torch.cuda.synchronize(self._stream.device)
            return
        self._pieces = pieces
        self.how = f"cuda graphs of {_IN_GRAPH} executions"

    @contextmanager
    def _on_stream(self) -> Iterator[None]:
        with torch.cuda.stream(self._stream), nullcontext() if self._gradients else torch.no_grad():
            yield


def _one(call: Prepared, stream: torch.cuda.Stream) -> Piece:
    end = new_event()

    def run() -> None:
        call()
        end.record(stream)

    return Piece(run, 1, (end,), end)


def _of_graph(graph: torch.cuda.CUDAGraph, ends: tuple[Any, ...], stream: torch.cuda.Stream) -> Piece:
    # Events in a graph tell of the time before as long as it has not run: whether it has ended, one after it tells.
    fence = new_event()

    def run() -> None:
        graph.replay()
        fence.record(stream)

    return Piece(run, len(ends), ends, fence)


def _event_in_graph() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True, external=True)  # type: ignore[no-untyped-call]


def _times(calls: Sequence[Prepared], stream: torch.cuda.Stream) -> tuple[list[float], list[float]]:
    """What each call takes of the host to be queued, and of the GPU to run, tried behind a gate."""
    host, gpu = [], []
    for call in calls:
        for _ in range(_WARM):
            call()
        pieces = [_one(call, stream) for _ in range(_TIMED)]
        for piece in pieces:  # makes the events, which takes time
            piece.fence.record(stream)
        stream.synchronize()
        torch.cuda._sleep(_GATE_CYCLES)  # type: ignore[no-untyped-call]
        began = time.perf_counter()
        for piece in pieces:
            piece.run()
        host.append((time.perf_counter() - began) / _TIMED)
        stream.synchronize()
        gpu.append(float(pieces[0].fence.elapsed_time(pieces[-1].fence)) * 1e-3 / (_TIMED - 1))
    return host, gpu


def _cycles_a_second(stream: torch.cuda.Stream) -> float:
    """Of a gate, on a GPU that is awake: it is never shorter than meant, and longer where the clock is lower."""
    begin, end = new_event(), new_event()
    begin.record(stream)
    torch.cuda._sleep(_GATE_CYCLES)  # type: ignore[no-untyped-call]
    end.record(stream)
    end.synchronize()
    return _GATE_CYCLES / (float(begin.elapsed_time(end)) * 1e-3)
