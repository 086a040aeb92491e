"""Changes of a job's data are detected, and nothing else is."""

import numpy as np
import pytest

from wastenot.jobs.model.epochs import Epochs

OCTAVES = np.log2(np.array([16.0, 32.0, 64.0, 128.0, 256.0]))


def _known(runs: int, *, typical: float = 20.0, noise: float = 0.1, seed: int = 0) -> tuple[Epochs, np.random.Generator]:
    rng = np.random.default_rng(seed)
    epochs = Epochs(OCTAVES, 2)
    for run in range(runs):
        place = run % 3 + 1 if run < 9 else 2
        epochs.ended(place, round(typical * np.exp(noise * rng.standard_normal())), "reached")
    return epochs, rng


def test_runs_as_ever_are_hardly_ever_a_change() -> None:
    assert sum(_known(80, seed=seed)[0].changes for seed in range(10)) <= 1


def test_one_run_that_is_far_off_is_no_change() -> None:
    epochs, _ = _known(30)
    epochs.ended(2, 34, "reached")
    for _ in range(6):
        epochs.ended(2, 20, "reached")
    assert epochs.changes == 0
    assert np.exp(epochs.belief().mean[2]) == pytest.approx(20.0, rel=0.1)


@pytest.mark.parametrize(("then", "changes"), [((40, 40, 40), 0), ((58, 58, 58, 58), 1)])
def test_runs_of_a_batch_size_that_scatters_more_than_others_are_judged_by_its_own_scatter(
    then: tuple[int, ...], changes: int
) -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        epochs = Epochs(OCTAVES, 2)
        for _ in range(12):
            for place in (1, 3):
                epochs.ended(place, round(40.0 * np.exp(0.05 * rng.standard_normal())), "reached")
            epochs.ended(2, int(rng.choice([26, 28, 30, 31, 40])), "reached")
        for needed in then:
            epochs.ended(2, needed, "reached")
        assert epochs.changes == changes


@pytest.mark.parametrize("now", [12.0, 34.0])
def test_a_level_that_changes_is_detected_within_a_few_runs(now: float) -> None:
    for seed in range(10):
        epochs, rng = _known(40, seed=seed)
        needed, before = 0, epochs.changes
        while epochs.changes == before:
            needed += 1
            assert needed <= 6
            epochs.ended(2, round(now * np.exp(0.1 * rng.standard_normal())), "reached")
        assert np.exp(epochs.belief().mean[2]) == pytest.approx(now, rel=0.25)


def test_runs_that_no_longer_reach_the_target_tell_of_a_change() -> None:
    epochs, _ = _known(40)
    for _ in range(3):
        epochs.ended(2, 32, "stopped")
    assert epochs.changes == 1
    assert epochs.belief().mean[2] > np.log(25.0)


@pytest.mark.parametrize("runs", [6, 12, 20])
def test_a_batch_size_that_fails_again_and_again_is_a_change_however_short_its_past(runs: int) -> None:
    for seed in range(4):
        epochs, _ = _known(runs, noise=0.3, seed=seed)
        for needed in (32, 32, 32, 60, *(140,) * 8):
            epochs.ended(2, needed, "missed" if needed == 140 else "stopped")
        assert epochs.changes >= 1


def test_after_a_change_other_batch_sizes_are_open_again() -> None:
    epochs, _ = _known(40)
    before = epochs.belief().covariance
    for _ in range(5):
        epochs.ended(2, 36, "reached")
    after = epochs.belief().covariance
    assert epochs.changes == 1
    for place in (1, 3):
        assert after[place, place] > 4.0 * before[place, place]
    assert epochs.reached.tolist() == [0.0, 0.0, 5.0, 0.0, 0.0]


def test_batch_sizes_that_failed_may_work_after_a_change() -> None:
    epochs, _ = _known(40)
    for _ in range(4):
        epochs.ended(4, 60, "missed")
    assert epochs.changes == 0
    before = float(epochs.reaching.chance()[4])
    for _ in range(5):
        epochs.ended(2, 9, "reached")
    assert epochs.changes == 1
    assert epochs.reaching.chance()[4] > 2.0 * before
