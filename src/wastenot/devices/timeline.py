r"""The role that watches kernels at clocks that nobody set: cycles counted between groups of calls, power logged meanwhile.

    stream    │▮▮▮▮│▮▮▮▮│▮▮▮▮│▯▯▯▯▯│▯▯▯▯▯│▯▯▯▯▯│▯▯▯▯▯│     products, then the kernel of interest in their wake
    stamps    ↑    ↑    ↑    ↑     ↑     ↑     ↑     ↑     time and cycles: their ratio is the SM clock in between
    clock     ‾‾‾‾‾\____________________/‾‾‾‾‾‾‾‾‾‾‾‾‾     lowered by the power regulator, which lets it rise again later
    logger       •       •       •       •       •       •  power readings

A card changes its clocks by itself. The recorder runs phases of kernels one after another without a gap, and says of every
group of calls how long it took and at which clock. It needs no rights: nothing is set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.devices.instrument import Channel, Readings, RoundTrip
from wastenot.devices.protocol import Identity
from wastenot.workloads.kernel import KernelSpec

Data = Literal["random", "sparse", "equal rows", "zeros"]
"""What a kernel's inputs hold. It changes how many bits toggle, and so the power, but not the cycles a call takes."""

REST = -1
"""In place of a subject's index: the GPU rests."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A kernel with the data that it runs on."""

    kernel: KernelSpec
    data: Data = "random"


@dataclass(frozen=True, slots=True)
class Phase:
    """A subject running back to back.

    Attributes:
        subject: index of the subject among those prepared, or :data:`REST`.
        seconds: for about how long; at least one group of calls runs.
    """

    subject: int
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """What a recorder saw; arrays of shape (groups,), in order.

    Times of groups are by the GPU's timer, those of readings by the host's clock; the round trips relate the two.

    Attributes:
        phase: index of the phase that each group belongs to.
        subject: index of each group's subject.
        calls: number of calls in each group.
        begin_s, end_s: when the group's first call began and its last ended, without the cost of stamps.
        core_mhz: SM clock in effect during the group: what NVML would say, and what a ceiling acts on.
        readings: power, by channel, from before the first group until the last one can be seen in it.
        round_trips: taken just before and just after.
        temperature_c: of the GPU, before and after; ``None`` where it has no sensor.
        shared: whether another process used the GPU.
        counted_mhz: cycles that multiprocessors counted in the group, per microsecond: fewer than ``core_mhz`` where the
            chip skips some under load, as Hopper does in matrix products; ``None`` where it never does.
    """

    phase: IndexArray
    subject: IndexArray
    calls: IndexArray
    begin_s: FloatArray
    end_s: FloatArray
    core_mhz: FloatArray
    readings: Mapping[str, Readings]
    round_trips: tuple[RoundTrip, ...]
    temperature_c: tuple[float, float] | None
    shared: bool = False
    counted_mhz: FloatArray | None = None

    @property
    def call_s(self) -> FloatArray:
        """Mean time of a call in each group."""
        return (self.end_s - self.begin_s) / self.calls


@dataclass(frozen=True, slots=True)
class PreparedTimeline:
    """Subjects that are ready to run.

    Attributes:
        call_s: time of a call of each subject when it was tried.
        run: runs phases one after another without a gap and returns what was seen.
        how: how the kernels run, where that is worth reporting.
    """

    call_s: tuple[float, ...]
    run: Callable[[Sequence[Phase]], Timeline]
    how: str = ""


@dataclass(frozen=True, slots=True)
class ClockStamps:
    """How well a device counts cycles.

    Attributes:
        cost_s: time that a stamp takes in the stream.
        resolution_s: resolution of the GPU's timer.
        multiprocessors: number of multiprocessors whose cycles are counted.
    """

    cost_s: float
    resolution_s: float
    multiprocessors: int

    def relative_error(self, seconds: float) -> float:
        """Standard error of the clock over an interval, from the timer's resolution, as a fraction."""
        return self.resolution_s / (math.sqrt(6.0) * max(seconds, self.resolution_s))


class TimelineRecorder(Protocol):
    """Runs kernels in phases, with stamps of the cycle counter between groups of calls and a log of power.

    Attributes:
        identity: which device it is.
        channels: the available power readings, ``total`` first.
        stamps: cost and resolution of the cycle counter.
    """

    identity: Identity
    channels: tuple[Channel, ...]
    stamps: ClockStamps

    def prepare(self, subjects: Sequence[Subject], *, group_s: float = 1e-3) -> AbstractContextManager[PreparedTimeline]:
        """Prepare subjects to run, until the context exits.

        Args:
            subjects: kernels with their data.
            group_s: about how long a group of calls between two stamps takes; at least one call.

        Raises:
            CannotRunError: the device lacks what a kernel needs.
            DeviceError: the device failed; runs raise it too.
        """
