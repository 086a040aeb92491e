"""The clock after heavy work has ended: what makes natural measurements possible."""

from __future__ import annotations

from typing import Any

import numpy as np

from wastenot.kernels.natural.overview import NaturalOverview, Wake
from wastenot.kernels.natural.page.curve_figures import colors_of, subtitle
from wastenot.pages.figure import Figure, inline, layered, series_color, specification_of, tooltips
from wastenot.pages.optional_imports import load

_BIN_S, _LONGEST_S = 0.004, 0.2
_MOST_KERNELS = 6
_MOST_POINTS = 1500
_WIDTH, _HEIGHT, _AXIS_ROOM = 900, 280, 50


def wake_figure(overview: NaturalOverview) -> Figure:
    """The clock by the time since products ended, while other kernels run."""
    title, stem = "The clock after products have ended", "natural-wake"
    wakes = [each for each in overview.wakes if len(each.since_s) and np.ptp(each.core_mhz) > 0.0][:_MOST_KERNELS]
    if not wakes:
        return Figure(stem, title, subtitle(overview), "No kernel was run in the wake of products.", None)
    note = (
        "Products bring the power regulator down; it lets the clock rise again only some time after they have ended. What "
        "runs meanwhile is measured at every clock in between. Points: groups of calls, clocks by counting cycles. Lines: "
        "medians."
    )
    return Figure(stem, title, subtitle(overview), note, specification_of(_chart(wakes)))


def _chart(wakes: list[Wake]) -> Any:
    """Every group of calls as a point, and the medians as a line for each kernel."""
    alt = load("altair")
    colors = colors_of([wake.kernel for wake in wakes])
    color = series_color("kernel:N", colors, columns=_MOST_KERNELS)
    x = alt.X("ms:Q", title="since the products ended, ms", scale=alt.Scale(domain=[0, 1e3 * _LONGEST_S]))
    y = alt.Y("ghz:Q", title="SM clock, GHz", scale=alt.Scale(zero=False))
    points = alt.Chart(inline(_points(wakes))).mark_circle(size=14, opacity=0.45, clip=True).encode(x=x, y=y, color=color)
    lines = (
        alt.Chart(inline([row for wake in wakes for row in _medians(wake)]))
        .mark_line(strokeWidth=2.2, clip=True)
        .encode(x=x, y=y, color=color, tooltip=tooltips({"kernel:N": "kernel", "ms:Q": "ms", "ghz:Q": "GHz"}))
    )
    return layered(points, lines).properties(width=_WIDTH, height=_HEIGHT)


def _points(wakes: list[Wake]) -> list[dict[str, object]]:
    step = max(1, sum(len(wake.since_s) for wake in wakes) // _MOST_POINTS)
    return [
        {"kernel": wake.kernel, "ms": 1e3 * since, "ghz": mhz / 1e3}
        for wake in wakes
        for since, mhz in zip(wake.since_s[::step].tolist(), wake.core_mhz[::step].tolist(), strict=True)
    ]


def _medians(wake: Wake) -> list[dict[str, object]]:
    index = (wake.since_s / _BIN_S).astype(int)
    return [
        {
            "kernel": wake.kernel,
            "ms": 1e3 * _BIN_S * (number + 0.5),
            "ghz": float(np.median(wake.core_mhz[index == number])) / 1e3,
        }
        for number in np.unique(index).tolist()
    ]
