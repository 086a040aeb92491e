"""Bursts with PyTorch: executions back to back on one stream, each with a timestamp by the GPU.

    host     queue ▮▮▮▮▮▮▮▮▮▮           queue more as executions end  ▮ ▮ ▮ ▮ ▮
    stream         ├── gate ──┤ ▮ │ ▮ │ ▮ │ ▮ │ ▮ │ ▮ │ ▮ │ ▮ │ ▮ │ ▮ │ ▮ │
    events                    ↑   ↑   ↑   ↑   the end of one execution is the start of the next
    stamps                    ↑               ↑   of the cycle counters, every 5 ms, in gaps of their own

The gate is a one-thread kernel that spins long enough for the host to fill the driver's queue behind it, so that the GPU
never waits for the host. Executions too short for the host to keep up with are queued many at once, as CUDA graphs with
events in them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import torch

from wastenot.core.errors import CannotRunError, DeviceError, MissingExtraError, first_line
from wastenot.devices.instrument import Burst, RoundTrip
from wastenot.devices.torch.devices import find_torch_device
from wastenot.devices.torch.event_clock import RESOLUTION_S, EventClock
from wastenot.devices.torch.host_stamps import HostStamps
from wastenot.devices.torch.queued_burst import TorchBurst
from wastenot.devices.torch.task_run import gpu_failed, new_event
from wastenot.workloads.operations.analytical import out_of_memory, release_memory
from wastenot.workloads.operations.prepare import prepare


class TorchBursts:
    """Runs bursts on one GPU with PyTorch.

    Args:
        device: PyTorch's name of the GPU, such as ``cuda:0``.
        now_s: the host's clock.

    Raises:
        MissingExtraError: PyTorch was built without CUDA.
        BadInputError: there is no such device.
        DeviceError: PyTorch finds no GPU.
    """

    resolution_s = RESOLUTION_S

    def __init__(self, device: str, *, now_s: Callable[[], float] = time.perf_counter) -> None:
        self._device = find_torch_device(device)
        with torch.cuda.device(self._device):
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
            self._clock = EventClock(new_event, torch.cuda.Stream(self._device), now_s)  # type: ignore[no-untyped-call]
            self._counters: HostStamps | None = None
            with suppress(MissingExtraError, DeviceError):  # doctor says why profiles then have no core clocks
                self._counters = HostStamps(self._device, _PLACES)

    def round_trips(self, times: int) -> tuple[RoundTrip, ...]:
        """Read the GPU's clock a number of times.

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
        """Prepare a burst until the context exits; then wait for what is queued and free its memory.

        Each kernel has one set of buffers with random data: repeated executions find their data in the cache where they
        fit, as in FinGraV's measurements.

        Args:
            burst: the burst to run.
            calls: functions to run in place of the kernels of these names.

        Raises:
            CannotRunError: a kernel has no operation, the device lacks the memory, or it cannot be queued ahead.
            DeviceError: the device failed.
        """
        try:
            yield self._prepare(burst, calls)
        finally:
            try:
                for index in range(torch.cuda.device_count()):  # a collective also runs on the others
                    torch.cuda.synchronize(index)
            except RuntimeError as error:
                raise gpu_failed(error) from None
            finally:
                release_memory(self._device)

    def _prepare(self, burst: Burst, calls: Mapping[str, Callable[[], object]]) -> TorchBurst:
        names = ", ".join(kernel.name for kernel in burst.kernels)
        try:
            with torch.cuda.device(self._device):
                prepared = [
                    calls[kernel.name] if kernel.name in calls else prepare(kernel, str(self._device), 1)[0]
                    for kernel in burst.kernels
                ]
                for index in range(torch.cuda.device_count()):
                    torch.cuda.synchronize(index)
                gradients = any(kernel.name in calls for kernel in burst.kernels)
                together = any(kernel.op == "collective" for kernel in burst.kernels)
                others = [index for index in range(torch.cuda.device_count()) if together and index != self._device.index]
                return TorchBurst(
                    prepared, burst.order, self._stream, self._clock, names, others=others, gradients=gradients,
                    counters=self._counters,
                )  # fmt: skip
        except RuntimeError as error:
            if not out_of_memory(error):
                raise DeviceError(f"{names}: failed on {self._device}: {first_line(error)}") from None
        release_memory(self._device)
        raise CannotRunError(f"{names}: the data do not fit into the free memory of {self._device}")


_PLACES = 4096  # of stamps: 20 s of executions
