"""What the sensors of a GPU said last, as a status tells it."""

from __future__ import annotations

from dataclasses import dataclass

from wastenot.control.status import GpuStatus
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.protocol import Identity, Sensors


@dataclass(slots=True)
class GpuReading:
    """Latest readings of one GPU; ``None`` before the first, and of what it does not report."""

    power_w: float | None = None
    temperature_c: float | None = None
    core_mhz: float | None = None
    memory_mhz: float | None = None

    def read(self, sensors: Sensors) -> None:
        """Take what they say now.

        Raises:
            DeviceError: the device or its driver failed.
        """
        clocks = sensors.clocks()
        self.power_w, self.temperature_c = sensors.power_w(), sensors.temperature_c()
        self.core_mhz, self.memory_mhz = clocks.core_mhz, clocks.memory_mhz

    def status(self, identity: Identity, energy_j: float | None, target: Setting = AUTO) -> GpuStatus:
        """The GPU's part of a status.

        Args:
            identity: of the GPU.
            energy_j: used since the plan was put to work.
            target: requested setting.
        """
        return GpuStatus(
            device=identity.name,
            model=identity.model,
            unique_id=identity.unique_id,
            target_core_mhz=target.core_mhz,
            target_memory_mhz=target.memory_mhz,
            target_power_limit_w=target.power_limit_w,
            core_mhz=self.core_mhz,
            memory_mhz=self.memory_mhz,
            power_w=self.power_w,
            temperature_c=self.temperature_c,
            energy_j=energy_j,
        )
