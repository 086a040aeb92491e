"""The tables of a plan's report: what it does to each kernel, what each kind of plan is worth, what context changes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from wastenot.core.vendors import notes_on
from wastenot.core.wording import counted
from wastenot.kernels.model.context import ContextChange, KernelInContext
from wastenot.kernels.page.applicable_panels import describe_switch_time, setting_words
from wastenot.pages.formatting import change, fraction_of_whole, megahertz, percent, quantity
from wastenot.pages.table import Column, Fold, Listed, Row, Table, listing
from wastenot.planning.applicable import ApplicableRow
from wastenot.planning.applicable_today import scheduled_today
from wastenot.planning.comparison import Comparison, ComparisonRow
from wastenot.planning.objective import Objective
from wastenot.planning.plan import Assignment, Plan
from wastenot.planning.schedule import Rung

_STATE_NAMES = {"ssp": "alone, steady", "sse": "alone, first", "context": "in context", "natural": "natural clocks"}

_SHOWN_SAVING = 0.9  # of all that is saved, by the kernels that are not folded away
_FEWEST_KERNELS, _MOST_KERNELS = 5, 14  # of these
_WORTH_FOLDING = 3  # kernels


def kernel_table(plan: Plan, most_rows: int | None = None, *, brief: bool = False) -> Table:
    """What the plan does to each kernel, the most joules saved first; those that save little are folded away.

    Args:
        plan: to show.
        most_rows: keep only this many kernels; the last row adds the others up. All by default.
        brief: leave out what would not fit into 80 columns: the pass, and the fraction of the energy.
    """
    rows = sorted(plan.assignments, key=lambda row: (-_saved_j(row), -_base_j(row)))
    fields: tuple[Listed[Assignment], ...] = (
        Listed("Kernel", lambda row: row.kernel, numeric=False),
        *([] if brief else [_PASS]),
        *_set_by(plan),
        Listed("Saved", _saved_j, lambda saved: quantity(saved, "J", 3)),
        *([] if brief else [_share_of(plan)]),
    )
    kept, notes = rows[:most_rows], _sum_of_kernels(plan)
    if len(kept) < len(rows):
        left_j = math.fsum(map(_base_j, rows[len(kept) :]))
        others = counted(len(rows) - len(kept), "more kernel")
        notes.append(
            f"{others}, which use {fraction_of_whole(left_j / plan.baseline.energy_j)} of the "
            "energy, are left out here; the plan file has them all."
        )
    note = " ".join(notes) or None
    return listing("What the plan does to each kernel", kept, fields, note, fold=_fold_kernels(kept))


def kernel_table_by_pass(plan: Plan) -> Table:
    """What the plan does to each kernel, by pass in order of execution, as the paper's Table 1 has it."""
    fields: tuple[Listed[Assignment], ...] = (
        Listed("Kernel", lambda row: row.kernel, numeric=False),
        *_set_by(plan),
        _share_of(plan),
    )
    first = list(dict.fromkeys(row.pass_name for row in plan.assignments))
    rows = sorted(plan.assignments, key=lambda row: first.index(row.pass_name))  # stable: kernels by execution
    return listing("What the plan does to each kernel", rows, fields, group=lambda row: row.pass_name)


_PASS: Listed[Assignment] = Listed("Pass", lambda row: row.pass_name, numeric=False, optional=True)


def _set_by(plan: Plan) -> tuple[Listed[Assignment], ...]:
    """Calls and setting of a kernel, and what the setting changes; power limits where there are any."""
    return (
        Listed("Calls", lambda row: row.count, "{:,}".format),
        Listed("Core, MHz", lambda row: row.core_mhz, megahertz, unknown="auto"),
        Listed("Memory, MHz", lambda row: row.memory_mhz, megahertz, unknown="auto"),
        Listed("Limit, W", lambda row: row.power_limit_w, "{:g}".format, unknown="auto", optional=True),
        Listed("Time", lambda row: row.time_change, change),
        Listed("Energy", lambda row: row.energy_change, change),
    )


def _share_of(plan: Plan) -> Listed[Assignment]:
    return Listed("% of energy", lambda row: _base_j(row) / plan.baseline.energy_j, fraction_of_whole)


