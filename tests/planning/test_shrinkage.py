"""What is believed of true costs after a noisy sweep, against the truth of made-up GPUs."""

import numpy as np
import pytest

from testbed.binomial import least_hits
from testbed.noisy_gpu import Truth
from testbed.small_sweeps import make_sweep, random_sweep
from testbed.tables import Noise, Table
from wastenot.planning.noise.designs import FEW_SETTINGS
from wastenot.planning.objective import Objective
from wastenot.planning.plan_file import read_plan
from wastenot.planning.planner import Planner, plan

SEEDS = 40


def planned(seed, *noise, kernels=None, **about):
    rng = np.random.default_rng(seed)
    truth = Truth.drawn(rng, kernels=kernels)
    return truth, Planner(truth.sweep(rng, *noise, **about))


@pytest.mark.slow
@pytest.mark.parametrize(("repeats", "remaining"), [(2, 0.25), (1, 0.6)])
def test_predictions_are_biased_and_expectations_are_not(repeats, remaining):
    """Beside the promise of the optimum as measured, which is what one reading without an error is planned by.

    Of such a reading nobody knows how much of its scatter is noise: half of it is taken as such.
    """
    default, as_measured, found = Objective(), Objective(as_measured=True), []
    for seed in range(SEEDS):
        truth, planner = planned(seed, 0.005, 0.005, kernels=12, repeats=repeats)
        rows, lucky = (planner.measured.rows(planner.choose(each).options) for each in (default, as_measured))
        expected, naive = planner.expected(rows, default), planner.totals(lucky)
        for true, lucky_true, promised, ours, (low, high) in zip(
            truth.changes(planner.costs, rows),
            truth.changes(planner.costs, lucky),
            (naive.time_change, naive.energy_change),
            (expected.time_change, expected.energy_change),
            (expected.time_change_interval, expected.energy_change_interval),
            strict=True,
        ):
            found.append((promised - lucky_true, ours - true, low <= true <= high))
    biased, ours, covered = np.array(found).reshape(SEEDS, 2, 3).transpose(2, 1, 0)
    assert (biased.mean(axis=1) < -0.0005).all()
    assert (np.abs(ours.mean(axis=1)) < remaining * np.abs(biased.mean(axis=1))).all()
    assert (covered.sum(axis=1) >= least_hits(SEEDS)).all()


def test_posterior_means_are_nearer_to_the_truth_than_measurements_and_their_errors_are_right():
    truth, planner = planned(5, 0.01, 0.01, repeats=2)
    costs, posterior = planner.costs, planner.posteriors
    order = np.lexsort((np.nan_to_num(truth.core_mhz), np.nan_to_num(truth.memory_mhz)))
    order = np.array([
        next(i for i in order if np.array_equal([truth.core_mhz[i], truth.memory_mhz[i]], [core, memory], equal_nan=True))
        for core, memory in zip(costs.core_mhz[:41], costs.memory_mhz[:41], strict=True)
    ])  # fmt: skip
    for true, measured, believed in (
        (truth.time_s[:, order].ravel(), costs.time_s, posterior.time_s),
        (truth.energy_j[:, order].ravel(), costs.energy_j, posterior.energy_j),
    ):
        assert np.std(believed.mean / true) < 0.7 * np.std(measured / true)
        deviation = (believed.mean - true) / np.sqrt(believed.variance + (believed.common[:] ** 2).sum(axis=1))
        assert np.std(deviation) == pytest.approx(1.0, abs=0.2)


def test_without_noise_beliefs_are_what_was_measured():
    _, planner = planned(1, 0.0, 0.0)
    assert planner.posteriors.time_s.mean == pytest.approx(planner.costs.time_s, rel=2e-4)
    assert planner.posteriors.energy_j.mean == pytest.approx(planner.costs.energy_j, rel=2e-4)


def test_a_few_kernels_do():
    truth, planner = planned(2, 0.005, 0.005, kernels=3)
    made = planner.plan(Objective())
    low, high = made.expected.time_change_interval
    assert low < made.expected.time_change < high
    assert len(truth.kernels) <= 4


