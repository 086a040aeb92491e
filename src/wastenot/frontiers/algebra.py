"""Time-energy frontiers that compose: ``choice``, ``tie``, ``repeat``, ``sequence``, ``either``, ``schedule`` and ``graph``.

A frontier stands for every way of doing a piece of work. Composing is cheap, since the parts are kept and not
multiplied out; every question is asked of the whole and answered exactly from the parts.

    >>> kernel = choice([(1.0, 9.0, "fast"), (2.0, 4.0, "slow")])
    >>> iteration = sequence(repeat(kernel, 24), choice([(5.0, 7.0, "only")]))
    >>> iteration.least_energy(within_s=60.0).choices
    ('slow', 'only')
    >>> iteration.price_of_time(40.0)  # joules that one more second saves
    5.0
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Protocol

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import BadInputError, InfeasibleError, WastenotError
from wastenot.frontiers.exact import exact_sum
from wastenot.frontiers.knapsack import Knapsack, Selection
from wastenot.frontiers.nodes import Alternative, Listed, Node, Point, Points, Repeated, Sequenced, Ways, point_of, tied
from wastenot.frontiers.pareto import Groups, hull_points, pareto_points

_MOST_SUMS = 8_000_000  # looked at in one step of listing a frontier

Way = tuple[float, float] | tuple[float, float, object]


class FrontierTooLargeError(WastenotError):
    """A frontier has more points than can be listed; ask it a question instead."""


@dataclass(frozen=True, eq=False, repr=False)
class Frontier:
    """Every way of doing a piece of work.

    Attributes:
        alternatives: one of them is taken; there are several where the whole is an :func:`either`.
    """

    alternatives: tuple[Node, ...]

    @cached_property
    def _problems(self) -> tuple[Knapsack, ...]:
        def problem(node: Node) -> Knapsack:
            return Knapsack(node.groups, lambda points: exact_sum(node.time_terms(points - node.groups.start[:-1])))

        return tuple(map(problem, self.alternatives))

    def _point(self, alternative: int, selection: Selection) -> Point:
        node = self.alternatives[alternative]
        options = selection.options - node.groups.start[:-1]
        return point_of(node, options, selection.energy_j, selection.lower_bound_j)

    def _answers(self, ask: Callable[[Knapsack], Selection]) -> list[Point]:
        answers = []  # of the alternatives that have one
        for index, problem in enumerate(self._problems):
            try:
                answers.append(self._point(index, ask(problem)))
            except InfeasibleError:
                continue
        return answers

    def _too_fast(self, within_s: Fraction | float | None) -> InfeasibleError:
        fastest_s = self.least_time().time_s
        return InfeasibleError(
            f"`within_s` {float(within_s or 0.0):g}: no option is that fast; the fastest takes {fastest_s:.9g} s"
        )

    def as_frontier(self) -> Frontier:
        """Itself; what composes is either this or can list its plans as one."""
        return self

    def least_time(self) -> Point:
        """The fastest way, and of those the one of least energy."""
        return min(self._answers(Knapsack.least_time), key=lambda point: (point.exact_time_s, point.energy_j))

    def least_energy(self, within_s: Fraction | float | None = None, gap_tolerance: float = 0.0) -> Point:
        """The way of least energy within a time, exact; see :meth:`Knapsack.least_energy`.

        Args:
            within_s: the time; ``None`` for no limit.
            gap_tolerance: stop once the energy is proven to be within this fraction of the least possible.

        Raises:
            InfeasibleError: no way is that fast.
        """
        within_s = _checked_time(within_s)
        answers = self._answers(lambda problem: problem.least_energy(within_s, gap_tolerance))
        if not answers:
            raise self._too_fast(within_s)
        bound = min(point.lower_bound_j for point in answers if point.lower_bound_j is not None)
        return replace(min(answers, key=lambda point: (point.energy_j, point.exact_time_s)), lower_bound_j=bound)

    def least_edp(self, exponent: float = 1.0, within_s: Fraction | float | None = None) -> Point:
        """The way of least ``energy * time ** exponent``, exact; see :meth:`Knapsack.least_edp`.

        Args:
            exponent: at least 0.
            within_s: the time it may take; ``None`` for no limit.

        Raises:
            BadInputError: the exponent is negative or not a number.
            InfeasibleError: no way is within the time.
        """
        if not 0.0 <= exponent < np.inf:
            raise BadInputError(f"`exponent` {exponent}: must be a number of at least 0")
        within_s = _checked_time(within_s)
        answers = self._answers(lambda problem: problem.least_edp(exponent, within_s))
        if not answers:
            raise self._too_fast(within_s)
        best = min(answers, key=lambda point: math.log(point.energy_j) + exponent * math.log(point.time_s))
        return best if within_s is None else replace(best, lower_bound_j=None)

    @cached_property
    def _hull(self) -> tuple[FloatArray, FloatArray, FloatArray, IndexArray, IndexArray]:
        """Vertices of the lower hull: time, energy, J/s on the edge to the next, alternative, its vertex."""
        if len(self._problems) == 1:
            time, energy, rate = self._problems[0].hull()
            return time, energy, rate, np.zeros(len(time), dtype=np.intp), np.arange(len(time))
        hulls = [problem.hull() for problem in self._problems]
        time, energy = (np.concatenate([hull[column] for hull in hulls]) for column in (0, 1))
        sizes = [len(hull[0]) for hull in hulls]
        front = pareto_points(Groups.of_one(time, energy))
        kept = front[hull_points(time[front], energy[front], np.zeros(len(front), dtype=np.intp))]
        time, energy = time[kept], energy[kept]
        alternative = np.repeat(np.arange(len(hulls)), sizes)[kept]
        vertex = np.concatenate([np.arange(size) for size in sizes])[kept]
        return time, energy, -np.diff(energy) / np.diff(time), alternative, vertex

    def hull(self) -> Points:
        """Vertices of the lower convex hull: all ways that are best for some price of time."""
        time, energy, _, alternative, vertex = self._hull

        def point_at(index: int) -> Point:
            problem = int(alternative[index])
            return self._point(problem, self._problems[problem].hull_plan(int(vertex[index])))

        return Points(time, energy, point_at)

    def price_of_time(self, at_s: Fraction | float) -> float:
        """Energy that one more second saves at a total time, in J/s: minus the slope of the hull there.

        Args:
            at_s: the total time. At a vertex the price is that of the edge ending there; before the first vertex that
                of the first edge; after the last, where more time saves nothing, 0.
        """
        time, _, rate, *_ = self._hull
        if not len(rate) or at_s > time[-1]:
            return 0.0
        return float(rate[max(int(np.searchsorted(time, float(at_s))) - 1, 0)])

    def at_price(self, price_j_per_s: float) -> Point:
        """The way of least ``energy + price * time``, and of several the fastest: a vertex of the hull.

        Args:
            price_j_per_s: what a second is worth, at least 0.

        Raises:
            BadInputError: the price is negative or not a number.
        """
        if not 0.0 <= price_j_per_s < np.inf:
            raise BadInputError(f"`price_j_per_s` {price_j_per_s}: must be a number of at least 0")
        return self.hull()[int((self._hull[2] > price_j_per_s).sum())]

    def lower_bound_j(self, within_s: Fraction | float | None = None) -> float:
        """No way within a time needs less energy than this; the linear relaxation, without a search.

        Raises:
            InfeasibleError: no way is that fast.
        """
        within_s = _checked_time(within_s)
        if within_s is None:
            return self.least_energy().energy_j
        bounds = [
            problem.relaxation.least_energy_j(float(within_s))
            for problem, fastest in zip(self._problems, self._answers(Knapsack.least_time), strict=True)
            if fastest.exact_time_s <= within_s
        ]
        if not bounds:
            raise self._too_fast(within_s)
        return min(bounds)

    def pareto(self) -> Points:
        """All ways that no other beats in both time and energy.

        Raises:
            FrontierTooLargeError: there are millions of them.
        """
        lists = [_listed(node) for node in self.alternatives]
        if len(lists) == 1:
            return lists[0]
        time, energy = np.concatenate([each.time_s for each in lists]), np.concatenate([each.energy_j for each in lists])
        kept = pareto_points(Groups.of_one(time, energy))
        first = np.cumsum([0, *(len(each) for each in lists)])

        def point_at(index: int) -> Point:
            which = int(np.searchsorted(first, kept[index], side="right")) - 1
            return lists[which][int(kept[index] - first[which])]

        return Points(time[kept], energy[kept], point_at)

    def __repr__(self) -> str:
        try:
            fastest, least = self.least_time(), self.least_energy()
        except FrontierTooLargeError:
            return "Frontier(with a part that has too many points to list)"
        decisions = " or ".join(str(len(node.groups)) for node in self.alternatives[:4])
        decisions += " or ..." if len(self.alternatives) > 4 else ""
        return (
            f"Frontier({decisions} decisions, from {fastest.time_s:.6g} s and {fastest.energy_j:.6g} J "
            f"to {least.time_s:.6g} s and {least.energy_j:.6g} J)"
        )


class Work(Protocol):
    """What composes: a :class:`Frontier`, or a :class:`~wastenot.frontiers.graph.Graph`, whose plans are listed for it."""

    def as_frontier(self) -> Frontier:
        """The ways to do it."""


def choice(ways: Ways | Iterable[Way]) -> Frontier:
    """One of several ways.

    Args:
        ways: (time in s, energy in J) of each, or (time in s, energy in J, label), the label being the index otherwise;
            or the same as arrays.

    Raises:
        BadInputError: there is no way, or a time or energy is not positive and finite.
    """
    if isinstance(ways, Ways):
        return Frontier((ways,))
    listed = list(ways)
    time, energy = np.empty(len(listed)), np.empty(len(listed))
    for index, way in enumerate(listed):
        try:
            time[index], energy[index] = way[0], way[1]
            described = len(way) in (2, 3)
        except (TypeError, ValueError, IndexError):
            described = False
        if not described:
            raise BadInputError(
                f"`ways`[{index}]: {way!r} is not (time in s, energy in J) or (time in s, energy in J, label)"
            )
    return Frontier((Ways(time, energy, [way[2] if len(way) == 3 else index for index, way in enumerate(listed)]),))


def tie(*frontiers: Work) -> Frontier:
    """Several pieces of work after one another, where every choice must take the same way.

    Ways are the same where their labels are equal, or, of kernels, their settings. Alternatives of :func:`either` are
    tied one by one.

    Raises:
        BadInputError: nothing is given, or the choices have no way in common.
    """
    if not frontiers:
        raise BadInputError("`frontiers`: a tie needs at least one frontier")
    return Frontier(
        tuple(tied(Sequenced(nodes)) for nodes in product(*(each.as_frontier().alternatives for each in frontiers)))
    )


def either(*frontiers: Work) -> Frontier:
    """One of several frontiers; a way is labelled with the pair (which frontier, its choices).

    Alternatives are solved separately. Only within a sequence are their Pareto points listed, which raises
    :class:`FrontierTooLargeError` where there are millions of them.

    Raises:
        BadInputError: nothing is given.
    """
    if not frontiers:
        raise BadInputError("`frontiers`: either needs at least one frontier")
    listed = [each.as_frontier() for each in frontiers]
    return Frontier(tuple(Alternative(node, index) for index, each in enumerate(listed) for node in each.alternatives))


def repeat(frontier: Work, times: int) -> Frontier:
    """The same work, done the same way each time; a training run is the repeat of an iteration.

    Raises:
        BadInputError: ``times`` is not a positive whole number.
    """
    if not (math.isfinite(times) and times == int(times) and times >= 1):
        raise BadInputError(f"`times` {times}: must be a positive whole number")
    return Frontier(tuple(Repeated(node, int(times)) for node in frontier.as_frontier().alternatives))


def sequence(*frontiers: Work) -> Frontier:
    """One piece of work after another, each its own way.

    Raises:
        BadInputError: nothing is given.
    """
    if not frontiers:
        raise BadInputError("`frontiers`: a sequence needs at least one frontier")
    return Frontier((Sequenced(tuple(part for frontier in frontiers for part in _parts(frontier.as_frontier()))),))


def schedule(
    calls: Sequence[Frontier], *, stay_s: float = 0.0, switch_s: float = 0.0, switch_j: float = 0.0, points: int = 16
) -> Frontier:
    """Pieces of work after one another, round after round, where settings stay a while and switches cost.

    Its ways are schedules found by a solver of its own, from the fastest to that of least energy; each is labelled with what
    each call takes, such as its setting. What is matched from call to call is what a :func:`tie` goes by.

        >>> light, heavy = choice([(1.0, 9.0, "fast"), (1.1, 4.0, "slow")]), choice([(1.0, 9.0, "fast"), (3.0, 8.0, "slow")])
        >>> schedule([light, heavy, light, light], stay_s=2.0).least_energy(within_s=4.3).choices
        (('fast', 'fast', 'slow', 'slow'),)

    Args:
        calls: in order of execution, each a single choice.
        stay_s: least time between two switches.
        switch_s: that a switch takes.
        switch_j: that it uses.
        points: schedules to look for, at least 2.

    Raises:
        BadInputError: there is no call, or one is made of several choices.
    """
    from wastenot.frontiers.schedule import scheduled_ways

    nodes = [node for frontier in calls for node in frontier.alternatives]
    if not nodes or len(nodes) > len(calls) or any(len(node.groups) != 1 for node in nodes):
        raise BadInputError("`calls`: a schedule needs calls that are single choices; tie parts that share a setting")
    return Frontier((scheduled_ways(nodes, stay_s, switch_s, switch_j, points),))


def _parts(frontier: Frontier) -> Iterator[Node]:
    if len(frontier.alternatives) > 1:
        yield Listed(frontier)
    elif isinstance(node := frontier.alternatives[0], Sequenced):
        yield from node.parts
    else:
        yield node


def _checked_time(within_s: Fraction | float | None) -> Fraction | float | None:
    if within_s is not None and not math.isfinite(within_s):
        raise BadInputError(f"`within_s` {within_s}: must be a finite number of seconds")
    return within_s


def _listed(node: Node) -> Points:
    """The Pareto points of a node, its decisions multiplied out one after another."""
    groups = node.groups
    time, energy = np.zeros(1), np.zeros(1)
    history: list[tuple[IndexArray, IndexArray]] = []
    for begin, end in zip(groups.start[:-1].tolist(), groups.start[1:].tolist(), strict=True):
        if len(time) * (end - begin) > _MOST_SUMS:
            raise FrontierTooLargeError("the frontier has millions of points; ask for its hull or a budget instead")
        new_time = (time[:, None] + groups.time_s[begin:end]).ravel()
        new_energy = (energy[:, None] + groups.energy_j[begin:end]).ravel()
        kept = pareto_points(Groups.of_one(new_time, new_energy))
        history.append((kept // (end - begin), kept % (end - begin)))
        time, energy = new_time[kept], new_energy[kept]

    def point_at(index: int) -> Point:
        state, options = index, []
        for parent, option in reversed(history):
            options.append(int(option[state]))
            state = int(parent[state])
        return point_of(node, np.array(options[::-1], dtype=np.intp), float(energy[index]))

    return Points(time, energy, point_at)
