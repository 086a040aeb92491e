"""What becomes of a job when its data or its GPU change."""

import numpy as np
import pytest

from testbed.job_changes import best_moved, on_another_device, shifted
from wastenot.jobs.judge.made import made_job, made_jobs
from wastenot.jobs.judge.simulate import simulate
from wastenot.jobs.plan.decision import Decision, Verdict
from wastenot.jobs.plan.learner import Learner
from wastenot.jobs.tables.records import JobRun


def test_epochs_move_to_larger_batch_sizes() -> None:
    job = made_job("large ones fail", 3)
    before, after = job.epochs, shifted(job, 1.0).epochs
    sizes = job.terms.batch_sizes
    octave = round(1.0 / (np.log2(sizes[1]) - np.log2(sizes[0])))
    for smaller, larger in zip(sizes, sizes[octave:], strict=False):
        assert np.isinf(after[larger]).tolist() == np.isinf(before[smaller]).tolist()
        finite = np.isfinite(before[smaller])
        assert np.array(after[larger])[finite] == pytest.approx(np.array(before[smaller])[finite], rel=0.02)


def test_harder_jobs_need_more_epochs() -> None:
    job = made_job("flat", 1)
    size = job.terms.default
    assert np.mean(shifted(job, 0.0, harder=3.0).epochs[size]) == pytest.approx(3.0 * np.mean(job.epochs[size]), rel=1e-6)


def test_the_best_batch_size_moves_by_the_factor() -> None:
    moved = 0
    for job in made_jobs(range(3)):
        for factor in (4.0, 0.25):
            after = best_moved(job, factor)
            if after is None:
                continue
            moved += 1
            costs = after.mean_cost().min(axis=1)
            was = int(job.mean_cost().min(axis=1).argmin())
            ratio = after.terms.batch_sizes[int(costs.argmin())] / job.terms.batch_sizes[was]
            assert abs(np.log2(ratio / factor)) < 0.5
            assert costs[was] >= 1.1 * costs.min()
    assert moved > 10


def test_another_device_needs_as_many_epochs() -> None:
    job = made_job("smooth", 2)
    other = on_another_device(job, 5)
    assert other.epochs == job.epochs
    assert other.device != job.device
    assert other.epoch_time_s.shape == other.power_w.shape == (len(job.terms.batch_sizes), len(other.terms.settings))
    assert np.all(np.diff(other.epoch_time_s, axis=1) >= 0.0)
    assert np.all(np.diff(other.power_w, axis=1) <= 0.0)


class _Always(Learner):
    def choose(self) -> Decision:
        return Decision(self.terms.default, "always")

    def goes_on(self, run: JobRun) -> Verdict:
        return Verdict(True)


def test_regret_is_counted_against_the_best_of_its_time() -> None:
    job = made_job("flat", 1)
    after = shifted(job, 0.0, harder=3.0)
    made = simulate(job, lambda trace: _Always(trace.terms, trace.device), 40, 0, later=(20, after))
    assert made.best_cost[19] == job.best_cost()
    assert made.best_cost[20] == after.best_cost()
    assert np.mean([run.epochs for run in made.runs[20:]]) > 2.0 * np.mean([run.epochs for run in made.runs[:20]])