def test_nothing_known_of_noise_and_too_few_settings_expects_nothing(rng):
    sweep = random_sweep(rng, kernels=3, settings=FEW_SETTINGS - 1)
    assert plan(sweep).expected is None
    assert "expected" not in plan(sweep).document()


def test_stated_errors_serve_where_there_are_few_settings():
    rows = [("a", None, None, 2.0, 9.0), ("a", 900, None, 2.0, 6.0), ("b", None, None, 1.0, 5.0)]
    ses = np.array([0.02, 0.02, 0.01])
    made = plan(make_sweep(rows, time_se_s=ses, energy_se_j=np.array([0.3, 0.2, 0.1])), Objective("energy"))
    assert made.expected.energy_change == pytest.approx(made.predicted.energy_change, abs=1e-3)
    low, high = made.expected.energy_change_interval
    assert (high - low) / (2 * 1.96) == pytest.approx(made.predicted.energy_change_se, rel=0.05)
    assert made.expected.probability_within_budget is None


def test_whatever_is_measured_gives_finite_numbers(rng):
    for kernels, settings in ((1, 12), (3, 9), (12, 20), (9, 9)):
        expected = plan(random_sweep(rng, kernels, settings)).expected
        assert np.isfinite([expected.energy_change, *expected.energy_change_interval]).all()


def test_a_power_limit_is_one_more_axis(rng):
    rows = [("a", core, None, 2.0 - core / 2000 + 0.01 * rng.random(), 5 + core / 1000) for core in (600, 900, 1200) * 4]
    limits = np.repeat([150.0, 200.0, 250.0, 300.0], 3)
    rows.append(("a", None, None, 1.0, 7.0))
    made = plan(make_sweep(rows, power_limit_w=np.append(limits, np.nan)), Objective("waste", 0.5))
    assert np.isfinite(made.expected.energy_change)


def test_expectations_survive_the_file(tmp_path):
    _, planner = planned(3, 0.005, 0.005, kernels=9)
    made = planner.plan(Objective("waste", 0.02, confidence=0.9))
    made.write(tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == made
    assert made.objective.confidence == 0.9


def test_errors_on_few_clocks_are_those_of_shapes_that_the_same_values_chose():
    """Kernels of a roofline at five clocks: about as many numbers as the shape of each has parameters."""
    rng, deviations = np.random.default_rng(8), []
    clocks = np.array([1380.0, 802.0, 945.0, 1087.0, 1237.0, 1380.0])
    for _ in range(4):
        core, sharpness = np.exp(rng.uniform(-1.0, 1.0, (24, 1))), rng.uniform(2.0, 9.0, (24, 1))
        time = ((core * clocks[0] / clocks) ** sharpness + 1.0) ** (1.0 / sharpness)
        energy = time * (60.0 + 100.0 * (clocks / 1380.0) ** 2)
        requested = np.where(np.arange(6) == 0, np.nan, clocks)
        core_mhz, memory_mhz, limit_w = np.tile((requested, 0.0 * requested + 877.0, np.full(6, np.nan)), 24)
        table = Table("roofline", np.repeat(np.arange(24), 6), core_mhz, memory_mhz, limit_w, time.ravel(), energy.ravel())
        planner = Planner(table.sweep(rng, Noise(0.007, 0.007, 2, 0.0)))
        costs, base = planner.costs, planner.costs.start[planner.costs.kernel]
        model, true = planner.cost_model, np.log(table.of(costs)[0])
        believed = model.log_time.posterior(np.arange(len(base)))
        variance = believed.variance + believed.variance[base] - 2.0 * believed.with_baseline
        variance += ((believed.common[:] - believed.common[base]) ** 2).sum(axis=1)
        apart = true - believed.mean - model.level
        apart -= apart[base]
        away = base != np.arange(len(base))
        deviations.append(apart[away] / np.sqrt(variance[away]))
    assert 0.8 < np.sqrt(np.mean(np.square(deviations))) < 1.2
