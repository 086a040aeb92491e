"""What a simulated device does with a task at given clocks: the part of it that has no time and no sensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from wastenot.devices.protocol import Task
from wastenot.setting import Setting


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """A task, running back to back.

    Attributes:
        time_s: of one call.
        power_w: mean.
        core_mhz: mean core clock in effect.
        memory_mhz: memory clock in effect.
        throttled: whether a power or thermal limit holds the clocks below those asked for.
    """

    time_s: float
    power_w: float
    core_mhz: float
    memory_mhz: float
    throttled: bool


class Physics(Protocol):
    """The truth of a device."""

    def supported_clocks(self) -> Mapping[float, tuple[float, ...]]:
        """Core clocks that may be asked for with each memory clock."""
        ...

    def power_limits_w(self) -> tuple[float, float] | None:
        """Least and greatest power limit, where it can be set."""
        ...

    def check(self, setting: Setting) -> None:
        """Refuse a setting that the device does not have.

        Raises:
            ClocksRefusedError: it does not.
        """
        ...

    def operating_point(self, task: Task, setting: Setting, temperature_c: float) -> OperatingPoint:
        """The task at a setting and temperature.

        Raises:
            CannotRunError: nothing is known of the task, or of it at this setting.
        """
        ...

    def idle_power_w(self, setting: Setting, temperature_c: float) -> float:
        """Power with nothing running."""
        ...
