"""Devices by name: ``sim:rtx-3080-ti``, ``sim:my-gpu.toml``, ``recorded:my.db``, and real GPUs such as ``nvidia:0``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from wastenot.core.errors import BadInputError
from wastenot.core.suggest import suggestion
from wastenot.core.vendors import unique_id_in, vendor_named, vendor_of_id, with_drivers

if TYPE_CHECKING:
    from wastenot.devices.common.journal import Restore
    from wastenot.devices.protocol import Device
    from wastenot.devices.simulated.device import SimulatedDevice
    from wastenot.devices.simulated.hardware import Switching
    from wastenot.devices.simulated.preset import Preset
    from wastenot.workloads.identity import Granularity

SIMULATOR_VERSION = "simulator 1"


def open_device(
    name: str,
    *,
    seed: int = 0,
    wall_time: bool = False,
    workload: str | None = None,
    granularity: Granularity | None = None,
    allow_clock_control: bool = False,
    restore: Restore | None = None,
) -> Device:
    """Open a device by name.

        >>> import wastenot as wn
        >>> device = wn.open_device("sim:h200", seed=1)
        >>> device.identity.origin, max(device.clocks.supported_clocks()[3201.0])
        ('simulated', 1980.0)

    Args:
        name: ``sim:PRESET``, ``sim:FILE.toml``, ``recorded:STUDY``, ``nvidia:INDEX`` or ``nvidia:UUID``.
        seed: of a simulated device's noise and sensors.
        wall_time: run a simulated device in real time, so that other programs can share it.
        workload: the workload to replay, where a recording's study has several.
        granularity: that the workload of a recording was measured by; by default the finest there is.
        allow_clock_control: allow the clocks of a real GPU to be changed.
        restore: ranges of locked clocks to which a real GPU is restored.

    Raises:
        BadInputError: there is no such device; the message lists those there are.
        StudyError: a recording's study cannot be read.
        MissingExtraError: the driver or its Python binding is not installed.
        DeviceError: a real GPU or its driver failed.
    """
    kind, _, what = name.partition(":")
    if vendor_named(name) is not None and what:
        return open_gpu(name, allow_clock_control=allow_clock_control, restore=restore)
    if kind == "recorded" and what:
        from wastenot.devices.recorded import recorded_device
        from wastenot.study.store import open_study

        return recorded_device(open_study(what).read(workload, granularity=granularity), name)
    if kind == "sim" and what:
        from wastenot.devices.simulated.preset import find_preset

        return simulated_device(find_preset(what), name, seed=seed, wall_time=wall_time)
    real = " or ".join(f"{vendor.name}:INDEX" for vendor in with_drivers())
    forms = f"sim:NAME, sim:FILE.toml, recorded:STUDY or {real}"
    if kind in _kinds():
        raise BadInputError(f"device '{name}': the part after the colon is missing; write {forms}")
    from wastenot.devices.simulated.basis import preset_names

    if name in preset_names():
        raise BadInputError(f"device '{name}': did you mean the simulated one, 'sim:{name}'? A real GPU is {real}")
    raise BadInputError(f"device '{name}': there is no kind '{kind}'; {suggestion(kind, _kinds())}; write {forms}")


def open_gpu(name: str, *, allow_clock_control: bool = False, restore: Restore | None = None, **parts: Any) -> Device:
    """Open a real GPU by name, after restoring any GPU whose clocks a dead process left changed.

    Args:
        name: of the GPU, with the kind of a vendor.
        allow_clock_control: allow clocks to be changed.
        restore: ranges of locked clocks to which it is restored.
        parts: that replace what its driver makes by default, see :class:`wastenot.devices.torch.gpu.TorchGpu`.

    Raises:
        BadInputError: there is no such GPU.
        MissingExtraError: the driver or its Python binding is not installed.
        DeviceError: the GPU or its driver failed, or another GPU could not be restored.
    """
    from wastenot.devices.common.gpu_driver import driver_of
    from wastenot.devices.common.recovery import put_right

    vendor = vendor_named(name)
    assert vendor is not None
    put_right()
    return driver_of(vendor).open_gpu(name, allow_clock_control=allow_clock_control, restore=restore, **parts)


def _kinds() -> tuple[str, ...]:
    return ("sim", "recorded", *(vendor.name for vendor in with_drivers()))


def device_of_study(study: str, label: str) -> str:
    """The name by which the device of a study can be opened, for commands that were not told another.

    Args:
        study: how messages name it.
        label: of its device: a name, or the model and the UUID of a card, or whatever an import was told.

    Raises:
        BadInputError: no device can be opened by it.
    """
    kind, _, what = label.partition(":")
    if kind in _kinds() and what:
        return label
    unique_id = unique_id_in(label)
    vendor = None if unique_id is None or not label.endswith(f" {unique_id}") else vendor_of_id(unique_id)
    if vendor is not None:
        return f"{vendor.name}:{unique_id}"
    taken = f"was measured on '{label}', which is not the name of a device"
    if label == "unknown":
        taken = "does not record on which device it was measured"
    raise BadInputError(f"`device`: {study} {taken}; give the device to measure, such as `device` nvidia:0")


def simulated_device(
    preset: Preset, name: str, *, seed: int = 0, wall_time: bool = False, switching: Switching | None = None
) -> SimulatedDevice:
    """The simulated GPU of a preset.

    Args:
        preset: what it is like.
        name: the user's name for it.
        seed: of its noise and sensors.
        wall_time: run in real time.
        switching: how late its clocks take effect, if not as the preset states, such as ``Switching.of(0.015, 0.3)``.
    """
    from wastenot.devices.protocol import Identity
    from wastenot.devices.simulated.device import SimulatedDevice
    from wastenot.devices.simulated.engine import Engine
    from wastenot.devices.simulated.model_physics import ModelPhysics
    from wastenot.devices.simulated.sensors import SimulatedSensors

    engine = Engine(
        ModelPhysics(preset),
        preset.thermal,
        preset.switching if switching is None else switching,
        preset.noise,
        seed,
        time.monotonic if wall_time else None,
    )
    identity = Identity(name, preset.model, f"{preset.name}/{seed}", SIMULATOR_VERSION, "simulated")
    return SimulatedDevice(identity, engine, SimulatedSensors(engine, preset.sensors), preset.thermal.reference_c)


def is_virtual(device: Device) -> bool:
    """Whether the time of a device is virtual: it passes as fast as it can be computed."""
    from wastenot.devices.simulated.device import SimulatedDevice

    return isinstance(device, SimulatedDevice) and device.time.virtual
