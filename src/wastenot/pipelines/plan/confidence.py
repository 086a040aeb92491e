"""Plans of a pipeline that keep a slowdown with a stated confidence, although the numbers they rest on are noisy.

    T(plan) <= (1 + slowdown) T(default clocks)     in 95 of 100 draws of what the true times may be

Times of a plan and of the default clocks are longest paths through the same graph; joint draws of all errors give both,
so that what they have in common cancels. A way other than the default is charged a margin, a number of standard
deviations of how far it may be slower, next to the default clocks, than it seems; where the plan is within the slowdown
limit too rarely the margin grows, where more often than asked it shrinks. At a large margin all that is left is the
default clocks, which keep it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.core.blas import single_threaded
from wastenot.core.errors import BadInputError, InfeasibleError
from wastenot.frontiers.algebra import Frontier, choice
from wastenot.frontiers.graph import Graph, GraphPlan
from wastenot.frontiers.graph_rounding import Effort
from wastenot.frontiers.graph_times import Dag
from wastenot.frontiers.nodes import Ways
from wastenot.pipelines.model.iteration_graph import baseline_of, pipeline_graph
from wastenot.pipelines.model.profile import PipelineProfile
from wastenot.pipelines.model.schedule import PipelineSchedule
from wastenot.pipelines.plan.plan import Promise
from wastenot.planning.headline import LEVEL
from wastenot.planning.objective import DEFAULT_CONFIDENCE, Objective

_DRAWS = 2000  # of all errors: the standard error of a probability of 95 % is then √(0.95 · 0.05 / 2000) = 0.5 %
_CELLS = 4_000_000  # parts × draws at once
_ROUNDING = 1e-9
_MOST_PLANS = 6  # margins tried, by doubling and by halving between two
_TRY = Effort(steps=800)  # to improve plans that are only tried; about a tenth of a second
_SAME_MARGIN = 0.05  # standard deviations between two margins that are not worth another plan
_CLOSE = 0.004  # of the confidence, above it, that is close enough: less could not be told apart by so many draws
_SURE = 6.0  # standard deviations beyond which nothing but the default clocks is tried


@dataclass(frozen=True, slots=True, eq=False)
class ConfidentPlan:
    """A plan that keeps a slowdown with a confidence.

    Attributes:
        solved: the plan, by expected times; its bound is of plans that are within the slowdown limit by expected times.
        promise: what becomes of it under all errors.
    """

    solved: GraphPlan
    promise: Promise

    @property
    def probability(self) -> float:
        """With which the slowdown is kept."""
        return self.promise.probability

    @property
    def energy_j(self) -> float:
        """Expected energy of one GPU of each rank."""
        return self.solved.energy_j


@single_threaded()
def keep_with_confidence(
    schedule: PipelineSchedule,
    profile: PipelineProfile,
    *,
    max_slowdown: float = 0.0,
    until_s: float | None = None,
    confidence: float = DEFAULT_CONFIDENCE,
    effort: Effort | None = None,
) -> ConfidentPlan:
    """The plan of least energy that was found to keep a slowdown with a confidence.

    Args:
        schedule: the order of instructions.
        profile: what each instruction can take, with errors.
        max_slowdown: allowed, of an iteration at the default clocks.
        until_s: a straggler's iteration takes so long: being done by then is enough.
        confidence: above 0.5 and below 1.
        effort: for improving the plan, once it is known how careful it has to be.

    Raises:
        BadInputError: the profile does not say how noisy it is, or a number is out of range.
        InfeasibleError: no plan was found that stays within the slowdown limit with the confidence.
    """
    if profile.errors is None:
        raise BadInputError("`confidence`: the profile does not say how noisy it is; leave it out, or plan from a study")
    Objective("waste", max_slowdown, confidence=confidence)  # checks both
    return _Search(schedule, profile, max_slowdown, until_s, confidence, effort).found()


@single_threaded()
def judged_plan(
    schedule: PipelineSchedule,
    profile: PipelineProfile,
    solved: GraphPlan,
    *,
    max_slowdown: float,
    until_s: float | None,
    confidence: float,
) -> ConfidentPlan:
    """What becomes of a plan under all errors of the numbers that it was made from.

    Args:
        schedule: the order of instructions.
        profile: what each instruction can take, with errors.
        solved: the plan, in the graph of both.
        max_slowdown: allowed, of an iteration at the default clocks.
        until_s: a straggler's iteration takes so long: being done by then is enough.
        confidence: with which it was to be kept.
    """
    search = _Search(schedule, profile, max_slowdown, until_s, confidence, None)
    return search.draws.judged(search.draws.chosen(solved), search)


@single_threaded()
def surely_done_s(
    schedule: PipelineSchedule, profile: PipelineProfile, own: GraphPlan, others: Iterable[GraphPlan], confidence: float
) -> Iterator[float]:
    """Time of an iteration of other plans with a confidence, where a pipeline's own takes as long as expected of it.

    Pipelines wait for one that is slower than expected; what all of them have in common cancels.

    Args:
        schedule: the order of instructions.
        profile: what each instruction can take, with errors.
        own: the plan, in the graph of both.
        others: plans in the same graph.
        confidence: above 0.5 and below 1.
    """
    draws = PipelineDraws.of(schedule, profile, pipeline_graph(schedule, profile))
    own_s, _ = draws.draws_of(draws.chosen(own))
    for other in others:
        ratio = float(np.quantile(draws.draws_of(draws.chosen(other))[0] / own_s, confidence))
        yield max(ratio * (own.time_s + profile.iteration_s), other.time_s + profile.iteration_s)


@dataclass(frozen=True, eq=False)
class _Search:
    schedule: PipelineSchedule
    profile: PipelineProfile
    max_slowdown: float
    until_s: float | None
    confidence: float
    effort: Effort | None

    @cached_property
    def graph(self) -> Graph:
        return pipeline_graph(self.schedule, self.profile)

    @cached_property
    def keys(self) -> list[tuple[int, str]]:
        return list(self.profile.ways)

    @cached_property
    def draws(self) -> PipelineDraws:
        return PipelineDraws.of(self.schedule, self.profile, self.graph)

    @cached_property
    def baseline_s(self) -> Fraction:
        return self.draws.baseline.exact_time_s + Fraction(self.profile.iteration_s)

    @property
    def deadline_s(self) -> Fraction:
        """Of the graph, by expected times."""
        allowed = self.baseline_s * (1 + Fraction(self.max_slowdown))
        allowed = allowed if self.until_s is None else max(allowed, Fraction(self.until_s))
        return allowed - Fraction(self.profile.iteration_s)

    def found(self) -> ConfidentPlan:
        margin, best = self._margin()
        if best is not None:
            better = self._try(margin, self.effort)
            if better is not None and better.probability >= self.confidence and better.energy_j < best.energy_j:
                best = better
        if best is None:
            best = self._try(math.inf, _TRY)
        if best is None or best.probability < self.confidence:
            raise InfeasibleError(
                f"no plan was found that is that fast with {100.0 * self.confidence:g} % confidence; allow more "
                "time, measure more, or plan by the numbers as measured (`as_measured`)"
            )
        bound_j = self._solved(self.graph, Effort(steps=0)).lower_bound_j
        solved = replace(best.solved, lower_bound_j=None if bound_j is None else min(bound_j, best.energy_j))
        return replace(best, solved=solved)

    def _margin(self) -> tuple[float, ConfidentPlan | None]:
        """The margin at which the plan that is within the limit with the confidence needs least, and that plan."""
        low, high, margin = 0.0, math.inf, NormalDist().inv_cdf(self.confidence)
        best: ConfidentPlan | None = None
        of_best = margin
        for _ in range(_MOST_PLANS):
            tried = self._try(margin, _TRY)
            keeps = tried is not None and tried.probability >= self.confidence
            if tried is not None and keeps and (best is None or tried.energy_j < best.energy_j):
                best, of_best = tried, margin
            if tried is None or keeps:  # where nothing is fast enough, less must be charged
                high = margin
            else:
                low = margin
            enough = tried is not None and keeps and tried.probability <= self.confidence + _CLOSE
            if enough or high - low < _SAME_MARGIN or low >= _SURE:
                break
            margin = min(2.0 * low, _SURE) if math.isinf(high) else 0.5 * (low + high)
        return of_best, best

    def _try(self, margin: float, effort: Effort | None) -> ConfidentPlan | None:
        charged = {key: self._charged(key, margin) for key in self.keys}
        profile = replace(self.profile, ways={key: frontier for key, (frontier, _) in charged.items()})
        graph = pipeline_graph(self.schedule, profile)
        try:
            solved = self._solved(graph, effort)
        except InfeasibleError:
            return None
        chosen = np.array(
            [
                charged[self.keys[kind]][1][int(graph.ways(kind)[way].options[0])] if kind < len(self.keys) else 0
                for kind, way in zip(graph.kind.tolist(), solved.way.tolist(), strict=True)
            ]
        )
        return self.draws.judged(chosen, self)

    def _solved(self, graph: Graph, effort: Effort | None) -> GraphPlan:
        return graph.least_energy(self.deadline_s, until_s=self._until, effort=effort)

    @property
    def _until(self) -> float | None:
        return self.profile.graph_until_s(self.until_s)

    def _charged(self, key: tuple[int, str], margin: float) -> tuple[Frontier, IndexArray]:
        """The ways of an instruction with their times charged, and which of the profile's each is."""
        errors = self.profile.errors
        assert errors is not None
        node = self.profile.ways[key].alternatives[0]
        time, energy = node.groups.time_s, node.groups.energy_j
        kept = np.arange(len(time))
        if math.isinf(margin):
            kept = np.flatnonzero(errors.deviation_s(key) <= 1e-12 * time)
            if not len(kept):
                raise InfeasibleError(f"the profile has no {key[1]} of stage {key[0]} at the default clocks")
            margin = 0.0
        charge = errors.charge_s(key, margin)[kept]
        labels = [int(each) for each in kept]
        # A charge is no time: a worker that is kept so long does not draw less for it.
        energies = energy[kept] + self.profile.waiting_w * charge
        return choice(Ways(time[kept] + charge, energies, labels)), kept


