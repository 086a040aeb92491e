"""The exact finish of the knapsack: a search of the few options that the linear relaxation leaves open.

Options whose reduced cost closes the gap between the relaxation and the best plan known are dropped (Pisinger,
EJOR 83, 1995). The groups that still have a choice, the core, are finished by dynamic programming over partial plans,
widest group first. Each partial plan is bounded from below by the relaxation of the groups to come, and from above by
completing it with whole hull segments, so that few survive a stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.frontiers.relaxation import Relaxation, running_sum

ROUNDING = 1e-12
"""Relative difference of energies below which a bound and a plan are the same number in double precision."""

_MOST_STATES = 1 << 15  # partial plans kept at once; above it the best are kept and the bound says what was lost


@dataclass(frozen=True, slots=True, eq=False)
class Budget:
    """A time budget, and how sums of rounded times are judged against it.

    Attributes:
        exact_s: the budget.
        doubt_s: no rounded sum of times is further than this from the exact sum.
        exact_time: exact time of the plan that takes the given Pareto point of each group.
    """

    exact_s: Fraction
    doubt_s: float
    exact_time: Callable[[IndexArray], Fraction]

    @property
    def most_s(self) -> float:
        """No plan whose rounded time is above this is within the budget."""
        return float(self.exact_s) + self.doubt_s

    @property
    def surely_s(self) -> float:
        """Every plan whose rounded time is not above this is within the budget."""
        return float(self.exact_s) - self.doubt_s

    def fits(self, chosen: IndexArray, time_s: float) -> bool:
        """Whether a plan is within the budget; summed exactly only where rounding could hide the answer."""
        if abs(time_s - float(self.exact_s)) > self.doubt_s:
            return time_s < float(self.exact_s)
        return self.exact_time(chosen) <= self.exact_s


class _Rest(NamedTuple):
    """The relaxation of the core's groups that are still to come."""

    time_s: float  # of their fastest points
    energy_j: float
    segments: IndexArray  # theirs, in order
    reach_s: FloatArray  # time added by the first 0, 1, 2, ... segments
    saved_j: FloatArray  # energy saved by the same


