"""A lower bound on the energy of all plans whose settings last: a Lagrangian relaxation of a pipeline's dependencies.

A price is put on time along each dependency, a flow f that is conserved; F_i flows through instruction i. Starts then drop
out of the sum, as in :mod:`wastenot.frontiers.graph_beam`, but for the waits u between the instructions of a rank:

    Σ c_i + waiting  ≥  Σ over ranks of min [ Σ (c_i + F_i t_i) + Σ f_i u_i ]  + Σ f delay − (what flows in) · deadline

Each rank is by itself, and its minimum is over sequences of stays: a shortest path. A stay of instructions that would not
last as long as a switch has to wait, at the least price between them:

    V[b] = min over a, s of  V[a] + Σ_{a ≤ i < b} (c_i + F_i t_i)(s) + (least stay − Σ t_i(s))⁺ · min f_i

and one from a to b is out of the question where b cannot start a least stay after a within the deadline. Any prices give a
bound; the best are looked for from those of the graph without stays (L-BFGS: Liu and Nocedal, Math. Programming 45, 1989).

Where no switch fits into an iteration, the bound is the best plan's energy (:mod:`wastenot.pipelines.plan.unchanging`).

What it leaves out makes it lower, never wrong: stays at the cut between iterations may be short, switches cost nothing, and
none is late.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import minimize

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray
from wastenot.core.blas import single_threaded
from wastenot.frontiers.graph_rounding import Effort
from wastenot.frontiers.graph_times import Dag
from wastenot.pipelines.plan.lasting import NEARLY, LastingProblem
from wastenot.pipelines.plan.planner import PlannedPipeline
from wastenot.pipelines.plan.unchanging import cheapest_unchanging
from wastenot.planning.switching import SwitchTime

# Chosen by hand: with five times as many steps the bound of 8 × 48 instructions at 350 ms a switch rises by 0.02 %.
_MOST_STEPS = 300
_MOST_CELLS = 1.2e8  # instructions × settings × stays looked at, over all steps: about 3 s
_SPREAD = 0.01  # of each price that is spread over all dependencies to begin with, so that none is 0 for good
_FAR = 20.0  # logarithms that a step along a line may move the price of all time by, at most
_UNIT = 0.01  # of the bound, in which steps are taken
_ROUNDING = 1e-9  # of the deadline, by which windows are wider


@single_threaded()
def lasting_bound_j(made: PlannedPipeline, switching: SwitchTime, reserve: float) -> float | None:
    """No plan needs less whose settings last as long as switches take, with as much time in reserve.

    Args:
        made: a plan of the pipeline, whose limit is kept.
        switching: how long the device takes to switch.
        reserve: see :data:`wastenot.pipelines.plan.switched.RESERVE`.

    Returns:
        Energy of all GPUs in an iteration; ``None`` where instructions have several settings inside.
    """
    problem = LastingProblem.of(made, switching, reserve, 0.0, Effort(steps=0))
    if problem is None:
        return None
    ranks, profile = _Ranks.of(problem), made.profile
    problem = replace(problem, within_s=ranks.within_s)
    if problem.never_changes:
        best = cheapest_unchanging(problem)[1] + ranks.other_j
    else:
        prices = _Prices(ranks, *_begun(problem, ranks.within_s))
        best = prices.climbed(int(min(_MOST_STEPS, _MOST_CELLS / ranks.cells)))
    return profile.gpus_per_stage * (best + profile.iteration_j * len(made.schedule.ranks))


def _begun(problem: LastingProblem, within_s: float) -> tuple[FloatArray, FloatArray]:
    """The prices of the graph with reserve and without stays: along each edge, and of each last part."""
    until_s = problem.made.profile.graph_until_s(problem.made.plan.until_s)
    relaxed = problem.padded.relaxed(within_s, until_s=until_s)
    return relaxed.edge_w, relaxed.through_w[problem.dag.without_later]


@dataclass(frozen=True, slots=True, eq=False)
class _Ranks:
    """Ranks with as many places each as the longest has instructions; arrays are by place and rank, and some by setting.

    Attributes:
        dag: of all parts.
        part: the part in each place.
        there: whether there is one.
        count: instructions of each rank.
        time_s: of each instruction at each setting.
        reserve_s: that it takes longer by at most.
        cost_j: its energy less that of waiting; infinite where it cannot have the setting.
        ends_s: from a rank's begin to that of each instruction, at each setting, with reserve; one place more.
        apart: the edge from each instruction to the next, -1 for none.
        reach: instructions after which a stay surely lasts.
        windows: by the instruction that a stay ends before, whether it can last from each of those within reach.
        stay_s: least time at a setting.
        other_s: of parts that are no instructions, in the order of levels, and 0 for others.
        other_j: what these cost.
        within_s: the deadline.
        until_s: ranks wait until then at least.
        waiting_w: of all ranks.
    """

    dag: Dag
    part: IndexArray
    there: BoolArray
    count: IndexArray
    time_s: FloatArray
    reserve_s: FloatArray
    cost_j: FloatArray
    ends_s: FloatArray
    apart: IndexArray
    reach: int
    windows: tuple[BoolArray, ...]
    stay_s: float
    other_s: FloatArray
    other_j: float
    within_s: float
    until_s: float
    waiting_w: float

    @classmethod
    def of(cls, problem: LastingProblem) -> _Ranks:
        """The ranks of a pipeline."""
        made, dag, graph = problem.made, problem.dag, problem.made.graph
        plan, added = made.plan, Fraction(made.profile.iteration_s)
        within = (made.baseline.exact_time_s + added) * (1 + Fraction(plan.max_slowdown or 0.0))
        within_s = float(max(within, Fraction(plan.until_s or 0.0)) - added) * (1.0 + 1e-12)
        begins, ends = problem.ranks[:-1], problem.ranks[1:]
        count = ends - begins
        place = np.arange(int(count.max()))[:, None]
        there = place < count
        part = np.where(there, begins + place, 0)
        known = np.isfinite(problem.time_s)
        plain_s = problem.plain_s
        reserve_s = np.where(known, problem.time_s, 0.0) - plain_s
        # Earliest and latest starts, with everything as fast as it can be.
        fast_s = problem.part_time_s.copy()
        fast_s[: len(known)] = problem.time_s.min(axis=1)
        placed = fast_s[dag.order]
        earliest_s = dag.earliest_s(placed)[dag.place]
        latest_s = dag.latest_s(placed, within_s)[dag.place] - fast_s
        edge = {pair: index for index, pair in enumerate(zip(dag.earlier.tolist(), dag.later.tolist(), strict=True))}
        apart = np.full(part.shape, -1, dtype=np.intp)
        for row, rank in zip(*np.nonzero(place < count - 1), strict=True):
            pair = dag.place[part[row, rank]], dag.place[part[row, rank] + 1]
            apart[row, rank] = edge.get((int(pair[0]), int(pair[1])), -1)
        delay_s = np.where(apart >= 0, dag.delay_s[apart], 0.0)
        stay_s = NEARLY * problem.stay_s
        steps_s = np.where(there[:, :, None], (plain_s + reserve_s)[part] + delay_s[:, :, None], 0.0)
        ends_s = np.concatenate([np.zeros((1, *steps_s.shape[1:])), np.cumsum(steps_s, axis=0)])
        shortest_s = np.where(there, fast_s[part] + delay_s, 0.0)
        reach = _reach(shortest_s, count, stay_s)
        windows = [np.zeros((0, len(count)), dtype=bool)] * 2
        for end in range(2, len(part) + 1):
            first = slice(max(1, end - reach), end)
            last = np.minimum(end, len(part) - 1)
            fits = latest_s[part[last]] - earliest_s[part[first]] >= stay_s - _ROUNDING * within_s
            windows.append(fits | (end >= count))
        power_w = np.concatenate([graph.waiting_w, [0.0]])[graph.worker[len(known) :]]
        fixed = [graph.ways(kind) for kind in graph.kind[len(known) :].tolist()]
        other_s = np.where(np.arange(len(fast_s)) < len(known), 0.0, fast_s)[dag.order]
        return cls(
            dag,
            part,
            there,
            count,
            plain_s,
            reserve_s,
            np.where(known, problem.cost_j, np.inf),
            ends_s,
            apart,
            reach,
            tuple(windows),
            stay_s,
            other_s,
            sum(float(each.energy_j[0] - w * each.time_s[0]) for each, w in zip(fixed, power_w.tolist(), strict=True)),
            within_s,
            min(made.profile.graph_until_s(plan.until_s) or 0.0, within_s),
            float(graph.waiting_w.sum()),
        )

    @property
    def cells(self) -> float:
        """Numbers looked at for one bound."""
        return float(self.ends_s.size * (self.reach + 6))

    def cheapest(self, through_w: FloatArray, edge_w: FloatArray, sure: float) -> tuple[float, FloatArray, FloatArray]:
        """The cheapest stays of all ranks at some prices.

        Args:
            through_w: of the time of each part, in the order of levels.
            edge_w: of that between parts.
            sure: of its reserve, the fraction that each instruction surely takes.

        Returns:
            What they cost, and the times of instructions and waits along edges that they take, in the order of levels.
        """
        price_w = through_w[self.dag.place][: len(self.time_s), None]
        each_s = self.time_s + sure * self.reserve_s
        paid = np.where(self.there[:, :, None], (self.cost_j + price_w * each_s)[self.part], 0.0)
        begun = np.concatenate([np.zeros((1, *paid.shape[1:])), np.cumsum(paid, axis=0)])
        taken_s, waits_s = np.zeros(len(self.dag)), np.zeros(len(edge_w))
        total = 0.0
        found = self._stays(begun, edge_w)
        for rank, end in enumerate(self.count.tolist()):
            total += float(found.value[end, rank])
            for first, until, setting in self._path(found, rank, waits_s):
                parts = self.part[first:until, rank]
                taken_s[self.dag.place[parts]] = each_s[parts, setting]
        return total, taken_s, waits_s

    def _stays(self, begun: FloatArray, edge_w: FloatArray) -> _Stays:
        places, reach = len(self.part), self.reach
        wait_w = np.where(self.apart >= 0, np.maximum(edge_w[self.apart], 0.0), 0.0)
        ranks = np.arange(len(self.count))
        value, setting = np.zeros((places + 1, len(ranks))), np.zeros((places + 1, len(ranks)), dtype=np.intp)
        since = np.zeros_like(setting)
        open_j = np.full(begun.shape, np.inf)  # what a stay from each place on costs but for its end
        least_j = np.full(begun.shape, np.inf)  # the least of these up to each place
        least_w = np.full((places + 1, len(ranks)), np.inf)  # of a wait from each place up to now
        for end in range(1, places + 1):
            low = max(1, end - reach)
            np.minimum(least_w[low:end], wait_w[end - 1], out=least_w[low:end])
            options = np.zeros(begun.shape[1:])[None] if end <= reach else np.minimum(0.0, least_j[end - reach - 1])[None]
            if end > 1:
                lacks_s = np.maximum(self.stay_s - (self.ends_s[end] - self.ends_s[low:end]), 0.0)
                lacks_s[:, end >= self.count] = 0.0
                near = least_w[low:end, :, None] * lacks_s + open_j[low:end]
                near[~self.windows[end]] = np.inf
                options = np.concatenate([options, near])
            best = options.min(axis=0)
            best += begun[end]
            setting[end] = best.argmin(axis=1)
            value[end] = best[ranks, setting[end]]
            which = options[:, ranks, setting[end]].argmin(axis=0)
            since[end] = np.where(which > 0, low + which - 1, -1)
            open_j[end] = value[end][:, None] - begun[end]
            np.minimum(least_j[end - 1], open_j[end], out=least_j[end])
        return _Stays(value, setting, since, least_j, wait_w)

    def _path(self, found: _Stays, rank: int, waits_s: FloatArray) -> list[tuple[int, int, int]]:
        """The stays of a rank from the last to the first; their waits are added."""
        stays, end, last = [], int(self.count[rank]), int(self.count[rank])
        while end > 0:
            setting, first = int(found.setting[end, rank]), int(found.since[end, rank])
            if first < 0:  # one that lasts in any case, or that an iteration begins with
                least = found.least_j[: max(end - self.reach, 1), rank, setting]
                first = int((least == least[-1]).argmax()) if least[-1] < 0.0 else 0
            elif end < last:
                lacks_s = self.stay_s - float(self.ends_s[end, rank, setting] - self.ends_s[first, rank, setting])
                edge = int(self.apart[first + int(found.wait_w[first:end, rank].argmin()), rank])
                if lacks_s > 0.0 and edge >= 0:
                    waits_s[edge] += lacks_s
            stays.append((first, end, setting))
            end = first
        return stays


@dataclass(frozen=True, slots=True, eq=False)
class _Stays:
    """The cheapest stays before each place; shape (places + 1, ranks).

    Attributes:
        value: what they cost.
        setting: of the last of them.
        since: where it began, -1 where it surely lasts.
        least_j: the least that a stay begun up to each place costs but for its end; (places + 1, ranks, settings).
        wait_w: price of waiting after each instruction; (places, ranks).
    """

    value: FloatArray
    setting: IndexArray
    since: IndexArray
    least_j: FloatArray
    wait_w: FloatArray


class _Prices:
    """Prices of time by numbers without limits: logarithms of how what leaves a part is shared by those before it.

    Args:
        ranks: what is priced.
        edge_w: the flow to begin with, along each edge, ...
        last_w: ... and out of each last part.
    """

    def __init__(self, ranks: _Ranks, edge_w: FloatArray, last_w: FloatArray) -> None:
        self._ranks, self._dag = ranks, ranks.dag
        into = np.diff(self._dag.into)
        whole_w = np.bincount(self._dag.later, edge_w, minlength=len(into))[self._dag.later]
        share = np.where(whole_w > 0.0, edge_w / np.where(whole_w > 0.0, whole_w, 1.0), 0.0)
        most_w = max(float(last_w.sum()), 1e-9)
        self._range = np.log(most_w) - _FAR, np.log(most_w) + _FAR
        self._begin = np.log(
            np.concatenate(
                [
                    (1.0 - _SPREAD) * share + _SPREAD / into[self._dag.later],
                    (1.0 - _SPREAD) * last_w / most_w + _SPREAD / len(last_w),
                    [most_w],
                ]
            )
        )

    def climbed(self, steps: int) -> float:
        """The highest bound that some steps lead to, less what rounding may have added."""
        first, _ = self.bound(self._begin)
        best, unit = [first], _UNIT * abs(first)

        def falling(numbers: FloatArray) -> tuple[float, FloatArray]:
            value, slope = self.bound(numbers)
            best[0] = max(best[0], value)
            return -value / unit, -slope / unit

        numbers, left = self._begin, steps
        while left > 0:  # the bound has kinks, at which a search along a line may end before its time
            done: Any = minimize(falling, numbers, jac=True, method="L-BFGS-B", options={"maxfun": left, "maxiter": left})
            numbers, left = done.x, left - int(done.nfev)
            if done.nit < 2:
                break
        return best[0]

    def bound(self, numbers: FloatArray) -> tuple[float, FloatArray]:
        """The bound at some prices, of the graph's energy, and its slope."""
        dag, ranks, edges = self._dag, self._ranks, len(self._dag.earlier)
        share, last, whole_w = (
            _shares(numbers[:edges], dag.later, len(dag)),
            numbers[edges:-1],
            float(np.exp(np.clip(numbers[-1], *self._range))),
        )
        last = np.exp(last - last.max())
        last /= last.sum()
        through_w, edge_w = np.zeros(len(dag)), np.zeros(edges)
        through_w[dag.without_later] = whole_w * last
        dag.spread(share, through_w, edge_w)
        # What ends early saves energy by when it ends without the reserve; the deadline has to be kept with it.
        early_w = min(ranks.waiting_w, whole_w) if ranks.until_s < ranks.within_s else 0.0
        cost, taken_s, waits_s = ranks.cheapest(through_w, edge_w, 1.0 - early_w / whole_w)
        taken_s += ranks.other_s
        between_s = dag.delay_s + waits_s
        terms = [
            cost,
            ranks.other_j,
            float(through_w @ ranks.other_s),
            float(edge_w @ dag.delay_s),
            -whole_w * ranks.within_s,
        ]
        early_s = ranks.within_s - ranks.until_s
        terms += [min(0.0, (whole_w - ranks.waiting_w) * early_s), ranks.waiting_w * ranks.within_s]
        size = sum(map(abs, terms)) + float(through_w @ taken_s)
        value = sum(terms) - 64.0 * float(np.finfo(np.float64).eps) * size
        before_s, reached_s = np.zeros(len(dag)), taken_s.copy()  # mean length of the paths to each part
        arrives_s = np.empty(edges)
        for parts, into, first in dag.levels_into():
            arrives_s[into] = between_s[into] + reached_s[dag.earlier[into]]
            before_s[parts] = np.add.reduceat(share[into] * arrives_s[into], first)
            reached_s[parts] += before_s[parts]
        ends_s = reached_s[dag.without_later]
        mean_s = float(last @ ends_s)
        late_s = mean_s - ranks.within_s + (early_s if whole_w < ranks.waiting_w else 0.0)
        slope = [edge_w * (arrives_s - before_s[dag.later]), whole_w * last * (ends_s - mean_s), [whole_w * late_s]]
        return value, np.concatenate(slope)


def _shares(logarithms: FloatArray, later: IndexArray, parts: int) -> FloatArray:
    """Fractions that add up to 1 over the edges of each later part."""
    highest = np.full(parts, -np.inf)
    np.maximum.at(highest, later, logarithms)
    raised = np.exp(logarithms - highest[later])
    return np.asarray(raised / np.bincount(later, raised, minlength=parts)[later])


def _reach(shortest_s: FloatArray, count: IndexArray, stay_s: float) -> int:
    """The least number of instructions in a row that surely last as long as a stay, by when the next begins."""
    reach = 1
    for rank, end in enumerate(count.tolist()):
        begins = np.concatenate([[0.0], np.cumsum(shortest_s[:end, rank])])
        after = np.searchsorted(begins, begins[:-1] + stay_s)
        reach = max(reach, int((np.minimum(after, end) - np.arange(end)).max()))
    return reach
