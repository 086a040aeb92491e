"""The lines of a plan: the setting of each kernel, and what it costs there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wastenot.arrays import IndexArray
from wastenot.planning.costs import Costs
from wastenot.planning.plan import Assignment
from wastenot.planning.units import Unit


def assignments(costs: Costs, units: Sequence[Unit], rows: IndexArray) -> Iterator[Assignment]:
    """One line for each kernel, in order of execution.

    Args:
        costs: of the kernels.
        units: that they belong to.
        rows: chosen row of each kernel.
    """
    unit_of = {int(kernel): unit.name for unit in units for kernel in unit.kernels}
    for index, (kernel, row) in enumerate(zip(costs.kernels, rows.tolist(), strict=True)):
        base, setting = int(costs.start[index]), costs.setting(row)
        time_s, energy_j = float(costs.time_s[row]), float(costs.energy_j[row])
        yield Assignment(
            kernel=kernel.name,
            pass_name=kernel.pass_name,
            block=kernel.block,
            unit=unit_of[index],
            count=kernel.count,
            core_mhz=setting.core_mhz,
            memory_mhz=setting.memory_mhz,
            power_limit_w=setting.power_limit_w,
            time_s=time_s,
            energy_j=energy_j,
            time_change=time_s / float(costs.time_s[base]) - 1,
            energy_change=energy_j / float(costs.energy_j[base]) - 1,
        )
