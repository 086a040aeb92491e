"""One setting for whole iterations, and faster ones to step to, as a schedule: what a search on a running job comes to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from wastenot.control.marker import ITERATION
from wastenot.core.setting import AUTO, Setting
from wastenot.planning.schedule import MarkerTime, Rung, Schedule, Segment
from wastenot.planning.switching import SwitchTime


@dataclass(frozen=True, slots=True)
class Change:
    """What a setting does to an iteration: logarithms of its time and energy over those at the default clocks."""

    setting: Setting
    time: float
    energy: float


def one_setting(
    switching: SwitchTime,
    max_slowdown: float,
    changes: Sequence[Change],
    time_s: float,
    energy_j: float,
    regret: float = 0.0,
) -> Schedule:
    """A schedule of one setting at a time.

    Args:
        switching: of the device.
        max_slowdown: to keep.
        changes: the setting, and faster ones; the default clocks come after them.
        time_s: of an iteration at the default clocks.
        energy_j: likewise.
        regret: logarithm by which another setting might use less energy than the first.
    """
    rungs = tuple(_rung(change, time_s, energy_j) for change in (*changes, Change(AUTO, 0.0, 0.0)))
    bound_j = rungs[0].energy_j * math.exp(-regret)
    return Schedule(
        switching=switching,
        min_dwell_s=0.0,
        max_slowdown=max_slowdown,
        markers=(MarkerTime(name=ITERATION, after_s=0.0),),
        rungs=rungs,
        lower_bound_j=bound_j,
        gap=1.0 - bound_j / rungs[0].energy_j,
    )


def _rung(change: Change, time_s: float, energy_j: float) -> Rung:
    own_s, own_j = time_s * math.exp(change.time), energy_j * math.exp(change.energy)
    segment = Segment(
        begins=ITERATION,
        offset_s=0.0,
        **asdict(change.setting),
        early_s=0.0,
        time_s=own_s,
        energy_j=own_j,
    )
    return Rung(
        segments=(segment,),
        time_s=own_s,
        energy_j=own_j,
        time_change=math.expm1(change.time),
        energy_change=math.expm1(change.energy),
    )
