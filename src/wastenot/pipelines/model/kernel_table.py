"""Time and energy of each kernel at each setting, as a table: what instructions of stages are added up from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO, Setting
from wastenot.planning.costs import Costs
from wastenot.planning.planner import Planner
from wastenot.study.sweep import Kernel


@dataclass(frozen=True, slots=True, eq=False)
class KernelTable:
    """What one call of each kernel takes at each setting.

    Attributes:
        kernels: in order of execution.
        settings: auto first. A memory clock that is in effect by default too counts as auto.
        rows: of the planner's costs that the numbers are of, -1 where there is none; shape (settings, kernels).
        time_s: infinite where it was not measured; shape (settings, kernels).
        energy_j: likewise.
    """

    kernels: tuple[Kernel, ...]
    settings: tuple[Setting, ...]
    rows: IndexArray
    time_s: FloatArray
    energy_j: FloatArray

    @classmethod
    def of(cls, planner: Planner, *, corrected: bool) -> Self:
        """The table of a planner's sweep.

        Args:
            planner: of a sweep of kernels.
            corrected: take the numbers corrected for noise, not those measured.
        """
        costs = planner.believed.costs if corrected else planner.costs
        settings, rows = _settings(costs, planner.sweep.default_memory_mhz())
        known = rows >= 0
        time_s, energy_j = (np.where(known, column[rows], np.inf) for column in (costs.time_s, costs.energy_j))
        return cls(costs.kernels, settings, rows, time_s, energy_j)

    def only(self, wanted: list[bool]) -> Self:
        """The table at some of its settings."""
        kept = np.array(wanted)
        settings = tuple(each for each, keep in zip(self.settings, wanted, strict=True) if keep)
        return replace(self, settings=settings, rows=self.rows[kept], time_s=self.time_s[kept], energy_j=self.energy_j[kept])


def _settings(costs: Costs, memory_mhz: float | None) -> tuple[tuple[Setting, ...], IndexArray]:
    """The settings, auto first, and the row of each kernel at each."""
    place: dict[Setting, int] = {AUTO: 0}
    found: dict[tuple[int, int], int] = {}
    for row, kernel in enumerate(costs.kernel.tolist()):
        setting = costs.setting(row)
        if setting.core_mhz is not None and setting.memory_mhz == memory_mhz:
            setting = replace(setting, memory_mhz=None)
        found.setdefault((place.setdefault(setting, len(place)), kernel), row)
    rows = np.full((len(place), len(costs.kernels)), -1, dtype=np.intp)
    for (setting_index, kernel), row in found.items():
        rows[setting_index, kernel] = row
    if (rows[0] < 0).any():
        missing = costs.kernels[int(np.flatnonzero(rows[0] < 0)[0])].name
        raise BadInputError(f"kernel '{missing}': was not measured at the default clocks; sweep it with `clocks` auto")
    return tuple(place), rows
