"""What pipelines are told while one of them is slow: by what is measured, and by hand."""

import math
import random

import pytest

from testbed.straggling import Job, planned_frontier
from wastenot.control.level import Level
from wastenot.core.errors import BadInputError
from wastenot.pipelines.plan.straggler import Rungs
from wastenot.pipelines.run.stragglers import HOLD, LEAD, Stragglers


@pytest.fixture(scope="module")
def rungs():
    return Rungs(planned_frontier())


@pytest.fixture
def stragglers(rungs):
    return Stragglers(rungs, 3, 2)


def test_a_straggler_is_noticed_and_the_others_are_told_until_it_has_recovered(stragglers, rungs):
    job = Job(stragglers, 3, noise=0.003)
    job.run(20)
    assert [job.rung(replica) for replica in range(3)] == [rungs.own] * 3 and len(job.orders[0]) == 1
    job.run(10, 1.0, 1.25)
    slow_at = next(order for order in job.orders[0] if order.rung > rungs.own)
    assert 20 < slow_at.begin <= 20 + 5 + LEAD
    assert job.rung(1) == rungs.own and min(job.rung(0), job.rung(2)) > rungs.own
    assert rungs.time_s[job.rung(0)] < 1.25 * rungs.time_s[rungs.own]
    job.run(8)
    assert job.rung(0) == rungs.own
    assert job.orders[0][-1].begin <= 30 + 2 + LEAD


def test_all_replicas_change_at_the_same_iteration(stragglers):
    job = Job(stragglers, 3)
    job.run(20)
    job.run(20, 1.1, 1.3)
    begins = [{order.begin for order in orders} for orders in job.orders]
    assert max(begins[0]) == max(begins[2]) > 20


def test_one_iteration_is_enough_where_a_gpu_has_just_begun_to_throttle(stragglers, rungs):
    job = Job(stragglers, 3, noise=0.003)
    job.run(20)
    job.run(1, 1.0, 1.25, throttled="thermal")
    job.run(LEAD, 1.0, 1.25, throttled="thermal")
    assert job.rung(0) > rungs.own
    assert stragglers.status()["replicas"][1]["throttled"] == ["thermal"]
    job.run(1)
    assert stragglers.status()["replicas"][1]["throttled"] == []


def test_a_pause_changes_nothing(stragglers):
    job = Job(stragglers, 3, noise=0.003)
    job.run(20)
    job.run(2, 1.0, 3.0)
    job.run(20)
    assert [len(orders) for orders in job.orders] == [1, 1, 1]


def test_replicas_that_are_all_slow_alike_wait_for_nobody(stragglers):
    job = Job(stragglers, 3, noise=0.003)
    job.run(40, 1.1, 1.1, 1.1)
    assert [len(orders) for orders in job.orders] == [1, 1, 1]


def test_nobody_is_kept_slow_before_all_are_known(stragglers, rungs):
    job = Job(stragglers, 3)
    for iteration in range(20):
        for replica in (0, 1):
            for rank in (0, 1):
                job.take(stragglers.report(replica, rank, iteration, (1.0, 1.3)[replica], float(iteration)))
    assert stragglers.orders[0].rung == rungs.own
    for iteration in range(20):
        for rank in (0, 1):
            job.take(stragglers.report(2, rank, iteration, 1.0, 20.0))
    assert stragglers.orders[0].rung > rungs.own < stragglers.orders[2].rung


def test_told_by_hand_and_cleared(stragglers, rungs):
    job = Job(stragglers, 3)
    job.run(20)
    job.take(stragglers.tell(1, 0.2, 20.0))
    job.run(3, 1.0, 1.2)
    assert job.rung(0) > rungs.own and stragglers.status()["replicas"][1]["told"] == 1.2
    job.take(stragglers.clear(None, 23.0))
    job.run(10)
    assert job.rung(0) == rungs.own


def test_what_is_told_for_a_time_ends_then(stragglers, rungs):
    job = Job(stragglers, 3)
    job.run(20)
    job.take(stragglers.tell(1, 0.2, 20.0, for_s=5.0))
    assert stragglers.due_s() == 25.0 and not stragglers.act(24.0)
    job.take(stragglers.act(25.0))
    job.run(LEAD)
    assert job.rung(0) == rungs.own


def test_what_is_told_and_never_measured_is_dropped(stragglers, rungs):
    job = Job(stragglers, 3, noise=0.003)
    job.run(20)
    job.take(stragglers.tell(1, 0.3, 20.0))
    job.run(20 + LEAD)
    assert job.rung(0) == rungs.own
    assert "dropped" in [event["kind"] for event in stragglers.events]


def test_orders_are_renewed_before_they_end(stragglers):
    job = Job(stragglers, 3)
    for _ in range(3 * HOLD):
        job.run(1)
        assert all(orders[-1].until > job.iteration for orders in job.orders)


