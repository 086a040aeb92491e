"""A kernel's energy in each of the states that a sweep may measure it in.

- ``ssp``: back to back, in steady power (FinGraV's SSP).
- ``sse``: its first execution at full speed (FinGraV's SSE; Singhania et al., §IV-A), from a power profile. Executions
  between SSE and SSP take equally long but draw differently; in a program that runs a kernel now and then, the first of
  them is closer to what it costs.
- ``context``: after the kernel that runs before it in the workload (FinGraV, §V-C, takeaway 4).

A light kernel that follows a heavy one draws more than by itself, and one between light ones leaves a power limit more
room. What a kernel k and the kernel p before it do to each other shows in the loop [p, k]:

    alone     p p p p p p p p      k k k k k k k k
    loop      p k p k p k p k      E(loop) = E(p) + E(k) + excess

Power that merely moves from one to the other (the lag of a sensor or a regulator) cancels in the loop: the excess is
what being neighbours really costs. The loop switches from p to k, as the workload does, and back from k to p, as it
does not, so only half of the excess is k's: each kernel of a workload is in two loops, with the kernel before it and
with the kernel after it, and half of each belongs to it. Summed over the workload that is half of all loops, each
switch counted once; charging k the whole excess would count every switch twice. Half is exact where the cost of a
switch does not depend on its direction, or where the directional part is a difference of per-kernel terms, which
cancels around the workload. Measured whole iterations show how far that holds.

All three loops run at the same setting, since clocks do not change from kernel to kernel, and interleaved, so that heat
and drift affect them alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError, DeviceError
from wastenot.core.progress import Silent
from wastenot.core.setting import Setting
from wastenot.devices.protocol import Device, Task
from wastenot.meters.mean_power import pass_time
from wastenot.meters.tasks import WorkloadTasks
from wastenot.study.recorder import Measurement
from wastenot.sweeping.point import PointOptions, average_of_known, measure_point
from wastenot.workloads.order import predecessors

if TYPE_CHECKING:
    from wastenot.profiles.result import Profile

LEAST_TURNS = 4
MOST_TURNS = 12
_LONGEST_TURNS = 48  # where these are enough to tell the kernel from nothing, and fewer are not
_ENOUGH = 0.01  # standard error, as a fraction of the kernel's energy alone, at which no more turns are taken
_TOLD = 1.0 / 3.0  # the same beyond which the kernel is lost in the noise of the other one
SETTLES_S = 0.5  # warm-up of each loop in its turn; the clocks have arrived already
_CLOCKS_ARRIVE_S = 1.0
PROFILES = 6.0  # times a point's usual time that a profile may take: it needs hundreds of runs
_OF_MEDIAN = math.sqrt(math.pi / 2)  # standard error of a median over that of a mean, of normal numbers

MeasureAt = Callable[[int, Setting], Measurement]
"""Measures a kernel, by its index, at a setting."""

KeepAlone = Callable[[Measurement], None]
"""Takes what was found of a kernel alone on the way to what it is in context."""


def tasks_before(workload: WorkloadTasks) -> tuple[Task, ...]:
    """What runs right before each kernel; the kernel itself where that is what mostly does."""
    steps = workload.kernels
    return tuple(workload.tasks[index] for index in predecessors(steps))


def measurer(
    device: Device, workload: WorkloadTasks, options: PointOptions, keep_alone: KeepAlone | None = None
) -> MeasureAt:
    """How kernels are measured in the state of their workload.

    Args:
        device: to measure on.
        workload: its kernels.
        options: how.
        keep_alone: receives the measurements of kernels alone, where they are measured in context.
    """
    tasks, state = workload.tasks, workload.state
    if state == "context":
        before = tasks_before(workload)

        def in_context(kernel: int, setting: Setting) -> Measurement:
            found = measure_in_context(device, tasks[kernel], before[kernel], setting, options)
            if keep_alone is not None:
                keep_alone(found.alone)
            return found.within

        return in_context
    if state == "sse":
        return lambda kernel, setting: measure_at_sse(device, tasks[kernel], setting, options)
    return lambda kernel, setting: measure_point(device, tasks[kernel], setting, options)


def can_measure(device: Device, workload: WorkloadTasks, kernel: int, setting: Setting) -> bool:
    """Whether the device can run all that it takes to measure a kernel in the state of its workload."""
    task = workload.tasks[kernel]
    if not device.launcher.can_run(task, setting):
        return False
    if workload.state != "context":
        return True
    before = tasks_before(workload)[kernel]
    return before.name == task.name or device.launcher.can_run(loop_of(before, task), setting)


def check_state(device: Device, workload: WorkloadTasks) -> None:
    """Refuse a state that the device cannot be measured in.

    Raises:
        BadInputError: in context on a recording, which could give but the sum of kernels alone; SSE of several kernels.
        DeviceError: SSE without an instrument.
    """
    state = workload.state
    name = device.identity.name
    if state == "context" and name.startswith("recorded:"):
        raise BadInputError(
            f"`device` {name}: a recording has kernels on their own, not one after another; measure on sim:NAME or "
            f"nvidia:INDEX"
        )
    if state == "sse":
        device.instrument()
        if not all(task.is_kernel for task in workload.tasks):
            raise BadInputError("`granularity`: SSE is that of a single kernel; use 'kernel'")


def measure_at_sse(device: Device, task: Task, setting: Setting, options: PointOptions) -> Measurement:
    """Profile a kernel at a setting and take its SSE.

    Args:
        device: to run it on; it needs an instrument.
        task: one kernel.
        setting: to run it at.
        options: its time, several times over, is what a profile may take where its sensor averages.

    Raises:
        BadInputError: the task is of several kernels.
        ClocksRefusedError, CannotRunError, DeviceError: as :func:`~wastenot.profiles.profile.profile`;
            also where it could have made something of what was collected before the device failed.
    """
    if not task.is_kernel:
        raise BadInputError(f"`granularity`: '{task.name}' has several kernels, SSE is that of one; use 'kernel'")
    from wastenot.profiles.options import ProfileOptions
    from wastenot.profiles.profile import profile

    device.clocks.request(setting)
    device.time.sleep(_CLOCKS_ARRIVE_S)
    began_s, temperature_c = device.time.now_s(), device.sensors.temperature_c()
    budget_s = PROFILES * (options.warm_up_s + options.window_s)
    found = profile(task.steps[0][0], device, options=ProfileOptions(budget_s=budget_s, check=False), progress=Silent())
    found.raise_if_stopped()
    state = found.state("SSE")
    total = state.channels["total"]
    time_s, time_se_s = state.time_s / found.group, _time_error_s(found)
    energy_j = state.energy_j / found.group
    in_effect = device.sensors.clocks()
    return Measurement(
        kernel=task.name,
        setting=setting,
        time_s=time_s,
        time_se_s=time_se_s,
        energy_j=energy_j,
        energy_se_j=energy_j * math.hypot(total.mean_error_w / total.mean_w, time_se_s / time_s),
        effective_core_mhz=in_effect.core_mhz,
        effective_memory_mhz=in_effect.memory_mhz,
        calls=found.golden_runs,
        temperature_c=temperature_c,
        window_s=device.time.now_s() - began_s,
        throttled_share=None,
        memory_power_w=None,
        how=f"SSE is execution {found.group * (state.unit - 1) + 1} of a run",
        stopped=f"{found.runs} runs, {found.golden_runs} golden",
        flags=found.notes,
    )


def _time_error_s(found: Profile) -> float:
    """Standard error of the median time of golden runs, of one execution."""
    times = found.execution_time_s / found.group
    golden = times[np.abs(times / np.median(times) - 1.0) <= max(found.margin, 1e-6)]
    return _OF_MEDIAN * float(np.std(golden)) / math.sqrt(max(len(golden), 1))


@dataclass(frozen=True, slots=True)
class InContext:
    """A kernel by itself and after the kernel before it, from the same turns.

    Attributes:
        alone: by itself.
        within: after the other one: half of (loop + alone - the other one alone), or alone where that is lost in noise.
    """

    alone: Measurement
    within: Measurement


def loop_of(before: Task, task: Task) -> Task:
    """Both alternating; one call is one call of each."""
    return Task(f"{before.name} > {task.name}", (*before.steps, *task.steps))


def measure_in_context(
    device: Device, task: Task, before: Task, setting: Setting, options: PointOptions | None = None
) -> InContext:
    """Measure one call of a task alone and after another one.

    The other one alone, the loop of both, and the task alone are measured one after another, four times and more where the
    other one is so much heavier that its noise is too large; starting from alternating ends. Where the other one is hundreds
    of times heavier, nothing is left of the task in that noise, and what was found alone stands for it, with the error of
    the difference. Which of these it is depends on errors, not on what was found, so that nothing is biased.

    Args:
        device: to measure on.
        task: to measure.
        before: that runs right before it; the same task where it follows itself, so that alone and in context are one.
        setting: to run both at.
        options: how; its window is divided among the first turns.

    Raises:
        ClocksRefusedError, CannotRunError, DeviceError: as :func:`~wastenot.sweeping.point.measure_point`; also where time
            or energy comes to nothing or less, beyond its error.
    """
    options = options or PointOptions()
    if before.name == task.name:
        alone = measure_point(device, task, setting, options)
        return InContext(alone, alone)
    loops = (before, loop_of(before, task), task)
    device.clocks.request(setting)
    with device.launcher.start(loops[1]) as run:
        pass_time(device, options.warm_up_s, run.feed)
    short = replace(options, warm_up_s=min(options.warm_up_s, SETTLES_S), window_s=options.window_s / LEAST_TURNS)
    turns: list[list[Measurement]] = []
    while True:
        forwards = len(turns) % 2 == 0
        taken = [measure_point(device, loop, setting, short) for loop in (loops if forwards else loops[::-1])]
        turns.append(taken if forwards else taken[::-1])
        reason = _why_stop(turns)
        if reason:
            return _conclude(turns, task, before, reason)


def _why_stop(turns: Sequence[Sequence[Measurement]]) -> str:
    if len(turns) < LEAST_TURNS:
        return ""
    within = _over(turns, lambda one: one.energy_j, lambda one: one.energy_se_j)
    if within.error <= _ENOUGH * within.alone:
        return f"{len(turns)} turns: error reached"
    told = within.error <= _TOLD * within.alone
    in_reach = within.error * math.sqrt(len(turns) / _LONGEST_TURNS) <= _TOLD * within.alone
    most = _LONGEST_TURNS if in_reach and not told else MOST_TURNS
    return f"{len(turns)} turns" if len(turns) >= most else ""


@dataclass(frozen=True, slots=True)
class _Combined:
    """Means over turns, with standard errors."""

    alone: float
    alone_error: float
    value: float
    error: float


def _over(
    turns: Sequence[Sequence[Measurement]], value: Callable[[Measurement], float], error: Callable[[Measurement], float]
) -> _Combined:
    """Alone and in context from (before, loop, task) of each turn."""
    # The same loop differs a little from run to run, about equally for all three: their scatter is taken together, since
    # that of three or four turns of one alone says little. The turns' own errors are a lower bound.
    each: FloatArray = np.array([[value(one) for one in turn] for turn in turns])
    stated: FloatArray = np.array([[error(one) for one in turn] for turn in turns])
    number, mean = len(turns), each.mean(axis=0)
    scatter = math.sqrt(float(((each / mean - 1.0) ** 2).sum()) / (3 * (number - 1)))
    errors = np.maximum(mean * scatter / math.sqrt(number), np.sqrt((stated**2).sum(axis=0)) / number)
    return _Combined(
        float(mean[2]), float(errors[2]), 0.5 * float(mean[1] + mean[2] - mean[0]), 0.5 * float(np.sqrt((errors**2).sum()))
    )


def _conclude(turns: Sequence[Sequence[Measurement]], task: Task, before: Task, reason: str) -> InContext:
    time = _over(turns, lambda one: one.time_s, lambda one: one.time_se_s)
    energy = _over(turns, lambda one: one.energy_j, lambda one: one.energy_se_j)
    alone = _summary([turn[2] for turn in turns], task.name, reason)
    within = _summary([turn[1] for turn in turns], task.name, reason)
    after = f"after '{before.name}'"
    if energy.error > _TOLD * energy.alone:
        after += ", but the difference is lost in noise: time and energy are those of the kernel alone"
        time, energy = replace(time, value=time.alone), replace(energy, value=energy.alone)
    for what, found, unit in (("energy", energy, "J"), ("time", time, "s")):
        if found.value <= 0.0:
            raise DeviceError(
                f"'{task.name}' {after} at {within.setting}: its {what} in context, a difference, comes to "
                f"{found.value:.2g} ± {found.error:.2g} {unit} in {reason}; "
                "measure for longer with `window_s`, or alone without `in_context`"
            )
    return InContext(
        replace(alone, time_s=time.alone, time_se_s=time.alone_error, energy_j=energy.alone, energy_se_j=energy.alone_error),
        replace(
            within,
            time_s=time.value,
            time_se_s=time.error,
            energy_j=energy.value,
            energy_se_j=energy.error,
            how="; ".join(part for part in (after, within.how) if part),
        ),
    )


def _summary(taken: Sequence[Measurement], name: str, reason: str) -> Measurement:
    """What was in effect over several measurements of one loop."""
    return replace(
        taken[len(taken) // 2],
        kernel=name,
        calls=sum(one.calls for one in taken),
        temperature_c=average_of_known(fmean, [one.temperature_c for one in taken]),
        window_s=sum(one.window_s for one in taken),
        throttled_share=average_of_known(fmean, [one.throttled_share for one in taken]),
        memory_power_w=average_of_known(fmean, [one.memory_power_w for one in taken]),
        stopped=reason,
        flags=tuple(dict.fromkeys(flag for one in taken for flag in one.flags)),
    )
