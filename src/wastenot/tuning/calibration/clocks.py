"""Which clocks a GPU has and which arrive as asked, from the clocks requested and in effect in a sweep of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np

from wastenot.devices.simulated.preset import ClockTable, Moved
from wastenot.study.sweep import Sweep
from wastenot.tuning.calibration.measured_points import Array, settled_memory_mhz

_MOVED = 0.05  # a memory clock in effect this far from the one asked for is another one


@dataclass(frozen=True, slots=True)
class Arrival:
    """What becomes of clocks that are asked for.

    Attributes:
        boost_mhz: the highest core clock that was in effect.
        moved: pairs that do not arrive as asked.
    """

    boost_mhz: float
    moved: tuple[Moved, ...]

    def in_effect(self, core_mhz: float, memory_mhz: float) -> tuple[float, float]:
        """The pair that a requested pair becomes, where no power or thermal limit steps in."""
        for pair in self.moved:
            if memory_mhz == pair.memory_mhz and core_mhz > pair.core_above_mhz:
                memory_mhz = pair.to_memory_mhz
                break
        return min(core_mhz, self.boost_mhz), memory_mhz


def learn_arrival(sweep: Sweep) -> Arrival:
    """What a sweep shows of clocks that do not arrive as asked; where it recorded no clocks in effect, all arrive."""
    core = np.where(np.isnan(sweep.effective_core_mhz), sweep.core_mhz, sweep.effective_core_mhz)
    asked = np.isfinite(sweep.core_mhz) & np.isfinite(sweep.memory_mhz)
    told = asked & np.isfinite(sweep.effective_memory_mhz)
    moved = []
    for state in np.unique(sweep.memory_mhz[told]):
        here = told & (sweep.memory_mhz == state)
        away = here & (np.abs(sweep.effective_memory_mhz / state - 1.0) > _MOVED)
        if away.any():
            arrived = sweep.core_mhz[here & ~away]
            lowest = float(sweep.core_mhz[here].min())
            below = float(arrived.max()) if len(arrived) else lowest / 2.0
            to = _nearest(float(np.median(sweep.effective_memory_mhz[away])), sweep.memory_mhz[asked])
            moved.append(Moved(memory_mhz=float(state), core_above_mhz=below, to_memory_mhz=to))
    return Arrival(float(np.nanmax(core)), tuple(moved))


def clock_table(sweep: Sweep) -> ClockTable:
    """The clocks that were asked for, as a table: nothing is known of others. Steps are those between core clocks."""
    asked = np.isfinite(sweep.core_mhz) & np.isfinite(sweep.memory_mhz)
    core = np.unique(sweep.core_mhz[asked])
    whole = [round(float(gap) * 1000) for gap in np.diff(core)]
    step = reduce(math.gcd, whole) / 1000 if whole else 1.0
    arrival = learn_arrival(sweep)
    nearest = float(core[0] + round((arrival.boost_mhz - core[0]) / step) * step)  # a reading is a hair off
    boost = nearest if abs(nearest - arrival.boost_mhz) < 0.02 * nearest else arrival.boost_mhz
    states = np.unique(settled_memory_mhz(sweep.memory_mhz[asked]))
    return ClockTable(
        memory_mhz=tuple(states.tolist()),
        core_from_mhz=float(core[0]),
        core_to_mhz=float(core[-1]),
        core_step_mhz=step,
        boost_mhz=boost,
        moved=arrival.moved,
    )


def _nearest(clock_mhz: float, known_mhz: Array) -> float:
    states = np.unique(known_mhz)
    return float(states[np.abs(states - clock_mhz).argmin()])
