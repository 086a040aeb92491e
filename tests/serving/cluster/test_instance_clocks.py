"""Rules of clocks: cheaper than the greatest clock, within the deadlines, and up when the batch grows."""

from __future__ import annotations

import numpy as np
import pytest

from wastenot.serving.cluster.frontiers import PATIENCE, InstanceFrontier, ladder, ladder_frontier, rule_at
from wastenot.serving.cluster.levels import decode_step_s
from wastenot.serving.cluster.mixes import mix_of
from wastenot.serving.cluster.model import ClockRule
from wastenot.serving.cluster.trials import Trial
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.loads import LogNormal, poisson

DEADLINES = Deadlines(ttft_s=(0.3, 0.6), prompt_below=(256,), tbt_s=0.06)


@pytest.fixture
def known(three_clocks: Engine) -> InstanceFrontier:
    mix = mix_of(poisson(10.0, 100.0, LogNormal(300, 0.7, 3000), LogNormal(80, 0.6, 500), seed=3))
    return ladder_frontier(three_clocks, mix, DEADLINES, points=6)


def test_a_ladder_climbs_after_its_patience(three_clocks: Engine) -> None:
    for base in range(3):
        for patience in PATIENCE:
            rule = ladder(three_clocks, base, patience, 400.0, DEADLINES)
            climbed = np.array((rule.prompts, *rule.backlog))
            assert (climbed[: patience + 1] == base).all()
            assert (np.diff(climbed) >= 0).all() and climbed[-1] == 2
            step_s = decode_step_s(three_clocks, 400.0)[rule.by_batch, np.arange(len(rule.by_batch))]
            assert ((step_s <= DEADLINES.tbt_s) | (rule.by_batch == 2)).all()


def test_more_load_has_the_ladder_of_its_level(known: InstanceFrontier) -> None:
    for level, rate in enumerate(known.rate_per_s):
        assert rule_at(known, float(rate)) is known.rule[level]
        assert rule_at(known, 0.99 * float(rate)) is known.rule[level]
    assert (rule_at(known, 2 * known.capacity_per_s).by_batch == 2).all()


def test_ladders_keep_deadlines_for_less_than_fixed_clocks_do(three_clocks: Engine, known: InstanceFrontier) -> None:
    trial = Trial(three_clocks, known.mix, DEADLINES, 0.98, 1, by_tokens=True, requests=20_000)
    fixed = [ClockRule.fixed(setting, three_clocks) for setting in range(3)]
    for level in (2, 4):
        rate = float(known.rate_per_s[level])
        keeps, power_w = trial.run(known.rule[level], rate)
        assert keeps
        assert power_w == pytest.approx(known.power_w[level], rel=0.03)
        assert power_w < 1.01 * min(watts for good, watts in (trial.run(each, rate) for each in fixed) if good)
