"""Settings and auto measured interleaved, so that drift affects both alike; what the paper's Validation does (§6)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.core.progress import Progress, Silent
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.protocol import Device
from wastenot.meters.tasks import WorkloadTasks
from wastenot.sweeping.estimate import COLD_S, WARM_S, Estimate, Span, finished_estimate, point_s
from wastenot.sweeping.point import PointOptions, hottest_first, warm_up
from wastenot.sweeping.states import check_state, measurer, tasks_before

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A change with its confidence interval, and the range of all pairs of a run of the plan and a run at auto.

    Attributes:
        mean: of the change.
        low, high: confidence interval at :data:`LEVEL`, by Student's t over the independent repeats.
        least_pair, greatest_pair: extremes over the plan-to-auto pairs (Fig. 7's error bars).
    """

    mean: float
    low: float
    high: float
    least_pair: float
    greatest_pair: float


@dataclass(frozen=True, slots=True, eq=False)
class InterleavedRuns:
    """Totals of an iteration, run by run.

    Attributes:
        plan_time_s, plan_energy_j: at the settings; shape (repeats,).
        auto_time_s, auto_energy_j: at the default clocks; same shape.
    """

    plan_time_s: FloatArray
    plan_energy_j: FloatArray
    auto_time_s: FloatArray
    auto_energy_j: FloatArray

    @property
    def time_change(self) -> Interval:
        """Of the time of an iteration."""
        return _interval(self.plan_time_s, self.auto_time_s)

    @property
    def energy_change(self) -> Interval:
        """Of the energy of an iteration."""
        return _interval(self.plan_energy_j, self.auto_energy_j)


def compare_with_auto(
    device: Device,
    units: WorkloadTasks,
    settings: Mapping[str, Setting],
    *,
    repeats: int,
    options: PointOptions | None = None,
    progress: Progress | None = None,
) -> InterleavedRuns:
    """Measure every kernel, in the workload's state, at its setting and then at auto or the reverse, several times.

    The clocks return to the driver however it ends.

    Args:
        device: to measure on.
        units: what to measure, and in which state.
        settings: of each kernel by name.
        repeats: how often, at least 2.
        options: how to measure.
        progress: is stepped for every measurement; the caller begins it.

    Raises:
        BadInputError: fewer than 2 repeats.
        DeviceError: the device does not measure.
    """
    check_repeats(repeats)
    progress, options = progress or Silent(), options or PointOptions()
    totals = np.zeros((4, repeats))
    check_state(device, units)
    measure_at = measurer(device, units, options)
    try:
        for repeat in range(repeats):
            warm_up(device, units.tasks)
            for index in hottest_first(units.tasks):
                kernel, task = units.kernels[index], units.tasks[index]
                # The order alternates, so that a trend favours neither.
                for at_auto in (repeat % 2 == 0, repeat % 2 == 1):
                    measured = measure_at(index, AUTO if at_auto else settings[kernel.name])
                    progress.step(f"{task.name} at {measured.setting}")
                    row = 2 if at_auto else 0
                    totals[row, repeat] += kernel.count * measured.time_s
                    totals[row + 1, repeat] += kernel.count * measured.energy_j
    finally:
        device.clocks.release()
    return InterleavedRuns(*totals)


def check_repeats(repeats: int) -> None:
    """Refuse so few repeats that nothing could be said about their error.

    Raises:
        BadInputError: fewer than 2.
    """
    if repeats < 2:
        raise BadInputError(f"`repeats` {repeats}: must be at least 2 to estimate the error")


def estimate_interleaved(
    device: Device, units: WorkloadTasks, *, repeats: int, options: PointOptions | None = None
) -> Estimate:
    """How many measurements :func:`compare_with_auto` makes, and how long they take.

    Args:
        device: to measure on; it is neither set nor run.
        units: what to measure, and in which state.
        repeats: how often.
        options: how to measure.

    Raises:
        BadInputError: fewer than 2 repeats.
    """
    check_repeats(repeats)
    options = options or PointOptions()
    points = 2 * repeats * len(units.tasks)
    span = Span.of(COLD_S + WARM_S * (repeats - 1))
    before = tasks_before(units) if units.state == "context" else units.tasks
    for task, previous in zip(units.tasks, before, strict=True):
        span = span.plus(point_s(units, options, follows_another=previous.name != task.name), 2 * repeats)
    return finished_estimate(device, units, "again", 1, points, 0, span, options)


def _interval(plan: FloatArray, auto: FloatArray) -> Interval:
    """The n² pairs share runs and are not independent: the interval comes from the n runs of each kind."""
    repeats = len(plan)
    ratio = float(plan.mean() / auto.mean())
    relative = [float(np.var(runs, ddof=1)) / repeats / float(runs.mean()) ** 2 for runs in (plan, auto)]
    error = ratio * math.sqrt(sum(relative))
    half = float(stdtrit(2 * (repeats - 1), 0.5 + LEVEL / 2)) * error
    pairs = plan[:, None] / auto[None, :] - 1
    return Interval(ratio - 1, ratio - 1 - half, ratio - 1 + half, float(pairs.min()), float(pairs.max()))
