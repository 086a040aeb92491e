"""What of a plan can be applied today: plans at ever coarser granularity, beside schedules that the device can follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from wastenot.core.documents import Finite, Name, NotNegative, Part, Positive, SparsePart
from wastenot.core.errors import BadInputError, InfeasibleError
from wastenot.core.setting import Setting
from wastenot.core.vendors import commands
from wastenot.planning.dwell import count_switches, unit_settings
from wastenot.planning.headline import Interval
from wastenot.planning.switching import SwitchTime, switch_time
from wastenot.workloads.identity import Granularity
from wastenot.workloads.order import switches

if TYPE_CHECKING:
    from wastenot.planning.plan import Expected, Plan, PredictedTotal
    from wastenot.planning.schedule import Schedule

NEAR = 0.001
"""A plan can be had as it is where its schedule does as well, to less than a run can show."""


class OneSetting(SparsePart):
    """A setting; ``None`` is auto."""

    core_mhz: Positive | None
    memory_mhz: Positive | None
    power_limit_w: Positive | None
    profile: Name | None = None

    @property
    def setting(self) -> Setting:
        """The setting as a value."""
        return Setting(self.core_mhz, self.memory_mhz, self.power_limit_w, self.profile)


class ApplicableRow(SparsePart):
    """The plan of one granularity, and whether it can be had with switches as slow as the device's.

    Attributes:
        energy_change: of the plan, as its headline states it; ``None`` where there is no plan, as are the others.
        time_change: likewise.
        switches_per_iteration: how often clocks change.
        shortest_dwell_s: the shortest stay at a setting; ``None`` where nothing changes.
        switch_time_s: of its slowest switch; ``None`` where nothing changes.
        late_time_change: what slow switches leave of ``time_change``: that of the schedule less the plan's; ``None`` where
            nothing changes, or there is no schedule.
        late_energy_change: likewise.
        fits: whether nothing changes, or a schedule does as well as the plan, and better than one setting for all.
        setting: where nothing changes, the clocks to set, else ``None``.
        commands: that set them, where the device's vendor is known.
        reason: why there is no plan, else ``None``.
        energy_change_interval: as the headline states it, where it does.
        time_change_interval: likewise.
    """

    granularity: Granularity
    energy_change: Finite | None
    time_change: Finite | None
    switches_per_iteration: Annotated[int, Field(ge=0)] | None
    shortest_dwell_s: Positive | None
    switch_time_s: NotNegative | None
    late_time_change: Finite | None
    late_energy_change: Finite | None
    fits: bool
    setting: OneSetting | None
    commands: Annotated[tuple[str, ...], Field(strict=False)]
    reason: str | None
    energy_change_interval: Interval | None = None
    time_change_interval: Interval | None = None


class Applicable(Part):
    """What could be set today: plans of one objective at ever coarser granularity, beside their schedules.

    Attributes:
        switching: the device's switching time.
        stay_per_switch: in files written before plans had schedules, how many times the switching time a stay had to last.
        rows: the plan's own granularity first.
    """

    switching: SwitchTime
    stay_per_switch: Positive | None = None
    rows: Annotated[tuple[ApplicableRow, ...], Field(min_length=1, strict=False)]

    @property
    def finest(self) -> ApplicableRow | None:
        """The finest granularity that fits."""
        return next((row for row in self.rows if row.fits), None)


def alone(plan: Plan) -> Applicable:
    """Whether a plan can be applied by itself, with the switching time known of its device."""
    return find_applicable(plan, None, switch_time(plan.device))


def find_applicable(
    plan: Plan,
    coarser: Callable[[Granularity], Plan] | None,
    switching: SwitchTime,
    memory_mhz: float | None = None,
    scheduled: Callable[[Granularity], Schedule | None] | None = None,
) -> Applicable:
    """What could be set today instead of a plan, or the plan itself.

    Args:
        plan: whose objective to keep.
        coarser: makes the plan of another granularity; ``None`` to look at the plan alone.
        switching: the device's switching time.
        memory_mhz: memory clock in effect by default, where it is known.
        scheduled: makes the schedule of a granularity.
    """
    own = plan.schedule if scheduled is None else scheduled(plan.granularity)
    rows = [_row(plan, switching, memory_mhz, own)]
    for granularity in _coarser(plan):
        if coarser is None:
            break
        if plan.state == "natural":  # whose kernels had clocks of their own
            rows.append(_no_plan(granularity, "all run at one clock: see wastenot kernel natural"))
            continue
        try:
            made = coarser(granularity)
            switched = unit_settings(made.assignments)
            schedule = None if scheduled is None or len(set(switched)) == 1 else scheduled(granularity)
            rows.append(_row(made, switching, memory_mhz, schedule))
        except InfeasibleError as error:
            rows.append(_no_plan(granularity, error.reason))
        except BadInputError as error:
            rows.append(_no_plan(granularity, str(error)))
    rows[1:-1] = [_unless_as_well(row, rows[-1]) for row in rows[1:-1]]
    return Applicable(switching=switching, rows=tuple(rows))


def _unless_as_well(row: ApplicableRow, one: ApplicableRow) -> ApplicableRow:
    """A row that does not fit where one setting saves as much, slow switches included, and takes as long."""
    if not row.fits or row.setting is not None or one.setting is None:
        return row
    late_energy = (row.energy_change or 0.0) + (row.late_energy_change or 0.0)
    late_time = (row.time_change or 0.0) + (row.late_time_change or 0.0)
    as_well = (one.energy_change or 0.0) <= late_energy and (one.time_change or 0.0) <= late_time + NEAR
    return row.model_copy(update={"fits": not as_well})


def _coarser(plan: Plan) -> tuple[Granularity, ...]:
    """The granularities coarser than the plan's that differ from it: several passes, of several kernels."""
    units, passes = {row.unit for row in plan.assignments}, {row.pass_name for row in plan.assignments}
    by_pass = plan.granularity == "kernel" and 1 < len(passes) < len(units) and None not in passes
    if len(units) == 1:
        return ()
    return ("pass", "iteration") if by_pass else ("iteration",)


