"""Prompts by deadline: beside a reference that makes every step, and with clocks that climb with the backlog."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from testbed.random_clusters import Scripted
from wastenot.serving.cluster.model import ChangeTimes, ClockRule, Cluster, Start
from wastenot.serving.cluster.simulation.simulate import simulate_cluster
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine, Scheduler
from wastenot.serving.model.loads import LogNormal, poisson
from wastenot.serving.model.requests import Requests

DEADLINES = Deadlines(ttft_s=(0.2, 0.4, 1.5))


@pytest.fixture
def alone(three_clocks: Engine) -> Cluster:
    """One engine whose cache holds all, its clock fixed."""
    engine = replace(three_clocks, cache_blocks=10**6, most_step_tokens=512, switch_s=0.0, scheduler=Scheduler.DEADLINE)
    return Cluster((engine,), 1, ChangeTimes((1.0,)), gpus_per_host=1, deadlines=DEADLINES)


@dataclass
class Asked:
    """A request as the reference has it."""

    request: int
    due_s: float
    left: int
    tokens: int
    turn: int = 0
    started: bool = False

    @property
    def rank(self) -> tuple[float, bool, int]:
        return self.due_s, not self.started, self.turn


def step_by_step(requests: Requests, cluster: Cluster, setting: int) -> tuple[np.ndarray, np.ndarray]:
    """First and last tokens: at each boundary all prompts in order of rank, late ones that wait behind all others."""
    engine = cluster.layouts[0]
    first_s, finish_s = np.full(len(requests), math.nan), np.full(len(requests), math.nan)
    due_s = requests.arrival_s + cluster.deadlines.ttft_of(requests.prompt_tokens)
    now_s, came, turn = 0.0, 0, 0
    prompts: list[Asked] = []
    decoding: dict[int, list[int]] = {}  # context, tokens to come
    while came < len(requests) or prompts or decoding:
        if not prompts and not decoding:
            now_s = max(now_s, float(requests.arrival_s[came]))
        while came < len(requests) and requests.arrival_s[came] <= now_s:
            tokens = int(requests.prompt_tokens[came])
            prompts.append(Asked(came, float(due_s[came]), tokens, tokens))
            came += 1
        for each in sorted(prompts, key=lambda each: each.due_s):
            if not each.started and each.due_s < now_s:
                turn += 1
                each.due_s, each.turn = math.inf, turn
        room, tokens, attention, taken = engine.most_step_tokens - len(decoding), 0, 0.0, []
        for each in sorted(prompts, key=lambda each: each.rank):
            chunk = min(room, each.left)
            if chunk <= 0:
                continue
            done = each.tokens - each.left
            room, tokens, attention = room - chunk, tokens + chunk, attention + chunk * (done + chunk / 2)
            each.started = True
            taken.append((each, chunk))
        batch = len(decoding)
        context = sum(each[0] for each in decoding.values()) / batch if batch else 0.0
        past = attention / tokens - tokens / 2 if tokens else 0.0
        if tokens and batch:
            cost = engine.tables.mixed(setting, tokens, past, batch, context)
        elif tokens:
            cost = engine.tables.prefill(setting, tokens, past)
        else:
            cost = engine.tables.decode(setting, batch, context)
        now_s += cost.time_s
        for request, state in list(decoding.items()):
            state[0], state[1] = state[0] + 1, state[1] - 1
            if not state[1]:
                finish_s[request] = now_s
                del decoding[request]
        for each, chunk in taken:
            each.left -= chunk
            if not each.left:
                prompts.remove(each)
                first_s[each.request] = now_s
                more = int(requests.output_tokens[each.request]) - 1
                if more:
                    decoding[each.request] = [each.tokens, more]
                else:
                    finish_s[each.request] = now_s
    return first_s, finish_s


@pytest.mark.parametrize("seed", range(12))
def test_each_step_is_that_of_the_reference(alone: Cluster, seed: int) -> None:
    load = poisson(4.0 + seed, 40.0, LogNormal(500, 1.0, 3000), LogNormal(40, 0.9, 300), seed=seed)
    rule = ClockRule.fixed(seed % 3, alone.layouts[0])
    served = simulate_cluster(load, alone, Scripted([Start(0, 0, rule)]))
    first_s, finish_s = step_by_step(load, alone, seed % 3)
    np.testing.assert_allclose(served.first_token_s, first_s, rtol=1e-9)
    np.testing.assert_allclose(served.finish_s, finish_s, rtol=1e-9)


def test_short_prompts_do_not_stand_behind_long_ones(alone: Cluster) -> None:
    load = poisson(9.0, 300.0, LogNormal(500, 1.0, 3000), LogNormal(40, 0.9, 300), seed=3)
    short = load.prompt_tokens < DEADLINES.prompt_below[0]
    shares = []
    for scheduler in (Scheduler.FCFS, Scheduler.DEADLINE):
        one = replace(alone, layouts=(replace(alone.layouts[0], scheduler=scheduler),))
        served = simulate_cluster(load, one, Scripted([Start(0, 0)]))
        good = alone.deadlines.kept(load, served)
        shares.append((good[short].mean(), good.mean()))
    assert shares[1][0] > 0.99 > 0.95 > shares[0][0]
    assert shares[1][1] > shares[0][1]


def test_a_clock_climbs_with_the_backlog_of_prompts(alone: Cluster) -> None:
    engine = alone.layouts[0]
    low = ClockRule.fixed(0, engine)
    climbs = ClockRule(low.by_batch, 0, (0, 1, 2))
    quiet = Requests(np.array([0.0, 5.0]), np.array([100, 400]), np.array([5, 5]))
    crowd = Requests(np.zeros(20), np.full(20, 400), np.full(20, 5))
    for load, same in ((quiet, True), (crowd, False)):
        runs = [simulate_cluster(load, alone, Scripted([Start(0, 0, rule)])) for rule in (low, climbs)]
        assert (runs[0].first_token_s == runs[1].first_token_s).all() == same
        assert runs[1].end_s <= runs[0].end_s
    assert runs[1].switches >= 3, "up with the backlog, and down again"


def test_a_rule_with_a_backlog_setting_that_is_none_is_refused(alone: Cluster) -> None:
    rule = ClockRule(ClockRule.fixed(0, alone.layouts[0]).by_batch, 0, (1, 7))
    served = simulate_cluster(
        Requests(np.zeros(1), np.full(1, 10), np.full(1, 2)), alone, Scripted([Start(0, 0), Start(0, 0, rule)])
    )
    assert [each.refused for each in served.log if each.refused] == [
        "a clock rule with an unknown setting; settings are 0 to 2"
    ]
