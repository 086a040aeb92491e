"""Bursts with PyTorch: their kernels made ready on one GPU, and its clock read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch

from wastenot.devices.fine_grain import Burst, RoundTrip
from wastenot.devices.torch.burst import TorchBurst
from wastenot.devices.torch.event_clock import RESOLUTION_S, EventClock
from wastenot.devices.torch.launcher import find_torch_device
from wastenot.devices.torch.run import gpu_failed, new_event
from wastenot.errors import CannotRunError, DeviceError
from wastenot.operations.by_formula import out_of_memory, release_memory
from wastenot.operations.prepare import prepare


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
