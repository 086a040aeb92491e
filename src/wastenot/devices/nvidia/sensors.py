"""Sensors of an NVIDIA GPU. A value that the GPU does not report is ``None``; a failure to read raises."""

from __future__ import annotations

from typing import Any

from wastenot.devices.nvidia.nvml import Nvml
from wastenot.devices.nvidia.traffic import NvidiaTraffic
from wastenot.devices.protocol import ClockReading

_MEMORY_SCOPE = 2  # NVML_POWER_SCOPE_MEMORY

# Cumulative counters, in ns, of the time for which a limit holds clocks below those requested.
_HELD_DOWN = (
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP",
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN",
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN",
)


class NvidiaSensors:
    """Readings of an NVIDIA GPU in SI units.

    Args:
        nvml: access to NVML.
        handle: NVML's handle of the GPU.

    Attributes:
        has_instant: whether the GPU reports instantaneous power.
    """

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        library = nvml.library
        self._instant = (getattr(library, "NVML_FI_DEV_POWER_INSTANT", 186), 0)
        self._memory = (getattr(library, "NVML_FI_DEV_POWER_AVERAGE", 185), _MEMORY_SCOPE)
        self._held_down = [(getattr(library, name), 0) for name in _HELD_DOWN if hasattr(library, name)]
        self._traffic = NvidiaTraffic(nvml, handle)
        self.has_instant = self._watts(self._instant)[0] is not None

    def energy_j(self) -> float | None:
        """The energy counter, which updates rarely and is slow to read."""
        return self._scaled("nvmlDeviceGetTotalEnergyConsumption", 1e-3)

    def power_w(self) -> float | None:
        """Instantaneous power where the GPU reports it, else the older reading, which may average over a second."""
        if self.has_instant:
            return self._watts(self._instant)[0]
        return self._scaled("nvmlDeviceGetPowerUsage", 1e-3)

    def memory_power_w(self) -> float | None:
        """Memory power, averaged over a second (Hopper and later)."""
        return self._watts(self._memory)[0]

    def powers_w(self) -> tuple[float | None, ...]:
        """Both of these, read in one call where the GPU supports it."""
        if not self.has_instant:
            return self.power_w(), self.memory_power_w()
        return self._watts(self._instant, self._memory)

    def clocks(self) -> ClockReading:
        """Clocks of the multiprocessors and the memory."""
        library = self._nvml.library
        return ClockReading(
            self._scaled("nvmlDeviceGetClockInfo", 1.0, library.NVML_CLOCK_SM),
            self._scaled("nvmlDeviceGetClockInfo", 1.0, library.NVML_CLOCK_MEM),
        )

    def temperature_c(self) -> float | None:
        """Temperature of the GPU."""
        return self._scaled("nvmlDeviceGetTemperature", 1.0, self._nvml.library.NVML_TEMPERATURE_GPU)

    def throttled_s(self) -> float | None:
        """Total time for which power or thermal limits have held clocks down; ``None`` where no counter is reported."""
        known = [value for value in self._nvml.fields(self._handle, self._held_down) if value is not None]
        return 1e-9 * sum(known) if known else None

    def traffic_s(self, now_s: float) -> float | None:
        """Memory traffic, as the time it takes at full bandwidth (GPM: Hopper and later)."""
        return self._traffic.seconds(now_s)

    def processes(self) -> int | None:
        """Number of processes computing on the GPU; ``None`` where that is not reported."""
        running = self._nvml.try_call("nvmlDeviceGetComputeRunningProcesses", self._handle)
        return None if running is None else len(running)

    def _watts(self, *wanted: tuple[int, int]) -> tuple[float | None, ...]:
        return tuple(None if value is None else 1e-3 * value for value in self._nvml.fields(self._handle, wanted))

    def _scaled(self, function: str, factor: float, *arguments: object) -> float | None:
        value = self._nvml.try_call(function, self._handle, *arguments)
        return None if value is None else factor * float(value)
