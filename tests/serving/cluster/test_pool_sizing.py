"""Sizes of pools: every class finds room in a pool that may serve it, and only the largest has more than it needs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from wastenot.core.errors import BadInputError
from wastenot.serving.cluster.classes import COUNT, dominates
from wastenot.serving.cluster.sharding import sized

rates = st.lists(st.floats(0.0, 50.0), min_size=COUNT, max_size=COUNT).map(np.array)


def test_remainders_go_to_the_next_class_that_dominates() -> None:
    rate = np.zeros(COUNT)
    rate[0], rate[1], rate[8] = 24.0, 3.0, 13.0
    found = sized(rate, np.full(COUNT, 10.0))
    assert found.instances == (2, 0, 0, 0, 0, 0, 0, 0, 2)  # 4 and then 7 of SS and SM end in LL, which takes 20
    assert found.rate_per_s[8].sum() == pytest.approx(20.0)
    assert found.shares()[8, 0] == pytest.approx(4 / 24)
    assert found.pools[0] == (0, 8)
    assert found.pools[1] == (8,)


@given(rates, st.lists(st.floats(0.5, 20.0), min_size=COUNT, max_size=COUNT).map(np.array))
def test_pools_have_room_and_only_the_largest_has_more(rate: np.ndarray, capacity: np.ndarray) -> None:
    found = sized(rate, capacity)
    assert found.rate_per_s.sum(axis=0) == pytest.approx(rate), "nothing is lost"
    for number in range(COUNT):
        room = found.instances[number] * capacity[number]
        if found.instances[number]:
            assert room >= found.rate_per_s[number].sum() - 1e-6
        if number < COUNT - 1:
            assert room <= found.rate_per_s[number].sum() * (1 + 1e-6) + 1e-6
        elif found.instances[number]:
            assert room - capacity[number] < found.rate_per_s[number].sum() + 1e-6
        if rate[number] > 1e-3:
            assert found.pools[number]
        assert all(dominates(each, number) and found.instances[each] for each in found.pools[number])


def test_a_class_that_nothing_serves_is_refused() -> None:
    with pytest.raises(BadInputError, match="class 4"):
        sized(np.eye(COUNT)[4], np.zeros(COUNT))
