"""The solver against an independent one (SciPy's HiGHS), enumeration, and exact arithmetic."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from testbed.highs import solve_with_milp
from testbed.knapsack_instances import GENERATORS, budget_s
from wastenot.core.errors import InfeasibleError
from wastenot.frontiers.knapsack import Knapsack
from wastenot.frontiers.pareto import Groups

LOOSENESS = (0.0, 0.001, 0.02, 0.1, 0.3, 0.7, 1.0)  # tight to slack


def exact(groups: Groups, options: np.ndarray) -> Fraction:
    return sum(map(Fraction, groups.time_s[options].tolist()), Fraction(0))


def check_plan(groups: Groups, options: np.ndarray, budget: float) -> None:
    assert (np.searchsorted(groups.start, options, side="right") - 1 == np.arange(len(groups))).all()
    assert exact(groups, options) <= Fraction(budget)


@pytest.mark.slow
@pytest.mark.parametrize("kind", GENERATORS)
@pytest.mark.parametrize(("sizes", "instances"), [((2, 7, 2, 9), 300), ((8, 30, 4, 20), 40)])
def test_agrees_with_milp(kind, sizes, instances):
    rng = np.random.default_rng([sum(map(ord, kind)), instances])
    few, many, narrow, wide = sizes
    for _ in range(instances if kind != "correlated" else instances // 4):
        groups = GENERATORS[kind](rng, int(rng.integers(few, many)), int(rng.integers(narrow, wide)))
        budget = budget_s(groups, float(rng.choice(LOOSENESS)))
        found = Knapsack(groups).least_energy(budget)
        check_plan(groups, found.options, budget)
        assert found.gap == 0.0
        reference = solve_with_milp(groups, budget)
        if reference is not None and exact(groups, reference) <= Fraction(budget):
            assert found.energy_j <= groups.energy_j[reference].sum() * (1 + 1e-9)
        if reference is not None and exact(groups, reference) <= Fraction(budget) * Fraction(1 - 1e-9):
            assert found.energy_j == pytest.approx(groups.energy_j[reference].sum(), rel=1e-9)


small = st.lists(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=4), min_size=1, max_size=4)


def enumerate_plans(points: list[list[tuple[int, int]]], scale: float):
    for plan in product(*points):
        yield sum(Fraction(time * scale) for time, _ in plan), sum(energy for _, energy in plan)


@settings(max_examples=200)
@given(small, st.integers(1, 40), st.sampled_from([1.0, 0.1, 1 / 3, 1e-7]), st.floats(0, 3))
def test_agrees_with_enumeration_where_times_tie(points, budget, scale, exponent):
    """Times such as 0.1 + 0.2 against 0.3: rounding decides nothing."""
    flat = [point for group in points for point in group]
    start = np.cumsum([0] + [len(group) for group in points])
    groups = Groups(np.array([time * scale for time, _ in flat]), np.array([float(energy) for _, energy in flat]), start)
    limit = Fraction(budget * scale)
    allowed = [(time, energy) for time, energy in enumerate_plans(points, scale) if time <= limit]
    problem = Knapsack(groups)
    if not allowed:
        with pytest.raises(InfeasibleError):
            problem.least_energy(limit)
        with pytest.raises(InfeasibleError):
            problem.least_edp(exponent, limit)
        return
    found = problem.least_energy(limit)
    assert exact(groups, found.options) <= limit
    assert found.energy_j == found.lower_bound_j == min(energy for _, energy in allowed)
    for plans, answer in (
        (allowed, problem.least_edp(exponent, limit)),
        (list(enumerate_plans(points, scale)), problem.least_edp(exponent)),
    ):
        best = min(np.log(energy) + exponent * np.log(float(time)) for time, energy in plans)
        reached = np.log(answer.energy_j) + exponent * np.log(float(exact(groups, answer.options)))
        assert reached == pytest.approx(best, abs=1e-9)
        assert answer.options.tolist() and (plans is not allowed or exact(groups, answer.options) <= limit)


@pytest.mark.parametrize("kind", GENERATORS)
def test_hull_vertices_are_the_hull_of_all_plans(kind):
    rng = np.random.default_rng(11)
    for _ in range(20):
        groups = GENERATORS[kind](rng, 4, 6)
        times, energies = np.zeros(1), np.zeros(1)
        for begin, end in zip(groups.start[:-1], groups.start[1:], strict=True):
            times = (times[:, None] + groups.time_s[begin:end]).ravel()
            energies = (energies[:, None] + groups.energy_j[begin:end]).ravel()
        problem = Knapsack(groups)
        time, energy, rate = problem.hull()
        assert time[0] == pytest.approx(times.min()) and energy[-1] == pytest.approx(energies.min())
        slopes = -np.diff(energy) / np.diff(time)
        assert (np.diff(slopes) < 0).all() and (slopes > 0).all()
        assert rate == pytest.approx(slopes)
        inside = times <= time[-1]
        assert (energies[inside] >= np.interp(times[inside], time, energy) * (1 - 1e-9)).all()
        for vertex in range(len(time)):
            plan = problem.hull_plan(vertex)
            assert (plan.time_s, plan.energy_j) == pytest.approx((time[vertex], energy[vertex]))


def test_budget_met_to_the_last_bit_is_allowed_and_one_bit_less_is_not():
    groups = Groups(np.array([0.1, 0.7, 0.2, 0.9]), np.array([9.0, 4.0, 9.0, 4.0]), np.array([0, 2, 4]))
    both = Fraction(0.7) + Fraction(0.9)
    assert Knapsack(groups).least_energy(both).energy_j == 8.0
    assert Knapsack(groups).least_energy(both - Fraction(1, 2**80)).energy_j == 13.0


def test_a_plan_that_rounding_makes_look_beaten_is_found():
    """In doubles 1 + 2**-55 and 1 + 2**-54 are both 1: the cheaper is over the budget, the other is the answer."""
    time = np.array([1.0, 2.0, 2.0**-56, 2.0**-55, 2.0**-54])
    groups = Groups(time, np.array([5.0, 4.0, 8.0, 7.5, 1.0]), np.array([0, 2, 5]))
    found = Knapsack(groups).least_energy(1 + Fraction(1, 2**55))
    assert found.energy_j == found.lower_bound_j == 12.5


def test_impossible_budget_is_refused():
    groups = Groups(np.array([1.0, 2.0]), np.array([2.0, 1.0]), np.array([0, 2]))
    with pytest.raises(InfeasibleError):
        Knapsack(groups).least_energy(0.999)


def test_a_tolerance_is_kept_and_the_gap_is_true():
    rng = np.random.default_rng(5)
    groups = GENERATORS["heavy_tailed"](rng, 300, 40)
    budget = budget_s(groups, 0.01)
    best = Knapsack(groups).least_energy(budget)
    loose = Knapsack(groups).least_energy(budget, gap_tolerance=1e-3)
    assert best.gap == 0.0
    assert loose.gap <= 1e-3
    assert loose.lower_bound_j <= best.energy_j <= loose.energy_j


def test_the_bound_is_true_where_the_search_must_give_up(monkeypatch):
    monkeypatch.setattr("wastenot.frontiers.core_search._MOST_STATES", 4)
    rng = np.random.default_rng(8)
    gaps = []
    for _ in range(6):
        groups = GENERATORS["correlated"](rng, 8, 8)
        budget = budget_s(groups, 0.2)
        found = Knapsack(groups).least_energy(budget)
        reference = solve_with_milp(groups, budget)
        assert reference is not None
        check_plan(groups, found.options, budget)
        assert found.lower_bound_j <= groups.energy_j[reference].sum() * (1 + 1e-9)
        gaps.append(found.gap)
    assert max(gaps) > 0.0
