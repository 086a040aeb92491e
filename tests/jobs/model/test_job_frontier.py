"""The frontier of a job, against brute force over its pairs."""

from itertools import product

import pytest

from wastenot.core.errors import BadInputError, InfeasibleError
from wastenot.core.setting import AUTO, Setting
from wastenot.jobs.model.frontier import (
    epochs_to_target,
    least_energy,
    least_time,
    pairs_of,
    pareto_pairs,
    setup_of,
)
from wastenot.jobs.tables.records import JobRun, Speed

LIMITS = tuple(Setting(power_limit_w=watts) for watts in (250.0, 200.0, 150.0))
EPOCHS = {32: 6, 64: 7, 128: 12}


def run(number, size, outcome="reached", epochs=5):
    return JobRun(number, size, "gpu", outcome, epochs, 10.0, 100.0)


def pairs():
    runs = [run(index, size, epochs=epochs) for index, (size, epochs) in enumerate(EPOCHS.items())]
    speeds = [
        Speed("gpu", size, setting, 100.0 * (64 / size) ** 0.7 * (250 / setting.power_limit_w) ** 0.3, setting.power_limit_w)
        for size, setting in product(EPOCHS, LIMITS)
    ]
    return pairs_of(speeds, "gpu", epochs_to_target(runs))


def test_the_frontier_is_that_of_brute_force():
    all_pairs = pairs()
    best = [
        one
        for one in all_pairs
        if not any(
            (other.time_s, other.energy_j) != (one.time_s, one.energy_j)
            and other.time_s <= one.time_s
            and other.energy_j <= one.energy_j
            for other in all_pairs
        )
    ]
    assert len(all_pairs) == 9
    assert list(pareto_pairs(all_pairs)) == sorted(best, key=lambda pair: pair.time_s)


@pytest.mark.parametrize("within_s", [700.0, 800.0, 1000.0, 2000.0])
def test_least_energy_within_a_time(within_s):
    expected = min((pair for pair in pairs() if pair.time_s <= within_s), key=lambda pair: pair.energy_j)
    assert least_energy(pairs(), within_s) == expected


@pytest.mark.parametrize("budget_w", [150.0, 210.0, 300.0])
def test_least_time_under_a_power_budget(budget_w):
    expected = min((pair for pair in pairs() if pair.power_w <= budget_w), key=lambda pair: pair.time_s)
    assert least_time(pairs(), budget_w) == expected


def test_what_cannot_be_had_says_what_can():
    with pytest.raises(InfeasibleError, match=r"within_s 1: .* the fastest takes"):
        least_energy(pairs(), 1.0)
    with pytest.raises(InfeasibleError, match=r"power_budget_w 50: .* the lowest power is 150 W"):
        least_time(pairs(), 50.0)
    with pytest.raises(BadInputError, match="no run has reached the target"):
        least_energy(())


def test_runs_that_did_not_get_there_count_and_lost_ones_do_not():
    runs = [run(1, 32, epochs=5), run(2, 32, epochs=7), run(3, 32, "missed", 12), run(4, 32, "stopped", 4)]
    runs += [run(5, 32, "lost", 3), run(6, 32, "failed", 9), run(7, 64, "missed", 20)]
    found = epochs_to_target(runs)
    assert list(found) == [32]
    assert (found[32].mean, found[32].reached, found[32].failed) == (14.0, 2, 2)
    assert found[32].error == pytest.approx(1.0 / 14.0)  # a standard deviation of sqrt(2), of two runs


def test_epochs_of_other_devices_count_and_their_speeds_do_not():
    speeds = [Speed("gpu", 32, AUTO, 10.0, 100.0), Speed("other", 32, AUTO, 1.0, 1.0)]
    elsewhere = JobRun(1, 32, "other", "reached", 4, 4.0, 4.0)
    (pair,) = pairs_of(speeds, "gpu", epochs_to_target([elsewhere]))
    assert (pair.time_s, pair.energy_j, pair.forecast) == (40.0, 4000.0, False)


def test_a_forecast_says_that_it_is_one():
    (pair,) = pairs_of([Speed("gpu", 32, AUTO, 10.0, 100.0)], "gpu", {}, {32: 5.5, 64: 9.0})
    assert (pair.forecast, pair.time_s) == (True, 55.0)


def test_without_energies_the_fastest_pair_is_the_frontier():
    speeds = [Speed("cpu", size, AUTO, 100.0 / size, None) for size in EPOCHS]
    found = pairs_of(speeds, "cpu", {}, dict.fromkeys(EPOCHS, 3.0))
    assert [pair.batch_size for pair in pareto_pairs(found)] == [128]
    assert least_time(found).batch_size == 128
    with pytest.raises(BadInputError, match="energy is not measured"):
        least_energy(found, 100.0)


def test_what_runs_take_beside_their_epochs_is_part_of_the_way():
    speeds = [Speed("gpu", 32, AUTO, 10.0, 100.0)]
    times = {1: 55.0, 2: 53.0, 3: 90.0}  # of five epochs: 5, 3 and 40 s besides
    runs = [JobRun(number, 32, "gpu", "reached", 5, time_s, 100.0 * time_s) for number, time_s in times.items()]
    setup = setup_of(runs, speeds, "gpu")
    assert (setup.time_s, setup.energy_j) == (5.0, 500.0)
    (pair,) = pairs_of(speeds, "gpu", epochs_to_target(runs), setup=setup)
    assert (pair.time_s, pair.energy_j) == (55.0, 5500.0)
    missed = JobRun(4, 32, "gpu", "missed", 5, 55.0, 5500.0)
    (pair,) = pairs_of(speeds, "gpu", epochs_to_target([*runs[:1], missed]), setup=setup)
    assert (pair.time_s, pair.energy_j) == (110.0, 11_000.0)  # the failed one has to be set up as well
    assert setup_of(runs, speeds, "other").time_s == 0.0
