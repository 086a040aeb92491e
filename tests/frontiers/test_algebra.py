"""The algebra against enumeration, and its laws."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wastenot.errors import BadInputError, InfeasibleError
from wastenot.frontiers.algebra import Frontier, FrontierTooLargeError, choice, either, repeat, sequence

ways = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=5)


def kernel(points) -> Frontier:
    return choice([(float(time), float(energy), index) for index, (time, energy) in enumerate(points)])


def all_plans(*parts):
    """(time, energy) of every plan of (points, count) parts."""
    plans = [(0, 0)]
    for points, count in parts:
        plans = [(t + count * time, e + count * energy) for t, e in plans for time, energy in points]
    return plans


def front(plans):
    return sorted({p for p in plans if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in plans)})


@given(ways, ways, ways, st.integers(1, 30), st.integers(10, 2000))
def test_sequence_of_repeats_answers_as_enumeration_does(a, b, c, count, budget):
    whole = sequence(repeat(sequence(kernel(a), kernel(b)), count), kernel(c))
    plans = all_plans((a, count), (b, count), (c, 1))
    pareto = whole.pareto()
    assert list(zip(pareto.time_s, pareto.energy_j, strict=True)) == front(plans)
    assert (whole.least_time().time_s, whole.least_time().energy_j) == min(plans)
    assert whole.least_energy().energy_j == min(energy for _, energy in plans)
    allowed = [plan for plan in plans if plan[0] <= budget]
    if allowed:
        found = whole.least_energy(budget)
        assert found.energy_j == min(energy for _, energy in allowed)
        assert unrolled(found.choices, (a, count), (b, count), (c, 1)) == (found.time_s, found.energy_j)
    else:
        with pytest.raises(InfeasibleError):
            whole.least_energy(budget)
    edp = whole.least_edp(2.0)
    assert edp.energy_j * edp.time_s**2 == pytest.approx(min(energy * time**2 for time, energy in plans))
    for place in range(len(pareto)):
        point = pareto.unroll(place)
        assert unrolled(point.choices, (a, count), (b, count), (c, 1)) == (point.time_s, point.energy_j)


def unrolled(choices, *parts):
    chosen = [(points[index], count) for index, (points, count) in zip(choices, parts, strict=True)]
    return sum(count * point[0] for point, count in chosen), sum(count * point[1] for point, count in chosen)


@given(ways, ways, ways)
def test_either_is_the_better_of_both_and_says_which(a, b, c):
    made = sequence(either(kernel(a), sequence(kernel(b), kernel(c))), kernel(c))
    plans = [(t + u, e + f) for t, e in list(a) + all_plans((b, 1), (c, 1)) for u, f in c]
    pareto = made.pareto()
    assert list(zip(pareto.time_s, pareto.energy_j, strict=True)) == front(plans)
    (which, inner), last = made.least_energy().choices
    energy = a[inner[0]][1] if which == 0 else b[inner[0]][1] + c[inner[1]][1]
    assert energy + c[last][1] == made.least_energy().energy_j


@given(ways, ways)
def test_hull_points_are_on_the_front_and_unroll(a, b):
    whole = sequence(kernel(a), kernel(b))
    hull = whole.hull()
    known = front(all_plans((a, 1), (b, 1)))
    for place in range(len(hull)):
        point = hull.unroll(place)
        assert (point.time_s, point.energy_j) in known
        assert unrolled(point.choices, (a, 1), (b, 1)) == (hull.time_s[place], hull.energy_j[place])


def test_exact_times_are_exact():
    tenth = choice([(0.1, 1.0, "only")])
    assert repeat(tenth, 10).least_energy(10 * Fraction(0.1)).choices == ("only",)
    with pytest.raises(InfeasibleError):
        repeat(tenth, 10).least_energy(1)  # 0.1 is a little more than a tenth


def test_nonsense_is_refused():
    for bad in ([], [(0.0, 1.0, "")], [(1.0, -1.0, "")], [(np.nan, 1.0, "")], [(1.0, np.inf, "")]):
        with pytest.raises(BadInputError):
            choice(bad)
    good = choice([(1.0, 1.0, "")])
    for times in (0, -1, 1.5):
        with pytest.raises(BadInputError):
            repeat(good, times)
    with pytest.raises(BadInputError):
        sequence()
    for exponent in (-0.1, np.nan, np.inf):
        with pytest.raises(BadInputError):
            good.least_edp(exponent)


def test_a_front_of_millions_is_refused_not_attempted():
    rng = np.random.default_rng(1)
    parts = [choice([(t, 2 - t, None) for t in rng.uniform(0.5, 1.5, 60)]) for _ in range(6)]
    whole = sequence(*parts)
    with pytest.raises(FrontierTooLargeError):
        whole.pareto()
    assert len(whole.hull()) > 6
