"""What learning costs beyond the default: counted, forecast, and held within a budget."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.jobs.judge.made import made_job
from wastenot.jobs.judge.simulate import simulate
from wastenot.jobs.judge.trace import JobTrace
from wastenot.jobs.plan.learner import Learner
from wastenot.jobs.plan.learning_cost import LearningCost, learning_forecast
from wastenot.jobs.tables.records import JobRun, JobTerms, Outcome
from wastenot.jobs.tables.terms import check_terms

TERMS = JobTerms("job", (32, 64, 128), 64, 1.0, max_epochs=40, eta=0.0)


class Watched(Learner):
    """The policy that users get, with the most that learning has cost at any time."""

    def __init__(self, trace: JobTrace, budget: float | None) -> None:
        super().__init__(replace(trace.terms, learning_budget=budget), trace.device)
        self.most = 0.0

    def ended(self, run: JobRun) -> None:
        """Take note of what became of a run."""
        super().ended(run)
        self.most = max(self.most, self.learning.spent)


def most_of(trace: JobTrace, budget: float | None, recurrences: int = 12) -> float:
    policy = Watched(trace, budget)
    simulate(trace, lambda _: policy, recurrences, 3)
    return policy.most


def test_runs_of_other_batch_sizes_count_less_the_runs_of_the_default_that_they_replace() -> None:
    known = LearningCost(replace(TERMS, learning_budget=2.0), "gpu")
    runs: tuple[tuple[int, Outcome, float], ...] = (
        (128, "stopped", 50.0),
        (64, "reached", 100.0),
        (64, "reached", 120.0),
        (32, "reached", 88.0),
        (32, "stopped", 33.0),
    )
    for number, (size, outcome, time_s) in enumerate(runs, 1):
        known.ended(JobRun(number, size, "gpu", outcome, 4, time_s, None))
    known.ended(JobRun(9, 32, "another", "reached", 4, 1000.0, None))
    assert known.of_default == pytest.approx(110.0)
    assert known.spent == pytest.approx((50.0 + 88.0 + 33.0) / 110.0 - 1.0)
    assert known.left == pytest.approx(2.0 * 110.0 - (50.0 + 88.0 + 33.0 - 110.0))


def test_nothing_is_known_of_the_price_before_the_default_has_reached_the_target() -> None:
    known = LearningCost(replace(TERMS, learning_budget=2.0), "gpu")
    known.ended(JobRun(1, 64, "gpu", "stopped", 4, 10.0, None))
    assert (known.spent, known.left) == (0.0, float("inf"))


@pytest.mark.parametrize("family", ["small ones fail", "largest is best"])
def test_a_budget_caps_what_learning_costs(family: str) -> None:
    trace = made_job(family, 400)
    free = most_of(trace, None)
    assert free > 1.2
    capped = most_of(trace, 0.8)
    assert capped <= 0.8 + 0.15  # the epoch that tells how dear epochs are, and how much runs of the default scatter
    assert most_of(trace, 0.0) <= 0.05


def test_a_run_that_explores_is_stopped_at_the_budget() -> None:
    one = Learner(replace(TERMS, learning_budget=0.5), "gpu")
    one.began(JobRun(1, 64, "gpu", "running", 0, 0.0, None))
    one.ended(JobRun(1, 64, "gpu", "reached", 10, 100.0, None))
    one.began(JobRun(2, 32, "gpu", "running", 0, 0.0, None))
    verdict = one.goes_on(JobRun(2, 32, "gpu", "running", 8, 51.0, None))
    assert not verdict.go_on
    assert "budget" in verdict.why


@pytest.mark.slow
def test_the_forecast_holds_what_such_jobs_then_cost() -> None:
    within, highs = 0, 0.0
    seeds = range(500, 506)
    for seed in seeds:
        trace = made_job("smooth", seed)
        policy = Watched(trace, None)
        simulate(trace, lambda _, policy=policy: policy, 1, seed)
        if not np.isfinite(policy.learning.of_default):
            continue
        expected, high = learning_forecast(policy, 9)
        assert 0.0 < expected <= high
        within += most_of(trace, None, 10) <= high
        highs += high
    assert within >= 5
    assert highs < 60.0


@pytest.mark.parametrize("budget", [-1.0, float("nan")])
def test_a_budget_is_a_number_from_0(budget: float) -> None:
    with pytest.raises(BadInputError, match="learning_budget"):
        check_terms(replace(TERMS, learning_budget=budget))
