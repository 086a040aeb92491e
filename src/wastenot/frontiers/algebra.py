"""Time-energy frontiers that compose: ``choice``, ``either``, ``repeat`` and ``sequence``.

A frontier stands for every way of doing a piece of work. Composing is cheap, since the parts are kept and not
multiplied out; the questions asked of the whole are answered exactly from the parts.

    >>> kernel = choice([(1.0, 9.0, "fast"), (2.0, 4.0, "slow")])
    >>> iteration = sequence(repeat(kernel, 24), choice([(5.0, 7.0, "only")]))
    >>> iteration.least_energy(within_s=60.0).choices
    ('slow', 'only')
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from wastenot.arrays import FloatArray, IndexArray
from wastenot.errors import BadInputError, WastenotError
from wastenot.frontiers.knapsack import Knapsack, Solution
from wastenot.frontiers.pareto import Groups, pareto_points

_MOST_SUMS = 8_000_000  # looked at in one step of listing a frontier


@dataclass(frozen=True, eq=False)
class Ways:
    """The ways of doing one piece of work, as arrays.

    Attributes:
        time_s: shape (ways,), positive.
        energy_j: shape (ways,), positive.
        label: what a person or program knows each way by.
        exact_time_s: the time of one way without rounding, where ``time_s`` had to be rounded.
    """

    time_s: FloatArray
    energy_j: FloatArray
    label: Sequence[object]
    exact_time_s: Callable[[int], Fraction] | None = None

    def exact_time(self, way: int) -> Fraction:
        """The exact time of one way."""
        return Fraction(float(self.time_s[way])) if self.exact_time_s is None else self.exact_time_s(way)


@dataclass(frozen=True, slots=True)
class Point:
    """One way of doing the whole.

    Attributes:
        time_s: its time.
        energy_j: its energy.
        choices: for each choice under it, in order, the label of the way taken. A choice of :func:`either` gives the
            pair (which frontier, its choices).
        lower_bound_j: for the answer to a question about energy: no way that meets it needs less.
    """

    time_s: float
    energy_j: float
    choices: tuple[object, ...]
    lower_bound_j: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Several points of a frontier, by rising time.

    Attributes:
        time_s: shape (points,).
        energy_j: shape (points,).
        unroll: gives the :class:`Point` at an index.
    """

    time_s: FloatArray
    energy_j: FloatArray
    unroll: Callable[[int], Point]

    def __len__(self) -> int:
        return len(self.time_s)


class FrontierTooLargeError(WastenotError):
    """A frontier has more points than can be listed; ask it a question instead."""


