"""Our simulator against Zeus' own, with Zeus' policy in both; and our policy against Zeus'."""

from pathlib import Path

import numpy as np
import pytest

from wastenot.jobs.judge.simulate import simulate
from wastenot.jobs.plan.learner import Learner


@pytest.fixture(scope="module")
def zeus_jobs():
    """Zeus, imported where it is run: it takes pandas along."""
    return pytest.importorskip("benchmarks.zeus_jobs")


@pytest.fixture(scope="module")
def jobs(zeus_jobs, shared_data: Path):
    return {job.job.dataset: job for job in zeus_jobs.read_jobs()}


def _regrets(made) -> np.ndarray:
    return np.array([each.regret[-1] for each in made])


@pytest.mark.parametrize("dataset", ["sentiment140", pytest.param("imagenet", marks=pytest.mark.slow)])
def test_zeus_loses_as_much_in_our_simulator_as_in_its_own(zeus_jobs, jobs, dataset) -> None:
    job, seeds = jobs[dataset], range(4)
    own = _regrets(zeus_jobs.zeus_recurrences(job, 0.5, seed) for seed in seeds)
    here = _regrets(
        simulate(job.trace, lambda trace, seed=seed: zeus_jobs.ZeusPolicy(trace, job.job, seed), job.recurrences, seed)
        for seed in seeds
    )
    error = np.sqrt((own.var(ddof=1) + here.var(ddof=1)) / len(seeds))
    # Its own divides a first epoch among all limits, of which each batch size pays a few per cent.
    assert abs(own.mean() - here.mean()) < 4.0 * error + 0.05 * own.mean() + 0.1


def test_every_run_of_zeus_is_in_the_account(zeus_jobs, jobs) -> None:
    job = jobs["imagenet"]
    made = zeus_jobs.zeus_recurrences(job, 0.5, 0)
    assert job.recurrences == 112 == made.best_cost.size
    assert sum(run.outcome == "reached" for run in made.runs) == 112
    assert len(made.runs) > 112  # batch size 64 never gets there
    assert made.regret[-1] == pytest.approx(made.costs.sum() / job.trace.best_cost() - 112)


@pytest.mark.slow
def test_ours_loses_less_where_zeus_must_try_every_batch_size(zeus_jobs, jobs) -> None:
    job = jobs["cifar100"]
    zeus = _regrets(zeus_jobs.zeus_recurrences(job, 0.5, seed) for seed in range(2))
    ours = _regrets(
        simulate(job.trace, lambda trace: Learner(trace.terms, trace.device), job.recurrences, s) for s in range(2)
    )
    assert ours.mean() < zeus.mean()
