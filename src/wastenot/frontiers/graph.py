"""Parts that depend on each other, with a deadline, and power that workers draw while they wait.

    worker 0   |F0|F1|F2|  |B0|  |B1|  |B2|
    worker 1      |F0|B0|F1|B1|F2|B2|

What is not on the critical path can take longer at no cost. The least energy within a deadline is a linear program once
parts may mix their ways (the linear time-cost trade-off: Fulkerson, Management Science 7, 1961; Kelley, Operations Research
9, 1961); its optimum is the lower bound, and plans of ways as they are come close to it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray
from wastenot.core.blas import single_threaded
from wastenot.core.errors import BadInputError, InfeasibleError
from wastenot.frontiers.algebra import Frontier
from wastenot.frontiers.graph_curve import CostCurve
from wastenot.frontiers.graph_relaxation import GraphProblem, Relaxed
from wastenot.frontiers.graph_rounding import Effort, cheaper_than, planned
from wastenot.frontiers.graph_times import Dag
from wastenot.frontiers.graph_ways import CostTable, ways_of
from wastenot.frontiers.nodes import Points, Ways

_NEAR_ENOUGH = 1e-4  # of the cost: the search for a better plan stops
_MOST_EXACT = 64  # parts of a graph in which all better plans are looked for
_ROUNDING = 1e-12
_POINTS_OF_A_PART = 48  # plans listed of a graph that is a part of another one
_CURVE_TOLERANCE = 2e-4  # of the cost, between deadlines at which the relaxation is solved


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


@dataclass(frozen=True, slots=True, eq=False)
class GraphFrontier:
    """Plans of a graph by rising deadline.

    Attributes:
        within_s: the deadlines.
        plans: of each, with its lower bound.
    """

    within_s: FloatArray
    plans: tuple[GraphPlan, ...]

    @property
    def energy_j(self) -> FloatArray:
        """Of each plan."""
        return np.array([each.energy_j for each in self.plans])

    @property
    @single_threaded()
    def lower_bound_j(self) -> FloatArray:
        """No plan within each deadline needs less."""
        return np.array([each.lower_bound_j for each in self.plans])


class Graph:
    """Parts with dependencies.

    Args:
        kinds: frontiers of parts that are alike, such as a stage's forward; or graphs of their own, such as one of several
            pipelines, whose plans are then looked for beforehand.
        kind: of each part, an index into ``kinds``; shape (parts,).
        edges: pairs (earlier part, later part); shape (edges, 2).
        delay_s: that must pass between the end of the earlier part and the start of the later one, such as a transfer;
            shape (edges,), by default nothing.
        worker: that each part keeps busy, -1 for none (its whole energy then counts as it is); shape (parts,), by default
            all on worker 0. Parts of one worker must be ordered by the edges.
        waiting_w: power that each worker draws while no part keeps it busy; shape (workers,).

    Raises:
        BadInputError: there is a cycle, a part without ways, an edge to a part that is not there, a bad number, or two parts
            that could run at once on a worker that draws power while it waits.
    """

    def __init__(
        self,
        kinds: Sequence[Frontier | Graph],
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
        self._listed: dict[tuple[int, Effort | None], Frontier] = {}
        self._check()
        self._dag = Dag(len(self.kind), self.edges, self.delay_s)
        self._check_workers()
        power = np.concatenate([self.waiting_w, [0.0]])[self.worker]  # what a part's worker would draw if it waited
        self._power_w = power
        inner = {index: each for index, each in enumerate(self.kinds) if isinstance(each, Graph)}
        listed = [
            ways_of(
                each.as_frontier(_POINTS_OF_A_PART, effort=Effort(steps=0)) if isinstance(each, Graph) else each,
                np.unique(power[self.kind == index]) if (self.kind == index).any() else np.zeros(1),
            )
            for index, each in enumerate(self.kinds)
        ]
        self._points = tuple(points for points, _ in listed)
        self._complete = not inner and all(complete for _, complete in listed)
        self._first_way = np.cumsum([0, *map(len, self._points)])
        self._way_time_s = np.concatenate([each.time_s for each in self._points])
        self._way_energy_j = np.concatenate([each.energy_j for each in self._points])
        classes, klass = np.unique(np.stack([self.kind, power], axis=1), axis=0, return_inverse=True)
        self._klass = klass.reshape(-1)[self._dag.order]
        points = [self._points[int(kind)] for kind in classes[:, 0]]
        drawn = classes[:, 1].tolist()
        self._table = CostTable.of(
            [each.time_s for each in points],
            [each.energy_j - waiting * each.time_s for each, waiting in zip(points, drawn, strict=True)],
            {
                index: inner[kind]._floor(drawn[index])
                for index, kind in enumerate(classes[:, 0].astype(int).tolist())
                if kind in inner
            },
        )

    def __len__(self) -> int:
        return len(self.kind)

    def ways(self, kind: int) -> Points:
        """The ways that parts of a kind choose from, by rising time; ``ways(k)[way].choices`` are the labels."""
        return self._points[kind]

    # ---- questions -------------------------------------------------------------------------------------------

    def least_time(self) -> GraphPlan:
        """Each part as fast as it can be."""
        return self.plan(self._ways_at(np.zeros(len(self), dtype=np.intp)))

    @single_threaded()
    def least_energy(
        self, within_s: Fraction | float | None = None, *, until_s: float | None = None, effort: Effort | None = None
    ) -> GraphPlan:
        """The plan of least energy that ends within a time.

        Args:
            within_s: the deadline; ``None`` for no limit.
            until_s: workers wait until then at least, however early they are done (a straggler holds them up).
            effort: for improving the plan; by default about what takes a second or a few.

        Raises:
            BadInputError: a time is not a number of seconds.
            InfeasibleError: no plan is that fast; names the fastest.
        """
        fastest = self._feasible(within_s, until_s)
        problem = self._problem(within_s, until_s)
        relaxed = self._curve.solved(problem)
        plan = self._planned(problem, relaxed, fastest, within_s, until_s, effort or Effort.of_parts(len(self)))
        bound_j = self._bound_j(problem, relaxed, until_s, plan)
        if plan.energy_j - bound_j > _ROUNDING * abs(plan.energy_j) and len(self) <= _MOST_EXACT:
            plan, bound_j = self._closed(problem, relaxed, plan, bound_j, within_s, until_s)
        if plan.energy_j - bound_j <= _ROUNDING * abs(plan.energy_j):
            bound_j = plan.energy_j
        return replace(plan, lower_bound_j=bound_j)

    def lower_bound_j(self, within_s: Fraction | float | None = None, *, until_s: float | None = None) -> float:
        """No plan within a time needs less energy than this; the relaxation alone, without a search.

        Arguments and errors are those of :meth:`least_energy`.
        """
        self._feasible(within_s, until_s)
        problem = self._problem(within_s, until_s)
        return self._bound_j(problem, self._curve.solved(problem), until_s)

    @single_threaded()
    def price_of_time(self, at_s: float, *, until_s: float | None = None) -> float:
        """Energy that one more second until the deadline saves, in J/s, by the relaxation; 0 where it saves nothing.

        Args:
            at_s: the deadline; errors are those of :meth:`least_energy`.
            until_s: workers wait until then at least; if it is no earlier, time in which they are done early saves nothing.
        """
        self._feasible(at_s, until_s)
        problem = self._problem(at_s, until_s)
        if problem.within_s < at_s:
            return 0.0
        ended = problem.end_w if problem.ends_early else 0.0
        return max(self._curve.at(problem.within_s).price_w(self._dag) - ended, 0.0)

    @single_threaded()
    def prices_of_time(self, at_s: float, *, until_s: float | None = None) -> FloatArray:
        """Energy that one more second for each part alone would save, in J/s, by the relaxation; shape (parts,).

        A flow: what enters a part's worker and its dependencies leaves it again, and :meth:`price_of_time` flows in all.
        Arguments and errors are those of that.
        """
        self._feasible(at_s, until_s)
        return self._curve.at(self._problem(at_s, until_s).within_s).through_w[self._dag.place]

    def relaxed(self, within_s: Fraction | float | None = None, *, until_s: float | None = None) -> Relaxed:
        """The solution of the relaxation, by the graph's levels; arguments and errors are those of :meth:`lower_bound_j`."""
        self._feasible(within_s, until_s)
        return self._curve.solved(self._problem(within_s, until_s))

    @single_threaded()
    def frontier(self, points: int = 32, *, held: bool = False, effort: Effort | None = None) -> GraphFrontier:
        """Plans of least energy from the fastest to the one of least energy.

        Args:
            points: how many, at deadlines evenly apart; at least 2.
            held: workers are held until the deadline, as by another pipeline that takes so long: more time then saves
                energy for longer. Otherwise a plan is over when its last part ends.
            effort: for improving each plan; by default each is taken as the first search finds it.

        Raises:
            BadInputError: fewer than two points are asked for.
        """
        if points < 2:
            raise BadInputError(f"`points` {points}: a frontier needs at least 2")
        fastest = self.least_time()
        problem = self._problem(None, math.inf if held else None)
        last_s = problem.within_s
        if problem.ends_early:
            last_s = min(last_s, max(self.least_energy(effort=effort).time_s, fastest.time_s))
        within_s = np.linspace(fastest.time_s, last_s, points)
        for each in (fastest.time_s, last_s):  # exact times of these plans may be just above
            within_s[within_s == each] = math.nextafter(each, math.inf)
        relaxations = self._curve.over(within_s, _CURVE_TOLERANCE)
        vertices = self._curve.floor(fastest.time_s, float(within_s[-1]))
        drawn = float(self.waiting_w.sum())
        plans: list[GraphPlan] = []
        for limit, relaxed in zip(within_s.tolist(), relaxations, strict=True):
            until_s = limit if held else None
            at = replace(problem, within_s=limit, end_s=0.0)
            plan = self._planned(at, relaxed, plans[-1] if plans else fastest, limit, until_s, effort or Effort(steps=0))
            if held:
                bound = relaxed.bound + drawn * limit
            else:  # the least over all times at which a plan may end
                times = np.append(vertices[0][vertices[0] < limit], limit)
                bound = float((np.interp(times, *vertices) + drawn * times).min())
            plans.append(replace(plan, lower_bound_j=min(bound, plan.energy_j)))
        return GraphFrontier(within_s, tuple(plans))

    def plan(self, way: IndexArray, until_s: float | None = None) -> GraphPlan:
        """The plan in which each part takes a way."""
        dag, way = self._dag, np.asarray(way, dtype=np.intp)
        chosen = self._first_way[self.kind] + way
        time, energy = self._way_time_s[chosen], self._way_energy_j[chosen]
        placed = time[dag.order]
        begin = dag.earliest_s(placed)
        exact = dag.exact_s(placed, begin)
        total = float(exact)
        slack = dag.latest_s(placed, total) - placed - begin
        lasts = max(total, until_s or 0.0)
        energy_j = float((energy - self._power_w * time).sum() + self.waiting_w.sum() * lasts)
        return GraphPlan(way, time, begin[dag.place], np.maximum(slack, 0.0)[dag.place], total, exact, lasts, energy_j)

    def as_frontier(self, points: int = 32, *, effort: Effort | None = None) -> Frontier:
        """The graph as a part of other frontiers, or to be asked what they are: a choice of plans, from the fastest on.

        A way is labelled with the choices of each part, in order. Plans are listed once for the same arguments.
        """
        key = points, effort
        if key not in self._listed:
            found = [each for held in (False, True) for each in self.frontier(points, held=held, effort=effort).plans]
            by_way = {each.way.tobytes(): self.plan(each.way) for each in found}
            plans = sorted(by_way.values(), key=lambda each: each.time_s)
            time_s, energy_j = np.array([each.time_s for each in plans]), np.array([each.energy_j for each in plans])
            self._listed[key] = Frontier((Ways(time_s, energy_j, _Labels(self, plans)),))
        return self._listed[key]

    def critical_path(self, plan: GraphPlan) -> IndexArray:
        """Parts of a plan that follow on each other without a pause, from its start to its end."""
        dag = self._dag
        return dag.order[dag.critical_path(plan.start_s[dag.order], (plan.start_s + plan.part_time_s)[dag.order])]

    # ---- inside ----------------------------------------------------------------------------------------------

    def _floor(self, waiting_w: float) -> tuple[FloatArray, FloatArray]:
        """A convex curve that no plan is below, of time and of what it costs a worker whose waiting draws so much."""
        times, costs = self._curve.floor(self.least_time().time_s, self._problem(None, None).within_s)
        return times, costs + (float(self.waiting_w.sum()) - waiting_w) * times

    @cached_property
    def _curve(self) -> CostCurve:
        return CostCurve(self._problem(None, None))

    def _feasible(self, within_s: Fraction | float | None, until_s: float | None) -> GraphPlan:
        """The fastest plan, which is fast enough."""
        for name, value in (("within_s", within_s), ("until_s", until_s)):
            if value is not None and not math.isfinite(value):
                raise BadInputError(f"`{name}` {value}: must be a finite number of seconds")
        fastest = self.least_time()
        if within_s is not None and fastest.exact_time_s > within_s:
            raise InfeasibleError(
                f"`within_s` {float(within_s):g}: no plan is that fast; the fastest takes {fastest.time_s:.9g} s"
            )
        return fastest

    def _planned(
        self,
        problem: GraphProblem,
        relaxed: Relaxed,
        known: GraphPlan,
        within_s: Fraction | float | None,
        until_s: float | None,
        effort: Effort,
    ) -> GraphPlan:
        """A plan near the relaxation, in time without rounding; at worst one that is known to be."""
        tolerance = _NEAR_ENOUGH * abs(relaxed.bound)
        known = self.plan(known.way, until_s)
        for margin in (0.0, 4.0 * self._dag.doubt_s(problem.within_s)):
            aimed = replace(problem, within_s=problem.within_s - margin)
            taken, _ = planned(aimed, relaxed, effort, tolerance)
            plan = self.plan(self._ways_at(taken), until_s)
            if within_s is None or plan.exact_time_s <= within_s:
                return min(plan, known, key=lambda each: each.energy_j)
        return known

    def _closed(
        self,
        problem: GraphProblem,
        relaxed: Relaxed,
        plan: GraphPlan,
        bound_j: float,
        within_s: Fraction | float | None,
        until_s: float | None,
    ) -> tuple[GraphPlan, float]:
        """The best plan and its energy as the bound, where all plans that could be better can be looked at."""
        drawn_j = float(self.waiting_w.sum()) * max(problem.within_s, until_s or 0.0)
        found = cheaper_than(problem, relaxed, plan.energy_j - drawn_j)
        late = False
        for taken in found.ways:
            other = self.plan(self._ways_at(taken), until_s)
            if within_s is None or other.exact_time_s <= within_s:
                plan = min(other, plan, key=lambda each: each.energy_j)
                break
            late = True
        return plan, bound_j if late or not (found.complete and self._complete) else plan.energy_j

    def _bound_j(
        self, problem: GraphProblem, relaxed: Relaxed, until_s: float | None, plan: GraphPlan | None = None
    ) -> float:
        bound = relaxed.bound + float(self.waiting_w.sum()) * max(problem.within_s, until_s or 0.0)
        return bound if plan is None else min(bound, plan.energy_j)

    def _check(self) -> None:
        parts = len(self.kind)
        if not parts:
            raise BadInputError("`kind`: a graph needs at least one part")
        for name, values, least, end in (
            ("kind", self.kind, 0, len(self.kinds)),
            ("edges", self.edges, 0, parts),
            ("worker", self.worker, -1, len(self.waiting_w)),
        ):
            if values.size and not least <= values.min() <= values.max() < end:
                wrong = int(values.min()) if values.min() < least else int(values.max())
                raise BadInputError(f"`{name}`: {wrong} is not one of {least} to {end - 1}")
        for name, given, wanted in (("delay_s", self.delay_s, len(self.edges)), ("worker", self.worker, parts)):
            if given.shape != (wanted,):
                raise BadInputError(f"`{name}`: {given.size} values where {wanted} are needed")
        for name, numbers in (("delay_s", self.delay_s), ("waiting_w", self.waiting_w)):
            wrong_at = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0.0)))
            if len(wrong_at):
                index = int(wrong_at[0])
                raise BadInputError(f"`{name}`[{index}]: {numbers[index]:g} must be a finite number of at least 0")

    def _check_workers(self) -> None:
        """Whether each worker that draws power while it waits does one thing at a time, as that is counted once."""
        for worker in np.flatnonzero(self.waiting_w > 0.0):
            places = np.sort(self._dag.place[self.worker == worker])
            for earlier, later in itertools.pairwise(places.tolist()):
                if not self._dag.leads(earlier, later):
                    one, other = sorted(int(self._dag.order[each]) for each in (earlier, later))
                    raise BadInputError(
                        f"`edges`: parts {one} and {other} keep worker {worker} busy, and neither waits for the "
                        "other; add an edge between them, or give each its own worker"
                    )

    def _ways_at(self, taken: IndexArray) -> IndexArray:
        """The ways at positions in the table, in the caller's order of parts."""
        return self._table.way[self._klass, taken][self._dag.place]

    def _problem(self, within_s: Fraction | float | None, until_s: float | None) -> GraphProblem:
        """No plan needs to be longer than that in which each part takes the fastest of its cheapest ways."""
        slowest = self._table.time_s[self._klass, self._table.size[self._klass] - 1]
        longest = float((self._dag.earliest_s(slowest) + slowest).max())
        limit = longest
        if within_s is not None:
            above = float(within_s)  # not below the deadline, so that the bound is one
            limit = min(math.nextafter(above, math.inf) if above < within_s else above, longest)
        return GraphProblem(
            self._dag, self._table, self._klass, float(self.waiting_w.sum()), max(limit - (until_s or 0.0), 0.0), limit
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Labels(Sequence[tuple[object, ...]]):
    """The choices of each part of some plans, looked up when asked for."""

    graph: Graph
    plans: Sequence[GraphPlan]

    def __len__(self) -> int:
        return len(self.plans)

    def __getitem__(self, index: int) -> tuple[object, ...]:  # type: ignore[override]  # never sliced
        kinds = self.graph.kind.tolist()
        return tuple(
            self.graph.ways(kind)[way].choices for kind, way in zip(kinds, self.plans[index].way.tolist(), strict=True)
        )


def graph(
    parts: Sequence[Frontier | Graph],
    edges: Iterable[tuple[int, int]],
    *,
    delay_s: float | Sequence[float] = 0.0,
    worker: Sequence[int] | None = None,
    waiting_w: float | Sequence[float] = 0.0,
) -> Graph:
    """Parts of which some wait for others.

        >>> kernel = choice([(1.0, 9.0, "fast"), (2.0, 4.0, "slow")])
        >>> long, short = choice([(4.0, 20.0, "only")]), kernel
        >>> both = graph([long, short, short], [(1, 2)])  # the short ones follow on each other, beside the long one
        >>> both.least_energy(within_s=4.0).energy_j
        28.0

    Args:
        parts: frontiers, or graphs; those that are the same object are of one kind.
        edges: pairs (earlier part, later part) of indices into ``parts``.
        delay_s: between the end of the earlier part and the start of the later one; one for all, or one for each edge.
        worker: that each part keeps busy, from 0, or -1 for none; by default none.
        waiting_w: power that a worker draws while no part keeps it busy; one for all, or one for each worker.

    Raises:
        BadInputError: parts wait for each other in a cycle, or a number is not one that can be.
    """
    pairs = np.array(list(edges), dtype=np.intp).reshape(-1, 2)
    place: dict[int, int] = {}
    kinds: list[Frontier | Graph] = []
    for part in parts:
        if id(part) not in place:
            place[id(part)] = len(kinds)
            kinds.append(part)
    workers = np.full(len(parts), -1, dtype=np.intp) if worker is None else np.array(worker, dtype=np.intp)
    powers = np.array(waiting_w, dtype=float)
    return Graph(
        kinds,
        np.array([place[id(part)] for part in parts], dtype=np.intp),
        pairs,
        delay_s=np.full(len(pairs), float(delay_s)) if isinstance(delay_s, int | float) else np.array(delay_s, dtype=float),
        worker=workers,
        waiting_w=powers if powers.ndim else np.full(max(int(workers.max(initial=-1)) + 1, 1), float(powers)),
    )
