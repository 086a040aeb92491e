"""Measuring kernels in each state: back to back, at the first execution at full speed, or each after the one before it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from wastenot.devices.instrument import instrument_of
from wastenot.devices.protocol import Device, Task
from wastenot.errors import BadInputError
from wastenot.setting import Setting
from wastenot.study.state import State, labelled, parted
from wastenot.sweeping.in_context import loop_of, measure_in_context
from wastenot.sweeping.point import Measurement, Method, measure
from wastenot.tasks import Units
from wastenot.workloads.order import predecessors, steps_of

MeasureAt = Callable[[int, Setting], Measurement]
"""Measures a kernel, by its index, at a setting."""

KeepAlone = Callable[[Measurement], None]
"""Takes what was found of a kernel alone on the way to what it is in context."""


def in_state(units: Units, state: State) -> Units:
    """The same kernels under the name that a study knows the state by."""
    return replace(units, workload=labelled(units.workload, state))


def tasks_before(units: Units) -> tuple[Task, ...]:
    """What runs right before each kernel; the kernel itself where that is what mostly does."""
    steps = steps_of(units.kernels)
    return tuple(units.tasks[index] for index in predecessors(steps))


def measurer(device: Device, units: Units, method: Method, keep_alone: KeepAlone | None = None) -> MeasureAt:
    """How kernels are measured in the state that their workload's name says.

    Args:
        device: to measure on.
        units: the kernels.
        method: how.
        keep_alone: told of kernels alone, where they are measured in context.
    """
    tasks = units.tasks
    state = parted(units.workload)[1]
    if state == "context":
        before = tasks_before(units)

        def in_context(kernel: int, setting: Setting) -> Measurement:
            found = measure_in_context(device, tasks[kernel], before[kernel], setting, method)
            if keep_alone is not None:
                keep_alone(found.alone)
            return found.within

        return in_context
    if state == "sse":
        from wastenot.sweeping.at_sse import measure_at_sse

        return lambda kernel, setting: measure_at_sse(device, tasks[kernel], setting, method)
    return lambda kernel, setting: measure(device, tasks[kernel], setting, method)


def can_measure(device: Device, units: Units, kernel: int, setting: Setting) -> bool:
    """Whether the device can run all that it takes to measure a kernel in the state that the workload's name says."""
    task = units.tasks[kernel]
    if not device.launcher.can_run(task, setting):
        return False
    if parted(units.workload)[1] != "context":
        return True
    before = tasks_before(units)[kernel]
    return before.name == task.name or device.launcher.can_run(loop_of(before, task), setting)


def check_state(device: Device, units: Units) -> None:
    """Refuse a state that the device cannot be measured in.

    Raises:
        BadInputError: in context on a recording, which could give but the sum of kernels alone; SSE of several kernels.
        DeviceError: SSE without an instrument.
    """
    state = parted(units.workload)[1]
    name = device.identity.name
    if state == "context" and name.startswith("recorded:"):
        raise BadInputError(
            f"--in-context: {name} knows kernels alone, not one after another; measure on sim:NAME or nvidia:INDEX"
        )
    if state == "sse":
        instrument_of(device)
        if not all(task.is_kernel for task in units.tasks):
            raise BadInputError("--at sse: a profile is of one kernel: --granularity kernel")
