"""Simulated annealing of settings that last: stays change their setting or their bounds, are split and joined.

    |   1600   |   1500   |      a stay at another setting      |   1600   |   1350   |
                                 a bound moved                  |     1600    | 1500  |
                                 a part at another setting      | 1600 |1800 |  1500 |

The dynamic programmes of :mod:`wastenot.pipelines.plan.lasting_search` solve each rank at prices of time that were those of
a plan whose settings change at will; what is left to gain is between ranks. Being late costs what time is worth, so that a
plan may be late on the way. Proposals are drawn and timed many at once, and the first that is accepted is taken: the same as
one by one. The draws are always the same, and counted, so that a busy machine finds the same plan.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.pipelines.plan.lasting import NEARLY, LastingProblem

# Chosen by hand on two pipelines, an A100's of published times and a simulated H200's: between temperatures a hundred times
# as low and these, what is saved differs by 0.1 points at most.
_PROPOSALS = 35  # for each instruction
_MOST_PARTS = 6_000_000  # parts × plans that are timed: about 1 s
_BATCH = 48
_HOT, _COLD = 2e-4, 4e-7  # of what all instructions of a rank cost
_JUMPS = (-3, -2, -1, -1, 1, 1, 2, 3)  # settings
_SHIFT = 8  # instructions that a bound moves by at most
_DEAR = 1.2  # being late, by what time is worth, to begin with; ...
_ADJUSTED = 1.1  # ... dearer while the plan is late, cheaper while it is not: at 1.01 some were late to the end
_ABOUT = 0.8  # of its least length that a stay must have before it is timed, by when instructions began in the first plan
_LEAST_DEAR, _MOST_DEAR = 0.5, 20.0


def annealed(problem: LastingProblem, setting: IndexArray) -> IndexArray:
    """The cheapest settings found that keep the deadline, from settings that do; shapes (instructions,)."""
    rng = np.random.default_rng(0)
    ranks = [_Rank.of(problem, begin, end, setting) for begin, end in pairwise(problem.ranks.tolist())]
    setting, cost, length_s = setting.copy(), problem.cost(setting), float(problem.timed(setting[None])[1][0])
    best, least = setting.copy(), cost
    room = _Room.of(problem, setting)
    iteration_s = problem.made.profile.iteration_s
    late_w = _DEAR * problem.total_w
    scale = float(np.abs(problem.cost_j[np.arange(len(setting)), setting]).sum()) / len(ranks)
    most = _PROPOSALS * len(setting)
    drawn, timed, most_timed = 0, 0, max(_MOST_PARTS // len(problem.part_time_s), 1)
    while (done := max(drawn / most, timed / most_timed)) < 1.0:
        temperature = _HOT * scale * (_COLD / _HOT) ** done
        drawn += _BATCH
        late_s = length_s - problem.within_s
        now = cost + late_w * max(late_s, 0.0)
        late_w *= _ADJUSTED if late_s > 0.0 else 1.0 / _ADJUSTED
        late_w = min(max(late_w, _LEAST_DEAR * problem.total_w), _MOST_DEAR * problem.total_w)
        tried: list[tuple[int, _Stays]] = []
        costs, above = [], []
        for draws in rng.random((_BATCH, 6)).tolist():
            which = int(draws[0] * len(ranks))
            accepted = now - temperature * math.log(1.0 - draws[5])
            stays = ranks[which].proposed(draws, room, accepted - cost, late_w)
            if stays is None:
                continue
            its = cost + stays.cost_j - ranks[which].stays.cost_j
            if its < accepted:
                tried.append((which, stays))
                costs.append(its)
                above.append(accepted)
        if not tried:
            continue
        sets = np.repeat(setting[None], len(tried), axis=0)
        for row, (which, stays) in zip(sets, tried, strict=True):
            row[ranks[which].begin : ranks[which].end] = stays.each
        timed += len(sets)
        starts, lengths = problem.timed(sets)
        listed = zip(sets, costs, above, starts, lengths.tolist(), tried, strict=True)
        for row, its, limit, start_s, length, (which, stays) in listed:
            cheaper = length <= problem.within_s and its < least
            taken = its + late_w * max(length - problem.within_s, 0.0) < limit
            if not (cheaper or taken) or next(problem.too_short(row, start_s, length + iteration_s, NEARLY), None):
                continue
            if cheaper:
                best, least = row.copy(), its
            if taken:
                setting, cost, length_s = row.copy(), its, length
                ranks[which].stays = stays
                room = _Room.of(problem, setting)
                break
    return best


@dataclass(frozen=True, slots=True)
class _Room:
    """What the settings of now leave to others; lists by instruction.

    Attributes:
        begin_s: its earliest begin.
        latest_s: its latest end that keeps the deadline.
        cost_j: of all instructions before it; one more, of all.
        switches_j: that other settings may cost less than they seem to, as there are fewer switches then.
        sooner_s: that an instruction may end sooner than it seems to, likewise.
    """

    begin_s: list[float]
    latest_s: list[float]
    cost_j: list[float]
    switches_j: float
    sooner_s: float

    @classmethod
    def of(cls, problem: LastingProblem, setting: IndexArray) -> _Room:
        """That of some settings."""
        begin_s, latest_s = problem.room(setting)
        cost_j = problem.cost_j[np.arange(len(setting)), setting]
        return cls(
            begin_s.tolist(),
            latest_s.tolist(),
            [0.0, *np.cumsum(cost_j).tolist()],
            2.0 * float(problem.switch_j.max()),
            2.0 * problem.off_s,
        )


@dataclass(frozen=True, slots=True)
class _Stays:
    """The stays of a rank.

    Attributes:
        bounds: first instruction of each, and one past the last.
        own: setting of each.
        cost_j: of the rank, with its switches.
    """

    bounds: list[int]
    own: list[int]
    cost_j: float

    @property
    def each(self) -> IndexArray:
        """The setting of each instruction."""
        return np.repeat(self.own, np.diff(self.bounds))


@dataclass(slots=True)
class _Rank:
    """A rank and its stays; sums of what comes before each instruction, and one past the last, by setting.

    Attributes:
        begin: its first instruction.
        end: one past its last.
        lasts_s: from the rank's begin to the instruction's.
        time_s: of the instructions before.
        cost_j: of the instructions before.
        unknown: of these, those that cannot have the setting.
        stay_s: least time between two settings, by the earlier and the later one.
        switch_j: what a switch costs, likewise.
        stays: as they are.
    """

    begin: int
    end: int
    lasts_s: list[list[float]]
    time_s: list[list[float]]
    cost_j: list[list[float]]
    unknown: list[list[int]]
    stay_s: list[list[float]]
    switch_j: list[list[float]]
    stays: _Stays = field(init=False)

    @classmethod
    def of(cls, problem: LastingProblem, begin: int, end: int, setting: IndexArray) -> _Rank:
        """A rank at some settings."""
        here = slice(begin, end)
        known = np.isfinite(problem.time_s[here])
        rank = cls(
            begin,
            end,
            _before(problem.lasts_s[here]).tolist(),
            _before(np.where(known, problem.time_s[here], 0.0)).tolist(),
            _before(np.where(known, problem.cost_j[here], 0.0)).tolist(),
            _before(~known).tolist(),
            np.where(problem.slow, problem.slow_stay_s, problem.stay_s).tolist(),
            problem.switch_j.tolist(),
        )
        own = setting[here]
        bounds = [0, *(np.flatnonzero(np.diff(own)) + 1).tolist(), end - begin]
        own = own[bounds[:-1]].tolist()
        rank.stays = _Stays(bounds, own, rank._cost_j(bounds, own))
        return rank

    def proposed(self, draws: list[float], room: _Room, most_j: float, late_w: float) -> _Stays | None:
        """Other stays, by some numbers between 0 and 1; ``None`` where they are not there, do not last, or cost too much.

        Most cost too much, as their own instructions already end too late: these are neither listed nor timed.

        Args:
            draws: the numbers.
            room: what the stays of now leave.
            most_j: that others may cost more than these, being late included.
            late_w: what being late costs.
        """
        bounds, own = self.stays.bounds, self.stays.own
        kind, one, two, three = int(3.0 * draws[1]), draws[2], draws[3], draws[4]
        if kind == 1 and len(own) == 1:
            kind = 0
        if kind == 1:
            at = 1 + int(one * (len(own) - 1))
            by = 1 + int(two * _SHIFT)
            if three < 0.5:
                first, end, to = max(bounds[at] - by, bounds[at - 1]), bounds[at], own[at]
            else:
                first, end, to = bounds[at], min(bounds[at] + by, bounds[at + 1]), own[at - 1]
        elif kind == 2:
            first = int(one * bounds[-1])
            to = own[bisect_right(bounds, first) - 1] + _JUMPS[int(two * len(_JUMPS))]
            if not 0 <= to < len(self.lasts_s):
                return None
            lasts_s = self.lasts_s[to]
            end = bisect_left(lasts_s, lasts_s[first] + self.stay_s[to][to] * (1.0 - math.log(1.0 - three)))
            end = min(end, bounds[-1])
        else:
            at = int(one * len(own))
            first, end, to = bounds[at], bounds[at + 1], own[at] + _JUMPS[int(two * len(_JUMPS))]
        spans = [(first, end)]
        if kind == 0 and len(own) > 1 and own[0] == own[-1] and at in {0, len(own) - 1}:  # one stay over the end
            spans = [(0, bounds[1]), (bounds[-2], bounds[-1])]
        if not 0 <= to < len(self.lasts_s) or any(self.unknown[to][end] > self.unknown[to][first] for first, end in spans):
            return None
        if self._least_j(spans, to, room, late_w) >= most_j:
            return None
        for first, end in spans:
            bounds, own = _changed(bounds, own, first, end, to)
        return _Stays(bounds, own, self._cost_j(bounds, own)) if self._last(bounds, own) else None

    def _least_j(self, spans: list[tuple[int, int]], to: int, room: _Room, late_w: float) -> float:
        """What some instructions at another setting cost more at least, by when they themselves end at the earliest."""
        more_j, late_s = -room.switches_j, 0.0
        for first, end in spans:
            begin, until = self.begin + first, self.begin + end
            more_j += self.cost_j[to][end] - self.cost_j[to][first] - room.cost_j[until] + room.cost_j[begin]
            ends_s = room.begin_s[begin] + self.time_s[to][end] - self.time_s[to][first]
            late_s = max(late_s, ends_s - room.sooner_s - room.latest_s[until - 1])
        return more_j + late_w * late_s

    def _last(self, bounds: list[int], own: list[int]) -> bool:
        """Whether each stay lasts until the next switch, in a loop."""
        if len(own) == 1:
            return True
        lasts_s = [
            self.lasts_s[each][end] - self.lasts_s[each][begin]
            for each, begin, end in zip(own, bounds, bounds[1:], strict=False)
        ]
        after = [*own[1:], own[0]]
        if own[0] == own[-1]:  # one stay over the end
            lasts_s[0] += lasts_s.pop()
            own, after = own[:-1], after[:-1]
        return all(
            lasts >= _ABOUT * self.stay_s[each][later] for lasts, each, later in zip(lasts_s, own, after, strict=True)
        )

    def _cost_j(self, bounds: list[int], own: list[int]) -> float:
        cost = sum(
            self.cost_j[each][end] - self.cost_j[each][begin]
            for each, begin, end in zip(own, bounds, bounds[1:], strict=False)
        )
        return cost + sum(self.switch_j[one][two] for one, two in pairwise(own))


def _changed(bounds: list[int], own: list[int], first: int, end: int, to: int) -> tuple[list[int], list[int]]:
    """The stays with some instructions at another setting."""
    left, right = bisect_left(bounds, first), bisect_left(bounds, end)  # stays that begin before the change, and after
    begins, settings = [*bounds[:left], first], [*own[:left], to]
    if bounds[right] != end:
        begins, settings = [*begins, end], [*settings, own[right - 1]]
    begins, settings = [*begins, *bounds[right:-1]], [*settings, *own[right:]]
    kept = [0, *(place for place in range(1, len(settings)) if settings[place] != settings[place - 1])]
    return [*(begins[place] for place in kept), bounds[-1]], [settings[place] for place in kept]


def _before(values: FloatArray) -> FloatArray:
    """Sums of what comes before each call, and of all, by setting; shape (settings, calls + 1)."""
    return np.concatenate([np.zeros((1, values.shape[1]), dtype=values.dtype), np.cumsum(values, axis=0)]).T