def test_a_replica_that_lost_a_rank_keeps_nobody_slow(stragglers, rungs):
    job = Job(stragglers, 3)
    job.run(20)
    job.run(10, 1.0, 1.25)
    assert job.rung(0) > rungs.own
    job.take(stragglers.leave(1, 0, 30.0))
    job.iteration += LEAD
    assert job.rung(0) == rungs.own


def test_a_job_that_begins_again_is_counted_anew(stragglers, rungs):
    job = Job(stragglers, 3)
    job.run(300)
    for replica in range(3):
        for rank in range(2):
            stragglers.leave(replica, rank, 300.0)
    again = Job(stragglers, 3)
    assert again.orders[0][0].begin == 0
    again.run(20)
    again.run(10, 1.0, 1.25)
    assert again.rung(0) > rungs.own


def test_a_rank_that_suspects_its_plan_has_all_compare_in_the_same_iteration_once(stragglers):
    job = Job(stragglers, 3)
    job.run(20)
    told = [stragglers.report(2, rank, 20, None, 20.0, suspects=True) for rank in (0, 1)]
    assert {order.compare for order in told[0].values()} == {20 + LEAD} and set(told[0]) == {0, 1, 2}
    assert told[1] == {} and [each["kind"] for each in stragglers.events].count("suspected") == 1
    assert stragglers.report(1, 0, 20 + LEAD + 1, None, 21.0, suspects=True)[0].compare == 20 + 2 * LEAD + 1


def test_iterations_at_the_default_clocks_count_and_say_nothing_of_the_plan(stragglers):
    job = Job(stragglers, 3)
    job.run(20)
    for iteration in range(20, 20 + 2 * HOLD):
        for rank in (0, 1):
            job.take(stragglers.report(0, rank, iteration, None, 20.0))
    status = stragglers.status()
    assert status["iteration"] == 19 + 2 * HOLD and status["replicas"][0]["measured"] == pytest.approx(1.0)
    assert all(orders[-1].until > 20 + 2 * HOLD for orders in job.orders)


def test_what_a_rank_counted_wrong_postpones_orders_only_until_the_next_report(stragglers, rungs):
    job = Job(stragglers, 3)
    job.run(20)
    assert stragglers.report(0, 0, 10**18, 1.0, 20.0) == {} and stragglers.status()["iteration"] == 19
    stragglers.report(0, 0, 10**11, 1.0, 20.0)
    job.take(stragglers.tell(1, 0.3, 20.0))
    assert job.orders[0][-1].begin > 10**11
    job.run(LEAD + 1)
    assert job.rung(0) > rungs.own and job.rung(2) > rungs.own


def test_no_false_alarms_in_noise():
    for seed in range(20):
        rng, level = random.Random(seed), Level()
        for _ in range(60):  # a level is being learned
            level.learn(math.exp(rng.gauss(0.0, 0.01)))
        assert sum(level.learn(math.exp(rng.gauss(0.0, 0.01))) for _ in range(500)) <= 1
        assert abs(level.held) < 0.02


@pytest.mark.parametrize(("slower", "noise", "within"), [(1.05, 0.02, 30), (1.05, 0.005, 4), (1.2, 0.02, 5)])
def test_a_shift_is_noticed_among_noise_and_pauses_and_so_is_its_end(slower, noise, within):
    missed = 0
    for seed in range(40):
        rng, level = random.Random(seed), Level()

        def run(factor, iterations, rng=rng, level=level):
            for _ in range(iterations):
                pause = 2.0 if rng.random() < 0.005 else 1.0
                level.learn(factor * pause * math.exp(rng.gauss(0.0, noise)))
            return level.factor > 0.5 + 0.5 * slower

        run(1.0, 40)
        missed += not run(slower, within)
        run(slower, 40)
        missed += run(1.0, within)
    assert missed <= 6  # of 80


@pytest.mark.parametrize("noise", [0.001, 0.02])
def test_a_drift_too_slow_to_be_a_shift_is_followed(noise):
    rng, level = random.Random(1), Level()
    for count in range(2000):
        level.learn(math.exp(0.0001 * count + rng.gauss(0.0, noise)))
    assert level.held == pytest.approx(0.2, abs=0.03)


def test_bad_input(rungs, stragglers):
    with pytest.raises(BadInputError, match="replicas 0"):
        Stragglers(rungs, 0, 2)
    stragglers.join(0, 1, 0.0)
    for what in (
        lambda: stragglers.join(3, 0, 0.0), lambda: stragglers.join(0, 2, 0.0), lambda: stragglers.join(0, 1, 0.0),
        lambda: stragglers.tell(0, -0.1, 0.0), lambda: stragglers.tell(0, float("nan"), 0.0),
        lambda: stragglers.tell(0, 0.1, 0.0, -1.0), lambda: stragglers.clear(9, 0.0),
    ):  # fmt: skip
        with pytest.raises(BadInputError, match=r"^(replica|rank|tell|for_s) "):
            what()
    assert stragglers.report(0, 1, 5, float("inf"), 0.0) == {} and stragglers.report(0, 1, -1, 1.0, 0.0) == {}
