"""Parts that depend on each other, with a deadline, and power that workers draw while they wait.

    worker 0   |F0|F1|F2|  |B0|  |B1|  |B2|
    worker 1      |F0|B0|F1|B1|F2|B2|

What is not on the critical path can take longer at no cost. The least energy within a deadline is a linear program once
parts may mix their ways (the linear time-cost trade-off: Fulkerson, Management Science 7, 1961; Kelley, Operations Research
9, 1961); its optimum is the lower bound, and plans of ways as they are come close to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from wastenot.arrays import BoolArray, FloatArray, IndexArray
from wastenot.errors import BadInputError, InfeasibleError
from wastenot.frontiers.algebra import Frontier, Point, Points
from wastenot.frontiers.exact import exact_sum
from wastenot.frontiers.pareto import Groups, hull_points, pareto_points


@dataclass(frozen=True, slots=True, eq=False)
class GraphPlan:
    """A way for each part.

    Attributes:
        way: that each part takes, as an index into :meth:`Graph.ways` of its kind; shape (parts,).
        part_time_s: of each part; shape (parts,).
        start_s: earliest start of each part; shape (parts,).
        slack_s: how much later each part could start without the end moving; shape (parts,).
        time_s: from the first start to the last end.
        exact_time_s: the same without rounding.
        lasts_s: how long workers are kept: ``time_s``, or until what they wait for (a straggler) is done.
        energy_j: of all parts, and of workers while they wait until ``lasts_s``.
        lower_bound_j: no plan that answers the same question needs less.
    """

    way: IndexArray
    part_time_s: FloatArray
    start_s: FloatArray
    slack_s: FloatArray
    time_s: float
    exact_time_s: Fraction
    lasts_s: float
    energy_j: float
    lower_bound_j: float | None = None

    @property
    def critical(self) -> BoolArray:
        """Whether each part is on a critical path."""
        return self.slack_s <= 1e-9 * self.time_s

    @property
    def gap(self) -> float:
        """How far the energy can be above the least possible, as a fraction of it; nan without a bound."""
        return np.nan if self.lower_bound_j is None else (self.energy_j - self.lower_bound_j) / self.energy_j


class Graph:
    """Parts with dependencies.

    Args:
        kinds: frontiers of parts that are alike, such as a stage's forward.
        kind: of each part, an index into ``kinds``; shape (parts,).
        edges: pairs (earlier part, later part); shape (edges, 2).
        delay_s: that must pass between the end of the earlier part and the start of the later one, such as a transfer;
            shape (edges,), by default nothing.
        worker: that each part keeps busy, -1 for none (its whole energy then counts as it is); shape (parts,), by default
            all on worker 0. Parts of one worker must be ordered by the edges.
        waiting_w: power that each worker draws while no part keeps it busy; shape (workers,).

    Raises:
        BadInputError: there is a cycle, a part without ways, an edge to a part that is not there, or a bad number.
    """

    def __init__(
        self,
        kinds: Sequence[Frontier],
        kind: IndexArray,
        edges: IndexArray,
        *,
        delay_s: FloatArray | None = None,
        worker: IndexArray | None = None,
        waiting_w: FloatArray | None = None,
    ) -> None:
        self.kinds = tuple(kinds)
        self.kind = np.asarray(kind, dtype=np.intp)
        self.edges = np.asarray(edges, dtype=np.intp).reshape(-1, 2)
        self.delay_s = np.zeros(len(self.edges)) if delay_s is None else np.asarray(delay_s, dtype=float)
        self.worker = np.zeros(len(self.kind), dtype=np.intp) if worker is None else np.asarray(worker, dtype=np.intp)
        self.waiting_w = np.zeros(1) if waiting_w is None else np.asarray(waiting_w, dtype=float)
        self._points: tuple[Points, ...] = tuple(map(_all_ways, self.kinds))
        self._order = self._topological()

    def __len__(self) -> int:
        return len(self.kind)

    def ways(self, kind: int) -> Points:
        """The ways that parts of a kind choose from, by rising time; ``ways(k)[way].choices`` are the labels."""
        return self._points[kind]

    # ---- questions -------------------------------------------------------------------------------------------

    def least_time(self) -> GraphPlan:
        """Each part as fast as it can be."""
        return self.plan(np.zeros(len(self), dtype=np.intp))

    def least_energy(
        self, within_s: Fraction | float | None = None, *, until_s: float | None = None, seconds: float = 10.0
    ) -> GraphPlan:
        """The plan of least energy that ends within a time.

        Args:
            within_s: the deadline; ``None`` for no limit.
            until_s: workers wait until then at least, however early they are done (a straggler holds them up).
            seconds: stop improving the plan after so long.

        Raises:
            InfeasibleError: no plan is that fast; names the fastest.
        """
        fastest = self.least_time()
        if within_s is not None and fastest.exact_time_s > within_s:
            raise InfeasibleError(
                f"`within_s` {float(within_s):g}: no plan is that fast; the fastest takes {fastest.time_s:.9g} s"
            )
        duration, bound = self._relaxed(within_s, until_s)
        fits = duration * (1.0 + 1e-12)
        way = [
            int(np.searchsorted(self._points[kind].time_s, limit, side="right")) - 1
            for kind, limit in zip(self.kind.tolist(), fits.tolist(), strict=True)
        ]
        plan = self.plan(np.maximum(np.array(way, dtype=np.intp), 0), until_s=until_s)
        return replace(plan, lower_bound_j=bound)

    def plan(self, way: IndexArray, until_s: float | None = None) -> GraphPlan:
        """The plan in which each part takes a way."""
        points = [self._points[kind] for kind in self.kind.tolist()]
        time = np.array([each.time_s[taken] for each, taken in zip(points, way.tolist(), strict=True)])
        energy = np.array([each.energy_j[taken] for each, taken in zip(points, way.tolist(), strict=True)])
        start, exact = np.zeros(len(self)), [Fraction(0)] * len(self)
        end = [Fraction(0)] * len(self)
        before = self._before
        for part in self._order:
            exact[part] = max((end[p] + Fraction(d) for p, d in before[part]), default=Fraction(0))
            end[part] = exact[part] + Fraction(float(time[part]))
            start[part] = float(exact[part])
        total = max(end)
        latest = np.full(len(self), float(total))
        for part in reversed(self._order):
            for p, d in before[part]:
                latest[p] = min(latest[p], latest[part] - time[part] - d)
        lasts = max(float(total), until_s or 0.0)
        busy = self.worker >= 0
        energy_j = float(
            energy.sum() + self.waiting_w.sum() * lasts - (self.waiting_w[self.worker[busy]] * time[busy]).sum()
        )
        return GraphPlan(way, time, start, latest - time - start, float(total), total, lasts, energy_j)

    # ---- inside ----------------------------------------------------------------------------------------------

    def _topological(self) -> list[int]:
        self._before: list[list[tuple[int, float]]] = [[] for _ in range(len(self))]
        after: list[list[int]] = [[] for _ in range(len(self))]
        for (earlier, later), delay in zip(self.edges.tolist(), self.delay_s.tolist(), strict=True):
            self._before[later].append((earlier, delay))
            after[earlier].append(later)
        missing = [len(each) for each in self._before]
        ready = [part for part, count in enumerate(missing) if not count]
        for part in ready:
            for later in after[part]:
                missing[later] -= 1
                if not missing[later]:
                    ready.append(later)
        if len(ready) < len(self):
            raise BadInputError("`edges`: parts wait for each other in a cycle")
        return ready

    def _relaxed(self, within_s: Fraction | float | None, until_s: float | None) -> tuple[FloatArray, float]:
        """Durations of the linear relaxation, and its optimum."""
        parts, cost, length, columns = len(self), [], [], []
        fixed = 0.0
        for part in range(parts):
            points = self._points[self.kind[part]]
            power = self.waiting_w[self.worker[part]] if self.worker[part] >= 0 else 0.0
            own = points.energy_j - power * points.time_s
            front = pareto_points(Groups.of_one(points.time_s, own))
            hull = front[hull_points(points.time_s[front], own[front], np.zeros(len(front), dtype=np.intp))]
            fixed += own[hull[0]]
            length += np.diff(points.time_s[hull]).tolist()
            cost += (np.diff(own[hull]) / np.diff(points.time_s[hull])).tolist()
            columns += [part] * (len(hull) - 1)
        base = np.array([points.time_s[0] for points in self._points])[self.kind]
        segments, end = len(cost), parts
        row: list[int] = []
        column: list[int] = []
        value: list[float] = []
        limit: list[float] = []
        of_part: list[list[int]] = [[] for _ in range(parts)]
        for segment, part in enumerate(columns):
            of_part[part].append(segment)

        def constraint(earlier: int, later: int, delay: float) -> None:
            index = len(limit)
            for c, v in [(segments + earlier, 1.0), (segments + later, -1.0), *((s, 1.0) for s in of_part[earlier])]:
                row.append(index)
                column.append(c)
                value.append(v)
            limit.append(-base[earlier] - delay)

        for (earlier, later), delay in zip(self.edges.tolist(), self.delay_s.tolist(), strict=True):
            constraint(earlier, later, delay)
        for part in range(parts):
            constraint(part, end, 0.0)
        matrix = csr_array((value, (row, column)), shape=(len(limit), segments + parts + 1))
        latest_s = np.inf if within_s is None else max(float(within_s), until_s or 0.0)
        low = np.concatenate([np.zeros(segments + parts), [until_s or 0.0]])
        high = np.concatenate([length, np.full(parts, np.inf), [latest_s]])
        objective = np.concatenate([cost, np.zeros(parts), [self.waiting_w.sum()]])
        solved = linprog(
            objective,
            A_ub=matrix,  # type: ignore[call-overload]  # scipy-stubs know no sparse matrix here
            b_ub=np.array(limit),
            bounds=np.stack([low, high], axis=1),
            method="highs",
        )
        added: FloatArray = np.bincount(columns, solved.x[:segments], minlength=parts).astype(np.float64)
        return base + added, float(solved.fun + fixed)


def _all_ways(frontier: Frontier) -> Points:
    """All ways of a single choice by rising time, also those of more energy: a worker that is kept busy does not wait."""
    if len(frontier.alternatives) > 1 or len(frontier.alternatives[0].groups) > 1:
        return frontier.pareto()
    node = frontier.alternatives[0]
    order = np.argsort(node.groups.time_s, kind="stable")
    time, energy = node.groups.time_s[order], node.groups.energy_j[order]

    def point_at(index: int) -> Point:
        exact = exact_sum(node.time_terms(order[index : index + 1]))
        return Point(float(time[index]), float(energy[index]), exact, order[index : index + 1], node)

    return Points(time, energy, point_at)
