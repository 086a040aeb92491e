"""The roles of a device. Code that measures uses only these, so it runs on every GPU and on the simulated one.

device.clocks.request(Setting(1470, 9501))
with device.launcher.start(task) as run:       # the task runs back to back from here on
    before = device.sensors.energy_j()
    run.mark()
    run.feed()                                 # keeps the GPU busy; call it often
    device.time.sleep(0.01)
    ...
    run.mark()
run.laps
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from wastenot.core.errors import DeviceError
from wastenot.core.origin import Origin
from wastenot.core.setting import Setting
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.order import Step, order_of_steps

if TYPE_CHECKING:
    from wastenot.devices.instrument import Instrument
    from wastenot.devices.timeline import TimelineRecorder
    from wastenot.devices.tracer import Tracer


@dataclass(frozen=True, slots=True)
class Task:
    """Kernels to run back to back. One call of the task runs all of its steps once.

    Kernels of one block that run equally often are interleaved layer by layer, as in the model.

    Attributes:
        name: name of the kernel, pass or iteration.
        steps: (kernel, number of executions) in order.
    """

    name: str
    steps: tuple[tuple[KernelSpec, int], ...]

    @classmethod
    def of_kernel(cls, kernel: KernelSpec) -> Task:
        """A single kernel; one call of the task is one call of the kernel."""
        return cls(kernel.name, ((kernel, 1),))

    @property
    def order(self) -> tuple[int, ...]:
        """Indices of the steps in the order in which a call runs them."""
        return order_of_steps([Step(times, kernel.block, kernel.pass_name) for kernel, times in self.steps])

    @property
    def is_kernel(self) -> bool:
        """Whether a call of the task is one call of the kernel it is named after."""
        return len(self.steps) == 1 and self.steps[0][0].name == self.name and self.steps[0][1] == 1


@dataclass(frozen=True, slots=True)
class Identity:
    """Which device this is.

    Attributes:
        name: the user's name for it, such as ``nvidia:0`` or ``sim:rtx-3080-ti``.
        model: model of the GPU.
        unique_id: identifies this card among all cards; for a simulated one, its preset and seed.
        driver: version of the driver, or of the simulator.
        origin: origin of its numbers.
        unique_name: whether ``name`` means the same card on every machine (``nvidia:0`` does not).
    """

    name: str
    model: str
    unique_id: str
    driver: str
    origin: Origin
    unique_name: bool = True

    @property
    def label(self) -> str:
        """The device's name in studies and plans, unique so that numbers of two cards are never mixed."""
        return self.name if self.unique_name else f"{self.model} {self.unique_id}"


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Clocks in effect; ``None`` where the GPU does not report one."""

    core_mhz: float | None
    memory_mhz: float | None


class TimeSource(Protocol):
    """The device's time: wall-clock or virtual."""

    def now_s(self) -> float:
        """Seconds since an arbitrary moment."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class ClockControl(Protocol):
    """Clock control. A requested clock is a ceiling; it may be refused, changed, or take effect late."""

    def supported_clocks(self) -> Mapping[float, tuple[float, ...]]:
        """By memory clock in MHz, the core clocks in MHz that may be requested with it, ascending."""

    def power_limits_w(self) -> tuple[float, float] | None:
        """Lowest and highest power limit in watts; ``None`` where it cannot be set."""

    def profiles(self) -> tuple[str, ...]:
        """Names of the vendor's workload power profiles that may be requested; empty where there are none."""

    def refusal(self) -> str | None:
        """Why this process does not change clocks, as far as is known without trying; ``None`` where it would try."""

    def request(self, setting: Setting) -> None:
        """Request a setting; what is auto in it returns to the driver's control.

        Raises:
            ClocksRefusedError: the device does not support the setting, or this process may not set it.
        """

    def release(self) -> None:
        """Restore everything to how it was found."""

    def claimed(self) -> AbstractContextManager[None]:
        """Keep others from setting the clocks inside the context, where this process may set them and others could.

        Raises:
            DeviceError: another process holds them.
        """


