"""Switching latency as tables, for a terminal or a page."""

from __future__ import annotations

from wastenot.pages.formatting import SPACE, quantity
from wastenot.pages.table import Column, Row, Table
from wastenot.planning.latency import CLEAR, Indistinct, Latency, SwitchCost, TargetLatency, What

NAMES: dict[What, str] = {"core": "core clock", "memory": "memory clock", "power_limit": "power limit"}
UNITS: dict[What, str] = {"core": "MHz", "memory": "MHz", "power_limit": "W"}

_TARGETS = ("To", "Latency", "±", "Jitter", "Longest", "Switches", "Outliers")


def targets_table(found: Latency) -> Table:
    """Latency by target, whatever the start."""
    rows = tuple(_target_row(each) for what in NAMES for each in found.of(what))
    note = (
        "Latency: typical time from the request until it is in effect (geometric mean, outliers left out), with its "
        "standard error. Jitter: standard deviation of its logarithm."
    )
    return Table("By target", (Column("To"), *(Column(title, True) for title in _TARGETS[1:])), rows, note)


def starts_table(found: Latency, what: What) -> Table | None:
    """Latency by start (rows) and target (columns); ``None`` where there is nothing of the kind."""
    pairs = {(each.start, each.target): each for each in found.pairs if each.what == what}
    if not pairs:
        return None
    overlapping = {(each.start, each.target) for each in found.indistinct if each.what == what}
    values = sorted({value for pair in (*pairs, *overlapping) for value in pair if value is not None})
    rows = []
    for start in values:
        cells = []
        for target in values:
            pair = pairs.get((start, target))
            cells.append(quantity(pair.seconds, "s", 3) if pair else "same" if (start, target) in overlapping else "")
        rows.append(
            Row(None, (f"from {start:g}", *cells), (start, *(_seconds(pairs.get((start, target))) for target in values)))
        )
    columns = (Column(f"{UNITS[what]}"), *(Column(f"to {value:g}", True) for value in values))
    note = "same: the workload cannot tell these two apart." if overlapping else None
    return Table(f"{NAMES[what].capitalize()}, by start and target", columns, tuple(rows), note)


def costs_lines(found: Latency) -> tuple[str, ...]:
    """What a switch costs beyond waiting, a line for each kind."""
    return tuple(_cost_line(cost) for cost in found.costs)


def indistinct_lines(found: Latency) -> tuple[str, ...]:
    """What could not be told apart, once for each pair."""
    return tuple(dict.fromkeys(_indistinct_line(each) for each in found.indistinct))


def _target_row(each: TargetLatency) -> Row:
    values = (each.target, each.seconds, each.error_s, each.jitter, each.longest_s, each.switches, each.outliers)
    texts = (
        f"{each.target:g}{SPACE}{UNITS[each.what]}",
        quantity(each.seconds, "s", 3),
        quantity(each.error_s, "s", 2),
        f"{100.0 * each.jitter:.0f}{SPACE}%",
        quantity(each.longest_s, "s", 3),
        f"{each.switches:,}",
        f"{each.outliers:,}",
    )
    return Row(NAMES[each.what], texts, values)


def _seconds(pair: TargetLatency | None) -> float | None:
    return None if pair is None else pair.seconds


def _cost_line(cost: SwitchCost) -> str:
    times = f"{cost.switches:,} switches of the {NAMES[cost.what]}"
    if cost.stall_s > CLEAR * cost.stall_error_s:
        stall = f"kernels pause for {_about(cost.stall_s, cost.stall_error_s, 's')}"
    else:
        most_s = max(cost.stall_s, 0.0) + CLEAR * cost.stall_error_s
        stall = f"kernels do not pause for more than {quantity(most_s, 's', 2)}"
    if cost.energy_j is None or cost.energy_error_j is None:
        return f"{times}: {stall} at each; its energy is not known, for the device does not count energy"
    if abs(cost.energy_j) > CLEAR * cost.energy_error_j:
        return f"{times}: {stall} at each, which uses {_about(cost.energy_j, cost.energy_error_j, 'J')}"
    most_j = max(cost.energy_j, 0.0) + CLEAR * cost.energy_error_j
    return f"{times}: {stall} at each, which uses no more than {quantity(most_j, 'J', 2)}"


def _about(value: float, error: float, unit: str) -> str:
    return f"{quantity(value, unit, 3)} ± {quantity(error, unit, 2)}"


def _indistinct_line(each: Indistinct) -> str:
    return f"{NAMES[each.what]}: {each.reason}; switches between such values are not timed"
