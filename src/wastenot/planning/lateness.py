"""What late switches cost: until one has taken effect, kernels run at the setting before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from wastenot.arrays import IndexArray
from wastenot.planning.costs import Costs
from wastenot.planning.dwell import unit_settings
from wastenot.planning.switching import SwitchTime
from wastenot.setting import Setting
from wastenot.workloads.order import changes

if TYPE_CHECKING:
    from wastenot.planning.plan import Assignment


@dataclass(frozen=True, slots=True)
class Lateness:
    """What late switches add to an iteration, as fractions of the baseline's time and energy."""

    time_change: float
    energy_change: float


def lateness(costs: Costs, assignments: Sequence[Assignment], switching: SwitchTime) -> Lateness:
    """What late switches add to a plan's iteration, about.

    For as long as a switch takes, the unit that follows runs at the setting before, or at the nearest that it was measured
    at. What it does in that time would have taken T/T' as long at its own setting, where T and T' are its times at the two.
    Stays must last longer than switches.

    Args:
        costs: of the kernels, as measured.
        assignments: of the plan.
        switching: the device's switching time.
    """
    settings, members = unit_settings(assignments), defaultdict(list)
    for index, row in enumerate(assignments):
        members[row.unit].append(index)
    time_s = energy_j = 0.0
    for (before, after), times in changes(assignments).items():
        if settings[before] == settings[after]:
            continue
        kernels = np.array(members[assignments[after].unit])
        rows = _nearest_rows(costs, kernels, settings[before])
        count = costs.count[kernels]
        own_s, own_j = np.array([(assignments[each].time_s, assignments[each].energy_j) for each in kernels]).T
        late_s, late_j = float(count @ costs.time_s[rows]), float(count @ costs.energy_j[rows])
        of_memory = settings[before].memory_mhz != settings[after].memory_mhz
        switch_s = max(switching.core_s, switching.memory_s) if of_memory else switching.core_s
        time_s += times * switch_s * (1.0 - float(count @ own_s) / late_s)
        energy_j += times * switch_s * (late_j - float(count @ own_j)) / late_s
    auto = costs.start[:-1]
    return Lateness(time_s / float(costs.count @ costs.time_s[auto]), energy_j / float(costs.count @ costs.energy_j[auto]))


def _nearest_rows(costs: Costs, kernels: IndexArray, setting: Setting) -> IndexArray:
    """The row of each kernel at a setting, or at the nearest that was measured, by logarithms of clocks."""
    parts = setting.core_mhz, setting.memory_mhz, setting.power_limit_w
    rows = []
    for kernel in kernels.tolist():
        span = slice(costs.start[kernel], costs.start[kernel + 1])
        distance = np.zeros(span.stop - span.start)
        for part, column in zip(parts, (costs.core_mhz, costs.memory_mhz, costs.power_limit_w), strict=True):
            have = column[span]
            if part is not None or not np.isnan(have).all():
                highest = np.nanmax(np.append(have, part or np.nan))  # which auto is about
                distance += np.log(np.nan_to_num(have, nan=highest) / (part or highest)) ** 2
                distance += 1e-9 * (np.isnan(have) != (part is None))
        rows.append(span.start + int(distance.argmin()))
    return np.array(rows)