def applicable_table(plan: Plan) -> Table | None:
    """What could be set today: the same plan at ever coarser granularity; ``None`` where nothing coarser was planned."""
    found = plan.applicable
    if found is None:
        return None
    columns = (
        Column("Clocks for"),
        Column("Energy", numeric=True),
        Column("Time", numeric=True),
        Column("Switches", numeric=True),
        Column("Shortest dwell time", numeric=True),
        Column("Applicable today"),
    )
    note = (
        "A schedule changes settings only as often as switches allow, with the lowest energy within the limit: the part "
        f"of each plan that can be applied today. A switch takes {describe_switch_time(found.switching)}."
    )
    note = " ".join((note, *notes_on([command for row in found.rows for command in row.commands], deferred=True)))
    rows = [_applicable_row(plan, row) for row in found.rows]
    rung = scheduled_today(plan)
    if rung is not None and found.rows[0].setting is None:
        rows.insert(1, _scheduled_row(rung))
    return Table("What can be applied today", columns, tuple(rows), note)


def comparison_table(comparison: Comparison) -> Table:
    """Effect of granularity, scope and objective (Table 2)."""
    fields: tuple[Listed[ComparisonRow], ...] = (
        Listed(
            "Objective", lambda row: str(row.objective), text_of=lambda row: describe_objective(row.objective), numeric=False
        ),
        Listed("Scope", lambda row: row.scope, numeric=False),
        Listed("Time", lambda row: row.time_change, change),
        Listed("Energy", lambda row: row.energy_change, change),
    )
    return listing(
        "Effect of granularity, scope and objective", comparison.rows, fields,
        group=lambda row: f"{row.granularity} granularity", note_of=lambda row: row.reason,
    )  # fmt: skip


def describe_objective(objective: Objective) -> str:
    """An objective as the paper calls it: ``waste, strict``, ``waste, up to 2 % slower``, ``EDP``."""
    label, limit = objective.rules.label, objective.max_slowdown
    if limit is None:
        return label
    if limit == 0.0:
        return f"{label}, strict"
    word = "slower" if limit > 0.0 else "faster"
    return f"{label}, {'up to' if word == 'slower' else 'at least'} {percent(abs(limit), 0)} {word}"


def _base_j(row: Assignment) -> float:
    """Energy of all calls of a kernel at the default clocks."""
    return row.count * row.energy_j / (1.0 + row.energy_change)


def _saved_j(row: Assignment) -> float:
    """What all calls of a kernel save in an iteration."""
    return _base_j(row) - row.count * row.energy_j


def _sum_of_kernels(plan: Plan) -> list[str]:
    """What the kernels add up to, where that is not what the plan is known by."""
    if plan.headline.source == "measurements":
        return []
    whole_j = math.fsum(map(_saved_j, plan.assignments))
    stated = quantity(-plan.headline.energy_change * plan.baseline.energy_j, "J")
    if quantity(whole_j, "J") == stated:
        return []
    so = "measured again, it is" if plan.headline.source == "validation" else "the expected part of that is"
    return [f"By the sweep's numbers as measured, all kernels together save {quantity(whole_j, 'J')}; {so} {stated}."]


def _fold_kernels(rows: Sequence[Assignment]) -> Fold | None:
    """Folds away the kernels that together make up little of what is saved, where there are several of them."""
    sizes = [abs(_saved_j(row)) for row in rows]
    whole, reached, shown = math.fsum(sizes), 0.0, 0
    while shown < len(rows) and (shown < _FEWEST_KERNELS or (shown < _MOST_KERNELS and reached < _SHOWN_SAVING * whole)):
        reached += sizes[shown]
        shown += 1
    if len(rows) - shown < _WORTH_FOLDING:
        return None
    left = math.fsum(map(_saved_j, rows[shown:]))
    does = "save" if left >= 0.0 else "use"
    more = "" if left >= 0.0 else " more"
    others = counted(len(rows) - shown, "more kernel")
    return Fold(shown, f"{others}, which {does} {quantity(abs(left), 'J', 3)}{more} together")


