"""Which clocks a GPU has, and which of those requested take effect, learnt from a sweep."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.devices.simulated.preset import ClockTable, Moved
from wastenot.kernels.calibration.points import merge_memory_clocks
from wastenot.study.sweep import Sweep

_OTHER_STATE = 0.05  # an effective memory clock this far (relative) from the one requested is another state


@dataclass(frozen=True, slots=True)
class ClockMapping:
    """The clocks in effect for each pair requested.

    Attributes:
        boost_mhz: the highest core clock that was in effect.
        moved: pairs that do not take effect as requested.
    """

    boost_mhz: float
    moved: tuple[Moved, ...]

    def in_effect(self, core_mhz: float, memory_mhz: float) -> tuple[float, float]:
        """The pair in effect for a requested one, where no power or thermal limit applies."""
        for pair in self.moved:
            if memory_mhz == pair.memory_mhz and core_mhz > pair.core_above_mhz:
                memory_mhz = pair.to_memory_mhz
                break
        return min(core_mhz, self.boost_mhz), memory_mhz


def learn_clock_mapping(sweep: Sweep) -> ClockMapping:
    """Learn the mapping from a sweep; where it recorded no effective clocks, requests count as in effect."""
    core = np.where(np.isnan(sweep.effective_core_mhz), sweep.core_mhz, sweep.effective_core_mhz)
    requested = np.isfinite(sweep.core_mhz) & np.isfinite(sweep.memory_mhz)
    recorded = requested & np.isfinite(sweep.effective_memory_mhz)
    moved = []
    for state in np.unique(sweep.memory_mhz[recorded]):
        here = recorded & (sweep.memory_mhz == state)
        elsewhere = here & (np.abs(sweep.effective_memory_mhz / state - 1.0) > _OTHER_STATE)
        if elsewhere.any():
            reached = sweep.core_mhz[here & ~elsewhere]
            lowest = float(sweep.core_mhz[here].min())
            above = float(reached.max()) if len(reached) else lowest / 2.0
            to = _nearest(float(np.median(sweep.effective_memory_mhz[elsewhere])), sweep.memory_mhz[requested])
            moved.append(Moved(memory_mhz=float(state), core_above_mhz=above, to_memory_mhz=to))
    return ClockMapping(float(np.nanmax(core)), tuple(moved))


def clock_table(sweep: Sweep) -> ClockTable:
    """The requested clocks as a table (nothing is known about others); its step divides every gap between core clocks."""
    requested = np.isfinite(sweep.core_mhz) & np.isfinite(sweep.memory_mhz)
    core = np.unique(sweep.core_mhz[requested])
    gaps = [round(float(gap) * 1000) for gap in np.diff(core)]
    step = reduce(math.gcd, gaps) / 1000 if gaps else 1.0
    mapping = learn_clock_mapping(sweep)
    nearest = float(core[0] + round((mapping.boost_mhz - core[0]) / step) * step)  # readings deviate slightly
    boost = nearest if abs(nearest - mapping.boost_mhz) < 0.02 * nearest else mapping.boost_mhz
    states = np.unique(merge_memory_clocks(sweep.memory_mhz[requested]))
    return ClockTable(
        memory_mhz=tuple(states.tolist()),
        core_from_mhz=float(core[0]),
        core_to_mhz=float(core[-1]),
        core_step_mhz=step,
        boost_mhz=boost,
        moved=mapping.moved,
    )


def _nearest(clock_mhz: float, known_mhz: FloatArray) -> float:
    states = np.unique(known_mhz)
    return float(states[np.abs(states - clock_mhz).argmin()])
