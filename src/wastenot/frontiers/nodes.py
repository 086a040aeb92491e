"""The nodes that frontiers are made of, and points of them. Each node comes down to decisions independent of each other.

A node keeps its parts and multiplies nothing out; arrays are laid end to end when a question is first asked, and labels
are looked up only for the ways that an answer takes. Work that does not come down to decisions (a DAG with a deadline,
a schedule) brings a solver of its own and enters a composition by the points that it lists, as :class:`Listed`.
"""
# ruff: noqa: D102 - what the members of a node mean is said once, in Node

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import NDArray

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.frontiers.exact import exact_sum
from wastenot.frontiers.pareto import Groups

if TYPE_CHECKING:
    from wastenot.frontiers.algebra import Frontier


@dataclass(frozen=True, slots=True)
class KernelSetting:
    """The label of a way to run a kernel: its name, and the setting it runs at."""

    kernel: str
    setting: Setting

    def __str__(self) -> str:
        return f"{self.kernel} at {self.setting}"


class Node(ABC):
    """Independent decisions. ``taken`` is the option that each takes, counted from the first of its own."""

    @property
    @abstractmethod
    def groups(self) -> Groups:
        """Time and energy of each option of each decision, for all of its runs, to rounding."""

    @abstractmethod
    def parts_taken(self, taken: IndexArray) -> Iterable[tuple[Node, IndexArray]]:
        """The nodes that it is made of, each with the options of its own decisions."""

    @abstractmethod
    def tie_keys(self) -> Iterator[Sequence[Hashable]]:
        """For each decision what its options are matched by in a tie."""

    def time_terms(self, taken: IndexArray) -> Iterable[tuple[int, float]]:
        """The time taken as a sum of (runs, time of one run), which is exact."""
        return chain.from_iterable(part.time_terms(its) for part, its in self.parts_taken(taken))

    def labels(self, taken: IndexArray) -> tuple[object, ...]:
        """The label of each way taken, in order."""
        return tuple(chain.from_iterable(part.labels(its) for part, its in self.parts_taken(taken)))


@dataclass(frozen=True, eq=False)
class Ways(Node):
    """The ways of doing one piece of work, or each of several after one another, as arrays laid end to end.

    Attributes:
        time_s: of one run, positive; shape (ways,).
        energy_j: of one run, positive; shape (ways,).
        label: what a person or program knows each way by; by default its index among those of its piece.
        start: piece ``p`` has the ways ``start[p]:start[p + 1]``; by default there is one piece.
        runs: how often each piece runs, the same way each time; shape (pieces,), by default once.

    Raises:
        BadInputError: a piece has no way, or a number is not positive and finite.
    """

    time_s: FloatArray
    energy_j: FloatArray
    label: Sequence[object] | None = None
    start: IndexArray | None = None
    runs: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if not len(self.time_s) or (self.start is not None and not (np.diff(self.start) > 0).all()):
            raise BadInputError("`ways`: a choice needs at least one way; give (time in s, energy in J, label) of each")
        for what, unit, values in (("time", "s", self.time_s), ("energy", "J", self.energy_j)):
            if values.min() > 0 and values.max() < np.inf:
                continue
            index = int(np.flatnonzero(~(np.isfinite(values) & (values > 0)))[0])
            raise BadInputError(
                f"`ways`[{index}]: {what} {values[index]:g} {unit} must be positive and finite; "
                "correct the measurement or leave the way out"
            )

    @cached_property
    def _start(self) -> IndexArray:
        return np.array([0, len(self.time_s)]) if self.start is None else self.start

    @cached_property
    def groups(self) -> Groups:
        if self.runs is None:
            return Groups(self.time_s, self.energy_j, self._start)
        runs = float(self.runs[0]) if self.start is None else np.repeat(self.runs.astype(np.float64), np.diff(self.start))
        return Groups(self.time_s * runs, self.energy_j * runs, self._start)

    def parts_taken(self, taken: IndexArray) -> Iterable[tuple[Node, IndexArray]]:
        return [(self, taken)]

    def time_terms(self, taken: IndexArray) -> Iterable[tuple[int, float]]:
        runs = [1] * len(taken) if self.runs is None else self.runs.tolist()
        return zip(runs, self.time_s[self._start[:-1] + taken].tolist(), strict=True)

    def labels(self, taken: IndexArray) -> tuple[object, ...]:
        if self.label is None:
            return tuple(taken.tolist())
        return tuple(self.label[way] for way in (self._start[:-1] + taken).tolist())

    def tie_keys(self) -> Iterator[Sequence[Hashable]]:
        """The setting of a :class:`KernelSetting`, otherwise the label itself."""
        for begin, end in zip(self._start[:-1].tolist(), self._start[1:].tolist(), strict=True):
            if self.label is None:
                yield range(end - begin)
            else:
                labels = (self.label[way] for way in range(begin, end))
                yield [label.setting if isinstance(label, KernelSetting) else _hashable(label) for label in labels]


