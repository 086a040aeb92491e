"""Settings that last: those to begin with, made to keep the deadline and then to use it up.

A rank by itself is a dynamic programme (:mod:`wastenot.frontiers.stays`). Which step follows on which, and why, is told in
:mod:`wastenot.pipelines.plan.switched`.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from wastenot.core.arrays import BoolArray, FloatArray, IndexArray
from wastenot.frontiers.stays import Start, Stays
from wastenot.frontiers.switched_work import SwitchedWork
from wastenot.pipelines.plan.lasting import NEARLY, LastingProblem

_MOST_RAISES = 400  # of stays, until a plan is on time
_STEPS = (1, 2, 4)  # settings by which a stay is slowed down at once; several, to get past one that saves nothing by itself
_MOST_PARTS = 30_000_000
"""Parts × plans that are tried while one is improved: about 10 s, but counted, so that a busy machine finds the same
plan."""


def first(problem: LastingProblem) -> IndexArray:
    """Settings that last, with no instruction slower than planned; shape (instructions,)."""
    found = np.empty(len(problem.time_s), dtype=np.intp)
    for begin, end in pairwise(problem.ranks.tolist()):
        here = slice(begin, end)
        allowed = problem.time_s[here] <= problem.part_time_s[here, None] * (1.0 + 1e-9)
        fastest_s = problem.time_s[here].min(axis=1, keepdims=True)
        allowed |= problem.time_s[here] <= fastest_s  # where a setting has several ways
        found[here] = _lasting(problem, here, allowed)
    return found


def at_prices(problem: LastingProblem) -> IndexArray:
    """Settings that last and cost least where each instruction pays for its time; shape (instructions,).

    Unlike those of :func:`first`, instructions may be slower than planned where others are faster.
    """
    found, known = np.empty(len(problem.time_s), dtype=np.intp), np.isfinite(problem.time_s)
    for begin, end in pairwise(problem.ranks.tolist()):
        found[begin:end] = _lasting(problem, slice(begin, end), known[begin:end], problem.price_w[begin:end])
    return found


def quickened(problem: LastingProblem, setting: IndexArray) -> IndexArray | None:
    """Stays on the longest path made faster until the deadline is kept: those first that cost least per second won.

    ``None`` where that does not get there.
    """
    setting = setting.copy()
    for _ in range(_MOST_RAISES):
        on, length_s = problem.longest(problem.times(setting)[0])
        late_s = length_s - problem.within_s
        if late_s <= 0.0:
            return setting
        best = (np.inf, 0, 0, 0)
        for begin, end in problem.stays(setting):
            own, path = int(setting[begin]), on[begin:end]
            faster = slice(own + 1, len(problem.settings))
            if not path.any() or own + 1 == len(problem.settings):
                continue
            won_s = (problem.time_s[begin:end, own, None] - problem.time_s[begin:end, faster])[path].sum(axis=0)
            more_j = (problem.cost_j[begin:end, faster] - problem.cost_j[begin:end, own, None]).sum(axis=0)
            useful = np.isfinite(more_j) & (won_s > 0.0)
            rate = np.full(len(useful), np.inf)
            rate[useful] = np.maximum(more_j[useful], 0.0) / np.minimum(won_s[useful], late_s)
            best = min(best, (float(rate.min()), begin, end, own + 1 + int(rate.argmin())))
        if not np.isfinite(best[0]):
            return None
        setting[best[1] : best[2]] = best[3]
    return None


def _lasting(problem: LastingProblem, here: slice, allowed: BoolArray, price_w: FloatArray | None = None) -> IndexArray:
    """The cheapest settings of a rank that last, of those allowed, where each instruction pays a price for its time.

    A stay's length is that of gaps, from the begin of an instruction to that of the next, waiting included: a switch may
    happen while the rank waits. The schedule is a loop, since iterations follow each other. First it is solved with the
    loop cut open, where the stay across the cut may turn out too short; if so, once more for each setting of that stay,
    with half of the least stay on either side of the cut.
    """
    time_s, cost_j = problem.time_s[here], problem.cost_j[here]
    if price_w is not None:
        cost_j = cost_j + price_w[:, None] * time_s
    work = SwitchedWork.of(
        np.where(allowed, problem.lasts_s[here], np.inf),
        np.where(allowed, cost_j, np.inf),
        weight_s=np.where(allowed, time_s, np.inf),
        stay_s=problem.stay_s,
        slow_stay_s=problem.slow_stay_s,
        slow=problem.slow,
        switch_j=problem.switch_j,
    )
    stays, free = Stays(work), np.zeros(1)
    found = stays.cheapest(free).setting[0]
    if not work.keeps(found):
        lanes = np.flatnonzero(allowed.any(axis=0))
        starts = [Start(int(each), 0.5 * problem.stay_s, 0.5 * problem.stay_s) for each in lanes]
        closed = stays.cheapest(np.zeros(len(starts)), starts)
        if np.isfinite(closed.cost).any():
            found = closed.setting[int(closed.cost.argmin())]
    return np.asarray(found, dtype=np.intp)


def improved(problem: LastingProblem, setting: IndexArray) -> IndexArray:
    """Spend what time is left where it saves most: stays are slowed down as far as the deadline is kept.

    Greedy by energy saved per second of longer work. A move fails at once if the stay's own instructions, given the
    earliest starts and latest ends as they are, would not be done in time; only the others take the longest path of the
    whole graph.
    """
    rows, left = np.arange(len(setting)), _MOST_PARTS // len(problem.part_time_s)
    tried: set[tuple[int, int, int]] = set()
    begin_s, latest_s = problem.room(setting)
    while left > 0:
        moves = []
        for begin, end in problem.stays(setting):
            for step in _STEPS:
                to = int(setting[begin]) - step
                if to < 0 or (begin, end, to) in tried:
                    continue
                gain = float((problem.cost_j[rows[begin:end], setting[begin]] - problem.cost_j[rows[begin:end], to]).sum())
                if gain > 0.0 and np.isfinite(gain):
                    longer_s = float((problem.time_s[begin:end, to] - problem.time_s[begin:end, setting[begin]]).sum())
                    moves.append((gain / max(longer_s, 1e-12), begin, end, to))
        moved = False
        for _, begin, end, to in sorted(moves, reverse=True):
            if left == 0:
                break
            if setting[begin] != setting[end - 1] or setting[begin] <= to:
                continue  # another move was here
            at_s = np.maximum.accumulate(begin_s[begin:end] - _before(problem.time_s[begin:end, to]))
            if (at_s + np.cumsum(problem.time_s[begin:end, to]) > latest_s[begin:end] * (1.0 + 1e-12)).any():
                tried.add((begin, end, to))  # too long by itself, whatever becomes of the others
                continue
            changed, left = _joined_at_end(problem, setting, begin, end, to), left - 1
            if _lasts(problem, changed, problem.rank_of(begin)) and problem.keeps(changed):
                setting, moved = changed, True
                begin_s, latest_s = problem.room(setting)
            else:
                tried.add((begin, end, to))
        if not moved:
            break
    return setting


def on_time(problem: LastingProblem, setting: IndexArray) -> IndexArray:
    """Without switches that keep what is critical from being on time: the slower side is raised to the faster.

    One stay each time, that with the least energy added per second no longer lost, until the makespan is within the
    deadline.
    """
    setting = setting.copy()
    for _ in range(len(setting)):
        times, lost_s = problem.times(setting)
        placed = times[problem.dag.order]
        begin = problem.dag.earliest_s(placed)
        length_s = float((begin + placed).max())
        if length_s <= problem.within_s:
            break
        slack_s = (problem.dag.latest_s(placed, length_s) - placed - begin)[problem.dag.place][: len(setting)]
        best: tuple[float, int, int, int] | None = None
        for part in np.flatnonzero((lost_s > 0.0) & (slack_s <= 1e-6 * length_s)).tolist():
            for first, end in _slower_stays(problem, setting, part):
                to = int(setting[part])
                more_j = float((problem.cost_j[first:end, to] - problem.cost_j[first:end, setting[first]]).sum())
                if np.isfinite(problem.time_s[first:end, to]).all():
                    best = min(best or (np.inf, 0, 0, 0), (more_j / lost_s[part], first, end, to))
        if best is None:
            break
        setting[best[1] : best[2]] = best[3]
    return setting


def _slower_stays(problem: LastingProblem, setting: IndexArray, part: int) -> list[tuple[int, int]]:
    """Stays right before and after an instruction's own that are slower."""
    found = []
    for begin, end in problem.stays(setting):
        same = problem.rank_of(begin) == problem.rank_of(part)
        if same and setting[begin] < setting[part] and (end == part or begin == part + 1):
            found.append((begin, end))
    return found


