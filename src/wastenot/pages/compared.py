"""What a page's first number rests on, drawn: the default and the choice, their values, and the difference between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wastenot.pages.figure import inline, layered, words
from wastenot.pages.formatting import change, digits_within, quantity
from wastenot.pages.optional_imports import load

_WIDTH, _HEIGHT = 350, 104
_NAME_WIDTH = 140
_DEFAULT, _CHOICE = "#e08a00", "#2f6fde"
_TITLES = "energy of an iteration", "time of an iteration"


@dataclass(frozen=True, slots=True)
class Compared:
    """A quantity of both.

    Attributes:
        title: of the quantity, with its unit.
        default: its value at the default.
        choice: its value with the choice.
        texts: both values in words.
        difference: between them, in words.
        interval: that holds the value with the choice; ``None`` where it is not known.
    """

    title: str
    default: float
    choice: float
    texts: tuple[str, str]
    difference: str
    interval: tuple[float, float] | None = None


def compared_iteration(
    energy_j: float, time_s: float, changes: tuple[float, float], within: tuple[float, float] | None,
    time_within: tuple[float, float] | None = None, *, titles: tuple[str, str] = _TITLES, digits: int | None = None,
) -> list[Compared]:  # fmt: skip
    """Energy and time of an iteration, or of a token.

    Args:
        energy_j: at the default clocks.
        time_s: likewise.
        changes: of energy and of time, by the choice.
        within: interval that holds the change in energy.
        time_within: likewise in time.
        titles: of both, without units.
        digits: of the change in energy after the decimal point; by default those that its interval allows.
    """
    energy, time = changes
    return [
        _scaled(titles[0], energy_j, "J", energy, within, digits_within(within) if digits is None else digits),
        _scaled(titles[1], time_s, "s", time, time_within, 2 if abs(time) < 0.01 else 1),
    ]


def _scaled(
    what: str, default: float, unit: str, changed: float, within: tuple[float, float] | None, digits: int
) -> Compared:
    """A quantity in the prefix that suits it."""
    factor, prefix = (1e-3, "k") if default >= 1e4 else (1.0, "") if default >= 1.0 else (1e3, "m")
    return Compared(
        f"{what}, {prefix}{unit}",
        factor * default,
        factor * default * (1.0 + changed),
        (quantity(default, unit), quantity(default * (1.0 + changed), unit)),
        change(changed, digits),
        None if within is None else (factor * default * (1.0 + within[0]), factor * default * (1.0 + within[1])),
    )


def compared_chart(names: tuple[str, str], quantities: Sequence[Compared]) -> Any:
    """A panel for each quantity, side by side: both values as dots in rows of their own, the difference between them.

    Args:
        names: of the default and the choice.
        quantities: to compare; axes need not begin at 0.
    """
    alt = load("altair")
    panels = [_panel(names, each, named=each is quantities[0]) for each in quantities]
    return alt.hconcat(*panels, spacing=30).resolve_scale(x="independent")


def _panel(names: tuple[str, str], shown: Compared, *, named: bool) -> Any:
    alt = load("altair")
    ends = (shown.default, shown.choice, *(shown.interval or ()))
    room = 0.45 * (max(ends) - min(ends)) or 0.05 * abs(shown.default) or 1.0
    scale = alt.Scale(domain=[min(ends) - room, max(ends) + room], nice=False, zero=False)
    x = alt.X("value:Q", title=shown.title, scale=scale, axis=alt.Axis(tickCount=4))
    axis = alt.Axis(labels=named, ticks=False, domain=False, grid=False, labelFontSize=12, labelLimit=_NAME_WIDTH)
    y = alt.Y("name:N", title=None, sort=list(names), axis=axis)
    rows = [
        {"name": name, "value": value, "text": text, "color": color}
        for name, value, text, color in zip(
            names, (shown.default, shown.choice), shown.texts, (_DEFAULT, _CHOICE), strict=True
        )
    ]
    low, high = shown.interval or (shown.choice, shown.choice)
    middle = {"name": names[1], "value": (shown.default + shown.choice) / 2, "text": shown.difference}
    arrow = {"name": names[1], "value": shown.default, "end": shown.choice}
    dots = alt.Chart(inline(rows)).encode(x=x, y=y)
    return layered(
        alt.Chart(inline([{"value": shown.default}])).mark_rule(style="rule").encode(x=x),
        alt.Chart(inline([arrow])).mark_rule(strokeWidth=3, opacity=0.45, color=_CHOICE, strokeDash=[1, 0]).encode(
            x=x, x2=alt.X2("end:Q"), y=y
        ),
        alt.Chart(inline([{"name": names[1], "value": low, "end": high}])).mark_rule(style="interval").encode(
            x=x, x2=alt.X2("end:Q"), y=y
        ),
        dots.mark_circle(size=110, opacity=1, stroke=None).encode(color=alt.Color("color:N", scale=None)),
        *words(dots.encode(text=alt.Text("text:N")), baseline="top", dy=8),
        *words(alt.Chart(inline([middle])).encode(x=x, y=y, text=alt.Text("text:N")), baseline="bottom", dy=-6),
    ).properties(width=_WIDTH, height=_HEIGHT)  # fmt: skip
