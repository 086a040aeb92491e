"""The batch of an engine as a birth-death chain that a clock steers: what a second and what a running request are worth.

          λ         λ         λ               λ
      0  ───►   1  ───►   2  ───►   …   ───►  N        requests in the batch
         ◄───      ◄───      ◄───       ◄───
          μ₁(a)     μ₂(a)     μ₃(a)           μ_N(a)   departures at setting a; a second in state n costs c_n(a) watts

A policy picks a setting for each state. With g its mean cost a second and h(n) the cost still to come from n on, relative to
the mean, the difference d(n) = h(n + 1) − h(n) is what one request more costs, and Poisson's equation reads

    g = c_n + λ d(n) − μ_n d(n − 1)            without the first difference in state N, without the second in state 0

Improve: in each state take the setting with the least c_n(a) − μ_n(a) d(n − 1), as λ is the same for all: its cost less the
worth of the requests that leave. Evaluate the new policy, and repeat until no choice changes (policy iteration: Puterman,
*Markov Decision Processes*, section 8.6). Evaluation takes no linear system. Detailed balance gives the shares of time,
π_n ∝ Π λ / μ_k over k ≤ n, thus g = Σ π_n c_n, and the equation above then gives each d from its neighbour.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wastenot.core.arrays import FloatArray, IndexArray
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.step_costs import StepCosts


class Batches(NamedTuple):
    """The states of an engine's chain: what a decode step of each batch takes, and how fast its requests leave.

    Attributes:
        batch: requests that decode, from 0 on; shape (states,).
        time_s: of a decode step, with the host's; shape (settings, states).
        energy_j: of a decode step; shape (settings, states).
        leave_per_s: requests; shape (settings, states).
    """

    batch: FloatArray
    time_s: FloatArray
    energy_j: FloatArray
    leave_per_s: FloatArray


def batches_of(engine: Engine, costs: StepCosts, context: float, output: float, decoding: float) -> Batches:
    """All batches that an engine may have.

    At setting a, a decode step of n requests lasts t_n(a), and each leaves after ``output`` steps, so that requests leave at
    n / (output · t_n(a)), times the share of the time in which the engine decodes at all.

    Args:
        engine: that serves.
        costs: of its steps.
        context: tokens in the cache of a request, on average (:func:`mean_context`).
        output: tokens of an answer, on average.
        decoding: share of the time that prompts leave for decoding.
    """
    states = int(min(engine.most_running, engine.tables.batches[-1])) + 1
    batch = np.arange(states, dtype=float)
    time_s, energy_j = costs.decode(batch, np.full(states, context))
    time_s = time_s + engine.overhead_s
    return Batches(batch, time_s, energy_j, np.where(batch > 0, batch / (output * time_s) * decoding, 1.0))


def mean_context(prompts: FloatArray, outputs: FloatArray) -> float:
    """Tokens in the cache of a request that decodes, on average over time.

    Its prompt, and half of its answer; of those that are there at a moment, answers of o tokens are o times as likely, so
    that half of an answer is E[o²] / 2 E[o].
    """
    return float(prompts.mean() + (outputs**2).mean() / outputs.mean() / 2)


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
    choice = np.argmax(departures_per_s, axis=0)  # the fastest: if any policy keeps the batch short, it does
    mean, request = _evaluate(arrivals_per_s, departures_per_s[choice, every], cost_rate[choice, every])
    # Each round is a strictly better policy, of which there are finitely many, so the loop ends by itself; 50 is a stop for
    # gains that are rounding alone, as is 1e-9 of the mean. Chosen by hand.
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
    # In logarithms: at a light load the shares of large batches underflow.
    log_share = np.concatenate([[0.0], np.cumsum(np.log(arrivals_per_s / departures_per_s[1:]))])
    share = np.exp(log_share - log_share.max())
    share /= share.sum()
    mean, mode = float(share @ cost_rate), int(share.argmax())
    # Poisson's equation from both ends towards the mode: a rounding error of d(k) reaches d(n) times π_k / π_n, on the way
    # up (factors μ / λ) as on the way down (λ / μ), so it shrinks wherever the chain is in n more than in k.
    above, leave = (cost_rate - mean).tolist(), departures_per_s.tolist()
    request, last = [0.0] * (len(share) - 1), 0.0
    for state in range(mode):
        last = request[state] = (leave[state] * last - above[state]) / arrivals_per_s
    last = 0.0
    for state in range(len(share) - 1, mode, -1):
        last = request[state - 1] = (arrivals_per_s * last + above[state]) / leave[state]
    return mean, np.array(request)