@dataclass(frozen=True, eq=False)
class Frontier:
    """Ways of doing work one after another, each its own way.

    Attributes:
        parts: the choices to be made, in order, and how often the chosen way of each then runs.
    """

    parts: tuple[tuple[Ways, int], ...]

    @cached_property
    def _problem(self) -> Knapsack:
        time = np.concatenate([ways.time_s * count for ways, count in self.parts])
        energy = np.concatenate([ways.energy_j * count for ways, count in self.parts])
        start = np.concatenate([[0], np.cumsum([len(ways.time_s) for ways, _ in self.parts])])
        return Knapsack(Groups(time, energy, start), self._exact_time)

    def _local(self, options: IndexArray) -> list[int]:
        """Indices into each part's ways, from indices into all ways laid end to end."""
        return [int(way) for way in options - self._problem.groups.start[:-1]]

    def _exact_time(self, options: IndexArray) -> Fraction:
        chosen = zip(self.parts, self._local(options), strict=True)
        return sum((count * ways.exact_time(way) for (ways, count), way in chosen), Fraction(0))

    def _point(self, solution: Solution, *, bounded: bool = True) -> Point:
        chosen = zip(self.parts, self._local(solution.options), strict=True)
        labels = tuple(ways.label[way] for (ways, _), way in chosen)
        time_s = float(self._exact_time(solution.options))
        return Point(time_s, solution.energy_j, labels, solution.lower_bound_j if bounded else None)

    def least_time(self) -> Point:
        """The fastest way, and of those the one of least energy."""
        return self._point(self._problem.least_time())

    def least_energy(self, within_s: Fraction | float | None = None, gap_tolerance: float = 0.0) -> Point:
        """The way of least energy within a time, exact; see :meth:`Knapsack.least_energy`.

        Raises:
            InfeasibleError: no way is that fast.
        """
        return self._point(self._problem.least_energy(within_s, gap_tolerance))

    def least_edp(self, exponent: float = 1.0, within_s: Fraction | float | None = None) -> Point:
        """The way of least ``energy * time ** exponent``, exponent ≥ 0, exact; see :meth:`Knapsack.least_edp`.

        Raises:
            BadInputError: the exponent is negative or not a number.
            InfeasibleError: no way is within the time.
        """
        if not 0.0 <= exponent < np.inf:
            raise BadInputError(f"EDP exponent {exponent}: must be a number of at least 0")
        return self._point(self._problem.least_edp(exponent, within_s), bounded=within_s is None)

    def hull(self) -> Points:
        """Vertices of the lower convex hull: all ways that are best for some price of time."""
        time, energy = self._problem.hull()
        return Points(time, energy, lambda vertex: self._point(self._problem.hull_plan(vertex)))

    def pareto(self) -> Points:
        """All ways that no other beats in both time and energy.

        Raises:
            FrontierTooLargeError: there are millions of them.
        """
        time, energy = np.zeros(1), np.zeros(1)
        history: list[tuple[IndexArray, IndexArray]] = []
        for ways, count in self.parts:
            if len(time) * len(ways.time_s) > _MOST_SUMS:
                raise FrontierTooLargeError("the frontier has millions of points; ask for its hull or a budget instead")
            new_time = (time[:, None] + ways.time_s * count).ravel()
            new_energy = (energy[:, None] + ways.energy_j * count).ravel()
            kept = pareto_points(Groups(new_time, new_energy, np.array([0, len(new_time)])))
            history.append((kept // len(ways.time_s), kept % len(ways.time_s)))
            time, energy = new_time[kept], new_energy[kept]

        def unroll(point: int) -> Point:
            state, labels = point, []
            for (ways, _), (parent, way) in zip(reversed(self.parts), reversed(history), strict=True):
                labels.append(ways.label[int(way[state])])
                state = int(parent[state])
            return Point(float(time[point]), float(energy[point]), tuple(reversed(labels)))

        return Points(time, energy, unroll)


def choice(ways: Ways | Iterable[tuple[float, float, object]]) -> Frontier:
    """One of several ways.

    Args:
        ways: (time in s, energy in J, label) of each; or the same as arrays.

    Raises:
        BadInputError: there is no way, or a time or energy is not positive and finite.
    """
    if not isinstance(ways, Ways):
        listed = list(ways)
        time = np.array([way[0] for way in listed], dtype=np.float64)
        energy = np.array([way[1] for way in listed], dtype=np.float64)
        ways = Ways(time, energy, [way[2] for way in listed])
    if not len(ways.time_s):
        raise BadInputError("a choice needs at least one way")
    for name, values in (("time", ways.time_s), ("energy", ways.energy_j)):
        if not np.all(np.isfinite(values) & (values > 0)):
            raise BadInputError(f"a choice's {name} must be positive and finite")
    return Frontier(((ways, 1),))


def either(*frontiers: Frontier) -> Frontier:
    """One of several frontiers; a way is labelled with the pair (which frontier, its choices).

    Raises:
        BadInputError: nothing is given.
        FrontierTooLargeError: one of them has too many points to list.
    """
    found = [
        (index, points.unroll(place))
        for index, frontier in enumerate(frontiers)
        for points in (frontier.pareto(),)
        for place in range(len(points))
    ]
    return choice([(point.time_s, point.energy_j, (index, point.choices)) for index, point in found])


def repeat(frontier: Frontier, times: int) -> Frontier:
    """The same work, done the same way each time.

    Raises:
        BadInputError: ``times`` is not a positive whole number.
    """
    if times != int(times) or times < 1:
        raise BadInputError(f"repeat {times}: must be a positive whole number")
    return Frontier(tuple((ways, count * int(times)) for ways, count in frontier.parts))


def sequence(*frontiers: Frontier) -> Frontier:
    """One piece of work after another, each its own way.

    Raises:
        BadInputError: nothing is given.
    """
    if not frontiers:
        raise BadInputError("a sequence needs at least one frontier")
    return Frontier(tuple(part for frontier in frontiers for part in frontier.parts))
