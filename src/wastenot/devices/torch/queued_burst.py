"""A burst that is prepared: its executions, the gate that they are queued behind, and how many fit into the queue."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import CannotRunError, DeviceError
from wastenot.devices.instrument import STAMPS_S
from wastenot.devices.torch.event_clock import EventClock
from wastenot.devices.torch.host_stamps import HostStamps, Place
from wastenot.devices.torch.task_run import gpu_failed, new_event
from wastenot.workloads.operations.analytical import out_of_memory
from wastenot.workloads.operations.prepare import Prepared

MOST_QUEUED = 400
"""Executions queued on the GPU at most; each takes two entries, its own and its event's, of the driver's about 1,000.

Fewer fit for kernels with many arguments: on an H200 about 200 products of 4096² matrices. The limit is found by trying.
"""
_IN_GRAPH = 100  # executions per CUDA graph
_WARM = 3  # untimed executions of each kernel
_TIMED = 5
_KEEPS_UP = 2.5  # ratio of GPU time to host time from which the host can keep up while it also polls sensors
_GATE_S = 2e-3  # shortest gate
_SLACK = 3.0  # length of the gate relative to the time that queueing takes once warm
_LONGEST_GATE_S = 0.25
_TRIES = 12
_GATE_CYCLES = 4_000_000  # of the gate that is timed
_POLL_S = 1e-4
_LATE_FRACTION = 0.01  # of the executions queued after the gate, which may have been queued too late


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Executions that are queued at once.

    Attributes:
        run: queues them on the current stream, with an event after each execution.
        executions: how many they are.
        ends: the events, in order.
        fence: event after all of them, which tells when they have ended.
        after_stamp: event after the stamp that follows them; ``None`` where none does.
    """

    run: Callable[[], None]
    executions: int
    ends: tuple[Any, ...]
    fence: Any
    after_stamp: Any = None


