"""A plan measured again, interleaved with auto (paper, §6, Validation): what it gives, beside what was predicted."""

from __future__ import annotations

from wastenot.core.errors import BadInputError
from wastenot.core.progress import Progress, Silent
from wastenot.devices.protocol import Device
from wastenot.kernels.run.interleaved import LEVEL, Interval, check_repeats, compare_with_auto, estimate_interleaved
from wastenot.meters.tasks import WorkloadTasks
from wastenot.planning.plan import Measured, Plan, Validation
from wastenot.study.catalog import UNKNOWN_DEVICE
from wastenot.sweeping.estimate import Announce
from wastenot.sweeping.point import PointOptions


def validate(
    device: Device,
    plan: Plan,
    units: WorkloadTasks,
    *,
    repeats: int = 10,
    options: PointOptions | None = None,
    announce: Announce | None = None,
    progress: Progress | None = None,
) -> Plan:
    """Measure every kernel at the plan's setting and at auto, interleaved, several times.

    Args:
        device: that the plan was made for.
        plan: to validate.
        units: what its kernels run.
        repeats: of each, at least 2.
        options: how to measure.
        announce: receives how many measurements there are and how long they take, before they begin.
        progress: is shown each measurement.

    Returns:
        The plan with its validation; one that it had before is replaced.

    Raises:
        BadInputError: the plan is for another device or other kernels, or fewer than 2 repeats.
        DeviceError: the device does not measure.
    """
    label = device.identity.label
    if plan.device not in (label, UNKNOWN_DEVICE):  # whoever knows better names the device
        raise BadInputError(
            f"the plan was made on '{plan.device}', not on '{label}'; name that device, plan anew, or, if they are the same "
            f"and the sweep was imported, import it again with `device_name` '{label}'"
        )
    names = [kernel.name for kernel in units.kernels]
    if names != [row.kernel for row in plan.assignments]:
        raise BadInputError(f"the plan (workload '{plan.workload}') has other kernels than '{units.name}'")
    check_repeats(repeats)
    if announce is not None:
        announce(estimate_interleaved(device, units, repeats=repeats, options=options))
    progress = progress or Silent()
    progress.begin(2 * repeats * len(names))
    settings = {row.kernel: row.setting for row in plan.assignments}
    runs = compare_with_auto(device, units, settings, repeats=repeats, options=options, progress=progress)
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
    return plan.model_copy(update={"validation": validation}).sealed()


def _measured(change: Interval) -> Measured:
    return Measured(mean=change.mean, interval=(change.low, change.high), least=change.least_pair, most=change.greatest_pair)
