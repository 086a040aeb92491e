"""NVIDIA's driver: a :class:`wastenot.devices.common.gpu_driver.GpuDriver`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wastenot.core.processes import holders_of, name_of
from wastenot.core.vendors import bare_unique_id
from wastenot.devices.common.gpu_driver import Examined
from wastenot.devices.nvidia.clocks import NvidiaSetter
from wastenot.devices.nvidia.nvml import Nvml, text_of

if TYPE_CHECKING:
    from wastenot.devices.common.journal import Restore
    from wastenot.devices.torch.gpu import TorchGpu

_NO_MEMORY_LOCK = ("Hopper",)
_PERSISTENCED = "nvidia-persiste"  # as Linux cuts the name: it keeps the driver loaded, and GPUs rest


def version() -> str:
    """Version of the driver."""
    return text_of(Nvml().call("nvmlSystemGetDriverVersion"))


def count() -> int:
    """Number of GPUs."""
    return int(Nvml().call("nvmlDeviceGetCount"))


def unique_id(index: int) -> str:
    """UUID of a GPU, by its index in NVML's order."""
    nvml = Nvml()
    return text_of(nvml.call("nvmlDeviceGetUUID", nvml.call("nvmlDeviceGetHandleByIndex", index)))


def process_ids(index: int) -> tuple[int, ...] | None:
    """IDs of the processes that compute on a GPU; ``None`` where they are not reported."""
    nvml = Nvml()
    running = nvml.try_call("nvmlDeviceGetComputeRunningProcesses", nvml.call("nvmlDeviceGetHandleByIndex", index))
    return None if running is None else tuple(int(each.pid) for each in running)


def examine(index: int, torch_indices: Mapping[str, int]) -> Examined:
    """Examine a GPU without changing anything."""
    from wastenot.devices.nvidia.published import ARCHITECTURES, power_sensor

    nvml = Nvml()
    ask, handle = nvml.try_call, nvml.call("nvmlDeviceGetHandleByIndex", index)
    uuid, model = text_of(nvml.call("nvmlDeviceGetUUID", handle)), text_of(nvml.call("nvmlDeviceGetName", handle))
    architecture = ARCHITECTURES.get(ask("nvmlDeviceGetArchitecture", handle) or -1)
    mig, memory = ask("nvmlDeviceGetMigMode", handle), ask("nvmlDeviceGetMemoryInfo", handle)
    persistence, setter = ask("nvmlDeviceGetPersistenceMode", handle), NvidiaSetter(nvml, handle, uuid)
    clocks = {state: (cores[0], cores[-1], len(cores)) for state, cores in setter.supported_clocks().items()}
    sensor, used = power_sensor(architecture, model), ask("nvmlDeviceGetUtilizationRates", handle)
    settable = False if len(clocks) < 2 else (None if architecture in _NO_MEMORY_LOCK or architecture is None else True)
    return Examined(
        name=f"nvidia:{index}",
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
        profiles=setter.profiles(),
        busy=None if used is None else used.gpu > 0,
        held_by=_holders(nvml, handle),
        published_window_s=None if sensor is None else sensor.window_s,
        torch_index=torch_indices.get(bare_unique_id(uuid)),
    )


def _holders(nvml: Nvml, handle: Any) -> dict[int, str | None]:
    """Processes that may keep a GPU from resting: those that compute on it, and those that only watch it, as agents do."""
    computing = {each.pid for each in nvml.try_call("nvmlDeviceGetComputeRunningProcesses", handle) or ()}
    minor = nvml.try_call("nvmlDeviceGetMinorNumber", handle)
    watching = frozenset() if minor is None else holders_of(Path(f"/dev/nvidia{minor}"))
    named = {process: name_of(process) for process in sorted((watching | computing) - {os.getpid()})}
    return {process: name for process, name in named.items() if name != _PERSISTENCED}


def open_gpu(name: str, *, allow_clock_control: bool = False, restore: Restore | None = None, **parts: Any) -> TorchGpu:
    """Open a GPU by name, ``nvidia:INDEX`` or ``nvidia:UUID``; see :func:`wastenot.devices.open.open_gpu`."""
    from wastenot.devices.nvidia.device import nvidia_gpu

    return nvidia_gpu(Nvml(allow_changes=allow_clock_control), name, restore=restore, **parts)


def clock_setter(unique_id: str, *, allow_changes: bool) -> NvidiaSetter:
    """What sets the clocks of a GPU."""
    nvml = Nvml(allow_changes=allow_changes)
    return NvidiaSetter(nvml, nvml.call("nvmlDeviceGetHandleByUUID", unique_id), unique_id)
