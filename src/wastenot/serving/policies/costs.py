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
    down, width, settings = len(rows), len(columns), times.shape[0]
    for point in range(points.shape[1]):
        one = min(max(points[0, point], rows[0]), rows[down - 1])
        other = min(max(points[1, point], columns[0]), columns[width - 1])
        i, j = interval_of(rows, 0, down, one, i), interval_of(columns, 0, width, other, j)
        along, across = fraction(rows, 0, down, one, i), fraction(columns, 0, width, other, j)
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
    down, width, settings = len(prefill_tokens), len(past_tokens), values.shape[0]
    most, contexts = len(batches), len(context_tokens)
    for point in range(steps.shape[1]):
        batch = steps[2, point]
        one = min(max(steps[0, point] + batch, prefill_tokens[0]), prefill_tokens[down - 1])
        other = min(max(steps[1, point], past_tokens[0]), past_tokens[width - 1])
        i, j = interval_of(prefill_tokens, 0, down, one, i), interval_of(past_tokens, 0, width, other, j)
        along, across = fraction(prefill_tokens, 0, down, one, i), fraction(past_tokens, 0, width, other, j)
        for setting in range(settings):
            at = (i * width + j) * settings + setting
            values[setting, point] = bilinear(prefill, at, width * settings, settings, along, across)
        if batch > 0.0:
            one = min(max(batch, batches[0]), batches[most - 1])
            other = min(max(steps[3, point], context_tokens[0]), context_tokens[contexts - 1])
            k, m = interval_of(batches, 0, most, one, k), interval_of(context_tokens, 0, contexts, other, m)
            along, across = fraction(batches, 0, most, one, k), fraction(context_tokens, 0, contexts, other, m)
            for setting in range(settings):
                at = k * contexts * settings + setting
                empty = bilinear(decode, at, contexts * settings, settings, along, 0.0)
                full = bilinear(decode, at + m * settings, contexts * settings, settings, along, across)
                values[setting, point] = max(values[setting, point], empty) + full - empty


_interpolate, _mix = compiled(_interpolated, uses=USES), compiled(_mixed_values, uses=USES)
