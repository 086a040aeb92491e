"""What steps cost to those who project: an engine's tables without gaps or edges, for NumPy at once or for compiled code.

Simulators ask only for steps that the tables have, and refuse others. A projection must always have an answer: for it, cells
that are not known are filled (:func:`filled`), and beyond the tables their edges hold. Both forms read the same cells by the
same interpolation:

    EngineTables ──filled──┬──► StepCosts     many steps at every setting at once, as a policy compares them
                           └──► FlatTables    a step at one setting, inside compiled code (``…_within``)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.serving.model import interpolation
from wastenot.serving.model.compiled import COMPILED, compiled, compiled_inside
from wastenot.serving.model.engine_tables import EngineTables

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


class FlatTables(NamedTuple):
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
def flat_tables(tables: EngineTables) -> FlatTables:
    """The tables with every cell known, as projections have them."""
    return FlatTables(*(_column(filled(getattr(tables, name))) for name in FlatTables._fields))


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
def _within(
    rows: Column, columns: Column, times: Column, energies: Column, setting: int, row: float, column: float
) -> tuple[float, float]:
    """Two values between the knots of rows and columns, at a setting; beyond them those of the edge."""
    down, right = len(rows), len(columns)
    row, column = min(max(row, rows[0]), rows[down - 1]), min(max(column, columns[0]), columns[right - 1])
    i, j = interval_of(rows, 0, down, row, 0), interval_of(columns, 0, right, column, 0)
    along, across = fraction(rows, 0, down, row, i), fraction(columns, 0, right, column, j)
    at = (setting * down + i) * right + j
    return bilinear(times, at, right, 1, along, across), bilinear(energies, at, right, 1, along, across)


@inlined
def prefill_within(table: FlatTables, setting: int, tokens: float, past: float) -> tuple[float, float]:
    """Time and energy of a step that prefills ``tokens`` on top of ``past`` ones."""
    times, energies = table.prefill_time_s, table.prefill_energy_j
    return _within(table.prefill_tokens, table.past_tokens, times, energies, setting, tokens, past)


@inlined
def decode_within(table: FlatTables, setting: int, batch: float, context: float) -> tuple[float, float]:
    """Time and energy of a step that decodes ``batch`` sequences of ``context`` tokens on average."""
    times, energies = table.decode_time_s, table.decode_energy_j
    return _within(table.batches, table.context_tokens, times, energies, setting, batch, context)


@inlined
def mixed_within(
    table: FlatTables, setting: int, tokens: float, past: float, batch: float, context: float
) -> tuple[float, float]:
    """Time and energy of a step that does both, as :meth:`EngineTables.mixed` has it; with an empty batch it prefills."""
    together_s, together_j = prefill_within(table, setting, tokens + batch, past)
    if batch == 0.0:
        return together_s, together_j
    empty_s, empty_j = decode_within(table, setting, batch, table.context_tokens[0])
    full_s, full_j = decode_within(table, setting, batch, context)
    return max(together_s, empty_s) + full_s - empty_s, max(together_j, empty_j) + full_j - empty_j


@dataclass(frozen=True, slots=True, eq=False)
class StepCosts:
    """Times and energies of steps by setting. Beyond the tables their edges hold: a projection must always have an answer.

    Each method takes numbers or arrays of one shape and returns times and energies of shape (settings, *that shape).
    """

    tables: EngineTables
    _decode: tuple[FloatArray, FloatArray] = field(init=False, repr=False)
    _prefill: tuple[FloatArray, FloatArray] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        tables = self.tables
        object.__setattr__(self, "_decode", (_by_cell(tables.decode_time_s), _by_cell(tables.decode_energy_j)))
        object.__setattr__(self, "_prefill", (_by_cell(tables.prefill_time_s), _by_cell(tables.prefill_energy_j)))

    def decode(self, batch: FloatArray | float, context: FloatArray | float) -> tuple[FloatArray, FloatArray]:
        """Steps that decode ``batch`` sequences of ``context`` tokens on average."""
        tables = self.tables
        return _at(self._decode, batch, tables.batches, context, tables.context_tokens)

    def prefill(self, tokens: FloatArray | float, past: FloatArray | float) -> tuple[FloatArray, FloatArray]:
        """Steps that prefill ``tokens`` on top of ``past`` ones."""
        tables = self.tables
        return _at(self._prefill, tokens, tables.prefill_tokens, past, tables.past_tokens)

    def mixed(
        self, tokens: FloatArray | float, past: FloatArray | float, batch: FloatArray | float, context: FloatArray | float
    ) -> tuple[FloatArray, FloatArray]:
        """Steps that do both, by the rule of :meth:`EngineTables.mixed`; those with an empty batch only prefill."""
        batch, context = np.asarray(batch, dtype=float), np.asarray(context, dtype=float)
        time_s, energy_j = self.prefill(tokens + batch, past)
        least = self.tables.context_tokens[0]
        (empty_s, empty_j), (full_s, full_j) = self.decode(batch, np.full_like(batch, least)), self.decode(batch, context)
        some = batch > 0
        return (
            np.where(some, np.maximum(time_s, empty_s) + full_s - empty_s, time_s),
            np.where(some, np.maximum(energy_j, empty_j) + full_j - empty_j, energy_j),
        )


def _by_cell(values: FloatArray) -> FloatArray:
    """A table with all cells known, of shape (cells, settings)."""
    known = filled(values)
    return np.ascontiguousarray(known.reshape(len(known), -1).T)


def _at(
    tables: tuple[FloatArray, FloatArray], row: FloatArray | float, rows: FloatArray, column: FloatArray | float,
    columns: FloatArray,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """Two tables, of shape (cells, settings), between their knots."""
    one, other = np.broadcast_arrays(np.asarray(row, dtype=float), np.asarray(column, dtype=float))
    times, energies = np.empty((2, one.size, tables[0].shape[1]))
    first, second = (each.ravel() for each in tables)
    _interpolate(first, second, one.ravel(), rows, other.ravel(), columns, times, energies)
    return np.ascontiguousarray(times.T).reshape(-1, *one.shape), np.ascontiguousarray(energies.T).reshape(-1, *one.shape)


def _interpolated(
    first: FloatArray, second: FloatArray, row: FloatArray, rows: FloatArray, column: FloatArray, columns: FloatArray,
    times: FloatArray, energies: FloatArray,
) -> None:  # fmt: skip
    """Values at each of some rows and columns, shape (points,), into arrays of shape (points, settings)."""
    i = j = 0
    down, width, settings = len(rows), len(columns), times.shape[1]
    for point in range(len(row)):
        one = min(max(row[point], rows[0]), rows[down - 1])
        other = min(max(column[point], columns[0]), columns[width - 1])
        i, j = interval_of(rows, 0, down, one, i), interval_of(columns, 0, width, other, j)
        along, across = fraction(rows, 0, down, one, i), fraction(columns, 0, width, other, j)
        for setting in range(settings):
            at = (i * width + j) * settings + setting
            times[point, setting] = bilinear(first, at, width * settings, settings, along, across)
            energies[point, setting] = bilinear(second, at, width * settings, settings, along, across)


_interpolate = compiled(_interpolated, uses=USES)
