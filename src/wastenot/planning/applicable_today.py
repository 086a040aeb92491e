"""What of a plan can be applied today on its device, whose switches take the time that they take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from wastenot.core.documents import Finite, Part
from wastenot.planning.applicable import NEAR, Applicable, ApplicableRow, alone
from wastenot.planning.headline import Interval

if TYPE_CHECKING:
    from wastenot.planning.plan import Plan
    from wastenot.planning.schedule import Rung


@dataclass(frozen=True, slots=True)
class Today:
    """What of a plan can be applied today, and what that does; changes are against the default clocks, switches included.

    Attributes:
        energy_change: E/E_auto − 1, negative is saved; 0 where nothing is set.
        time_change: likewise.
        energy_change_interval: that holds the true change with 95 %; ``None`` where nothing says how noisy the numbers are.
        time_change_interval: likewise.
        rung: the schedule to follow; ``None`` where there is none, or one setting does as well.
        row: the granularity to apply, where that is not a schedule; ``None`` where there is none.
        whole: whether it is the plan itself, which then loses nothing to slow switches.
    """

    energy_change: float
    time_change: float
    energy_change_interval: Interval | None = None
    time_change_interval: Interval | None = None
    rung: Rung | None = None
    row: ApplicableRow | None = None
    whole: bool = False

    @property
    def sets_something(self) -> bool:
        """Whether there is more to apply than the default clocks."""
        return self.rung is not None or self.row is not None


class StatedToday(Part):
    """What can be applied today as a plan's file states it.

    Attributes:
        by: ``plan``, all of it; its ``schedule``; the plan of a coarser granularity, ``pass`` or ``iteration``; ``nothing``.
        energy_change: as :class:`Today` has it, as are the others.
    """

    by: Literal["plan", "schedule", "pass", "iteration", "nothing"]
    energy_change: Finite
    energy_change_interval: Interval | None
    time_change: Finite
    time_change_interval: Interval | None


def stated_today(plan: Plan) -> StatedToday:
    """What of a plan can be applied today, for its file."""
    today = today_of(plan)
    by: Literal["plan", "schedule", "pass", "iteration", "nothing"] = "nothing"
    if today.whole:
        by = "plan"
    elif today.rung is not None:
        by = "schedule"
    elif today.row is not None:
        by = "iteration" if today.row.setting is not None else "pass"
    return StatedToday(
        by=by,
        energy_change=today.energy_change,
        energy_change_interval=today.energy_change_interval,
        time_change=today.time_change,
        time_change_interval=today.time_change_interval,
    )


def today_of(plan: Plan) -> Today:
    """What of a plan can be applied today: the plan itself, its schedule, or a coarser plan."""
    if all(row.setting.is_auto for row in plan.assignments):
        return Today(0.0, 0.0, whole=True)
    found, rung = applicable_today(plan), scheduled_today(plan)
    row = found.finest
    whole = row is found.rows[0]
    if rung is not None and not whole:
        intervals = rung.energy_change_interval, rung.time_change_interval
        return Today(rung.energy_change, rung.time_change, *intervals, rung=rung)
    if row is None or (not whole and row.setting is not None and row.setting.setting.is_auto):
        return Today(0.0, 0.0)
    stated = plan.headline if whole else row
    assert stated.energy_change is not None and stated.time_change is not None
    late_energy, late_time = row.late_energy_change or 0.0, row.late_time_change or 0.0
    return Today(
        stated.energy_change + late_energy,
        stated.time_change + late_time,
        _moved(stated.energy_change_interval, late_energy),
        _moved(stated.time_change_interval, late_time),
        row=row,
        whole=whole,
    )


def applicable_today(plan: Plan) -> Applicable:
    """What of the plan could be set today; of a plan made without it only whether the plan itself could be."""
    return plan.applicable or alone(plan)


def scheduled_today(plan: Plan) -> Rung | None:
    """The plan's schedule, where it changes settings and does more than one setting for the whole iteration would."""
    if plan.schedule is None:
        return None
    best = plan.schedule.rungs[0]
    if best.switches == 0:
        return None
    one = next((row for row in applicable_today(plan).rows if row.setting is not None), None)
    change = "time_change" if plan.objective.saves_time else "energy_change"
    held = min(0.0, getattr(one, change, None) or 0.0)
    return best if getattr(best, change) < held - NEAR else None


def _moved(interval: Interval | None, by: float) -> Interval | None:
    return None if interval is None else (interval[0] + by, interval[1] + by)
