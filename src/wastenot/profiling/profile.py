"""The eight steps of FinGraV (Singhania et al., §IV-B), one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wastenot.devices.instrument import Channel, instrument_of
from wastenot.devices.protocol import Device
from wastenot.errors import DeviceError
from wastenot.profiling.assemble import assembled
from wastenot.profiling.counter import check_by_counter
from wastenot.profiling.options import Options
from wastenot.profiling.result import Profile
from wastenot.profiling.session import Session
from wastenot.progress import Progress, Silent
from wastenot.workloads.kernel import KernelSpec

__all__ = ["Options", "profile_kernel"]


def profile_kernel(
    device: Device,
    kernel: KernelSpec,
    *,
    before: Sequence[tuple[KernelSpec, int]] = (),
    alternate: bool = False,
    options: Options | None = None,
    channels: Sequence[Channel] = (),
    progress: Progress | None = None,
) -> Profile:
    """Profile the power of a kernel inside its executions.

    Args:
        device: to run it on; it needs an instrument.
        kernel: to profile.
        before: executions of other kernels that come first in each run; the kernel then runs once, in their wake.
        alternate: repeat ``before`` and the kernel in turn until power is steady, and profile the last of them.
        options: how.
        channels: what is known of the sensors, such as from ``wastenot sensor``; by name, instead of the device's word.
        progress: is told of every run.

    Raises:
        DeviceError: no power sensor, clocks that cannot be told together, or the device failed before anything was found.
        CannotRunError: the kernel cannot be run, or is too short for the clock.
    """
    instrument = instrument_of(device)
    known = {channel.name: channel for channel in channels}
    session = Session(
        instrument, kernel, tuple(before), alternate, options or Options(),
        tuple(known.get(channel.name, channel) for channel in instrument.channels), progress or Silent(),
    )  # fmt: skip
    found = assembled(session.profile())
    if session.options.check and not before and found.complete and device.sensors.energy_j() is not None:
        try:
            found = replace(found, counter=check_by_counter(device, instrument, kernel, found))
        except (DeviceError, KeyboardInterrupt) as error:
            note = f"not checked by the energy counter: {error or 'interrupted'}"
            found = replace(found, notes=(*found.notes, note))
    return found
