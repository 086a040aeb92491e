import math
from dataclasses import replace

import numpy as np
import pytest

from wastenot.core.setting import Setting
from wastenot.jobs.judge.made import made_job
from wastenot.jobs.judge.overlapping import Arrival, arrivals, simulate_overlapping
from wastenot.jobs.judge.policies import Default, GridSearch, Oracle
from wastenot.jobs.judge.simulate import simulate
from wastenot.jobs.judge.trace import JobTrace
from wastenot.jobs.plan.learner import Learner
from wastenot.jobs.tables.records import JobTerms

FULL, LOW = Setting(power_limit_w=200.0), Setting(power_limit_w=100.0)


def _trace(**changes: object) -> JobTrace:
    """Batch sizes 8 (never reaches it), 16 (the default: 4 epochs) and 32 (2 epochs, at the low limit the best)."""
    terms = JobTerms("small", (8, 16, 32), 16, 1.0, max_epochs=10, settings=(FULL, LOW), eta=0.5, max_power_w=200.0)
    epochs = {8: (math.inf,), 16: (4.0,), 32: (2.0,)}
    trace = JobTrace(terms, "a GPU", epochs, np.array([[10.0, 12.0]] * 3), np.array([[200.0, 100.0]] * 3))
    return replace(trace, **changes)


def test_the_oracle_loses_nothing() -> None:
    made = simulate(_trace(), Oracle, 5, 0)
    assert made.regret == pytest.approx(0.0)
    assert {(run.batch_size, run.setting) for run in made.runs} == {(32, LOW)}


def test_the_default_pays_the_same_each_time() -> None:
    made = simulate(_trace(), lambda trace: Default(trace.terms), 5, 0)
    default, best = 4 * 10.0 * 200.0, 2 * 12.0 * (50.0 + 100.0)
    assert made.regret == pytest.approx(np.arange(1, 6) * (default / best - 1.0))


def test_grid_search_tries_each_pair_once_and_prunes_what_fails() -> None:
    made = simulate(_trace(), lambda trace: GridSearch(trace.terms), 10, 0)
    pairs = [(run.batch_size, run.setting) for run in made.runs]
    assert pairs[:5] == [(16, FULL), (16, LOW), (8, FULL), (32, FULL), (32, LOW)]
    assert set(pairs[5:]) == {(32, LOW)}
    assert [run.outcome for run in made.runs].count("stopped") == 1


def test_a_failed_run_is_followed_by_another_and_both_are_paid() -> None:
    made = simulate(_trace(), lambda trace: GridSearch(trace.terms), 3, 0)
    assert made.recurrence.tolist() == [0, 1, 2, 2]
    failed, best = 8 * 10.0 * 200.0, made.best_cost[0]  # stopped once it had cost twice 4 epochs at the low limit
    assert made.regret[2] - made.regret[1] == pytest.approx((failed + 2 * 10.0 * 200.0) / best - 1.0)


def test_runs_that_do_not_overlap_cost_what_they_cost_one_by_one() -> None:
    trace = made_job("smooth", 3)
    lasts_s = float(trace.epoch_time_s.max()) * (trace.terms.max_epochs or 0)
    apart = [Arrival(number * 30.0 * lasts_s, 1.0) for number in range(30)]
    made = simulate_overlapping(trace, lambda each: Learner(each.terms, each.device), apart, 5)
    alone = simulate(trace, lambda each: Learner(each.terms, each.device), 30, 5)
    assert made.in_flight == 0.0
    assert made.recurrences.regret == pytest.approx(alone.regret)


def test_a_run_beside_others_is_decided_before_they_teach_anything() -> None:
    when = [Arrival(0.0, 1.0), Arrival(1.0, 1.0), Arrival(1e6, 1.0)]
    made = simulate_overlapping(_trace(), lambda trace: GridSearch(trace.terms), when, 0)
    started = [(run.started_unix_s, run.batch_size, run.setting) for run in made.recurrences.runs]
    assert started[:2] == [(0.0, 16, FULL), (1.0, 16, LOW)]
    assert made.in_flight == pytest.approx(0.25)  # 1 of the second, none of the others, one of which failed


def test_arrivals_keep_the_load_and_have_heavy_tails() -> None:
    trace = _trace()
    when = arrivals(trace, 20_000, 1, load=2.0)
    gaps = np.diff([each.at_s for each in when])
    assert gaps.mean() == pytest.approx(2 * 12.0 / 2.0, rel=0.05)
    assert np.mean(gaps > 10.0 * np.median(gaps)) == pytest.approx(0.062, abs=0.01)
    assert np.mean([each.slower for each in when]) == pytest.approx(1.0, abs=0.02)
    assert when == arrivals(trace, 20_000, 1, load=2.0)
    made = simulate_overlapping(trace, Oracle, when[:2000], 1)
    assert made.recurrences.regret == pytest.approx(0.0)
    assert 2.0 < made.in_flight < 5.0  # arrivals come in bursts, and so see more than the average over time
