"""What can be applied today, drawn: the clocks that a plan's schedule requests over one iteration."""

from __future__ import annotations

from itertools import accumulate

from wastenot.control.expected import expected_at
from wastenot.control.page.close_up_figure import Window, close_up_chart
from wastenot.control.status import Instant
from wastenot.core.setting import Setting
from wastenot.core.wording import counted
from wastenot.kernels.page.plan_figure import plan_figure
from wastenot.kernels.page.verdict import is_default
from wastenot.pages.compared import compared_chart, compared_iteration
from wastenot.pages.figure import Figure
from wastenot.pages.formatting import digits_within, percent, quantity
from wastenot.planning.plan import Plan
from wastenot.planning.schedule import Rung, Schedule


def schedule_figures(plan: Plan) -> tuple[Figure, ...]:
    """Passes and clocks of one iteration under the schedule that can be applied today; none where it is no schedule."""
    rung, schedule = plan.today.rung, plan.schedule
    if rung is None or schedule is None:
        return ()
    cores, memories = ({each.core_mhz for each in rung.segments}, {each.memory_mhz for each in rung.segments})
    stays = " and ".join(filter(None, (_flat("core", cores), _flat("memory", memories))))
    throughout = f"; {stays} throughout" if stays else ""
    note = (
        f"One iteration of {quantity(rung.time_s, 's', 3)}, {counted(rung.switches, 'switch')}{throughout}. Below its "
        "passes: the clocks requested, sent early by the time a switch takes (dots)."
    )
    if any(None in clocks and len(clocks) > 1 for clocks in (cores, memories)):
        note += " No line where the driver decides."
    return (
        plan_figure(
            plan, "schedule", "Its schedule: the clocks of one iteration", note, close_up_chart(_iteration(schedule, rung))
        ),
    )


def compared_figures(plan: Plan) -> tuple[Figure, ...]:
    """Energy and time of an iteration at the default clocks and with what can be applied today; none where nothing can."""
    today, base = plan.today, plan.baseline
    if is_default(plan) or not today.sets_something:
        return ()
    digits = digits_within(today.energy_change_interval)
    ends = today.energy_change_interval
    compared = compared_iteration(base.energy_j, base.time_s, (today.energy_change, today.time_change), ends)
    title = f"What can be applied today: {percent(-today.energy_change, digits)} saved"
    line = " Line: the 95 % interval." if ends is not None else ""
    note = f"An iteration at the default clocks and with what can be applied today. Axes do not begin at 0.{line}"
    return (plan_figure(plan, "today", title, note, compared_chart(("default clocks", "applied today"), compared)),)


def _flat(name: str, clocks: set[float | None]) -> str:
    """The clock that never changes, in words; empty where it does, or where the driver decides."""
    clock = next(iter(clocks))
    return "" if clock is None or len(clocks) > 1 else f"{name} clock {clock:,.6g} MHz"


def _iteration(schedule: Schedule, rung: Rung) -> Window:
    """One iteration of many: its passes, and the requests where they are due."""
    begins_s = list(accumulate((each.time_s for each in rung.segments), initial=rung.segments[0].offset_s))
    # A request that is due before the iteration begins is made at the end of the one before.
    due = [
        ((begin_s - each.early_s) % rung.time_s, each.setting)
        for begin_s, each in zip(begins_s, rung.segments, strict=False)
    ]
    due.sort(key=lambda request: request[0])
    gaps_s = expected_at(schedule, rung).gaps_s
    reached_s = accumulate(gaps_s[:-1], initial=0.0)
    passes = [
        (at_s, marker.name) for at_s, marker in zip(reached_s, schedule.markers, strict=True) if ":" not in marker.name
    ]
    held = due[-1][1]
    instants: list[Instant] = []
    events: list[tuple[float, str | Setting]] = [*passes, *due]
    for at_s, what in sorted(events, key=lambda each: each[0]):
        held = held if isinstance(what, str) else what
        instants.append(_instant(at_s, what if isinstance(what, str) else None, held))
    return Window(0.0, rung.time_s, tuple(instants))


def _instant(at_s: float, marker: str | None, held: Setting) -> Instant:
    return Instant(
        at_s=at_s,
        marker=marker,
        at_default=held.is_auto,
        target_core_mhz=held.core_mhz,
        target_memory_mhz=held.memory_mhz,
        target_power_limit_w=held.power_limit_w,
    )
