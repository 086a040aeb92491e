"""The chain of a batch: against closed forms, and against every policy tried."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from wastenot.serving.policies.chain import prices_of_chain


def mean_cost(arrivals: float, leave: np.ndarray, cost: np.ndarray) -> float:
    """Of a policy, by the linear equations of its generator."""
    states = len(leave)
    rates = np.zeros((states, states))
    for state in range(states):
        if state + 1 < states:
            rates[state, state + 1] = arrivals
        if state:
            rates[state, state - 1] = leave[state]
        rates[state, state] = -rates[state].sum()
    equations = np.vstack([rates.T, np.ones(states)])
    share = np.linalg.lstsq(equations, np.eye(states + 1)[-1], rcond=None)[0]
    return float(share @ cost)


@pytest.mark.parametrize("seed", range(12))
def test_best_policy_is_the_best_of_all(seed: int) -> None:
    random = np.random.default_rng(seed)
    settings, states = 3, 5
    leave = random.uniform(0.2, 3.0, (settings, states))
    cost = random.uniform(1.0, 10.0, (settings, states))
    arrivals = float(random.uniform(0.3, 3.0))
    every = np.arange(states)
    best = min(
        mean_cost(arrivals, leave[list(choice), every], cost[list(choice), every])
        for choice in product(range(settings), repeat=states)
    )
    assert prices_of_chain(arrivals, leave, cost).cost_rate == pytest.approx(best, rel=1e-9)


def test_prices_satisfy_the_equation_of_balance() -> None:
    random = np.random.default_rng(1)
    states = 200
    batch = np.arange(states)
    leave = np.stack([np.maximum(batch, 1) * 0.3, np.maximum(batch, 1) * 0.1])
    cost = np.stack([100 + batch * 2.0, 60 + batch + random.uniform(0, 5, states)])
    found = prices_of_chain(8.0, leave, cost)
    chosen = found.choice, batch
    worth = np.concatenate([[0.0], found.request])
    more = np.concatenate([found.request, [0.0]])
    rate = np.where(batch < states - 1, 8.0, 0.0) * more - np.where(batch > 0, leave[chosen], 0.0) * worth + cost[chosen]
    assert rate == pytest.approx(np.full(states, found.cost_rate), rel=1e-6)


def test_costs_that_are_the_same_everywhere_give_a_request_no_price() -> None:
    found = prices_of_chain(2.0, np.ones((2, 30)), np.full((2, 30), 7.0))
    assert found.cost_rate == pytest.approx(7.0)
    assert np.abs(found.request).max() < 1e-9
