"""Decides which plan each pipeline takes while others are slow: is told, and tells. Knows no socket and no clock of its own.

    ranks ── times of iterations, throttling ──▶ ┌────────────┐ ── rung, from which iteration on ──▶ ranks
    people ── "replica 1 is 20 % slower" ──────▶ │ Stragglers │ ── status ──▶ anyone
                                                 └────────────┘

All ranks of all pipelines change at the begin of the same iteration, the one after the next. What they are told holds for a
number of iterations and is renewed in time: ranks that hear nothing any more go back to their own plan, all at once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from wastenot.control.level import Level
from wastenot.core.errors import BadInputError
from wastenot.pipelines.plan.straggler import Rungs
from wastenot.pipelines.run.straggler_wire import SCHEMA

LEAD = 2  # iterations from the latest that has ended to the first at another rung
HOLD = 200  # iterations that an instruction holds
MARGIN = 0.005  # of the time, at least
_ERRORS = 2.0  # of noise, kept free as well
_MOST_MARGIN = 0.05
_DOUBTED = 20  # iterations after which what was told by hand and is not measured is dropped
_DIFFERS = 0.05
_EVENTS = 200
_BELIEVED = 5  # iterations after a GPU says that it is throttled, for which one slow iteration is enough
_MOST_SLOWER = 100.0
_MOST_ITERATIONS = 10**12  # of a training; who reports more counts wrong


@dataclass(frozen=True, slots=True)
class Order:
    """What ranks are told.

    Attributes:
        rung: to run.
        begin: the iteration from which on.
        until: the iteration before which it ends, unless it is renewed.
        compare: the iteration from which on all ranks of all pipelines compare with the default clocks, where one of them
            suspects that the slowdown limit is not kept.
    """

    rung: int
    begin: int
    until: int
    compare: int = -1


@dataclass(slots=True)
class _Told:
    """What somebody said of a replica."""

    factor: float
    until_s: float
    doubted: int = 0


@dataclass(slots=True)
class _Replica:
    """A pipeline."""

    level: Level = field(default_factory=Level)
    told: _Told | None = None
    ranks: set[int] = field(default_factory=set)
    reports: dict[int, dict[int, float]] = field(default_factory=dict)  # logarithms by iteration and rank
    throttled: dict[int, str] = field(default_factory=dict)  # why, by rank
    throttled_from: int = 0  # iteration
    rung: int = 0

    @property
    def factor(self) -> float:
        return self.level.factor if self.told is None else self.told.factor


class Stragglers:
    """The pipelines of a training, and what each runs.

    Args:
        rungs: of the plan that all of them run.
        replicas: how many there are.
        ranks: of each.

    Attributes:
        events: what happened, oldest first.

    Raises:
        BadInputError: there are no replicas.
    """

    def __init__(self, rungs: Rungs, replicas: int, ranks: int) -> None:
        if replicas < 1:
            raise BadInputError(f"`replicas` {replicas}: must be at least 1")
        self._rungs, self._ranks = rungs, ranks
        self._replicas = [_Replica(rung=rungs.own) for _ in range(replicas)]
        self._iteration = -1  # the latest that has ended
        self._until_s = rungs.time_s[rungs.own]
        self._orders = [Order(rungs.own, 0, HOLD)] * replicas
        self.events: deque[dict[str, Any]] = deque(maxlen=_EVENTS)

    @property
    def orders(self) -> Sequence[Order]:
        """What each replica's ranks are to run, as was told last."""
        return tuple(self._orders)

    # ---- what is said ----------------------------------------------------------------------------------------

    def join(self, replica: int, rank: int, now_s: float) -> Order:
        """A rank is there; returns what it is to run.

        Raises:
            BadInputError: there is no such replica or rank, or it is already connected.
        """
        one = self._of(replica)
        if not 0 <= rank < self._ranks:
            raise BadInputError(f"`rank` {rank}: the plan has ranks 0 to {self._ranks - 1}")
        if rank in one.ranks:
            raise BadInputError(f"`rank` {rank}: of replica {replica} is already connected")
        one.ranks.add(rank)
        if not any(each.ranks - {rank} for each in self._replicas):
            self._tell(now_s, "joined", replica, "the first rank connected")
        return self._orders[replica]

    def leave(self, replica: int, rank: int, now_s: float) -> dict[int, Order]:
        """A rank is gone. A job that has lost one is not held up by what was measured of it before."""
        one = self._of(replica)
        one.ranks.discard(rank)
        one.reports.clear()
        one.level = Level()
        one.throttled.clear()
        self._tell(now_s, "left", replica, f"rank {rank} is gone; its replica is measured again from scratch")
        if not any(each.ranks for each in self._replicas):  # the job has ended, or begins again
            self._iteration = -1
            self._orders = [Order(self._rungs.own, 0, HOLD)] * len(self._replicas)
            for each in self._replicas:
                each.rung = self._rungs.own
        return self._decide(now_s)

    def report(
        self,
        replica: int,
        rank: int,
        iteration: int,
        factor: float | None,
        now_s: float,
        throttled: str | None = None,
        *,
        suspects: bool = False,
    ) -> dict[int, Order]:
        """An iteration has ended on a rank.

        Args:
            replica: of the rank.
            rank: of the pipeline.
            iteration: counted alike on all ranks.
            factor: its time over what is planned for the rung that it ran; ``None`` at the default clocks.
            now_s: the time.
            throttled: why a GPU says that it is throttled: ``thermal``, ``power``.
            suspects: whether iterations seem slower than allowed, and a look at the default clocks should tell.

        Returns:
            Orders for the ranks of replicas, by replica, where there are new ones.
        """
        one = self._of(replica)
        known = factor is None or 1.0 / _MOST_SLOWER < factor < _MOST_SLOWER
        if not (known and 0 <= iteration < _MOST_ITERATIONS):
            return {}
        changed = iteration < self._iteration - HOLD  # begun anew, as from a checkpoint, or a rank counted wrong before
        if changed:
            self._iteration = -1
            self._orders = [replace(each, compare=-1) for each in self._orders]
            for each in self._replicas:
                each.reports.clear()
        self._iteration = max(self._iteration, iteration)
        if throttled is None:
            one.throttled.pop(rank, None)
        elif one.throttled.get(rank) != throttled:
            self._tell(now_s, "throttled", replica, f"rank {rank} reports that its GPU is throttled: {throttled}")
            one.throttled[rank], one.throttled_from = throttled, iteration
        of_iteration: dict[int, float] = {}
        if factor is not None:
            of_iteration = one.reports.setdefault(iteration, {})
            of_iteration[rank] = math.log(factor)
        if len(of_iteration) >= max(len(one.ranks), 1):
            del one.reports[iteration]
            for old in [each for each in one.reports if each < iteration]:
                del one.reports[old]
            mean = math.exp(math.fsum(of_iteration.values()) / len(of_iteration))
            learned = one.level.learn(mean, throttled=bool(one.throttled) and iteration < one.throttled_from + _BELIEVED)
            learned |= self._doubt(replica, one, mean, now_s)
            changed |= learned
            if learned:
                self._tell(now_s, "measured", replica, f"takes {one.level.factor:.3f} times as long as planned")
        changed |= self._expire(now_s)
        new = self._decide(now_s) if changed else self._renewed()
        return self._compared(replica, now_s) if suspects and self._iteration > self._orders[0].compare else new

    def tell(self, replica: int, slower: float, now_s: float, for_s: float = math.inf) -> dict[int, Order]:
        """Somebody says that a replica is, or will be at once, slower than planned.

        Args:
            replica: which.
            slower: by this fraction of the time.
            now_s: the time.
            for_s: for how long; by default until it is cleared.

        Raises:
            BadInputError: there is no such replica, or the number is out of range.
        """
        one = self._of(replica)
        if not 0.0 <= slower < _MOST_SLOWER:
            raise BadInputError(f"`tell` {slower:g}: must be from 0 to {_MOST_SLOWER:.0f}, as a fraction of the time")
        if not for_s > 0.0:
            raise BadInputError(f"`for_s` {for_s:g}: must be above 0")
        one.told = _Told(1.0 + slower, now_s + for_s)
        self._tell(now_s, "told", replica, f"is {100.0 * slower:.1f} % slower than planned")
        return self._decide(now_s)

    def clear(self, replica: int | None, now_s: float) -> dict[int, Order]:
        """What was said of a replica, or of all, holds no more: what is measured counts.

        Raises:
            BadInputError: there is no such replica.
        """
        for index in range(len(self._replicas)) if replica is None else (replica,):
            one = self._of(index)
            if one.told is not None:
                one.told = None
                self._tell(now_s, "cleared", index, "what it was told is forgotten")
        return self._decide(now_s)

    def act(self, now_s: float) -> dict[int, Order]:
        """Let what was told for a time end."""
        return self._decide(now_s) if self._expire(now_s) else {}

    def due_s(self) -> float:
        """When to act next; infinite for never."""
        return min((each.told.until_s for each in self._replicas if each.told is not None), default=math.inf)

    # ---- what is known ---------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """What is known now, as JSON values."""
        rungs, plan = self._rungs, self._rungs.plan
        found = []
        for one, order in zip(self._replicas, self._orders, strict=True):
            saving = rungs.saving(one.rung, self._until_s)
            found.append({
                "ranks": len(one.ranks), "of": self._ranks, "times_as_long": one.factor,
                "measured": one.level.factor if one.level.known else None,
                "told": None if one.told is None else one.told.factor,
                "noise": one.level.noise if one.level.known else None, "throttled": sorted(set(one.throttled.values())),
                "rung": one.rung, "from_iteration": order.begin, "time_s": one.factor * rungs.time_s[one.rung],
                "energy_j": saving.energy_j, "waiting_at_default_j": saving.default_j, "waiting_j": saving.own_j,
            })  # fmt: skip
        return {
            "schema": SCHEMA, "plan": plan.name, "digest": plan.digest, "origin": plan.origin, "rungs": len(rungs),
            "own_rung": rungs.own, "iteration": self._iteration if self._iteration >= 0 else None,
            "until_s": self._until_s, "replicas": found, "events": list(self.events),
        }  # fmt: skip

    # ---- inside ----------------------------------------------------------------------------------------------

    def _of(self, replica: int) -> _Replica:
        if not 0 <= replica < len(self._replicas):
            raise BadInputError(f"`replica` {replica}: replicas are 0 to {len(self._replicas) - 1}")
        return self._replicas[replica]

    def _doubt(self, replica: int, one: _Replica, factor: float, now_s: float) -> bool:
        """Drop what was told where iterations are clearly faster, as the others would hold everybody up."""
        if one.told is None:
            return False
        one.told.doubted = one.told.doubted + 1 if factor * (1.0 + _DIFFERS) < one.told.factor else 0
        if one.told.doubted < _DOUBTED:
            return False
        said = one.told.factor - 1.0
        one.told = None
        self._tell(now_s, "dropped", replica, f"told to be {said:.1%} slower, and was not in {_DOUBTED} iterations")
        return True

    def _expire(self, now_s: float) -> bool:
        ended = [each for each in enumerate(self._replicas) if each[1].told is not None and each[1].told.until_s <= now_s]
        for index, one in ended:
            one.told = None
            self._tell(now_s, "ended", index, "the time it was told for is over")
        return bool(ended)

    def _margin(self) -> float:
        noise = max((each.level.noise for each in self._replicas if each.level.known), default=0.0)
        return min(MARGIN + _ERRORS * noise, _MOST_MARGIN)

    def _decide(self, now_s: float) -> dict[int, Order]:
        """Look the rungs up; new orders by replica."""
        # While it is not known how fast one of them is, nobody is kept slow by what was measured of others.
        all_known = all(each.level.known or each.told is not None for each in self._replicas if each.ranks)
        factors = [each.factor if all_known or each.told is not None else 1.0 for each in self._replicas]
        answer = self._rungs.answer(factors, self._margin())
        self._until_s = answer.until_s
        begin = self._iteration + LEAD if self._iteration >= 0 else 0
        new: dict[int, Order] = {}
        for index, (one, rung) in enumerate(zip(self._replicas, answer.rungs, strict=True)):
            if rung != one.rung or self._orders[index].begin > begin:  # of iterations that are far away again
                one.rung = rung
                new[index] = self._orders[index] = replace(self._orders[index], rung=rung, begin=begin, until=begin + HOLD)
        if new:
            slow = max(range(len(factors)), key=factors.__getitem__)
            told = f"plans {', '.join(str(each.rung + 1) for each in self._replicas)} from iteration {begin} on"
            self._tell(now_s, "ordered", slow, f"{told}: iteration deadline: {answer.until_s:.4g} s")
        return new

    def _renewed(self) -> dict[int, Order]:
        """Orders that would end soon, for longer."""
        new: dict[int, Order] = {}
        for index, order in enumerate(self._orders):
            if self._iteration >= order.until - HOLD // 2:
                new[index] = self._orders[index] = replace(order, until=self._iteration + HOLD)
        return new

    def _compared(self, replica: int, now_s: float) -> dict[int, Order]:
        """Have all compare with the default clocks; new orders by replica."""
        begin = self._iteration + LEAD
        self._orders = [replace(each, compare=begin) for each in self._orders]
        self._tell(now_s, "suspected", replica, f"iterations seem too slow: all compare from iteration {begin} on")
        return dict(enumerate(self._orders))

    def _tell(self, now_s: float, kind: str, replica: int, text: str) -> None:
        event = {"at_s": now_s, "iteration": self._iteration if self._iteration >= 0 else None}
        self.events.append({**event, "kind": kind, "replica": replica, "text": text})
