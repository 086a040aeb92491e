"""Plans that keep a budget with a confidence, against enumeration and against the truth of made-up GPUs."""

from itertools import product

import numpy as np
import pytest

from testbed.binomial import ENOUGH, least_hits
from testbed.noisy_gpu import Truth
from testbed.small_sweeps import make_sweep, random_sweep
from wastenot.core.errors import BadInputError, InfeasibleError
from wastenot.frontiers.knapsack import cheapest_within
from wastenot.planning.noise.confidence import ConfidentChoice
from wastenot.planning.noise.expectation import Excess, excess, probability_kept
from wastenot.planning.objective import Objective
from wastenot.planning.planner import Planner, plan


def random_excess(rng, units, options, common):
    def parts(low, high, *shape):
        return rng.uniform(low, high, (units * options, *shape))

    auto = np.arange(units * options) % options == 0
    mean = np.where(auto, 0.0, parts(-1, 2))
    variance = np.where(auto, 0.0, parts(0.01, 0.5))
    loading = np.where(auto[:, None], 0.0, common * parts(-1, 1, 2))
    return Excess(np.arange(units + 1) * options, mean, variance, loading, parts(1, 9), parts(1, 3))


def enumerated(over, confidence, score):
    choice = ConfidentChoice.of(over, confidence)
    sizes = map(range, np.diff(over.start))
    return min(score(options) for options in product(*sizes) if choice.keeps(options))


def total(over, name, options):
    return getattr(over, name)[over.start[:-1] + np.array(options)].sum(axis=0)


def time_over(over, options):
    """Mean and standard deviation of a plan's time over the budget."""
    variance_s2 = total(over, "variance_s2", options) + np.sum(total(over, "common_s", options) ** 2)
    return total(over, "mean_s", options), np.sqrt(variance_s2)


@pytest.mark.parametrize("confidence", [0.6, 0.9, 0.999])
def test_the_best_of_all_is_found_where_units_are_independent(rng, confidence):
    for _ in range(15):
        over = random_excess(rng, units=5, options=4, common=0.0)
        found = ConfidentChoice.of(over, confidence).least(over.energy_j)
        best = enumerated(over, confidence, lambda options, over=over: total(over, "energy_j", options))
        assert ConfidentChoice.of(over, confidence).keeps(found.options)
        assert found.cost == pytest.approx(total(over, "energy_j", found.options))
        assert found.cost == pytest.approx(best, rel=2e-5)
        assert found.lower_bound <= best * (1 + 1e-9)
        assert found.lower_bound >= best * (1 - 0.02)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_search_ends_where_no_better_plan_can_stay_as_far_below_the_budget(seed, monkeypatch):
    solved = []

    def counted(*arguments):
        solved.append(arguments)
        return cheapest_within(*arguments)

    monkeypatch.setattr("wastenot.planning.noise.confidence.cheapest_within", counted)
    over = random_excess(np.random.default_rng(seed), units=30, options=8, common=0.3)
    found = ConfidentChoice.of(over, 0.95, 1.0).least(over.energy_j)
    assert len(solved) < 150  # each search that goes on to the last halving takes a hundred
    assert found.cost * 0.98 < found.lower_bound < found.cost


def test_common_errors_are_kept_within_and_the_bound_stays_valid(rng):
    losses = []
    for _ in range(25):
        over = random_excess(rng, units=5, options=4, common=0.3)
        found = ConfidentChoice.of(over, 0.9).least(over.energy_j)
        best = enumerated(over, 0.9, lambda options, over=over: total(over, "energy_j", options))
        assert probability_kept(*time_over(over, found.options)) >= 0.9 - 1e-12
        assert found.lower_bound <= best * (1 + 1e-9)
        losses.append(found.cost / best - 1)
    assert np.median(losses) < 0.01 and min(losses) > -1e-9


