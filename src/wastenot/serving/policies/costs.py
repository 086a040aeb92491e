"""What steps cost at every setting at once: a policy compares all of them each time it is asked."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from wastenot.core.arrays import FloatArray
from wastenot.serving.model.compiled import compiled
from wastenot.serving.model.tables import EngineTables


@dataclass(frozen=True, slots=True, eq=False)
class StepCosts:
    """Times and energies of steps by setting. Beyond the tables their edges hold: a projection must always have an answer.

    Each method takes numbers or arrays of one shape and returns times and energies of shape (settings, *that shape).
    """

    tables: EngineTables
    decode_s: FloatArray = field(init=False, repr=False)
    decode_j: FloatArray = field(init=False, repr=False)
    prefill_s: FloatArray = field(init=False, repr=False)
    prefill_j: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        tables = self.tables
        for name, values in (
            ("decode_s", tables.decode_time_s),
            ("decode_j", tables.decode_energy_j),
            ("prefill_s", tables.prefill_time_s),
            ("prefill_j", tables.prefill_energy_j),
        ):
            object.__setattr__(self, name, _filled(values))

    def decode(self, batch: FloatArray | float, context: FloatArray | float) -> tuple[FloatArray, FloatArray]:
        """Steps that decode ``batch`` sequences of ``context`` tokens on average."""
        tables = self.tables
        return _at((self.decode_s, self.decode_j), batch, tables.batches, context, tables.context_tokens)

    def prefill(self, tokens: FloatArray | float, past: FloatArray | float) -> tuple[FloatArray, FloatArray]:
        """Steps that prefill ``tokens`` on top of ``past`` ones."""
        tables = self.tables
        return _at((self.prefill_s, self.prefill_j), tokens, tables.prefill_tokens, past, tables.past_tokens)

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


def _filled(values: FloatArray) -> FloatArray:
    """Cells that are not known as the last known one before them says; the engine itself never takes such steps."""
    values = np.ascontiguousarray(values, dtype=float)
    if not np.isnan(values).any():
        return values
    filled = values.copy()
    for axis in (2, 1):
        moved = np.moveaxis(filled, axis, 0)
        for index in range(1, len(moved)):
            moved[index] = np.where(np.isnan(moved[index]), moved[index - 1], moved[index])
    return filled


def _at(
    tables: tuple[FloatArray, FloatArray], row: FloatArray | float, rows: FloatArray, column: FloatArray | float,
    columns: FloatArray,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """Two tables, of shape (settings, rows, columns), between their knots."""
    if np.ndim(row) or np.ndim(column):
        one, other = np.broadcast_arrays(np.asarray(row, dtype=float), np.asarray(column, dtype=float))
        shape = one.shape
    else:
        one, other, shape = np.array([row], dtype=float), np.array([column], dtype=float), ()
    times, energies = _interpolate(*tables, one.ravel(), rows, other.ravel(), columns)
    return times.reshape(-1, *shape), energies.reshape(-1, *shape)


def _interpolated(
    first: FloatArray, second: FloatArray, row: FloatArray, rows: FloatArray, column: FloatArray, columns: FloatArray
) -> tuple[FloatArray, FloatArray]:
    settings, count = first.shape[0], len(row)
    times, energies = np.empty((settings, count)), np.empty((settings, count))
    for place in range(count):
        i, j, along, across = 0, 0, 0.0, 0.0
        if len(rows) > 1:
            value = min(max(row[place], rows[0]), rows[-1])
            i = min(np.searchsorted(rows, value, side="right") - 1, len(rows) - 2)
            along = (value - rows[i]) / (rows[i + 1] - rows[i])
        if len(columns) > 1:
            value = min(max(column[place], columns[0]), columns[-1])
            j = min(np.searchsorted(columns, value, side="right") - 1, len(columns) - 2)
            across = (value - columns[j]) / (columns[j + 1] - columns[j])
        below, right = min(i + 1, len(rows) - 1), min(j + 1, len(columns) - 1)
        for setting in range(settings):
            for table, result in ((first, times), (second, energies)):
                upper = table[setting, i, j] * (1 - across) + table[setting, i, right] * across
                lower = table[setting, below, j] * (1 - across) + table[setting, below, right] * across
                result[setting, place] = upper * (1 - along) + lower * along
    return times, energies


def _interpolated_by_numpy(
    first: FloatArray, second: FloatArray, row: FloatArray, rows: FloatArray, column: FloatArray, columns: FloatArray
) -> tuple[FloatArray, FloatArray]:
    at, across = _place(row, rows), _place(column, columns)
    return _between(first, at, across), _between(second, at, across)


_compiled = compiled(_interpolated)
_interpolate = _interpolated_by_numpy if _compiled is _interpolated else _compiled


def _place(value: FloatArray | float, knots: FloatArray) -> tuple[np.ndarray, FloatArray]:
    within: FloatArray = np.asarray(np.clip(np.asarray(value, dtype=float), knots[0], knots[-1]))
    if len(knots) == 1:
        return np.zeros(within.shape, dtype=np.intp), np.zeros(within.shape)
    index = np.minimum(np.searchsorted(knots, within, side="right") - 1, len(knots) - 2)
    return index, (within - knots[index]) / (knots[index + 1] - knots[index])


def _between(values: FloatArray, row: tuple[np.ndarray, FloatArray], column: tuple[np.ndarray, FloatArray]) -> FloatArray:
    (i, along), (j, across) = row, column
    below, right = np.minimum(i + 1, values.shape[1] - 1), np.minimum(j + 1, values.shape[2] - 1)
    upper = values[:, i, j] * (1 - across) + values[:, i, right] * across
    lower = values[:, below, j] * (1 - across) + values[:, below, right] * across
    return np.asarray(upper * (1 - along) + lower * along)
