"""Watts that GPUs share: each gets a power limit, so that all jobs together lose as little time as possible.

    draw ──▶ what each could use ──▶ divide: least time lost a watt first ──▶ limits: lowered at once, raised afterwards

A card keeps its power limit by itself, whatever runs next; a ceiling of its clock would bound no watts. So the limits never
add up to more than the budget, and a GPU whose limit cannot be set counts at the most that it may draw.

A job that has told its frontier gives watts where these cost it the least of its time. A job of which nothing is known keeps
its fair share: what it could use, or as much as anybody else has who could use more. What others say of themselves takes
nothing from it. It gets more than that as if it lost as much of its speed as of its watts; products on simulated cards lose
at most that until half of their watts are gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from itertools import pairwise
from math import inf
from operator import mul

Frontier = tuple[tuple[float, float], ...]
"""Of a job: watts of each of its GPUs, ascending, and the time of a piece of its work at these, relative to any unit."""

Gpus = tuple[str, ...]
"""The GPUs of one job."""
SENSOR_ERROR = 0.05
"""Relative error of a GPU's power reading that is no disobedience: measured gains are 0.92 to 1.12, most within 5 %."""
_DISOBEYS = 5  # readings beyond that, one after another: a limit takes about a second to be kept
_NEAR_LEAST = 1.25
"""Of the lowest limit, up to which a GPU is not disobedient: at its lowest clock it may draw more than the lowest limit."""
_TRUSTED_S = 60.0  # of readings within the limit, until a GPU that disobeyed is believed again
_LIMITED = 0.97  # of the limit, from which on a GPU could use more: limits are kept 1 to 2 % below
_ROOM = 1.05  # above the highest reading: less than that would find the GPU limited again
_REMEMBERED_S = 60.0  # for which the highest reading counts, and between two divisions that only save watts
_SMALL = 0.02  # of a limit: changes that are not worth making
_STEPS = 16  # of an assumed frontier
_ROUNDS = 60  # of a bisection, to rounding


@dataclass(frozen=True, slots=True)
class Seen:
    """A GPU at a moment.

    Attributes:
        limits_w: lowest and highest power limit that it may be given.
        limit_w: the limit in force.
        drawn_w: its power; ``None`` where it cannot be read.
        settable: whether its limit can be set.
        frontier: of its job; empty where it told none.
        user: of the job, if it told one: GPUs of the same user and frontier are of one job, whose GPUs wait for each other.
    """

    limits_w: tuple[float, float]
    limit_w: float
    drawn_w: float | None = None
    settable: bool = True
    frontier: Frontier = ()
    user: object = None

    @property
    def least_w(self) -> float:
        """The least that it can be limited to."""
        return self.limits_w[0] if self.settable else self.limit_w


@dataclass(frozen=True, slots=True)
class Claim:
    """What a job's GPUs can use.

    Attributes:
        gpus: how many they are.
        low_w: that each has in any case.
        need_w: more than that is of no use to it.
        high_w: the highest limit of each.
        frontier: of the job; empty where it told none.
    """

    gpus: int
    low_w: float
    need_w: float
    high_w: float
    frontier: Frontier = ()

    def frontier_from(self, low_w: float) -> Frontier:
        """The frontier between a limit and what is needed, its times relative to the least of the job."""
        known = self.frontier or ((self.need_w, 1.0),)
        span = self.need_w / low_w
        watts = {low_w * span ** (step / _STEPS) for step in range(_STEPS)} | {self.need_w}
        watts |= {point[0] for point in known if low_w < point[0] < self.need_w}
        return tuple((each_w, _time_at(known, each_w) / known[-1][1]) for each_w in sorted(watts))


@dataclass(slots=True)
class _Known:
    """What is remembered of a GPU.

    Attributes:
        wants_w: by time, what it could use.
        above: readings beyond its limit, one after another.
        distrusted_until_s: until when it counts at the most that it may draw.
        least_w: limits below that were not kept, by a GPU at its lowest clock.
        most_w: its highest reading since it disobeyed.
        asked_w: the limit that was asked for last, until it is in force.
        pending_w: the highest that was asked for since the limit in force was.
    """

    wants_w: list[tuple[float, float]] = field(default_factory=list)
    above: int = 0
    distrusted_until_s: float = -inf
    least_w: float = 0.0
    most_w: float = 0.0
    asked_w: float | None = None
    pending_w: float = 0.0


