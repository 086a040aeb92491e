"""The cheapest plan in which no rank changes its setting: exact for few ranks, as few paths matter.

With x_rs = 1 where rank r has setting s, the length of a path is linear in x, and so is the energy:

    minimise  Σ c_rs x_rs + waiting · T      over Σ_s x_rs = 1, x whole, T ≥ what a straggler takes
    each path       Σ x_rs Σ t_is (instructions i of rank r on it)   ≤ deadline     with reserve
                    the same                                         ≤ T            without, as energy is by what is likely

There are more paths than can be listed, but a solution names the one that it breaks, its longest, which is added until there
is none: first with fractions of x, then with whole numbers (cutting planes: Kelley, J. SIAM 8, 1960). With only some paths
the optimum is a lower bound.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, eye_array, hstack, kron

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.pipelines.plan.lasting import LastingProblem

_UNIT = 1e-5  # of the deadline, in which times are given: HiGHS's tolerance is 1e-6 of it
_ENOUGH = 1e-9  # of the deadline, by which a path may be longer than was allowed
_MOST_PATHS = 300  # eight to sixteen ranks take about 10
_MOST_NODES = 400  # of HiGHS's searches in all, about 2 s: enough for 8 ranks; a proof for 16 takes about 1,100
_ROUNDING = 1e-9  # of the cost; HiGHS takes cheaper settings for as good by 1e-7 J
_OPTIMAL = 1e-7  # of the cost, within which HiGHS looks no further


def cheapest_unchanging(problem: LastingProblem) -> tuple[IndexArray | None, float]:
    """The cheapest setting of each rank, and what no such plan costs less than.

    Args:
        problem: its deadline is kept.

    Returns:
        The setting of each instruction, which miss the deadline where the search is cut off or none keep it; ``None`` where
        some are too slow whatever the others are. And energy of instructions and of ranks that wait, less what ranks would
        draw waiting while instructions run.
    """
    paths = _Paths(problem)
    found, least, whole = None, -np.inf, False
    for _ in range(_MOST_PATHS):
        taken, bound = paths.solved(whole)
        if taken is None:
            break
        found, least = taken[:, :-1].argmax(axis=1)[paths.rank], max(least, bound)
        if not paths.grown(taken, whole):
            if whole:
                break
            whole = True
        if paths.nodes <= 0:
            break
    return found, least


class _Paths:
    """The paths found so far; a solution is shape (ranks, settings + 1), whose last column is T in units, in each row."""

    def __init__(self, problem: LastingProblem) -> None:
        self.problem, ranks = problem, problem.ranks
        self.rank = np.repeat(np.arange(len(ranks) - 1), np.diff(ranks))
        cost_j = np.add.reduceat(problem.cost_j, ranks[:-1], axis=0)
        self._can = np.isfinite(cost_j)
        self._cost_j = np.where(self._can, cost_j, 0.0)
        reserved_s = np.where(np.isfinite(problem.time_s), problem.time_s, 0.0)
        self._times = [(reserved_s, True), (problem.plain_s, False)]
        self._one_each = hstack([kron(eye_array(len(cost_j)), np.ones((1, cost_j.shape[1]))), csr_array((len(cost_j), 1))])
        self.nodes = _MOST_NODES
        self._unit_s = _UNIT * problem.within_s
        self._rows: list[FloatArray] = []
        self._most: list[float] = []

    def solved(self, whole: bool) -> tuple[FloatArray | None, float]:
        """The cheapest solution that the paths allow, of whole numbers or not, and what none costs less than."""
        problem, shape = self.problem, self._cost_j.shape
        until_s = problem.made.profile.graph_until_s(problem.made.plan.until_s) or 0.0
        waiting_w = float(problem.made.graph.waiting_w.sum())
        found = milp(
            np.append(self._cost_j.ravel(), waiting_w * self._unit_s),
            constraints=[
                LinearConstraint(self._one_each, 1.0, 1.0),
                *([LinearConstraint(np.array(self._rows), -np.inf, self._most)] if self._rows else []),
            ],
            integrality=np.append(np.full(self._cost_j.size, float(whole)), 0.0),
            bounds=Bounds(
                np.append(np.zeros(self._cost_j.size), min(until_s, problem.within_s) / self._unit_s),
                np.append(self._can.ravel().astype(float), 1.0 / _UNIT),
            ),
            options={"mip_rel_gap": _OPTIMAL, "node_limit": self.nodes},
        )
        if found.x is None:
            return None, -np.inf
        self.nodes -= int(found.mip_node_count or 0)
        taken = np.concatenate([found.x[:-1].reshape(shape), np.full((shape[0], 1), found.x[-1])], axis=1)
        least = found.mip_dual_bound if whole else found.fun
        return taken, float(least) - _ROUNDING * float(np.abs(self._cost_j).max(axis=1).sum())

    def grown(self, taken: FloatArray, whole: bool) -> bool:
        """Whether a solution breaks a path that was not known; it is now."""
        problem, share, more = self.problem, taken[:, :-1], False
        if whole:
            share = np.eye(share.shape[1])[share.argmax(axis=1)]
        for time_s, reserved in self._times:
            mixed_s = (time_s * share[self.rank]).sum(axis=1)
            on, length_s = problem.longest(mixed_s)
            most_s = problem.within_s if reserved else float(taken[0, -1]) * self._unit_s
            if length_s <= most_s + _ENOUGH * problem.within_s:
                continue
            by_rank_s = np.add.reduceat(np.where(on[:, None], time_s, 0.0), problem.ranks[:-1], axis=0)
            other_s = length_s - float(mixed_s[on].sum())
            self._rows.append(np.append(by_rank_s.ravel() / self._unit_s, 0.0 if reserved else -1.0))
            self._most.append(((problem.within_s if reserved else 0.0) - other_s) / self._unit_s)
            more = True
        return more
