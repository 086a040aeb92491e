"""When parts that depend on each other start and end: longest paths, all parts of a level at once.

A part's level is the number of parts on the longest chain before it, so that parts of one level never wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.errors import BadInputError

_EPS = float(np.finfo(np.float64).eps)
_NAMED = 6  # parts of a cycle that a message names


class Dag:
    """Dependencies, laid out level by level; arrays in the order of levels unless said otherwise.

    Args:
        parts: how many there are.
        edges: pairs (earlier part, later part), in the caller's order; shape (edges, 2).
        delay_s: between the earlier part's end and the later part's start; shape (edges,).

    Attributes:
        order: the caller's index of each part, by level; shape (parts,).
        place: where each of the caller's parts is in :attr:`order`.
        start: parts of level ``l`` are ``start[l]:start[l + 1]``.
        earlier: of each edge, by later part.
        later: of each edge, not falling.
        delay_s: of each edge.
        into: the edges that part ``p`` waits for are ``into[p]:into[p + 1]``.
        out: likewise of the edges of later parts, among edges sorted by earlier part.
        without_later: parts that none waits for.

    Raises:
        BadInputError: parts wait for each other in a cycle.
    """

    def __init__(self, parts: int, edges: IndexArray, delay_s: FloatArray) -> None:
        level = _levels(parts, edges)
        self.order = np.argsort(level, kind="stable")
        self.place = np.empty(parts, dtype=np.intp)
        self.place[self.order] = np.arange(parts)
        self.levels = int(level.max()) + 1
        self.start = np.searchsorted(level[self.order], np.arange(self.levels + 1))
        placed = self.place[edges]
        by_later = np.lexsort((placed[:, 0], placed[:, 1]))
        self.earlier, self.later = placed[by_later].T
        self.delay_s = delay_s[by_later]
        by_earlier = np.lexsort((self.later, self.earlier))
        self._by_earlier = by_earlier
        self.into = np.searchsorted(self.later, np.arange(parts + 1))
        self.out = np.searchsorted(self.earlier[by_earlier], np.arange(parts + 1))
        self._forward = [self._incoming(*bounds) for bounds in self._bounds(1)]
        self._leaving = [self._outgoing(*bounds) for bounds in self._bounds(0)]
        self.without_later = np.flatnonzero(np.diff(self.out) == 0)

    def __len__(self) -> int:
        return len(self.order)

    def leads(self, earlier: int, later: int) -> bool:
        """Whether a part waits, through others or not, for an earlier one; both by their places."""
        seen, found = {later}, [later]
        while found:
            part = found.pop()
            before = self.earlier[self.into[part] : self.into[part + 1]]
            if (before == earlier).any():
                return True
            fresh = set(before[before > earlier].tolist()) - seen  # levels rise along edges, and places with levels
            seen |= fresh
            found += fresh
        return False

    def _bounds(self, first: int) -> Iterator[tuple[int, int]]:
        return ((int(self.start[level]), int(self.start[level + 1])) for level in range(first, self.levels))

    def _incoming(self, begin: int, end: int) -> tuple[slice, IndexArray, FloatArray, IndexArray]:
        """The parts, the earlier parts of their edges and delays, and where each part's edges begin among these."""
        edges = slice(int(self.into[begin]), int(self.into[end]))
        first = self.into[begin:end] - self.into[begin]
        return slice(begin, end), self.earlier[edges], self.delay_s[edges], first

    def _outgoing(self, begin: int, end: int) -> tuple[IndexArray, IndexArray, IndexArray]:
        """Those of the parts that have later ones, their edges, and where each part's edges begin among these."""
        leading = begin + np.flatnonzero(np.diff(self.out[begin : end + 1]))
        return leading, self._by_earlier[self.out[begin] : self.out[end]], self.out[leading] - self.out[begin]

    def out_edges(self, part: int) -> IndexArray:
        """The edges of later parts."""
        return self._by_earlier[self.out[part] : self.out[part + 1]]

    def walk(self, end_s: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        """The parts of each level and their earliest starts; the caller fills in their ends before it continues."""
        first = int(self.start[1])
        yield slice(0, first), np.zeros(first)
        for parts, earlier, delay, begins in self._forward:
            yield parts, np.maximum.reduceat(end_s[earlier] + delay, begins)

    def levels_into(self) -> Iterator[tuple[slice, slice, IndexArray]]:
        """The parts of each level but the first, their edges, and where each part's edges begin among these."""
        for parts, _, _, first in self._forward:
            yield parts, slice(int(self.into[parts.start]), int(self.into[parts.stop])), first

    def spread(self, share: FloatArray, through: FloatArray, flow: FloatArray) -> None:
        """Fill in a flow from what leaves last parts: what flows out of each part enters it in given shares.

        Args:
            share: of each edge, of what enters its later part.
            through: of each part; given for those of :attr:`without_later`.
            flow: along each edge.
        """
        for level in range(self.levels - 1, -1, -1):
            leading, edges, first = self._leaving[level]
            if len(leading):
                through[leading] = np.add.reduceat(flow[edges], first)
            into = slice(int(self.into[self.start[level]]), int(self.into[self.start[level + 1]]))
            flow[into] = share[into] * through[self.later[into]]

    def earliest_s(self, time_s: FloatArray) -> FloatArray:
        """The earliest start of each part."""
        start = np.zeros(len(self))
        end = time_s.copy()
        for parts, earlier, delay, first in self._forward:
            begin = np.maximum.reduceat(end[earlier] + delay, first)
            start[parts] = begin
            end[parts] += begin
        return start

    def ends_s(self, time_s: FloatArray) -> FloatArray:
        """The earliest ends of all parts at each of several sets of times; shape (parts, sets)."""
        end = time_s.copy()
        for parts, earlier, delay, first in self._forward:
            end[parts] += np.maximum.reduceat(end[earlier] + delay[:, None], first, axis=0)
        return end

    def longest_s(self, time_s: FloatArray) -> FloatArray:
        """The longest path at each of several sets of times; shapes (parts, sets) and (sets,)."""
        return np.asarray(self.ends_s(time_s).max(axis=0))

    def critical_path(self, start_s: FloatArray, end_s: FloatArray) -> IndexArray:
        """Parts that follow on each other without a pause up to the last end, given when each starts and ends."""
        path = [int(np.argmax(end_s))]
        while self.into[path[-1]] < self.into[path[-1] + 1]:
            edges = slice(int(self.into[path[-1]]), int(self.into[path[-1] + 1]))
            earlier = self.earlier[edges]
            path.append(int(earlier[np.argmin(np.abs(end_s[earlier] + self.delay_s[edges] - start_s[path[-1]]))]))
        return np.array(path[::-1], dtype=np.intp)

    def latest_s(self, time_s: FloatArray, within_s: float) -> FloatArray:
        """The latest end of each part, so that all is done within a time."""
        end = np.full(len(self), within_s)
        for leading, edges, first in reversed(self._leaving):
            if len(leading):
                later = self.later[edges]
                end[leading] = np.minimum.reduceat(end[later] - time_s[later] - self.delay_s[edges], first)
        return end

    def conserved(self, flow: FloatArray, last: FloatArray) -> tuple[FloatArray, FloatArray]:
        """What flows through each part, and the flows scaled so that as much enters each part as leaves it.

        Args:
            flow: along each edge, not negative.
            last: out of each of :attr:`without_later`.
        """
        through = np.zeros(len(self))
        through[self.without_later] = last
        fitted = flow.copy()
        entering = np.bincount(self.later, flow, minlength=len(self))
        counts = np.diff(self.into)
        for level in range(self.levels - 1, -1, -1):
            begin, end = int(self.start[level]), int(self.start[level + 1])
            leading, edges, first = self._leaving[level]
            if len(leading):
                through[leading] = np.add.reduceat(fitted[edges], first)
            if level:
                into = slice(int(self.into[begin]), int(self.into[end]))
                with np.errstate(divide="ignore", invalid="ignore"):
                    factor = np.where(entering[begin:end] > 0.0, through[begin:end] / entering[begin:end], 0.0)
                fitted[into] *= np.repeat(factor, counts[begin:end])
                dry = np.flatnonzero((entering[begin:end] <= 0.0) & (through[begin:end] > 0.0)) + begin
                fitted[self.into[dry]] = through[dry]
        return through, fitted

    def doubt_s(self, time_s: float) -> float:
        """How far rounding can move a path's length, of about a time."""
        return 4.0 * (self.levels + 2) * _EPS * abs(time_s)

    def exact_s(self, time_s: FloatArray, start_s: FloatArray) -> Fraction:
        """The longest path without rounding.

        Only parts that rounding cannot keep off a longest path are looked at.

        Args:
            time_s: of each part.
            start_s: their earliest starts.
        """
        total = float((start_s + time_s).max())
        slack = self.latest_s(time_s, total) - time_s - start_s
        near = slack <= self.doubt_s(total)
        joined = near[self.earlier] & near[self.later]
        before: dict[int, list[tuple[int, float]]] = {part: [] for part in np.flatnonzero(near).tolist()}
        for earlier, later, delay in zip(
            self.earlier[joined].tolist(), self.later[joined].tolist(), self.delay_s[joined].tolist(), strict=True
        ):
            before[later].append((earlier, delay))
        together = np.concatenate([time_s[near], self.delay_s[joined]]).tolist()
        scale = max((value.as_integer_ratio()[1] for value in together), default=1)  # a power of two makes them integers
        end: dict[int, int] = {}
        times = time_s.tolist()
        for part, waits in before.items():
            begin = max((end[earlier] + _scaled(delay, scale) for earlier, delay in waits), default=0)
            end[part] = begin + _scaled(times[part], scale)
        return Fraction(max(end.values()), scale)


def _scaled(value: float, scale: int) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator * (scale // denominator)


def _levels(parts: int, edges: IndexArray) -> IndexArray:
    """The level of each part."""
    by_earlier = edges[np.argsort(edges[:, 0], kind="stable")]
    out = np.searchsorted(by_earlier[:, 0], np.arange(parts + 1))
    missing = np.bincount(edges[:, 1], minlength=parts)
    level = np.full(parts, -1, dtype=np.intp)
    ready = np.flatnonzero(missing == 0)
    depth = 0
    while len(ready):
        level[ready] = depth
        depth += 1
        counts = out[ready + 1] - out[ready]
        first = np.repeat(out[ready] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
        later = by_earlier[first + np.arange(len(first)), 1]
        touched, times = np.unique(later, return_counts=True)
        missing[touched] -= times
        ready = touched[missing[touched] == 0]
    if (level < 0).any():
        raise BadInputError(f"`edges`: parts wait for each other in a cycle: {_named_cycle(edges, level < 0)}")
    return level


def _named_cycle(edges: IndexArray, stuck: np.ndarray) -> str:
    """A cycle among parts that are stuck, as text; each of these has an earlier part that is stuck too."""
    before = {later: earlier for earlier, later in edges[stuck[edges[:, 0]]].tolist()}
    seen: dict[int, int] = {}
    part = next(later for later in before if stuck[later])
    while part not in seen:
        seen[part] = len(seen)
        part = before[part]
    cycle = [each for each, index in seen.items() if index >= seen[part]][::-1]
    cycle = cycle[cycle.index(min(cycle)) :] + cycle[: cycle.index(min(cycle))]
    shown = [str(each) for each in (cycle if len(cycle) <= _NAMED else [*cycle[: _NAMED - 1], "...", cycle[-1]])]
    return " -> ".join([*shown, str(cycle[0])])
