"""Time and power of a task at given clocks: the part of a simulated device that has neither time nor sensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from wastenot.core.setting import Setting
from wastenot.devices.protocol import Task


class OperatingPoint(NamedTuple):
    """A task running back to back.

    Attributes:
        time_s: time of one call.
        power_w: mean power.
        core_mhz: mean core clock in effect.
        memory_mhz: memory clock in effect.
        throttled: whether a power or thermal limit holds the clocks below those requested.
    """

    time_s: float
    power_w: float
    core_mhz: float
    memory_mhz: float
    throttled: bool


class Physics(Protocol):
    """The true behaviour of a device."""

    def supported_clocks(self) -> Mapping[float, tuple[float, ...]]:
        """By memory clock, the core clocks that may be requested with it."""

    def power_limits_w(self) -> tuple[float, float] | None:
        """Lowest and highest power limit; ``None`` where it cannot be set."""

    def profiles(self) -> tuple[str, ...]:
        """Names of the workload power profiles that may be requested."""

    def check(self, setting: Setting) -> None:
        """Refuse a setting that the device does not support, by a ClocksRefusedError."""

    def operating_point(self, task: Task, setting: Setting, temperature_c: float) -> OperatingPoint:
        """The task at a setting and temperature.

        Raises:
            CannotRunError: the task is unknown, or unknown at this setting.
        """

    def idle_power_w(self, setting: Setting, temperature_c: float) -> float:
        """Power with nothing running."""

    def waiting_power_w(self, setting: Setting, temperature_c: float) -> float:
        """Power while a program waits for another GPU, at the clocks in effect."""


class Course(Protocol):
    """A program that runs on the device, one thing after another, and knows by itself how fast it comes along."""

    def run(self, setting: Setting, temperature_c: float, seconds: float) -> tuple[float, OperatingPoint]:
        """Run on at clocks that are in effect.

        Args:
            setting: in effect.
            temperature_c: of the GPU.
            seconds: at most.

        Returns:
            For how long it ran, which is less where something ended, and its mean operating point meanwhile.
        """

    def pause(self, seconds: float) -> None:
        """Let time pass in which no kernel comes along, as clocks change."""

    def moved_bytes(self) -> float:
        """Bytes that it has moved through the memory so far."""
