"""The plan that is done just when a slower pipeline is."""

import itertools

import pytest

from testbed.straggling import planned_frontier
from wastenot.core.errors import BadInputError
from wastenot.pipelines.plan.straggler import Rungs


@pytest.fixture(scope="module")
def rungs():
    return Rungs(planned_frontier())


def test_the_rung_is_the_cheapest_of_those_that_are_done(rungs):
    waiting_w = rungs.plan.waiting_w * rungs.plan.gpus
    for until_s in (
        0.9 * rungs.time_s[0],
        *rungs.time_s,
        1.07 * rungs.time_s[0],
        1.5 * rungs.time_s[0],
        9.0 * rungs.time_s[-1],
    ):
        costs = {
            i: e - waiting_w * t for i, (t, e) in enumerate(zip(rungs.time_s, rungs.energy_j, strict=True)) if t <= until_s
        }
        assert rungs.within(until_s) == (min(costs, key=lambda each: (costs[each], each)) if costs else 0)


def test_the_slowest_runs_its_own_plan_and_nobody_is_later_than_it(rungs):
    for slower in itertools.product((0.97, 1.0, 1.05, 1.2, 1.6), repeat=3):
        answer = rungs.answer(slower)
        assert answer.until_s == pytest.approx(max(slower) * rungs.time_s[rungs.own])
        assert answer.rungs[slower.index(max(slower))] == rungs.own
        for factor, rung in zip(slower, answer.rungs, strict=True):
            assert factor * rungs.time_s[rung] <= answer.until_s * (1.0 + 1e-9)


def test_a_margin_keeps_time_free_but_makes_nobody_faster_than_its_own_plan(rungs):
    free, kept = rungs.answer([1.3, 1.0]), rungs.answer([1.3, 1.0], 0.05)
    assert rungs.own <= kept.rungs[1] < free.rungs[1]
    assert rungs.time_s[kept.rungs[1]] <= 0.95 * kept.until_s
    assert rungs.answer([1.0, 1.0], 0.05).rungs == (rungs.own, rungs.own)


def test_a_saving_is_against_waiting_until_the_same_moment(rungs):
    plan, answer = rungs.plan, rungs.answer([1.2, 1.0])
    saving = rungs.saving(answer.rungs[1], answer.until_s)
    waits_s = answer.until_s - rungs.time_s[answer.rungs[1]]
    assert saving.energy_j == pytest.approx(rungs.energy_j[answer.rungs[1]] + plan.waiting_w * plan.gpus * waits_s)
    assert saving.default_j == pytest.approx(
        plan.baseline.energy_j + plan.waiting_w * plan.gpus * (answer.until_s - plan.baseline.time_s)
    )
    assert saving.energy_j < saving.own_j < saving.default_j
    assert saving.energy_change < saving.energy_j / saving.own_j - 1.0 < -0.05


def test_bad_input(rungs):
    with pytest.raises(BadInputError, match="has no frontier"):
        Rungs(rungs.plan.model_copy(update={"rungs": ()}))
    for slower, margin in (([], 0.0), ([0.0], 0.0), ([float("nan")], 0.0), ([1.0], 1.0)):
        with pytest.raises(BadInputError, match=r"^(slower|margin)"):
            rungs.answer(slower, margin)
