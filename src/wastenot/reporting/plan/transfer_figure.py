"""What a plan's clocks give at other batch sizes or parallel degrees (paper, Figs. 7 and 8)."""

from __future__ import annotations

from typing import Any

from wastenot.reporting.figure import Figure, inline, specification_of
from wastenot.reporting.formatting import percent
from wastenot.reporting.optional_imports import load
from wastenot.tuning.transfer import Transfer

_WIDTH, _HEIGHT = 420, 300


def transfer_figure(transfer: Transfer, name: str, title: str, labels: tuple[str, ...], axis: str) -> Figure:
    """Time saved and energy saved, side by side.

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
            "gain": 100 * -change.mean,
            "low": 100 * -change.greatest_pair,
            "high": 100 * -change.least_pair,
            "what": what,
            "text": f"{percent(-change.mean, 3, sign=True)}, all pairs {percent(-change.greatest_pair, 2, sign=True)} to "
            f"{percent(-change.least_pair, 2, sign=True)}",
        }
        for label, row in zip(labels, transfer.rows, strict=True)
        for what, change in (("time saved", row.time_change), ("energy saved", row.energy_change))
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
    for what, color in (("time saved", "#e08a00"), ("energy saved", "#2f6fde")):
        base = alt.Chart(inline([row for row in rows if row["what"] == what])).encode(
            x=alt.X("label:O", title=axis, sort=list(labels), axis=alt.Axis(labelAngle=0))
        )
        scale = alt.Scale(zero=False, padding=24, nice=True)
        bars = base.mark_rule(strokeWidth=2, color=color, strokeDash=[1, 0]).encode(
            y=alt.Y("low:Q", title=f"{what}, %", scale=scale), y2="high:Q"
        )
        points = base.mark_point(filled=True, size=110, color=color).encode(
            y=alt.Y("gain:Q", title=f"{what}, %", scale=scale), tooltip=[alt.Tooltip("text:N", title=what)]
        )
        charts.append((bars + points).properties(width=_WIDTH, height=_HEIGHT))
    return alt.hconcat(*charts).resolve_scale(y="independent")
