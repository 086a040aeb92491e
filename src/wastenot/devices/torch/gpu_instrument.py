"""The instrument of a real GPU: executions with timestamps of events, power polled from its driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from wastenot.core.errors import DeviceError
from wastenot.devices.instrument import Burst, BurstRun, Clock, PreparedBurst, RoundTrip

if TYPE_CHECKING:
    from wastenot.devices.torch.bursts import TorchBursts
    from wastenot.devices.torch.gpu import TorchGpu
    from wastenot.devices.torch.queued_burst import TorchBurst

_ROUND_TRIPS = 5  # before a run, and again after it
_TRIES = 3  # per run
_LATE_S = 0.01  # by which a reading may come later than expected


class GpuInstrument:
    """Runs bursts on a GPU and logs its power by polling its sensors. It changes nothing on the GPU.

    Args:
        gpu: the GPU.
        bursts: runs bursts on it.

    Raises:
        BadInputError: the GPU has no power sensor.
    """

    executions_by: Clock = "gpu"
    readings_by: Clock = "host"

    def __init__(self, gpu: TorchGpu, bursts: TorchBursts) -> None:
        self.identity, self.now_s = gpu.identity, gpu.time.now_s
        self.resolution_s: float = bursts.resolution_s
        self._bursts, self._sleep = bursts, gpu.time.sleep
        self._calls: Mapping[str, Callable[[], object]] = {}
        self.channels, self._poller = gpu.power_log()

    def round_trips(self, times: int) -> tuple[RoundTrip, ...]:
        """Read the GPU's clock a number of times."""
        return self._bursts.round_trips(times)

    def with_callables(self, calls: Mapping[str, Callable[[], object]]) -> GpuInstrument:
        """The same instrument, running functions in place of the kernels of these names.

        Args:
            calls: functions without arguments that queue work on PyTorch's current stream and do not wait for it. Their
                data must be ready, and they run repeatedly on the same data.
        """
        other = copy(self)
        other._calls = {**self._calls, **calls}
        return other

    @contextmanager
    def prepare(self, burst: Burst) -> Iterator[PreparedBurst]:
        """Prepare a burst until the context exits."""
        with self._bursts.prepare(burst, self._calls) as queued:
            yield PreparedBurst(partial(self._run, burst, queued))

    def _run(self, burst: Burst, queued: TorchBurst, rest_s: float) -> BurstRun:
        total = self.channels[0]
        for _ in range(_TRIES):
            before = self.round_trips(_ROUND_TRIPS)
            with self._poller.following():
                self._sleep(rest_s)
                in_time = queued.run()
                if in_time:
                    self._sleep(total.period_s + total.delay_s + _LATE_S)
            if not in_time:
                continue
            logs = self._poller.readings()
            readings = {channel.name: log for channel, log in zip(self.channels, logs, strict=True)}
            after = self.round_trips(_ROUND_TRIPS)
            kernels, moments_s = np.array(burst.order, dtype=np.intp), queued.stamps()
            return BurstRun(kernels, *moments_s, readings, before + after, counted_mhz=queued.counted_mhz())
        raise DeviceError(
            f"{self.identity.name}: the host was too slow to queue executions ahead of the GPU, {_TRIES} times in a row; "
            "is it busy with other work?"
        )
