"""Time and energy of a kernel after the kernel that really runs before it (FinGraV, Singhania et al., §V-C, takeaway 4).

A light kernel that comes after a heavy one draws more than by itself, and one that comes between light ones leaves a power
limit more room. What a kernel p and the kernel k after it do to each other shows in the loop [p, k]:

    alone     p p p p p p p p      k k k k k k k k
    loop      p k p k p k p k      E(loop) = E(p) + E(k) + excess

Power that merely moves from one to the other (a sensor's or a regulator's lag) cancels in the loop: the excess is what the
neighbourhood really costs. The loop changes from p to k, as the workload does, and back from k to p, as it does not. So only
half of the excess is k's: each kernel of a workload is in two loops, with the one before it and with the one after it, and
half of either belongs to it; summed over the workload that is half of all loops, each change counted once. The whole excess
(the loop less p alone, the marginal cost of k) would count every change twice. Half is exact where what changes cost does
not depend on their direction, or where the direction's part is the difference of something that each kernel has by itself,
which cancels around the workload. Measured whole iterations tell how far that holds.

All three loops run at the same setting, since clocks do not change from kernel to kernel, in turn, so that heat and drift
meet them alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from wastenot.arrays import FloatArray
from wastenot.devices.protocol import Device, Task
from wastenot.metering.mean_power import pass_time
from wastenot.setting import Setting
from wastenot.sweeping.point import Measurement, Method, measure

LEAST_TURNS = 4
MOST_TURNS = 12
_ENOUGH = 0.01  # standard error, as a share of the kernel's energy, at which no more turns are taken
_SETTLES_S = 0.5  # warm-up of each loop in its turn; the clocks are there already


@dataclass(frozen=True, slots=True)
class InContext:
    """A kernel by itself and after the kernel before it, from the same turns.

    Attributes:
        alone: by itself.
        within: after the other one: half of (loop + alone - the other one alone).
    """

    alone: Measurement
    within: Measurement

    @property
    def excess_j(self) -> float:
        """Energy of the loop above that of both kernels alone."""
        return 2.0 * (self.within.energy_j - self.alone.energy_j)


def loop_of(before: Task, task: Task) -> Task:
    """The two in turn; one call is one call of each."""
    return Task(f"{before.name} > {task.name}", (*before.steps, *task.steps))


def measure_in_context(
    device: Device, task: Task, before: Task, setting: Setting, method: Method | None = None
) -> InContext:
    """Measure one call of a task alone and after another one.

    The other one alone, the loop of both, and the task alone are measured one after another, four times and more where the
    other one is so much heavier that its noise is too large, in turn from either end.

    Args:
        device: to measure on.
        task: to measure.
        before: that runs right before it; the same task where it follows itself, so that alone and in context are one.
        setting: to run both at.
        method: how; its window is divided among the first turns.

    Raises:
        ClocksRefusedError, CannotRunError, DeviceError: as :func:`~wastenot.sweeping.point.measure`.
    """
    method = method or Method()
    if before.name == task.name:
        alone = measure(device, task, setting, method)
        return InContext(alone, alone)
    loops = (before, loop_of(before, task), task)
    device.clocks.request(setting)
    with device.launcher.start(loops[1]) as run:
        pass_time(device, method.warm_up_s, run.feed)
    short = replace(method, warm_up_s=min(method.warm_up_s, _SETTLES_S), window_s=method.window_s / LEAST_TURNS)
    turns: list[list[Measurement]] = []
    while True:
        forwards = len(turns) % 2 == 0
        taken = [measure(device, loop, setting, short) for loop in (loops if forwards else loops[::-1])]
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
    return f"{len(turns)} turns" if len(turns) >= MOST_TURNS else ""


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
    """Alone and in context from (before, loop, task) of each turn.

    The same loop differs a little from run to run, about equally for all three: their scatter is taken together, since that
    of three or four turns of one alone says little. The turns' own errors are a lower bound.
    """
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
    return InContext(
        replace(alone, time_s=time.alone, time_se_s=time.alone_error, energy_j=energy.alone, energy_se_j=energy.alone_error),
        replace(
            within,
            time_s=time.value,
            time_se_s=time.error,
            energy_j=energy.value,
            energy_se_j=energy.error,
            how="; ".join(part for part in (f"after '{before.name}'", within.how) if part),
        ),
    )


def _summary(taken: Sequence[Measurement], name: str, reason: str) -> Measurement:
    """What was in effect over several measurements of one loop."""
    temperatures = [one.temperature_c for one in taken if one.temperature_c is not None]
    throttled = [one.throttled_share for one in taken if one.throttled_share is not None]
    memory_w = [one.memory_power_w for one in taken if one.memory_power_w is not None]
    middle = taken[len(taken) // 2]
    return replace(
        middle,
        task=name,
        calls=sum(one.calls for one in taken),
        temperature_c=fmean(temperatures) if temperatures else None,
        window_s=sum(one.window_s for one in taken),
        throttled_share=fmean(throttled) if throttled else None,
        memory_power_w=fmean(memory_w) if memory_w else None,
        stopped=reason,
        flags=tuple(dict.fromkeys(flag for one in taken for flag in one.flags)),
    )