class Budget:
    """A number of watts that GPUs share.

    Args:
        budget_w: for all of them together.

    Attributes:
        budget_w: likewise; it may change.
        targets_w: by GPU, the limit that it is to have.
        fair_w: by GPU, its fair share, whatever jobs have told.
        short_w: by how much the GPUs may draw more than the budget, whatever is set.
    """

    def __init__(self, budget_w: float) -> None:
        self.budget_w, self.short_w = budget_w, 0.0
        self.targets_w, self.fair_w = dict[str, float](), dict[str, float]()
        self._known = dict[str, _Known]()
        self._divided: tuple[float, dict[Gpus, Claim], object] | None = None  # when, by which claims, and under what else

    def turn(self, now_s: float, seen: Mapping[str, Seen]) -> dict[str, float]:
        """Look at all GPUs; call it each second.

        Args:
            now_s: the time.
            seen: by GPU, what was read; of one that does not answer, what was read last.

        Returns:
            By GPU, limits to set now: those to be lowered, and raised ones as far as the others have been lowered.
        """
        self._known = {gpu: self._known.get(gpu, _Known()) for gpu in seen}
        for gpu, each in seen.items():
            _learn(self._known[gpu], now_s, each)
        fixed_w = {
            gpu: max(each.limits_w[1], self._known[gpu].most_w) if each.settable else each.limit_w
            for gpu, each in seen.items()
            if not each.settable or self.disobeys(gpu, now_s)
        }
        claims = self._claims({gpu: each for gpu, each in seen.items() if gpu not in fixed_w})
        if self._is_due(now_s, claims, fixed_w):
            self._divide(claims, self.budget_w - sum(fixed_w.values()))
            self._divided = now_s, claims, (self.budget_w, {*fixed_w})
            for gpu in fixed_w:
                self.targets_w[gpu] = self.fair_w[gpu] = seen[gpu].limits_w[0]
        return self._moves(seen, fixed_w)

    def disobeys(self, gpu: str, now_s: float) -> bool:
        """Whether a GPU has drawn more than its limit."""
        return gpu in self._known and self._known[gpu].distrusted_until_s > now_s

    def _claims(self, seen: Mapping[str, Seen]) -> dict[Gpus, Claim]:
        """What the GPUs of each job can use: each as much as any of them, so that none waits for another."""
        jobs = dict[object, list[str]]()
        for gpu, each in seen.items():
            jobs.setdefault((each.frontier, each.user) if each.frontier else gpu, []).append(gpu)
        claims = dict[Gpus, Claim]()
        for gpus in jobs.values():
            high_w = min(seen[gpu].limits_w[1] for gpu in gpus)
            low_w = min(max(max(seen[gpu].limits_w[0], self._known[gpu].least_w) for gpu in gpus), high_w)
            need_w = min(max(self._known[gpu].wants_w[0][1] for gpu in gpus), high_w)
            claims[tuple(gpus)] = Claim(len(gpus), low_w, max(need_w, low_w), high_w, seen[gpus[0]].frontier)
        return claims

    def _is_due(self, now_s: float, claims: Mapping[Gpus, Claim], fixed_w: Mapping[str, float]) -> bool:
        """Whether to divide anew: at once where a GPU could use more, or who shares has changed; else now and then."""
        if self._divided is None:
            return True
        at_s, before, under = self._divided
        if under != (self.budget_w, {*fixed_w}) or before.keys() != claims.keys():
            return True
        for gpus, claim in claims.items():
            known_w = max(before[gpus].need_w, self.targets_w[gpus[0]])
            told, known_low = claim.frontier != before[gpus].frontier, claim.low_w == before[gpus].low_w
            if told or not known_low or claim.need_w > (1.0 + _SMALL) * known_w:
                return True
        return now_s - at_s >= _REMEMBERED_S and claims != before

    def _divide(self, claims: Mapping[Gpus, Claim], budget_w: float) -> None:
        listed = [*claims.values()]
        limits_w, fair_w = divide(budget_w, listed), fair_shares(budget_w, listed)
        self.fair_w = {gpu: share_w for gpus, share_w in zip(claims, fair_w, strict=True) for gpu in gpus}
        new_w = {gpu: limit_w for gpus, limit_w in zip(claims, limits_w, strict=True) for gpu in gpus}
        self.short_w = max(sum(claim.gpus * claim.low_w for claim in listed) - budget_w, 0.0)
        old_w = {gpu: self.targets_w.get(gpu, inf) for gpu in new_w}
        small = all(abs(new_w[gpu] - old_w[gpu]) <= _SMALL * new_w[gpu] for gpu in new_w)
        self.targets_w = old_w if small and sum(old_w.values()) <= budget_w else new_w

    def _moves(self, seen: Mapping[str, Seen], fixed_w: Mapping[str, float]) -> dict[str, float]:
        """Limits to set now, so that those in force, and those that may come yet, never add up to more than the budget."""
        moves, counted_w = dict[str, float](), dict(fixed_w)
        for gpu, each in seen.items():
            known, target_w = self._known[gpu], self.targets_w[gpu]
            if known.asked_w == each.limit_w:
                known.asked_w, known.pending_w = None, 0.0
            counted_w.setdefault(gpu, max(each.limit_w, known.pending_w))
            if each.settable and target_w < max(each.limit_w, known.pending_w):
                moves[gpu] = target_w
        spare_w = self.budget_w - sum(counted_w.values())
        for gpu in sorted(seen, key=lambda gpu: counted_w[gpu] - self.targets_w[gpu]):
            more_w = max(min(self.targets_w[gpu] - counted_w[gpu], spare_w), 0.0)
            failed = self._known[gpu].asked_w is not None
            if seen[gpu].settable and gpu not in moves and (more_w > _SMALL * counted_w[gpu] or failed):
                moves[gpu] = counted_w[gpu] + more_w
                spare_w -= more_w
        for gpu, limit_w in moves.items():
            known = self._known[gpu]
            known.asked_w, known.pending_w = limit_w, max(limit_w, known.pending_w)
        return moves


