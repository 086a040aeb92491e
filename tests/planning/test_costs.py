"""Repeats, their errors, and the uncertainty of a plan."""

import numpy as np
import pytest

from testbed.small_sweeps import make_sweep
from wastenot.planning.costs import combine_repeats
from wastenot.planning.objective import Objective
from wastenot.planning.planner import Planner, plan


def test_repeats_are_averaged_and_their_scatter_is_the_error():
    sweep = make_sweep(
        [("a", 900, 5001, 2.0, 5.0), ("a", None, None, 1.0, 9.0), ("a", 900, 5001, 4.0, 7.0), ("a", 900, None, 3, 3)]
    )
    costs = combine_repeats(sweep)
    assert costs.setting(0).is_auto and len(costs.time_s) == 3
    place = int(np.flatnonzero(costs.memory_mhz == 5001)[0])
    assert (costs.time_s[place], costs.energy_j[place]) == (3.0, 6.0)
    assert costs.time_se_s[place] == pytest.approx(np.std([2, 4], ddof=1) / np.sqrt(2))
    assert np.isnan(costs.time_se_s[0])


def test_stated_errors_are_kept_where_they_are_the_larger():
    rows = [("a", None, None, 1.0, 9.0), ("a", None, None, 1.0, 9.0)]
    costs = combine_repeats(make_sweep(rows, time_se_s=np.array([0.3, 0.4])))
    assert costs.time_se_s[0] == pytest.approx(0.25)
    single = combine_repeats(make_sweep(rows[:1], time_se_s=np.array([0.3])))
    assert single.time_se_s[0] == 0.3


@pytest.mark.slow
def test_the_uncertainty_of_a_prediction_is_that_of_repeated_experiments():
    rng = np.random.default_rng(4)
    truth = [("a", None, None, 2.0, 9.0), ("a", 900, None, 2.0, 6.0), ("b", None, None, 1.0, 5.0)]
    relative, counts = 0.01, {"a": 3, "b": 5}
    changes, energies, errors, total_errors = [], [], [], []
    for _ in range(200):
        noise = 1 + relative * rng.standard_normal(3)
        rows = [(*row[:4], row[4] * factor) for row, factor in zip(truth, noise, strict=True)]
        ses = np.array([row[4] * relative for row in truth])
        planner = Planner(make_sweep(rows, counts=counts, energy_se_j=ses, time_se_s=ses * 0))
        made = planner.plan(Objective("energy"))
        changes.append(made.predicted.energy_change)
        energies.append(made.predicted.energy_j)
        errors.append(made.predicted.energy_change_se)
        total_errors.append(made.predicted.energy_se_j)
    # The scatter of 200 experiments is known to 5 %.
    assert np.std(changes) == pytest.approx(np.mean(errors), rel=0.15)
    assert np.std(energies) == pytest.approx(np.mean(total_errors), rel=0.15)


def test_an_unknown_error_makes_the_uncertainty_unknown():
    rows = [("a", None, None, 1.0, 9.0), ("b", None, None, 1.0, 9.0)]
    made = plan(make_sweep(rows, energy_se_j=np.array([0.1, np.nan])))
    assert made.predicted.energy_se_j is None
