"""Pareto fronts and hulls against their definitions."""

import numpy as np
from hypothesis import given, strategies as st

from wastenot.frontiers.pareto import Groups, hull_points, pareto_points

coordinates = st.one_of(st.integers(1, 6).map(float), st.floats(1e-6, 1e6))
groups = st.lists(st.lists(st.tuples(coordinates, coordinates), min_size=1, max_size=12), min_size=1, max_size=8)


def as_groups(points: list[list[tuple[float, float]]]) -> Groups:
    flat = np.array([point for group in points for point in group])
    start = np.cumsum([0] + [len(group) for group in points])
    return Groups(flat[:, 0], flat[:, 1], start)


def beaten(point: tuple[float, float], others: list[tuple[float, float]]) -> bool:
    return any(o != point and o[0] <= point[0] and o[1] <= point[1] for o in others)


@given(groups)
def test_pareto_points_are_those_that_none_beats(points):
    made = as_groups(points)
    kept = pareto_points(made)
    for index, group in enumerate(points):
        mine = kept[made.group[kept] == index]
        found = [(made.time_s[point], made.energy_j[point]) for point in mine]
        assert found == sorted({point for point in group if not beaten(point, group)})
    assert (np.diff(made.group[kept]) >= 0).all()


def test_first_of_equal_points_is_kept():
    made = as_groups([[(2.0, 5.0), (1.0, 7.0), (2.0, 5.0), (1.0, 7.0)]])
    assert pareto_points(made).tolist() == [1, 0]


def test_groups_of_very_different_size_do_not_need_a_matrix():
    rng = np.random.default_rng(3)
    sizes = [1] * 3000 + [40_000] + [2] * 3000
    made = Groups(rng.random(sum(sizes)), rng.random(sum(sizes)), np.cumsum([0, *sizes]))
    kept = pareto_points(made)
    assert (np.bincount(made.group[kept], minlength=len(sizes)) >= 1).all()
    big = np.flatnonzero(made.group == 3000)
    alone = pareto_points(Groups(made.time_s[big], made.energy_j[big], np.array([0, len(big)])))
    assert (kept[made.group[kept] == 3000] == big[alone]).all()


@given(groups)
def test_every_point_is_on_or_above_the_hull_and_slopes_fall(points):
    made = as_groups(points)
    front = pareto_points(made)
    time, energy, group = made.time_s[front], made.energy_j[front], made.group[front]
    hull = hull_points(time, energy, group)
    for index in range(len(points)):
        corner = hull[group[hull] == index]
        mine = group == index
        assert corner[0] == np.flatnonzero(mine)[0] and corner[-1] == np.flatnonzero(mine)[-1]
        on_hull = np.interp(time[mine], time[corner], energy[corner])
        assert (energy[mine] >= on_hull * (1 - 1e-9)).all()
        slopes = -np.diff(energy[corner]) / np.diff(time[corner])
        assert (np.diff(slopes) < 0).all()


def test_a_hull_that_takes_a_round_for_each_point():
    # Convex but for a last point so low that every other one falls, one neighbour at a time.
    time = np.arange(1.0, 200.0)
    energy = np.append(1e4 / time[:-1] + 1e6, 1.0)
    hull = hull_points(time, energy, np.zeros(len(time), dtype=int))
    assert hull.tolist() == [0, len(time) - 1]
