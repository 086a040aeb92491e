"""Beam search for the ways of a stretch of a graph's parts, guided by the prices of its relaxation.

Given what a second is worth along each dependency (a flow that solves the relaxation's dual), what a plan costs above the
bound is a sum of losses, none of them negative. With F_i the flow through part i, which takes t_i, costs c_i and ends at
e_i, and f_e that along edge e, on which u_e seconds pass unused:

    Σ c_i − bound = Σ [c_i + F_i t_i − min (c + F_i t)] + Σ f_e u_e + Σ F_i (deadline − e_i)
                      its way above its cheapest              unused     last parts: time left at the end

For along every path that the flow takes times, delays and unused time add up to the deadline: Σ F_i t_i + Σ f_e (delay_e +
u_e) + Σ F_i (deadline − e_i) is the flow times the deadline, whatever the plan. The minima, less that and with the delays,
are the bound (:func:`wastenot.frontiers.graph_relaxation.flow_bound`).

Parts are taken in order of their targeted start; states that lost least so far are kept. Time that a part is ahead of its
target is not lost yet, but part of it will be: a fraction is charged until it is known, where its later parts start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.frontiers.graph_relaxation import GraphProblem
from wastenot.frontiers.graph_times import Dag

_DEDUPLICATED = 2  # every so many parts, states that differ no longer are merged


@dataclass(frozen=True, slots=True)
class Guide:
    """How a search is guided.

    Attributes:
        width: states that are kept.
        early: fraction charged of what it would cost to lose all time that a part is ahead of its target.
        late: likewise of time that it is behind.
        late_s: a part may be behind its target by so much.
        faster: ways looked at that are faster than the targeted time, ...
        slower: ... and slower; and vertices of the lower hull on either side.
        limit: states that lost as much are dropped.
        same: states whose ends differ by less than this fraction of the deadline are merged.
    """

    width: int = 64
    early: float = 0.3
    late: float = 0.3
    late_s: float = 0.0
    faster: int = 3
    slower: int = 2
    limit: float = np.inf
    same: float = 1e-13

    def charged(self, behind_s: FloatArray) -> FloatArray:
        """Time charged for being behind the target, or ahead of it."""
        charge = self.late * behind_s
        return np.maximum(-self.early * behind_s, charge, out=charge)


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A schedule that a search follows, and prices; arrays by part are in the order of the graph's levels.

    Attributes:
        time_s: of each part.
        end_s: latest end of each part that keeps the deadline with these times.
        edge_w: flow along each edge.
        through_w: flow through each part.
    """

    time_s: FloatArray
    end_s: FloatArray
    edge_w: FloatArray
    through_w: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What a search found, cheapest first.

    Attributes:
        ways: positions in the table's rows; shape (states, parts), no rows where no state was left.
        cost: of each, less what is saved by ending early.
        complete: whether no state was dropped but for its loss or because another is the same from there on: what was not
            found then costs more than the limit. A search that ran out of states proves nothing if some were dropped before.
    """

    ways: IndexArray
    cost: FloatArray
    complete: bool


def searched(
    problem: GraphProblem, target: Target, parts: IndexArray, earliest_end_s: FloatArray, guide: Guide, best: int = 1
) -> Found:
    """The ways found for some parts, and their cost.

    Args:
        problem: the graph.
        target: what to follow; parts outside keep their times.
        parts: in an order in which none comes before one that it waits for.
        earliest_end_s: of parts outside that these wait for.
        guide: how to search.
        best: how many of the cheapest to return.
    """
    dag, table, klass = problem.dag, problem.table, problem.klass
    step = np.full(len(dag), -1, dtype=np.intp)
    step[parts] = np.arange(len(parts))
    slots = _Slots.of(dag, parts, step)
    begin = target.end_s - target.time_s
    unused_s = begin[dag.later] - target.end_s[dag.earlier] - dag.delay_s
    hard = np.minimum(_latest_within(problem, target, parts, step), target.end_s + guide.late_s) - target.end_s
    hard += dag.doubt_s(problem.within_s)
    near = (table.time_s[klass[parts]] <= (target.time_s[parts] * (1.0 + 1e-12))[:, None]).sum(axis=1) - 1
    options = _options(problem, parts, near, guide)

    states = _States(np.zeros((max(slots.count, 1), 1)), np.zeros(1), np.zeros(1))
    states.ahead[: len(slots.outside), 0] = earliest_end_s[slots.outside] - target.end_s[slots.outside]
    mixing = np.random.default_rng(0).uniform(0.5, 1.5, len(states.ahead))
    same = guide.same * problem.within_s
    # Time left at the end is lost, unless ending early saves something.
    last = (np.diff(dag.out) == 0) & (not problem.ends_early)
    complete = True
    history: list[tuple[IndexArray, IndexArray]] = []
    for index, part in enumerate(parts.tolist()):
        row, taken = klass[part], options[index]
        way_s, way_j, price = table.time_s[row, taken], table.cost_j[row, taken], target.through_w[part]
        worth = way_j + price * way_s
        edges = slice(int(dag.into[part]), int(dag.into[part + 1]))
        if slots.before[index]:
            late = states.ahead[slots.before[index]]
            arrives = late - unused_s[edges][:, None]
            starts = arrives.max(axis=0)
            flow = target.edge_w[edges]
            base = states.lost + flow.sum() * starts - flow @ (arrives + guide.charged(late))
        else:
            starts, base = np.full(len(states.lost), -begin[part]), states.lost
        ends = starts + (way_s - target.time_s[part])[:, None]
        lost = price * (-ends if last[part] else guide.charged(ends)) + base
        lost += (worth - worth.min())[:, None]
        lost[(ends > hard[part]) | (lost >= guide.limit)] = np.inf
        kept, all_kept = _least(lost, guide.width)
        complete &= all_kept
        if not len(kept):
            return Found(np.empty((0, len(parts)), dtype=np.intp), np.empty(0), complete)
        way, parent = np.divmod(kept, len(starts))
        states = _States(states.ahead.take(parent, axis=1), lost.ravel()[kept], states.cost[parent] + way_j[way])
        slots.store(index, states.ahead, ends.ravel()[kept])
        if index % _DEDUPLICATED == 0 and (different := states.different(mixing, same)) is not None:
            states, parent, way = states.only(different), parent[different], way[different]
        history.append((parent, way))
    cost = states.cost
    if problem.ends_early and slots.ending:
        over = (states.ahead[slots.ending] + target.end_s[dag.without_later][:, None]).max(axis=0)
        cost = cost - problem.end_w * np.clip(problem.within_s - over, 0.0, problem.end_s)
    cheapest = np.argsort(cost, kind="stable")[:best]
    before, ways = np.cumsum([0, *map(len, options[:-1])]), np.concatenate(options)
    found = np.array([ways[before + _traced(history, state)] for state in cheapest.tolist()])
    return Found(found, cost[cheapest], complete)


def _options(problem: GraphProblem, parts: IndexArray, near: IndexArray, guide: Guide) -> list[IndexArray]:
    """The ways that each part is searched among, as positions in its row of the table.

    Besides those near its target, the vertices of its lower hull on either side: where ways between them cost more than a
    mixture of both, only vertices are worth much, however many ways are between.
    """
    table = problem.table
    known: dict[tuple[int, int], IndexArray] = {}
    for row, at in set(zip(problem.klass[parts].tolist(), near.tolist(), strict=True)):
        hull = table.hull[table.hull_start[row] : table.hull_start[row + 1]]
        slower = int(np.searchsorted(hull, at, side="right"))
        beside = np.arange(max(at - guide.faster, 0), min(at + guide.slower + 1, int(table.size[row])))
        known[row, at] = np.union1d(beside, hull[max(slower - 2, 0) : slower + 1])
    return [known[each] for each in zip(problem.klass[parts].tolist(), near.tolist(), strict=True)]


def _least(values: FloatArray, count: int) -> tuple[IndexArray, bool]:
    """Where the least values are, without infinite ones, and whether these are all; of equal ones the first.

    Which of equal values :func:`numpy.argpartition` takes depends on the processor.

    Args:
        values: shape (ways, states).
        count: how many are kept.
    """
    flat = values.ravel()
    near = np.flatnonzero(flat < np.inf)
    if len(near) <= count:
        return near, True
    if values.shape[1] == count:  # each state's least alone are as many: what is above all of them is not looked at
        near = np.flatnonzero(flat <= values.min(axis=0).max())
    found = flat[near]
    limit = np.partition(found, count - 1)[count - 1]
    kept = near[found <= limit]
    if len(kept) > count:
        kept = np.delete(kept, np.flatnonzero(flat[kept] == limit)[count - len(kept) :])
    return kept, False


def _traced(history: list[tuple[IndexArray, IndexArray]], state: int) -> IndexArray:
    """The ways that led to a state."""
    found = np.empty(len(history), dtype=np.intp)
    for index in range(len(history) - 1, -1, -1):
        parent, way = history[index]
        found[index] = way[state]
        state = int(parent[state])
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _States:
    """States of a search.

    Attributes:
        ahead: how far ends are past their target, by slot and state.
        lost: so far, and what is charged beforehand; shape (states,).
        cost: of the ways taken.
    """

    ahead: FloatArray
    lost: FloatArray
    cost: FloatArray

    def only(self, kept: IndexArray) -> _States:
        """Some of the states."""
        return _States(self.ahead.take(kept, axis=1), self.lost[kept], self.cost[kept])

    def different(self, mixing: FloatArray, same_s: float) -> IndexArray | None:
        """Of states that differ in nothing to come, the one that lost least; ``None`` where all differ."""
        key = mixing @ self.ahead
        if same_s > 0.0:
            key = np.rint(key / same_s)
        ordered = np.sort(key)
        if (ordered[1:] != ordered[:-1]).all():
            return None
        order = np.lexsort((self.lost, key))
        apart = np.empty(len(order), dtype=bool)
        apart[0] = True
        np.not_equal(key[order][1:], key[order][:-1], out=apart[1:])
        kept: IndexArray = order[apart]
        return kept


@dataclass(frozen=True, slots=True, eq=False)
class _Slots:
    """Where ends are kept that later parts of a search wait for; places are used again.

    Attributes:
        count: how many places there are.
        outside: parts outside the search that it waits for; these have the first places.
        before: of each part, the places of those that it waits for.
        place: of each part itself, -1 where none waits for it.
        gone: of each part, places that no part waits for after it.
        ending: places of last parts, where the whole graph is searched.
    """

    count: int
    outside: IndexArray
    before: list[list[int]]
    place: list[int]
    gone: list[list[int]]
    ending: list[int]

    @classmethod
    def of(cls, dag: Dag, parts: IndexArray, step: IndexArray) -> _Slots:
        edges = np.flatnonzero(step[dag.later] >= 0)
        needed = np.full(len(dag), -1, dtype=np.intp)
        np.maximum.at(needed, dag.earlier[edges], step[dag.later[edges]])
        outside = np.flatnonzero((needed >= 0) & (step < 0))
        whole = len(parts) == len(dag)
        if whole:
            needed[dag.without_later] = len(parts)  # to the end
        place_of: dict[int, int] = {part: index for index, part in enumerate(outside.tolist())}
        released: list[list[int]] = [[] for _ in range(len(parts))]
        for part in np.flatnonzero((needed >= 0) & (needed < len(parts))).tolist():
            released[int(needed[part])].append(part)
        free: list[int] = []
        count = len(outside)
        before, place, gone = [], [], []
        for index, part in enumerate(parts.tolist()):
            before.append([place_of[each] for each in dag.earlier[dag.into[part] : dag.into[part + 1]].tolist()])
            unused = [place_of[each] for each in released[index]]
            free += unused
            if needed[part] >= 0:
                if not free:
                    free.append(count)
                    count += 1
                place_of[part] = free.pop()
            place.append(place_of.get(part, -1))
            gone.append([each for each in unused if each != place[-1]])
        ending = [place_of[part] for part in dag.without_later.tolist()] if whole else []
        return cls(count, outside, before, place, gone, ending)

    def store(self, index: int, ahead: FloatArray, ends: FloatArray) -> None:
        """Keep a part's ends, and forget what is not needed any more."""
        if self.place[index] >= 0:
            ahead[self.place[index]] = ends
        if self.gone[index]:
            ahead[self.gone[index]] = 0.0


def _latest_within(problem: GraphProblem, target: Target, parts: IndexArray, step: IndexArray) -> FloatArray:
    """Latest ends by which the parts can continue at their fastest, and parts outside as targeted."""
    dag = problem.dag
    time = np.where(step >= 0, problem.table.time_s[problem.klass, 0], target.time_s)
    if len(parts) == len(dag):
        return dag.latest_s(time, problem.within_s)
    latest = target.end_s.copy()
    for part in parts[::-1].tolist():
        edges = dag.out_edges(part)
        later = dag.later[edges]
        if len(edges):
            latest[part] = float((latest[later] - time[later] - dag.delay_s[edges]).min())
    return latest