def _joined_at_end(problem: LastingProblem, setting: IndexArray, begin: int, end: int, to: int) -> IndexArray:
    """A stay at another setting; where it continues over the end of an iteration, on both sides."""
    changed = setting.copy()
    changed[begin:end] = to
    rank = problem.rank_of(begin)
    first, last = int(problem.ranks[rank]), int(problem.ranks[rank + 1]) - 1
    apart = first + np.flatnonzero(setting[first : last + 1] != setting[first])
    if len(apart) and setting[first] == setting[last] and (begin == first or end == last + 1):
        both = np.r_[first : apart[0], apart[-1] + 1 : last + 1]
        if np.isfinite(problem.time_s[both, to]).all():
            changed[both] = to
    return changed


def _lasts(problem: LastingProblem, setting: IndexArray, rank: int) -> bool:
    """Whether all stays of a rank last, by when instructions began in the plan with reserve."""
    starts = np.cumsum(problem.gap_s) - problem.gap_s
    whole_s = float(problem.gap_s[problem.ranks[rank] : problem.ranks[rank + 1]].sum())
    return next(problem.too_short(setting, starts, whole_s, NEARLY, rank), None) is None


def _before(time_s: FloatArray) -> FloatArray:
    """Times of all that comes before each, summed."""
    return np.concatenate([[0.0], np.cumsum(time_s[:-1])])