def _row(plan: Plan, switching: SwitchTime, memory_mhz: float | None, schedule: Schedule | None) -> ApplicableRow:
    headline = plan.headline
    settings = unit_settings(plan.assignments)
    stated_switches = plan.switches
    if stated_switches.per_iteration and stated_switches.shortest_dwell_s is None:  # a file written before it was stated
        stated_switches = count_switches(plan.assignments)
    dwell_s = stated_switches.shortest_dwell_s
    switch_s = setting = late_time = late_energy = None
    fits = dwell_s is None
    if dwell_s is None:
        setting = settings[0]
    else:
        of_memory = switches(plan.assignments, [each.memory_mhz for each in settings])
        switch_s = max(switching.core_s, switching.memory_s) if of_memory else switching.core_s
    if dwell_s is not None and schedule is not None:
        best = schedule.rungs[0]
        stated: Expected | PredictedTotal = plan.predicted
        if plan.expected is not None and plan.objective.corrected:
            stated = plan.expected
        late_time, late_energy = best.time_change - stated.time_change, best.energy_change - stated.energy_change
        fits = late_time <= NEAR if plan.objective.saves_time else late_energy <= NEAR
    return ApplicableRow(
        granularity=plan.granularity,
        energy_change=headline.energy_change,
        time_change=headline.time_change,
        switches_per_iteration=plan.switches.per_iteration,
        shortest_dwell_s=dwell_s,
        switch_time_s=switch_s,
        late_time_change=late_time,
        late_energy_change=late_energy,
        fits=fits,
        setting=None if setting is None else OneSetting(**asdict(setting)),
        commands=() if setting is None else commands(plan.device, setting, memory_mhz),
        reason=None,
        energy_change_interval=headline.energy_change_interval,
        time_change_interval=headline.time_change_interval,
    )


def _no_plan(granularity: Granularity, reason: str) -> ApplicableRow:
    unknown: dict[str, Any] = dict.fromkeys(ApplicableRow.model_fields)
    return ApplicableRow(**unknown | {"granularity": granularity, "fits": False, "commands": (), "reason": reason})
