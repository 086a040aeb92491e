"""What a device offers for power inside a kernel: executions one by one, power as it is logged, and two clocks.

    host    │ round trips │                                     │ round trips │
    GPU     ___rest___▁▄▇█│▅▆▇█│▅▆▇█│▅▆▇█│▅▆▇█│▃▁____________    executions, begin and end of each stamped
    logger      •       •       •       •       •       •        each reading stands for a window before it

Executions and readings may be stamped by different clocks, the host's and the GPU's, which are off by an offset and drift;
round trips tell them together. Who measures speaks only this, on real GPUs and simulated ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Literal, Protocol, runtime_checkable

from wastenot.arrays import FloatArray, IndexArray
from wastenot.devices.protocol import Device, Identity
from wastenot.errors import BadInputError
from wastenot.workloads.kernel import KernelSpec

Clock = Literal["host", "gpu"]

TOTAL = "total"
"""The channel of the whole GPU's power, which every device that can be profiled has."""


@dataclass(frozen=True, slots=True)
class Burst:
    """Executions in a row, from rest.

    Attributes:
        steps: (kernel, how often) in order; of a kernel that comes again later, the same object.
    """

    steps: tuple[tuple[KernelSpec, int], ...]

    @property
    def kernels(self) -> tuple[KernelSpec, ...]:
        """Each kernel once, in order of first appearance."""
        return tuple(dict.fromkeys(kernel for kernel, _ in self.steps))

    @property
    def order(self) -> tuple[int, ...]:
        """Of each execution, which of :attr:`kernels` it is."""
        place = {kernel: index for index, kernel in enumerate(self.kernels)}
        return tuple(chain.from_iterable(repeat(place[kernel], times) for kernel, times in self.steps))


@dataclass(frozen=True, slots=True)
class Channel:
    """A power reading that the device logs, and how it comes about as far as that is known.

    Attributes:
        name: ``total``, or that of a component.
        period_s: between new readings.
        window_s: that a reading is the mean over.
        delay_s: from the window's end to the reading's stamp.
        lag_s: time constant of the first-order lag that a reading is, in place of a mean; 0 for a mean.
        delay_error_s: by which the delay may be off; 0 where it is known.
        delay_drift: by which the delay grows each second, as a share: a sensor's own clock runs beside that of its stamps.
        delay_at_s: moment of the host's clock at which the delay is as told.
        sample_s: time between the sensor's samples, of which a reading is the latest: its delay drifts within it, and jumps
            by it; 0 where a reading is made when it is due.
        gain: it reads this times the truth; 1 where that is not known.
        noise_w: standard deviation of a reading; ``None`` where it is not known.
        source: who says so, such as ``identified by wastenot sensor`` or ``published``.
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
        """Time that a reading stands for, by and large."""
        return 2.0 * self.lag_s or self.window_s

    @property
    def reach_s(self) -> float:
        """How far back a reading tells of anything."""
        return 8.0 * self.lag_s or self.window_s


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """What one channel logged; arrays of shape (readings,).

    Attributes:
        moment_s: stamps, on the log's clock.
        power_w: the readings.
    """

    moment_s: FloatArray
    power_w: FloatArray


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """One reading of the GPU's clock.

    Attributes:
        before_s: host clock before it was asked for.
        gpu_s: what the GPU's clock said.
        after_s: host clock when the answer was there.
    """

    before_s: float
    gpu_s: float
    after_s: float


@dataclass(frozen=True, slots=True, eq=False)
class BurstRun:
    """One run of a burst; arrays of shape (executions,).

    Attributes:
        kernel: which of the burst's kernels each execution was.
        begin_s, end_s: of each execution, on the clock that the instrument stamps executions by.
        readings: by channel, from some time before the first execution to some after the last.
        round_trips: taken just before and just after.
        late_s: by which readings came later than their channel's delay, as far as that was found out since.
    """

    kernel: IndexArray
    begin_s: FloatArray
    end_s: FloatArray
    readings: Mapping[str, Readings]
    round_trips: tuple[RoundTrip, ...]
    late_s: float = 0.0


class PreparedBurst(Protocol):
    """A burst made ready to run."""

    def run(self, rest_s: float) -> BurstRun:
        """Rest, run the burst once, and wait until readings that cover its end have come.

        Args:
            rest_s: with nothing to do before the first execution.

        Raises:
            DeviceError: the device failed.
        """
        ...


class Instrument(Protocol):
    """What profiles power inside kernels is made with."""

    @property
    def identity(self) -> Identity:
        """Of the device."""
        ...

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Power readings that there are, ``total`` first."""
        ...

    @property
    def executions_by(self) -> Clock:
        """The clock that executions are stamped by."""
        ...

    @property
    def readings_by(self) -> Clock:
        """The clock that readings are stamped by."""
        ...

    @property
    def resolution_s(self) -> float:
        """Of the clock that executions are stamped by."""
        ...

    def round_trips(self, times: int) -> tuple[RoundTrip, ...]:
        """Read the GPU's clock so often."""
        ...

    def prepare(self, burst: Burst) -> AbstractContextManager[PreparedBurst]:
        """Make a burst ready, until the context is left.

        Raises:
            CannotRunError: the device does not have what a kernel needs.
        """
        ...

    def now_s(self) -> float:
        """The host's clock."""
        ...


@runtime_checkable
class HasInstrument(Protocol):
    """A device that has an instrument."""

    def instrument(self) -> Instrument:
        """Its instrument.

        Raises:
            DeviceError: it has no power sensor, or what runs kernels is missing.
        """
        ...


def instrument_of(device: Device) -> Instrument:
    """The instrument of a device.

    Raises:
        DeviceError: the device has none, such as a recording; or no power sensor.
    """
    if not isinstance(device, HasInstrument):
        raise BadInputError(
            f"{device.identity.name}: it cannot run executions one by one; profile on sim:NAME or nvidia:INDEX"
        )
    return device.instrument()


def burst_of(kernel: KernelSpec, executions: int, before: Sequence[tuple[KernelSpec, int]] = ()) -> Burst:
    """A kernel so many times, after executions of others."""
    return Burst((*before, (kernel, executions)))
