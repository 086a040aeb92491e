"""Small clusters drawn at random: engines whose tables follow no pattern, each instance with a clock rule of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from testbed.random_serving import drawn
from wastenot.serving.cluster.classes import COUNT
from wastenot.serving.cluster.model import (
    Action,
    Assign,
    ChangeTimes,
    ClockRule,
    Cluster,
    ClusterServed,
    ClusterView,
    Park,
    Reshard,
    Route,
    Router,
    SetClock,
    Start,
    Stop,
    Wake,
)
from wastenot.serving.cluster.simulation.simulate import simulate_cluster
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine, Scheduler
from wastenot.serving.model.requests import Requests
from wastenot.serving.simulation.policy import Choice, View
from wastenot.serving.simulation.served import Served


@dataclass
class Follows:
    """The clock of an engine by a rule, as a policy; knows which one is to be in effect, and from when on."""

    rule: ClockRule
    name: str = "rule"

    def begin(self, engine: Engine, deadlines: Deadlines) -> int:
        self.engine, self.asked, self.effective_s = engine, int(self.rule.by_batch[0]), math.inf
        self.in_effect = self.asked
        return self.asked

    def choose(self, view: View) -> Choice:
        setting = self.rule.prompts if len(view.waiting_tokens) else self.rule.by_batch[len(view.running_context)]
        self.in_effect = view.setting
        self.ask(int(setting), view.setting, view.now_s)
        return Choice(self.asked)

    def ask(self, setting: int, in_effect: int, now_s: float) -> None:
        if setting != self.asked:
            self.asked, self.effective_s = setting, math.inf if setting == in_effect else now_s + self.engine.switch_s

    def rests_j(self, served: Served, until_s: float) -> float:
        """Energy of the engine from its last step on, with nothing to do."""
        end_s, in_effect, power_w = served.end_s, self.in_effect, self.engine.tables.idle_power_w
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


class Whims:
    """Asks for anything, at any time, of any instance."""

    name = "whims"

    def __init__(self, seed: int, cluster: Cluster) -> None:
        self.random, self.cluster, self.period_s = np.random.default_rng(seed), cluster, 0.5

    def begin(self, cluster: Cluster) -> Sequence[Action]:
        return [Start(layout, pool) for layout, pool in ((2, 0), (1, 0), (1, 1), (0, 1), (0, 1))] + [self.route()]

    def route(self) -> Route:
        pools = tuple((0, 1) if self.random.random() < 0.5 else (1, 0) for _ in range(COUNT))
        hold = tuple(self.random.integers(1, 1500, int(self.random.integers(3))).tolist())
        return Route(pools, router=Router.LEAST_TOKENS if self.random.random() < 0.5 else None, hold=hold)

    def any_of(self, view: ClusterView) -> Action:
        random = self.random
        i, pool, layout = int(random.integers(-1, len(view.state) + 1)), int(random.integers(2)), int(random.integers(3))
        here = view.layout[i] if 0 <= i < len(view.state) else 0
        engine = self.cluster.layouts[int(here)]
        clocks = ClockRule(random.integers(0, 3, engine.most_running + 1), int(random.integers(3)))
        several = tuple(int(each) for each in random.integers(0, len(view.state), 2))
        return (
            Start(layout, pool, None),
            Start(layout, pool, None),
            Start(layout, pool, None),
            Stop(i),
            Park(i),
            Wake(i),
            Reshard((i,), (0, 0), pool),
            Reshard(several, (layout,), pool),
            Assign(i, pool),
            SetClock(i, clocks),
            SetClock(i, clocks),
            self.route(),
        )[int(random.integers(12))]

    def control(self, view: ClusterView) -> Sequence[Action]:
        return [self.any_of(view) for _ in range(int(self.random.integers(4)))]


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

    def controller(self, *, hold: bool = False) -> Scripted:
        """All instances from the beginning; with or without requests held back behind a prompt or two."""
        held = (int(self.requests.prompt_tokens[0]),) if hold else ()
        route = Route(((0,),) * COUNT, hold=held)
        return Scripted([*(Start(0, 0, rule) for rule in self.rules), route], self.period_s)


def drawn_cluster(seed: int) -> Case:
    """A case of one to four instances."""
    one, random = drawn(3 * seed), np.random.default_rng(seed)
    # What a router holds back has another deadline than what comes to an engine at the same time.
    engine = one.engine if seed % 3 else replace(one.engine, scheduler=Scheduler.FCFS)
    settings = len(engine.tables.settings)
    rules = tuple(
        ClockRule(random.integers(0, settings, engine.most_running + 1), int(random.integers(settings)))
        for _ in range(int(random.integers(1, 5)))
    )
    cluster = Cluster((engine,), 1, ChangeTimes((1.0,)), deadlines=one.deadlines)
    return Case(one.requests, cluster, rules, float(random.choice([0.01, 1.0])))


def run_of(case: Case, seed: int, *, hold: bool = False, scheduler: Scheduler | None = None) -> ClusterServed:
    """The run of a case, with its own scheduler or another one."""
    engine = case.engine if scheduler is None else replace(case.engine, scheduler=scheduler)
    cluster = replace(case.cluster, layouts=(engine,))
    controller = case.controller(hold=hold)
    return simulate_cluster(case.requests, cluster, controller, router=Router(seed % 4), seed=seed, bin_s=0.05)


def digits(seed: int) -> str:
    """All that came of a case, to the last digit."""
    run = run_of(drawn_cluster(seed), seed, hold=seed % 3 == 0, scheduler=tuple(Scheduler)[seed // 2 % 3])
    numbers = [
        run.sent_s,
        run.first_token_s,
        run.finish_s,
        run.timeline.energy_j,
        run.timeline.clock_mhz,
        run.timeline.gpus.ravel(),
    ]
    whole = [run.instance, run.late_tokens, np.flatnonzero(run.gap_counts), run.gap_counts[run.gap_counts > 0]]
    return " ".join(
        [value.hex() for each in numbers for value in each.tolist()]
        + [str(value) for each in whole for value in each.tolist()]
        + [f"{kind} {value.hex()}" for kind, value in run.energy_j.items()]
        + [str(run.switches), run.end_s.hex()]
    )