@dataclass(frozen=True, eq=False)
class Repeated(Node):
    """A node's work done several times, the same way each time."""

    node: Node
    times: int

    @cached_property
    def groups(self) -> Groups:
        once = self.node.groups
        return Groups(once.time_s * self.times, once.energy_j * self.times, once.start)

    def parts_taken(self, taken: IndexArray) -> Iterable[tuple[Node, IndexArray]]:
        return [(self.node, taken)]

    def tie_keys(self) -> Iterator[Sequence[Hashable]]:
        return self.node.tie_keys()

    def time_terms(self, taken: IndexArray) -> Iterable[tuple[int, float]]:
        return ((self.times * runs, time) for runs, time in self.node.time_terms(taken))


@dataclass(frozen=True, eq=False)
class Sequenced(Node):
    """One node's work after another's."""

    parts: tuple[Node, ...]

    @cached_property
    def groups(self) -> Groups:
        parts = [part.groups for part in self.parts]
        ends = np.cumsum([0, *(len(part.time_s) for part in parts)])
        return Groups(
            np.concatenate([part.time_s for part in parts]),
            np.concatenate([part.energy_j for part in parts]),
            np.concatenate([[0], *(part.start[1:] + end for part, end in zip(parts, ends[:-1].tolist(), strict=True))]),
        )

    def parts_taken(self, taken: IndexArray) -> Iterable[tuple[Node, IndexArray]]:
        end = 0
        for part in self.parts:
            begin, end = end, end + len(part.groups)
            yield part, taken[begin:end]

    def tie_keys(self) -> Iterator[Sequence[Hashable]]:
        return chain.from_iterable(part.tie_keys() for part in self.parts)


@dataclass(frozen=True, eq=False)
class Tied(Node):
    """One decision for all of a node's decisions.

    Attributes:
        node: whose decisions are tied.
        options: for each option of the whole the option of each decision; shape (options, decisions).
    """

    node: Node
    options: IndexArray

    @cached_property
    def groups(self) -> Groups:
        each = self.node.groups
        point = each.start[:-1] + self.options
        return Groups(each.time_s[point].sum(axis=1), each.energy_j[point].sum(axis=1), np.array([0, len(point)]))

    def parts_taken(self, taken: IndexArray) -> Iterable[tuple[Node, IndexArray]]:
        return [(self.node, self.options[taken[0]])]

    def tie_keys(self) -> Iterator[Sequence[Hashable]]:
        """Those of the first decision."""
        first = next(self.node.tie_keys())
        yield [first[option] for option in self.options[:, 0].tolist()]


@dataclass(frozen=True, eq=False)
class Alternative(Node):
    """A node that is one of several; its ways are labelled with the pair (which one, their labels)."""

    node: Node
    index: int

    @property
    def groups(self) -> Groups:
        return self.node.groups

    def parts_taken(self, taken: IndexArray) -> Iterable[tuple[Node, IndexArray]]:
        return [(self.node, taken)]

    def tie_keys(self) -> Iterator[Sequence[Hashable]]:
        return self.node.tie_keys()

    def labels(self, taken: IndexArray) -> tuple[object, ...]:
        return ((self.index, self.node.labels(taken)),)


