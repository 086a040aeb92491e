"""What load an engine can take: the highest rate at which its maximum clock keeps the deadlines.

Loads are quoted as shares of this rate. How many new tokens a step may have is chosen with it: large steps get prompts
through sooner but keep decoding requests waiting, so the budget is the one at which the engine can take most, and it is
part of the engine whichever policy steers it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from wastenot.core.errors import BadInputError
from wastenot.serving.model.deadlines import Deadlines
from wastenot.serving.model.engine import Engine
from wastenot.serving.model.requests import Requests
from wastenot.serving.simulation.policy import Fixed
from wastenot.serving.simulation.simulate import simulate

MOST_PER_S = 1000.0
"""Beyond which no rate is looked for."""
STEP_TOKENS = (128, 256, 512, 1024, 2048, 4096)
"""Budgets of a step that are tried."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The highest rate that was found to keep the deadlines.

    Attributes:
        engine: with the budget of a step that is best for it.
        rate_per_s: requests per second.
        attainment: at this rate.
    """

    engine: Engine
    rate_per_s: float
    attainment: float


def capacity(
    load: Callable[[float], Requests], engine: Engine, deadlines: Deadlines, *, share: float = 0.99, within: float = 0.01
) -> Capacity:
    """The highest rate at which the maximum clock attains a share, by bisection.

    Attainment falls with the rate but for noise, as other requests meet at each rate; the rate found is one that attains,
    with one that does not at most ``within`` above it.

    Args:
        load: requests at a rate.
        engine: that serves them.
        deadlines: to be kept.
        share: of the requests that are to keep all deadlines.
        within: relative distance of the rates between which the answer lies.

    Raises:
        BadInputError: the deadlines are not kept at any rate.
    """
    low, high, at_low, rate, reached = 0.0, MOST_PER_S, 0.0, 1.0, 0.0
    while high > low * (1 + within) and low < MOST_PER_S:
        requests = load(rate)
        if rate < 1e-3 or not len(requests):
            raise BadInputError(
                f"even at its maximum clock and with almost no load the engine meets the deadlines of {reached:.1%} of "
                f"the requests, not {share:.0%}; allow more time"
            )
        reached = simulate(requests, engine, Fixed(), deadlines=deadlines).attainment(deadlines)
        if reached >= share:
            low, at_low = rate, reached
        else:
            high = rate
        rate = min(2 * low, MOST_PER_S) if high == MOST_PER_S else (low + high) / 2 if low else high / 2
    return Capacity(engine, low, at_low)


def best_step_tokens(
    load: Callable[[float], Requests],
    engine: Engine,
    deadlines: Deadlines,
    *,
    share: float = 0.99,
    step_tokens: Sequence[int] = STEP_TOKENS,
) -> Capacity:
    """The budget of a step with which the maximum clock's :func:`capacity` is greatest, and this capacity.

    ``step_tokens`` are the budgets to try; those beyond what the tables cover are left out.
    """
    best, refused = None, None
    most = float(engine.tables.prefill_tokens[-1])
    for tokens in step_tokens:
        if tokens > most:
            continue
        try:
            found = capacity(load, replace(engine, most_step_tokens=tokens), deadlines, share=share)
        except BadInputError as error:
            refused = error
            continue
        if best is None or found.rate_per_s > best.rate_per_s:
            best = found
    if best is None:
        raise refused or BadInputError(f"`step_tokens`: the tables cover steps of at most {most:g} tokens")
    return best
