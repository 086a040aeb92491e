"""``wn.profile("gemm:8192", "sim:mi300x")``: the eight steps of FinGraV (Singhania et al., §IV-B), one after another.

In the end a profile is compared with the energy counter, over a run that it was not made from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError, DeviceError
from wastenot.core.progress import Progress, Silent
from wastenot.devices.clock_fit import fit_clocks
from wastenot.devices.instrument import TOTAL, Channel, Instrument, PreparedBurst, burst_of
from wastenot.devices.open import open_device
from wastenot.devices.protocol import Device
from wastenot.meters.mean_power import CounterMeter
from wastenot.profiles.assemble import assemble
from wastenot.profiles.options import ProfileOptions
from wastenot.profiles.result import CounterCheck, Profile
from wastenot.profiles.runs import on_host_clock, unit_times
from wastenot.profiles.session import Session
from wastenot.profiles.subjects import Subject, Subjects
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.shape import Shape


def profile(
    kernel: Subject,
    device: str | Device,
    *,
    after: Sequence[Subject | tuple[Subject, int]] = (),
    alternate: Sequence[Subject | tuple[Subject, int]] = (),
    options: ProfileOptions | None = None,
    channels: Sequence[Channel] = (),
    shape: Shape | None = None,
    progress: Progress | None = None,
) -> Profile:
    """Profile the power of a kernel over its executions and inside them, from slow sensors (FinGraV).

        >>> import wastenot as wn
        >>> profile = wn.profile("gemm:4096", "sim:mi300x", options=wn.ProfileOptions(runs=60, budget_s=20.0))
        >>> [state.name for state in profile.states], profile.origin
        (['SSE', 'SSP'], 'simulated')

    Args:
        kernel: ``gemm:8192``, ``gpt3-xl:softmax``, an analytical kernel, or a function without arguments that queues work
            on PyTorch's current stream and does not wait for it.
        device: or its name, such as ``sim:mi300x`` or ``nvidia:0``.
        after: what runs before it in each run, in order, such as ``gemv:4096x40`` or ``(kernel, 40)``; the kernel then runs
            once, right after.
        alternate: what alternates with it until power is steady; instead of ``after``.
        options: how to profile; their seed is also that of a simulated device that is given by name.
        channels: what is known about the sensors, by name, as by ``wastenot device sensor``; overrides the device's own.
        shape: how a model is run.
        progress: informed of every run.

    Returns:
        The profile; not :attr:`~Profile.complete` if it stopped early or fell short, as its notes explain.

    Raises:
        BadInputError: there is no such kernel or device.
        DeviceError: there is no power sensor, the clocks cannot be synchronised, the device cannot run functions, or it
            failed before there was enough for a profile.
        CannotRunError: the kernel cannot be run, or is too short for the clock.
    """
    options = options or ProfileOptions()
    if after and alternate:
        raise BadInputError("`after` and `alternate`: give only one: what runs first, or what alternates with the kernel")
    name = device if isinstance(device, str) else device.identity.name
    if name.partition(":")[0] == "recorded":
        raise BadInputError(
            f"device '{name}': a recording has no individual executions; profile on sim:NAME or nvidia:INDEX"
        )
    subjects = Subjects(name, shape)
    profiled, before = subjects.one(kernel), subjects.several(after or alternate)
    if any(other == profiled for other, _ in before):
        raise BadInputError(
            f"kernel '{profiled.name}' is being profiled, so it cannot come before itself; give another kernel"
        )
    target = open_device(device, seed=options.seed) if isinstance(device, str) else device
    instrument = _with_functions(target, subjects.functions) if subjects.functions else target.instrument()
    known = {channel.name: channel for channel in channels}
    session = Session(
        instrument, profiled, before, bool(alternate), options,
        tuple(known.get(channel.name, channel) for channel in instrument.channels), progress or Silent(),
    )  # fmt: skip
    result = assemble(session.collect())
    if options.check and not before and result.complete and target.sensors.energy_j() is not None:
        try:
            return replace(result, counter=check_by_counter(target, instrument, profiled, result))
        except (DeviceError, KeyboardInterrupt) as error:
            note = f"not checked by the energy counter: {error or 'interrupted'}"
            return replace(result, notes=(*result.notes, note))
    return result


@runtime_checkable
class RunsFunctions(Protocol):
    """An instrument that can run functions in place of kernels."""

    def with_callables(self, calls: Mapping[str, Callable[[], object]]) -> Instrument:
        """The same instrument, which runs each function in place of the kernel of its name."""


def _with_functions(device: Device, functions: Mapping[str, Callable[[], object]]) -> Instrument:
    """An instrument that runs each function in place of the kernel of its name; simulated ones cannot."""
    instrument = device.instrument()
    if not isinstance(instrument, RunsFunctions):
        names = ", ".join(functions)
        raise DeviceError(
            f"{device.identity.name}: it cannot run Python functions ({names}); give a kernel such as gemm:4096, "
            "or profile on nvidia:INDEX"
        )
    return instrument.with_callables(functions)


_RUN_S = 3.0
_MAX_TRIES = 5
_COMPARED_UNITS = 10  # from that of the last state on, whose times are compared with the profile's


def check_by_counter(device: Device, instrument: Instrument, kernel: KernelSpec, profile: Profile) -> CounterCheck | None:
    """Run the kernel for some seconds between two steps of the counter, and add up what the profile expects.

    Returns:
        Mean power by the counter and by the profile; ``None`` if no run's executions were in the profile's bin.

    Raises:
        DeviceError: the counter stands still or cannot be read.
    """
    units = math.ceil(_RUN_S / profile.states[-1].time_s)
    with instrument.prepare(burst_of(kernel, units * profile.group)) as bench:
        for _ in range(_MAX_TRIES):
            check = _check_run(device, instrument, bench, profile, units)
            if check is not None:
                return check
    return None


def _check_run(
    device: Device, instrument: Instrument, bench: PreparedBurst, profile: Profile, number: int
) -> CounterCheck | None:
    """One run; ``None`` if its executions are not in the profile's bin."""
    meter = CounterMeter(device, lambda: None)
    meter.begin()
    run = bench.run(0.0)
    meter.lap(0.0)
    counted = meter.mean()
    trips = (*run.round_trips, *instrument.round_trips(5))
    timed = on_host_clock([run], instrument, fit_clocks(trips))[0]
    units = unit_times([timed], 0, profile.group, number)
    if not _in_bin(units.time_s[0], profile):
        return None
    total = next(one for one in profile.channels if one.channel.name == TOTAL)
    power_w = np.full(units.time_s.shape[1], total.steady_w)
    first = min(len(total.mean_w), len(power_w))
    power_w[:first] = total.mean_w[:first]
    busy_s = float(timed.end_s[-1])
    spacing_s = np.append(units.begin_s[0, 1:], busy_s) - units.begin_s[0]
    expected_j = float(spacing_s @ power_w) + (counted.seconds - busy_s) * total.idle_w
    return CounterCheck(counted.power_w, expected_j / counted.seconds, counted.seconds)


def _in_bin(time_s: FloatArray, profile: Profile) -> bool:
    """Whether units are in the profile's bin: those right after SSP, or all later ones, as where power swings."""
    state = profile.states[-1]
    later = time_s[min(state.unit - 1, len(time_s) - 1) :]
    medians = (float(np.median(one)) for one in (later[:_COMPARED_UNITS], later))
    return any(abs(median / state.time_s - 1.0) <= profile.margin for median in medians)
