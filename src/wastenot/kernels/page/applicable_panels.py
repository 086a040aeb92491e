"""What of a plan can be set today, by which commands, and what the rest of it would need; in words."""

from __future__ import annotations

from collections.abc import Sequence

from wastenot.core.setting import Setting
from wastenot.core.vendors import VENDORS, notes_on, undo_commands, vendor_of
from wastenot.core.wording import counted
from wastenot.kernels.page.provenance import Files
from wastenot.kernels.page.verdict import energy_words, is_default, pace, short_percent, why_nothing_today
from wastenot.pages.formatting import SPACE, change, digits_within, megahertz, percent, quantity, round_quantity
from wastenot.pages.panel import Line, Panel
from wastenot.planning.applicable import NEAR, Applicable, ApplicableRow
from wastenot.planning.applicable_today import applicable_today
from wastenot.planning.plan import Plan
from wastenot.planning.schedule import Rung
from wastenot.planning.switching import SwitchTime
from wastenot.workloads.identity import GRANULARITIES, Granularity

GRANULARITY_WORDS: dict[Granularity, str] = {
    "kernel": "clocks for each kernel",
    "pass": "clocks for each pass",
    "iteration": "one setting for the whole iteration",
}
_TODAY, _REST = "Applicable today", "What faster switching would add"
_MORE = "What a saving needs"
_SEEN = 5e-5  # changes below this are shown as none


def today_panel(plan: Plan, files: Files) -> Panel:
    """How to apply what can be had today: the whole plan, its schedule, or the finest granularity that can be switched."""
    if is_default(plan):
        return Panel(_TODAY, "nothing to set", "beyond the default clocks, at which the card runs anyway.")
    today, row = plan.today, applicable_today(plan).finest
    if today.rung is not None:
        return _scheduled_panel(plan, today.rung, row, files)
    if row is None:
        return Panel(_TODAY, "nothing yet", f"since {why_nothing_today(plan)}.")
    if not today.sets_something:
        better = "since no single setting for the whole iteration does better than the default clocks."
        return Panel(_TODAY, "nothing to set", better)
    if not today.whole and not _shows(plan, row):
        return Panel(_TODAY, "not worth it", f"which is less than a run can show, with {_way(plan, row)}.")
    run = setting_commands(plan, row)
    value, besides = gain_words(plan, today.energy_change, today.time_change, today.energy_change_interval)
    return Panel(
        _TODAY,
        "the whole plan" if today.whole else value,
        f"{_own_way(row)}." if today.whole else f"{besides}, with {_way(plan, row)}.",
        commands=run,
        undo=undo_commands(run),
        note=_before_setting(plan, row, run),
    )


def apply_command(plan: Plan, files: Files) -> str:
    """What follows a plan's schedule; on a simulated GPU, in a simulated job."""
    program = "" if plan.device.startswith("sim:") else " -- python train.py"
    return f"wastenot apply {files.plan_text}{program}"


def _scheduled_panel(plan: Plan, rung: Rung, one: ApplicableRow | None, files: Files) -> Panel:
    """A schedule, and what one setting would give instead."""
    lines = []
    if files.plan is None:
        lines.append(
            Line("Write it to a file", f"wastenot kernel plan with the options of this plan and --out {files.plan_text}")
        )
    if one is not None and one.setting is not None and not one.setting.setting.is_auto and _shows(plan, one):
        run = setting_commands(plan, one)
        commands = "" if not run else f": {'; '.join(run)}"
        lines.append(Line("One setting instead", f"{' '.join(gain_words(plan, *_changes(plan, one, own=False)))}{commands}"))
    value, besides = gain_words(plan, plan.today.energy_change, plan.today.time_change, plan.today.energy_change_interval)
    how = f"by a schedule of {counted(rung.switches, 'switch')} per iteration, at today's switching speed"
    known = "" if plan.objective.corrected else f"; {_known(plan)}"
    return Panel(_TODAY, value, f"{besides}, {how}{known}.", lines=tuple(lines))


