"""The role that profiles power inside kernels: single executions with timestamps, and a power log beside them.

    host    │ round trips │                                     │ round trips │
    GPU     ___rest___▁▄▇█│▅▆▇█│▅▆▇█│▅▆▇█│▅▆▇█│▃▁____________    executions, with timestamps of start and end
    logger      •       •       •       •       •       •        each reading covers a window before it

Executions and readings may carry timestamps of different clocks, the host's and the GPU's, which differ by an offset and
drift; round trips relate the two. The profiler uses only this protocol, on real GPUs and simulated ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Literal, Protocol

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.devices.protocol import Identity
from wastenot.workloads.kernel import KernelSpec

Clock = Literal["host", "gpu"]

TOTAL = "total"
"""Name of the channel of the whole GPU's power, which every device that can be profiled has."""

STAMPS_S = 5e-3
"""Time between stamps of the cycle counters in a burst, at least an execution: some µs each, less than 0.1 % of it."""


@dataclass(frozen=True, slots=True)
class Burst:
    """Consecutive executions, starting from rest.

    Attributes:
        steps: (kernel, number of executions) in order; a kernel that recurs is the same object.
    """

    steps: tuple[tuple[KernelSpec, int], ...]

    @property
    def kernels(self) -> tuple[KernelSpec, ...]:
        """Each kernel once, in order of first appearance."""
        return tuple(dict.fromkeys(kernel for kernel, _ in self.steps))

    @property
    def order(self) -> tuple[int, ...]:
        """For each execution the index of its kernel in :attr:`kernels`."""
        index_of = {kernel: index for index, kernel in enumerate(self.kernels)}
        return tuple(chain.from_iterable(repeat(index_of[kernel], times) for kernel, times in self.steps))


@dataclass(frozen=True, slots=True)
class Channel:
    """A power reading that the device logs, and the sensor's characteristics as far as they are known.

    Attributes:
        name: ``total``, or the name of a component.
        period_s: time between new readings.
        window_s: length of the window a reading averages over.
        delay_s: time from the end of the window to the reading's timestamp.
        gain: ratio of readings to true power; 1 where it is unknown.
        noise_w: standard deviation of a reading; ``None`` where it is unknown.
        source: where these values come from, such as ``identified by wastenot device sensor`` or ``published``.
        lag_s: time constant where readings are a first-order lag of power rather than a mean; 0 for a mean.
        delay_error_s: uncertainty of the delay; 0 where it is exact.
        delay_drift: growth of the delay per second (s/s), since its clock is not that of the timestamps.
        delay_at_s: host time at which the delay equals ``delay_s``.
        sample_s: interval at which the sensor samples, where a reading is the latest sample: its delay drifts within one
            interval and jumps by one; 0 where a reading is taken when it is due.
    """

    name: str
    period_s: float
    window_s: float
    delay_s: float = 0.0
    gain: float = 1.0
    noise_w: float | None = None
    source: str = ""
    lag_s: float = 0.0
    delay_error_s: float = 0.0
    delay_drift: float = 0.0
    delay_at_s: float = 0.0
    sample_s: float = 0.0

    @property
    def span_s(self) -> float:
        """Approximate length of time that a reading represents."""
        return 2.0 * self.lag_s or self.window_s

    @property
    def reach_s(self) -> float:
        """How far back power affects a reading."""
        return 8.0 * self.lag_s or self.window_s


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """The log of one channel; arrays of shape (readings,).

    Attributes:
        moment_s: timestamps, by the log's clock.
        power_w: the readings.
    """

    moment_s: FloatArray
    power_w: FloatArray


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """One reading of the GPU's clock.

    Attributes:
        before_s: host time when the reading was requested.
        gpu_s: the GPU's time.
        after_s: host time when the answer arrived.
    """

    before_s: float
    gpu_s: float
    after_s: float


@dataclass(frozen=True, slots=True, eq=False)
class BurstRun:
    """One run of a burst; arrays of shape (executions,).

    Attributes:
        kernel: index of each execution's kernel in the burst.
        begin_s, end_s: start and end of each execution, by the clock that timestamps executions.
        readings: by channel, from before the first execution until after the last.
        round_trips: taken just before and just after the burst.
        late_s: how much later than their channel's delay readings arrived, as far as was established later.
        counted_mhz: cycles that multiprocessors counted per microsecond, over each execution or over the several ms around
            it: the SM clock less the cycles skipped; NaN where unknown, ``None`` where they are not counted.
    """

    kernel: IndexArray
    begin_s: FloatArray
    end_s: FloatArray
    readings: Mapping[str, Readings]
    round_trips: tuple[RoundTrip, ...]
    late_s: float = 0.0
    counted_mhz: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class PreparedBurst:
    """A burst that is ready to run.

    Attributes:
        run: rests for a number of seconds, runs the burst once, and waits for the readings that cover its end.
    """

    run: Callable[[float], BurstRun]


class Instrument(Protocol):
    """Runs bursts on a device and logs its power meanwhile.

    Attributes:
        identity: which device it is.
        channels: the available power readings, ``total`` first.
        executions_by, readings_by: the clocks that timestamp executions and readings.
        resolution_s: resolution of the clock that timestamps executions.
    """

    identity: Identity
    channels: tuple[Channel, ...]
    executions_by: Clock
    readings_by: Clock
    resolution_s: float

    def round_trips(self, times: int) -> tuple[RoundTrip, ...]:
        """Read the GPU's clock a number of times."""

    def prepare(self, burst: Burst) -> AbstractContextManager[PreparedBurst]:
        """Prepare a burst to run, until the context exits.

        Raises:
            CannotRunError: the device lacks what a kernel needs.
            DeviceError: the device failed; runs of the burst raise it too.
        """

    def now_s(self) -> float:
        """Time of the host's clock."""


def burst_of(kernel: KernelSpec, executions: int, before: Sequence[tuple[KernelSpec, int]] = ()) -> Burst:
    """A number of executions of a kernel, optionally after executions of others."""
    return Burst((*before, (kernel, executions)))