@dataclass(frozen=True, eq=False)
class PipelineDraws:
    """Joint draws of what the true times and energies of a pipeline's parts may be; get some with :meth:`of`.

    Attributes:
        profile: with errors.
        graph: of the schedule and the profile; its parts after the instructions are fixed work, which is taken to be known.
        baseline: every part at the default clocks.
        ranks: of the schedule.
        errors: standard normal, one row for each error of times; shape (errors, draws).
        energy_errors: the same of energies.
    """

    profile: PipelineProfile
    graph: Graph
    baseline: GraphPlan
    ranks: int
    errors: FloatArray
    energy_errors: FloatArray

    @classmethod
    def of(cls, schedule: PipelineSchedule, profile: PipelineProfile, graph: Graph, seed: int = 0) -> PipelineDraws:
        """Draws for a pipeline; always the same for a seed, each with its mirror image."""
        assert profile.errors is not None
        first = next(iter(profile.errors.baseline.values()))
        rng = np.random.default_rng(seed)
        halves = [rng.standard_normal((len(each), _DRAWS // 2)) for each in (first.time_s, first.energy_j)]
        both = [np.concatenate([half, -half], axis=1) for half in halves]
        return cls(profile, graph, baseline_of(schedule, profile), len(schedule.ranks), *both)

    @cached_property
    def _dag(self) -> Dag:
        return Dag(len(self.graph), self.graph.edges, self.graph.delay_s)

    @cached_property
    def _keys(self) -> Sequence[tuple[int, str]]:
        return list(self.profile.ways)

    @cached_property
    def baseline_draws(self) -> tuple[FloatArray, FloatArray]:
        """Time of an iteration at the default clocks, and energy of one GPU of each rank; shape (draws,) each."""
        return self._drawn(None)

    def chosen(self, solved: GraphPlan) -> IndexArray:
        """Of each part, the index into the ways of its instruction that a plan takes."""
        points = [self.graph.ways(kind) for kind in range(len(self.graph.kinds))]
        taken = zip(self.graph.kind.tolist(), solved.way.tolist(), strict=True)
        return np.array([int(points[kind][way].options[0]) for kind, way in taken], dtype=np.intp)

    def draws_of(self, chosen: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Time of a plan's iteration, and energy of one GPU of each rank; shape (draws,) each.

        Args:
            chosen: of each part, an index into the ways of its instruction as the profile lists them; 0 of fixed work.
        """
        return self._drawn(np.asarray(chosen, dtype=np.intp))

    def judged(self, chosen: IndexArray, search: _Search) -> ConfidentPlan:
        """What becomes of a choice."""
        solved = self._expected(chosen, search._until)
        time, energy = self.draws_of(chosen)
        base_s, base_j = self.baseline_draws
        limit = (1.0 + search.max_slowdown) * base_s
        if search.until_s is not None:
            limit = np.maximum(limit, search.until_s)
            waiting_w = self.ranks * self.profile.waiting_w
            energy = energy + waiting_w * np.maximum(search.until_s - time, 0.0)
            base_j = base_j + waiting_w * np.maximum(search.until_s - base_s, 0.0)
        kept = float((time <= limit * (1.0 + _ROUNDING)).mean())
        (slower, slower_interval), (more, more_interval) = _interval(time / base_s - 1.0), _interval(energy / base_j - 1.0)
        promise = Promise(
            confidence=search.confidence, probability=kept, level=LEVEL,
            time_change=slower, time_change_interval=slower_interval,
            energy_change=more, energy_change_interval=more_interval,
        )  # fmt: skip
        return ConfidentPlan(solved, promise)

    # ---- inside ----------------------------------------------------------------------------------------------

    def _expected(self, chosen: IndexArray, until_s: float | None) -> GraphPlan:
        """The plan of a choice by expected times."""
        place = [
            {int(points[way].options[0]): way for way in range(len(points))}
            for points in (self.graph.ways(kind) for kind in range(len(self.graph.kinds)))
        ]
        way = [place[kind][each] for kind, each in zip(self.graph.kind.tolist(), chosen.tolist(), strict=True)]
        return self.graph.plan(np.array(way, dtype=np.intp), until_s)

    def _drawn(self, chosen: IndexArray | None) -> tuple[FloatArray, FloatArray]:
        """Draws by distinct (kind, way): all micro-batches of one share its error."""
        kind = self.graph.kind
        chosen = np.full(len(kind), -1) if chosen is None else chosen
        pairs, of_part = np.unique(np.stack([kind, chosen], axis=1), axis=0, return_inverse=True)
        of_part = of_part.reshape(-1)
        times, energies = zip(*(self._one(int(k), int(way)) for k, way in pairs), strict=True)
        time, energy = np.stack(times), np.stack(energies)
        busy = self.graph.worker >= 0
        runs = np.bincount(of_part, minlength=len(pairs)).astype(np.float64)
        busy_runs = np.bincount(of_part[busy], minlength=len(pairs)).astype(np.float64)
        total = self._longest(time, of_part)
        waiting_w = self.profile.waiting_w
        spent = runs @ energy + waiting_w * (self.ranks * total - busy_runs @ time)
        return total + self.profile.iteration_s, spent + self.ranks * self.profile.iteration_j

    def _one(self, kind: int, way: int) -> tuple[FloatArray, FloatArray]:
        """Draws of one way's time and energy."""
        errors = self.profile.errors
        assert errors is not None
        draws = self.errors.shape[1]
        if kind >= len(self._keys):
            fixed = self.graph.kinds[kind].least_time()
            return np.full(draws, fixed.time_s), np.full(draws, fixed.energy_j)
        key = self._keys[kind]
        if way < 0:
            time_s, energy_j = self.profile.baseline[key]
            base = errors.baseline[key]
            return time_s + base.time_s @ self.errors, energy_j + base.energy_j @ self.energy_errors
        groups, own = self.profile.ways[key].alternatives[0].groups, errors.ways[key]
        time = float(groups.time_s[way]) + float(own.doubt_s[way]) + own.time_s[way] @ self.errors
        return time, float(groups.energy_j[way]) + own.energy_j[way] @ self.energy_errors

    def _longest(self, time_s: FloatArray, of_part: IndexArray) -> FloatArray:
        """The longest path in each draw; ``time_s`` is of distinct ways, shape (ways, draws)."""
        dag, draws = self._dag, time_s.shape[1]
        placed = of_part[dag.order]
        at_once = max(_CELLS // len(dag), 1)
        return np.concatenate([dag.longest_s(time_s[placed, begin : begin + at_once]) for begin in range(0, draws, at_once)])


def _interval(values: FloatArray) -> tuple[float, tuple[float, float]]:
    """What is expected, and the ends of an interval."""
    low, high = np.quantile(values, [0.5 - 0.5 * LEVEL, 0.5 + 0.5 * LEVEL])
    return float(values.mean()), (float(low), float(high))
