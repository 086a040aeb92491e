from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from wastenot.jobs.judge.made import made_job
from wastenot.jobs.judge.simulate import simulate
from wastenot.jobs.judge.trace import JobTrace
from wastenot.jobs.plan.learner import Learner
from wastenot.jobs.tables.records import JobRun, JobTerms, Speed

SIZES = (16, 32, 64, 128, 256)


def learner(max_epochs: int | None = 60) -> Learner:
    return Learner(JobTerms("job", SIZES, 64, 1.0, max_epochs=max_epochs, max_power_w=300.0), "gpu")


def ran(one: Learner, number: int, size: int, epochs: int, outcome: str = "reached") -> None:
    one.measured(Speed("gpu", size, one.terms.settings[0], 10.0 * (1.0 + 32.0 / size), 200.0))
    one.began(JobRun(number, size, "gpu", "running", 0, 0.0, 0.0))
    one.ended(JobRun(number, size, "gpu", outcome, epochs, 1.0, 1.0))  # type: ignore[arg-type]


def test_the_default_is_run_first_and_never_stopped_before_any_run_has_reached_the_target() -> None:
    one = learner()
    assert one.choose().batch_size == 64
    assert one.goes_on(JobRun(1, 64, "gpu", "running", 59, 1.0, 1.0)).go_on


def test_a_run_that_takes_far_longer_than_others_is_stopped() -> None:
    one = learner()
    for number in range(1, 6):
        ran(one, number, 64, 10)
    one.measured(Speed("gpu", 128, one.terms.settings[0], 12.0, 200.0))
    one.began(JobRun(9, 128, "gpu", "running", 0, 0.0, 0.0))
    assert one.goes_on(JobRun(9, 128, "gpu", "running", 5, 1.0, 1.0)).go_on
    assert not one.goes_on(JobRun(9, 128, "gpu", "running", 50, 1.0, 1.0)).go_on


def test_no_larger_batch_size_is_tried_once_one_does_not_fit() -> None:
    one = learner()
    ran(one, 1, 64, 10)
    ran(one, 2, 128, 0, "no memory")
    for number in range(3, 12):
        size = one.choose().batch_size
        assert size <= 64
        ran(one, number, size, 10)


def test_failures_at_a_batch_size_make_those_beyond_less_likely_to_work() -> None:
    one = learner()
    for number in range(1, 4):
        ran(one, number, 64, 10)
    before = {each.batch_size: each.chance for each in one.choose().outlook}
    ran(one, 4, 128, 60, "missed")
    after = {each.batch_size: each.chance for each in one.choose().outlook}
    assert after[256] < 0.5 * before[256]
    assert after[32] > 0.8 * before[32]


def test_after_runs_in_vain_a_batch_size_is_taken_that_has_worked_and_is_given_more_time() -> None:
    one = learner(None)
    for number in range(1, 4):
        ran(one, number, 64, 10)
    for number in range(4, 12):
        size = one.choose().batch_size
        one.began(JobRun(number, size, "gpu", "running", 0, 0.0, 0.0))
        epochs = 1
        while one.goes_on(JobRun(number, size, "gpu", "running", epochs, 1.0, 1.0)).go_on and epochs < 300:
            epochs += 1
        if number >= 7 and not one.changed_at:
            assert size == 64
        one.ended(JobRun(number, size, "gpu", "stopped", epochs, 1.0, 1.0))
    assert epochs > 40


@pytest.mark.parametrize(
    "past", [[(64, 10)] * 3, [(64, 10)] * 20, [(64, 10), (32, 12), (128, 9)] * 3, [(64, 40), (32, 60), (128, 35)] * 4]
)
@pytest.mark.parametrize("most", [None, 100])
def test_a_job_that_no_longer_gets_there_is_found_changed_once_and_then_given_ever_more_time(
    past: list[tuple[int, int]], most: int | None
) -> None:
    one, lasted = learner(most), []
    for number, (size, epochs) in enumerate(past, 1):
        ran(one, number, size, epochs)
    for number in range(len(past) + 1, len(past) + 36):
        size, epochs = one.choose().batch_size, 1
        while epochs < (most or 2000) and one.goes_on(JobRun(number, size, "gpu", "running", epochs, 1.0, 1.0)).go_on:
            epochs += 1
        ran(one, number, size, epochs, "stopped")
        lasted.append((size, epochs))
    assert len(one.changed_at) == 1 and one.changed_at[0] > len(past)
    assert min(epochs for _, epochs in lasted[-10:]) == (most or 2000)
    assert len({size for size, _ in lasted[-25:]}) > 1


def test_runs_in_flight_count_so_that_others_try_something_else() -> None:
    one = learner()
    ran(one, 1, 64, 10)
    first = one.choose().batch_size
    for number in range(2, 8):
        one.began(JobRun(number, first, "gpu", "running", 0, 0.0, 0.0))
    assert one.choose().batch_size != first


@pytest.mark.parametrize("family", ["smooth", "large ones fail", "largest is best", "few epochs"])
def test_regret_ends_far_below_that_of_the_default(family: str) -> None:
    def default_costs(job: JobTrace) -> float:
        place = job.terms.batch_sizes.index(job.terms.default)
        return float(job.mean_cost().min(axis=1)[place] / job.best_cost() - 1.0)

    jobs = [made_job(family, seed) for seed in range(300, 340)]
    jobs = [job for job in jobs if default_costs(job) > 0.5][:2]
    for job in jobs:
        regret = simulate(job, lambda trace: Learner(trace.terms, trace.device), 40, 0).regret
        assert regret[-1] < 0.6 * 40 * default_costs(job)
        assert regret[-1] - regret[19] < 20 * 0.5 * default_costs(job)


def calls_of(decide: Callable[[], object]) -> int:
    """How many functions are called: a measure of work that does not depend on how busy the machine is."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        decide()
    finally:
        sys.setprofile(None)
    return calls


def test_a_decision_takes_no_more_work_after_many_runs() -> None:
    one, calls = learner(), []
    for number in range(1, 81):
        ran(one, number, SIZES[number % 5], 10)
        if number in (20, 80):
            calls.append(calls_of(one.choose))
    assert calls[1] < 1.2 * calls[0]
    assert calls[1] < 2000


def test_a_batch_size_that_may_never_get_there_is_not_tried_again_before_its_first_run_has_told() -> None:
    one = learner()
    for number in range(1, 6):
        ran(one, number, 64, 10)
    unknown = []
    for number in range(6, 30):
        size = one.choose().batch_size
        one.began(JobRun(number, size, "gpu", "running", 0, 0.0, 0.0))
        if size != 64:
            unknown.append(size)
    assert unknown and len(unknown) == len(set(unknown))


@pytest.mark.parametrize(("lasts", "again"), [(1000, True), (3, True), (2, False)])
def test_a_batch_size_that_was_stopped_is_tried_again_only_for_longer(
    lasts: int, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = learner()
    for number in range(1, 4):
        ran(one, number, 64, 10)
    ran(one, 4, 32, 2, "stopped")
    monkeypatch.setattr("wastenot.jobs.plan.learner.stop_after", lambda *_: lasts)
    assert (one.choose().batch_size == 32) == again
