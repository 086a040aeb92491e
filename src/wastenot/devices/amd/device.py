"""``amd:0``: an AMD GPU behind the protocol."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from wastenot.core.errors import BadInputError
from wastenot.devices.amd.clocks import AmdSetter
from wastenot.devices.amd.sensors import AmdSensors
from wastenot.devices.amd.smi import Smi
from wastenot.devices.common.power_poller import PowerPoller
from wastenot.devices.instrument import TOTAL, Channel
from wastenot.devices.protocol import Identity
from wastenot.devices.torch.gpu import PowerLog, TorchGpu

_POWER = Channel(TOTAL, 1e-3, 1e-3, 0.0, source="assumed: nothing is published of AMD SMI's power readings")


def amd_gpu(smi: Smi, name: str, **parts: Any) -> TorchGpu:
    """A GPU by name, with some parts of :class:`wastenot.devices.torch.gpu.TorchGpu` in place of the defaults.

    Raises:
        BadInputError: there is no such GPU, or another die of its package reports its power.
    """
    handles = smi.handles()
    handle = handle_of(smi, handles, name)
    setter = AmdSetter(smi, handle, smi.unique_id(handle))
    sensors = AmdSensors(smi, handle, (setter.power_limit_range_w() or (0.0, 0.0))[1])
    if sensors.power_w() is None and sensors.energy_j() is None and len(handles) > 1:
        raise BadInputError(
            f"{name}: reports neither power nor energy; on cards of two dies (MI250) the first reports those of both: "
            "measure on that one, with both dies at work"
        )
    identity = Identity(name, model_of(smi, handle), setter.unique_id, f"driver {version_of(smi, handle)}", "measured",
                        unique_name=False)  # fmt: skip
    counting = partial(_no_cycles, name)
    missing: dict[str, Any] = {"phases": counting, "tracer": counting}
    return TorchGpu(identity, sensors, setter, partial(_power_log, name, sensors), **(missing | parts))


def _no_cycles(name: str, *_: object) -> NoReturn:
    raise BadInputError(
        f"{name}: natural clocks and switching times are measured by counting cycles with NVIDIA's instructions, and those "
        "of AMD are not known to wastenot yet; sweep with clocks set, and state the time with --switch-time"
    )


def _power_log(name: str, sensors: AmdSensors, now_s: Callable[[], float]) -> PowerLog:
    if sensors.power_w() is None:
        raise BadInputError(f"{name}: it has no power sensor; power changes within a second cannot be observed")
    return (_POWER,), PowerPoller(lambda: (sensors.power_w(),), now_s)


def handle_of(smi: Smi, handles: tuple[Any, ...], name: str) -> Any:
    """AMD SMI's handle of a GPU, by the GPU's name: an index in HIP's order, or a unique ID.

    Raises:
        BadInputError: there is no such GPU.
    """
    which = name.partition(":")[2]
    if which.isascii() and which.isdigit() and int(which) < len(handles):
        return handles[int(which)]
    for handle in handles:
        if smi.unique_id(handle).lower() == which.lower():
            return handle
    names = ", ".join(f"amd:{index}" for index in range(len(handles))) or "none"
    raise BadInputError(f"device '{name}': there is no such GPU; this machine has {names}")


def model_of(smi: Smi, handle: Any) -> str:
    """Name of the model, such as ``AMD Instinct MI300X``."""
    name = str(smi.call("amdsmi_get_gpu_asic_info", handle)["market_name"])
    return name if "amd" in name.lower() else f"AMD {name}"


def version_of(smi: Smi, handle: Any) -> str:
    """Version of the driver."""
    return str(smi.call("amdsmi_get_gpu_driver_info", handle)["driver_version"])
