"""What a run did in each pass: power and core clock, at the plan's clocks and at the default ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wastenot.control.marker import ITERATION
from wastenot.control.page.time_line_figure import COLORS, DEFAULT, PLAN, arm_color, figure_of
from wastenot.control.status import Moment, Summary
from wastenot.pages.figure import Figure, inline, layered, tooltips
from wastenot.pages.formatting import SPACE
from wastenot.pages.optional_imports import load

_WIDTH = 370
_ORDER = ("embedding", "forward", "loss", "backward", "optimizer")  # others come before, as they were met
_FEWEST = 3  # readings behind a mean
_BAR = 11


def passes_figure(summary: Summary) -> Figure:
    """Mean power and core clock by pass, of the readings of the time line."""
    rows = means_by_pass(summary.time_line, summary.status.rungs - 1)
    title = "Power and clock of each pass"
    if not rows:
        return figure_of(summary, "passes", title, f"No pass has at least {_FEWEST} readings.")
    note = (
        "Means of the first GPU's readings during the pass. If a pass is shorter than the averaging time of the "
        "sensor, the power of neighbouring passes is mixed in."
    )
    return figure_of(summary, "passes", title, note, _chart(rows))


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


def _chart(rows: Sequence[dict[str, object]]) -> Any:
    alt = load("altair")
    names = list(dict.fromkeys(row["pass"] for row in rows))
    panels = []
    for field, title, unit in (("power", "mean power, W", "W"), ("core", "mean core clock, MHz", "MHz")):
        known = [row | {"text": f"{row[field]:,.0f}{SPACE}{unit}"} for row in rows if field in row]
        if not known:
            continue
        base = alt.Chart(inline(known)).encode(
            y=alt.Y("pass:N", sort=names, title=None, axis=alt.Axis(labelLimit=90, ticks=False, domain=False)),
            yOffset=alt.YOffset("arm:N", sort=list(COLORS), scale=alt.Scale(paddingOuter=0.2)),
            tooltip=tooltips({"pass:N": "pass", "arm:N": " ", f"{field}:Q": title, "readings:Q": "readings"}),
        )
        most = max(float(str(row[field])) for row in known)
        x = alt.X(
            f"{field}:Q", title=title, scale=alt.Scale(domain=[0.0, 1.25 * most], nice=False), axis=alt.Axis(tickCount=5)
        )
        bars = base.mark_bar(height=_BAR).encode(x=x, color=arm_color())
        text = base.mark_text(style="small-label", align="left", dx=4).encode(x=x, text=alt.Text("text:N"))
        panels.append(layered(bars, text).properties(width=_WIDTH, height=alt.Step(_BAR + 4)))
    return alt.hconcat(*panels, spacing=24)
