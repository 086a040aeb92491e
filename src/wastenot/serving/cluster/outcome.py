"""Policies beside each other on one traffic, over seeds: energy with what became of the deadlines beside it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from wastenot.planning.objective_kinds import CLUSTERS, ClusterObjectiveKind
from wastenot.serving.cluster.classes import COUNT
from wastenot.serving.cluster.policies import POLICIES
from wastenot.serving.cluster.run_record import RunRecord
from wastenot.serving.model.band import Varied

WITH_ROOM = "best-static-with-room"
"""The plan that is preferred among those that never change."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A number over seeds.

    Attributes:
        mean: of all seeds.
        least: of them.
        most: of them.
    """

    mean: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """A policy on one traffic.

    Attributes:
        records: of its runs, by seed.
        saved: of what the first policy takes of what is to be least, seed by seed.
    """

    records: tuple[RunRecord, ...]
    saved: Spread

    @property
    def policy(self) -> str:
        """By the name that scenarios use."""
        return self.records[0].policy

    @property
    def failed(self) -> bool:
        """Whether a class missed its share with any seed."""
        return any(each.failed for each in self.records)

    @property
    def hindsight(self) -> bool:
        """Whether it knows the requests that it is judged on."""
        return POLICIES[self.policy].hindsight

    @property
    def unanswered(self) -> int:
        """Requests that were given up, with all seeds."""
        return sum(each.unanswered for each in self.records)

    @property
    def attainment(self) -> float:
        """Least share of all requests that kept their deadlines, over seeds."""
        return self.over(lambda run: run.attainment).least

    @property
    def worst_class(self) -> float:
        """The same of the class with the least."""
        return self.over(lambda run: run.worst_class).least

    def over(self, value: Callable[[RunRecord], float]) -> Spread:
        """Something of each run, over seeds."""
        return _spread([value(each) for each in self.records])

    def by_class(self) -> tuple[float | None, ...]:
        """Least attainment of each class over seeds; ``None`` where none has such requests."""
        return tuple(_least(each.by_class[number] for each in self.records) for number in range(COUNT))

    def ttft_p99_s(self) -> tuple[float | None, ...]:
        """Mean over seeds for each kind of prompt; ``None`` where there are none."""
        kinds = range(len(self.records[0].ttft_p99_s))
        return tuple(_mean(each.ttft_p99_s[kind] for each in self.records) for kind in kinds)

    def actions(self) -> dict[str, float]:
        """Mean number of each kind over seeds."""
        total = Counter[str]()
        for each in self.records:
            total.update(each.actions)
        return {name: count / len(self.records) for name, count in sorted(total.items())}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Policies on one traffic.

    Attributes:
        traffic: label.
        outcomes: in the order of the scenario; savings are against the first.
        objective: what is to be least.
        with_assumed: the same with clocks that were neither measured nor fitted, where those were asked for.
        stock: the same with engines that serve first come, first served, where these prefill by deadline.
        varied: what the headline saves with other assumptions, where that was asked for.
    """

    traffic: str
    outcomes: tuple[Outcome, ...]
    objective: ClusterObjectiveKind = "energy"
    with_assumed: Comparison | None = None
    stock: Comparison | None = None
    varied: tuple[Varied, ...] = ()

    def outcome(self, policy: str) -> Outcome:
        """That of a policy, by its name."""
        return next(each for each in self.outcomes if each.policy == policy)

    @property
    def best(self) -> Outcome | None:
        """The one that takes least of those in which no class missed its share; ``None`` where there is none.

        Those that know the requests beforehand do not count: they cannot be had.
        """
        good = [each for each in self.outcomes if not (each.failed or each.hindsight)]
        return min(good, key=lambda each: each.over(_taken(self.objective)).mean, default=None)

    @property
    def policy_to_add(self) -> Outcome | None:
        """The policy that saves most and meets the deadlines; ``None`` where that is the one that savings are against."""
        return None if self.best is self.outcomes[0] else self.best

    @property
    def fixed_plan(self) -> Outcome | None:
        """The plan that saves most of those that never change: it needs no control. ``None`` where none of them saves.

        Such plans know the requests that they are judged on, which is to be said beside what they save.
        """
        good = [each for each in self.outcomes[1:] if each.hindsight and not each.failed and each.saved.mean > 0.0]
        return max(good, key=lambda each: (each.policy == WITH_ROOM, each.saved.mean), default=None)

    @property
    def headline(self) -> Outcome | None:
        """Whose saving stands first; ``None`` where nothing saves."""
        return self.fixed_plan or self.policy_to_add

    @property
    def bound_per_token_j(self) -> float | None:
        """No policy needs less energy for a token of these answers; ``None`` where none has answered all requests."""
        whole = next((each.records for each in self.outcomes if not each.unanswered), None)
        return None if whole is None else sum(each.bound_j / each.output_tokens for each in whole) / len(whole)


def compared(records: Sequence[RunRecord], objective: ClusterObjectiveKind = "energy") -> tuple[Comparison, ...]:
    """Records by traffic and policy, in their order.

    Args:
        records: of runs.
        objective: what is to be least; all records have it.
    """
    found: dict[str, dict[str, list[RunRecord]]] = {}
    for each in records:
        found.setdefault(each.traffic, {}).setdefault(each.policy, []).append(each)
    return tuple(_comparison(traffic, list(policies.values()), objective) for traffic, policies in found.items())


def _comparison(traffic: str, by_policy: Sequence[Sequence[RunRecord]], objective: ClusterObjectiveKind) -> Comparison:
    taken = _taken(objective)
    first = {each.seed: taken(each) for each in by_policy[0]}
    outcomes = (
        Outcome(tuple(records), _spread([_saved(taken(each), first[each.seed]) for each in records]))
        for records in by_policy
    )
    return Comparison(traffic, tuple(outcomes), objective)


def _taken(objective: ClusterObjectiveKind) -> Callable[[RunRecord], float]:
    """How much of what is to be least a run took."""
    return lambda run: CLUSTERS[objective].taken(run) or 0.0


def _saved(taken: float, first: float) -> float:
    """Share of what the first takes; none where that is nothing, or is paid for."""
    return 1 - taken / first if first > 0 else 0.0


def _spread(values: Sequence[float]) -> Spread:
    return Spread(math.fsum(values) / len(values), min(values), max(values))


def _least(values: Iterable[float | None]) -> float | None:
    return min((each for each in values if each is not None), default=None)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return math.fsum(known) / len(known) if known else None