class Sensors(Protocol):
    """A device's sensors. A value that a device does not have is ``None``, never 0; a failure to read one raises.

    Every method may raise DeviceError: the device or its driver failed.
    """

    def energy_j(self) -> float | None:
        """Energy used since an arbitrary moment. The counter may update rarely and be slow to read."""

    def power_w(self) -> float | None:
        """Latest power reading of the whole device."""

    def memory_power_w(self) -> float | None:
        """Latest power reading of the memory, which may be averaged over a second."""

    def clocks(self) -> ClockReading:
        """Latest reading of the clocks in effect."""

    def temperature_c(self) -> float | None:
        """Temperature of the GPU."""

    def processes(self) -> int | None:
        """Number of processes that use the device."""

    def throttled_s(self) -> float | None:
        """Total time for which a power or thermal limit has held the clocks below those requested."""

    def traffic_s(self, now_s: float) -> float | None:
        """Memory traffic since an arbitrary moment, as the time that it takes at full bandwidth; may be refreshed rarely.

        What a program moves in an iteration is about the same at any core clock, whatever its kernels are bound by.

        Args:
            now_s: the moment, always by one clock.
        """


@dataclass(frozen=True, slots=True)
class Lap:
    """Whole calls between two marks, and the GPU time from the start of the first to the end of the last.

    Attributes:
        calls: number of calls.
        seconds: GPU time.
        core_mhz: mean SM clock in effect over that time, by counting cycles; ``None`` where they cannot be counted. Cycles
            that the chip skips under load count, as ceilings and the driver's readings are of the clock with them.
        lowest_core_mhz: the lowest such mean over about 20 ms, a launch of the device, within it.
    """

    calls: int
    seconds: float
    core_mhz: float | None = None
    lowest_core_mhz: float | None = None


class TaskRun(Protocol):
    """A task that is running back to back."""

    def feed(self) -> None:
        """Keep the GPU busy for a while longer. Call at least every 50 ms."""

    def mark(self) -> None:
        """End the current lap and begin the next."""

    @property
    def completed(self) -> int:
        """Number of whole calls that have ended since the first mark."""

    @property
    def how(self) -> str:
        """How the task is run, where that is worth reporting: ``cuda graph of 40 calls over 3 buffers``."""

    @property
    def laps(self) -> tuple[Lap, ...]:
        """Laps between marks, except those without a whole call; available once the run has ended."""


class LapsAtEnd:
    """A run whose laps are known once it has ended, when ``_laps`` is set."""

    _laps: tuple[Lap, ...] | None = None

    @property
    def how(self) -> str:
        """Empty: there is nothing to report."""
        return ""

    @property
    def laps(self) -> tuple[Lap, ...]:
        """Laps between marks."""
        if self._laps is None:
            raise DeviceError("laps are only available once the run has ended")
        return self._laps


class Launcher(Protocol):
    """Running tasks."""

    def can_run(self, task: Task, setting: Setting) -> bool:
        """Whether the task can run at a setting, as far as is known without trying."""

    def start(self, task: Task) -> AbstractContextManager[TaskRun]:
        """Run a task back to back until the context exits.

        Raises:
            CannotRunError: the device lacks what the task needs.
            DeviceError: the device failed.
        """


class Device(Protocol):
    """A device and its roles."""

    @property
    def identity(self) -> Identity:
        """Which device it is."""

    @property
    def time(self) -> TimeSource:
        """Its time."""

    @property
    def clocks(self) -> ClockControl:
        """Its clocks."""

    @property
    def sensors(self) -> Sensors:
        """Its sensors."""

    @property
    def launcher(self) -> Launcher:
        """Runs tasks on it."""

    def instrument(self) -> Instrument:
        """What profiles power inside its kernels.

        Raises:
            BadInputError: it has no power sensor, runs in wall time, or has no executions, such as a recording.
            MissingExtraError: what runs kernels is not installed, or cannot run them on it.
            DeviceError: what runs kernels does not see it.
        """

    def timelines(self) -> TimelineRecorder:
        """What watches kernels at the clocks that the device goes through by itself.

        Raises:
            BadInputError: as :meth:`instrument`; or it cannot count cycles.
            MissingExtraError: what runs kernels is not installed, or cannot compile them for it.
            DeviceError: what runs kernels does not see it, or its cycles cannot be counted.
        """

    def tracer(self) -> Tracer:
        """What shows when a switch takes effect.

        Raises:
            BadInputError: it switches no clocks, such as a recording.
            MissingExtraError, DeviceError: as :meth:`timelines`.
        """
