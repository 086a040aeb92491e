"""What carries over between GPUs and data."""

import numpy as np
import pytest

from wastenot.core.setting import AUTO
from wastenot.jobs.model.epoch_costs import EpochCosts
from wastenot.jobs.model.transfer import shifted_shapes
from wastenot.jobs.plan.learner import Learner
from wastenot.jobs.tables.records import JobRun, JobTerms, Speed

SIZES = (16, 32, 64, 128, 256, 512)
OCTAVES = np.log2(np.array(SIZES, dtype=np.float64))
TERMS = JobTerms("job", SIZES, 64, 1.0, eta=0.0, max_power_w=1.0)


def _time_s(size: int, full: float) -> float:
    return 10.0 * (1.0 + full / size)


def test_a_curve_is_shifted_along_the_batch_sizes() -> None:
    curve = np.log(1.0 + 2.0 ** (OCTAVES - 7.0))
    up, stays, down = shifted_shapes(curve, OCTAVES, np.array([1.0, 0.0, -1.0]), below=(-1.0, 0.0), above=(0.0, 1.0))
    assert stays == pytest.approx(curve)
    assert up[1:] == pytest.approx(curve[:-1])
    assert down[:-1] == pytest.approx(curve[1:])
    assert up[0] == pytest.approx(curve[0])  # it did not rise towards small ones
    assert curve[-1] < down[-1] <= curve[-1] + np.log(2.0)


def test_a_single_batch_size_has_nothing_to_shift_along() -> None:
    assert shifted_shapes(np.array([2.0]), np.array([5.0]), np.array([1.0]), below=(-1.0, 0.0), above=(0.0, 1.0)) == 2.0


def test_one_measurement_tells_the_costs_of_the_others_on_a_gpu_like_another() -> None:
    cold, warm = EpochCosts(TERMS, "new"), EpochCosts(TERMS, "new")
    for size in SIZES:
        warm.measured(Speed("old", size, AUTO, _time_s(size, 90.0), 200.0))
    for costs in (cold, warm):
        costs.measured(Speed("new", 64, AUTO, 0.3 * _time_s(64, 90.0), 300.0))
    true = np.log([0.3 * _time_s(size, 90.0) for size in SIZES])
    error = np.abs(warm.belief().mean - true)
    assert error.max() < 0.12
    assert error.max() < np.abs(cold.belief().mean - true).max()
    assert np.all(error < 3.0 * np.sqrt(np.diagonal(warm.belief().covariance)))


def test_a_gpu_that_fills_up_later_is_recognised() -> None:
    costs = EpochCosts(TERMS, "new")
    for size in SIZES:
        costs.measured(Speed("old", size, AUTO, _time_s(size, 60.0), 200.0))
    for size in (64, 256):
        costs.measured(Speed("new", size, AUTO, _time_s(size, 240.0), 300.0))
    true = np.log([_time_s(size, 240.0) for size in SIZES])
    assert costs.belief().mean[1:] == pytest.approx(true[1:], abs=0.15)
    assert costs.belief().mean[0] == pytest.approx(true[0], abs=3.0 * np.sqrt(costs.belief().covariance[0, 0]))


def test_settings_of_another_device_are_not_those_of_this_one() -> None:
    costs = EpochCosts(TERMS, "new")
    costs.measured(Speed("old", 64, AUTO, 1.0, 200.0))
    assert costs.known
    assert costs.setting(64) is None


def _replayed(device: str) -> Learner:
    learner = Learner(TERMS, device)
    for size in SIZES:
        learner.measured(Speed("old", size, AUTO, _time_s(size, 60.0), 200.0))
    for number, size in enumerate((64, 128, 64, 32, 256, 512, *(128,) * 20), start=1):
        needed = round(20 * (1.0 + size / 128))
        learner.ended(JobRun(number, size, "old", "reached", needed, 1.0, 1.0))
    return learner


def test_a_job_known_elsewhere_begins_with_what_was_best_there() -> None:
    choice = _replayed("new").choose()
    assert choice.batch_size in (64, 128)
    assert "default" not in choice.why


def test_what_does_not_fit_elsewhere_may_fit_here() -> None:
    for device, left in (("old", SIZES[:4]), ("new", SIZES)):
        learner = _replayed(device)
        learner.ended(JobRun(99, 256, "old", "no memory", 0, 1.0, 1.0))
        outlook = learner.choose().outlook
        assert tuple(each.batch_size for each in outlook) == left
