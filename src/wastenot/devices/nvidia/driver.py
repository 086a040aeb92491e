"""NVIDIA's driver: a :class:`wastenot.devices.common.gpu_driver.GpuDriver`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wastenot.devices.nvidia.clocks import NvidiaSetter
from wastenot.devices.nvidia.nvml import Nvml, text_of

if TYPE_CHECKING:
    from wastenot.devices.common.gpu_driver import Examined
    from wastenot.devices.common.journal import Restore
    from wastenot.devices.nvidia.device import NvidiaDevice


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


def examine(index: int, torch_indices: Mapping[str, int]) -> Examined:
    """Examine a GPU without changing anything."""
    from wastenot.devices.nvidia.examine import examine as examine_gpu

    nvml = Nvml()
    return examine_gpu(nvml, f"nvidia:{index}", nvml.call("nvmlDeviceGetHandleByIndex", index), torch_indices)


def open_gpu(name: str, *, allow_clock_control: bool = False, restore: Restore | None = None, **parts: Any) -> NvidiaDevice:
    """Open a GPU by name.

    Args:
        name: ``nvidia:INDEX``, in NVML's order, or ``nvidia:UUID``.
        allow_clock_control: allow clocks to be changed.
        restore: ranges of locked clocks to restore.
        parts: time source and launchers that replace the defaults, see :class:`NvidiaDevice`.

    Raises:
        BadInputError: there is no such GPU, or it is partitioned into MIG instances.
    """
    from wastenot.devices.nvidia.device import NvidiaDevice, handle_of

    nvml = Nvml(allow_changes=allow_clock_control)
    return NvidiaDevice(nvml, handle_of(nvml, name), name, restore=restore, **parts)


def clock_setter(unique_id: str, *, allow_changes: bool) -> NvidiaSetter:
    """What sets the clocks of a GPU."""
    nvml = Nvml(allow_changes=allow_changes)
    return NvidiaSetter(nvml, nvml.call("nvmlDeviceGetHandleByUUID", unique_id), unique_id)
