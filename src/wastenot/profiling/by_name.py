"""``wn.profile("gemm:8192", "sim:mi300x")``: power inside a kernel, of anything that has a name or is a function."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from wastenot.devices.instrument import Channel, Instrument, instrument_of
from wastenot.devices.open import open_device
from wastenot.devices.protocol import ClockControl, Device, Identity, Launcher, Sensors, TimeSource
from wastenot.errors import BadInputError, DeviceError
from wastenot.profiling.profile import Options, profile_kernel
from wastenot.profiling.result import Profile
from wastenot.profiling.subjects import Subject, Subjects
from wastenot.progress import Progress
from wastenot.workloads.shape import Shape

LEAST_RUNS = 10
_MOST_OUTLIERS = 20


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

    Args:
        kernel: ``gemm:8192``, ``gpt3-xl:softmax``, a kernel by formula, or a function without arguments that queues work on
            PyTorch's current stream and does not wait for it.
        device: or its name, such as ``sim:mi300x`` or ``nvidia:0``.
        after: what runs before it in each run, in order: such as ``gemv:4096x40``, or ``(kernel, 40)``; the kernel then
            runs once, in their wake.
        alternate: what takes turns with it until power is steady; instead of ``after``.
        runs: instead of what the kernel's time calls for.
        margin: width of the bin of execution times as a share of the time, likewise.
        outliers: 0 for the runs that are most alike; 1 for the next bin of execution times, and so on.
        executions: in a run, instead of the search for steady power.
        budget_s: device time after which no more is collected.
        channels: what is known of the sensors, by name, instead of the device's word.
        shape: how a model is run.
        seed: of a simulated device's noise, and of rests.
        progress: is told of every run.

    Returns:
        The profile; not :attr:`~Profile.complete` where it was broken off or fell short, its notes say why.

    Raises:
        BadInputError: there is no such kernel or device, or an argument makes no sense.
        DeviceError: no power sensor, clocks that cannot be told together, functions on a device that runs none, or the
            device failed before anything was found.
        CannotRunError: the kernel cannot be run, or is too short for the clock.
    """
    options = checked_options(runs, margin, outliers, executions, budget_s, seed)
    if after and alternate:
        raise BadInputError("`after` and `alternate`: give only one: what runs first, or what alternates with the kernel")
    name = device if isinstance(device, str) else device.identity.name
    if name.partition(":")[0] == "recorded":
        raise BadInputError(f"device '{name}': a recording has no executions; profile on sim:NAME or nvidia:INDEX")
    subjects = Subjects(name, shape)
    ours, before = subjects.one(kernel), subjects.several(after or alternate)
    if any(other == ours for other, _ in before):
        raise BadInputError(f"kernel '{ours.name}' is profiled, so it cannot come before itself; name another")
    target = open_device(device, seed=seed) if isinstance(device, str) else device
    if subjects.functions:
        target = running(target, subjects.functions)
    found = profile_kernel(
        target, ours, before=before, alternate=bool(alternate), options=options, channels=channels, progress=progress
    )
    return replace(found, before=f"{found.before}, in turn") if alternate else found


def checked_options(
    runs: int | None, margin: float | None, outliers: int, executions: int | None, budget_s: float, seed: int
) -> Options:
    """How to profile, if it makes sense.

    Raises:
        BadInputError: it does not.
    """
    if runs is not None and runs < LEAST_RUNS:
        raise BadInputError(f"`runs` {runs}: must be at least {LEAST_RUNS}")
    if margin is not None and not 0.0 < margin < 1.0:
        raise BadInputError(f"`margin` {margin:g}: must be a fraction above 0 and below 1, such as 0.05")
    if not 0 <= outliers <= _MOST_OUTLIERS:
        raise BadInputError(f"`outliers` {outliers}: must be from 0, the fullest bin, to {_MOST_OUTLIERS}")
    if executions is not None and executions < 1:
        raise BadInputError(f"`executions` {executions}: must be at least 1")
    if not (math.isfinite(budget_s) and budget_s > 0.0):
        raise BadInputError(f"`budget_s` {budget_s:g}: must be a number of seconds above 0")
    if seed < 0:
        raise BadInputError(f"`seed` {seed}: must be at least 0")
    return Options(runs=runs, margin=margin, bin_rank=outliers, units=executions, budget_s=budget_s, seed=seed)


@runtime_checkable
class RunsFunctions(Protocol):
    """An instrument that runs functions in place of kernels."""

    def with_callables(self, calls: Mapping[str, Callable[[], object]]) -> Instrument:
        """The same instrument, which runs functions in place of the kernels of their names."""
        ...


@dataclass(frozen=True, slots=True)
class _Running:
    """A device whose instrument runs functions."""

    identity: Identity
    time: TimeSource
    clocks: ClockControl
    sensors: Sensors
    launcher: Launcher
    _instrument: Instrument

    def instrument(self) -> Instrument:
        """Its instrument."""
        return self._instrument


def running(device: Device, functions: Mapping[str, Callable[[], object]]) -> Device:
    """A device that runs functions in place of the kernels of their names.

    Raises:
        DeviceError: it runs none, as simulated ones.
    """
    instrument = instrument_of(device)
    if not isinstance(instrument, RunsFunctions):
        names = ", ".join(functions)
        raise DeviceError(
            f"{device.identity.name}: it cannot run Python functions ({names}); name a kernel such as gemm:4096, "
            "or profile on nvidia:INDEX"
        )
    return _Running(
        device.identity, device.time, device.clocks, device.sensors, device.launcher, instrument.with_callables(functions)
    )
