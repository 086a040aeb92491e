"""What steps cost at every setting at once: a policy compares all of them each time it is asked."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.serving.model.compiled import compiled
from wastenot.serving.model.step_table import USES, bilinear, filled, fraction, interval_of
from wastenot.serving.model.tables import EngineTables


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
