"""Moments of a GPU's own work on the clock of the host, from CUDA events that nobody waits for while the work runs.

    host   ──a──────────b────────────e──────────────────────────r──a'──►     begin, end: events are put on the stream
    GPU    ──A───────────────B───────────────────E─────────────────A'──►     and happen when the GPU comes to them

Anchors A are events on a stream of their own, which is empty, so that they happen as soon as they are asked for: host and
GPU then agree to the time that the asking takes. One is made once, another when results are read; moments between them are
interpolated, so that clocks which drift apart do no harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from wastenot.errors import BadInputError, MissingExtraError

_TRIES = 5  # of an anchor; the fastest is taken
_DRIFT_S = 1.0  # anchors closer than that say nothing of drift


@dataclass(frozen=True, slots=True)
class Anchor:
    """An event and the host's moment of it, give or take half the width."""

    event: Any
    moment_s: float
    width_s: float


class GpuClock:
    """The clock of one GPU.

    Args:
        make_event: a CUDA event with timing.
        own_stream: an empty stream on the GPU.
        current_stream: gives the stream that the program uses.
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
        self._anchor = self.anchor()

    def mark(self) -> Any:
        """Put an event on the current stream; nothing is waited for."""
        event = self._make_event()
        event.record(self._current_stream())
        return event

    def anchor(self) -> Anchor:
        """Find out at which moment of the host an event happens."""
        best: Anchor | None = None
        for _ in range(_TRIES):
            event = self._make_event()
            before = self._now_s()
            event.record(self._own_stream)
            event.synchronize()
            after = self._now_s()
            if best is None or after - before < best.width_s:
                best = Anchor(event, 0.5 * (before + after), after - before)
        assert best is not None
        return best

    def moments(self, begin: Any, end: Any) -> tuple[float, float, float]:
        """Host moments of two events, waiting for the second to happen, and the width they are known to."""
        end.synchronize()
        first, last = self._anchor, self.anchor()
        host_s = last.moment_s - first.moment_s
        gpu_s = _between_s(first.event, last.event)
        rate = host_s / gpu_s if host_s > _DRIFT_S else 1.0
        length_s = _between_s(begin, end) * rate
        # Counted from the nearer anchor: milliseconds in single precision are coarse over hours.
        end_s = last.moment_s - _between_s(end, last.event) * rate
        return end_s - length_s, end_s, max(first.width_s, last.width_s)


def _between_s(first: Any, second: Any) -> float:
    return 1e-3 * float(first.elapsed_time(second))


_clocks: dict[int, GpuClock] = {}


def torch_clocks(unique_ids: tuple[str, ...]) -> tuple[GpuClock | None, ...]:
    """Clocks of GPUs through PyTorch; ``None`` for one that PyTorch does not see.

    Raises:
        MissingExtraError: PyTorch is not installed.
        BadInputError: it sees no GPU, or none of these.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("measure(gpu=True) needs PyTorch: pip install 'wastenot[torch]'") from error
    if not torch.cuda.is_available():
        raise BadInputError("measure(gpu=True): PyTorch sees no GPU here; leave gpu out to measure by the host's time")
    indices = {_bare(str(torch.cuda.get_device_properties(i).uuid)): i for i in range(torch.cuda.device_count())}
    found = tuple(indices.get(_bare(unique_id)) for unique_id in unique_ids)
    if all(index is None for index in found):
        raise BadInputError(f"measure(gpu=True): PyTorch sees none of the GPUs measured ({', '.join(unique_ids)})")
    return tuple(None if index is None else _torch_clock(index) for index in found)


def _torch_clock(index: int) -> GpuClock:
    import torch

    if index not in _clocks:
        _clocks[index] = GpuClock(
            lambda: torch.cuda.Event(enable_timing=True),  # type: ignore[no-untyped-call,unused-ignore]
            torch.cuda.Stream(device=index),  # type: ignore[no-untyped-call,unused-ignore]
            lambda: torch.cuda.current_stream(index),
        )
    return _clocks[index]


def _bare(unique_id: str) -> str:
    return unique_id.removeprefix("GPU-").lower()