def test_edp_keeps_the_confidence_and_is_near_the_best(rng):
    losses = []
    for _ in range(15):
        over = random_excess(rng, units=4, options=4, common=0.1)
        found = ConfidentChoice.of(over, 0.9).least_edp(1.0)

        def edp(options, over=over):
            return total(over, "energy_j", options) * total(over, "time_s", options)

        assert probability_kept(*time_over(over, found.options)) >= 0.9 - 1e-12
        losses.append(edp(found.options) / enumerated(over, 0.9, edp) - 1)
    assert np.median(losses) < 0.01 and min(losses) > -1e-9


@pytest.mark.slow
@pytest.mark.parametrize(("stated", "kernels"), [(True, 6), (False, 12)])  # where errors are estimated it is the tighter
def test_the_confidence_holds_in_truth(stated, kernels):
    kept = {0.8: 0, 0.95: 0}
    for seed in range(ENOUGH):
        rng = np.random.default_rng(seed)
        truth = Truth.drawn(rng, kernels=kernels)
        planner = Planner(truth.sweep(rng, 0.005, 0.005, stated=stated))
        for confidence in kept:
            objective = Objective("waste", 0.01, confidence=confidence)
            rows = planner.measured.rows(planner.choose(objective).options)
            kept[confidence] += truth.changes(planner.costs, rows)[0] <= 0.01
            assert planner.expected(rows, objective).probability_within_budget >= confidence - 1e-9
    assert all(number >= least_hits(ENOUGH, confidence) for confidence, number in kept.items())


def test_the_optimum_of_the_numbers_as_measured_is_not_to_be_trusted():
    rng = np.random.default_rng(0)
    planner = Planner(Truth.drawn(rng).sweep(rng, 0.005, 0.005))
    assert planner.plan(Objective("waste", 0.01)).expected.probability_within_budget < 0.5


@pytest.mark.parametrize("scope", ["global", "local"])
@pytest.mark.parametrize("granularity", ["kernel", "pass", "iteration"])
def test_strict_plans_with_confidence_are_always_possible(rng, scope, granularity):
    for kernels, settings in ((3, 10), (12, 12)):
        sweep = random_sweep(rng, kernels, settings, passes=2)
        made = plan(sweep, Objective(confidence=0.99), granularity=granularity, scope=scope)
        assert made.expected.probability_within_budget >= 0.99 - 1e-9 or scope == "local"
        assert 0.0 <= made.certificate.gap < 0.5
        assert made.certificate.lower_bound_j <= made.expected.energy_j


def test_local_units_each_keep_it():
    rng = np.random.default_rng(8)
    sweep = Truth.drawn(rng, kernels=9).sweep(rng, 0.005, 0.005)
    planner = Planner(sweep)
    local = planner.choose(Objective("waste", 0.01, confidence=0.9), "local")
    for unit, option in zip(planner.units, local.options, strict=True):
        assert probability_kept(*time_over(excess([unit], planner.posteriors, 0.01), (option,))) >= 0.9 - 1e-12


def test_refusals(rng):
    rows = [("a", None, None, 1.0, 2.0), ("a", 900, None, 0.9, 1.0)]
    with pytest.raises(BadInputError, match="how noisy"):
        plan(make_sweep(rows), Objective(confidence=0.9))
    sweep = random_sweep(rng, 3, 12)
    with pytest.raises(InfeasibleError, match="faster is possible") as refused:
        plan(sweep, Objective("waste", -0.9, confidence=0.9))
    with pytest.raises(InfeasibleError, match="allow more time"):
        plan(sweep, Objective("waste", refused.value.least_slowdown + 1e-6, confidence=0.999))
    for wrong in (0.5, 1.0, 95.0, float("nan")):
        with pytest.raises(BadInputError, match=r"such as 0\.95"):
            Objective(confidence=wrong)
    with pytest.raises(BadInputError, match="no slowdown limit"):
        Objective("energy", confidence=0.9)
    with pytest.raises(BadInputError, match="no slowdown limit"):
        Objective("edp", confidence=0.9)
