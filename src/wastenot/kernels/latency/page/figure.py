"""Latency by start and target: a map of colours for each kind of switch."""

from __future__ import annotations

from typing import Any

from wastenot.kernels.latency.page.tables import NAMES, UNITS
from wastenot.pages.figure import Figure, inline, layered, specification_of, tooltips
from wastenot.pages.optional_imports import load
from wastenot.planning.latency import Latency, TargetLatency, What

_CELL = 64
_DARK = 0.5  # fraction of the range of colours from which on text is white


def latency_figures(found: Latency) -> list[Figure]:
    """A figure for each kind of switch that has at least two starts or targets."""
    figures = []
    for what in NAMES:
        pairs = [each for each in found.pairs if each.what == what]
        if len(pairs) > 1:
            figures.append(_figure(found, what, pairs))
    return figures


def _figure(found: Latency, what: What, pairs: list[TargetLatency]) -> Figure:
    title = f"Latency of the {NAMES[what]} by start and target"
    note = (
        "Typical time from the request until it is in effect, in milliseconds. Columns that differ say that the target "
        "matters, rows that differ that the start does. Pairs without a colour cannot be told apart."
    )
    return Figure(f"latency-{what.replace('_', '-')}", title, found.device, note, specification_of(_chart(what, pairs)))


def _chart(what: What, pairs: list[TargetLatency]) -> Any:
    alt = load("altair")
    values = sorted({value for each in pairs for value in (each.start, each.target) if value is not None})
    high = max(each.seconds for each in pairs)
    rows = [
        {
            "start": f"{each.start:g}",
            "target": f"{each.target:g}",
            "ms": 1e3 * each.seconds,
            "text": f"{1e3 * each.seconds:.3g}",
            "error": 1e3 * each.error_s,
            "switches": each.switches,
            "outliers": each.outliers,
            "dark": each.seconds > _DARK * high,
        }
        for each in pairs
    ]
    order = [f"{value:g}" for value in values]
    side = _CELL * len(order)
    x = alt.X("target:O", title=f"to, {UNITS[what]}", sort=order, scale=alt.Scale(domain=order), axis=alt.Axis(labelAngle=0))
    y = alt.Y("start:O", title=f"from, {UNITS[what]}", sort=order[::-1], scale=alt.Scale(domain=order[::-1]))
    color = alt.Color("ms:Q", title="ms", scale=alt.Scale(scheme="blues", domain=[0.0, 1e3 * high]), legend=None)
    tips = tooltips(
        {
            "start:O": "from",
            "target:O": "to",
            "ms:Q": "ms",
            "error:Q": "± ms",
            "switches:Q": "switches",
            "outliers:Q": "outliers",
        }
    )
    chart = alt.Chart(inline(rows))
    cells = chart.mark_rect(stroke="white", strokeWidth=2).encode(x=x, y=y, color=color, tooltip=tips)
    ink = alt.condition("datum.dark", alt.value("white"), alt.value("#222222"))
    texts = chart.mark_text(fontSize=12).encode(x=x, y=y, text=alt.Text("text:N"), color=ink)
    return layered(cells, texts).properties(width=side, height=side)
