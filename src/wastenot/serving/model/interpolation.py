"""Between the knots of a table of steps: the one way in which all of serving reads it.

            columns  j   across →   j + 1
    rows  i          ┌────────────────┐
    along ↓          │                │        cells lie one after the other in an array or a list: ``at`` is that of
        i + 1        └────────────────┘        (i, j), the next row begins ``down`` further on, the next column ``right``

The functions are plain Python: numbers of a table are read with them as they are, simulators and policies compile them
(:mod:`wastenot.serving.model.step_costs`). None calls another, as compiled code could not follow that.
"""

from __future__ import annotations

from typing import Any

Values = Any
"""An array or a list of numbers, or an array whose rows are those of several settings."""


def interval_of(knots: Values, at: int, count: int, value: float, hint: int) -> int:
    """The interval between knots that a value lies in; -1 beyond the knots, and 0 where there is a single one.

    Args:
        knots: ascending.
        at: index of the first.
        count: of them.
        value: to be found; on a knot, it lies in the interval that begins there, on the last knot in the last interval.
        hint: the interval to look at first, at least 0.
    """
    last = count - 1
    if not knots[at] <= value <= knots[at + last]:
        return -1
    while hint > 0 and knots[at + hint] > value:
        hint -= 1
    while hint < last - 1 and knots[at + hint + 1] <= value:
        hint += 1
    return hint


def fraction(knots: Values, at: int, count: int, value: float, interval: int) -> float:
    """How far along an interval a value lies, from 0 to 1; 0 where there is a single knot."""
    if count == 1:
        return 0.0
    low = knots[at + interval]
    return (value - low) / (knots[at + interval + 1] - low)  # type: ignore[no-any-return]


def bilinear(cells: Values, at: int, down: int, right: int, along: float, across: float) -> Any:
    """The value inside a cell; on a knot, the one beyond it does not count, as it may be NaN or not exist."""
    if along == 1.0:
        at += down
    if across == 0.0:
        upper = cells[at]
    elif across == 1.0:
        upper = cells[at + right]
    else:
        upper = cells[at] * (1 - across) + cells[at + right] * across
    if along in (0.0, 1.0):
        return upper
    at += down
    if across == 0.0:
        lower = cells[at]
    elif across == 1.0:
        lower = cells[at + right]
    else:
        lower = cells[at] * (1 - across) + cells[at + right] * across
    return upper * (1 - along) + lower * along