def rest_panel(plan: Plan) -> Panel:
    """What the plan would need that cannot be set today: how much it saves more, and how fast switches would have to be."""
    if is_default(plan):
        return _more_than_the_default(plan)
    found = applicable_today(plan)
    today = found.finest
    if today is found.rows[0]:
        return Panel(_REST, "nothing more", f"since the whole plan can be applied today.{_finer(plan)}")
    held = plan.today.energy_change, plan.today.time_change
    lines: list[Line] = []
    first = ""
    for row in found.rows[: None if today is None else found.rows.index(today)]:
        if row.energy_change is None or row.time_change is None:
            continue
        shown = _changes(plan, row, row is found.rows[0])
        more = _more(plan, shown, held)
        if not lines:
            first, more = ("all of it" if held == (0.0, 0.0) else more), ""
        needs = "; ".join(filter(None, (more, _needs(row, found))))
        lines.append(Line(GRANULARITY_WORDS[row.granularity].capitalize(), needs))
    lines.append(Line("Switching time today", f"{_switch_times(found.switching)}, {found.switching.known}"))
    return Panel(_REST, first, "if clocks switched fast enough for it.", lines=tuple(lines))


def describe_switch_time(switching: SwitchTime) -> str:
    """How long switches take, and where that comes from."""
    times = _switch_times(switching)
    match switching.basis:
        case "given":
            return f"{times}, as given"
        case "measured":
            return f"{times}, as measured: {switching.source}"
        case "stated":
            return f"{times}, as stated by {switching.source}"
    return f"{times}, assumed until you measure it and pass --switch-time: {switching.source}"


def _switch_times(switching: SwitchTime) -> str:
    core, memory = (round_quantity(each, "s") for each in (switching.core_s, switching.memory_s))
    return core if switching.memory_s == switching.core_s else f"{core}, {memory} for memory clocks"


def setting_words(setting: Setting) -> str:
    """A setting as all tables have it: core / memory clock, then the power limit."""
    core, memory = megahertz(setting.core_mhz), megahertz(setting.memory_mhz)
    clocks = f"core {core} / memory {memory}{SPACE}MHz"
    if setting.memory_mhz is None:
        clocks = f"core {core}{'' if setting.core_mhz is None else f'{SPACE}MHz'} / memory auto"
    clocks = clocks if setting.profile is None else f"profile {setting.profile}, {clocks}"
    return clocks if setting.power_limit_w is None else f"{clocks}, at most {setting.power_limit_w:g}{SPACE}W"


def _changes(plan: Plan, row: ApplicableRow, own: bool) -> tuple[float, float]:
    """Energy and time change of a row, with what late switches add; of the plan itself as its headline has them."""
    shown = plan.headline if own else row
    assert shown.energy_change is not None and shown.time_change is not None
    late = (row.late_energy_change or 0.0, row.late_time_change or 0.0) if row.fits else (0.0, 0.0)
    return shown.energy_change + late[0], shown.time_change + late[1]


def gain_words(
    plan: Plan, energy_change: float, time_change: float, interval: tuple[float, float] | None = None
) -> tuple[str, str]:
    """What the plan is for, in two or three words, and what it does besides.

    Args:
        plan: whose objective counts.
        energy_change: against the default clocks, as is ``time_change``.
        time_change: likewise.
        interval: that holds the change in energy; it says how many digits are shown.
    """
    energy = f"{percent(abs(energy_change), digits_within(interval))} {'saved' if energy_change <= 0.0 else 'more energy'}"
    if plan.objective.saves_time:
        return pace(time_change), energy_words(energy_change)
    same = pace(0.0) == pace(time_change)
    return energy, pace(time_change) if same else f"{'and' if time_change < 0.0 else 'but'} {pace(time_change)}"


def _more(plan: Plan, shown: tuple[float, float], held: tuple[float, float]) -> str:
    """By how much more a row does what the plan is for than what can be set today."""
    index = 1 if plan.objective.saves_time else 0
    more = held[index] - shown[index]
    if more < _SEEN:
        return "nothing more"
    return f"{percent(more, 1)} {'even faster' if index else 'more'}"


def _needs(row: ApplicableRow, found: Applicable) -> str:
    """What a row needs of switches."""
    count = "" if row.switches_per_iteration is None else f"{counted(row.switches_per_iteration, 'switch')} per iteration, "
    assert row.shortest_dwell_s is not None
    return f"{count}each within {quantity(row.shortest_dwell_s / (found.stay_per_switch or 1.0), 's', 2)}"


