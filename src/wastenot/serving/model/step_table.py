"""The interpolation of tables of steps, compiled, and an engine's tables as compiled policies read them.

Simulators ask only for steps that the tables have, and refuse others. A projection must always have an answer: for it, cells
that are not known are filled (:func:`filled`), and beyond the tables their edges hold (``…_within``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.serving.model import interpolation
from wastenot.serving.model.compiled import COMPILED, compiled_inside
from wastenot.serving.model.tables import EngineTables

Function = TypeVar("Function", bound=Callable[..., Any])
Column = Any
"""An array where the code is compiled, a list where it is not."""


def inlined(function: Function) -> Function:
    """The function, compiled into those that call it, which allocate nothing: a call would take longer than what it does."""
    return cast("Function", compiled_inside(function, nogil=True, error_model="numpy", forceinline=True))


interval_of, fraction = inlined(interpolation.interval_of), inlined(interpolation.fraction)
bilinear = inlined(interpolation.bilinear)
USES = (interpolation.__file__, __file__)
"""Files whose functions are compiled into those of others, which a cache of compiled code has to watch, too."""


class StepTable(NamedTuple):
    """An engine's tables, flat: settings, then rows, then columns. Names are those of :class:`EngineTables`."""

    prefill_tokens: Column
    past_tokens: Column
    prefill_time_s: Column
    prefill_energy_j: Column
    batches: Column
    context_tokens: Column
    decode_time_s: Column
    decode_energy_j: Column
    idle_power_w: Column


@lru_cache(maxsize=16)  # policies are tried on the same engine hundreds of times
def filled_table(tables: EngineTables) -> StepTable:
    """The tables with every cell known, as projections have them."""
    return StepTable(*(_column(filled(getattr(tables, name))) for name in StepTable._fields))


def filled(values: FloatArray) -> FloatArray:
    """Cells that are not known as the last known one before them says; an engine itself never takes such steps."""
    values = np.ascontiguousarray(values, dtype=float)
    if values.ndim < 3 or not np.isnan(values).any():
        return values
    known = values.copy()
    for axis in (2, 1):
        moved = np.moveaxis(known, axis, 0)
        for index in range(1, len(moved)):
            moved[index] = np.where(np.isnan(moved[index]), moved[index - 1], moved[index])
    return known


def _column(values: FloatArray) -> Column:
    flat = np.array(values, dtype=np.float64).ravel()
    return flat if COMPILED else flat.tolist()


@inlined
def prefill_within(table: StepTable, setting: int, tokens: float, past: float) -> tuple[float, float]:
    """Time and energy of a step that prefills ``tokens`` on top of ``past`` ones."""
    rows, columns = len(table.prefill_tokens), len(table.past_tokens)
    tokens = min(max(tokens, table.prefill_tokens[0]), table.prefill_tokens[rows - 1])
    past = min(max(past, table.past_tokens[0]), table.past_tokens[columns - 1])
    i, j = interval_of(table.prefill_tokens, 0, rows, tokens, 0), interval_of(table.past_tokens, 0, columns, past, 0)
    along, across = fraction(table.prefill_tokens, 0, rows, tokens, i), fraction(table.past_tokens, 0, columns, past, j)
    at = (setting * rows + i) * columns + j
    return (
        bilinear(table.prefill_time_s, at, columns, 1, along, across),
        bilinear(table.prefill_energy_j, at, columns, 1, along, across),
    )


@inlined
def decode_within(table: StepTable, setting: int, batch: float, context: float) -> tuple[float, float]:
    """Time and energy of a step that decodes ``batch`` sequences of ``context`` tokens on average."""
    rows, columns = len(table.batches), len(table.context_tokens)
    batch = min(max(batch, table.batches[0]), table.batches[rows - 1])
    context = min(max(context, table.context_tokens[0]), table.context_tokens[columns - 1])
    i, j = interval_of(table.batches, 0, rows, batch, 0), interval_of(table.context_tokens, 0, columns, context, 0)
    along, across = fraction(table.batches, 0, rows, batch, i), fraction(table.context_tokens, 0, columns, context, j)
    at = (setting * rows + i) * columns + j
    return (
        bilinear(table.decode_time_s, at, columns, 1, along, across),
        bilinear(table.decode_energy_j, at, columns, 1, along, across),
    )


@inlined
def mixed_within(
    table: StepTable, setting: int, tokens: float, past: float, batch: float, context: float
) -> tuple[float, float]:
    """Time and energy of a step that does both, as :meth:`EngineTables.mixed` has it; with an empty batch it prefills."""
    together_s, together_j = prefill_within(table, setting, tokens + batch, past)
    if batch == 0.0:
        return together_s, together_j
    empty_s, empty_j = decode_within(table, setting, batch, table.context_tokens[0])
    full_s, full_j = decode_within(table, setting, batch, context)
    return max(together_s, empty_s) + full_s - empty_s, max(together_j, empty_j) + full_j - empty_j
