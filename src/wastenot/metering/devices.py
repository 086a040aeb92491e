"""Which devices a window measures: those named, else every NVIDIA GPU that this process may use."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence

from wastenot.devices.open import open_device
from wastenot.devices.protocol import Device
from wastenot.errors import BadInputError, DeviceError

DeviceOrName = str | Device

_opened: dict[str, Device] = {}


def window_devices(devices: DeviceOrName | Iterable[DeviceOrName] | None) -> tuple[Device, ...]:
    """The devices that are meant, opened once in a process.

    Args:
        devices: names such as ``nvidia:0`` or ``sim:h200``, devices, or ``None`` for all NVIDIA GPUs that are visible.

    Raises:
        BadInputError: there is no such device, or it does not live in real time, or measured and simulated are mixed.
        DeviceError: there is no driver or no GPU.
        MissingExtraError: nvidia-ml-py is not installed.
    """
    if devices is None:
        chosen: Sequence[DeviceOrName] = visible_names()
    elif isinstance(devices, str) or not isinstance(devices, Iterable):
        chosen = (devices,)
    else:
        chosen = tuple(devices)
    found: dict[int, Device] = {}
    for one in chosen:
        device = _open(one) if isinstance(one, str) else one
        found.setdefault(id(device), device)
    if not found:
        raise BadInputError("no device to measure: name one such as nvidia:0")
    together = tuple(found.values())
    for device in together:
        _check_time(device)
    if len({device.identity.origin for device in together}) > 1:
        raise BadInputError("real and simulated devices are not measured together: name the ones or the others")
    return together


def visible_names() -> tuple[str, ...]:
    """Names of the NVIDIA GPUs that ``CUDA_VISIBLE_DEVICES`` leaves; its numbers are taken in the order of the PCI bus.

    Raises:
        DeviceError: there is no driver or no GPU.
        MissingExtraError: nvidia-ml-py is not installed.
    """
    from wastenot.devices.nvidia.device import nvidia_names
    from wastenot.devices.nvidia.nvml import Nvml

    names = nvidia_names(Nvml())
    if not names:
        raise DeviceError("no NVIDIA GPU was found on this machine; name a device, such as sim:h200")
    said = os.environ.get("CUDA_VISIBLE_DEVICES")
    if said is None:
        return names
    visible: list[str] = []
    for part in said.split(","):
        which = part.strip()
        if which.startswith("GPU-"):
            visible.append(f"nvidia:{which}")
        elif which.isdecimal() and int(which) < len(names):
            visible.append(names[int(which)])
        else:
            break  # as CUDA does: what follows something wrong is not visible
    if not visible:
        raise DeviceError(f"CUDA_VISIBLE_DEVICES={said} leaves no GPU; name a device, such as nvidia:0")
    return tuple(dict.fromkeys(visible))


def _open(name: str) -> Device:
    if name not in _opened:
        if name.startswith("recorded:"):
            raise BadInputError(f"device '{name}': a recording does not run; measure a GPU, or a sim: one")
        _opened[name] = open_device(name, wall_time=True)
    return _opened[name]


def _check_time(device: Device) -> None:
    """Windows are of real time; a device with time of its own does not know it."""
    if device.identity.origin == "measured":
        return
    before = device.time.now_s()
    time.sleep(0.002)
    if not 0.001 < device.time.now_s() - before < 0.5:
        raise BadInputError(f"device '{device.identity.name}' does not live in real time: open it with wall_time=True")


os.register_at_fork(after_in_child=_opened.clear)
