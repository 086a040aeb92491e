"""The roles of a device. Code that measures speaks only these, so that it runs on every GPU and on the simulated one.

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
from typing import Protocol

from wastenot.origin import Origin
from wastenot.setting import Setting
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.order import Step, order_of_steps


@dataclass(frozen=True, slots=True)
class Task:
    """What is run back to back: kernels one after another, each so many times. One call is all of it once.

    Kernels of one block that run equally often take turns, layer by layer, as in the model.

    Attributes:
        name: of the kernel, the pass or the iteration.
        steps: (kernel, how often) in order.
    """

    name: str
    steps: tuple[tuple[KernelSpec, int], ...]

    @classmethod
    def of_kernel(cls, kernel: KernelSpec) -> Task:
        """One kernel by itself; one call is one call of the kernel."""
        return cls(kernel.name, ((kernel, 1),))

    @property
    def order(self) -> tuple[int, ...]:
        """Indices of the steps in the order they run in a call."""
        return order_of_steps([Step(times, kernel.block, kernel.pass_name) for kernel, times in self.steps])

    @property
    def is_kernel(self) -> bool:
        """Whether one call of it is one call of the kernel of its name."""
        return len(self.steps) == 1 and self.steps[0][0].name == self.name and self.steps[0][1] == 1


@dataclass(frozen=True, slots=True)
class Identity:
    """Which device this is.

    Attributes:
        name: as the user names it, such as ``nvidia:0`` or ``sim:rtx-3080-ti``.
        model: of the GPU.
        unique_id: that no other card has; of a simulated one its preset and seed.
        driver: version of the driver, or of the simulator.
        origin: of the numbers it gives.
        unique_name: whether ``name`` means this very card everywhere; the first GPU of a machine is not that of another.
    """

    name: str
    model: str
    unique_id: str
    driver: str
    origin: Origin
    unique_name: bool = True

    @property
    def label(self) -> str:
        """What studies and plans call the device: numbers of two cards are never mixed."""
        return self.name if self.unique_name else f"{self.model} {self.unique_id}"


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Clocks that the GPU runs at; ``None`` where it does not say."""

    core_mhz: float | None
    memory_mhz: float | None


class TimeSource(Protocol):
    """Time as the device lives in it: that of the wall, or virtual."""

    def now_s(self) -> float:
        """Seconds since some moment."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ...


class ClockControl(Protocol):
    """Asking for clocks. What is asked for is a ceiling, and may be refused, moved, or arrive late."""

    def supported_clocks(self) -> Mapping[float, tuple[float, ...]]:
        """Core clocks in MHz, rising, that may be asked for with each memory clock in MHz."""
        ...

    def power_limits_w(self) -> tuple[float, float] | None:
        """The least and the greatest power limit in watts; ``None`` where it cannot be set."""
        ...

    def request(self, setting: Setting) -> None:
        """Ask for a setting; parts that are auto go back to the driver.

        Raises:
            ClocksRefusedError: the device does not do that, or may not.
        """
        ...

    def release(self) -> None:
        """Give everything back to the driver, as it was found."""
        ...


class Sensors(Protocol):
    """What a device tells of itself. A value that cannot be read is ``None``, never 0."""

    def energy_j(self) -> float | None:
        """Energy used since some moment. The counter may be slow to change and slow to read."""
        ...

    def power_w(self) -> float | None:
        """The device's latest reading of its power."""
        ...

    def memory_power_w(self) -> float | None:
        """The latest reading of its memory's power, which may average over a second."""
        ...

    def clocks(self) -> ClockReading:
        """The device's latest reading of its clocks."""
        ...

    def temperature_c(self) -> float | None:
        """Temperature of the GPU."""
        ...

    def processes(self) -> int | None:
        """How many processes use the device."""
        ...

    def throttled_s(self) -> float | None:
        """For how long altogether a power or thermal limit has held the clocks below what was asked for."""
        ...


@dataclass(frozen=True, slots=True)
class Lap:
    """Whole calls between two marks, and the GPU time from the first one's begin to the last one's end."""

    calls: int
    seconds: float


class TaskRun(Protocol):
    """A task running back to back."""

    def feed(self) -> None:
        """Keep the GPU busy for a while longer. Call at least every 50 ms."""
        ...

    def mark(self) -> None:
        """Begin a lap here, and end the one before."""
        ...

    @property
    def completed(self) -> int:
        """Whole calls since the first mark that have ended by now."""
        ...

    @property
    def how(self) -> str:
        """The way the task is run, where that is worth saying: ``cuda graph of 40 calls over 3 buffers``."""
        ...

    @property
    def laps(self) -> tuple[Lap, ...]:
        """Laps between marks, those without a whole call left out; known when the run has ended."""
        ...


class Launcher(Protocol):
    """Running tasks."""

    def can_run(self, task: Task, setting: Setting) -> bool:
        """Whether nothing is known to stop a task from running at a setting."""
        ...

    def start(self, task: Task) -> AbstractContextManager[TaskRun]:
        """Run a task back to back until the context is left.

        Raises:
            CannotRunError: the device does not have what the task needs.
        """
        ...


class Device(Protocol):
    """A device and its roles."""

    @property
    def identity(self) -> Identity:
        """Which one it is."""
        ...

    @property
    def time(self) -> TimeSource:
        """Its time."""
        ...

    @property
    def clocks(self) -> ClockControl:
        """Its clocks."""
        ...

    @property
    def sensors(self) -> Sensors:
        """Its sensors."""
        ...

    @property
    def launcher(self) -> Launcher:
        """What runs tasks on it."""
        ...
