"""The tables of a plan's report: what it does to each kernel, what each kind of plan is worth, what context changes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from wastenot.analyses.context import ContextChange, KernelInContext
from wastenot.planning.applicable import ApplicableRow
from wastenot.planning.comparison import Comparison, ComparisonRow
from wastenot.planning.objective import Objective
from wastenot.planning.plan import Assignment, Plan
from wastenot.reporting.formatting import change, fraction_of_whole, percent, quantity
from wastenot.reporting.plan.summary import describe_switch_time
from wastenot.reporting.table import Column, Row, Table, Value
from wastenot.setting import format_mhz

_STATE_NAMES = {"ssp": "alone, steady", "sse": "alone, first", "context": "in context", "natural": "natural clocks"}


def kernel_table(plan: Plan, most_rows: int | None = None) -> Table:
    """What the plan does to each kernel, by pass in order of execution (Table 1).

    Args:
        plan: to show.
        most_rows: keep only this many kernels, those that use most energy; a note says how many are left out. All by
            default.
    """
    limited = any(row.power_limit_w is not None for row in plan.assignments)
    columns = [
        Column("Kernel"),
        Column("Calls", numeric=True),
        Column("Memory, MHz", numeric=True),
        Column("Core, MHz", numeric=True),
        *([Column("Limit, W", numeric=True)] if limited else []),
        Column("Time", numeric=True),
        Column("Energy", numeric=True),
        Column("% of energy", numeric=True),
    ]
    base_j = [row.count * row.energy_j / (1.0 + row.energy_change) for row in plan.assignments]
    kept = set(sorted(range(len(base_j)), key=lambda index: -base_j[index])[:most_rows])
    order = _by_pass(plan.assignments)
    rows = [
        _kernel_row(plan.assignments[index], base_j[index] / plan.baseline.energy_j, limited)
        for index in order
        if index in kept
    ]
    note = None
    if len(kept) < len(base_j):
        left_j = math.fsum(energy for index, energy in enumerate(base_j) if index not in kept)
        note = (
            f"{len(base_j) - len(kept)} more kernels, which use {fraction_of_whole(left_j / plan.baseline.energy_j)} of the "
            "energy, are left out here; the plan file has them all."
        )
    return Table("What the plan does to each kernel", tuple(columns), tuple(rows), note)


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
        Column("Shortest stay", numeric=True),
        Column("Applicable today"),
    )
    note = (
        "A plan is applicable if it keeps its slowdown although switches are late, and if every stay at a setting lasts at "
        f"least {found.stay_per_switch:g} times as long as a switch. A switch takes {describe_switch_time(found.switching)}."
    )
    if any("-lmcd" in command for row in found.rows for command in row.commands):
        note += " A deferred memory clock (-lmcd) takes effect when the driver is loaded again."
    return Table("What can be applied today", columns, tuple(_applicable_row(plan, row) for row in found.rows), note)


def comparison_table(comparison: Comparison) -> Table:
    """What granularity, scope and objective are worth (Table 2)."""
    columns = (Column("Objective"), Column("Scope"), Column("Time", numeric=True), Column("Energy", numeric=True))
    return Table(
        "What granularity, scope and objective are worth", columns, tuple(_comparison_row(row) for row in comparison.rows)
    )


def describe_objective(objective: Objective) -> str:
    """An objective as the paper calls it: ``waste, strict``, ``waste, up to 2 % slower``, ``EDP``."""
    if objective.kind != "waste":
        return "EDP" if objective.kind == "edp" else objective.kind
    if not objective.max_slowdown:
        return "waste, strict"
    word = "slower" if objective.max_slowdown > 0 else "faster"
    return f"waste, {'up to' if word == 'slower' else 'at least'} {percent(abs(objective.max_slowdown), 0)} {word}"


def _by_pass(assignments: Sequence[Assignment]) -> list[int]:
    """Indices so that kernels of one pass are together: passes by first appearance, kernels by execution."""
    first: dict[str | None, int] = {}
    for index, row in enumerate(assignments):
        first.setdefault(row.pass_name, index)
    return sorted(range(len(assignments)), key=lambda index: (first[assignments[index].pass_name], index))


def _kernel_row(row: Assignment, energy_fraction: float, limited: bool) -> Row:
    limit: tuple[Value, ...] = (row.power_limit_w,) if limited else ()
    limit_text = ("auto" if row.power_limit_w is None else f"{row.power_limit_w:g}",) if limited else ()
    return Row(
        row.pass_name,
        (
            row.kernel,
            f"{row.count:,}",
            format_mhz(row.memory_mhz),
            format_mhz(row.core_mhz),
            *limit_text,
            change(row.time_change),
            change(row.energy_change),
            fraction_of_whole(energy_fraction),
        ),
        (row.kernel, row.count, row.memory_mhz, row.core_mhz, *limit, row.time_change, row.energy_change, energy_fraction),
    )


def _applicable_row(plan: Plan, row: ApplicableRow) -> Row:
    own = row.granularity == plan.granularity
    shown = plan.headline if own else row
    energy_change, time_change = shown.energy_change, shown.time_change
    name = {"kernel": "each kernel", "pass": "each pass", "iteration": "the iteration"}[row.granularity]
    stay_s, switches = row.shortest_dwell_s, row.switches_per_iteration
    if row.reason is not None:
        verdict = "no such plan"
    elif row.setting is not None:
        verdict = "; ".join(row.commands) or ("nothing to set" if row.setting.setting.is_auto else str(row.setting.setting))
    elif row.late_time_change is not None and row.late_energy_change is not None:
        late = f"late switches add {change(row.late_time_change)} time, {change(row.late_energy_change)} energy"
        verdict = f"yes; {late}" if row.fits else f"no: {late}"
    elif row.fits:
        verdict = "yes"
    else:
        assert plan.applicable is not None and stay_s is not None
        needed = quantity(stay_s / plan.applicable.stay_per_switch, "s", 2)
        verdict = f"no: needs switches within {needed}"
    texts = (
        "–" if switches is None else f"{switches:,}",
        "–" if switches is None else "all of it" if stay_s is None else quantity(stay_s, "s", 3),
        verdict,
    )
    values = (energy_change, time_change, switches, stay_s, verdict)
    return Row(None, (name, change(energy_change), change(time_change), *texts), (name, *values), row.reason)


def _comparison_row(row: ComparisonRow) -> Row:
    return Row(
        f"{row.granularity} granularity",
        (describe_objective(row.objective), row.scope, change(row.time_change), change(row.energy_change)),
        (str(row.objective), row.scope, row.time_change, row.energy_change),
        row.reason,
    )


def context_table(context: ContextChange) -> Table:
    """Kernels whose energy or setting differs between two states, most energy first; what that is worth in the note."""
    shown = [kernel for kernel in context.kernels if kernel.beyond_error or kernel.first != kernel.second]
    shown.sort(key=lambda kernel: -abs(kernel.count * (kernel.within_j - kernel.alone_j)))
    before, after = (_STATE_NAMES[state] for state in context.states)
    columns = (
        Column("Kernel"),
        Column("Calls", numeric=True),
        Column(f"Energy, {before}", numeric=True),
        Column(f"Energy, {after}", numeric=True),
        Column("Change", numeric=True),
        Column(f"Plan, {before}"),
        Column(f"Plan, {after}"),
    )
    title = "Where the kernel before changes the plan" if "context" in context.states else "What the state changes"
    return Table(title, columns, tuple(map(_context_row, shown)), _context_note(context))


def _context_note(context: ContextChange) -> str:
    """How many kernels differ, and what the plan made for it is worth."""
    before, after = (_STATE_NAMES[state] for state in context.states)
    first, second = context.first, context.second
    return (
        f"The energy of {len(context.differing)} of {len(context.kernels)} kernels differs between {before} and {after} by "
        f"more than its error; {len(context.moved)} get other clocks. With energies {after}, the plan made from those "
        f"{before} uses {quantity(first.energy_j, 'J', 5)} ({change(first.energy_change)}) at time "
        f"{change(first.time_change)}, the plan made from those {after} {quantity(second.energy_j, 'J', 5)} "
        f"({change(second.energy_change)}) at time {change(second.time_change)}."
    )


def _context_row(kernel: KernelInContext) -> Row:
    error = "" if kernel.error_j is None else f" ± {100 * kernel.error_j / kernel.alone_j:.1f} %"
    settings = (str(kernel.first), "the same" if kernel.first == kernel.second else str(kernel.second))
    return Row(
        None,
        (
            kernel.kernel,
            f"{kernel.count:,}",
            quantity(kernel.alone_j, "J", 3),
            quantity(kernel.within_j, "J", 3),
            change(kernel.change, 1) + error,
            *settings,
        ),
        (kernel.kernel, kernel.count, kernel.alone_j, kernel.within_j, kernel.change, *settings),
    )