def _known(plan: Plan) -> str:
    """How the numbers of what can be applied are known."""
    return "expected" if plan.objective.corrected else "by the numbers as measured"


def _way(plan: Plan, row: ApplicableRow) -> str:
    """How a coarser plan is applied, and how its numbers are known."""
    known, how = _known(plan), GRANULARITY_WORDS[row.granularity]
    if row.setting is not None:
        return f"{how}: {setting_words(row.setting.setting)}; {known}"
    return (
        f"{how}, switched {row.switches_per_iteration or 0:,} times per iteration, slow switches included; {known} "
        f"(wastenot kernel plan --granularity {row.granularity})"
    )


def _own_way(row: ApplicableRow) -> str:
    """How the plan itself is applied."""
    if row.setting is not None:
        return f"with one setting: {setting_words(row.setting.setting)}"
    switched = f"in {counted(row.switches_per_iteration or 0, 'switch')} per iteration, listed in the plan's file"
    if row.late_time_change is None:
        return switched
    return f"{switched}; slow switches add {change(row.late_time_change)} time and {change(row.late_energy_change)} energy"


def _shows(plan: Plan, row: ApplicableRow) -> bool:
    """Whether what a row gains is more than the error of a run."""
    energy_change, time_change = _changes(plan, row, own=False)
    return -(time_change if plan.objective.saves_time else energy_change) >= NEAR


def setting_commands(plan: Plan, row: ApplicableRow) -> tuple[str, ...]:
    """What to run; the first vendor's commands where the device's name tells no vendor."""
    if row.commands or row.setting is None or vendor_of(plan.device) is not None:
        return row.commands
    return VENDORS[0].commands(frozenset(), "0", row.setting.setting)


def _before_setting(plan: Plan, row: ApplicableRow, run: Sequence[str]) -> str | None:
    """What to know before running the commands, or why there are none."""
    vendor = vendor_of(plan.device) or VENDORS[0]
    if not run:
        return None if row.setting is None else f"No command: {vendor.tool} cannot set memory clocks."
    parts = []
    if not row.commands:
        parts.append(f"These commands are for an {vendor.label} GPU: the name '{plan.device}' does not identify the vendor.")
    if plan.origin != "measured":
        parts.append(f"The numbers are {plan.origin}: sweep the real card before you set its clocks.")
    first = f"{vendor.card_option} 0"
    yours = f"; {first} is the first GPU, use the number of yours" if f" {first} " in run[0] else ""
    parts.append(f"Needs root{yours}.")
    return " ".join((*parts, *notes_on(run)))


def _finer(plan: Plan) -> str:
    """That a finer plan may save more, where its kernels were measured one by one."""
    measured, planned = (GRANULARITIES.index(each) for each in (plan.measured_granularity, plan.granularity))
    if measured <= planned or len(plan.assignments) == 1:
        return ""
    finer = GRANULARITY_WORDS[plan.measured_granularity].capitalize()
    return f" {finer} may save more, with faster switches: wastenot kernel plan --granularity {plan.measured_granularity}"


def _more_than_the_default(plan: Plan) -> Panel:
    """What would save energy where the plan is nothing but the default clocks."""
    tolerance = plan.tolerance
    if plan.coverage is not None and plan.coverage.kind == "auto":
        return Panel(_MORE, "a sweep", "of other clocks: wastenot kernel sweep without --clocks auto.")
    refine = (
        " Measuring the best settings again (wastenot kernel refine) may make more of the saving certain."
        if plan.objective.corrected
        else ""
    )
    if tolerance is not None and tolerance.energy_change < -_SEEN:
        low, high = tolerance.energy_change_interval
        return Panel(
            _MORE,
            f"{short_percent(tolerance.max_slowdown)} slower",
            f"which is less than a run can show: that would save {percent(-tolerance.energy_change)} of the energy "
            f"({percent(-high)} to {percent(-low)}, expected): --max-slowdown {tolerance.max_slowdown:g}.{refine}",
        )
    if plan.objective.max_slowdown is None:
        return Panel(_MORE, "other clocks", f"than those measured: none of these does better.{refine}")
    return Panel(_MORE, "a slowdown", f"such as 2{SPACE}%: --max-slowdown 0.02.{refine}")
