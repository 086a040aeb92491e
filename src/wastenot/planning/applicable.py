"""What of a plan can be applied today: plans at ever coarser granularity, judged by how long the device takes to switch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from wastenot.documents import Finite, NotNegative, Part, Positive
from wastenot.errors import BadInputError, InfeasibleError
from wastenot.planning.costs import Costs
from wastenot.planning.dwell import count_switches, unit_settings
from wastenot.planning.lateness import lateness
from wastenot.planning.switching import SwitchTime, commands, switch_time
from wastenot.setting import Setting
from wastenot.workloads.identity import Granularity
from wastenot.workloads.order import switches

if TYPE_CHECKING:
    from wastenot.planning.plan import Plan

STAY_PER_SWITCH = 10.0
"""A plan fits where it stays at every setting for so many times the switching time, and keeps its limit with late switches.

Until a switch has taken effect, kernels run at the setting before. At ten times, that is at most a tenth of every stay, so
that about nine tenths of the saving remain. What it costs in time is estimated by itself: a product that follows a kernel at
a third of its clock loses two thirds of that tenth.
"""

LATE_TOLERANCE = 0.001
"""Time over the slowdown limit that late switches may add: less than a run can show."""


class OneSetting(Part):
    """A setting; ``None`` is auto."""

    core_mhz: Positive | None
    memory_mhz: Positive | None
    power_limit_w: Positive | None

    @property
    def setting(self) -> Setting:
        """The setting as a value."""
        return Setting(self.core_mhz, self.memory_mhz, self.power_limit_w)


class ApplicableRow(Part):
    """The plan of one granularity, and whether it can be applied with switches as slow as the device's.

    Attributes:
        energy_change: of the plan, as its headline states it; ``None`` where there is no plan, as are the others.
        time_change: likewise.
        switches_per_iteration: how often clocks change.
        shortest_dwell_s: the shortest stay at a setting; ``None`` where nothing changes.
        switch_time_s: of its slowest switch; ``None`` where nothing changes.
        late_time_change: what late switches would add to ``time_change``, estimated; ``None`` where nothing changes, or
            switches are too slow for the stays.
        late_energy_change: likewise.
        fits: whether every stay lasts at least ``stay_per_switch`` times that, and the slowdown is kept even so.
        setting: where nothing changes, the clocks to set, else ``None``.
        commands: that set them, where the device's vendor is known.
        reason: why there is no plan, else ``None``.
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


class Applicable(Part):
    """What could be set today: plans of one objective at ever coarser granularity, judged by the device's switching time.

    Attributes:
        switching: the device's switching time.
        stay_per_switch: a plan fits if it stays at every setting for so many times the switching time.
        rows: the plan's own granularity first.
    """

    switching: SwitchTime
    stay_per_switch: Positive
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
    costs: Costs | None = None,
) -> Applicable:
    """What could be set today instead of a plan, or the plan itself.

    Args:
        plan: whose objective to keep.
        coarser: makes the plan of another granularity; ``None`` to look at the plan alone.
        switching: the device's switching time.
        memory_mhz: memory clock in effect by default, where it is known.
        costs: of the kernels as measured, which say what late switches cost.
    """
    rows = [_row(plan, switching, memory_mhz, costs)]
    for granularity in _coarser(plan):
        if coarser is None:
            break
        try:
            rows.append(_row(coarser(granularity), switching, memory_mhz, costs))
        except InfeasibleError as error:
            rows.append(_no_plan(granularity, error.reason))
        except BadInputError as error:
            rows.append(_no_plan(granularity, str(error)))
    return Applicable(switching=switching, stay_per_switch=STAY_PER_SWITCH, rows=tuple(rows))


def _coarser(plan: Plan) -> tuple[Granularity, ...]:
    """The granularities coarser than the plan's that differ from it: several passes, of several kernels."""
    units, passes = {row.unit for row in plan.assignments}, {row.pass_name for row in plan.assignments}
    by_pass = plan.granularity == "kernel" and 1 < len(passes) < len(units) and None not in passes
    if len(units) == 1:
        return ()
    return ("pass", "iteration") if by_pass else ("iteration",)


def _row(plan: Plan, switching: SwitchTime, memory_mhz: float | None, costs: Costs | None) -> ApplicableRow:
    headline = plan.headline
    settings = unit_settings(plan.assignments)
    dwell_s = count_switches(plan.assignments).shortest_dwell_s  # files written before it was stated lack it
    switch_s = setting = None
    if dwell_s is None:
        setting = settings[0]
    else:
        of_memory = switches(plan.assignments, [each.memory_mhz for each in settings])
        switch_s = max(switching.core_s, switching.memory_s) if of_memory else switching.core_s
    fits = dwell_s is None or switch_s is None or dwell_s >= STAY_PER_SWITCH * switch_s
    late = None if costs is None or dwell_s is None or not fits else lateness(costs, plan.assignments, switching)
    limit = plan.objective.max_slowdown
    if late is not None and limit is not None and late.time_change > 0.0:
        fits = headline.time_change + late.time_change <= limit + LATE_TOLERANCE
    return ApplicableRow(
        granularity=plan.granularity,
        energy_change=headline.energy_change,
        time_change=headline.time_change,
        switches_per_iteration=plan.switches.per_iteration,
        shortest_dwell_s=dwell_s,
        switch_time_s=switch_s,
        late_time_change=None if late is None else late.time_change,
        late_energy_change=None if late is None else late.energy_change,
        fits=fits,
        setting=None if setting is None else _written(setting),
        commands=() if setting is None else commands(plan.device, setting, memory_mhz),
        reason=None,
    )


def _no_plan(granularity: Granularity, reason: str) -> ApplicableRow:
    return ApplicableRow(
        granularity=granularity,
        energy_change=None,
        time_change=None,
        switches_per_iteration=None,
        shortest_dwell_s=None,
        switch_time_s=None,
        late_time_change=None,
        late_energy_change=None,
        fits=False,
        setting=None,
        commands=(),
        reason=reason,
    )


def _written(setting: Setting) -> OneSetting:
    return OneSetting(core_mhz=setting.core_mhz, memory_mhz=setting.memory_mhz, power_limit_w=setting.power_limit_w)
