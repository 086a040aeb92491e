"""The paper's two tables as plain data, for a terminal or a page: texts to show, and the values behind them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from wastenot.planning.comparison import Comparison, ComparisonRow
from wastenot.planning.objective import Objective
from wastenot.planning.plan import Assignment, Plan
from wastenot.reporting.words import change, clock, part, percent

Value = str | float | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, and whether it holds numbers (set flush right)."""

    title: str
    numeric: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One row.

    Attributes:
        group: rows of one group follow each other; ``None`` where there are no groups.
        texts: what to show, one for each column.
        values: the same as numbers (clocks in MHz, changes as shares) or text, ``None`` where there is none.
        note: why values are missing, else ``None``.
    """

    group: str | None
    texts: tuple[str, ...]
    values: tuple[Value, ...]
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        title: what it shows.
        columns: its columns.
        rows: its rows.
        note: what is left out, else ``None``.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str | None = None


def kernel_table(plan: Plan, most_rows: int | None = None) -> Table:
    """What the plan does to each kernel, by pass in order of execution (Table 1).

    Args:
        plan: of the workload.
        most_rows: at most so many rows, those of most energy; the note says how many are left out. By default all.
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
        Column("Share of energy", numeric=True),
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
            f"{len(base_j) - len(kept)} more kernels, together {part(left_j / plan.baseline.energy_j)} of the "
            "energy, are left out here; the plan file has them all."
        )
    return Table("What the plan does to each kernel", tuple(columns), tuple(rows), note)


def comparison_table(comparison: Comparison) -> Table:
    """What granularity, scope and objective are worth (Table 2)."""
    columns = (
        Column("Objective"),
        Column("Scope"),
        Column("Time", numeric=True),
        Column("Energy", numeric=True),
    )
    return Table(
        "What granularity, scope and objective are worth",
        columns,
        tuple(_comparison_row(row) for row in comparison.rows),
    )


def objective_words(objective: Objective) -> str:
    """An objective in the paper's words: ``waste, strict``, ``waste, up to 2 % slower``, ``EDP``."""
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


def _kernel_row(row: Assignment, share: float, limited: bool) -> Row:
    limit: tuple[Value, ...] = (row.power_limit_w,) if limited else ()
    limit_text = ("auto" if row.power_limit_w is None else f"{row.power_limit_w:g}",) if limited else ()
    return Row(
        row.pass_name,
        (
            row.kernel,
            f"{row.count:,}",
            clock(row.memory_mhz),
            clock(row.core_mhz),
            *limit_text,
            change(row.time_change),
            change(row.energy_change),
            part(share),
        ),
        (
            row.kernel,
            row.count,
            row.memory_mhz,
            row.core_mhz,
            *limit,
            row.time_change,
            row.energy_change,
            share,
        ),
    )


def _comparison_row(row: ComparisonRow) -> Row:
    return Row(
        f"{row.granularity} granularity",
        (objective_words(row.objective), row.scope, change(row.time_change), change(row.energy_change)),
        (str(row.objective), row.scope, row.time_change, row.energy_change),
        row.reason,
    )
