"""Plans measured, interleaved with auto, so that drift affects both alike: where they were made, and elsewhere.

The first is what the kernel-level DVFS paper calls validation (§6), the second is its §§7 and 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from wastenot.core.arrays import FloatArray
from wastenot.core.errors import BadInputError
from wastenot.core.files import PathLike
from wastenot.core.origin import Origin
from wastenot.core.progress import Progress, Silent
from wastenot.core.setting import AUTO, Setting
from wastenot.devices.open import device_of_study, open_device
from wastenot.devices.protocol import Device
from wastenot.meters.tasks import WorkloadTasks, tasks_in_study
from wastenot.planning.plan import Measured, Plan, Validation
from wastenot.planning.plan_file import read_plan
from wastenot.study.catalog import UNKNOWN_DEVICE
from wastenot.study.store import Study, open_study
from wastenot.sweeping.estimate import COLD_S, WARM_S, Announce, Estimate, Span, finished_estimate, point_s
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


def validate(
    plan: PathLike | Plan,
    study: PathLike | Study | WorkloadTasks,
    device: str | Device | None = None,
    *,
    workload: str | None = None,
    repeats: int = 10,
    options: PointOptions | None = None,
    announce: Announce | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Measure a plan, interleaved with the default clocks.

        >>> import wastenot as wn
        >>> plan = wn.validate(wn.plan("my.db", max_slowdown=0.02), "my.db", repeats=2)
        >>> plan.validation.energy_change.mean < 0
        True

    Args:
        plan: the plan or its file.
        study: the study that the plan was made from, its file or URL; or what the plan's kernels run.
        device: the device that the study was measured on, or its name; by default the one named in the study. A
            simulated device of that name has different noise from the sweep's, for an honest test.
        workload: its name in the study; by default the plan's.
        repeats: measurements of the plan and of the default clocks, at least 2.
        options: warm-up, window and precision of each point.
        announce: receives how many measurements there are and how long they take, before they begin.
        progress: receives each measurement.

    Returns:
        The plan with its validation; one that it had before is replaced.

    Raises:
        BadInputError: the plan was made for another device or for other kernels, or fewer than 2 repeats.
        DeviceError: the device does not measure.
        StudyError: the study cannot be read.
    """
    made, named = read_plan(plan), device
    if isinstance(study, WorkloadTasks):
        units, named = study, named or device_of_study("the plan", made.device)
    else:
        source = open_study(study)
        held = source.read(workload or made.workload, made.state, made.measured_granularity)
        units, named = tasks_in_study(source, held), named or device_of_study(str(source), held.device)
    if isinstance(named, str):
        named = open_device(named, seed=1, workload=units.name, granularity=units.granularity)
    label = named.identity.label
    if made.device not in (label, UNKNOWN_DEVICE):  # whoever knows better names the device
        raise BadInputError(
            f"the plan was made on '{made.device}', not on '{label}'; give that device, make a new plan, or, if they are "
            f"the same and the sweep was imported, import it again with `device_name` '{label}'"
        )
    names = [kernel.name for kernel in units.kernels]
    if names != [row.kernel for row in made.assignments]:
        raise BadInputError(f"the plan (workload '{made.workload}') has different kernels from '{units.name}'")
    check_repeats(repeats)
    progress = progress or Silent()
    settings = {row.kernel: row.setting for row in made.assignments}
    with named.clocks.claimed():
        if announce is not None:
            announce(estimate_interleaved(named, units, repeats=repeats, options=options))
        progress.begin(2 * repeats * len(names))
        runs = compare_with_auto(named, units, settings, repeats=repeats, options=options, progress=progress)
    validation = Validation(
        device=label,
        repeats=repeats,
        level=LEVEL,
        pairs=repeats**2,
        time_s=tuple(runs.plan_time_s.tolist()),
        energy_j=tuple(runs.plan_energy_j.tolist()),
        baseline_time_s=tuple(runs.auto_time_s.tolist()),
        baseline_energy_j=tuple(runs.auto_energy_j.tolist()),
        time_change=_measured(runs.time_change),
        energy_change=_measured(runs.energy_change),
    )
    return made.model_copy(update={"validation": validation}).sealed()


def _measured(change: Interval) -> Measured:
    return Measured(mean=change.mean, interval=(change.low, change.high), least=change.least_pair, most=change.greatest_pair)


@dataclass(frozen=True, slots=True)
class TransferRow:
    """The plan's clocks under one way of running the model.

    Attributes:
        workload: that was measured.
        time_change, energy_change: of an iteration, against auto.
        auto_time_s, auto_energy_j: means of an iteration at auto.
    """

    workload: str
    time_change: Interval
    energy_change: Interval
    auto_time_s: float
    auto_energy_j: float


@dataclass(frozen=True, slots=True)
class Transfer:
    """A plan measured under several ways of running the model.

    Attributes:
        planned: workload that the plan was made for.
        device: that measured.
        origin: of the numbers.
        repeats: of each.
        rows: in the order asked for.
    """

    planned: str
    device: str
    origin: Origin
    repeats: int
    rows: tuple[TransferRow, ...]


def transfer(
    device: Device,
    plan: Plan,
    targets: Sequence[WorkloadTasks],
    *,
    repeats: int = 10,
    options: PointOptions | None = None,
    announce: Callable[[Sequence[Estimate]], None] | None = None,
    progress: Progress | None = None,
) -> Transfer:
    """Measure a plan's clocks, interleaved with auto, on other workloads that are made of the same kernels.

    Args:
        device: to measure on.
        plan: whose clocks to take, kernel by kernel.
        targets: workloads to measure.
        repeats: of each, at least 2.
        options: how to measure.
        announce: receives for each target how many measurements there are and how long they take, before they begin.
        progress: is shown each measurement.

    Raises:
        BadInputError: a target has a kernel that the plan does not know.
        DeviceError: the device does not measure.
    """
    settings = {row.kernel: row.setting for row in plan.assignments}
    for units in targets:
        unknown = [kernel.name for kernel in units.kernels if kernel.name not in settings]
        if unknown:
            raise BadInputError(
                f"the plan (workload '{plan.workload}') has no clocks for kernel '{unknown[0]}' of '{units.name}'; "
                "plan a workload of the same model and options"
            )
    check_repeats(repeats)
    if announce is not None:
        announce([estimate_interleaved(device, units, repeats=repeats, options=options) for units in targets])
    progress = progress or Silent()
    progress.begin(sum(2 * repeats * len(units.kernels) for units in targets))
    rows = []
    for units in targets:
        runs = compare_with_auto(device, units, settings, repeats=repeats, options=options, progress=progress)
        auto_s, auto_j = float(runs.auto_time_s.mean()), float(runs.auto_energy_j.mean())
        rows.append(TransferRow(units.name, runs.time_change, runs.energy_change, auto_s, auto_j))
    return Transfer(plan.workload, device.identity.label, device.identity.origin, repeats, tuple(rows))
