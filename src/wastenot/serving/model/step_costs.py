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
from wastenot.serving.model.engine_tables import EngineTables, several_prompts

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
    every = several_prompts(tables)
    return FlatTables(*(_column(filled(getattr(every, name))) for name in FlatTables._fields))


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
def _cell(rows: Column, columns: Column, row: float, column: float, i: int, j: int) -> tuple[int, int, float, float]:
    """The cell of a row and a column, looked for from cell (i, j) on, and where in it they lie; else the edge."""
    down, right = len(rows), len(columns)
    row, column = min(max(row, rows[0]), rows[down - 1]), min(max(column, columns[0]), columns[right - 1])
    i, j = interval_of(rows, 0, down, row, i), interval_of(columns, 0, right, column, j)
    return i, j, fraction(rows, 0, down, row, i), fraction(columns, 0, right, column, j)


@inlined
def _within(
    rows: Column, columns: Column, times: Column, energies: Column, setting: int, row: float, column: float
) -> tuple[float, float]:
    """Two values between the knots of rows and columns, at a setting; beyond them those of the edge."""
    right = len(columns)
    i, j, along, across = _cell(rows, columns, row, column, 0, 0)
    at = (setting * len(rows) + i) * right + j
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
        object.__setattr__(self, "tables", tables := several_prompts(self.tables))
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
        steps, shape = _points(tokens, past, batch, context)
        return self._mixed(0, steps, shape), self._mixed(1, steps, shape)

    def mixed_s(
        self, tokens: FloatArray | float, past: FloatArray | float, batch: FloatArray | float, context: FloatArray | float
    ) -> FloatArray:
        """The times of :meth:`mixed` alone."""
        return self._mixed(0, *_points(tokens, past, batch, context))

    def _mixed(self, which: int, steps: FloatArray, shape: tuple[int, ...]) -> FloatArray:
        tables, prefill, decode = self.tables, self._prefill[which], self._decode[which]
        values = np.empty((prefill.shape[1], steps.shape[1]))
        _mix(
            prefill.ravel(), decode.ravel(), steps, tables.prefill_tokens, tables.past_tokens, tables.batches,
            tables.context_tokens, values,
        )  # fmt: skip
        return values.reshape(-1, *shape)


def _by_cell(values: FloatArray) -> FloatArray:
    """A table with all cells known, of shape (cells, settings)."""
    known = filled(values)
    return np.ascontiguousarray(known.reshape(len(known), -1).T)


def _at(
    tables: tuple[FloatArray, FloatArray], row: FloatArray | float, rows: FloatArray, column: FloatArray | float,
    columns: FloatArray,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """Two tables, of shape (cells, settings), between their knots."""
    points, shape = _points(row, column)
    times, energies = np.empty((2, tables[0].shape[1], points.shape[1]))
    _interpolate(tables[0].ravel(), tables[1].ravel(), points, rows, columns, times, energies)
    return times.reshape(-1, *shape), energies.reshape(-1, *shape)


def _points(*columns: FloatArray | float) -> tuple[FloatArray, tuple[int, ...]]:
    """Numbers or arrays as columns of points, shape (columns, points), and the shape of the arrays."""
    if not any(isinstance(each, np.ndarray) for each in columns):  # as a policy asks most of the time
        return np.array(columns, dtype=float).reshape(-1, 1), ()
    arrays = np.array(np.broadcast_arrays(*columns), dtype=float)
    return arrays.reshape(len(columns), -1), arrays.shape[1:]


def _interpolated(
    first: FloatArray, second: FloatArray, points: FloatArray, rows: FloatArray, columns: FloatArray, times: FloatArray,
    energies: FloatArray,
) -> None:  # fmt: skip
    """Values at rows and columns, shape (2, points), into arrays of shape (settings, points)."""
    i = j = 0
    width, settings = len(columns), times.shape[0]
    for point in range(points.shape[1]):
        i, j, along, across = _cell(rows, columns, points[0, point], points[1, point], i, j)
        for setting in range(settings):
            at = (i * width + j) * settings + setting
            times[setting, point] = bilinear(first, at, width * settings, settings, along, across)
            energies[setting, point] = bilinear(second, at, width * settings, settings, along, across)


def _mixed_values(
    prefill: FloatArray, decode: FloatArray, steps: FloatArray, prefill_tokens: FloatArray, past_tokens: FloatArray,
    batches: FloatArray, context_tokens: FloatArray, values: FloatArray,
) -> None:  # fmt: skip
    """Times or energies of steps by tokens, past, batch and context, shape (4, points), into shape (settings, points)."""
    i = j = k = m = 0
    width, contexts, settings = len(past_tokens), len(context_tokens), values.shape[0]
    for point in range(steps.shape[1]):
        batch = steps[2, point]
        i, j, along, across = _cell(prefill_tokens, past_tokens, steps[0, point] + batch, steps[1, point], i, j)
        for setting in range(settings):
            at = (i * width + j) * settings + setting
            values[setting, point] = bilinear(prefill, at, width * settings, settings, along, across)
        if batch > 0.0:
            k, m, along, across = _cell(batches, context_tokens, batch, steps[3, point], k, m)
            for setting in range(settings):
                at = k * contexts * settings + setting
                empty = bilinear(decode, at, contexts * settings, settings, along, 0.0)
                full = bilinear(decode, at + m * settings, contexts * settings, settings, along, across)
                values[setting, point] = max(values[setting, point], empty) + full - empty


_interpolate, _mix = compiled(_interpolated, uses=USES), compiled(_mixed_values, uses=USES)
