"""The best order against all orders."""

from itertools import permutations

import numpy as np
import pytest

from wastenot.kernels.model.order import CarryOver, best_order


@pytest.mark.parametrize("seed", range(30))
def test_the_best_order_is_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    number = int(rng.integers(2, 7))
    power, time = rng.uniform(200, 700, number), rng.choice([1e-5, 1e-4, 1e-3, 1e-2], number)
    card = CarryOver(0.1, 0.0, 8e-4, 9, 1.0)
    down = card.penalty_j(power[:, None], power[None, :], time[None, :])
    order, least = best_order(power, down)

    def of(tried):
        return sum(down[tried[place - 1], tried[place]] for place in range(number))

    assert sorted(order) == list(range(number))
    assert least == pytest.approx(of(order), rel=1e-12)
    assert least == pytest.approx(min(of((0, *rest)) for rest in permutations(range(1, number))), rel=1e-12)


def test_nothing_is_paid_where_all_are_alike():
    card = CarryOver(0.1, 0.0, 8e-4, 9, 1.0)
    power = np.full(4, 300.0)
    assert best_order(power, card.penalty_j(power[:, None], power[None, :], np.full((1, 4), 1e-3)))[1] == 0.0
