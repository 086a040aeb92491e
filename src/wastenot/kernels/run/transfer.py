"""Plans elsewhere: what the clocks found at one batch size or parallel degree give at others (paper, §§7, 8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wastenot.core.errors import BadInputError
from wastenot.core.origin import Origin
from wastenot.core.progress import Progress, Silent
from wastenot.devices.protocol import Device
from wastenot.kernels.run.interleaved import Interval, check_repeats, compare_with_auto, estimate_interleaved
from wastenot.meters.tasks import WorkloadTasks
from wastenot.planning.plan import Plan
from wastenot.sweeping.estimate import Estimate
from wastenot.sweeping.point import PointOptions


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
