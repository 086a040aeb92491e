"""The algebra against enumeration, and its laws."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from wastenot.core.errors import BadInputError, InfeasibleError
from wastenot.core.setting import AUTO, Setting
from wastenot.frontiers.algebra import Frontier, FrontierTooLargeError, choice, either, repeat, sequence, tie
from wastenot.frontiers.nodes import KernelSetting

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
    for point in pareto:
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
    for time_s, energy_j, point in zip(hull.time_s, hull.energy_j, hull, strict=True):
        assert (point.time_s, point.energy_j) in known
        assert unrolled(point.choices, (a, 1), (b, 1)) == (time_s, energy_j)


# ---- any composition, against a list of all its ways --------------------------------------------------------

LABELS = "abcd"
leaves = st.dictionaries(st.sampled_from(LABELS), st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=3)
with_a = leaves.map(lambda ways: {"a": (7, 7)} | ways)


def composed(inner):
    return st.one_of(
        st.tuples(st.just("repeat"), inner, st.integers(1, 4)),
        st.tuples(st.just("sequence"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("either"), st.lists(inner, min_size=1, max_size=2)),
        st.tuples(st.just("tie"), st.lists(with_a, min_size=1, max_size=3)),
    )


trees = st.recursive(leaves, composed, max_leaves=5)


def built(tree) -> Frontier:
    match tree:
        case dict():
            return choice([(float(time), float(energy), label) for label, (time, energy) in tree.items()])
        case "repeat", inner, times:
            return repeat(built(inner), times)
        case kind, parts:
            return {"sequence": sequence, "either": either, "tie": tie}[kind](*map(built, parts))


def ways_of(tree) -> dict:
    """Every way of a tree: its choices, and for these time and energy."""
    match tree:
        case dict():
            return {(label,): way for label, way in tree.items()}
        case "repeat", inner, times:
            return {labels: (times * time, times * energy) for labels, (time, energy) in ways_of(inner).items()}
        case "either", parts:
            return {((index, labels),): way for index, part in enumerate(parts) for labels, way in ways_of(part).items()}
        case "sequence", parts:
            found = {(): (0, 0)}
            for part in parts:
                found = {
                    labels + more: (time + t, energy + e)
                    for labels, (time, energy) in found.items()
                    for more, (t, e) in ways_of(part).items()
                }
            return found
        case "tie", parts:
            shared = set.intersection(*(set(part) for part in parts))
            return {
                (label,) * len(parts): tuple(sum(part[label][column] for part in parts) for column in (0, 1))
                for label in shared
            }


@settings(max_examples=150)
@given(trees, st.integers(1, 300), st.floats(0, 3), st.fractions(0, 30))
def test_every_question_of_any_composition_is_answered_as_its_list_says(tree, budget, exponent, price):
    whole, ways = built(tree), ways_of(tree)
    points = list(ways.values())

    def way(point):
        assert ways[point.choices] == (point.time_s, point.energy_j) and point.exact_time_s == point.time_s
        return point.time_s, point.energy_j

    pareto = whole.pareto()
    assert [way(point) for point in pareto] == front(points)
    assert list(zip(pareto.time_s, pareto.energy_j, strict=True)) == front(points)
    assert way(whole.least_time()) == min(points)
    assert way(whole.least_energy())[1] == min(energy for _, energy in points)
    allowed = [point for point in points if point[0] <= budget]
    if allowed:
        best = whole.least_energy(budget)
        assert way(best)[1] == min(energy for _, energy in allowed) == best.lower_bound_j
        assert whole.lower_bound_j(budget) <= best.energy_j * (1 + 1e-12)
        edp = way(whole.least_edp(exponent, budget))
        assert edp[0] <= budget
        assert edp[1] * edp[0] ** exponent == pytest.approx(min(e * t**exponent for t, e in allowed))
    else:
        with pytest.raises(InfeasibleError, match=f"no option is that fast; the fastest takes {min(points)[0]} s"):
            whole.least_energy(budget)
        for ask in (whole.lower_bound_j, lambda limit: whole.least_edp(exponent, limit)):
            with pytest.raises(InfeasibleError):
                ask(budget)
    time, energy = way(whole.least_edp(exponent))
    assert energy * time**exponent == pytest.approx(min(e * t**exponent for t, e in points))
    time, energy = way(whole.at_price(float(price)))
    assert energy + price * time <= min(e + price * t for t, e in points) * (1 + Fraction(1, 10**9))
    assert [way(point) for point in whole.hull()] == lower_hull(front(points))


def lower_hull(points):
    hull = []
    for time, energy in points:
        while len(hull) > 1:
            (t0, e0), (t1, e1) = hull[-2:]
            if (e0 - e1) * (time - t1) > (e1 - energy) * (t1 - t0):
                break
            hull.pop()
        hull.append((time, energy))
    return hull


@given(trees)
def test_the_price_of_time_is_the_slope_of_the_hull_and_finds_its_vertices(tree):
    whole = built(tree)
    hull = whole.hull()
    corners = list(zip(hull.time_s, hull.energy_j, strict=True))
    for (t0, e0), (t1, e1) in pairwise(corners):
        price = (e0 - e1) / (t1 - t0)
        assert whole.price_of_time(0.5 * (t0 + t1)) == whole.price_of_time(t1) == pytest.approx(price)
        assert whole.at_price(price * 1.001).time_s <= t0 < t1 <= whole.at_price(price * 0.999).time_s
    assert whole.price_of_time(corners[-1][0] + 1) == 0.0
    assert whole.at_price(0.0).energy_j == corners[-1][1]
    assert whole.at_price(1e12).time_s == corners[0][0]


def test_kernels_are_tied_by_their_settings():
    slow = Setting(900.0)
    first = choice([(1.0, 9.0, KernelSetting("x", AUTO)), (2.0, 4.0, KernelSetting("x", slow))])
    second = choice([(3.0, 3.0, KernelSetting("y", slow)), (2.0, 5.0, KernelSetting("y", AUTO))])
    whole = sequence(repeat(tie(first, repeat(second, 2)), 3), first)
    point = whole.least_energy(3 * 8 + 1)
    assert point.choices == (KernelSetting("x", slow), KernelSetting("y", slow), KernelSetting("x", AUTO))
    assert (point.time_s, point.energy_j) == (25.0, 3 * 10.0 + 9.0)
    third = choice([(1.0, 1.0, KernelSetting("z", Setting(1200.0)))])
    with pytest.raises(BadInputError, match="no setting in common"):
        tie(first, third)
    with pytest.raises(BadInputError, match="both labelled"):
        tie(choice([(1.0, 1.0, "a"), (2.0, 1.0, "a")]), first)


def test_a_tie_takes_each_alternative_of_an_either_but_not_one_inside_a_sequence():
    fast, slow = choice([(1, 9, "a"), (3, 5, "b")]), choice([(2, 4, "b")])
    whole = tie(either(fast, slow), choice([(1, 1, "b")]))
    assert whole.least_energy().choices == ((1, ("b",)), "b")
    with pytest.raises(BadInputError, match="within a sequence"):
        tie(sequence(either(fast, slow), fast), fast)


def test_an_either_too_large_to_list_can_still_be_asked():
    rng = np.random.default_rng(1)

    def many():
        return sequence(*(choice([(t, 2 - t) for t in rng.uniform(0.5, 1.5, 30)]) for _ in range(6)))

    whole = either(many(), many())
    assert whole.least_energy(6.0).lower_bound_j == pytest.approx(whole.least_energy(6.0).energy_j)
    with pytest.raises(FrontierTooLargeError):
        sequence(whole, many()).least_time()
    assert "too many points" in repr(sequence(whole, many()))


def test_reprs_fit_on_a_line():
    whole = sequence(*(choice([(1 + way, 9 / (1 + way)) for way in range(9)]) for _ in range(200)))
    for shown in (whole, either(whole, whole), whole.hull(), whole.least_energy(300)):
        assert len(repr(shown)) < 300 and "\n" not in repr(shown)


def test_exact_times_are_exact():
    tenth = choice([(0.1, 1.0, "only")])
    assert repeat(tenth, 10).least_energy(10 * Fraction(0.1)).choices == ("only",)
    with pytest.raises(InfeasibleError):
        repeat(tenth, 10).least_energy(1)  # 0.1 is a little more than a tenth


def test_what_is_wrong_with_a_way_is_said_in_one_sentence():
    for ways, says in (
        ([(1, 2), (3, -4)], r"^ways\[1\]: energy -4 J must be positive and finite; "),
        ([(1, 2), (np.nan, 4)], r"^ways\[1\]: time nan s must be positive"),
        ([(1, 2), 3], r"^ways\[1\]: 3 is not \(time in s, energy in J\)"),
        ([], "at least one way"),
    ):
        with pytest.raises(BadInputError, match=says):
            choice(ways)


def test_nonsense_is_refused():
    for bad in ([], [(0.0, 1.0, "")], [(1.0, -1.0, "")], [(np.nan, 1.0, "")], [(1.0, np.inf, "")]):
        with pytest.raises(BadInputError):
            choice(bad)
    good = choice([(1.0, 1.0, "")])
    for times in (0, -1, 1.5, np.nan):
        with pytest.raises(BadInputError):
            repeat(good, times)
    for compose in (sequence, tie, either):
        with pytest.raises(BadInputError):
            compose()
    for ask in (good.least_energy, lambda wrong: good.at_price(-wrong)):
        with pytest.raises(BadInputError):
            ask(np.inf)
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
