"""What two plans do differently."""

from __future__ import annotations

from dataclasses import dataclass, field

from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.planning.plan import Assignment, Plan


@dataclass(frozen=True, slots=True)
class KernelDifference:
    """One kernel at the settings of two plans; ``None`` where a plan does not have the kernel.

    Attributes:
        time_s: change of its time in an iteration, second less first.
        energy_j: change of its energy.
    """

    kernel: str
    first: Setting | None
    second: Setting | None
    time_s: float | None
    energy_j: float | None


@dataclass(frozen=True, slots=True)
class PlanDifference:
    """Two plans side by side.

    Attributes:
        kernels: those whose settings differ, in order of execution.
        same: how many kernels have the same setting in both.
        time_s: predicted time of the second less that of the first, one iteration.
        energy_j: predicted energy of the second less that of the first.
    """

    kernels: tuple[KernelDifference, ...] = field(repr=False)
    same: int
    time_s: float
    energy_j: float


def difference(first: Plan, second: Plan) -> PlanDifference:
    """Compare two plans kernel by kernel.

    Raises:
        BadInputError: the plans have no kernel in common.
    """
    ours = {row.kernel: row for row in first.assignments}
    theirs = {row.kernel: row for row in second.assignments}
    if not ours.keys() & theirs.keys():
        raise BadInputError(
            f"the plans are for different workloads ('{first.workload}' and '{second.workload}'): they "
            "have no kernel in common"
        )
    rows = [_kernel(name, ours.get(name), theirs.get(name)) for name in (ours | theirs)]
    different = tuple(row for row in rows if row.first != row.second)
    return PlanDifference(
        different,
        len(rows) - len(different),
        second.predicted.time_s - first.predicted.time_s,
        second.predicted.energy_j - first.predicted.energy_j,
    )


def _kernel(name: str, first: Assignment | None, second: Assignment | None) -> KernelDifference:
    if first is None or second is None:
        return KernelDifference(name, first.setting if first else None, second.setting if second else None, None, None)
    return KernelDifference(
        name,
        first.setting,
        second.setting,
        second.count * second.time_s - first.count * first.time_s,
        second.count * second.energy_j - first.count * first.energy_j,
    )