@dataclass(frozen=True, eq=False)
class Listed(Node):
    """A frontier of several alternatives as one decision: which of its Pareto points to take."""

    frontier: Frontier

    @cached_property
    def _points(self) -> Points:
        return self.frontier.pareto()

    @cached_property
    def groups(self) -> Groups:
        return Groups.of_one(self._points.time_s, self._points.energy_j)

    def parts_taken(self, taken: IndexArray) -> Iterable[tuple[Node, IndexArray]]:
        point = self._points[int(taken[0])]
        return [(point.node, point.options)]

    def tie_keys(self) -> Iterator[Sequence[Hashable]]:
        """Refused, since ways that a tie needs may not be among the Pareto points."""
        raise BadInputError(
            "`frontiers`: a tie cannot contain an either within a sequence; tie the parts of each alternative"
        )


def tied(node: Node) -> Tied:
    """All decisions of a node tied by what their options have in common.

    Raises:
        BadInputError: they have nothing in common, or two ways of one decision are labelled alike.
    """
    shared: list[Hashable] | None = None
    options: list[dict[Hashable, int]] = []
    for keys in node.tie_keys():
        option_of = {key: index for index, key in enumerate(keys)}
        if len(option_of) < len(keys):
            twice = next(key for index, key in enumerate(keys) if option_of[key] != index)
            raise BadInputError(
                f"`frontiers`: two ways of one choice are both labelled {twice}; give each way its own label"
            )
        shared = list(option_of) if shared is None else [key for key in shared if key in option_of]
        options.append(option_of)
    if not shared:
        raise BadInputError(
            "`frontiers`: the tied parts have no setting in common; measure all of them at one setting at least"
        )
    return Tied(node, np.array([[option_of[key] for option_of in options] for key in shared]))


def _hashable(label: object) -> Hashable:
    if isinstance(label, Hashable):
        return label
    raise BadInputError(f"`frontiers`: label {label!r} cannot be compared with others; use text, numbers or tuples of them")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Point:
    """One way of doing the whole.

    Attributes:
        time_s: its time.
        energy_j: its energy.
        exact_time_s: its time without rounding.
        options: option taken for each decision; shape (decisions,).
        node: what these are the decisions of.
        lower_bound_j: for the answer to a question about energy: lower bound on the energy of any feasible way.
    """

    time_s: float
    energy_j: float
    exact_time_s: Fraction
    options: IndexArray
    node: Node
    lower_bound_j: float | None = None

    @property
    def choices(self) -> tuple[object, ...]:
        """For each choice under it, in order, the label of the way taken.

        A choice of :func:`either` gives the pair (which frontier, its choices).
        """
        return self.node.labels(self.options)

    def __repr__(self) -> str:
        return f"Point(time_s={self.time_s:.6g}, energy_j={self.energy_j:.6g}, decisions={len(self.options)})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Points(Sequence[Point]):
    """Several points of a frontier, by rising time.

    Attributes:
        time_s: shape (points,).
        energy_j: shape (points,).
        point_at: makes the :class:`Point` at an index.
    """

    time_s: FloatArray
    energy_j: FloatArray
    point_at: Callable[[int], Point]

    def __len__(self) -> int:
        return len(self.time_s)

    @overload
    def __getitem__(self, index: int) -> Point: ...
    @overload
    def __getitem__(self, index: slice) -> list[Point]: ...
    def __getitem__(self, index: int | slice) -> Point | list[Point]:
        chosen = range(len(self))[index]
        return self.point_at(chosen) if isinstance(chosen, int) else [self.point_at(each) for each in chosen]

    def __repr__(self) -> str:
        first, last = (f"({self.time_s[end]:.6g} s, {self.energy_j[end]:.6g} J)" for end in (0, -1))
        return f"Points({len(self)} from {first} to {last})"


def point_of(node: Node, options: IndexArray, energy_j: float, lower_bound_j: float | None = None) -> Point:
    """The point at which a node takes some options."""
    exact_s = exact_sum(node.time_terms(options))
    return Point(float(exact_s), energy_j, exact_s, options, node, lower_bound_j)
