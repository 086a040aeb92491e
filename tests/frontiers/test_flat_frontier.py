"""A frontier all of whose deadlines are the same: plans still end by them to the last digit."""

from fractions import Fraction

import numpy as np

from wastenot.frontiers.algebra import choice
from wastenot.frontiers.graph import Graph

TIMES_S = (0.1, 0.1, 0.7)


def test_plans_are_in_time_where_the_fastest_is_the_slowest():
    exact = sum(map(Fraction, TIMES_S))
    assert Fraction(float(exact)) < exact  # rounded, the time is just too short
    graph = Graph([choice([(time, 1.0, None)]) for time in TIMES_S], np.arange(3), np.array([[0, 1], [1, 2]]))
    frontier = graph.frontier(4)
    for within_s, plan in zip(frontier.within_s.tolist(), frontier.plans, strict=True):
        assert plan.exact_time_s == exact <= Fraction(within_s)
