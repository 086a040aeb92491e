"""What the power of a burst is a sum of: the unknowns, their values at any position of it, and their prior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from wastenot.core.arrays import FloatArray

CELLS = 2
"""Cells of constant power in each interval at which power is given."""

TAIL_S = np.array([0.0, 1e-5, 3e-5, 6e-5, 1e-4, 2e-4, 4e-4, 8e-4, 1.5e-3, 3e-3, 6e-3, 1.2e-2, 3e-2])
"""Knots of the fall of power after the last execution; from the last of them on the GPU idles."""

TAIL_CELLS = 5
"""Cells of constant power between two of these knots."""

_POINTS = 24  # intervals of a unit at which power is given, and columns of a shape
_LEAST_POINTS = 4  # the same of an execution, at least
_SMOOTHNESS = 3.0  # exponent with which the prior variance of shape_j falls
# Of the level: fine where power rises from idle and the shape is not yet what it will be, then ever coarser.
_FIRST_KNOTS = (*np.arange(0.0, 1.0, 0.1), *np.arange(1.0, 4.0, 0.25), *np.arange(4.0, 8.5, 0.5))
_GROWTH = 1.08
_COARSE_KNOTS = (0.0, 0.2, 0.5, 1.0)
_BROAD_W = 1e3  # standard deviation of what nothing is known about
_FALL_S, _FALL_ERROR = 3e-4, 0.5  # expected time constant of the fall after the last execution, and its error
_FALLEN_S, _LEFT_W = 2e-3, 2.0  # after which power is back at idle, except for so much


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """Columns of unknowns: idle, the tail, then the levels and shapes of each kernel.

    Attributes:
        knots: of each kernel's level, in units; shape (knots,).
        group: executions in a unit of each kernel.
        shapes: columns of each kernel's shape; shape (kernels,).
        first: column of each kernel's first level.
        columns: altogether.
        coarse: whether power comes and goes at once, and levels change slowly.
    """

    knots: tuple[FloatArray, ...]
    group: tuple[int, ...]
    shapes: tuple[int, ...]
    first: tuple[int, ...]
    columns: int
    coarse: bool

    @classmethod
    def of(cls, units: Sequence[int], group: Sequence[int], *, shaped: bool = True, coarse: bool = False) -> Basis:
        """For kernels with a number of units in a run, each of a number of executions; with or without a shape."""
        shapes = [points_in(each) if shaped else 0 for each in group]
        knots, first = [], []
        column = len(TAIL_S)
        for number, its_shapes in zip(units, shapes, strict=True):
            if coarse:
                its_knots = [fraction * number for fraction in _COARSE_KNOTS]
            else:
                its_knots = [knot for knot in _FIRST_KNOTS if knot <= number]
            while its_knots[-1] < number:
                its_knots.append(min(its_knots[-1] * _GROWTH, float(number)))
            knots.append(np.array(its_knots))
            first.append(column)
            column += len(its_knots) + its_shapes
        return cls(tuple(knots), tuple(group), tuple(shapes), tuple(first), column, coarse)

    def rows(self, kernel: int, unit: FloatArray) -> FloatArray:
        """Values of all columns inside units; ``unit`` is the unit's index plus the fraction of it that is done."""
        knots, first, shapes = self.knots[kernel], self.first[kernel], self.shapes[kernel]
        rows = np.zeros((len(unit), self.columns))
        rows[:, 0] = 1.0
        at = np.clip(unit, knots[0], knots[-1])
        left = np.clip(np.searchsorted(knots, at, side="right") - 1, 0, len(knots) - 2)
        fraction = (at - knots[left]) / (knots[left + 1] - knots[left])
        index = np.arange(len(unit))
        rows[index, first + left] = 1.0 - fraction
        rows[index, first + left + 1] += fraction
        if shapes:
            execution = unit * self.group[kernel]
            rows[:, first + len(knots) : first + len(knots) + shapes] = _cosines(execution - np.floor(execution), shapes)
        return rows

    def prior(self, settling: float) -> Prior:
        """The prior, where changes of the level fall off over units with an exponent of ``settling``."""
        fixed, levels, shapes = (np.zeros((self.columns, self.columns)) for _ in range(3))
        fixed[0, 0] = _BROAD_W**-2
        tail = np.arange(1, len(TAIL_S))
        # After the last execution power falls from where its level was, at a speed that is roughly known.
        falls = np.zeros((len(tail), self.columns))
        falls[np.arange(len(tail)), tail] = 1.0
        falls[:, self.first[-1] + len(self.knots[-1]) - 1] = -np.exp(-TAIL_S[:-1] / _FALL_S)
        for knots, first, number in zip(self.knots, self.first, self.shapes, strict=True):
            steps = np.diff(np.eye(len(knots)), axis=0)
            block = slice(first, first + len(knots))
            levels[block, block] += steps.T @ (steps / np.diff(_settled(knots, settling))[:, None])
            fixed[first, first] += _BROAD_W**-2
            columns = first + len(knots) + np.arange(number)
            shapes[columns, columns] = np.arange(1, number + 1) ** _SMOOTHNESS
        if self.coarse:
            fixed += falls.T @ falls / _LEFT_W**2
            falls = falls[:0]
        return Prior(fixed, levels, shapes, falls)


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """Precision matrix of the unknowns' normal prior, in parts.

    Attributes:
        fixed: independent of how much power varies; shape (columns, columns).
        levels: if levels vary by one watt.
        shapes: if shapes vary by one watt.
        falls: rows of the power after the last execution minus what is expected there, if the error of that depends on how
            much levels vary; shape (0 or knots, columns).
    """

    fixed: FloatArray
    levels: FloatArray
    shapes: FloatArray
    falls: FloatArray

    def precision(self, level_w: float, shape_w: float) -> FloatArray:
        """The precision; shape (columns, columns).

        Args:
            level_w: by which the level changes from the first unit to the next ones.
            shape_w: by which power varies inside executions.
        """
        precision = self.levels / level_w**2
        precision += self.fixed
        precision += self.shapes / shape_w**2
        if len(self.falls):
            error_w = _FALL_ERROR * level_w * np.exp(-TAIL_S[:-1] / _FALLEN_S) + _LEFT_W
            precision += self.falls.T @ (self.falls / error_w[:, None] ** 2)
        return precision


