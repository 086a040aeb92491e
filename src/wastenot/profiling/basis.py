"""What a burst's power is a sum of: columns of unknowns, their values at any place of it, and what is believed of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from wastenot.arrays import FloatArray

CELLS = 2
"""Stretches of constant power that each stretch which power is told of is cut into."""

TAIL_S = np.array([0.0, 1e-5, 3e-5, 6e-5, 1e-4, 2e-4, 4e-4, 8e-4, 1.5e-3, 3e-3, 6e-3, 1.2e-2, 3e-2])
"""Moments after the last execution between which its fall is told, in straight lines; from the last of them on it idles."""

TAIL_CELLS = 5
"""Stretches between two of these moments."""

_POINTS = 24  # stretches of a unit that power is told of, and columns of a shape
_LEAST_POINTS = 4  # the same of an execution, at least
_SMOOTHNESS = 3.0  # exponent with which the prior variance of shape_j falls
# Of the level: fine where power rises from idle and the shape is not yet what it will be, then ever coarser.
_FIRST_KNOTS = (*np.arange(0.0, 1.0, 0.1), *np.arange(1.0, 4.0, 0.25), *np.arange(4.0, 8.5, 0.5))
_GROWTH = 1.08
_COARSE_KNOTS = (0.0, 0.2, 0.5, 1.0)
_BROAD_W = 1e3  # standard deviation of what nothing is known of
_FALL_S, _FALL_DOUBT = 3e-4, 0.5  # belief in how power falls after the last execution, and how far it may be off
_FALLEN_S, _LEFT_W = 2e-3, 2.0  # the same of when it is down to idle, but for so much


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """Columns of what is unknown: idle, the tail, then of each kernel its levels and shapes.

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
        """For kernels with so many units each in a run, of so many executions each; with or without a shape."""
        shapes = [points_in(each) if shaped else 0 for each in group]
        knots, first = [], []
        column = len(TAIL_S)
        for number, its_shapes in zip(units, shapes, strict=True):
            if coarse:
                places = [share * number for share in _COARSE_KNOTS]
            else:
                places = [place for place in _FIRST_KNOTS if place <= number]
            while places[-1] < number:
                places.append(min(places[-1] * _GROWTH, float(number)))
            knots.append(np.array(places))
            first.append(column)
            column += len(places) + its_shapes
        return cls(tuple(knots), tuple(group), tuple(shapes), tuple(first), column, coarse)

    def rows(self, kernel: int, unit: FloatArray) -> FloatArray:
        """Power inside units: values of all columns; ``unit`` is the unit's number and the share of it that is done."""
        knots, first, shapes = self.knots[kernel], self.first[kernel], self.shapes[kernel]
        rows = np.zeros((len(unit), self.columns))
        rows[:, 0] = 1.0
        at = np.clip(unit, knots[0], knots[-1])
        left = np.clip(np.searchsorted(knots, at, side="right") - 1, 0, len(knots) - 2)
        share = (at - knots[left]) / (knots[left + 1] - knots[left])
        here = np.arange(len(unit))
        rows[here, first + left] = 1.0 - share
        rows[here, first + left + 1] += share
        if shapes:
            execution = unit * self.group[kernel]
            rows[:, first + len(knots) : first + len(knots) + shapes] = _cosines(execution - np.floor(execution), shapes)
        return rows

    def prior(self, settling: float) -> Prior:
        """The prior, where changes of the level fall off over units with an exponent of ``settling``."""
        fixed, levels, shapes = (np.zeros((self.columns, self.columns)) for _ in range(3))
        fixed[0, 0] = _BROAD_W**-2
        tail = np.arange(1, len(TAIL_S))
        # After the last execution power falls from where its level was; how fast is known no better than so.
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
    """Precision of the unknowns' normal prior, in parts.

    Attributes:
        fixed: of what does not depend on how much power varies; shape (columns, columns).
        levels: where levels vary by a watt.
        shapes: where shapes vary by a watt.
        falls: rows of the power after the last execution less what is expected of it, where that is known the less the more
            levels vary; shape (0 or moments, columns).
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
        found = self.fixed + self.levels / level_w**2
        found += self.shapes / shape_w**2
        if len(self.falls):
            doubt_w = _FALL_DOUBT * level_w * np.exp(-TAIL_S[:-1] / _FALLEN_S) + _LEFT_W
            found += self.falls.T @ (self.falls / doubt_w[:, None] ** 2)
        return found


def points_in(group: int) -> int:
    """Stretches of an execution that power is told of, where so many executions are a unit."""
    return max(_POINTS // group, _LEAST_POINTS)


def _cosines(share: FloatArray, number: int) -> FloatArray:
    """cos(π j share), j from 1 to ``number``, each from the two before it; shape (shares, number)."""
    found = np.ones((number + 1, len(share)))
    found[1] = np.cos(np.pi * share)
    for order in range(2, number + 1):
        found[order] = 2.0 * found[1] * found[order - 1] - found[order - 2]
    return found[1:].T


def _settled(knots: FloatArray, settling: float) -> FloatArray:
    """The integral of (1 + x)^-settling up to each knot."""
    if settling == 1.0:
        return np.asarray(np.log1p(knots))
    return np.asarray(-np.expm1((1.0 - settling) * np.log1p(knots)) / (settling - 1.0))


@lru_cache(maxsize=8)
def tail_rows(columns: int) -> FloatArray:
    """The columns' values in each stretch after the last execution: straight lines between moments."""
    number = len(TAIL_S) - 1
    place = (np.arange(number * TAIL_CELLS) + 0.5) / TAIL_CELLS
    left, share = place.astype(np.intp), place - np.floor(place)
    values = np.zeros((len(place), columns))
    values[:, 0] = 1.0
    values[np.arange(len(place)), 1 + left] = 1.0 - share
    further = left + 1 < number  # the last moment is idle
    values[np.flatnonzero(further), 2 + left[further]] = share[further]
    return values
