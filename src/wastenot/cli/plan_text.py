"""Plans, frontiers and comparisons as text for a terminal."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from wastenot.reporting.formatting import change, percent, quantity
from wastenot.reporting.plan.summary import describe_goal, summary_cards, warnings
from wastenot.reporting.plan.tables import comparison_table, context_table, kernel_table
from wastenot.reporting.price import Price
from wastenot.reporting.table import Table
from wastenot.workloads.identity import STATE_DESCRIPTIONS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wastenot.analyses.context import ContextChange
    from wastenot.planning.comparison import Comparison, WholeFrontier
    from wastenot.planning.difference import PlanDifference
    from wastenot.planning.plan import Plan
    from wastenot.setting import Setting


def described_plan(plan: Plan, price: Price) -> RenderableType:
    """Table 1 of the paper, and the totals under it."""
    summary = RichTable.grid(padding=(0, 2))
    summary.add_column(style="bold", no_wrap=True)
    summary.add_column(no_wrap=True)
    summary.add_column()
    for card in summary_cards(plan, price):
        summary.add_row(Text(card.label), Text(card.value), Text(card.detail))
    what = f"{describe_goal(plan.objective)}, by {plan.granularity}, {plan.scope} scope"
    notes = [Text(f"note: {warning}", style="yellow") for warning in warnings(plan)]
    what += "" if plan.state == "ssp" else f"; energies of {STATE_DESCRIPTIONS[plan.state]}"
    head = about(plan.workload, plan.device, plan.origin, what)
    return Group(head, "", rich_table(kernel_table(plan)), "", summary, "", *notes)


def described_frontier(found: WholeFrontier) -> RenderableType:
    """All hull vertices, then the exact optimum at each bound."""
    hull = _columns("time", "energy", "time change", "energy change")
    for vertex in found.hull:
        hull.add_row(
            quantity(vertex.time_s, "s", 6),
            quantity(vertex.energy_j, "J", 6),
            change(vertex.time_change, 3),
            change(vertex.energy_change, 3),
        )
    bounds = _columns("slowdown allowed", "time", "energy", "time change", "energy change", "gap")
    for point in found.bounds:
        bounds.add_row(
            percent(point.max_slowdown),
            quantity(point.time_s, "s", 6),
            quantity(point.energy_j, "J", 6),
            change(point.time_change, 3),
            change(point.energy_change, 3),
            percent(point.gap, 4) if point.gap else "0",
        )
    impossible = [percent(bound) for bound in found.impossible_bounds]
    tail = [f"no plan keeps {', '.join(impossible)}; the least slowdown possible is {change(found.least_slowdown, 4)}"]
    return Group(
        about(found.workload, found.device, found.origin, f"frontier by {found.granularity}"),
        "",
        Text(f"the {len(found.hull)} plans that are best for some price of time", style="bold"),
        hull,
        "",
        Text("the exact best plan within each bound", style="bold"),
        bounds,
        *(tail if impossible else []),
    )


def described_comparison(found: Comparison) -> RenderableType:
    """Table 2 of the paper."""
    return Group(
        about(found.workload, found.device, found.origin, "change against auto"), "", rich_table(comparison_table(found))
    )


def described_difference(found: PlanDifference, first: str, second: str) -> RenderableType:
    """What the second plan does otherwise than the first."""
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    for heading in ("kernel", first, second):
        table.add_column(Text(heading))
    for heading in ("time", "energy"):
        table.add_column(heading, justify="right")
    for row in found.kernels:
        table.add_row(
            Text(row.kernel),
            _setting(row.first),
            _setting(row.second),
            "–" if row.time_s is None else _signed(row.time_s, "s"),
            "–" if row.energy_j is None else _signed(row.energy_j, "J"),
        )
    total = (
        f"{found.same} kernels alike, {len(found.kernels)} different; the second plan takes "
        f"{_signed(found.time_s, 's')} and {_signed(found.energy_j, 'J')} an iteration more than the first"
    )
    return Group(table, "", total) if found.kernels else Group("the plans do the same: " + total)


def described_change(found: ContextChange) -> RenderableType:
    """Where the state of the energies changes the plan."""
    return Group("", rich_table(context_table(found)))


def about(workload: str, device: str, origin: str, what: str) -> Text:
    """The line above a result: of what, on what, and where the numbers come from."""
    return Text.assemble((workload, "bold"), f" on {device}: {what} (numbers: {origin})")


def _columns(*headings: str) -> RichTable:
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def rich_table(table: Table) -> RenderableType:
    """A table as it is shown in a terminal."""
    shown = RichTable(box=None, pad_edge=False, header_style="bold")
    for column in table.columns:
        shown.add_column(column.title, justify="right" if column.numeric else "left", overflow="fold")
    for group, rows in groupby(table.rows, key=lambda row: row.group):
        if group is not None:
            shown.add_row(Text(group, style="bold cyan"))
        for row in rows:
            shown.add_row(*(Text(("  " if group and not place else "") + text) for place, text in enumerate(row.texts)))
    notes = dict.fromkeys(row.note for row in table.rows if row.note)
    return Group(shown, *(Text(note, style="yellow") for note in (*notes, table.note) if note))


def _setting(setting: Setting | None) -> Text:
    return Text("not in it" if setting is None else str(setting))


def _signed(value: float, unit: str) -> str:
    return ("+" if value > 0 else "") + quantity(value, unit)
