"""The GPUs of a server that ``wastenot serve bench`` measures: their meter, and the clocks to set."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from wastenot.core.errors import BadInputError
from wastenot.terminal.options import ClockControlOptions, parse_clocks, parse_power_limits

if TYPE_CHECKING:
    from wastenot.core.setting import Setting
    from wastenot.devices.protocol import Device
    from wastenot.serving.bench.energy import EnergyMeter

_LOCAL = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


def is_local(url: str) -> bool:
    """Whether a server runs on this machine."""
    host = urlsplit(url if "://" in url else f"http://{url}").hostname or ""
    return host in (*_LOCAL, socket.gethostname().lower())


def server_gpus(
    url: str, named: str | None, meter: str | None, clock_control: ClockControlOptions
) -> tuple[tuple[Device, ...], str]:
    """The server's GPUs on this machine: those named, or its only one; where there are none, why.

    Raises:
        BadInputError: there are several and none is named, or one cannot be measured.
    """
    from wastenot.core.errors import DeviceError, MissingExtraError
    from wastenot.meters.devices import measurable_devices, visible_names

    if named == "none":
        return (), "--device none"
    if named is None and (meter is not None or not is_local(url)):
        where = "(docs/serving-bench.md)"
        return (), f"the server is on another machine; give its meter: --meter http://ITS-HOST:9400/metrics {where}"
    if named is None:
        try:
            names = visible_names()
        except (DeviceError, MissingExtraError) as error:
            return (), str(error)
        if len(names) > 1:
            raise BadInputError(f"--device: this machine has {len(names)} GPUs; name those that serve: --device {names[0]}")
    else:
        names = tuple(name.strip() for name in named.split(","))
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise BadInputError(f"--device {named}: {twice} is named twice, and its energy would count twice")
    opened = tuple(
        _on_wall_time(name) if name.startswith("sim:") else clock_control.open_device(name, seed=0, workload=None)
        for name in names
    )
    return measurable_devices(opened, _on_wall_time), ""


def _on_wall_time(name: str) -> Device:
    from wastenot.devices.open import open_device

    return open_device(name, wall_time=True)


def settings_of(
    devices: Sequence[Device], core: str | None, memory: str | None, power_limit: str | None
) -> tuple[Setting, ...]:
    """The driver's own clocks, then those asked for, which the GPUs have."""
    from wastenot.core.setting import AUTO
    from wastenot.sweeping.grid import Grid

    if core is None and memory is None and power_limit is None:
        return (AUTO,)
    if not devices:
        raise BadInputError("--core, --memory, --power-limit: need the server's GPUs on this machine: --device nvidia:0")
    clocks = devices[0].clocks
    states = clocks.supported_clocks()
    memories = parse_clocks("--memory", memory)
    if core is not None and memory is None and states:
        memories = (max(states),)
    grid = Grid(core_mhz=parse_clocks("--core", core), memory_mhz=memories, power_limit_w=parse_power_limits(power_limit))
    settings = grid.settings(states, clocks.power_limits_w())
    if memory is None:  # its memory clock is left to the driver
        settings = tuple(dict.fromkeys(replace(each, memory_mhz=None) for each in settings))
    return (AUTO, *settings)


def meter_of(devices: tuple[Device, ...], meter: str | None, meter_gpus: str | None) -> EnergyMeter | None:
    """The meter of these GPUs, or of those elsewhere; ``None`` where there is neither."""
    from wastenot.serving.bench.energy import LocalMeter
    from wastenot.serving.bench.remote_meter import open_meter

    if meter is not None:
        return open_meter(meter, None if meter_gpus is None else [each.strip() for each in meter_gpus.split(",")])
    return LocalMeter(devices) if devices else None
