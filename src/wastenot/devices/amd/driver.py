"""AMD's driver: a :class:`wastenot.devices.common.gpu_driver.GpuDriver`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wastenot.core.vendors import bare_unique_id
from wastenot.devices.amd.clocks import AmdSetter
from wastenot.devices.amd.smi import Smi, number
from wastenot.devices.common.gpu_driver import Examined, NoSuchGpuError

if TYPE_CHECKING:
    from wastenot.devices.common.journal import Restore
    from wastenot.devices.torch.gpu import TorchGpu

_ARCHITECTURES = {"gfx90a": "CDNA 2", "gfx942": "CDNA 3", "gfx950": "CDNA 4"}


def version() -> str:
    """Version of the driver."""
    from wastenot.devices.amd.device import version_of

    smi = Smi()
    return version_of(smi, smi.handles()[0])


def count() -> int:
    """Number of GPUs; each die of a card of two counts."""
    return len(Smi().handles())


def unique_id(index: int) -> str:
    """Unique ID of a GPU, by its index in HIP's order."""
    smi = Smi()
    return smi.unique_id(smi.handles()[index])


def process_ids(index: int) -> tuple[int, ...] | None:
    """IDs of the processes that compute on a GPU; ``None`` where they are not reported."""
    smi = Smi()
    running = smi.try_call("amdsmi_get_gpu_process_list", smi.handles()[index])
    return None if running is None else tuple(int(each["pid"]) for each in running)


def examine(index: int, torch_indices: Mapping[str, int]) -> Examined:
    """Examine a GPU without changing anything."""
    from wastenot.devices.amd.device import model_of

    smi = Smi()
    handle = smi.handles()[index]
    unique, setter = smi.unique_id(handle), AmdSetter(smi, handle, smi.unique_id(handle))
    chip = str(smi.call("amdsmi_get_gpu_asic_info", handle)["target_graphics_version"])
    memory = number((smi.try_call("amdsmi_get_gpu_vram_info", handle) or {}).get("vram_size"))
    clocks = {state: (cores[0], cores[-1], len(cores)) for state, cores in setter.supported_clocks().items()}
    return Examined(
        name=f"amd:{index}",
        model=model_of(smi, handle),
        uuid=unique,
        architecture=_ARCHITECTURES.get(chip, chip),
        mig=None,
        persistence=None,
        memory_bytes=None if memory is None else int(memory) << 20,
        power_limit_w=setter.power_limit_w(),
        power_limits_w=setter.power_limit_range_w(),
        clocks=clocks,
        memory_clock_settable=None if len(clocks) > 1 else False,
        profiles=None,
        busy=None,
        held_by={},
        published_window_s=None,
        torch_index=torch_indices.get(bare_unique_id(unique)),
    )


def open_gpu(name: str, *, allow_clock_control: bool = False, restore: Restore | None = None, **parts: Any) -> TorchGpu:
    """Open a GPU by name, ``amd:INDEX`` in HIP's order or ``amd:ID``; see :func:`wastenot.devices.open.open_gpu`."""
    from wastenot.devices.amd.device import amd_gpu

    return amd_gpu(Smi(allow_changes=allow_clock_control), name, restore=restore, **parts)


def clock_setter(unique_id: str, *, allow_changes: bool) -> AmdSetter:
    """What sets the clocks of a GPU."""
    smi = Smi(allow_changes=allow_changes)
    for handle in smi.handles():
        if smi.unique_id(handle) == unique_id:
            return AmdSetter(smi, handle, unique_id)
    raise NoSuchGpuError(f"{unique_id}: AMD's driver knows no such GPU")
