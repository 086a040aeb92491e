import numpy as np
import pytest

from wastenot.jobs.judge.made import FAMILIES, made_job, made_jobs


@pytest.mark.parametrize("family", FAMILIES)
def test_a_made_up_job_can_be_run_at_its_default(family: str) -> None:
    for seed in range(5):
        job = made_job(family, seed)
        needed = np.array(job.epochs[job.terms.default])
        assert np.mean(needed <= job.terms.max_epochs) >= 0.9  # type: ignore[operator]
        assert np.isfinite(job.best_cost())
        assert np.all(np.diff(job.epoch_time_s, axis=1) >= 0.0), "a lower limit never runs faster"
        assert np.all(job.power_w <= job.terms.max_power_w * 1.5)


def test_the_same_seed_makes_the_same_job() -> None:
    one, other = made_job("noisy", 3), made_job("noisy", 3)
    assert one.epochs == other.epochs
    assert np.array_equal(one.epoch_time_s, other.epoch_time_s)
    assert made_job("noisy", 4).epochs != one.epochs


def test_families_differ_in_what_they_are_named_for() -> None:
    def best(family: str, seed: int) -> float:
        job = made_job(family, seed)
        return float(job.mean_cost().min(axis=1).argmin() / (len(job.terms.batch_sizes) - 1))

    seeds = range(20)
    assert np.mean([best("largest is best", seed) for seed in seeds]) > 0.8
    assert np.mean([best("smallest is best", seed) for seed in seeds]) < 0.3
    for job in made_jobs(seeds, families=("both ends fail",)):
        sizes = job.terms.batch_sizes
        assert np.isinf(job.epochs[sizes[0]]).any()
        assert np.isinf(job.epochs[sizes[-1]]).any()
