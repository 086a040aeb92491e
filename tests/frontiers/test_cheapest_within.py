"""The cheapest options within a budget of weights of any sign, against enumeration."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, strategies as st

from wastenot.core.errors import InfeasibleError
from wastenot.frontiers.knapsack import cheapest_within

options = st.lists(st.tuples(st.integers(1, 9), st.integers(-9, 9)), min_size=1, max_size=4)


@given(st.lists(options, min_size=1, max_size=4), st.integers(-30, 30))
def test_the_cheapest_within_a_budget(groups, budget):
    flat = np.array([option for group in groups for option in group], dtype=float)
    start = np.cumsum([0, *map(len, groups)])
    plans = [tuple(map(sum, zip(*plan, strict=True))) for plan in product(*groups)]
    allowed = [cost for cost, weight in plans if weight <= budget]
    if not allowed:
        with pytest.raises(InfeasibleError):
            cheapest_within(flat[:, 0], flat[:, 1], start, budget)
        return
    best = cheapest_within(flat[:, 0], flat[:, 1], start, budget)
    chosen = flat[start[:-1] + np.array(best.options)]
    assert best.cost == best.lower_bound == min(allowed) == chosen[:, 0].sum()
    assert chosen[:, 1].sum() <= budget
