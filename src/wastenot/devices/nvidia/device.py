"""``nvidia:0``: an NVIDIA GPU behind the protocol."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from wastenot.core.errors import BadInputError
from wastenot.devices.common.gpu_driver import NoSuchGpuError
from wastenot.devices.common.power_poller import PowerPoller
from wastenot.devices.instrument import TOTAL, Channel
from wastenot.devices.nvidia.clocks import NvidiaSetter
from wastenot.devices.nvidia.nvml import Nvml, text_of
from wastenot.devices.nvidia.published import ARCHITECTURES, MEMORY, power_sensor
from wastenot.devices.nvidia.sensors import NvidiaSensors
from wastenot.devices.protocol import Identity
from wastenot.devices.torch.gpu import PowerLog, TorchGpu

_UNKNOWN = Channel(TOTAL, 0.1, 0.025, 0.01, source="assumed, as on Hopper")  # for architectures without published values


def nvidia_gpu(nvml: Nvml, name: str, **parts: Any) -> TorchGpu:
    """A GPU by name, with some parts of :class:`wastenot.devices.torch.gpu.TorchGpu` in place of the defaults.

    Raises:
        BadInputError: there is no such GPU, or it is partitioned into MIG instances.
    """
    handle = handle_of(nvml, name)
    uuid = text_of(nvml.call("nvmlDeviceGetUUID", handle))
    model = text_of(nvml.call("nvmlDeviceGetName", handle))
    driver = text_of(nvml.call("nvmlSystemGetDriverVersion"))
    identity = Identity(name, model, uuid, f"driver {driver}", "measured", unique_name=False)
    sensors = NvidiaSensors(nvml, handle)
    architecture = ARCHITECTURES.get(nvml.try_call("nvmlDeviceGetArchitecture", handle) or -1)
    log = partial(_power_log, identity, sensors, architecture)
    return TorchGpu(identity, sensors, NvidiaSetter(nvml, handle, uuid), log, **parts)


def _power_log(identity: Identity, sensors: NvidiaSensors, architecture: str | None, now_s: Callable[[], float]) -> PowerLog:
    if sensors.power_w() is None:
        raise BadInputError(f"{identity.name}: it has no power sensor; power changes within a second cannot be observed")
    published = power_sensor(architecture, identity.model, instant=sensors.has_instant) or _UNKNOWN
    if sensors.memory_power_w() is None:
        return (published,), PowerPoller(lambda: (sensors.power_w(),), now_s)
    return (published, MEMORY), PowerPoller(sensors.powers_w, now_s)


def handle_of(nvml: Nvml, name: str) -> Any:
    """NVML's handle of a GPU, by the GPU's name; errors are those of :func:`nvidia_gpu`."""
    which = name.partition(":")[2]
    by_index = which.isascii() and which.isdigit()
    try:
        if by_index:
            handle = nvml.call("nvmlDeviceGetHandleByIndex", int(which))
        else:
            handle = nvml.call("nvmlDeviceGetHandleByUUID", which)
    except NoSuchGpuError as error:
        names = ", ".join(f"nvidia:{index}" for index in range(int(nvml.call("nvmlDeviceGetCount")))) or "none"
        raise BadInputError(f"device '{name}': there is no such GPU; this machine has {names}") from error
    mode = nvml.try_call("nvmlDeviceGetMigMode", handle)
    if mode is not None and mode[0] == nvml.library.NVML_DEVICE_MIG_ENABLE:
        raise BadInputError(
            f"{name}: is partitioned into MIG instances, whose power NVIDIA does not report separately; use a whole GPU"
        )
    return handle
