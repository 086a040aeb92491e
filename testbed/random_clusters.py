"""Small clusters drawn at random: engines whose tables follow no pattern, each instance with a clock rule of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from testbed.random_serving import drawn
from wastenot.stack.serving.cluster.classes import COUNT
from wastenot.stack.serving.cluster.model import Action, ChangeTimes, ClockRule, Cluster, ClusterView, Route, Start
from wastenot.stack.serving.deadlines import Deadlines
from wastenot.stack.serving.engine import Engine
from wastenot.stack.serving.requests import Requests
from wastenot.stack.serving.simulation.policy import Choice, View
from wastenot.stack.serving.simulation.served import Served


@dataclass
class Follows:
    """The clock of an engine by a rule, as a policy; knows which one is to be in effect, and from when on."""

    rule: ClockRule
    name: str = "rule"

    def begin(self, engine: Engine, deadlines: Deadlines) -> int:
        self.engine, self.asked, self.effective_s = engine, int(self.rule.by_batch[0]), math.inf
        return self.asked

    def choose(self, view: View) -> Choice:
        setting = self.rule.prompts if len(view.waiting_tokens) else self.rule.by_batch[len(view.running_context)]
        self.ask(int(setting), view.setting, view.now_s)
        return Choice(self.asked)

    def ask(self, setting: int, in_effect: int, now_s: float) -> None:
        if setting != self.asked:
            self.asked, self.effective_s = setting, math.inf if setting == in_effect else now_s + self.engine.switch_s

    def rests_j(self, served: Served, until_s: float) -> float:
        """Energy of the engine from its last step on, with nothing to do."""
        end_s, in_effect, power_w = served.end_s, served.last_setting, self.engine.tables.idle_power_w
        if self.effective_s <= end_s:
            in_effect = self.asked
        self.ask(int(self.rule.by_batch[0]), in_effect, end_s)
        changes_s = min(max(self.effective_s, end_s), until_s)
        return float(power_w[in_effect] * (changes_s - end_s) + power_w[self.asked] * (until_s - changes_s))


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

    def controller(self, *, hold: bool = False, by_deadline: bool = False) -> Scripted:
        """All instances from the beginning; with or without requests held back behind a prompt or two."""
        held = (int(self.requests.prompt_tokens[0]),) if hold else ()
        route = Route(((0,),) * COUNT, by_deadline=by_deadline, hold=held)
        return Scripted([*(Start(0, 0, rule) for rule in self.rules), route], self.period_s)


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