def _applicable_row(plan: Plan, row: ApplicableRow) -> Row:
    own = row.granularity == plan.granularity
    shown = plan.headline if own else row
    energy_change, time_change = shown.energy_change, shown.time_change
    name = {"kernel": "each kernel", "pass": "each pass", "iteration": "the iteration"}[row.granularity]
    stay_s, switches = row.shortest_dwell_s, row.switches_per_iteration
    if row.reason is not None:
        verdict = "no such plan"
    elif row.setting is not None:
        verdict = "nothing to set" if row.setting.setting.is_auto else f"yes: {setting_words(row.setting.setting)}"
    elif row.fits:
        verdict = "yes"
    elif row.late_energy_change is not None and row.energy_change is not None:
        verdict = f"as a schedule: energy {change(row.energy_change + row.late_energy_change)}"
    else:
        assert plan.applicable is not None and stay_s is not None
        needed = quantity(stay_s / (plan.applicable.stay_per_switch or 1.0), "s", 2)
        verdict = f"no: needs switches within {needed}"
    texts = (
        "–" if switches is None else f"{switches:,}",
        "–" if switches is None else "all of it" if stay_s is None else quantity(stay_s, "s", 3),
        verdict,
    )
    values = (energy_change, time_change, switches, stay_s, verdict)
    reason = None if row.reason is None else f"{name}: {row.reason}"
    return Row(None, (name, change(energy_change), change(time_change), *texts), (name, *values), reason)


def _scheduled_row(rung: Rung) -> Row:
    stay_s, name = rung.shortest_stay_s, "each stretch of a schedule"
    texts = (f"{rung.switches:,}", "all of it" if stay_s is None else quantity(stay_s, "s", 3), "yes: its schedule")
    values = (name, rung.energy_change, rung.time_change, rung.switches, stay_s, texts[-1])
    return Row(None, (name, change(rung.energy_change), change(rung.time_change), *texts), values)


def context_table(context: ContextChange) -> Table:
    """Kernels whose energy or setting differs between two states, most energy first; what that is worth in the note."""
    shown = [kernel for kernel in context.kernels if kernel.beyond_error or kernel.first != kernel.second]
    shown.sort(key=lambda kernel: -abs(kernel.count * (kernel.within_j - kernel.alone_j)))
    before, after = (_STATE_NAMES[state] for state in context.states)
    fields: tuple[Listed[KernelInContext], ...] = (
        Listed("Kernel", lambda one: one.kernel, numeric=False),
        Listed("Calls", lambda one: one.count, "{:,}".format),
        Listed(f"Energy, {before}", lambda one: one.alone_j, text_of=lambda one: quantity(one.alone_j, "J", 3)),
        Listed(f"Energy, {after}", lambda one: one.within_j, text_of=lambda one: quantity(one.within_j, "J", 3)),
        Listed("Change", lambda one: one.change, text_of=_context_change),
        Listed(f"Plan, {before}", lambda one: str(one.first), numeric=False),
        Listed(f"Plan, {after}", lambda one: "the same" if one.first == one.second else str(one.second), numeric=False),
    )
    title = "Where the preceding kernel changes the plan" if "context" in context.states else "What the state changes"
    return listing(title, shown, fields, _context_note(context))


def _context_change(kernel: KernelInContext) -> str:
    error = "" if kernel.error_j is None else f" ± {100 * kernel.error_j / kernel.alone_j:.1f} %"
    return change(kernel.change, 1) + error


def _context_note(context: ContextChange) -> str:
    """How many kernels differ, and what the plan made for it is worth."""
    before, after = (_STATE_NAMES[state] for state in context.states)
    first, second = context.first, context.second
    return (
        f"The energy of {len(context.differing)} of {len(context.kernels)} kernels differs between {before} and {after} by "
        f"more than its error; {len(context.moved)} get different clocks. With energies {after}, the plan made from those "
        f"{before} uses {quantity(first.energy_j, 'J', 5)} ({change(first.energy_change)}) at time "
        f"{change(first.time_change)}, the plan made from those {after} {quantity(second.energy_j, 'J', 5)} "
        f"({change(second.energy_change)}) at time {change(second.time_change)}."
    )