def points_in(group: int) -> int:
    """Intervals of an execution at which power is given, if a number of executions are a unit."""
    return max(_POINTS // group, _LEAST_POINTS)


def _cosines(fraction: FloatArray, number: int) -> FloatArray:
    """cos(π j fraction) for j from 1 to ``number``, by recurrence; shape (fractions, number)."""
    values = np.ones((number + 1, len(fraction)))
    values[1] = np.cos(np.pi * fraction)
    for order in range(2, number + 1):
        values[order] = 2.0 * values[1] * values[order - 1] - values[order - 2]
    return values[1:].T


def _settled(knots: FloatArray, settling: float) -> FloatArray:
    """The integral of (1 + x)^-settling up to each knot."""
    if settling == 1.0:
        return np.asarray(np.log1p(knots))
    return np.asarray(-np.expm1((1.0 - settling) * np.log1p(knots)) / (settling - 1.0))


@lru_cache(maxsize=8)
def tail_rows(columns: int) -> FloatArray:
    """Values of the columns in each cell after the last execution: linear between knots."""
    number = len(TAIL_S) - 1
    position = (np.arange(number * TAIL_CELLS) + 0.5) / TAIL_CELLS
    left, fraction = position.astype(np.intp), position - np.floor(position)
    values = np.zeros((len(position), columns))
    values[:, 0] = 1.0
    values[np.arange(len(position)), 1 + left] = 1.0 - fraction
    further = left + 1 < number  # the last moment is idle
    values[np.flatnonzero(further), 2 + left[further]] = fraction[further]
    return values
