"""Least energy within a time budget, one option per group: the multiple-choice knapsack, solved exactly.

Following Sinha and Zoltners (Operations Research 27, 1979) and Pisinger (EJOR 83, 1995): the linear relaxation is
solved by taking the segments of the groups' lower hulls in order of energy saved per second. It gives a bound and a
first plan; options whose reduced cost exceeds the gap between the two are dropped. What remains is finished by
dynamic programming over partial plans, each bounded from below and above by the linear relaxation of the groups still
to come, so that few survive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from wastenot.errors import InfeasibleError
from wastenot.frontier.points import FloatArray, Groups, IndexArray, hull_points, pareto_points

ExactTime = Callable[[IndexArray], Fraction]
"""Exact total time of a plan, given the chosen option of each group as an index into the points."""

ROUNDING = 1e-12
"""Relative difference of energies below which a bound and a plan are the same number in double precision."""

_INSTANT = Fraction(1, 2**1200)  # shorter than any difference between sums of doubles

_MOST_STATES = (
    1 << 15
)  # partial plans kept at once; above it the best are kept and the bound says what was lost


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """A plan and the proof of how good it is.

    Attributes:
        options: the chosen point of each group, as indices into the points; shape (groups,).
        time_s: its time, to rounding.
        energy_j: its energy, to rounding.
        lower_bound_j: no plan within the budget needs less energy than this.
    """

    options: IndexArray
    time_s: float
    energy_j: float
    lower_bound_j: float

    @property
    def gap(self) -> float:
        """How far the energy can be above the least possible, as a share of it."""
        return (self.energy_j - self.lower_bound_j) / self.energy_j if self.energy_j else 0.0


class Knapsack:
    """Groups of time-energy points of which every plan takes one each.

    Args:
        groups: the points; times and energies already multiplied by how often each group runs.
        exact_time: exact time of a plan; by default the exact sum of the times in ``groups``.
    """

    def __init__(self, groups: Groups, exact_time: ExactTime | None = None) -> None:
        self.groups = groups
        self._exact_time = exact_time or self._sum_of_times
        self._pareto = pareto_points(groups)
        self._time = groups.time_s[self._pareto]
        self._energy = groups.energy_j[self._pareto]
        self._group = np.searchsorted(groups.start, self._pareto, side="right") - 1
        self._first = np.searchsorted(self._group, np.arange(len(groups) + 1))
        self._fastest_time = self._time[self._first[:-1]]
        self._fastest_energy = self._energy[self._first[:-1]]
        self._order_segments()

    def _order_segments(self) -> None:
        """Merge the hull segments of all groups, most energy saved per second first.

        Taking the first k of them leads to vertex k of the hull of all plans (Minkowski sum of convex curves).
        """
        hull = hull_points(self._time, self._energy, self._group)
        group = self._group[hull]
        joined = np.flatnonzero(group[1:] == group[:-1])
        begin, end = hull[joined], hull[joined + 1]
        added = self._time[end] - self._time[begin]
        saved = self._energy[begin] - self._energy[end]
        rate = saved / added
        order = np.argsort(-rate, kind="stable")
        self._segment_group = group[joined][order]
        self._segment_end = end[order]
        self._segment_rate = rate[order]
        self._segment_time = added[order]
        self._segment_saved = saved[order]
        self._reached_time = _running_sum(self._fastest_time.sum(), self._segment_time)
        self._reached_energy = _running_sum(self._fastest_energy.sum(), -self._segment_saved)

    def _sum_of_times(self, options: IndexArray) -> Fraction:
        from wastenot.frontier.exact import exact_sum

        return exact_sum((1, time) for time in self.groups.time_s[options].tolist())

    # ---- the hull of all plans -------------------------------------------------------------------------------

    def hull(self) -> tuple[FloatArray, FloatArray]:
        """Time and energy of every vertex of the lower hull of all plans, by rising time."""
        vertex = self._vertices()
        return self._reached_time[vertex], self._reached_energy[vertex]

    def hull_plan(self, vertex: int) -> Solution:
        """The plan at a vertex of :meth:`hull`: no plan that is as fast needs less energy."""
        return self._solution(self._prefix(int(self._vertices()[vertex])))

    def _vertices(self) -> IndexArray:
        """How many segments lead to each vertex; equal rates are one straight edge."""
        rate = self._segment_rate
        corner = np.flatnonzero(rate[1:] != rate[:-1]) + 1
        return np.concatenate([[0], corner, [len(rate)]]) if len(rate) else np.array([0])

    def _prefix(self, segments: int) -> IndexArray:
        """The chosen Pareto point of each group after the first ``segments`` segments."""
        chosen = self._first[:-1].copy()
        chosen[self._segment_group[:segments]] = self._segment_end[:segments]
        return chosen

    def _solution(self, chosen: IndexArray, lower_bound_j: float | None = None) -> Solution:
        energy = float(self._energy[chosen].sum())
        if lower_bound_j is None or energy - lower_bound_j <= ROUNDING * energy:
            lower_bound_j = energy
        return Solution(self._pareto[chosen], float(self._time[chosen].sum()), energy, lower_bound_j)

    # ---- objectives ------------------------------------------------------------------------------------------

    def least_time(self) -> Solution:
        """The fastest plan, and of the fastest the one of least energy."""
        return self._solution(self._prefix(0))

    def least_edp(self, exponent: float = 1.0, budget_s: Fraction | float | None = None) -> Solution:
        """The plan of least ``energy * time ** exponent``, exact, over all plans or those within a time budget.

        For an exponent ≥ 0 the product is quasi-concave where both are positive, so its least value over all plans is
        at a vertex of their hull. With a budget, plans between the last vertex within it and the budget can be better
        than any vertex; they are visited by falling time until the relaxation shows that none to come is better.

        Raises:
            InfeasibleError: even the fastest plan is over the budget.
        """
        log_edp = np.log(self._reached_energy) + exponent * np.log(self._reached_time)
        best = self._prefix(int(np.argmin(log_edp)))
        if budget_s is None:
            return self._solution(best)
        if exponent == 0.0:
            return self.least_energy(budget_s)
        budget = Fraction(budget_s)
        if self._exact_time(self._pareto[best]) <= budget:
            return self._solution(best)
        return self._least_edp_within(exponent, budget)

    def _least_edp_within(self, exponent: float, budget: Fraction) -> Solution:
        def log_edp(plan: Solution) -> float:
            return float(np.log(plan.energy_j) + exponent * np.log(plan.time_s))

        best = found = self.least_energy(budget)
        at_vertex = np.log(self._reached_energy) + exponent * np.log(self._reached_time)
        for taken in np.argsort(at_vertex, kind="stable").tolist():
            vertex = self._solution(self._prefix(taken))
            if self._exact_time(vertex.options) <= budget:
                best = min(best, vertex, key=log_edp)
                break
        while True:
            least = log_edp(best)
            # Plans still to come need at least the energy just found, so to be better they must be this much faster.
            fast_enough = float(np.exp((least - np.log(found.energy_j)) / exponent))
            limit = min(self._exact_time(found.options) - _INSTANT, Fraction(fast_enough))
            floor = float(np.interp(float(limit), self._reached_time, self._reached_energy))
            if limit <= 0 or np.log(floor) + exponent * np.log(float(limit)) >= least - ROUNDING:
                return best
            try:
                found = self.least_energy(limit)
            except InfeasibleError:
                return best
            best = min(best, found, key=log_edp)

    def least_energy(self, budget_s: Fraction | float | None = None, gap_tolerance: float = 0.0) -> Solution:
        """The plan of least energy whose time, summed exactly, is within a budget.

        Args:
            budget_s: the budget; ``None`` for no limit.
            gap_tolerance: stop once the energy is proven to be within this share of the least possible.

        Raises:
            InfeasibleError: even the fastest plan is over the budget.
        """
        if budget_s is None:
            return self._solution(self._prefix(len(self._segment_rate)))
        budget = Fraction(budget_s)
        doubt_s = (
            (len(self._time) + 1024) * np.finfo(float).eps * max(float(budget), float(self._reached_time[0]))
        )
        taken = int(np.searchsorted(self._reached_time, float(budget) + doubt_s, side="right")) - 1
        if taken < 0:
            raise InfeasibleError("even the fastest plan is over the time budget")
        while not self._fits(self._prefix(taken), budget, doubt_s):
            taken -= 1
            if taken < 0:
                raise InfeasibleError("even the fastest plan is over the time budget")
        if taken == len(self._segment_rate):
            return self._solution(self._prefix(taken))
        return _Search(self, budget, doubt_s, taken, gap_tolerance).run()

    def _fits(self, chosen: IndexArray, budget: Fraction, doubt_s: float) -> bool:
        """Whether a plan is within the budget; summed exactly only where rounding could hide the answer."""
        time = self._time[chosen].sum()
        if abs(time - float(budget)) > doubt_s:
            return bool(time < float(budget))
        return self._exact_time(self._pareto[chosen]) <= budget


class _Search:
    """The exact finish of :meth:`Knapsack.least_energy` for one budget.

    Args:
        problem: what to solve.
        budget: the exact budget.
        doubt_s: no rounded sum of times is further than this from the exact one.
        taken: how many segments fit, fewer than all.
        gap_tolerance: relative gap at which to stop.
    """

    def __init__(
        self, problem: Knapsack, budget: Fraction, doubt_s: float, taken: int, gap_tolerance: float
    ) -> None:
        self.problem = problem
        self.budget = budget
        self.doubt_s = doubt_s
        self.most_s = float(budget) + doubt_s  # nothing above can be within the budget
        self.surely_s = float(budget) - doubt_s  # nothing below can be over it
        self.tolerance = max(gap_tolerance, ROUNDING / 8)
        self.taken = taken
        self.best = problem._prefix(taken)
        self.best_energy = float(problem._energy[self.best].sum())
        self.dropped_bound = np.inf  # least bound of the partial plans given up within the tolerance
        spare = self.most_s - problem._reached_time[taken]
        self.relaxed = float(problem._reached_energy[taken] - max(spare, 0.0) * problem._segment_rate[taken])

    def run(self) -> Solution:
        """Solve; the bound of what it returns is proven."""
        if self._settled(self.relaxed):
            return self.problem._solution(self.best, self.relaxed)
        self._improve_by_one_change()
        over_budget = self._extend(keep_ties=False)
        if over_budget:  # a partial plan may have pushed out its equal that rounding made look slower
            self._extend(keep_ties=True)
        bound = min(self.best_energy, self.dropped_bound)
        return self.problem._solution(self.best, max(bound, self.relaxed))

    @property
    def _worth_below(self) -> float:
        """Partial plans whose bound is not below this cannot improve on the best by more than the tolerance."""
        return self.best_energy * (1.0 - self.tolerance)

    def _settled(self, bound: float) -> bool:
        return bound >= self._worth_below

    def _improve_by_one_change(self) -> None:
        """Better the plan left by the relaxation, and the first one over the budget, by changing one group."""
        problem = self.problem
        for taken in (self.taken, self.taken + 1):
            chosen = problem._prefix(taken)
            time, energy = problem._time[chosen].sum(), problem._energy[chosen].sum()
            changed_time = time + (problem._time - problem._time[chosen][problem._group])
            changed_energy = energy + (problem._energy - problem._energy[chosen][problem._group])
            changed_energy[changed_time > self.surely_s] = np.inf
            point = int(np.argmin(changed_energy))
            if changed_energy[point] < self.best_energy:
                chosen[problem._group[point]] = point
                self._take(chosen)

    def _take(self, chosen: IndexArray) -> None:
        energy = float(self.problem._energy[chosen].sum())
        if energy < self.best_energy:
            self.best, self.best_energy = chosen, energy

    def _core(self) -> tuple[IndexArray, IndexArray, NDArray[np.bool_]]:
        """Drop every option whose reduced cost closes the gap; give the groups left with a choice, widest first.

        Returns:
            The core's groups in order of solution, the one point left in each group (any, for a core group), and
            which points are alive.
        """
        problem = self.problem
        rate = problem._segment_rate[self.taken]
        price = problem._energy + rate * problem._time
        cheapest = np.minimum.reduceat(price, problem._first[:-1])
        reduced = price - cheapest[problem._group]
        alive = self.relaxed + reduced < self._worth_below
        dropped = reduced[~alive]
        if len(dropped) and self.tolerance > ROUNDING:
            self.dropped_bound = min(self.dropped_bound, self.relaxed + float(dropped.min()))
        alive[reduced == 0.0] = True
        points = np.flatnonzero(alive)
        group = problem._group[points]
        left = np.bincount(group, minlength=len(problem.groups))
        first = points[np.searchsorted(group, np.arange(len(left)))]
        last = points[np.searchsorted(group, np.arange(len(left)), side="right") - 1]
        core = np.flatnonzero(left > 1)
        span = problem._time[last[core]] - problem._time[first[core]]
        return core[np.argsort(-span, kind="stable")], first, alive

    def _extend(self, *, keep_ties: bool) -> bool:
        """Dynamic programming over the core; returns whether a plan that rounding could not judge was over budget."""
        problem = self.problem
        core, fixed, alive = self._core()
        is_core = np.zeros(len(problem.groups), dtype=bool)
        is_core[core] = True
        time = np.array([problem._time[fixed[~is_core]].sum()])
        energy = np.array([problem._energy[fixed[~is_core]].sum()])
        rank = np.full(len(problem.groups), -1)
        rank[core] = np.arange(len(core))
        segment_rank = rank[problem._segment_group]
        in_core = np.flatnonzero(segment_rank >= 0)
        segment_rank = segment_rank[in_core]
        rest_time = float(problem._fastest_time[core].sum())
        rest_energy = float(problem._fastest_energy[core].sum())
        history: list[tuple[IndexArray, IndexArray]] = []
        for stage, group in enumerate(core.tolist()):
            later = segment_rank > stage
            in_core, segment_rank = in_core[later], segment_rank[later]
            rest_time -= float(problem._fastest_time[group])
            rest_energy -= float(problem._fastest_energy[group])
            reach_time = _running_sum(0.0, problem._segment_time[in_core])
            reach_saved = _running_sum(0.0, problem._segment_saved[in_core])
            option = np.arange(problem._first[group], problem._first[group + 1])
            option = option[alive[option]]
            new_time = (time[:, None] + problem._time[option]).ravel()
            new_energy = (energy[:, None] + problem._energy[option]).ravel()
            spare = (self.most_s - rest_time) - new_time
            bound = new_energy + rest_energy - np.interp(spare, reach_time, reach_saved)
            bound[spare < 0.0] = np.inf
            # Every run of whole segments completes a partial plan: an upper bound for each.
            whole = np.searchsorted(reach_time, spare - 2.0 * self.doubt_s, side="right") - 1
            completed = np.where(whole >= 0, new_energy + rest_energy - reach_saved[whole], np.inf)
            winner = int(np.argmin(completed))
            if completed[winner] < self.best_energy:
                segments = in_core[: whole[winner]]
                tail = self._unroll(history, winner // len(option), core)
                self._complete(fixed, core, stage, tail, int(option[winner % len(option)]), segments)
            state = np.flatnonzero(bound < self._worth_below)
            state = self._undominated(new_time, new_energy, state, keep_ties=keep_ties)
            if len(state) > _MOST_STATES:
                by_bound = np.argsort(bound[state], kind="stable")
                self.dropped_bound = min(self.dropped_bound, float(bound[state[by_bound[_MOST_STATES]]]))
                state = state[np.sort(by_bound[:_MOST_STATES])]
            elif self.tolerance > ROUNDING:
                given_up = bound[bound >= self._worth_below]
                if len(given_up):
                    self.dropped_bound = min(self.dropped_bound, float(given_up.min()))
            history.append((state // len(option), option[state % len(option)]))
            time, energy = new_time[state], new_energy[state]
            if not len(state):
                return False
        return self._judge_doubtful(history, energy, core, fixed)

    def _undominated(
        self, time: FloatArray, energy: FloatArray, state: IndexArray, *, keep_ties: bool
    ) -> IndexArray:
        """Of the partial plans ``state`` those that none beats in both time and energy."""
        if len(state) < 2:
            return state
        state = state[np.lexsort((energy[state], time[state]))]
        least = np.minimum.accumulate(energy[state])
        keep = np.ones(len(state), dtype=bool)
        if keep_ties:
            earlier = np.searchsorted(time[state], time[state] - 2.0 * self.doubt_s) - 1
            keep = (earlier < 0) | (energy[state] < least[earlier])
        else:
            keep[1:] = energy[state[1:]] < least[:-1]
        return state[keep]

    def _unroll(
        self, history: list[tuple[IndexArray, IndexArray]], state: int, core: IndexArray
    ) -> list[int]:
        """The points that led to a partial plan, in the order of the core."""
        points: list[int] = []
        for parent, option in reversed(history):
            points.append(int(option[state]))
            state = int(parent[state])
        return points[::-1]

    def _complete(
        self,
        fixed: IndexArray,
        core: IndexArray,
        stage: int,
        tail: list[int],
        option: int,
        segments: IndexArray,
    ) -> None:
        """Take the plan of a partial plan, one more option, and whole segments of the groups still to come."""
        problem = self.problem
        chosen = fixed.copy()
        later = core[stage + 1 :]
        chosen[later] = problem._first[later]
        chosen[core[:stage]] = tail
        chosen[core[stage]] = option
        chosen[problem._segment_group[segments]] = problem._segment_end[segments]
        self._take(chosen)

    def _judge_doubtful(
        self,
        history: list[tuple[IndexArray, IndexArray]],
        energy: FloatArray,
        core: IndexArray,
        fixed: IndexArray,
    ) -> bool:
        """Sum exactly the plans that rounding cannot tell from the budget, best first."""
        over_budget = False
        for state in np.argsort(energy, kind="stable").tolist():
            if energy[state] >= self._worth_below:
                break
            chosen = fixed.copy()
            chosen[core] = self._unroll(history, state, core)
            if self.problem._exact_time(self.problem._pareto[chosen]) <= self.budget:
                self._take(chosen)
                break
            over_budget = True
        return over_budget


def _running_sum(first: float, steps: FloatArray) -> FloatArray:
    """``first``, then ``first`` plus the sum of the first one, two, ... steps."""
    total = np.empty(len(steps) + 1)
    total[0] = 0.0
    np.cumsum(steps, out=total[1:])
    return total + first
