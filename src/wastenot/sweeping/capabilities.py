"""What a device can do for a sweep, found out before anything is measured."""

from __future__ import annotations

from collections.abc import Sequence

from wastenot.devices.protocol import Device
from wastenot.errors import ClocksRefusedError, DeviceError
from wastenot.setting import Setting


def check_measures(device: Device) -> None:
    """Refuse a device that tells neither energy nor power.

    Raises:
        DeviceError: it does not.
    """
    if device.sensors.energy_j() is None and device.sensors.power_w() is None:
        raise DeviceError(f"{device.identity.name}: neither energy nor power can be read; nothing could be measured")


def settable(device: Device, settings: Sequence[Setting]) -> tuple[Setting, ...]:
    """The settings that a device takes: all of them, or with its own memory clock where that cannot be set.

    Raises:
        ClocksRefusedError: it has no clocks to set, or they may not be touched.
    """
    if not settings:
        raise ClocksRefusedError(f"{device.identity.name}: tells no clocks to set; measure at its own: --clocks auto")
    try:
        device.clocks.request(settings[0])
        return tuple(settings)
    except ClocksRefusedError as error:
        highest = max(setting.memory_mhz or 0.0 for setting in settings)
        core_only = tuple(
            Setting(setting.core_mhz, None, setting.power_limit_w) for setting in settings if setting.memory_mhz == highest
        )
        try:
            device.clocks.request(core_only[0])
        except (ClocksRefusedError, IndexError):
            raise ClocksRefusedError(f"{error}; measure at the driver's own clocks: --clocks auto") from error
        return core_only
    finally:
        device.clocks.release()
