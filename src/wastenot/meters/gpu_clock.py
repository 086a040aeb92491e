"""Dates a GPU's own work on the host's clock, from CUDA events that are not waited for while the work runs.

    host   ──a──────────b────────────e──────────────────────────r──a'──►     begin, end: events are put on the stream
    GPU    ──A───────────────B───────────────────E─────────────────A'──►     and happen when the GPU reaches them

Anchors A are events on an empty stream of their own, so they happen as soon as they are recorded: host and GPU then agree to
within the round trip. One is taken at the beginning, another when results are read; moments between them are interpolated,
so that clocks which drift apart do no harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from wastenot.core.errors import BadInputError, MissingExtraError
from wastenot.core.install import install_line
from wastenot.core.vendors import bare_unique_id
from wastenot.devices.clock_fit import ClockFit
from wastenot.devices.instrument import RoundTrip

_TRIES = 5  # for an anchor; the fastest is kept


@dataclass(frozen=True, slots=True)
class _Anchor:
    """An event that happened between two moments of the host."""

    event: Any
    before_s: float
    after_s: float


class GpuClock:
    """The clock of one GPU.

    Args:
        make_event: makes a CUDA event with timing.
        own_stream: an empty stream on the GPU.
        current_stream: returns the stream that the program uses.
        now_s: clock of the host.
    """

    def __init__(
        self,
        make_event: Callable[[], Any],
        own_stream: Any,
        current_stream: Callable[[], Any],
        now_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._make_event, self._own_stream, self._current_stream = make_event, own_stream, current_stream
        self._now_s = now_s
        self._first = self._anchor()

    def mark(self) -> Any:
        """Record an event on the current stream, without waiting."""
        event = self._make_event()
        event.record(self._current_stream())
        return event

    def _anchor(self) -> _Anchor:
        """Record an event on the empty stream and wait for it."""
        tries = []
        for _ in range(_TRIES):
            event = self._make_event()
            before = self._now_s()
            event.record(self._own_stream)
            event.synchronize()
            tries.append(_Anchor(event, before, self._now_s()))
        return min(tries, key=lambda anchor: anchor.after_s - anchor.before_s)

    def moments(self, begin: Any, end: Any) -> tuple[float, float, float]:
        """Host moments of two events, and the width to which they are known. Waits for the second event."""
        end.synchronize()
        first, last = self._first, self._anchor()
        last_s = _elapsed_s(first.event, last.event)
        fit = ClockFit.through(RoundTrip(first.before_s, 0.0, first.after_s), RoundTrip(last.before_s, last_s, last.after_s))
        # Counted from the nearer anchor: milliseconds in single precision are coarse over hours.
        end_s = last_s - _elapsed_s(end, last.event)
        host_s = fit.host(np.array([end_s - _elapsed_s(begin, end), end_s]))
        return float(host_s[0]), float(host_s[1]), 2.0 * fit.delay_s


def _elapsed_s(first: Any, second: Any) -> float:
    return 1e-3 * float(first.elapsed_time(second))


def torch_clocks(unique_ids: tuple[str, ...], clocks: dict[int, GpuClock]) -> tuple[GpuClock | None, ...]:
    """Clocks of GPUs through PyTorch; ``None`` for one that PyTorch does not see.

    Args:
        unique_ids: of the GPUs.
        clocks: those that exist, by PyTorch's index; new ones are added.

    Raises:
        MissingExtraError: PyTorch is not installed.
        BadInputError: it sees no GPU, or none of these.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError(f"measure(gpu=True) needs PyTorch: {install_line('torch')}") from error
    if not torch.cuda.is_available():
        raise BadInputError("measure(gpu=True): PyTorch sees no GPU here; omit gpu to measure by the host's time")
    indices = {bare_unique_id(str(torch.cuda.get_device_properties(i).uuid)): i for i in range(torch.cuda.device_count())}
    visible = tuple(indices.get(bare_unique_id(unique_id)) for unique_id in unique_ids)
    if all(index is None for index in visible):
        raise BadInputError(f"measure(gpu=True): PyTorch sees none of the GPUs measured ({', '.join(unique_ids)})")
    return tuple(None if index is None else _torch_clock(index, clocks) for index in visible)


def _torch_clock(index: int, clocks: dict[int, GpuClock]) -> GpuClock:
    import torch

    if index not in clocks:
        clocks[index] = GpuClock(
            lambda: torch.cuda.Event(enable_timing=True),  # type: ignore[no-untyped-call,unused-ignore]
            torch.cuda.Stream(device=index),  # type: ignore[no-untyped-call,unused-ignore]
            lambda: torch.cuda.current_stream(index),
        )
    return clocks[index]
