"""What a plan's clocks give at other batch sizes or parallel degrees (paper, Figs. 7 and 8)."""

from __future__ import annotations

from typing import Any

from wastenot.kernels.page.plan_figure import SAVED, SLOWDOWN, saved, slowdown
from wastenot.kernels.run.interleaved import Transfer
from wastenot.pages.figure import Figure, inline, specification_of
from wastenot.pages.formatting import percent
from wastenot.pages.optional_imports import load

_WIDTH, _STEP = 420, 34
_COLORS = {SLOWDOWN: "#e08a00", SAVED: "#2f6fde"}


def transfer_figure(transfer: Transfer, name: str, title: str, labels: tuple[str, ...], axis: str) -> Figure:
    """Slowdown and energy saved, side by side, with a row for each label.

    Args:
        transfer: the measurements.
        name: stem of the figure's files.
        title: of the figure.
        labels: one for each row, in order.
        axis: title of the axis that they are on.
    """
    rows = [
        {
            "label": label,
            "value": drawn(change.mean),
            "low": min(ends),
            "high": max(ends),
            "what": what,
            "text": f"{percent(drawn(change.mean) / 100, 3, sign=True)}, all pairs {percent(min(ends) / 100, sign=True)} to "
            f"{percent(max(ends) / 100, sign=True)}",
        }
        for label, row in zip(labels, transfer.rows, strict=True)
        for what, drawn, change in ((SLOWDOWN, slowdown, row.time_change), (SAVED, saved, row.energy_change))
        for ends in [(drawn(change.least_pair), drawn(change.greatest_pair))]
    ]
    note = (
        f"The clocks planned for {transfer.planned}, measured {transfer.repeats} times, interleaved with auto. "
        "Points: means; bars: range over all pairs of a run of the plan and a run at auto."
    )
    subtitle = f"{transfer.planned} on {transfer.device} · {transfer.origin} numbers"
    return Figure(name, title, subtitle, note, specification_of(_chart(rows, labels, axis)))


def _chart(rows: list[dict[str, object]], labels: tuple[str, ...], axis: str) -> Any:
    alt = load("altair")
    charts = []
    for what, color in _COLORS.items():
        y = alt.Y("label:O", title=axis, sort=list(labels))
        base = alt.Chart(inline([row for row in rows if row["what"] == what])).encode(y=y)
        scale = alt.Scale(zero=False, padding=24, nice=True)
        bars = base.mark_rule(strokeWidth=2, color=color, strokeDash=[1, 0]).encode(
            x=alt.X("low:Q", title=what, scale=scale), x2=alt.X2("high:Q")
        )
        points = base.mark_point(filled=True, size=110, color=color).encode(
            x=alt.X("value:Q", title=what, scale=scale), tooltip=[alt.Tooltip("text:N", title=what)]
        )
        charts.append((bars + points).properties(width=_WIDTH, height=alt.Step(_STEP)))
    together = alt.hconcat(*charts)
    return together.resolve_scale(x="independent")
