"""What of a GPU's state can be read, to compare before and after; and the calls of a program that would change it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_CHANGES = ("nvmlDeviceSet", "nvmlDeviceReset", "nvmlDeviceClear")


def card_state(index: int = 0) -> dict[str, Any]:
    """Clocks, limits and modes of a GPU, as far as NVML tells; locked clocks show only in what is in effect."""
    import pynvml as nvml  # type: ignore[import-untyped,unused-ignore]

    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(index)
    core, memory = nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM
    asked: dict[str, Callable[[], Any]] = {
        "uuid": lambda: nvml.nvmlDeviceGetUUID(gpu),
        "power_limit_mw": lambda: nvml.nvmlDeviceGetPowerManagementLimit(gpu),
        "enforced_power_limit_mw": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu),
        "default_power_limit_mw": lambda: nvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu),
        "application_core_mhz": lambda: nvml.nvmlDeviceGetApplicationsClock(gpu, core),
        "application_memory_mhz": lambda: nvml.nvmlDeviceGetApplicationsClock(gpu, memory),
        "default_application_core_mhz": lambda: nvml.nvmlDeviceGetDefaultApplicationsClock(gpu, core),
        "largest_core_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(gpu, core),
        "largest_memory_mhz": lambda: nvml.nvmlDeviceGetMaxClockInfo(gpu, memory),
        "persistence": lambda: nvml.nvmlDeviceGetPersistenceMode(gpu),
        "compute_mode": lambda: nvml.nvmlDeviceGetComputeMode(gpu),
        "mig": lambda: nvml.nvmlDeviceGetMigMode(gpu),
        "ecc": lambda: nvml.nvmlDeviceGetEccMode(gpu),
    }
    state: dict[str, Any] = {}
    for name, ask in asked.items():
        try:
            value = ask()
            state[name] = value.decode() if isinstance(value, bytes) else value
        except nvml.NVMLError as error:
            state[name] = str(error)
    from wastenot.devices.common.journal import state_folder

    folder = state_folder()
    state["journals"] = sorted(os.listdir(folder)) if folder.is_dir() else []
    return state


def clocks_now(index: int = 0) -> dict[str, Any]:
    """Clocks in effect and why they are held down, which vary under load."""
    import pynvml as nvml

    gpu = nvml.nvmlDeviceGetHandleByIndex(index)
    return {
        "core_mhz": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
        "memory_mhz": nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
        "event_reasons": nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu),
        "temperature_c": nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    }


@contextmanager
def counted_changes() -> Iterator[list[str]]:
    """Names of NVML's functions that change a GPU, as this process calls them inside the context."""
    import pynvml as nvml

    called: list[str] = []
    names = [name for name in dir(nvml) if name.startswith(_CHANGES)]
    before = {name: getattr(nvml, name) for name in names}

    def counting(name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            called.append(name)
            return before[name](*arguments)

        return call

    for name in names:
        setattr(nvml, name, counting(name))
    try:
        yield called
    finally:
        for name, function in before.items():
            setattr(nvml, name, function)
