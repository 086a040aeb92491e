"""NVML's functions of one GPU, by name, and how long they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from testbed.stand_in.codes import Code, Refused
from testbed.stand_in.gpu import GLANCE_S, GPU_IDLE, SW_POWER_CAP, SW_THERMAL, Gpu


def functions_of(gpu: Gpu) -> Mapping[str, Callable[..., Any]]:
    """Getters and setters by their names, with arguments after the handle."""
    return {
        "nvmlDeviceGetIndex": lambda: gpu.index,
        "nvmlDeviceGetMinorNumber": lambda: gpu.index,
        "nvmlDeviceGetName": lambda: gpu.preset.model,
        "nvmlDeviceGetUUID": lambda: gpu.uuid,
        "nvmlDeviceGetPciInfo": gpu.pci,
        "nvmlDeviceGetMigMode": gpu.mig_mode,
        "nvmlDeviceGetArchitecture": lambda: gpu.board.architecture,
        "nvmlDeviceGetCudaComputeCapability": lambda: gpu.board.compute_capability,
        "nvmlDeviceGetMemoryInfo": gpu.memory,
        "nvmlDeviceGetUtilizationRates": gpu.utilization,
        "nvmlDeviceGetComputeRunningProcesses": gpu.processes,
        "nvmlDeviceGetPersistenceMode": lambda: gpu.persistence,
        "nvmlDeviceGetComputeMode": lambda: 0,
        "nvmlDeviceGetPerformanceState": lambda: 0,
        "nvmlDeviceGetPowerUsage": gpu.power_mw,
        "nvmlDeviceGetTotalEnergyConsumption": gpu.energy_mj,
        "nvmlDeviceGetPowerManagementLimit": lambda: gpu.power_limit_mw,
        "nvmlDeviceGetEnforcedPowerLimit": lambda: gpu.power_limit_mw,
        "nvmlDeviceGetPowerManagementDefaultLimit": lambda: gpu.default_power_limit_mw,
        "nvmlDeviceGetPowerManagementLimitConstraints": gpu.power_limits_mw,
        "nvmlDeviceGetClockInfo": gpu.clock_mhz,
        "nvmlDeviceGetMaxClockInfo": gpu.top_clock_mhz,
        "nvmlDeviceGetApplicationsClock": gpu.top_clock_mhz,
        "nvmlDeviceGetTemperature": gpu.temperature,
        "nvmlDeviceGetFieldValues": gpu.fields.read,
        "nvmlDeviceGetSupportedMemoryClocks": gpu.memory_clocks,
        "nvmlDeviceGetSupportedGraphicsClocks": gpu.core_clocks,
        "nvmlDeviceGetCurrentClocksEventReasons": gpu.reasons,
        "nvmlDeviceGetCurrentClocksThrottleReasons": gpu.reasons,
        "nvmlDeviceGetSupportedClocksEventReasons": lambda: GPU_IDLE | SW_POWER_CAP | SW_THERMAL,
        "nvmlDeviceGetC2cModeInfo": _not_supported,
        "nvmlDeviceSetGpuLockedClocks": gpu.lock_core,
        "nvmlDeviceResetGpuLockedClocks": gpu.unlock_core,
        "nvmlDeviceSetMemoryLockedClocks": gpu.lock_memory,
        "nvmlDeviceResetMemoryLockedClocks": gpu.unlock_memory,
        "nvmlDeviceSetPowerManagementLimit": gpu.limit_power,
        "nvmlDeviceSetPersistenceMode": gpu.persist,
        "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles": gpu.profiles.current,
        "nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1": gpu.profiles.update,
        "nvmlGpmQueryDeviceSupport": lambda: int(gpu.board.has_gpm),
        "nvmlGpmSampleGet": gpu.gpm_sample,
    }


def cost_s(gpu: Gpu, name: str, arguments: tuple[Any, ...]) -> float:
    """How long a read takes on the real board."""
    sensors = gpu.preset.sensors
    if name == "nvmlDeviceGetTotalEnergyConsumption":
        return 0.0 if sensors.energy is None else sensors.energy.read_s
    if name == "nvmlDeviceGetFieldValues":
        return gpu.fields.cost_s(*arguments)
    return GLANCE_S


def _not_supported() -> int:
    raise Refused(Code.NOT_SUPPORTED)
