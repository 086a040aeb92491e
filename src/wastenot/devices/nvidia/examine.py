"""What an NVIDIA GPU is and supports: what ``wastenot doctor`` reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wastenot.core.vendors import bare_unique_id
from wastenot.devices.common.gpu_driver import Examined
from wastenot.devices.nvidia.clocks import NvidiaSetter
from wastenot.devices.nvidia.nvml import Nvml, text_of
from wastenot.devices.nvidia.published import ARCHITECTURES, power_sensor

_NO_MEMORY_LOCK = ("Hopper",)


def examine(nvml: Nvml, name: str, handle: Any, torch_indices: Mapping[str, int]) -> Examined:
    """Examine one GPU without changing anything.

    Args:
        nvml: access to NVML.
        name: the GPU's name in wastenot.
        handle: NVML's handle of the GPU.
        torch_indices: index in PyTorch, by UUID as PyTorch writes it.
    """
    ask = nvml.try_call
    uuid, model = text_of(nvml.call("nvmlDeviceGetUUID", handle)), text_of(nvml.call("nvmlDeviceGetName", handle))
    architecture = ARCHITECTURES.get(ask("nvmlDeviceGetArchitecture", handle) or -1)
    mig, memory = ask("nvmlDeviceGetMigMode", handle), ask("nvmlDeviceGetMemoryInfo", handle)
    persistence, setter = ask("nvmlDeviceGetPersistenceMode", handle), NvidiaSetter(nvml, handle, uuid)
    clocks = {state: (cores[0], cores[-1], len(cores)) for state, cores in setter.supported_clocks().items()}
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
        power_limit_w=setter.power_limit_w(),
        power_limits_w=setter.power_limit_range_w(),
        clocks=clocks,
        memory_clock_settable=settable,
        published_window_s=None if sensor is None else sensor.window_s,
        torch_index=torch_indices.get(bare_unique_id(uuid)),
    )
