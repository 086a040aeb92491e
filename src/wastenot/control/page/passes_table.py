"""What a run did in each pass: power and core clock, at the plan's clocks and at the default ones."""

from __future__ import annotations

from collections.abc import Sequence

from wastenot.control.marker import ITERATION
from wastenot.control.page.time_line_figure import DEFAULT, PLAN
from wastenot.control.status import Moment, Summary
from wastenot.pages.formatting import SPACE, change
from wastenot.pages.table import Listed, Table, listing

_ORDER = ("embedding", "forward", "loss", "backward", "optimizer")  # others come before, as they were met
_FEWEST = 3  # readings behind a mean


def passes_table(summary: Summary) -> Table | None:
    """Mean power and core clock by pass, of the readings of the time line; ``None`` where no pass was read often enough."""
    means = {(row["pass"], row["arm"]): row for row in means_by_pass(summary.time_line, summary.status.rungs - 1)}

    def mean(name: object, arm: str, field: str) -> float | None:
        value = means.get((name, arm), {}).get(field)
        return None if value is None else float(str(value))

    def power_change(name: object) -> float | None:
        own, usual = (mean(name, arm, "power") for arm in (PLAN, DEFAULT))
        return None if own is None or not usual else own / usual - 1.0

    def column(title: str, arm: str, field: str, unit: str) -> Listed[object]:
        return Listed(title, lambda name: mean(name, arm, field), lambda value: f"{value:,.0f}{SPACE}{unit}")

    columns: tuple[Listed[object], ...] = (
        Listed("Pass", str, numeric=False),
        column("Power", PLAN, "power", "W"),
        column("At the default clocks", DEFAULT, "power", "W"),
        Listed("Change", power_change, lambda value: change(value, 1)),
        column("Core clock", PLAN, "core", "MHz"),
        column("At the default clocks", DEFAULT, "core", "MHz"),
    )
    note = (
        "Means of the first GPU's readings during the pass. If a pass is shorter than the averaging time of the sensor, the "
        "power of neighbouring passes is mixed in."
    )
    names = list(dict.fromkeys(name for name, _ in means))
    return listing("Power and clock of each pass", names, columns, note) if names else None


def means_by_pass(moments: Sequence[Moment], last_rung: int) -> list[dict[str, object]]:
    """A row for each pass, at the plan's and at the default clocks (the last rung): mean power in W, core clock in MHz."""
    seen: dict[tuple[str, bool], list[Moment]] = {}
    for moment in moments:
        name = (moment.marker or "").partition(":")[0]
        if name not in ("", ITERATION):
            seen.setdefault((name, moment.at_default or moment.rung == last_rung), []).append(moment)
    order = sorted(dict.fromkeys(name for name, _ in seen), key=lambda name: _ORDER.index(name) if name in _ORDER else -1)
    rows: list[dict[str, object]] = []
    for name in order:
        for at_default in (False, True):
            of = seen.get((name, at_default), [])
            powers = [each.power_w for each in of if each.power_w is not None]
            clocks = [each.core_mhz for each in of if each.core_mhz is not None]
            if len(of) >= _FEWEST:
                row: dict[str, object] = {"pass": name, "arm": DEFAULT if at_default else PLAN, "readings": len(of)}
                row |= {"power": round(sum(powers) / len(powers), 1)} if powers else {}
                row |= {"core": round(sum(clocks) / len(clocks), 1)} if clocks else {}
                rows.append(row)
    return rows
