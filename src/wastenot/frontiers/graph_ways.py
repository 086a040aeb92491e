"""The ways that parts of a graph choose from, and what each costs.

A worker that is kept busy does not wait, so that a way of energy e and time t costs e − P·t where waiting draws power P.
A way is worth having if no other is both as fast and as cheap, which one of more time *and* more energy can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.frontiers.algebra import Frontier
from wastenot.frontiers.exact import exact_sum
from wastenot.frontiers.nodes import Node, Point, Points
from wastenot.frontiers.pareto import Groups, hull_points, pareto_points
from wastenot.frontiers.relaxation import Relaxation

_MOST_LISTED = 500  # ways of one kind whose decisions are multiplied out; beyond, only those on the hull are kept
_MOST_SUMS = 100_000  # of ways and options of one decision more, listed at once; beyond, likewise


@dataclass(frozen=True, slots=True, eq=False)
class CostTable:
    """Ways of several classes of parts by rising time and falling cost, a row for each class.

    Attributes:
        time_s: shape (classes, most ways), infinite beyond a class's last.
        cost_j: likewise, that of the last way beyond it.
        way: which way of its kind each is.
        size: ways of each class; shape (classes,).
        hull: positions in the row of the lower hull's vertices, classes laid end to end.
        hull_start: class ``c`` has ``hull[hull_start[c]:hull_start[c + 1]]``.
        floor: by class, where there are more ways than are listed: times and costs of a convex curve that none is below.
    """

    time_s: FloatArray
    cost_j: FloatArray
    way: IndexArray
    size: IndexArray
    hull: IndexArray
    hull_start: IndexArray
    floor: Mapping[int, tuple[FloatArray, FloatArray]]

    @classmethod
    def of(
        cls, time_s: Sequence[FloatArray], cost_j: Sequence[FloatArray], floor: Mapping[int, tuple[FloatArray, FloatArray]]
    ) -> CostTable:
        """The table of classes with some ways each."""
        groups = Groups(
            np.concatenate(time_s), np.concatenate(cost_j), np.cumsum([0, *(len(each) for each in time_s)], dtype=np.intp)
        )
        kept = pareto_points(groups)
        group = np.searchsorted(groups.start, kept, side="right") - 1
        first = np.searchsorted(group, np.arange(len(groups) + 1))
        size = np.diff(first)
        column = np.minimum(np.arange(int(size.max())), (size - 1)[:, None])
        point = kept[first[:-1, None] + column]
        beyond = np.arange(int(size.max())) >= size[:, None]
        hull = hull_points(groups.time_s[kept], groups.energy_j[kept], group)
        return cls(
            np.where(beyond, np.inf, groups.time_s[point]),
            groups.energy_j[point],
            point - groups.start[:-1, None],
            size,
            hull - first[group[hull]],
            np.searchsorted(group[hull], np.arange(len(groups) + 1)),
            floor,
        )

    def vertices(self, klass: int) -> tuple[FloatArray, FloatArray]:
        """Times and costs of the convex curve that no way of a class is below."""
        if klass in self.floor:
            return self.floor[klass]
        column = self.hull[self.hull_start[klass] : self.hull_start[klass + 1]]
        return self.time_s[klass, column], self.cost_j[klass, column]


def ways_of(frontier: Frontier, powers_w: FloatArray) -> tuple[Points, bool]:
    """The ways of a part, by rising time: all of a single choice, otherwise those worth having at some waiting power.

    Returns:
        The ways, and whether all are there: where the decisions of a part multiply out to too many, only those on the lower
        hull are.
    """
    time, energy, maker, which, whole = [], [], [], [], True
    for node in frontier.alternatives:
        groups = node.groups
        listed = [(np.arange(len(groups.time_s))[:, None], True)]
        if len(groups) > 1:
            listed = [_worth_having(groups, power) for power in powers_w.tolist()]
        for options, complete in listed:
            whole &= complete
            point = groups.start[:-1] + options
            time.append(groups.time_s[point].sum(axis=1))
            energy.append(groups.energy_j[point].sum(axis=1))
            maker += [(node, options)]
            which.append(np.stack([np.full(len(options), len(maker) - 1), np.arange(len(options))]))
    times, energies, source = np.concatenate(time), np.concatenate(energy), np.concatenate(which, axis=1)
    order = np.lexsort((energies, times))
    if len(powers_w) > 1 and len(maker) > len(frontier.alternatives):  # the same way may be worth having at several powers
        same = np.zeros(len(order), dtype=bool)
        same[1:] = (np.diff(times[order]) == 0.0) & (np.diff(energies[order]) == 0.0)
        order = order[~same]

    def point_at(index: int) -> Point:
        made, row = source[:, order[index]].tolist()
        node, options = maker[made]
        return _point(node, options[row], float(energies[order[index]]))

    return Points(times[order], energies[order], point_at), whole


def _point(node: Node, options: IndexArray, energy_j: float) -> Point:
    exact_s = exact_sum(node.time_terms(options))
    return Point(float(exact_s), energy_j, exact_s, options, node)


def _worth_having(groups: Groups, power_w: float) -> tuple[IndexArray, bool]:
    """The options of the ways that are worth having, shape (ways, decisions), and whether these are all."""
    cost = Groups(groups.time_s, groups.energy_j - power_w * groups.time_s, groups.start)
    time, total = np.zeros(1), np.zeros(1)
    options = np.zeros((1, 0), dtype=np.intp)
    for begin, end in zip(groups.start[:-1].tolist(), groups.start[1:].tolist(), strict=True):
        if len(time) * (end - begin) > _MOST_SUMS:
            return _on_hull(cost), False
        times = (time[:, None] + cost.time_s[begin:end]).ravel()
        totals = (total[:, None] + cost.energy_j[begin:end]).ravel()
        kept = pareto_points(Groups.of_one(times, totals))
        if len(kept) > _MOST_LISTED:
            return _on_hull(cost), False
        options = np.column_stack([options[kept // (end - begin)], kept % (end - begin)])
        time, total = times[kept], totals[kept]
    return options, True


def _on_hull(cost: Groups) -> IndexArray:
    relaxation = Relaxation(cost)
    vertices = relaxation.vertices()
    chosen = np.stack([relaxation.source[relaxation.prefix(int(vertex))] for vertex in vertices])
    return chosen - cost.start[:-1]
