"""Replicas that follow a straggler server are guarded and proved as any plan: all compare in the same iterations."""

import pytest

from testbed.guarded_replicas import Job
from testbed.straggling import planned_frontier

BEGUN = 41  # iterations, before which all run the default clocks


@pytest.fixture(scope="module")
def plan():
    return planned_frontier()


def ran_default(job, first):
    """Whether all, none or some of the processes ran the default clocks in the iterations from one on."""
    return ["all" if all(each) else "some" if any(each) else "none" for each in job.default[first:]]


def kinds(job):
    return [each["kind"] for each in job.stragglers.events]


@pytest.mark.slow  # 20 seeds
def test_an_undisturbed_plan_is_kept_and_all_compare_in_the_same_iterations(plan):
    for seed in range(20):
        job = Job(plan, 2, noise=(0.005, 0.02)[seed % 2], seed=seed, apart=seed % 4 > 1)
        job.run(130)
        assert not any(job.stepped()) and "some" not in ran_default(job, BEGUN), seed
        assert ran_default(job, BEGUN).count("none") > 60


@pytest.mark.parametrize("apart", [False, True])
def test_a_plan_slower_than_promised_gives_way_to_the_default_clocks_in_all_replicas(plan, apart):
    job = Job(plan, 2, apart=apart)
    job.run(100)
    job.run(40, plan_slower=1.05)
    assert all(job.stepped()) and kinds(job).count("suspected") == 1
    assert ran_default(job, 100)[:30].count("none") < 12, "those until it is noticed, and of a comparison at most"
    assert ran_default(job, 100)[-20:] == 20 * ["all"]


def test_where_the_server_is_gone_all_return_to_the_default_clocks_at_once_and_decide_at_their_next_block(plan):
    job = Job(plan, 2)
    job.run(100)
    for source in job.sources:
        source.gone = True
    job.run(100, plan_slower=1.05)
    assert all(job.stepped()) and "suspected" not in kinds(job)
    assert ran_default(job, 100).count("none") < 12 and ran_default(job, 100)[-20:] == 20 * ["all"]


def test_a_replica_that_is_slow_itself_costs_a_comparison_and_the_others_run_what_is_done_just_then(plan):
    job = Job(plan, 3)
    job.run(110)
    job.run(90, 1.0, 1.2)
    assert not any(job.stepped()) and kinds(job).count("suspected") == 1
    assert ran_default(job, 110)[:20].count("all") <= 12, "not until the next block of all, which is far away"
    run = [next(each.rung(199) for each in job.sources if each.replica == replica) for replica in range(3)]
    assert run[1] == job.rungs.own < min(run[0], run[2])
    job.run(60)
    assert not any(job.stepped()) and job.stragglers.orders[0].rung == job.rungs.own
    assert all(any(each.kind == "drift" for each in controller.status().events) for controller in job.controllers)


def test_what_is_told_wrongly_costs_a_few_slow_iterations_and_those_that_it_slowed_run_their_plan_once_it_is_cleared(plan):
    job = Job(plan, 2)
    job.run(110)
    job.take(job.stragglers.tell(1, 0.3, 0.0))
    job.run(50)
    assert all(job.stepped()) and ran_default(job, 150) == 10 * ["all"]
    assert sum(each > 1.1 * plan.baseline.time_s for each in job.took_s[110:]) < 12
    job.take(job.stragglers.clear(None, 0.0))
    job.run(90)
    assert not any(first for first, _ in job.default[-30:]), "those whose plan it was about"
    assert max(job.took_s[160:]) < 1.1 * plan.baseline.time_s


@pytest.mark.slow
def test_what_all_have_saved_is_proved(plan):
    job = Job(plan, 2)
    job.run(300)
    proved = [each.status().proof for each in job.controllers]
    assert all(each.blocks >= 4 and each.time_change.low < 0.001 and each.energy_change.high < 0.0 for each in proved)
    saved_j = sum(job.saved_j)
    half_j = sum((each.saved_j.high - each.saved_j.low) ** 2 / 4 for each in proved) ** 0.5
    assert saved_j > 0.0 and sum(each.saved_j.value for each in proved) == pytest.approx(saved_j, abs=half_j)
