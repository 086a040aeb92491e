"""Rules of clocks: cheaper than the greatest clock, within the deadlines, and up when the batch grows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from wastenot.stack.serving.cluster.clock_rules import decode_s, greatest, lowest_in_time, rule_at
from wastenot.stack.serving.cluster.frontiers import InstanceFrontier, frontier
from wastenot.stack.serving.cluster.mixes import mix_of
from wastenot.stack.serving.deadlines import Deadlines
from wastenot.stack.serving.engine import Engine
from wastenot.stack.serving.loads import LogNormal, poisson

DEADLINES = Deadlines(ttft_s=(0.3, 0.6), prompt_below=(256,), tbt_s=0.06)


@pytest.fixture
def known(three_clocks: Engine) -> InstanceFrontier:
    mix = mix_of(poisson(10.0, 100.0, LogNormal(300, 0.7, 3000), LogNormal(80, 0.6, 500), seed=3))
    return frontier(three_clocks, mix, DEADLINES, points=6, checked=False)


def test_the_clock_is_that_of_the_level_until_the_batch_says_more(known: InstanceFrontier) -> None:
    rate = float(known.rate_per_s[1])
    rule = rule_at(known, rate)
    usual = int(known.batch[1])
    assert (rule.by_batch[: usual + 1] == known.setting[1]).all()
    assert rule.prompts == known.setting[1]
    assert rule.by_batch[-1] == 2, "a batch beyond all levels has the greatest clock"
    assert (np.diff(rule.by_batch) >= 0).all()


def test_more_load_never_has_lower_clocks_at_the_same_batch(known: InstanceFrontier) -> None:
    rising = known.rate_per_s[np.flatnonzero(np.diff(known.setting) >= 0)]
    rules = [rule_at(known, float(rate)) for rate in rising]
    for lower, higher in pairwise(rules):
        if lower.prompts <= higher.prompts:
            assert higher.by_batch[0] >= lower.by_batch[0]
    assert (rule_at(known, 10 * known.capacity_per_s).by_batch == 2).all()


def test_the_lowest_clock_in_time_is_the_lowest(three_clocks: Engine) -> None:
    deadlines = Deadlines(tbt_s=0.03)
    rule = lowest_in_time(three_clocks, 500.0, deadlines, within=1.0)
    time_s = decode_s(three_clocks, 500.0)
    for batch, setting in enumerate(rule.by_batch):
        in_time = np.flatnonzero(time_s[:, batch] <= 0.03)
        assert setting == (in_time[0] if len(in_time) else 2)
    assert rule.prompts == 2
    assert (greatest(three_clocks).by_batch == 2).all()
