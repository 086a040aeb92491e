"""Which devices a window measures: those named, or every GPU that this process may use."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from wastenot.core.errors import BadInputError, DeviceError
from wastenot.core.vendors import Vendor, with_drivers
from wastenot.devices.common.gpu_driver import names_here
from wastenot.devices.protocol import Device

DeviceOrName = str | Device


def measurable_devices(
    devices: DeviceOrName | Iterable[DeviceOrName] | None, open_named: Callable[[str], Device]
) -> tuple[Device, ...]:
    """The devices to measure, each once.

    Args:
        devices: names such as ``nvidia:0`` or ``sim:h200``, devices, or ``None`` for all GPUs that are visible.
        open_named: opens a device by name.

    Raises:
        BadInputError: there is no such device, it does not run in real time, or real and simulated ones are mixed.
        DeviceError: there is no driver or no GPU.
        MissingExtraError: what the driver needs is not installed.
    """
    if devices is None:
        chosen: Sequence[DeviceOrName] = visible_names()
    elif isinstance(devices, str) or not isinstance(devices, Iterable):
        chosen = (devices,)
    else:
        chosen = tuple(devices)
    opened = [open_named(one) if isinstance(one, str) else one for one in chosen]
    distinct = tuple({id(device): device for device in opened}.values())
    if not distinct:
        raise BadInputError("no device to measure: name one such as nvidia:0")
    for device in distinct:
        _require_real_time(device)
    if len({device.identity.origin for device in distinct}) > 1:
        raise BadInputError("real and simulated devices cannot be measured together: name only one kind")
    return distinct


def visible_names() -> tuple[str, ...]:
    """Names of the GPUs that ``CUDA_VISIBLE_DEVICES`` and its like leave visible; numbers are taken in PCI bus order.

    Errors are those of :func:`measurable_devices`.
    """
    here = {vendor: names for vendor, names in names_here().items() if names}
    if not here:
        labels = " or ".join(vendor.label for vendor in with_drivers())
        raise DeviceError(f"no {labels} GPU was found on this machine; name a device, such as sim:h200")
    visible = [name for vendor, names in here.items() for name in _visible(vendor, names)]
    if not visible:
        left = " and ".join(f"{vendor.visible}={os.environ.get(vendor.visible)}" for vendor in here)
        raise DeviceError(f"{left} leaves no GPU; name a device, such as {next(iter(here)).name}:0")
    return tuple(dict.fromkeys(visible))


def _visible(vendor: Vendor, names: tuple[str, ...]) -> Iterator[str]:
    variable = os.environ.get(vendor.visible)
    if variable is None:
        yield from names
        return
    for entry in map(str.strip, variable.split(",")):
        if entry.startswith(vendor.id_prefix):
            yield f"{vendor.name}:{entry}"
        elif entry.isdecimal() and int(entry) < len(names):
            yield names[int(entry)]
        else:
            return  # as in CUDA: whatever follows an invalid entry is invisible


def _require_real_time(device: Device) -> None:
    """Windows are measured in real time, which a device on virtual time does not share."""
    if device.identity.origin == "measured":
        return
    began_s, device_began_s = time.perf_counter(), device.time.now_s()
    time.sleep(0.002)
    passed_s = time.perf_counter() - began_s
    if not 0.001 < device.time.now_s() - device_began_s < passed_s + 0.5:
        raise BadInputError(f"device '{device.identity.name}' does not run in real time: open it with wall_time=True")
