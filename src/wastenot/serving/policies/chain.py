"""The batch of an engine as a birth-death chain that a clock steers: what a second and what a running request are worth.

Requests come at a rate and go at a rate that the clock decides. The policy of least mean cost of such a chain is found by
policy iteration; each policy's mean cost and values have closed forms (Puterman, *Markov Decision Processes*, section 8.6).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray


class ChainPrices(NamedTuple):
    """The prices of a steered chain.

    Attributes:
        cost_rate: of the best policy, on average: what a second is worth.
        request: what one request more in the batch costs from then on, by the batch it comes on top of; shape (states - 1,).
        choice: the best setting in each state; shape (states,).
    """

    cost_rate: float
    request: FloatArray
    choice: IndexArray


def prices_of_chain(arrivals_per_s: float, departures_per_s: FloatArray, cost_rate: FloatArray) -> ChainPrices:
    """Solve a chain whose state is the number of running requests.

    Args:
        arrivals_per_s: in every state but the last, where none is admitted; above 0.
        departures_per_s: by setting and state, above 0 but in state 0; shape (settings, states).
        cost_rate: by setting and state; shape (settings, states).
    """
    states = cost_rate.shape[1]
    every = np.arange(states)
    choice = np.argmax(departures_per_s, axis=0)
    mean, request = _evaluate(arrivals_per_s, departures_per_s[choice, every], cost_rate[choice, every])
    for _ in range(50):
        worth = cost_rate - departures_per_s * np.concatenate([[0.0], request])
        better = np.argmin(worth, axis=0)
        gains = worth[choice, every] - worth[better, every] > 1e-9 * np.abs(mean)
        if not gains.any():
            break
        choice = np.where(gains, better, choice)
        mean, request = _evaluate(arrivals_per_s, departures_per_s[choice, every], cost_rate[choice, every])
    return ChainPrices(mean, request, choice)


def _evaluate(arrivals_per_s: float, departures_per_s: FloatArray, cost_rate: FloatArray) -> tuple[float, FloatArray]:
    """Mean cost of a policy, and what each further request costs under it."""
    log_share = np.concatenate([[0.0], np.cumsum(np.log(arrivals_per_s / departures_per_s[1:]))])
    share = np.exp(log_share - log_share.max())
    share /= share.sum()
    mean, mode = float(share @ cost_rate), int(share.argmax())
    # The equation of balance, from both ends towards the state the chain is in most: the directions in which errors shrink.
    above, leave = (cost_rate - mean).tolist(), departures_per_s.tolist()
    request, last = [0.0] * (len(share) - 1), 0.0
    for state in range(mode):
        last = request[state] = (leave[state] * last - above[state]) / arrivals_per_s
    last = 0.0
    for state in range(len(share) - 1, mode, -1):
        last = request[state - 1] = (arrivals_per_s * last + above[state]) / leave[state]
    return mean, np.array(request)
