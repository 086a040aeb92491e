"""A weighted mixture of classes of requests, and the least energy within bounds on latencies of each and of all.

:func:`mix` is the node of the algebra for one latency: the mean over classes, each with a frontier of its own. A
:class:`Load` answers where there are several latencies at once, and bounds of two kinds:

- on a class: every way of it that breaks the bound is out. A bound on a percentile is of this kind.
- on all classes: the weighted mean must keep it. A mean latency is of this kind, and so is a percentile of all requests
  together, put as the share of requests that may come too late: each way brings the share of its class that does.

With at most one bound on all, the answer comes from the knapsack of the algebra, exactly. With more it is an integer program
(HiGHS); whatever the solver says is checked against the bounds in exact arithmetic, and comes with a lower bound. Weights
are fractions throughout, so that classes that each take just what the bound allows keep it together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from wastenot.arrays import BoolArray, FloatArray, IndexArray
from wastenot.errors import BadInputError, InfeasibleError
from wastenot.frontiers.algebra import Frontier, choice
from wastenot.frontiers.bounded_means import Bound, Decision, cheapest, keeps, relaxed, shares_of
from wastenot.frontiers.exact import exact_sum
from wastenot.frontiers.nodes import Listed, Node, Sequenced, Ways, Weighted


def mix(*parts: tuple[float, Frontier]) -> Frontier:
    """A load of several classes: (weight, frontier) of each. Times and energies of the whole are weighted means.

        >>> chat, code = choice([(0.02, 9.0, "fast"), (0.04, 4.0, "slow")]), choice([(0.01, 5.0, "only")])
        >>> mix((3, chat), (1, code)).least_energy(within_s=0.035).choices
        ('slow', 'only')

    Args:
        parts: weights are relative to each other, such as requests a second; what a class has as time is a latency.

    Raises:
        BadInputError: there is no part, or a weight is not positive and finite.
    """
    weights = [weight for weight, _ in parts]
    if not parts or not all(0.0 < weight < math.inf for weight in weights):
        raise BadInputError(f"`parts`: weights {weights} must be positive numbers, one for each frontier")
    nodes: list[Node] = []
    for share, (_, frontier) in zip(shares_of(weights), parts, strict=True):
        alone = len(frontier.alternatives) == 1
        nodes.append(Weighted(frontier.alternatives[0] if alone else Listed(frontier), share))
    return Frontier((Sequenced(tuple(nodes)),))


@dataclass(frozen=True, slots=True, eq=False)
class RequestClass:
    """Requests that are alike, and the ways of serving them.

    Attributes:
        name: for people and for bounds.
        weight: relative to other classes, such as requests a second.
        energy_j: of a request by each way; shape (ways,).
        latency_s: by name, such as ``"ttft p99"``; each of shape (ways,), infinite where a way has none. A share of late
            requests stands here as well, as a number between 0 and 1.
        labels: what each way is known by; by default its index.

    Raises:
        BadInputError: numbers that cannot be, or shapes that differ.
    """

    name: str
    weight: float
    energy_j: FloatArray
    latency_s: Mapping[str, FloatArray]
    labels: Sequence[object] | None = None

    def __post_init__(self) -> None:
        ways = len(self.energy_j)
        if not 0.0 < self.weight < math.inf:
            raise BadInputError(f"`weight` of {self.name}: {self.weight:g} must be a positive number")
        if not ways or not (np.isfinite(self.energy_j) & (self.energy_j > 0)).all():
            raise BadInputError(f"`energy_j` of {self.name}: needs at least one way, and positive numbers")
        for name, values in self.latency_s.items():
            if len(values) != ways or not (values >= 0).all():
                raise BadInputError(
                    f"`latency_s` of {self.name}: {name} needs {ways} numbers of at least 0, one for each way"
                )
        if self.labels is not None and len(self.labels) != ways:
            raise BadInputError(f"`labels` of {self.name}: needs {ways}, one for each way")


@dataclass(frozen=True, slots=True, eq=False)
class Mixed:
    """How each class is served.

    Attributes:
        choices: label of the way of each class, by name.
        energy_j: of a request, the weighted mean.
        latency_s: weighted means over all classes, by name.
        lower_bound_j: no choice that keeps the bounds needs less.
        relaxed_j: the least energy if each class could be split between ways, by time or by server.
        price: of each bound on all in turn, what one more second of it saves of ``relaxed_j``, in joules a request.
    """

    choices: Mapping[str, object]
    energy_j: float
    latency_s: Mapping[str, float]
    lower_bound_j: float
    relaxed_j: float
    price: Mapping[Bound, float]


@dataclass(frozen=True, eq=False)
class Load:
    """Classes of requests that are served together.

    Attributes:
        classes: of requests, with names of their own.
        shared: whether one engine serves all, in one way: ways are matched by their labels, and one that a class lacks is
            no choice.

    Raises:
        BadInputError: no class, two of one name, latencies that differ between classes, or no way in common.
    """

    classes: tuple[RequestClass, ...]
    shared: bool = False
    _shares: tuple[Fraction, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        names = [each.name for each in self.classes]
        if not names or len(set(names)) < len(names):
            raise BadInputError(f"`classes`: {names} must be at least one, each with a name of its own")
        known = set(self.classes[0].latency_s)
        for each in self.classes:
            if set(each.latency_s) != known:
                raise BadInputError(
                    f"`classes`: {each.name} has the latencies {sorted(each.latency_s)}, others {sorted(known)}"
                )
        object.__setattr__(self, "_shares", shares_of([each.weight for each in self.classes]))
        if self.shared:
            object.__setattr__(self, "classes", _matched(self.classes))

    def frontier(self, latency: str, bounds: Iterable[Bound] = ()) -> Frontier:
        """The frontier of one latency's mean against energy, among the ways that keep the bounds on their classes.

        Raises:
            BadInputError: no such latency or class, or a bound on all of them.
            InfeasibleError: a class has no way that keeps its bounds.
        """
        bounds = tuple(bounds)
        if any(bound.of is None for bound in bounds):
            raise BadInputError("`bounds`: a frontier takes bounds on classes; ask `least_energy` with bounds on all")
        kept = self._kept(bounds)
        if self.shared:
            ways = np.flatnonzero(np.logical_and.reduce(kept))
            energy, time = self._means(self._energies(ways)), self._means(self._latencies(latency, ways))
            usable = np.isfinite(time) & (time > 0)
            return choice(Ways(time[usable], energy[usable], [self._label(0, way) for way in ways[usable].tolist()]))
        parts = []
        for index, (each, usable) in enumerate(zip(self.classes, kept, strict=True)):
            ways = np.flatnonzero(usable & np.isfinite(each.latency_s[latency]) & (each.latency_s[latency] > 0))
            labels = [self._label(index, way) for way in ways.tolist()]
            parts.append((each.weight, choice(Ways(each.latency_s[latency][ways], each.energy_j[ways], labels))))
        return mix(*parts)

    def least_energy(self, bounds: Iterable[Bound] = ()) -> Mixed:
        """The least energy within all bounds.

        Raises:
            BadInputError: a bound on a latency or class that there is not.
            InfeasibleError: no choice keeps them; the text says what is the least that could be.
        """
        bounds = tuple(bounds)
        kept, on_all = self._kept(bounds), tuple(bound for bound in bounds if bound.of is None)
        decisions = self._decisions(kept, on_all)
        for row, bound in enumerate(on_all):
            best = [int(np.argmin(each.latency[row])) for each in decisions]
            if not keeps(decisions, best, bound, row):
                least = math.fsum(float(each.latency[row, way]) for each, way in zip(decisions, best, strict=True))
                raise InfeasibleError(f"the least {bound.latency} of all is {least:.6g}", asked=str(bound))
        relaxed_j, prices = relaxed(decisions, on_all)
        taken, lower_j = cheapest(decisions, on_all)
        chosen = [int(each.ways[way]) for each, way in zip(decisions, taken, strict=True)]
        ways = chosen * len(self.classes) if self.shared else chosen
        energy_j = math.fsum(float(each.energy_j[way]) for each, way in zip(decisions, taken, strict=True))
        return Mixed(
            {each.name: self._label(index, way) for index, (each, way) in enumerate(zip(self.classes, ways, strict=True))},
            energy_j,
            {
                name: self._mean([float(each.latency_s[name][way]) for each, way in zip(self.classes, ways, strict=True)])
                for name in self.classes[0].latency_s
            },
            min(max(lower_j, relaxed_j), energy_j),
            min(relaxed_j, energy_j),
            dict(zip(on_all, prices, strict=True)),
        )

    def _kept(self, bounds: tuple[Bound, ...]) -> list[BoolArray]:
        """Of each class, the ways that keep the bounds on it."""
        names = {each.name for each in self.classes}
        for bound in bounds:
            if bound.latency not in self.classes[0].latency_s or (bound.of is not None and bound.of not in names):
                raise BadInputError(
                    f"`bounds`: {bound} is on nothing there is; latencies are {sorted(self.classes[0].latency_s)}, "
                    f"classes {sorted(names)}"
                )
        kept = []
        for each in self.classes:
            keeps = np.ones(len(each.energy_j), dtype=np.bool_)
            for bound in (bound for bound in bounds if bound.of == each.name):
                one = each.latency_s[bound.latency] <= bound.at_most
                if not one.any():
                    least = float(each.latency_s[bound.latency].min())
                    raise InfeasibleError(f"the least {bound.latency} of {each.name} is {least:.6g}", asked=str(bound))
                keeps &= one
            if not keeps.any():
                raise InfeasibleError(f"no way of {each.name} keeps all bounds on it at once; loosen one")
            kept.append(keeps)
        if self.shared and not np.logical_and.reduce(kept).any():
            raise InfeasibleError(
                "no way that all classes share keeps the bounds on each of them; loosen one, or serve them apart"
            )
        return kept

    def _decisions(self, kept: list[BoolArray], on_all: tuple[Bound, ...]) -> list[Decision]:
        """What is to be decided: for each class one of its ways, or one way for all of them."""
        names = [bound.latency for bound in on_all]
        if self.shared:
            ways = np.flatnonzero(np.logical_and.reduce(kept))
            latency = np.array([self._means(self._latencies(name, ways)) for name in names]).reshape(len(names), len(ways))
            return [
                Decision(
                    ways,
                    self._means(self._energies(ways)),
                    latency,
                    [(share, each.latency_s) for share, each in zip(self._shares, self.classes, strict=True)],
                )
            ]
        decisions = []
        for share, each, usable in zip(self._shares, self.classes, kept, strict=True):
            ways = np.flatnonzero(usable)
            latency = np.array([float(share) * each.latency_s[name][ways] for name in names]).reshape(len(names), len(ways))
            decisions.append(Decision(ways, float(share) * each.energy_j[ways], latency, [(share, each.latency_s)]))
        return decisions

    def _energies(self, ways: IndexArray) -> FloatArray:
        return np.array([each.energy_j[ways] for each in self.classes])

    def _latencies(self, name: str, ways: IndexArray) -> FloatArray:
        if name not in self.classes[0].latency_s:
            raise BadInputError(f"`latency` {name}: is not among {sorted(self.classes[0].latency_s)}")
        return np.array([each.latency_s[name][ways] for each in self.classes])

    def _means(self, values: FloatArray) -> FloatArray:
        means: FloatArray = np.array([float(share) for share in self._shares]) @ values
        return means

    def _mean(self, values: list[float]) -> float:
        if not all(map(math.isfinite, values)):
            return math.inf
        return float(exact_sum(zip(self._shares, values, strict=True)))

    def _label(self, index: int, way: int) -> object:
        labels = self.classes[index].labels
        return way if labels is None else labels[way]


def _matched(classes: tuple[RequestClass, ...]) -> tuple[RequestClass, ...]:
    """The classes with the ways that all of them have, in the same order."""
    of_each = [
        {label: way for way, label in enumerate(range(len(each.energy_j)) if each.labels is None else each.labels)}
        for each in classes
    ]
    common = [label for label in of_each[0] if all(label in others for others in of_each[1:])]
    if not common:
        raise BadInputError("`classes`: have no way in common; label ways alike, or serve the classes apart")
    matched = []
    for each, way_of in zip(classes, of_each, strict=True):
        ways = np.array([way_of[label] for label in common])
        latency_s = {name: values[ways] for name, values in each.latency_s.items()}
        matched.append(RequestClass(each.name, each.weight, each.energy_j[ways], latency_s, common))
    return tuple(matched)
