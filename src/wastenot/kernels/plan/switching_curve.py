"""What saving is left at each switching time: what users can have, and what vendors could give."""

from __future__ import annotations

from dataclasses import dataclass

from wastenot.core.errors import InfeasibleError
from wastenot.planning.plan import Plan
from wastenot.planning.planner import Planner
from wastenot.planning.scheduling import best_rungs
from wastenot.planning.switching import SwitchTime

SWITCH_TIMES_S = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True, slots=True)
class SwitchingPoint:
    """The schedule at one switching time.

    Attributes:
        switch_s: to change any clock.
        energy_change: of the schedule against the default clocks.
        time_change: likewise.
        switches: in an iteration.
    """

    switch_s: float
    energy_change: float
    time_change: float
    switches: int


@dataclass(frozen=True, slots=True)
class SwitchingCurve:
    """What a plan's objective gives at each switching time.

    Attributes:
        points: by rising switching time, of a device whose switches all take that long and on time.
        own_s: the device's own switching time of core clocks; ``None`` where the plan has no schedule.
        own_energy_change: of the plan's schedule, with the device's own switches.
    """

    points: tuple[SwitchingPoint, ...]
    own_s: float | None
    own_energy_change: float | None


def switching_curve(planner: Planner, plan: Plan) -> SwitchingCurve | None:
    """What saving is left at each switching time; ``None`` where only auto was measured or no schedule is fast enough.

    Args:
        planner: of the plan's sweep.
        plan: whose objective, scope and granularity count.
    """
    if all(len(unit.rows) == 1 for unit in planner.units):
        return None
    switchings = [
        SwitchTime(core_s=seconds, memory_s=seconds, basis="given", source="looked at") for seconds in SWITCH_TIMES_S
    ]
    try:
        rungs = best_rungs(planner.at(plan.granularity), plan.objective.objective, plan.scope, switchings)
    except InfeasibleError:
        return None
    if not plan.objective.saves_time:  # what slower switches can follow, faster ones can as well
        for index in range(len(rungs) - 2, -1, -1):
            rungs[index] = min(rungs[index : index + 2], key=lambda rung: rung.energy_change)
    points = tuple(
        SwitchingPoint(seconds, rung.energy_change, rung.time_change, rung.switches)
        for seconds, rung in zip(SWITCH_TIMES_S, rungs, strict=True)
    )
    if plan.schedule is None:
        return SwitchingCurve(points, None, None)
    return SwitchingCurve(points, plan.schedule.switching.core_s, plan.schedule.rungs[0].energy_change)
