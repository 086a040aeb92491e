"""What an NVIDIA GPU is and supports, as ``wastenot doctor`` reports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wastenot.devices.nvidia.nvml import Nvml, text_of
from wastenot.devices.nvidia.published import ARCHITECTURES, power_sensor

_NO_MEMORY_LOCK = ("Hopper",)


@dataclass(frozen=True, slots=True)
class Examined:
    """One GPU.

    Attributes:
        name: its name in wastenot.
        model: the vendor's name of the model.
        uuid: UUID of the card.
        architecture: name of the architecture; ``None`` where unknown.
        mig: whether it is partitioned into MIG instances; ``None`` where it has no such mode.
        persistence: whether the driver stays loaded while nothing uses it.
        memory_bytes: size of its memory.
        power_limit_w: power limit in force.
        power_limits_w: lowest and highest power limit.
        clocks: by memory clock in MHz, the lowest and highest core clock in MHz and how many there are.
        memory_clock_settable: ``None`` where that is only known by trying.
        published_window_s: window that its power reading averages over, as published for its architecture.
        torch_index: its index in PyTorch; ``None`` where PyTorch does not see it.
    """

    name: str
    model: str
    uuid: str
    architecture: str | None
    mig: bool | None
    persistence: bool | None
    memory_bytes: int | None
    power_limit_w: float | None
    power_limits_w: tuple[float, float] | None
    clocks: Mapping[float, tuple[float, float, int]]
    memory_clock_settable: bool | None
    published_window_s: float | None
    torch_index: int | None


def examine(nvml: Nvml, name: str, handle: Any, torch_indices: Mapping[str, int]) -> Examined:
    """Examine one GPU without changing anything.

    Args:
        nvml: access to NVML.
        name: the GPU's name in wastenot.
        handle: NVML's handle of the GPU.
        torch_indices: by UUID, the index of each GPU that PyTorch sees.
    """
    ask = nvml.try_call
    uuid, model = text_of(nvml.call("nvmlDeviceGetUUID", handle)), text_of(nvml.call("nvmlDeviceGetName", handle))
    architecture = ARCHITECTURES.get(ask("nvmlDeviceGetArchitecture", handle) or -1)
    mig, memory = ask("nvmlDeviceGetMigMode", handle), ask("nvmlDeviceGetMemoryInfo", handle)
    limit, limits = (
        ask("nvmlDeviceGetPowerManagementLimit", handle),
        ask("nvmlDeviceGetPowerManagementLimitConstraints", handle),
    )
    persistence = ask("nvmlDeviceGetPersistenceMode", handle)
    clocks = {}
    for state in ask("nvmlDeviceGetSupportedMemoryClocks", handle) or ():
        cores = ask("nvmlDeviceGetSupportedGraphicsClocks", handle, state)
        if cores:
            clocks[float(state)] = (float(min(cores)), float(max(cores)), len(cores))
    sensor = power_sensor(architecture, model)
    settable = False if len(clocks) < 2 else (None if architecture in _NO_MEMORY_LOCK or architecture is None else True)
    return Examined(
        name=name,
        model=model,
        uuid=uuid,
        architecture=architecture,
        mig=None if mig is None else mig[0] == nvml.library.NVML_DEVICE_MIG_ENABLE,
        persistence=None if persistence is None else bool(persistence),
        memory_bytes=None if memory is None else int(memory.total),
        power_limit_w=None if limit is None else 1e-3 * limit,
        power_limits_w=None if limits is None else (1e-3 * limits[0], 1e-3 * limits[1]),
        clocks=clocks,
        memory_clock_settable=settable,
        published_window_s=None if sensor is None else sensor.window_s,
        torch_index=torch_indices.get(uuid.removeprefix("GPU-")),
    )