def _learn(known: _Known, now_s: float, seen: Seen) -> None:
    """Remember what a GPU could use, and whether it obeys."""
    (low_w, high_w), drawn_w = seen.limits_w, seen.drawn_w
    wants_w = high_w
    if drawn_w is not None:
        if drawn_w < _LIMITED * seen.limit_w:
            wants_w = min(max(_ROOM * drawn_w, low_w), high_w)
        known.above = known.above + 1 if drawn_w > (1.0 + SENSOR_ERROR) * seen.limit_w else 0
        if known.above >= _DISOBEYS and drawn_w <= _NEAR_LEAST * low_w:
            known.least_w = min(max(known.least_w, _ROOM * drawn_w), high_w)
        elif known.above >= _DISOBEYS:
            known.distrusted_until_s = now_s + _TRUSTED_S
        known.most_w = max(known.most_w, drawn_w) if known.distrusted_until_s > now_s else drawn_w
    known.wants_w = [want for want in known.wants_w if now_s - want[0] < _REMEMBERED_S and want[1] > wants_w]
    known.wants_w.append((now_s, wants_w))


def divide(budget_w: float, claims: Sequence[Claim]) -> list[float]:
    """Divide watts so that the relative times that all GPUs lose add up to the least.

    Each GPU starts from the least that it may have, or from its fair share where nothing is known of its job. Then every
    watt goes where it saves the most time, along frontiers that are convex: no division of the same watts loses less of
    what these say. What nobody needs is spread as evenly as possible.

    Args:
        budget_w: to divide.
        claims: of the jobs.

    Returns:
        The limit of each GPU of each job; where the budget is below the least of all, that.
    """
    counts = [claim.gpus for claim in claims]
    limits_w = [
        claim.low_w if claim.frontier else fair_w
        for claim, fair_w in zip(claims, fair_shares(budget_w, claims), strict=True)
    ]
    spare_w = budget_w - sum(map(mul, counts, limits_w))
    frontiers = [claim.frontier_from(limit_w) for claim, limit_w in zip(claims, limits_w, strict=True)]
    edges = [_edge(frontier, job, 0) for job, frontier in enumerate(frontiers) if len(frontier) > 1]
    heapify(edges)
    while edges and spare_w > 0.0:
        *_, job, place = edges[0]
        given_w = min(frontiers[job][place + 1][0] - limits_w[job], spare_w / counts[job])
        limits_w[job] += given_w
        spare_w -= given_w * counts[job]
        if place + 2 < len(frontiers[job]):
            heapreplace(edges, _edge(frontiers[job], job, place + 1))
        else:
            heappop(edges)
    bounds = [(limit_w, claim.high_w) for claim, limit_w in zip(claims, limits_w, strict=True)]
    return filled(budget_w, bounds, counts)


def fair_shares(budget_w: float, claims: Sequence[Claim]) -> list[float]:
    """Of each GPU of each job, what it could use, or as much as any other has that could use more (max-min fairness)."""
    return filled(budget_w, [(claim.low_w, claim.need_w) for claim in claims], [claim.gpus for claim in claims])


def filled(total_w: float, bounds: Sequence[tuple[float, float]], counts: Sequence[int]) -> list[float]:
    """Values within bounds that add up to a total, or as near below it as the bounds allow, and as equal as they can be.

    Args:
        total_w: the sum, each value as often as it counts.
        bounds: lowest and highest of each value.
        counts: how often each counts.
    """
    least_w, most_w = 0.0, max((high for _, high in bounds), default=0.0)
    for level_w in (most_w, *(None,) * _ROUNDS):
        at_w = 0.5 * (least_w + most_w) if level_w is None else level_w
        if sum(count * min(max(at_w, low), high) for count, (low, high) in zip(counts, bounds, strict=True)) <= total_w:
            least_w = at_w
        else:
            most_w = at_w
    return [min(max(least_w, low), high) for low, high in bounds]


def _time_at(known: Frontier, watts: float) -> float:
    """Time at a number of watts; below those that are known, it grows as they fall, or faster if it did so before."""
    (first_w, first_s), *_ = known
    if watts < first_w:
        steepest = (first_s - known[1][1]) / (known[1][0] - first_w) * first_w / first_s if len(known) > 1 else 1.0
        return float(first_s * (first_w / watts) ** max(steepest, 1.0))
    for (low_w, slow_s), (high_w, fast_s) in pairwise(known):
        if watts <= high_w:
            return slow_s + (fast_s - slow_s) * (watts - low_w) / (high_w - low_w)
    return known[-1][1]


def _edge(frontier: Frontier, job: int, place: int) -> tuple[float, float, int, int]:
    """What the watts between two points of a frontier save, as time a watt, negated; of equal ones the lower comes first."""
    (low_w, slow), (high_w, fast) = frontier[place], frontier[place + 1]
    return -(slow - fast) / (high_w - low_w), low_w, job, place
