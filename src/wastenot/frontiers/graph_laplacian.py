"""The Laplacian of a graph of events, factorised as a band; what a Newton step of the interior-point method solves with.

    e_1 ──edge──┐                        e_1 ── e_2
    e_2 ──edge──┼─ s_j ──part── e_j  ⇒    │   ╳   │       any two neighbours a, b of s_j: conductance k_a k_b / Σ k,
    e_3 ──edge──┘                        e_3 ── e_j       Σ over all edges at s_j (the star-mesh transform)

With every start eliminated in this way only ends are left. In order of time each has few others near it, so that the matrix
is a band, factorised in time (ends × band²): 384 parts of a pipeline of 8 × 24 have a band of 16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve_banded, cholesky_banded
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.frontiers.graph_times import Dag

_REGULARISED = 1e-13
"""Of a diagonal entry before starts are eliminated, added to it after. Elimination subtracts terms that may nearly cancel
it, with rounding errors of some 1e-16 of it each; 1e-13 outweighs hundreds of these, so that Cholesky finds no negative
pivot. The direction changes by as little, and the next iteration computes its residuals again."""


class Events(NamedTuple):
    """Values for starts and ends of parts, and for the end of all."""

    start: FloatArray
    end: FloatArray
    whole: float


class Rows(NamedTuple):
    """Values for each constraint: of parts, edges, and, where ending early counts, last parts and the whole."""

    part: FloatArray
    edge: FloatArray
    last: FloatArray
    whole: FloatArray

    def map(self, other: Rows) -> list[tuple[FloatArray, FloatArray]]:
        """Pairs of the values of both."""
        return list(zip(self, other, strict=True))


def _solved(factor: FloatArray, right: FloatArray) -> FloatArray:
    return np.asarray(cho_solve_banded((factor, True), right, check_finite=False)) if len(right) else right


def summed(index: IndexArray, values: FloatArray, count: int) -> FloatArray:
    """Sums of values by index."""
    return np.bincount(index, values, minlength=count).astype(np.float64, copy=False)


class Laplacian:
    """The Newton matrix of a graph: which product of conductances goes into which cell of the band is worked out once.

    Some events are fixed and no unknowns: a part that waits for none starts at 0, and a last part ends at the deadline,
    unless ending early counts.

    Attributes:
        band: how far apart neighbours are among the ends that are unknown.
        unknown: how many these are.
    """

    def __init__(self, dag: Dag, ends_early: bool) -> None:
        parts = len(dag)
        self.dag, self.ends_early = dag, ends_early
        waits = np.diff(dag.into) > 0
        self.waits = waits
        known = np.zeros(parts, dtype=bool)
        if not ends_early:
            known[dag.without_later] = True
        # What touches each start: its own part (conductances come first), and its edges (after them).
        own = np.flatnonzero(waits & ~known)
        start = np.concatenate([own, dag.later])
        node = np.concatenate([own, dag.earlier])
        what = np.concatenate([own, parts + np.arange(len(dag.earlier))])
        by_start = np.argsort(start, kind="stable")
        start, node, what = start[by_start], node[by_start], what[by_start]
        # All pairs of neighbours of the same start, each once: an entry and those of its start that come after it.
        count = np.bincount(start, minlength=parts)
        after = np.cumsum(count)[start]
        others = after - np.arange(len(start)) - 1
        first = np.repeat(np.arange(len(start)), others)
        second = first + 1 + np.arange(len(first)) - np.repeat(np.cumsum(others) - others, others)
        self._pairs = len(first)
        place = _shortest_band(dag, known, node[first], node[second])
        self.unknown = int((~known).sum())
        self._end_of = np.flatnonzero(~known)[np.argsort(place[~known])]
        one, two = place[node[first]], place[node[second]]
        apart = np.abs(one - two)
        self.band = int(apart.max(initial=0))
        self._first, self._second, self._start = what[first], what[second], start[first]
        self._cell = apart * self.unknown + np.minimum(one, two)
        # Parallel edges: both of the pair are the same end, and k_a k_b + k_b k_a fall onto its diagonal cell.
        self._twice = np.where(apart == 0, 2.0, 1.0)
        self._touch, self._touched, self._of = what, place[node], start

    @property
    def cells(self) -> int:
        """Size of the band matrix."""
        return (self.band + 1) * self.unknown

    def factorised(self, conductance: Rows) -> _Factor:
        """The matrix for some conductances, ready to solve with.

        Its diagonal is the Schur complement Σ k − Σ k² / (Σ k at the start), off it −k_a k_b / (Σ k at the start).
        """
        dag, unknown = self.dag, self.unknown
        each = np.concatenate([conductance.part, conductance.edge])
        at_start = conductance.part + summed(dag.later, conductance.edge, len(dag))
        at_start[~self.waits] = 1.0  # fixed at 0: not eliminated, only kept from dividing by 0
        at_end = conductance.part + summed(dag.earlier, conductance.edge, len(dag))
        if self.ends_early:
            at_end[dag.without_later] += conductance.last
        band = summed(
            self._cell, -self._twice * each[self._first] * each[self._second] / at_start[self._start], self.cells
        ).reshape(self.band + 1, unknown)
        band[0] += at_end[self._end_of] - summed(self._touched, each[self._touch] ** 2 / at_start[self._of], unknown)
        band[0] = np.maximum(band[0], 0.0) + _REGULARISED * at_end[self._end_of]
        factor = cholesky_banded(band, overwrite_ab=True, lower=True, check_finite=False) if unknown else band
        # The end of the whole touches all last parts: its row would fill the band. It is a border of the band matrix M
        # instead: with c its column, y = M⁻¹ g − w M⁻¹ c, where ``coupled`` is M⁻¹ c, and its own row then gives w.
        coupled = np.zeros(0)
        if self.ends_early:
            last = np.zeros(len(dag))
            last[dag.without_later] = -conductance.last
            coupled = _solved(factor, last[self._end_of])
        return _Factor(self, conductance, each, at_start, factor, coupled)


@dataclass(frozen=True, eq=False)
class _Factor:
    laplacian: Laplacian
    conductance: Rows
    each: FloatArray
    at_start: FloatArray
    factor: FloatArray
    coupled: FloatArray

    def solve(self, right: Events) -> Events:
        """Events at which the matrix gives ``right``; those that are known do not move."""
        its, dag = self.laplacian, self.laplacian.dag
        pushed = np.where(its.waits, right.start / self.at_start, 0.0)
        given = right.end[its._end_of] + summed(its._touched, self.each[its._touch] * pushed[its._of], its.unknown)
        solved = _solved(self.factor, given)
        whole = 0.0
        if its.ends_early:
            last = -self.conductance.last
            total = float(self.conductance.last.sum() + self.conductance.whole.sum())
            at_last = np.zeros(len(dag))
            at_last[its._end_of] = solved
            other = np.zeros(len(dag))
            other[its._end_of] = self.coupled
            whole = (right.whole - float(last @ at_last[dag.without_later])) / (
                total - float(last @ other[dag.without_later])
            )
            solved = solved - whole * self.coupled
        end = np.zeros(len(dag))
        end[its._end_of] = solved
        pulled = summed(its._of, self.each[its._touch] * solved[its._touched], len(dag))
        start = np.where(its.waits, pushed + pulled / self.at_start, 0.0)
        return Events(start, end, whole)


def _shortest_band(dag: Dag, known: np.ndarray, one: IndexArray, two: IndexArray) -> IndexArray:
    """The place of each unknown end, of several orders the one with the narrowest band.

    Orders tried: by levels from the start of the graph, from its end, by both, and reverse Cuthill-McKee. Which is best
    depends on the schedule's shape; they are tried once for each graph.
    """
    unknown = np.flatnonzero(~known)
    level = np.repeat(np.arange(dag.levels), np.diff(dag.start))
    from_end = dag.latest_s(np.ones(len(dag)), 0.0)
    if not len(one):
        place = np.full(len(dag), -1, dtype=np.intp)
        place[unknown] = np.arange(len(unknown))
        return place
    orders = [unknown[np.argsort(key[unknown], kind="stable")] for key in (level, from_end, level + from_end)]
    index = np.full(len(dag), -1, dtype=np.intp)
    index[unknown] = np.arange(len(unknown))
    neighbours = csr_array((np.ones(len(one)), (index[one], index[two])), shape=(len(unknown), len(unknown)))
    orders.append(unknown[reverse_cuthill_mckee((neighbours + neighbours.T).tocsr(), symmetric_mode=True)])
    best, narrowest = np.full(len(dag), -1, dtype=np.intp), len(dag) + 1
    for order in orders:
        place = np.full(len(dag), -1, dtype=np.intp)
        place[order] = np.arange(len(order))
        width = int(np.abs(place[one] - place[two]).max(initial=0))
        if width < narrowest:
            best, narrowest = place, width
    return best
