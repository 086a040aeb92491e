"""``wn.profile("gemm:8192", "sim:mi300x")``: the eight steps of FinGraV (Singhania et al., §IV-B), one after another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from wastenot.core.errors import BadInputError, DeviceError
from wastenot.core.progress import Progress, Silent
from wastenot.devices.instrument import Channel, Instrument
from wastenot.devices.open import open_device
from wastenot.devices.protocol import ClockControl, Device, Identity, Launcher, Sensors, TimeSource
from wastenot.devices.timeline import TimelineRecorder
from wastenot.devices.tracer import Tracer
from wastenot.profiles.assemble import assemble
from wastenot.profiles.counter_check import check_by_counter
from wastenot.profiles.result import Profile
from wastenot.profiles.session import Options, Session
from wastenot.profiles.subjects import Subject, Subjects
from wastenot.workloads.kernel import KernelSpec
from wastenot.workloads.shape import Shape

_MIN_RUNS = 10
_MAX_OUTLIERS = 20


def profile(
    kernel: Subject,
    device: str | Device,
    *,
    after: Sequence[Subject | tuple[Subject, int]] = (),
    alternate: Sequence[Subject | tuple[Subject, int]] = (),
    runs: int | None = None,
    margin: float | None = None,
    outliers: int = 0,
    executions: int | None = None,
    budget_s: float = 240.0,
    channels: Sequence[Channel] = (),
    shape: Shape | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Profile:
    """Profile the power of a kernel over its executions and inside them, from slow sensors (FinGraV).

        >>> import wastenot as wn
        >>> profile = wn.profile("gemm:4096", "sim:mi300x", runs=60, budget_s=20.0)
        >>> [state.name for state in profile.states], profile.origin
        (['SSE', 'SSP'], 'simulated')

    Args:
        kernel: ``gemm:8192``, ``gpt3-xl:softmax``, an analytical kernel, or a function without arguments that queues work
            on PyTorch's current stream and does not wait for it.
        device: or its name, such as ``sim:mi300x`` or ``nvidia:0``.
        after: what runs before it in each run, in order, such as ``gemv:4096x40`` or ``(kernel, 40)``; the kernel then runs
            once, right after.
        alternate: what alternates with it until power is steady; instead of ``after``.
        runs: instead of the number that the kernel's time calls for.
        margin: width of the bin of execution times as a fraction of the time, instead of the one the time calls for.
        outliers: 0 for the runs that are most alike, 1 for the next bin of execution times, and so on.
        executions: in a run, instead of the search for steady power.
        budget_s: device time after which no more is collected.
        channels: what is known about the sensors, by name, as by ``wastenot device sensor``; overrides the device's own.
        shape: how a model is run.
        seed: of a simulated device's noise, and of rests between runs.
        progress: informed of every run.

    Returns:
        The profile; not :attr:`~Profile.complete` if it stopped early or fell short, as its notes explain.

    Raises:
        BadInputError: there is no such kernel or device, or an argument is out of range.
        DeviceError: there is no power sensor, the clocks cannot be synchronised, the device cannot run functions, or it
            failed before there was enough for a profile.
        CannotRunError: the kernel cannot be run, or is too short for the clock.
    """
    options = _checked_options(runs, margin, outliers, executions, budget_s, seed)
    if after and alternate:
        raise BadInputError("`after` and `alternate`: give only one: what runs first, or what alternates with the kernel")
    name = device if isinstance(device, str) else device.identity.name
    if name.partition(":")[0] == "recorded":
        raise BadInputError(f"device '{name}': a recording has no executions; profile on sim:NAME or nvidia:INDEX")
    subjects = Subjects(name, shape)
    profiled, before = subjects.one(kernel), subjects.several(after or alternate)
    if any(other == profiled for other, _ in before):
        raise BadInputError(f"kernel '{profiled.name}' is profiled, so it cannot come before itself; name another")
    target = open_device(device, seed=seed) if isinstance(device, str) else device
    if subjects.functions:
        target = _with_functions(target, subjects.functions)
    return profile_kernel(
        target, profiled, before=before, alternate=bool(alternate), options=options, channels=channels, progress=progress
    )


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
    """Profile the power of a kernel on an open device.

    Args:
        device: to run it on; it needs an instrument.
        kernel: to profile.
        before: executions of other kernels that come first in each run; the kernel then runs once, right after.
        alternate: repeat ``before`` and the kernel alternately until power is steady, and profile the last execution.
        options: how to profile.
        channels: what is known about the sensors, by name; overrides the device's own.
        progress: informed of every run.

    Raises:
        DeviceError: there is no power sensor, the clocks cannot be synchronised, or the device failed before there was
            enough for a profile.
        CannotRunError: the kernel cannot be run, or is too short for the clock.
    """
    options = options or Options()
    instrument = device.instrument()
    known = {channel.name: channel for channel in channels}
    session = Session(
        instrument, kernel, tuple(before), alternate, options,
        tuple(known.get(channel.name, channel) for channel in instrument.channels), progress or Silent(),
    )  # fmt: skip
    result = assemble(session.collect())
    if options.check and not before and result.complete and device.sensors.energy_j() is not None:
        try:
            return replace(result, counter=check_by_counter(device, instrument, kernel, result))
        except (DeviceError, KeyboardInterrupt) as error:
            note = f"not checked by the energy counter: {error or 'interrupted'}"
            return replace(result, notes=(*result.notes, note))
    return result


def _checked_options(
    runs: int | None, margin: float | None, outliers: int, executions: int | None, budget_s: float, seed: int
) -> Options:
    if runs is not None and runs < _MIN_RUNS:
        raise BadInputError(f"`runs` {runs}: must be at least {_MIN_RUNS}")
    if margin is not None and not 0.0 < margin < 1.0:
        raise BadInputError(f"`margin` {margin:g}: must be a fraction above 0 and below 1, such as 0.05")
    if not 0 <= outliers <= _MAX_OUTLIERS:
        raise BadInputError(f"`outliers` {outliers}: must be from 0, the fullest bin, to {_MAX_OUTLIERS}")
    if executions is not None and executions < 1:
        raise BadInputError(f"`executions` {executions}: must be at least 1")
    if not (math.isfinite(budget_s) and budget_s > 0.0):
        raise BadInputError(f"`budget_s` {budget_s:g}: must be a number of seconds above 0")
    if seed < 0:
        raise BadInputError(f"`seed` {seed}: must be at least 0")
    return Options(runs=runs, margin=margin, bin_rank=outliers, units=executions, budget_s=budget_s, seed=seed)


@runtime_checkable
class RunsFunctions(Protocol):
    """An instrument that can run functions in place of kernels."""

    def with_callables(self, calls: Mapping[str, Callable[[], object]]) -> Instrument:
        """The same instrument, which runs each function in place of the kernel of its name."""


@dataclass(frozen=True, slots=True)
class _FunctionDevice:
    """A device whose instrument runs functions."""

    identity: Identity
    time: TimeSource
    clocks: ClockControl
    sensors: Sensors
    launcher: Launcher
    timelines: Callable[[], TimelineRecorder]
    tracer: Callable[[], Tracer]
    _instrument: Instrument

    def instrument(self) -> Instrument:
        """Its instrument."""
        return self._instrument


def _with_functions(device: Device, functions: Mapping[str, Callable[[], object]]) -> Device:
    """A device that runs each function in place of the kernel of its name; simulated ones cannot."""
    instrument = device.instrument()
    if not isinstance(instrument, RunsFunctions):
        names = ", ".join(functions)
        raise DeviceError(
            f"{device.identity.name}: it cannot run Python functions ({names}); name a kernel such as gemm:4096, "
            "or profile on nvidia:INDEX"
        )
    roles = device.identity, device.time, device.clocks, device.sensors, device.launcher, device.timelines, device.tracer
    return _FunctionDevice(*roles, instrument.with_callables(functions))
