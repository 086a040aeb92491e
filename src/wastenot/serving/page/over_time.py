"""Panels below one another over the same time, as all timelines of serving are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wastenot.pages.figure import layered
from wastenot.pages.optional_imports import load

_WIDE = 900
_AXIS = 44  # pixels beside each panel, so that all begin at the same place


def panels_over_time(
    panels: Mapping[str, str], title: str, span: tuple[float, float], draw: Callable[[str, Any, Any], list[Any]],
    *, height: int = 84, ticks: int = 3,
) -> Any:  # fmt: skip
    """A chart of panels, all with the field ``at`` across.

    Args:
        panels: title of each panel, by the field that it shows; clocks (``mhz``) need not begin at 0.
        title: of the axis below the last one.
        span: of that axis, in its unit.
        draw: the layers of a panel, by its field and both axes.
        height: of each, in pixels.
        ticks: about how many, of each.
    """
    alt = load("altair")
    drawn: list[Any] = []
    for field, heading in panels.items():
        last = len(drawn) == len(panels) - 1
        x = alt.X(
            "at:Q", title=title if last else None, scale=alt.Scale(domain=list(span), nice=False),
            axis=alt.Axis(labels=last, ticks=last, grid=False, tickCount=12),
        )  # fmt: skip
        y = alt.Y(
            f"{field}:Q", title=None, scale=alt.Scale(zero=field != "mhz", nice=True),
            axis=alt.Axis(tickCount=ticks, minExtent=_AXIS, maxExtent=_AXIS),
        )  # fmt: skip
        words = alt.TitleParams(heading, anchor="start", fontSize=12, fontWeight="normal", offset=4)
        drawn.append(layered(*draw(field, x, y)).properties(width=_WIDE, height=height, title=words))
    return alt.vconcat(*drawn, spacing=10)
