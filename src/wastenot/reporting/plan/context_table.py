"""Where the kernel before changes the plan, as a table for a terminal or a page."""

from __future__ import annotations

from wastenot.analyses.context import ContextChange, KernelInContext
from wastenot.reporting.plan.tables import Column, Row, Table
from wastenot.reporting.words import change, quantity

_SHORT = {"ssp": "alone, steady", "sse": "alone, first", "context": "in context"}


def context_table(found: ContextChange) -> Table:
    """Kernels whose energy or setting differs between two states, most energy first; what that is worth in the note."""
    shown = [kernel for kernel in found.kernels if kernel.beyond_error or kernel.first != kernel.second]
    shown.sort(key=lambda kernel: -abs(kernel.count * (kernel.within_j - kernel.alone_j)))
    before, after = (_SHORT[state] for state in found.states)
    columns = (
        Column("Kernel"),
        Column("Calls", numeric=True),
        Column(f"Energy, {before}", numeric=True),
        Column(f"Energy, {after}", numeric=True),
        Column("Change", numeric=True),
        Column(f"Plan, {before}"),
        Column(f"Plan, {after}"),
    )
    title = "Where the kernel before changes the plan" if "context" in found.states else "What the state changes"
    return Table(title, columns, tuple(map(_row, shown)), context_words(found))


def context_words(found: ContextChange) -> str:
    """How many kernels differ, and what the plan made for it is worth."""
    before, after = (_SHORT[state] for state in found.states)
    return (
        f"{len(found.differing)} of {len(found.kernels)} kernels have an energy {after} that differs from that {before} by "
        f"more than its error, {len(found.moved)} get other clocks. With energies {after}, the plan made of those {before} "
        f"takes {quantity(found.first.energy_j, 'J', 5)} ({change(found.first.energy_change)}) at time "
        f"{change(found.first.time_change)}, the plan made of those {after} {quantity(found.second.energy_j, 'J', 5)} "
        f"({change(found.second.energy_change)}) at time {change(found.second.time_change)}."
    )


def _row(kernel: KernelInContext) -> Row:
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
