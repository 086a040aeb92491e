"""Pareto fronts and lower convex hulls of many groups of time-energy points at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wastenot.core.arrays import FloatArray, IndexArray

_VECTOR_ROUNDS = 6  # of removing points from all hulls at once, before the few hard groups go one by one
_PADDING_ALLOWED = 4  # padded cells per real point, above which groups are sorted by size first


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Points in groups laid end to end: group ``g`` is ``start[g]:start[g + 1]``.

    Attributes:
        time_s: shape (points,).
        energy_j: shape (points,).
        start: shape (groups + 1,), no group empty.
    """

    time_s: FloatArray
    energy_j: FloatArray
    start: IndexArray

    @classmethod
    def of_one(cls, time_s: FloatArray, energy_j: FloatArray) -> Groups:
        """All points in a single group."""
        return cls(time_s, energy_j, np.array([0, len(time_s)]))

    def __len__(self) -> int:
        return len(self.start) - 1

    @property
    def group(self) -> IndexArray:
        """The group of each point, shape (points,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))


def pareto_points(groups: Groups) -> IndexArray:
    """Points that no other point of their group beats in both time and energy.

    Of several equal points the first is kept.

    Returns:
        Indices into the points, by group, in each by rising time (and so by falling energy).
    """
    sizes = np.diff(groups.start)
    widest = int(sizes.max())
    if widest * len(groups) <= _PADDING_ALLOWED * len(groups.time_s) + 4096:
        return _pareto_padded(groups, np.arange(len(groups)), widest)
    # Groups of similar size together: padding then at most doubles the points.
    class_of = np.frexp(sizes.astype(np.float64) - 0.5)[1]
    kept = []
    for size_class in np.unique(class_of):
        members = np.flatnonzero(class_of == size_class)
        kept.append(_pareto_padded(groups, members, int(sizes[members].max())))
    points = np.concatenate(kept)
    return points[np.argsort(groups.group[points], kind="stable")]


def _pareto_padded(groups: Groups, members: IndexArray, width: int) -> IndexArray:
    """:func:`pareto_points` of some groups, as rows of a matrix padded with infinity."""
    start = groups.start[members]
    size = groups.start[members + 1] - start
    column = np.arange(width)
    rows = np.arange(len(members))[:, None]
    if len(members) * width == len(groups.time_s):
        point = start[:, None] + column
        time, energy = groups.time_s[point], groups.energy_j[point]
    else:
        present = column < size[:, None]
        point = np.where(present, start[:, None] + column, 0)
        time = np.where(present, groups.time_s[point], np.inf)
        energy = np.where(present, groups.energy_j[point], np.inf)
    order = time.argsort(axis=1, kind="stable")
    time, energy = time[rows, order], energy[rows, order]
    keep = np.empty(energy.shape, dtype=bool)
    keep[:, 0] = True
    if width > 1:
        np.less(energy[:, 1:], np.minimum.accumulate(energy, axis=1)[:, :-1], out=keep[:, 1:])
    row, column = keep.nonzero()
    # Of kept points at one time only the last, with the least energy, is not beaten.
    kept_time = time[row, column]
    unbeaten = np.empty(len(row), dtype=bool)
    unbeaten[-1] = True
    np.not_equal(kept_time[1:], kept_time[:-1], out=unbeaten[:-1])
    unbeaten[:-1] |= row[1:] != row[:-1]
    row, column = row[unbeaten], column[unbeaten]
    kept: IndexArray = point[row, order[row, column]]
    return kept


def hull_points(time_s: FloatArray, energy_j: FloatArray, group: IndexArray) -> IndexArray:
    """Vertices of the lower convex hull of each group.

    Args:
        time_s: Pareto points, by group and rising time; shape (points,).
        energy_j: shape (points,).
        group: the group of each point, not falling; shape (points,).

    Returns:
        Indices of the vertices, in order. Along each hull the energy saved per second strictly falls.
    """
    index = np.arange(len(time_s))
    for _ in range(_VECTOR_ROUNDS):
        beneath = _below_neighbours(time_s[index], energy_j[index], group[index])
        if beneath.all():
            return index
        index = index[beneath]
    unsettled = np.unique(group[index[~_below_neighbours(time_s[index], energy_j[index], group[index])]])
    if not len(unsettled):
        return index
    easy = ~np.isin(group[index], unsettled)
    chains = [_hull_chain(time_s, energy_j, index[group[index] == hard]) for hard in unsettled]
    return np.sort(np.concatenate([index[easy], *chains]))


def _below_neighbours(time_s: FloatArray, energy_j: FloatArray, group: IndexArray) -> NDArray[np.bool_]:
    """Whether each point lies strictly below the line between its neighbours (ends of a group always do)."""
    below = np.ones(len(time_s), dtype=bool)
    if len(time_s) > 2:
        inside = group[2:] == group[:-2]
        with np.errstate(divide="ignore", invalid="ignore"):
            saved_per_s = (energy_j[:-1] - energy_j[1:]) / (time_s[1:] - time_s[:-1])
        below[1:-1] = ~(inside & (saved_per_s[:-1] <= saved_per_s[1:]))
    return below


def _hull_chain(time_s: FloatArray, energy_j: FloatArray, index: IndexArray) -> IndexArray:
    """Lower hull of one group by Andrew's monotone chain."""
    chain: list[int] = []
    slopes: list[float] = []
    for point in index.tolist():
        while chain:
            slope = float((energy_j[chain[-1]] - energy_j[point]) / (time_s[point] - time_s[chain[-1]]))
            if not slopes or slopes[-1] > slope:
                slopes.append(slope)
                break
            chain.pop()
            slopes.pop()
        chain.append(point)
    return np.array(chain, dtype=np.intp)