class TorchBurst:
    """A burst that is ready to run.

    Args:
        calls: functions that each run one execution of a kernel.
        order: index of each execution's call.
        stream: stream to queue on.
        clock: the GPU's clock.
        names: names of the kernels, for messages.
        others: indices of other GPUs that take part; they get a gate too, since a collective part waiting there would
            appear as load here.
        gradients: whether calls may need gradients, as a user's functions may.
        most_queued: executions queued on the GPU at most.
        graphs: whether executions are queued as graphs; ``None`` uses them only where executions are many and short.
        counters: cycle counters; ``None`` where they cannot be counted.

    Raises:
        CannotRunError: executions cannot be queued ahead.

    Attributes:
        how: one line that describes how executions are queued.
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
        counters: HostStamps | None = None,
    ) -> None:
        self._stream, self._clock, self._names = stream, clock, names
        self._others, self._gradients = tuple(others), gradients
        self._begin = new_event()
        self._counters = counters
        self._stamps: list[Place | None] = []  # of the run, in order
        self._clocks_mhz: list[float] = []  # between these
        self._late = 0
        self._ahead = 0
        with self._on_stream():
            host_s, gpu_s = _times(calls, stream)
            self._cycles_per_s = _cycles_per_s(stream)
            self._pieces = [_one(calls[which], stream) for which in order]
            queue_s = sum(host_s[which] for which in order[:most_queued])
            self.how = "one by one"
            lasting = len(order) > most_queued
            slow = sum(gpu_s[which] for which in order) < _KEEPS_UP * sum(host_s[which] for which in order)
            if graphs or (graphs is None and lasting and slow):
                self._capture(calls, order)
            if counters is not None:
                self._pieces = _with_stamps(self._pieces, [gpu_s[which] for which in order])
            self._ahead = _fitting(self._pieces, most_queued)
            self._gate_s = max(_GATE_S, _SLACK * queue_s)
            self._find_gate()

    def run(self) -> bool:
        """Run the burst once and wait for its end.

        Returns:
            Whether everything due was queued before the gate opened. If not, executions were not back to back, and the
            next gate is longer.

        Raises:
            DeviceError: the GPU failed, or the host could not keep up.
        """
        try:
            with self._on_stream():
                in_time = self._queue(len(self._pieces))
                if not in_time:
                    self._stream.synchronize()
                    self._take_stamps()
                    return False
                while not (self._pieces[-1].after_stamp or self._pieces[-1].fence).query():
                    time.sleep(_POLL_S)
                self._take_stamps()
        except RuntimeError as error:
            raise gpu_failed(error) from None
        self._check_late()
        return True

    def stamps(self) -> tuple[FloatArray, FloatArray]:
        """Start and end of each execution of the last run by the GPU's clock, shape (executions,)."""
        events, begins, ends = [self._begin], [0], []
        for piece in self._pieces:
            for end in piece.ends:
                events.append(end)
                ends.append(len(events) - 1)
                begins.append(ends[-1])
            if piece.after_stamp is not None:
                events.append(piece.after_stamp)
                begins[-1] = len(events) - 1
        moments = self._clock.moments(events)
        return moments[begins[:-1]], moments[ends]

    def counted_mhz(self) -> FloatArray | None:
        """Mean SM clock between the stamps around each execution of the last run, shape (executions,); NaN where unknown.

        ``None`` where cycles cannot be counted.
        """
        if self._counters is None:
            return None
        clocks_mhz = iter(self._clocks_mhz)
        found, waiting = [], 0
        for piece in self._pieces:
            waiting += piece.executions
            if piece.after_stamp is not None:
                found += [next(clocks_mhz)] * waiting
                waiting = 0
        return np.array(found, dtype=np.float64)

    def _stamp(self) -> None:
        if self._counters is not None:
            self._stamps.append(self._counters.record(self._stream.cuda_stream))

    def _take_stamps(self) -> None:
        """Free the places of a run that has ended, and note the clocks between them."""
        if self._counters is None:
            return
        taken = [None if place is None else self._counters.take(place) for place in self._stamps]
        for place, stamp in zip(self._stamps, taken, strict=True):
            if place is not None and stamp is None:
                self._counters.drop(place)
        between = [None if last is None or first is None else last.clock_since(first) for first, last in pairwise(taken)]
        self._clocks_mhz = [math.nan if clock is None else clock[0] for clock in between]
        self._stamps = []

    def _queue(self, pieces: int) -> bool:
        """Queue the first pieces behind a gate; returns whether it was still closed when the last that fits was queued."""
        cycles = round(self._gate_s * self._cycles_per_s)
        for index in self._others:
            with torch.cuda.device(index):
                torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        self._stamp()
        self._begin.record(self._stream)
        head = min(self._ahead, pieces)
        for piece in self._pieces[:head]:
            self._queue_one(piece)
        if self._begin.query():  # type: ignore[no-untyped-call]
            self._gate_s = min(2.0 * self._gate_s, _LONGEST_GATE_S)
            return False
        self._late = 0
        for number in range(head, pieces):
            while not self._pieces[number - head].fence.query():
                time.sleep(_POLL_S)
            self._queue_one(self._pieces[number])
            self._late += bool(self._pieces[number - 1].fence.query())
        return True

    def _queue_one(self, piece: Piece) -> None:
        piece.run()
        if piece.after_stamp is not None:
            self._stamp()
            piece.after_stamp.record(self._stream)

    def _check_late(self) -> None:
        fed = len(self._pieces) - self._ahead
        if self._late > max(1.0, _LATE_FRACTION * fed):
            raise DeviceError(
                f"{self._names}: the GPU waited for the host before {self._late} of {fed} executions, so they are not "
                "back to back; run fewer executions, or use a less busy host"
            )

    def _find_gate(self) -> None:
        """Find a gate long enough to fill the driver's queue behind it, which also warms up."""
        per_piece_s = self._gate_s / self._ahead
        for attempt in range(1, _TRIES + 1):
            in_time = self._queue(self._ahead)
            self._stream.synchronize()
            self._take_stamps()
            if in_time:
                break
            if attempt % 2 == 0:  # a longer gate did not help: the queue is full until the gate opens
                self._ahead = max(1, self._ahead // 2)
                self._gate_s = max(_GATE_S, per_piece_s * self._ahead)
        else:
            raise CannotRunError(
                f"{self._names}: cannot be queued ahead of the GPU; does it wait for the GPU, as .item() and .cpu() do?"
            )
        # Events are created when they are first recorded, and graphs are copied to the GPU when they first run. That takes
        # time in which the driver answers no sensor reads.
        for piece in self._pieces[self._ahead :]:
            if piece.executions > 1:
                piece.run()
            else:
                piece.fence.record(self._stream)
            if piece.after_stamp is not None:
                piece.after_stamp.record(self._stream)
        self._stream.synchronize()

    def _capture(self, calls: Sequence[Prepared], order: Sequence[int]) -> None:
        """Capture the executions into graphs, where that is possible."""
        pieces: list[Piece] = []
        memory: Any = None
        try:
            for first in range(0, len(order), _IN_GRAPH):
                graph = torch.cuda.CUDAGraph()
                ends = tuple(new_event(external=True) for _ in order[first : first + _IN_GRAPH])
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


def _with_stamps(pieces: Sequence[Piece], execution_s: Sequence[float]) -> list[Piece]:
    """The pieces, with a stamp every so often and at the end."""
    stamped, since_s, first = [], 0.0, 0
    for number, piece in enumerate(pieces, 1):
        since_s += sum(execution_s[first : first + piece.executions])
        first += piece.executions
        due = since_s >= STAMPS_S or number == len(pieces)
        stamped.append(replace(piece, after_stamp=new_event()) if due else piece)
        since_s = 0.0 if due else since_s
    return stamped


def _fitting(pieces: Sequence[Piece], most_queued: int) -> int:
    """How many pieces, at least one, fit into the driver's queue, where a stamp takes as much room as an execution."""
    queued = 0
    for number, piece in enumerate(pieces):
        queued += piece.executions + (piece.executions == 1 and piece.after_stamp is not None)
        if queued > most_queued:
            return max(1, number)
    return len(pieces)


def _one(call: Prepared, stream: torch.cuda.Stream) -> Piece:
    end = new_event()

    def run() -> None:
        call()
        end.record(stream)

    return Piece(run, 1, (end,), end)


def _of_graph(graph: torch.cuda.CUDAGraph, ends: tuple[Any, ...], stream: torch.cuda.Stream) -> Piece:
    # Events in a graph report its previous run until it runs again; an event after it tells whether it has ended.
    fence = new_event()

    def run() -> None:
        graph.replay()
        fence.record(stream)

    return Piece(run, len(ends), ends, fence)


def _times(calls: Sequence[Prepared], stream: torch.cuda.Stream) -> tuple[list[float], list[float]]:
    """Host time to queue each call and GPU time to run it, measured behind a gate."""
    host, gpu = [], []
    for call in calls:
        for _ in range(_WARM):
            call()
        pieces = [_one(call, stream) for _ in range(_TIMED)]
        for piece in pieces:  # creates the events, which takes time
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


def _cycles_per_s(stream: torch.cuda.Stream) -> float:
    """Cycles per second of a gate on a GPU that is awake; at a lower clock a gate only gets longer."""
    begin, end = new_event(), new_event()
    begin.record(stream)
    torch.cuda._sleep(_GATE_CYCLES)  # type: ignore[no-untyped-call]
    end.record(stream)
    end.synchronize()
    return _GATE_CYCLES / (float(begin.elapsed_time(end)) * 1e-3)
