"""An iteration under a power limit, against brute force and closed forms."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import brentq

from wastenot.core.errors import BadInputError, InfeasibleError
from wastenot.planning.power_limit import ClockCosts, fastest_plan, least_energy_plan, run_iteration, stretches
from wastenot.workloads.order import Step

LIMIT_W = 700.0


def made_costs(rng: np.random.Generator, kernels: int, clocks: int) -> ClockCosts:
    """Kernels that owe their speed to the clock by 0 to all, and whose power grows with it."""
    core_mhz = np.linspace(1000.0, 2000.0, clocks)
    x = core_mhz / 1500.0
    time_s = rng.uniform(1e-4, 1e-2, (kernels, 1)) * x ** -rng.uniform(0.0, 1.0, (kernels, 1))
    power_w = rng.uniform(350.0, 950.0, (kernels, 1)) * x ** rng.uniform(0.5, 3.0, (kernels, 1))
    count = rng.integers(1, 25, kernels)
    names = tuple(f"k{kernel}" for kernel in range(kernels))
    return ClockCosts(names, count, core_mhz, time_s, power_w, np.ones(time_s.shape, dtype=bool))


def mean_power(costs: ClockCosts, columns) -> float:
    rows = np.arange(len(costs.kernels))
    return float(costs.iteration_j[rows, columns].sum() / costs.iteration_s[rows, columns].sum())


def every_plan(costs: ClockCosts):
    """(time, energy) of every choice of clocks."""
    rows = np.arange(len(costs.kernels))
    for columns in product(range(len(costs.core_mhz)), repeat=len(rows)):
        yield float(costs.iteration_s[rows, columns].sum()), float(costs.iteration_j[rows, columns].sum())


def test_the_common_clock_meets_the_limit():
    # T = 1/f and P = a f² + b of two kernels: the clock solves one equation, here by SciPy.
    clock = np.linspace(1000.0, 2000.0, 4001)
    x = clock / 1500.0
    time_s = np.array([1e-3 / x, np.full(len(x), 2e-3)])
    power_w = np.array([800.0 * x**2, 300.0 + 100.0 * x**2])
    costs = ClockCosts(("product", "light"), np.array([24, 12]), clock, time_s, power_w, np.ones(time_s.shape, bool))

    def excess(f: float) -> float:
        return 24e-3 / f * (800.0 * f**2 - 620.0) + 24e-3 * (300.0 + 100.0 * f**2 - 620.0)

    found = run_iteration(costs, 620.0)
    expected = brentq(excess, 1000.0 / 1500.0, 2000.0 / 1500.0)
    assert found.core_mhz == pytest.approx(1500.0 * expected, abs=0.02)
    assert found.power_w == pytest.approx(620.0, rel=1e-12)
    assert found.time_s == pytest.approx(24e-3 / expected + 24e-3, rel=1e-5)
    assert found.limited


def test_without_need_for_the_limit_all_run_at_the_highest_clock():
    costs = made_costs(np.random.default_rng(1), 4, 5)
    found = run_iteration(costs, 1e5)
    assert found.core_mhz == pytest.approx(2000.0)
    assert not found.limited
    assert found.time_s == pytest.approx(costs.iteration_s[:, -1].sum())
    assert found.energy_j == pytest.approx(costs.iteration_j[:, -1].sum())


def test_below_what_the_lowest_clock_draws_the_iteration_stays_there():
    costs = made_costs(np.random.default_rng(1), 4, 5)
    found = run_iteration(costs, 50.0)
    assert found.core_mhz == pytest.approx(1000.0)
    assert found.limited
    assert found.power_w > 50.0
    with pytest.raises(InfeasibleError, match=f"draws {mean_power(costs, [0] * 4):.0f} W"):
        fastest_plan(costs, 50.0)


def test_a_ceiling_on_a_light_kernel_makes_the_iteration_faster():
    clock = np.linspace(1000.0, 2000.0, 201)
    x = clock / 1500.0
    time_s = np.array([1e-3 / x, np.full(len(x), 1e-3)])  # the light kernel owes nothing to the clock
    power_w = np.array([800.0 * x**2, 450.0 * x])
    costs = ClockCosts(("product", "light"), np.array([1, 1]), clock, time_s, power_w, np.ones(time_s.shape, bool))
    free, capped = run_iteration(costs, LIMIT_W), run_iteration(costs, LIMIT_W, np.array([200, 0]))
    assert capped.core_mhz > free.core_mhz + 10.0
    assert capped.time_s < free.time_s
    assert capped.power_w == pytest.approx(LIMIT_W)
    assert capped.kernel_mhz == pytest.approx([capped.core_mhz, 1000.0])
    best = fastest_plan(costs, LIMIT_W)
    assert best.ceiling_mhz[1] == 1000.0
    assert best.iteration.time_s == pytest.approx(capped.time_s, rel=2e-3)  # to a step of clocks


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(2, 5), st.floats(400.0, 900.0))
def test_plans_are_the_best_of_all(seed, kernels, clocks, limit_w):
    costs = made_costs(np.random.default_rng(seed), kernels, clocks)
    plans = list(every_plan(costs))
    within = [(time, energy) for time, energy in plans if energy <= limit_w * time * (1 + 1e-12)]
    if not within:
        with pytest.raises(InfeasibleError):
            fastest_plan(costs, limit_w)
        return
    best = fastest_plan(costs, limit_w)
    least_s = min(time for time, _ in within)
    assert best.iteration.time_s == pytest.approx(least_s, rel=1e-9)
    assert best.lower_bound == pytest.approx(least_s, rel=1e-9)
    assert best.iteration.power_w <= limit_w * (1 + 1e-8)
    for slower in (1.0, 1.01, 1.1):
        found = least_energy_plan(costs, limit_w, slower * best.iteration.time_s)
        truly = min(energy for time, energy in within if time <= slower * best.iteration.time_s * (1 + 1e-12))
        assert found.iteration.time_s <= slower * best.iteration.time_s * (1 + 1e-9)
        assert found.iteration.power_w <= limit_w * (1 + 1e-8)
        assert found.lower_bound <= truly * (1 + 1e-9)
        assert found.iteration.energy_j >= truly * (1 - 1e-9)
        if found.lower_bound == pytest.approx(found.iteration.energy_j, rel=1e-9):
            assert found.iteration.energy_j == pytest.approx(truly, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.integers(2, 4), st.floats(500.0, 900.0))
def test_every_stretch_keeps_the_limit(seed, kernels, clocks, limit_w):
    rng = np.random.default_rng(seed)
    stretch = np.concatenate([[0, 1], rng.integers(0, 2, kernels - 2)])
    costs = replace(made_costs(rng, kernels, clocks), stretch=stretch)
    rows, parts = np.arange(kernels), [np.flatnonzero(stretch == index) for index in (0, 1)]

    def of(columns, part):
        at = rows[part], np.array(columns)[part]
        return float(costs.iteration_s[at].sum()), float(costs.iteration_j[at].sum())

    within = [
        of(columns, rows)
        for columns in product(range(clocks), repeat=kernels)
        if all(energy <= limit_w * time * (1 + 1e-12) for time, energy in (of(columns, part) for part in parts))
    ]
    if not within:
        with pytest.raises(InfeasibleError):
            fastest_plan(costs, limit_w)
        return
    best = fastest_plan(costs, limit_w)
    least_s = min(time for time, _ in within)
    assert best.iteration.time_s == pytest.approx(least_s, rel=1e-9)
    assert best.lower_bound == pytest.approx(least_s, rel=1e-9)
    free = run_iteration(costs, limit_w)
    for within_s in (least_s, max(free.time_s, least_s), 1.1 * least_s):
        found = least_energy_plan(costs, limit_w, within_s)
        truly = min(energy for time, energy in within if time <= within_s * (1 + 1e-12))
        assert found.lower_bound <= truly * (1 + 1e-9)
        assert truly * (1 - 1e-9) <= found.iteration.energy_j <= best.iteration.energy_j * (1 + 1e-9)
        assert found.iteration.time_s <= within_s * (1 + 1e-8)
        for part in parts:
            time_s, energy_j = of(found.ceiling, part)
            assert energy_j <= limit_w * time_s * (1 + 1e-8)


def test_stretches_run_at_clocks_of_their_own():
    costs = replace(made_costs(np.random.default_rng(2), 6, 101), stretch=np.array([0, 0, 0, 1, 1, 1]))
    whole = run_iteration(costs, LIMIT_W)
    for rows in (slice(0, 3), slice(3, 6)):
        part = ClockCosts(costs.kernels[rows], costs.count[rows], costs.core_mhz, costs.time_s[rows], costs.power_w[rows],
                          costs.seen[rows])  # fmt: skip
        alone = run_iteration(part, LIMIT_W)
        assert whole.kernel_mhz[rows] == pytest.approx(alone.core_mhz)
        assert whole.kernel_s[rows] == pytest.approx(alone.kernel_s)
    assert whole.core_mhz == pytest.approx(np.average(whole.kernel_mhz, weights=costs.count * whole.kernel_s))


def test_loops_are_not_divided_and_short_stretches_join_others():
    steps = [Step(1), Step(24, "layer", "forward"), Step(24, "layer", "forward"), Step(1), Step(24, "layer", "backward")]
    assert stretches(steps, [0.01, 0.5, 0.4, 0.2, 1.9]).tolist() == [0, 0, 0, 1, 1]
    assert stretches(steps, [0.01, 0.5, 0.4, 0.2, 0.3]).tolist() == [0, 0, 0, 0, 0]
    assert stretches(steps, [0.01, 0.1, 0.1, 0.2, 0.3]).tolist() == [0] * 5
    assert stretches(steps, [0.9, 0.5, 0.4, 0.9, 0.9]).tolist() == [0, 1, 1, 2, 3]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_plan_is_never_slower_than_the_iteration_without_it(seed):
    # The iteration without ceilings alternates between two clocks, which no plan can, so a step is allowed for.
    costs = made_costs(np.random.default_rng(seed), 12, 101)
    free = run_iteration(costs, LIMIT_W)
    if free.power_w > LIMIT_W * (1 + 1e-9):
        return  # above the limit even at the lowest clock
    assert fastest_plan(costs, LIMIT_W).iteration.time_s <= free.time_s * (1 + 1e-4)


def test_only_known_clocks_are_planned_besides_those_up_to_the_common_one():
    costs = made_costs(np.random.default_rng(5), 6, 41)
    seen = np.zeros(costs.seen.shape, dtype=bool)
    seen[:3, 10:16] = True
    seen[3:, 20:] = True
    limit_w = mean_power(costs, [18] * 6)
    part = replace(costs, seen=seen)
    free = run_iteration(part, limit_w)
    assert free.core_mhz == pytest.approx(costs.core_mhz[18])
    assert free.extrapolated.all()
    plan = fastest_plan(part, limit_w)
    assert np.all((plan.ceiling[:3] >= 10) & (plan.ceiling[:3] <= 18))
    assert np.all((plan.ceiling[3:] >= 18) & (plan.ceiling[3:] <= 40))
    whole = fastest_plan(costs, limit_w)
    assert whole.iteration.time_s <= plan.iteration.time_s <= free.time_s * (1 + 1e-9)


@pytest.mark.parametrize("limit_w", [0.0, -5.0, float("nan"), float("inf")])
def test_a_limit_is_a_power(limit_w):
    with pytest.raises(BadInputError, match="power_limit_w"):
        run_iteration(made_costs(np.random.default_rng(1), 2, 3), limit_w)


def test_a_time_that_no_plan_keeps_is_refused():
    costs = made_costs(np.random.default_rng(3), 4, 6)
    fastest = fastest_plan(costs, LIMIT_W)
    with pytest.raises(InfeasibleError, match="the fastest plan takes"):
        least_energy_plan(costs, LIMIT_W, 0.9 * fastest.iteration.time_s)
