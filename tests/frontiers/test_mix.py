"""Mixtures of classes against brute force."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from wastenot.errors import BadInputError, InfeasibleError
from wastenot.frontiers.algebra import choice, either, repeat, sequence
from wastenot.frontiers.bounded_means import Bound
from wastenot.frontiers.mix import Load, RequestClass, mix

positive = st.integers(1, 30).map(lambda number: number / 7)
ways = st.lists(st.tuples(positive, positive), min_size=1, max_size=5)


@given(st.lists(st.tuples(positive, ways), min_size=1, max_size=3), positive)
def test_a_mix_is_the_weighted_mean(parts, within):
    frontier = mix(*((weight, choice(each)) for weight, each in parts))
    whole = math.fsum(weight for weight, _ in parts)
    every = [
        (
            math.fsum(weight / whole * way[0] for (weight, _), way in zip(parts, taken, strict=True)),
            math.fsum(weight / whole * way[1] for (weight, _), way in zip(parts, taken, strict=True)),
        )
        for taken in product(*(each for _, each in parts))
    ]
    assert all(abs(time - within) > 1e-9 for time, _ in every) or assume(False)
    kept = [energy for time, energy in every if time <= within]
    if kept:
        assert frontier.least_energy(within_s=within).energy_j == pytest.approx(min(kept), rel=1e-12)
    else:
        with pytest.raises(InfeasibleError):
            frontier.least_energy(within_s=within)


def test_a_mix_composes_with_the_rest_of_the_algebra():
    one, other = choice([(1.0, 9.0, "fast"), (2.0, 4.0, "slow")]), choice([(3.0, 6.0, "only")])
    whole = mix((1, either(sequence(one, one), other)), (3, repeat(one, 2)))
    best = whole.least_energy(within_s=3.3)
    assert best.time_s == pytest.approx((3.0 + 3 * 2.0) / 4) or best.time_s <= 3.3
    assert best.energy_j == pytest.approx(min(
        (energy + 3 * other_energy) / 4
        for time, energy in [(2, 18), (3, 13), (4, 8), (3, 6)]
        for other_time, other_energy in [(2, 18), (4, 8)]
        if (time + 3 * other_time) / 4 <= 3.3
    ))  # fmt: skip
    with pytest.raises(BadInputError, match="weights"):
        mix((0.0, one))
    with pytest.raises(BadInputError, match="weights"):
        mix()


@st.composite
def loads(draw):
    classes = []
    for index in range(draw(st.integers(1, 3))):
        number = draw(st.integers(1, 5))
        column = st.lists(positive, min_size=number, max_size=number).map(np.array)
        latency = {"ttft": draw(column), "tbt": draw(column), "late": draw(column) / 10}
        labels = draw(st.permutations("vwxyz"))[:number]
        classes.append(RequestClass(f"c{index}", draw(positive), draw(column), latency, labels))
    bounds = draw(
        st.lists(
            st.builds(Bound, st.sampled_from(["ttft", "tbt", "late"]), positive, st.sampled_from([None, None, "c0", "c1"])),
            max_size=4,
        )
    )
    names = {each.name for each in classes}
    return classes, [bound for bound in dict.fromkeys(bounds) if bound.of is None or bound.of in names]


def brute_force(classes, bounds, shared):
    """The least energy, and how near the nearest choice comes to a bound."""
    whole = math.fsum(each.weight for each in classes)
    best, nearest = math.inf, math.inf
    for taken in product(*(range(len(each.energy_j)) for each in classes)):
        if shared and len({each.labels[way] for each, way in zip(classes, taken, strict=True)}) > 1:
            continue
        fits = True
        for bound in bounds:
            values = [each.latency_s[bound.latency][way] for each, way in zip(classes, taken, strict=True)]
            if bound.of is None:
                value = math.fsum(each.weight / whole * value for each, value in zip(classes, values, strict=True))
                nearest = min(nearest, abs(value - bound.at_most))
            else:
                value = values[[each.name for each in classes].index(bound.of)]
            fits &= value <= bound.at_most
        if fits:
            best = min(
                best,
                math.fsum(each.weight / whole * each.energy_j[way] for each, way in zip(classes, taken, strict=True)),
            )
    return best, nearest


@given(loads(), st.booleans())
def test_least_energy_within_bounds_of_each_and_of_all(given_load, shared):
    classes, bounds = given_load
    if shared and not set.intersection(*(set(each.labels) for each in classes)):
        with pytest.raises(BadInputError, match="no way in common"):
            Load(tuple(classes), shared=True)
        return
    best, nearest = brute_force(classes, bounds, shared)
    assume(nearest > 1e-6)
    load = Load(tuple(classes), shared=shared)
    if math.isinf(best):
        with pytest.raises(InfeasibleError):
            load.least_energy(bounds)
        return
    found = load.least_energy(bounds)
    assert found.energy_j == pytest.approx(best, rel=1e-9)
    assert found.relaxed_j <= found.lower_bound_j + 1e-12 and found.lower_bound_j <= found.energy_j * (1 + 1e-12)
    for bound in bounds:
        if bound.of is None:
            assert found.latency_s[bound.latency] <= bound.at_most + 1e-12
    assert not shared or len(set(found.choices.values())) == 1


def two_classes():
    fast_slow = np.array([9.0, 4.0])
    short = RequestClass("short", 1.0, fast_slow, {"ttft p99": np.array([0.1, 0.3]), "tbt": np.array([0.02, 0.04])})
    long = RequestClass("long", 3.0, 2 * fast_slow, {"ttft p99": np.array([1.0, 3.0]), "tbt": np.array([0.02, 0.04])})
    return short, long


def test_the_price_of_a_millisecond():
    bound = Bound("tbt", 0.030)
    found = Load(two_classes()).least_energy([bound])
    # long requests have weight 3/4: from fast to slow 10 J for 20 ms of theirs; short ones 5 J for as much
    assert found.choices == {"short": 1, "long": 0} and found.energy_j == pytest.approx((4 + 3 * 18) / 4)
    assert found.relaxed_j == pytest.approx((9 + 3 * (18 - 10 * 2 / 3)) / 4) and found.price[bound] == pytest.approx(
        10 / 0.020
    )
    free = Load(two_classes()).least_energy([Bound("tbt", 0.050)])
    assert free.price[Bound("tbt", 0.050)] == 0.0 and free.energy_j == pytest.approx((4 + 3 * 8) / 4)


def test_percentiles_bound_classes_and_the_frontier_follows():
    load = Load(two_classes())
    bounds = [Bound("ttft p99", 0.25, "short"), Bound("ttft p99", 4.0, "long")]
    assert load.least_energy(bounds).choices == {"short": 0, "long": 1}
    frontier = load.frontier("tbt", bounds)
    assert [point.time_s for point in frontier.pareto()] == pytest.approx([0.020, 0.035])
    together = Load(two_classes(), shared=True)
    assert together.least_energy(bounds).choices == {"short": 0, "long": 0}
    assert len(together.frontier("tbt").pareto()) == 2


def test_a_large_load_is_fast():
    rng = np.random.default_rng(5)
    classes = tuple(
        RequestClass(
            f"c{index}",
            rng.uniform(0.5, 2),
            rng.uniform(1, 9, 800),
            {"a": rng.uniform(0, 1, 800), "b": rng.uniform(0, 1, 800)},
        )
        for index in range(9)
    )
    found = Load(classes).least_energy([Bound("a", 0.2), Bound("b", 0.2), Bound("a", 0.5, "c3")])
    assert (found.energy_j - found.lower_bound_j) / found.energy_j < 1e-6
    assert found.latency_s["a"] <= 0.2 and found.latency_s["b"] <= 0.2


@pytest.mark.parametrize(
    ("bounds", "error", "message"),
    [
        ([Bound("e2e", 1.0)], BadInputError, "is on nothing there is"),
        ([Bound("tbt", 1.0, "huge")], BadInputError, "is on nothing there is"),
        ([Bound("tbt", 0.01)], InfeasibleError, "the least tbt of all is 0.02"),
        ([Bound("tbt", 0.01, "long")], InfeasibleError, "the least tbt of long is 0.02"),
    ],
)
def test_what_cannot_be(bounds, error, message):
    with pytest.raises(error, match=message):
        Load(two_classes()).least_energy(bounds)


def test_classes_that_cannot_be():
    short, _ = two_classes()
    with pytest.raises(BadInputError, match="a name of its own"):
        Load((short, short))
    with pytest.raises(BadInputError, match="weight of x"):
        RequestClass("x", 0.0, np.ones(1), {})
    with pytest.raises(BadInputError, match="needs 1 numbers"):
        RequestClass("x", 1.0, np.ones(1), {"tbt": np.ones(2)})


@settings(max_examples=50)
@given(st.lists(st.floats(0.01, 100.0), min_size=1, max_size=5), st.floats(1e-3, 10.0))
def test_classes_that_each_take_just_what_is_allowed_keep_the_bound(weights, at_most):
    ways = {"tbt": np.array([at_most / 2, at_most]), "other": np.array([at_most, at_most])}
    classes = tuple(RequestClass(f"c{i}", weight, np.array([2.0, 1.0]), ways) for i, weight in enumerate(weights))
    for bounds in ([Bound("tbt", at_most)], [Bound("tbt", at_most), Bound("other", at_most)]):
        for shared in (False, True):
            found = Load(classes, shared=shared).least_energy(bounds)
            assert set(found.choices.values()) == {1} and found.latency_s["tbt"] == at_most
    frontier = mix(*((weight, choice([(at_most / 2, 2.0), (at_most, 1.0)])) for weight in weights))
    assert set(frontier.least_energy(within_s=at_most).choices) == {1}


@st.composite
def tight_loads(draw):
    """Small whole numbers, so that many choices meet a bound to the last bit."""
    classes = []
    for index in range(draw(st.integers(1, 4))):
        number = draw(st.integers(1, 4))
        eighths = st.lists(st.integers(0, 8), min_size=number, max_size=number).map(lambda values: np.array(values) / 8)
        energy = draw(st.lists(st.integers(1, 9), min_size=number, max_size=number))
        latency = {name: draw(eighths) for name in "tul"}
        classes.append(RequestClass(f"c{index}", float(draw(st.integers(1, 4))), np.array(energy, dtype=float), latency))
    names = draw(st.sets(st.sampled_from("tul"), min_size=1))
    return classes, [Bound(name, draw(st.integers(1, 8)) / 8) for name in sorted(names)]


@given(tight_loads())
def test_bounds_that_are_met_exactly(given_load):
    classes, bounds = given_load
    whole, kept = sum(Fraction(each.weight) for each in classes), []
    for taken in product(*(range(len(each.energy_j)) for each in classes)):
        each_way = list(zip(classes, taken, strict=True))
        if all(
            sum(Fraction(each.weight) * Fraction(float(each.latency_s[bound.latency][way])) for each, way in each_way)
            <= Fraction(bound.at_most) * whole
            for bound in bounds
        ):
            kept.append(sum(Fraction(each.weight) * Fraction(float(each.energy_j[way])) for each, way in each_way) / whole)
    if not kept:
        with pytest.raises(InfeasibleError):
            Load(tuple(classes)).least_energy(bounds)
        return
    found = Load(tuple(classes)).least_energy(bounds)
    assert found.energy_j == pytest.approx(float(min(kept)), rel=1e-9)
    assert found.lower_bound_j <= float(min(kept)) * (1 + 1e-9)
