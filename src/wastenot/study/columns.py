"""The columns of a sweep, on file and in the store: their names, which must be there, what numbers may be."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from wastenot.errors import BadInputError
from wastenot.study.sweep import FloatArray

LARGEST_COUNT = 2**53
"""The largest count that a float64, and so every reader of our files, holds exactly."""


class Range(Enum):
    """The values that a number may take; the text of each completes "must be ..."."""

    POSITIVE = "a finite number above 0"
    NOT_NEGATIVE = "a finite number, 0 or more"
    FINITE = "a finite number"

    def allows(self, values: FloatArray) -> NDArray[np.bool_]:
        """Which values are inside; NaN, which stands for an empty field, is not."""
        inside = np.isfinite(values)
        if self is Range.POSITIVE:
            return np.asarray(inside & (values > 0))
        if self is Range.NOT_NEGATIVE:
            return np.asarray(inside & (values >= 0))
        return inside


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """A column of numbers; an attribute of ``Sweep`` has the same name.

    Attributes:
        name: of the column.
        range: what its values may be.
        empty: what an empty field means; ``None`` where a field must not be empty.
    """

    name: str
    range: Range
    empty: str | None


NUMBERS = (
    NumberColumn("core_mhz", Range.POSITIVE, "auto"),
    NumberColumn("memory_mhz", Range.POSITIVE, "auto"),
    NumberColumn("time_s", Range.POSITIVE, None),
    NumberColumn("energy_j", Range.POSITIVE, None),
    NumberColumn("power_limit_w", Range.POSITIVE, "auto"),
    NumberColumn("time_se_s", Range.NOT_NEGATIVE, "absent"),
    NumberColumn("energy_se_j", Range.NOT_NEGATIVE, "absent"),
    NumberColumn("effective_core_mhz", Range.POSITIVE, "absent"),
    NumberColumn("effective_memory_mhz", Range.POSITIVE, "absent"),
    NumberColumn("calls", Range.POSITIVE, "absent"),
    NumberColumn("temperature_c", Range.FINITE, "absent"),
)

SETTING = ("core_mhz", "memory_mhz", "power_limit_w")
REQUIRED = ("kernel", "count", "core_mhz", "memory_mhz", "time_s", "energy_j")
OPTIONAL = (
    "power_limit_w",
    "pass",
    "block",
    "time_se_s",
    "energy_se_j",
    "effective_core_mhz",
    "effective_memory_mhz",
    "calls",
    "temperature_c",
)
ALL = REQUIRED + OPTIONAL


def check_header(names: list[str], where: str) -> None:
    """Refuse a header that has an unknown, a doubled or a missing column.

    Args:
        names: the column names of the file, in its order.
        where: file and line of the header, for the message.

    Raises:
        BadInputError: says which column is wrong and what would be right.
    """
    for position, name in enumerate(names):
        if name in names[:position]:
            raise BadInputError(f"{where}: {name}: this column is there twice; keep one of the two")
    for name in names:
        if name not in ALL:
            raise BadInputError(f"{where}: {shown(name)}: {_unknown(name)}")
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise BadInputError(
            f"{where}: {missing[0]}: this column is missing; a sweep needs the columns {', '.join(REQUIRED)}"
        )


def shown(text: str) -> str:
    """A text from a file as a message shows it: quoted, on one line, not longer than a line bears."""
    quoted = repr(text if len(text) <= 60 else text[:57] + "...")
    return quoted if len(quoted) <= 90 else quoted[:86] + "...'"


def _unknown(name: str) -> str:
    for separator, called in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
        if separator in name:
            return f"the fields seem to be separated by {called}; separate them by commas"
    nearest = get_close_matches(name.strip().lower(), ALL, n=1)
    suggestion = f"did you mean {nearest[0]}?" if nearest else "remove it."
    return f"unknown column; {suggestion} Allowed are {', '.join(ALL)}"
