"""Small clusters drawn at random: engines whose tables follow no pattern, each instance with a clock rule of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.support.random_serving import drawn
from wastenot.stack.serving.cluster.model import Action, ChangeTimes, ClockRule, Cluster, ClusterView, Start
from wastenot.stack.serving.deadlines import Deadlines
from wastenot.stack.serving.engine import Engine
from wastenot.stack.serving.requests import Requests
from wastenot.stack.serving.simulation.policy import Choice, View


@dataclass
class Follows:
    """The clock of an engine by a rule, as a policy; notes when it last asked for which."""

    rule: ClockRule
    name: str = "rule"

    def begin(self, engine: Engine, deadlines: Deadlines) -> int:
        return int(self.rule.by_batch[0])

    def choose(self, view: View) -> Choice:
        waits = len(view.waiting_tokens)
        return Choice(int(self.rule.prompts if waits else self.rule.by_batch[len(view.running_context)]))


@dataclass
class Scripted:
    """Begins with some actions and does others at its visits; keeps what it saw."""

    actions: Sequence[Action]
    period_s: float = 1.0
    name: str = "scripted"
    then: Callable[[ClusterView], Sequence[Action]] = lambda view: ()
    seen: list[ClusterView] = field(default_factory=list)

    def begin(self, cluster: Cluster) -> Sequence[Action]:
        return self.actions

    def control(self, view: ClusterView) -> Sequence[Action]:
        self.seen.append(view)
        return self.then(view)


@dataclass(frozen=True)
class Case:
    """A load on a cluster with one layout, an instance for each rule."""

    requests: Requests
    cluster: Cluster
    rules: tuple[ClockRule, ...]
    period_s: float

    @property
    def engine(self) -> Engine:
        return self.cluster.layouts[0]

    def controller(self) -> Scripted:
        return Scripted([Start(0, 0, rule) for rule in self.rules], self.period_s)


def drawn_cluster(seed: int) -> Case:
    """A case of one to four instances."""
    one, random = drawn(3 * seed), np.random.default_rng(seed)
    settings = len(one.engine.tables.settings)
    rules = tuple(
        ClockRule(random.integers(0, settings, one.engine.most_running + 1), int(random.integers(settings)))
        for _ in range(int(random.integers(1, 5)))
    )
    cluster = Cluster((one.engine,), 1, ChangeTimes((1.0,)), deadlines=one.deadlines)
    return Case(one.requests, cluster, rules, float(random.choice([0.01, 1.0])))