class CoreSearch:
    """A search for the plan of least energy within one budget.

    Args:
        relaxation: of the problem.
        budget: that not all segments fit into.
        taken: how many segments fit.
        gap_tolerance: relative gap at which to stop.
        known_j: energy of a plan known from elsewhere; only what is better is looked for.
    """

    def __init__(
        self, relaxation: Relaxation, budget: Budget, taken: int, gap_tolerance: float, known_j: float = np.inf
    ) -> None:
        self._r = relaxation
        self._budget = budget
        self._taken = taken
        self._tolerance = max(gap_tolerance, ROUNDING / 8)
        self._known_j = known_j
        self._best = relaxation.prefix(taken)
        self._best_j = float(relaxation.energy_j[self._best].sum())
        self._given_up_j = np.inf  # least bound of what was dropped though it could be better within the tolerance
        spare = max(budget.most_s - float(relaxation.reached_time_s[taken]), 0.0)
        self._relaxed_j = float(relaxation.reached_energy_j[taken] - spare * relaxation.segment_rate[taken])

    def run(self) -> tuple[IndexArray, float]:
        """The Pareto point of each group in the best plan, and a proven lower bound on the energy of any."""
        if self._relaxed_j >= self._worth_below:
            return self._best, self._relaxed_j
        self._improve_by_one_change()
        if not self._extend(keep_ties=False):
            # A partial plan may have pushed out its equal that rounding alone made look slower.
            self._extend(keep_ties=True)
        return self._best, max(min(self._best_j, self._given_up_j), self._relaxed_j)

    @property
    def _worth_below(self) -> float:
        """A partial plan whose bound is not below this cannot improve on the best by more than the tolerance."""
        return min(self._best_j, self._known_j) * (1.0 - self._tolerance)

    def _take(self, chosen: IndexArray) -> None:
        energy = float(self._r.energy_j[chosen].sum())
        if energy < self._best_j:
            self._best, self._best_j = chosen, energy

    def _give_up(self, bounds: FloatArray) -> None:
        """Remember what is dropped, where that is more than rounding."""
        if self._tolerance > ROUNDING and len(bounds):
            self._given_up_j = min(self._given_up_j, float(bounds.min()))

    def _improve_by_one_change(self) -> None:
        """Better the plan that the relaxation leaves, and the first one over the budget, by changing one group."""
        r = self._r
        for taken in (self._taken, self._taken + 1):
            chosen = r.prefix(taken)
            time = r.time_s[chosen].sum() + (r.time_s - r.time_s[chosen][r.group])
            energy = r.energy_j[chosen].sum() + (r.energy_j - r.energy_j[chosen][r.group])
            energy[time > self._budget.surely_s] = np.inf
            point = int(np.argmin(energy))
            if energy[point] < self._best_j:
                chosen[r.group[point]] = point
                self._take(chosen)

    def _open_options(self) -> NDArray[np.bool_]:
        """Which Pareto points could be part of a better plan, by their reduced cost."""
        r = self._r
        price = r.energy_j + r.segment_rate[self._taken] * r.time_s
        reduced = price - np.minimum.reduceat(price, r.first[:-1])[r.group]
        is_open: NDArray[np.bool_] = self._relaxed_j + reduced < self._worth_below
        self._give_up(self._relaxed_j + reduced[~is_open])
        is_open[reduced == 0.0] = True
        return is_open

    def _extend(self, *, keep_ties: bool) -> bool:
        """Dynamic programming over the core; false where a plan that seemed better, within rounding, was over the budget."""
        r = self._r
        is_open = self._open_options()
        points = np.flatnonzero(is_open)
        open_first = np.searchsorted(r.group[points], np.arange(len(r.groups) + 1))
        fixed = points[open_first[:-1]]
        left = np.diff(open_first)
        core = np.flatnonzero(left > 1)
        span = r.time_s[points[open_first[core + 1] - 1]] - r.time_s[fixed[core]]
        core = core[np.argsort(-span, kind="stable")]
        path = _Path(r, fixed, core)

        time = np.array([r.time_s[fixed[left == 1]].sum()])
        energy = np.array([r.energy_j[fixed[left == 1]].sum()])
        for stage, rest in enumerate(self._rests(core)):
            option = points[open_first[core[stage]] : open_first[core[stage] + 1]]
            new_time = (time[:, None] + r.time_s[option]).ravel()
            new_energy = (energy[:, None] + r.energy_j[option]).ravel()
            bound = self._bound_and_complete(new_time, new_energy, rest, path, option)
            worth = bound < self._worth_below
            self._give_up(bound[~worth])
            state = self._undominated(new_time, new_energy, worth.nonzero()[0], keep_ties=keep_ties)
            if len(state) > _MOST_STATES:
                best_first = np.argsort(bound[state], kind="stable")
                self._given_up_j = min(self._given_up_j, float(bound[state[best_first[_MOST_STATES]]]))
                state = state[np.sort(best_first[:_MOST_STATES])]
            if not len(state):
                return True
            path.steps.append((state // len(option), option[state % len(option)]))
            time, energy = new_time[state], new_energy[state]
        return self._judge(energy, path)

    def _rests(self, core: IndexArray) -> Iterator[_Rest]:
        """What is still to come after each stage, one at a time: for large problems few stages are needed."""
        r = self._r
        rank = np.full(len(r.groups), -1)
        rank[core] = np.arange(len(core))
        segment_rank = rank[r.segment_group]
        fastest = r.first[core][::-1]
        time = [*np.cumsum(r.time_s[fastest])[::-1].tolist(), 0.0]
        energy = [*np.cumsum(r.energy_j[fastest])[::-1].tolist(), 0.0]
        segments = np.flatnonzero(segment_rank >= 0)
        for stage in range(len(core)):
            segments = segments[segment_rank[segments] > stage]
            reach, saved = running_sum(0.0, r.segment_time_s[segments]), running_sum(0.0, r.segment_saved_j[segments])
            yield _Rest(time[stage + 1], energy[stage + 1], segments, reach, saved)

    def _bound_and_complete(
        self, time: FloatArray, energy: FloatArray, rest: _Rest, path: _Path, option: IndexArray
    ) -> FloatArray:
        """Lower bounds of partial plans, inf where none can keep the budget; takes the best of their completions."""
        spare = (self._budget.most_s - rest.time_s) - time
        base = energy + rest.energy_j
        bound = base - np.interp(spare, rest.reach_s, rest.saved_j)
        bound[spare < 0.0] = np.inf
        whole = rest.reach_s.searchsorted(spare - 2.0 * self._budget.doubt_s, side="right") - 1
        completed = base - rest.saved_j[whole]
        completed[whole < 0] = np.inf
        winner = int(completed.argmin())
        if completed[winner] < self._best_j:
            state, added = divmod(winner, len(option))
            self._take(path.plan(state, int(option[added]), rest.segments[: whole[winner]]))
        return bound

    def _undominated(self, time: FloatArray, energy: FloatArray, state: IndexArray, *, keep_ties: bool) -> IndexArray:
        """Of the partial plans ``state`` those that none beats in both time and energy, by rising time.

        With ``keep_ties`` a plan is beaten only by one that is faster beyond doubt.
        """
        if len(state) < 2:
            return state
        state = state[np.lexsort((energy[state], time[state]))]
        least = np.minimum.accumulate(energy[state])
        keep = np.ones(len(state), dtype=bool)
        if keep_ties:
            faster = np.searchsorted(time[state], time[state] - 2.0 * self._budget.doubt_s) - 1
            keep = (faster < 0) | (energy[state] < least[faster])
        else:
            keep[1:] = energy[state[1:]] < least[:-1]
        return state[keep]

    def _judge(self, energy: FloatArray, path: _Path) -> bool:
        """Sum exactly the whole plans that rounding cannot tell from the budget, best first."""
        proven = True
        for state in np.argsort(energy, kind="stable").tolist():
            if energy[state] >= self._worth_below:
                break
            chosen = path.plan(state)
            if self._budget.exact_time(chosen) <= self._budget.exact_s:
                self._take(chosen)
                break
            proven = False
        return proven


class _Path:
    """How each partial plan came about, to make whole plans of them."""

    def __init__(self, relaxation: Relaxation, fixed: IndexArray, core: IndexArray) -> None:
        self._r = relaxation
        self._fixed = fixed  # the Pareto point of each group outside the core
        self._core = core  # groups in the order of the stages
        self.steps: list[tuple[IndexArray, IndexArray]] = []  # of each stage's plans the parents, and the points added

    def plan(self, state: int, option: int | None = None, segments: IndexArray | None = None) -> IndexArray:
        """The Pareto point of each group under the partial plan ``state`` of the last stage.

        The next group takes the point ``option``; those after it, otherwise at their fastest, take whole ``segments``.
        """
        done = len(self.steps)
        chosen = self._fixed.copy()
        chosen[self._core[done:]] = self._r.first[self._core[done:]]
        if option is not None:
            chosen[self._core[done]] = option
        if segments is not None:
            chosen[self._r.segment_group[segments]] = self._r.segment_end[segments]
        for group, (parent, added) in zip(self._core[:done][::-1].tolist(), reversed(self.steps), strict=True):
            chosen[group] = added[state]
            state = int(parent[state])
        return chosen
